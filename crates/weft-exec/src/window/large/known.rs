//! Rows of a large partition whose argument is not null, by their number among these.

use std::collections::VecDeque;

use super::blocks::Blocks;
use super::cursor::Cursor;
use crate::error::Result;

/// How many there are in each block.
#[derive(Debug)]
pub(super) struct Known {
    noted: Cursor,
    taken: Place,
    /// Up to the end of each block, the first of which has the number `gone`.
    ends: VecDeque<usize>,
    gone: usize,
    gone_rows: usize,
}

/// The rows of one block.
#[derive(Debug)]
pub(super) struct Place {
    cursor: Cursor,
    /// Those that count, by their numbers in the block.
    rows: Vec<usize>,
}

impl Place {
    pub(super) fn new(field: usize) -> Place {
        Place { cursor: Cursor::new(Some(field)), rows: Vec::new() }
    }

    async fn go(&mut self, row: usize, blocks: &mut Blocks) -> Result<()> {
        if self.cursor.go(row, blocks).await? {
            let argument = self.cursor.column().expect("there is a field");
            let rows = 0..self.cursor.block().rows();
            self.rows.clear();
            self.rows.extend(rows.filter(|row| argument.is_valid(*row)));
        }
        Ok(())
    }
}

impl Known {
    /// Those of a field.
    pub(super) fn new(field: usize) -> Known {
        let (noted, taken) = (Cursor::new(Some(field)), Place::new(field));
        Known { noted, taken, ends: VecDeque::new(), gone: 0, gone_rows: 0 }
    }

    /// Counts those of the blocks that have come.
    ///
    /// # Errors
    /// Those of [`Blocks::load`].
    pub(super) async fn note(&mut self, blocks: &mut Blocks) -> Result<()> {
        while self.gone + self.ends.len() < blocks.count() {
            let first = blocks.first(self.gone + self.ends.len());
            self.noted.go(first, blocks).await?;
            let argument = self.noted.column().expect("there is a field");
            let rows = argument.count_valid(0..self.noted.block().rows());
            self.ends.push_back(self.count() + rows);
        }
        Ok(())
    }

    /// How many there are so far.
    fn count(&self) -> usize {
        self.ends.back().copied().unwrap_or(self.gone_rows)
    }

    /// How many there are before a block.
    fn before_block(&self, block: usize) -> usize {
        if block <= self.gone { self.gone_rows } else { self.ends[block - 1 - self.gone] }
    }

    /// How many there are before a row, which is looked for at a place.
    ///
    /// # Errors
    /// Those of [`Blocks::load`].
    pub(super) async fn before(
        &mut self,
        row: usize,
        place: &mut Place,
        blocks: &mut Blocks,
    ) -> Result<usize> {
        if row == 0 {
            return Ok(0);
        }
        self.note(blocks).await?;
        let block = blocks.of_row(row);
        let before = self.before_block(block);
        if row == blocks.first(block) {
            return Ok(before);
        }
        place.go(row, blocks).await?;
        let number = place.cursor.place(row);
        Ok(before + place.rows.partition_point(|known| *known < number))
    }

    /// The row with a number among those that count, from 0 on; `None` if there are not so many.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`] and [`Blocks::load`].
    pub(super) async fn row(
        &mut self,
        number: usize,
        blocks: &mut Blocks,
    ) -> Result<Option<usize>> {
        self.note(blocks).await?;
        while self.count() <= number {
            if blocks.extend().await?.is_none() {
                return Ok(None);
            }
            self.note(blocks).await?;
        }
        let block = self.gone + self.ends.partition_point(|end| *end <= number);
        let first = blocks.first(block);
        self.taken.go(first, blocks).await?;
        Ok(Some(first + self.taken.rows[number - self.before_block(block)]))
    }

    /// Nobody asks for rows of blocks before this one.
    pub(super) fn forget(&mut self, block: usize) {
        while self.gone < block
            && let Some(rows) = self.ends.pop_front()
        {
            self.gone += 1;
            self.gone_rows = rows;
        }
    }
}
