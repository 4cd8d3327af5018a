//! Functions that give the argument of one other row of a large partition, wherever that is.

use std::ops::Range;
use std::sync::Arc;

use super::super::column::Column;
use super::super::functions::{Given, Shift};
use super::super::shifts::{self, back_of, in_ranges};
use super::blocks::{Blocks, Loaded};
use super::cursor::Cursor;
use super::frames::{Framed, Frames};
use super::known::{Known, Place};
use crate::error::Result;
use crate::for_lane;
use crate::lane::Lane;
use crate::pace::Pace;
use crate::program::Constant;
use crate::text::Str;

/// Rows between two looks at the clock.
const STRIDE: usize = 256;

/// The argument of a row.
#[derive(Debug)]
struct Taken {
    cursor: Cursor,
    /// The row that was taken last, and its string.
    text: Option<(usize, Arc<[u8]>)>,
    /// A row that is taken from now on, and its argument.
    kept: Option<(usize, Column)>,
}

impl Taken {
    fn new(field: usize) -> Taken {
        Taken { cursor: Cursor::new(Some(field)), text: None, kept: None }
    }

    /// Rows of a block become the value of a row of the partition, or null.
    async fn write(
        &mut self,
        row: Option<usize>,
        here: &Loaded,
        out: &mut Column,
        rows: Range<usize>,
        blocks: &mut Blocks,
    ) -> Result<()> {
        let Some(row) = row else {
            rows.for_each(|row| out.set_null(row));
            return Ok(());
        };
        let (argument, place, is_here) = match &self.kept {
            Some((of, argument)) if *of == row => (argument, 0, false),
            _ => {
                self.cursor.go(row, blocks).await?;
                let argument = self.cursor.column().expect("values are of a field");
                (argument, self.cursor.place(row), here.has(row))
            }
        };
        if !argument.is_valid(place) {
            rows.for_each(|row| out.set_null(row));
            return Ok(());
        }
        if argument.lane() == Lane::Str && !is_here {
            // Its block may be gone sooner than these rows.
            let string = argument.values::<Str>()[place];
            if !string.is_inline() {
                if self.text.as_ref().is_none_or(|(of, _)| *of != row) {
                    // SAFETY: the cursor has the rows, or the column its string.
                    self.text = Some((row, Arc::from(unsafe { string.bytes() })));
                }
                let text = &self.text.as_ref().expect("it was just copied").1;
                out.set_text(rows, text);
                return Ok(());
            }
        }
        for_lane!(argument.lane(), T => {
            out.values_mut::<T>()[rows].fill(argument.values::<T>()[place]);
        });
        Ok(())
    }

    /// Keeps the argument of a row, and no more its block.
    async fn keep(&mut self, row: usize, blocks: &mut Blocks) -> Result<()> {
        if self.kept.as_ref().is_some_and(|(of, _)| *of == row) {
            return Ok(());
        }
        self.cursor.go(row, blocks).await?;
        let (place, argument) = (self.cursor.place(row), self.cursor.column());
        let argument = argument.expect("values are of a field");
        let mut kept = Column::new(argument.lane(), 1);
        if !argument.is_valid(place) {
            kept.set_null(0);
        } else if argument.lane() == Lane::Str {
            // SAFETY: the cursor has the rows.
            kept.set_text(0..1, &Arc::from(unsafe { argument.values::<Str>()[place].bytes() }));
        } else {
            for_lane!(argument.lane(), T => {
                kept.values_mut::<T>()[0] = argument.values::<T>()[place];
            });
        }
        self.kept = Some((row, kept));
        self.cursor.leave();
        Ok(())
    }
}

/// lag and lead on their way through the partition.
#[derive(Debug)]
pub(super) struct Shifted {
    shift: Shift,
    field: usize,
    taken: Taken,
    known: Option<Known>,
    /// What rows say themselves: how far away the other one is, and what there is without it.
    distances: Option<Cursor>,
    defaults: Option<Cursor>,
    /// The first row that will be looked at again.
    from: usize,
}

impl Shifted {
    pub(super) fn new(shift: &Shift, field: usize) -> Shifted {
        let known = shift.passes_over_nulls().then(|| Known::new(field));
        let [distances, defaults, _] =
            shift.fields().map(|field| field.map(|field| Cursor::new(Some(field))));
        let (shift, taken) = (shift.clone(), Taken::new(field));
        Shifted { shift, field, taken, known, distances, defaults, from: 0 }
    }

