//! The rows of a large partition in blocks, which come from the merge when somebody asks for them, and stay as long as
//! somebody may ask again: in memory, or on disk if those in memory are enough.

mod places;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use weft_rt::memory::Reservation;

use super::super::sorted_rows::{Chunk, Copied, Input};
use super::super::source::{OPERATOR, Shared};
use super::super::starts::{Starts, starts_of_few};
use super::super::stream::FUNCTION_BYTES;
use crate::error::Result;
use crate::pace::Pace;
use crate::sort::entries::Entry;
use crate::spill::frozen::FROZEN_BYTES_MAX;
use crate::spill::writer::{SpilledPage, Spills, Writer};

/// Of the budget, the part that the tuples of a block take about if there are so many functions at most, each of which may
/// have a few of its own in memory; and the least and the most bytes that are worth it.
const BLOCK_PART: u64 = 256;
const FUNCTIONS: usize = 8;
const BLOCK_BYTES: (u64, u64) = (8 << 10, 1 << 20);

/// How far from the block that is evaluated others lie as they came from the merge, on pages that they share with more
/// rows.
const NEAR: usize = 1;

/// Most rows of a block.
const BLOCK_ROWS_MAX: u64 = 8 << 10;

/// Of the budget, the part that results and what is needed on the way take for the rows of a block.
const EVALUATED_PART: u64 = 16;

/// Of the budget, the part that blocks take which wait in memory.
const HELD_PART: u64 = 8;

/// A block in memory.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) number: usize,
    /// The number of its first row in the partition.
    pub(super) first: usize,
    pub(super) chunk: Arc<Chunk>,
    /// Of each set of fields, the rows that begin something.
    pub(super) starts: Arc<Vec<Starts>>,
}

impl Loaded {
    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.chunk.entries().len()
    }

    /// The number of the row behind the last.
    pub(super) fn end(&self) -> usize {
        self.first + self.rows()
    }

    /// True if it has the row.
    pub(super) fn has(&self, row: usize) -> bool {
        (self.first..self.end()).contains(&row)
    }
}

/// What is known of a block wherever it is.
#[derive(Debug)]
struct Block {
    first: usize,
    rows: usize,
    begun: Vec<Begun>,
    loaded: Weak<Loaded>,
    place: Place,
}

/// What begins in a block by a set of fields.
#[derive(Debug)]
struct Begun {
    /// How much before it.
    before: usize,
    count: usize,
    /// The first row that begins something.
    first: Option<usize>,
}

#[derive(Debug)]
enum Place {
    /// As the block came from the merge.
    Near(Arc<Loaded>),
    /// Copied, in so many bytes.
    Memory { loaded: Arc<Loaded>, bytes: u64 },
    /// The pages, as far as they were written.
    Disk(Vec<Arc<SpilledPage>>),
}

/// The blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) input: Input,
    pub(super) shared: Arc<Shared>,
    spills: Spills,
    writer: Writer,
    block_rows: usize,
    block_bytes: u64,
    held_bytes: u64,
    /// Those that somebody may ask for; `gone` others were before them.
    blocks: VecDeque<Block>,
    gone: usize,
    /// For what is known of each.
    known_memory: Reservation,
    /// The block that is evaluated.
    current: usize,
    rows: usize,
    /// What has begun in all of them, by each set.
    begun: Vec<usize>,
    /// The last row.
    last: Option<Copied>,
    has_ended: bool,
}

impl Blocks {
    pub(super) fn new(input: Input, spills: Spills, shared: Arc<Shared>) -> Blocks {
        let limit = input.ledger.limit();
        let times = shared.functions.len().div_ceil(FUNCTIONS).max(1) as u64;
        let block_bytes = (limit / BLOCK_PART / times).clamp(BLOCK_BYTES.0, BLOCK_BYTES.1);
        let bytes_per_row = ((shared.functions.len() + 1) * 2 * FUNCTION_BYTES) as u64;
        let block_rows = (limit / EVALUATED_PART / bytes_per_row).clamp(64, BLOCK_ROWS_MAX);
        let mut writer = Writer::new(OPERATOR, spills.clone());
        writer.keep_spare();
        let known_memory = input.ledger.empty();
        Blocks {
            input,
            known_memory,
            spills,
            writer,
            block_rows: block_rows as usize,
            block_bytes,
            held_bytes: 0,
            blocks: VecDeque::new(),
            gone: 0,
            current: 0,
            rows: 0,
            begun: vec![0; shared.sets.len()],
            last: None,
            has_ended: false,
            shared,
        }
    }