    /// See [`Known::note`].
    pub(super) async fn note(&mut self, blocks: &mut Blocks) -> Result<()> {
        match &mut self.known {
            Some(known) => known.note(blocks).await,
            None => Ok(()),
        }
    }

    /// The results for a block.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`] and [`Blocks::load`].
    pub(super) async fn write(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        out: &mut Column,
        pace: &mut Pace,
    ) -> Result<()> {
        for given in [&mut self.distances, &mut self.defaults].into_iter().flatten() {
            given.set(here.clone(), blocks).await?;
        }
        let distances = self.distances.as_ref().and_then(Cursor::column);
        let defaults = self.defaults.as_ref().and_then(Cursor::column);
        let mut own = Place::new(self.field);
        for row in 0..here.rows() {
            if row % STRIDE == 0 {
                pace.keep().await;
            }
            let Some(back) = back_of(&self.shift, distances, row) else {
                out.set_null(row);
                continue;
            };
            let (distance, is_back) = (usize::try_from(back.unsigned_abs()), back >= 0);
            let distance = distance.unwrap_or(usize::MAX);
            let number = here.first + row;
            let other = match &mut self.known {
                _ if back == 0 => Some(number),
                None if is_back => number.checked_sub(distance),
                None => {
                    let wanted = number.saturating_add(distance);
                    let is_there = wanted < blocks.rows()
                        || wanted < blocks.reach(wanted.saturating_add(1)).await?;
                    is_there.then_some(wanted)
                }
                Some(known) => {
                    let before = known.before(number, &mut own, blocks).await?;
                    let wanted = if is_back {
                        before.checked_sub(distance)
                    } else {
                        let behind = known.before(number + 1, &mut own, blocks).await?;
                        behind.checked_add(distance - 1)
                    };
                    match wanted {
                        Some(wanted) => known.row(wanted, blocks).await?,
                        None => None,
                    }
                }
            };
            match (other, &self.shift.default, defaults) {
                (None, Some(Given::Constant(default)), _) => write_default(default, out, row),
                (None, _, Some(defaults)) => write_own(defaults, out, row),
                _ => self.taken.write(other, here, out, row..row + 1, blocks).await?,
            }
            // The first row that counts, which may come before this one, may be another's.
            let none = if is_back { 0 } else { number };
            self.from = other.unwrap_or(none).min(number);
        }
        let Given::Constant(rows) = self.shift.back else {
            // Rows may want any other.
            self.from = 0;
            return Ok(());
        };
        let back = self.shift.back(rows);
        if let Some(known) = &mut self.known {
            known.forget(blocks.of_row(self.from));
        } else if let Ok(back) = usize::try_from(back) {
            self.from = here.end().saturating_sub(back);
        }
        Ok(())
    }

    /// The first row that will be looked at again.
    pub(super) fn needs_from(&self) -> usize {
        self.from
    }
}

fn write_default(default: &Constant, out: &mut Column, row: usize) {
    for_lane!(out.lane(), T => out.values_mut::<T>()[row] = default.value::<T>());
}

/// The value of a row of the same block.
fn write_own(values: &Column, out: &mut Column, row: usize) {
    if values.is_valid(row) {
        for_lane!(out.lane(), T => out.values_mut::<T>()[row] = values.values::<T>()[row]);
    } else {
        out.set_null(row);
    }
}

/// first_value, last_value and nth_value on their way through the partition.
#[derive(Debug)]
pub(super) struct Nth {
    number: Given<i64>,
    /// The numbers that rows have themselves.
    numbers: Option<Cursor>,
    field: usize,
    frames: Frames,
    is_from_start: bool,
    taken: Taken,
    known: Option<Known>,
    /// The row that all frames have from now on.
    settled: Option<usize>,
    from: usize,
}

impl Nth {
    pub(super) fn new(
        number: &Given<i64>,
        ignores_nulls: bool,
        frames: Frames,
        is_from_start: bool,
        field: usize,
    ) -> Nth {
        let (taken, known) = (Taken::new(field), ignores_nulls.then(|| Known::new(field)));
        let numbers = number.field().map(|field| Cursor::new(Some(field)));
        let (number, settled) = (number.clone(), None);
        Nth { number, numbers, field, frames, is_from_start, taken, known, settled, from: 0 }
    }