    /// How many blocks there are so far.
    pub(super) fn count(&self) -> usize {
        self.gone + self.blocks.len()
    }

    /// How many rows there are so far.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    fn block(&self, number: usize) -> &Block {
        &self.blocks[number - self.gone]
    }

    /// The number of a block's first row, or of the row behind the last one.
    pub(super) fn first(&self, number: usize) -> usize {
        if number == self.count() { self.rows } else { self.block(number).first }
    }

    /// The number of the block that has a row, or of the one behind the last.
    pub(super) fn of_row(&self, row: usize) -> usize {
        self.gone + self.blocks.partition_point(|block| block.first + block.rows <= row)
    }

    /// What begins before a block, by a set.
    pub(super) fn begun_before(&self, number: usize, set: usize) -> usize {
        self.block(number).begun[set].before
    }

    /// The number of rows, if they are all there or at least `rows`.
    ///
    /// # Errors
    /// As [`Blocks::extend`].
    pub(super) async fn reach(&mut self, rows: usize) -> Result<usize> {
        while self.rows < rows && self.extend().await?.is_some() {}
        Ok(self.rows)
    }

    /// The first row in a block behind another one that begins something, or the end of the partition.
    ///
    /// # Errors
    /// As [`Blocks::extend`].
    pub(super) async fn next_start(&mut self, behind: usize, set: usize) -> Result<usize> {
        let mut number = behind + 1;
        loop {
            if number == self.count() && self.extend().await?.is_none() {
                return Ok(self.rows);
            }
            let block = self.block(number);
            if let Some(first) = block.begun[set].first {
                return Ok(block.first + first);
            }
            number += 1;
        }
    }

    /// The block in which something with a number begins, by a set, and how much begins before the block; `None` if there is
    /// not so much.
    ///
    /// # Errors
    /// As [`Blocks::extend`].
    pub(super) async fn of_begun(
        &mut self,
        number: usize,
        set: usize,
    ) -> Result<Option<(usize, usize)>> {
        while self.begun[set] <= number {
            if self.extend().await?.is_none() {
                return Ok(None);
            }
        }
        let is_before = |block: &Block| block.begun[set].before + block.begun[set].count <= number;
        let block = self.gone + self.blocks.partition_point(is_before);
        Ok(Some((block, self.begun_before(block, set))))
    }

    /// One more block, if the partition has not ended.
    ///
    /// # Errors
    /// Those of the merge, and of writing; [`ExecError::Memory`](crate::ExecError::Memory)
    pub(super) async fn extend(&mut self) -> Result<Option<Arc<Loaded>>> {
        let mut pace = Pace::default();
        if self.has_ended {
            return Ok(None);
        }
        let (rows, bytes) = (self.block_rows, self.block_bytes);
        while let Some(missing_bytes) = self.input.gather_for_free(rows, bytes).await? {
            let memory = self.reserved(missing_bytes).await?;
            self.input.adopt(memory);
        }
        let mut count = self.input.rows().min(self.block_rows);
        if self.input.bytes() > self.block_bytes {
            let share = count as u64 * self.block_bytes / self.input.bytes();
            count = count.min(share.max(1) as usize);
        }
        let begins = self.begins(&mut pace).await;
        if count == 0 || self.last.is_some() && begins[0] {
            self.has_ended = true;
            return Ok(None);
        }
        let bytes = self.loaded_bytes(count) + self.known_bytes();
        let mut memory = self.reserved(bytes).await?;
        self.known_memory.merge(memory.split(self.known_bytes()));
        let (mut chunk, _) = self.input.chunk(count, &mut pace).await;
        chunk.adopt(memory);
        // SAFETY: the tuples are those of the sort, as the layout is.
        let starts = unsafe { self.starts(&chunk, &begins, &mut pace).await };
        let end = starts[0].next(0, count);
        if end < count {
            self.has_ended = true;
            chunk.truncate(end);
        }
        let row = chunk.entries()[end - 1];
        // SAFETY: as above.
        let last = unsafe { Copied::new(row, &self.shared.layout, &self.input.ledger).await? };
        self.last = Some(last);
        self.input.forget(end);
        let (number, first) = (self.count(), self.rows);
        let begun = self.begun.iter_mut().zip(&starts).map(|(before, starts)| {
            let count = starts.count(end);
            let first = if starts.begins(0) { Some(0) } else { Some(starts.next(0, end)) };
            let begun = Begun { before: *before, count, first: first.filter(|row| *row < end) };
            *before += count;
            begun
        });
        let begun = begun.collect();
        let chunk = Arc::new(chunk);
        let starts = Arc::new(starts);
        let mut loaded = Arc::new(Loaded { number, first, chunk, starts });
        let mut place = Place::Near(loaded.clone());
        if number > self.current + NEAR {
            place = self.put_away(&mut loaded, true, &mut pace).await?;
        }
        self.rows += end;
        let live = Arc::downgrade(&loaded);
        self.blocks.push_back(Block { first, rows: end, begun, loaded: live, place });
        self.note_written();
        Ok(Some(loaded))
    }

    /// This block is evaluated now. Another one that was, and is still needed, is put away.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) async fn go_on(&mut self, current: usize) -> Result<()> {
        self.current = current;
        let Some(number) = current.checked_sub(NEAR + 1).filter(|number| *number >= self.gone)
        else {
            return Ok(());
        };
        let at = number - self.gone;
        let block = &self.blocks[at];
        if let Place::Near(loaded) = &block.place {
            let mut loaded = loaded.clone();
            let place = self.put_away(&mut loaded, false, &mut Pace::default()).await?;
            self.blocks[at].place = place;
            self.blocks[at].loaded = Arc::downgrade(&loaded);
            self.note_written();
        }
        Ok(())
    }

    /// Bytes of what is known of a block wherever it is.
    fn known_bytes(&self) -> u64 {
        let begun = self.shared.sets.len() * size_of::<Begun>();
        let pages = (self.block_bytes as usize).div_ceil(FROZEN_BYTES_MAX) + 1;
        (size_of::<Block>() + begun + pages * size_of::<SpilledPage>()) as u64
    }

    /// Bytes of a block's entries, and of where something begins among them.
    fn loaded_bytes(&self, rows: usize) -> u64 {
        (rows * size_of::<Entry>()) as u64 + Starts::bytes(rows) * self.shared.sets.len() as u64
    }

    /// Of each set, whether the next row begins something.
    async fn begins(&self, pace: &mut Pace) -> Vec<bool> {
        let sets = &self.shared.sets;
        let (Some(last), Some(next)) = (&self.last, self.input.first()) else {
            return vec![true; sets.len()];
        };
        let rows = [last.entry(), next];
        // SAFETY: the tuples are those of the sort, as the layout is.
        let starts = unsafe { starts_of_few(&rows, &self.shared.layout, sets, pace).await };
        starts.iter().map(|starts| starts.begins(1)).collect()
    }

    /// # Safety
    /// The tuples have the layout.
    async unsafe fn starts(&self, chunk: &Chunk, begins: &[bool], pace: &mut Pace) -> Vec<Starts> {
        let Shared { layout, sets, .. } = &*self.shared;
        // SAFETY: as the caller promises.
        let starts = unsafe { starts_of_few(chunk.entries(), layout, sets, pace).await };
        let goes_on = starts.iter().zip(begins).filter(|(_, begins)| !**begins);
        goes_on.for_each(|(starts, _)| starts.go_on());
        starts
    }

    /// Nobody asks for rows before this any more.
    pub(super) fn forget(&mut self, row: usize) {
        while let Some(block) = self.blocks.front()
            && block.first + block.rows <= row
        {
            if let Place::Memory { bytes, .. } = block.place {
                self.held_bytes -= bytes;
            }
            self.known_memory.shrink(self.known_bytes());
            self.blocks.pop_front();
            self.gone += 1;
        }
    }

    /// The rows of the next partitions.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) async fn end(mut self) -> Result<Input> {
        self.writer.settle().await?;
        Ok(self.input)
    }
}