    /// True if all rows of the partition have to be seen first.
    pub(super) fn is_to_end(&self) -> bool {
        self.frames.is_to_end()
    }

    /// See [`Known::note`].
    pub(super) async fn note(&mut self, blocks: &mut Blocks) -> Result<()> {
        match &mut self.known {
            Some(known) if self.settled.is_none() => known.note(blocks).await,
            _ => Ok(()),
        }
    }

    /// The results for a block.
    ///
    /// # Errors
    /// Those of [`Blocks::extend`] and [`Blocks::load`].
    pub(super) async fn write(
        &mut self,
        here: &Arc<Loaded>,
        blocks: &mut Blocks,
        out: &mut Column,
        pace: &mut Pace,
    ) -> Result<()> {
        let framed = self.frames.of_block(here, blocks, pace).await?;
        if let Some(numbers) = &mut self.numbers {
            numbers.set(here.clone(), blocks).await?;
        }
        let mut places = [(); 6].map(|()| Place::new(self.field));
        for (count, framed) in framed.into_iter().enumerate() {
            if count % STRIDE == 0 {
                pace.keep().await;
            }
            if self.numbers.is_none() {
                let found =
                    self.find(&framed, framed.rows.start, here, &mut places, blocks).await?;
                self.note_found(found, &framed.frame, blocks).await?;
                self.taken.write(found, here, out, framed.rows, blocks).await?;
                continue;
            }
            for row in framed.rows.clone() {
                let found = self.find(&framed, row, here, &mut places, blocks).await?;
                self.note_found(found, &framed.frame, blocks).await?;
                self.taken.write(found, here, out, row..row + 1, blocks).await?;
            }
        }
        if let Some(known) = &mut self.known {
            known.forget(blocks.of_row(self.from.min(here.end())));
        }
        Ok(())
    }

    /// The row that a row of a block wants of its frame.
    async fn find(
        &mut self,
        framed: &Framed,
        row: usize,
        here: &Loaded,
        places: &mut [Place; 6],
        blocks: &mut Blocks,
    ) -> Result<Option<usize>> {
        if self.settled.is_some() {
            return Ok(self.settled);
        }
        let numbers = self.numbers.as_ref().and_then(Cursor::column);
        let nth = shifts::Nth { row: &self.number, numbers, ignores_nulls: self.known.is_some() };
        let Some(number) = nth.of(row)? else { return Ok(None) };
        let kept = self.frames.kept(framed, here);
        let Some(known) = &mut self.known else { return Ok(in_ranges(number, &kept)) };
        let mut of_known = [0..0, 0..0, 0..0];
        for ((rows, of), places) in kept.iter().zip(&mut of_known).zip(places.chunks_mut(2)) {
            if let [start, end] = places
                && !rows.is_empty()
            {
                let first = known.before(rows.start, start, blocks).await?;
                *of = first..known.before(rows.end, end, blocks).await?;
            }
        }
        match in_ranges(number, &of_known) {
            Some(number) => known.row(number, blocks).await,
            None => Ok(None),
        }
    }

    /// What is needed of the rows behind the one that a frame has.
    async fn note_found(
        &mut self,
        found: Option<usize>,
        frame: &Range<usize>,
        blocks: &mut Blocks,
    ) -> Result<()> {
        let number = match self.number {
            Given::Constant(number) if !self.frames.excludes() => number,
            _ => {
                // Rows that follow may want any of theirs.
                self.from = if self.is_from_start { 0 } else { frame.start };
                return Ok(());
            }
        };
        let is_forward = number > 0;
        // All frames that have such a row have the same.
        let stays = if is_forward { self.is_from_start } else { self.frames.is_to_end() };
        if stays && let Some(row) = found {
            self.taken.keep(row, blocks).await?;
            if is_forward {
                (self.settled, self.from) = (Some(row), usize::MAX);
                return Ok(());
            }
        }
        self.from = match found {
            // It is none of the frame's.
            None if stays && is_forward => frame.end,
            // Rows are counted from where frames begin on.
            Some(_) if self.known.is_some() && !self.is_from_start => frame.start,
            Some(row) => row,
            None => frame.start,
        };
        Ok(())
    }

    /// The first row that will be looked at again.
    pub(super) fn needs_from(&self) -> usize {
        self.from.min(self.frames.needs_from())
    }
}
