//! Going through the tuples that were put aside, once or several times, vector by vector.

use weft_rt::memory::Reservation;

use super::PROBE;
use super::aside::Aside;
use super::unit::Side;
use super::unknown::Rows;
use crate::error::Result;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::spill::frozen::{DensePage, Passing};
use crate::spill::reader::Reader;
use crate::tuple::load::load_dense;
use crate::tuple::{Page, hash_at, load};
use crate::vector::VECTOR_ROWS_MAX;

/// One pass over the tuples of a unit's probe side.
#[derive(Debug)]
pub(super) struct Pass {
    /// Of those on disk, which come first.
    reader: Option<Reader>,
    /// Memory for a page of those on disk, when all have been read.
    spare: Reservation,
    /// The page at hand, if it was read.
    read: Option<Passing>,
    /// The next page of those in memory.
    next_stored: usize,
    /// The next tuple of the page at hand.
    row: usize,
    /// Its number in the unit.
    number: u64,
    addresses: Box<[u64; VECTOR_ROWS_MAX]>,
    /// Of tuples that lie as on disk, where they begin, then where their next strings do.
    places: Box<[usize; VECTOR_ROWS_MAX]>,
}

/// Tuples in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    /// The number of the first one.
    pub(super) first: u64,
    pub(super) rows: usize,
}

impl Pass {
    /// Over the tuples of `side`; what lies on disk is gone afterwards if it `is_last`. `spare` is memory for a page, or for some, which
    /// come back at once.
    pub(super) fn new(aside: &Aside, side: &mut Side, is_last: bool, spare: Reservation) -> Pass {
        let pages = match is_last {
            true => side.spilled.drain(..).map(|page| page.page).collect(),
            false => side.spilled.iter().map(|page| page.page.clone()).collect(),
        };
        let empty = spare.ledger().empty();
        let mut reader = Reader::new(PROBE, aside.spills.clone(), pages, spare);
        reader.read_ahead();
        Pass {
            spare: empty,
            reader: Some(reader),
            read: None,
            next_stored: 0,
            row: 0,
            number: 0,
            addresses: Box::new([0; VECTOR_ROWS_MAX]),
            places: Box::new([0; VECTOR_ROWS_MAX]),
        }
    }

    /// Puts the next tuples into registers; `None` after the last. Those before are not referred to any more.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) async fn load(
        &mut self,
        aside: &Aside,
        side: &Side,
        rows_max: usize,
        registers: &mut Registers,
    ) -> Result<Option<Loaded>> {
        while self.row == self.tuples(side) {
            if !self.next_page(side).await? {
                return Ok(None);
            }
        }
        let rows = match &mut self.read {
            Some(Passing::Dense(page)) => {
                let rows = rows_max.min(page.tuples() - self.row);
                let tuples = (&mut self.addresses[..rows], &mut self.places[..rows]);
                load_from_page(page, tuples, aside, registers);
                self.row += rows;
                rows
            }
            _ => self.load_from_memory(aside, side, rows_max, registers),
        };
        let first = self.number;
        self.number += rows as u64;
        Ok(Some(Loaded { first, rows }))
    }

    /// Puts the next tuples into registers that lie as in memory. Returns how many.
    fn load_from_memory(
        &mut self,
        aside: &Aside,
        side: &Side,
        rows_max: usize,
        registers: &mut Registers,
    ) -> usize {
        let mut rows = 0;
        loop {
            let count = (rows_max - rows).min(self.tuples(side) - self.row);
            for (number, address) in self.addresses[rows..][..count].iter_mut().enumerate() {
                *address = match &self.read {
                    Some(Passing::Frozen(page)) => page.tuple(self.row + number) as u64,
                    _ => side.pages[self.next_stored - 1].tuple(self.row + number) as u64,
                };
            }
            (self.row, rows) = (self.row + count, rows + count);
            // Pages that were read go, those that were stored stay.
            let is_next_stored = self.read.is_none() && self.next_stored < side.pages.len();
            if rows == rows_max || !is_next_stored {
                break;
            }
            (self.next_stored, self.row) = (self.next_stored + 1, 0);
        }
        registers.begin(rows);
        let addresses = &self.addresses[..rows];
        let hashes = registers.vector_mut(aside.probe.hash);
        hashes.validity.set_all();
        for (hash, tuple) in hashes.values_mut::<u64>().iter_mut().zip(addresses) {
            // SAFETY: tuples that were put aside are complete.
            *hash = unsafe { hash_at(*tuple as *const u8) };
        }
        for (field, register) in aside.fields.iter().enumerate() {
            let vector = registers.vector_mut(*register);
            // SAFETY: they are of that layout, and their pages stay until the next ones are loaded.
            unsafe { load(addresses, Selected::All(rows), &aside.layout, field, vector) };
        }
        rows
    }

    /// When all tuples have been loaded: the memory of the last page that was read.
    pub(super) fn take_spare(&mut self) -> Reservation {
        self.spare.split(self.spare.bytes())
    }

    /// Tuples of the page at hand.
    fn tuples(&self, side: &Side) -> usize {
        match &self.read {
            Some(page) => page.tuples(),
            None => {
                let stored = self.next_stored.checked_sub(1).and_then(|page| side.pages.get(page));
                stored.map_or(0, Page::tuples)
            }
        }
    }

    async fn next_page(&mut self, side: &Side) -> Result<bool> {
        self.row = 0;
        if let Some(mut reader) = self.reader.take() {
            if let Some(page) = self.read.take() {
                reader.forget(page.into_memory());
            }
            if let Some(page) = reader.next_passing().await? {
                (self.read, self.reader) = (Some(page), Some(reader));
                return Ok(true);
            }
            self.spare = reader.end();
        }
        self.next_stored += 1;
        Ok(self.next_stored <= side.pages.len())
    }
}

/// Puts the next tuples of a page into registers that has them as on disk: as many as there is room for in `addresses` and `places`.
fn load_from_page(
    page: &mut DensePage,
    (addresses, places): (&mut [u64], &mut [usize]),
    aside: &Aside,
    registers: &mut Registers,
) {
    page.pass(places);
    let (bytes, dense) = (page.bytes(), page.dense());
    registers.begin(places.len());
    let hashes = registers.vector_mut(aside.probe.hash);
    hashes.validity.set_all();
    let hashes = hashes.values_mut::<u64>().iter_mut();
    for ((hash, address), place) in hashes.zip(&mut *addresses).zip(&*places) {
        let tuple = &bytes[*place..];
        (*hash, *address) = (dense.hash(tuple), tuple.as_ptr() as u64);
    }
    dense.skip_runs(places);
    for (field, register) in aside.fields.iter().enumerate() {
        let (vector, form) = (registers.vector_mut(*register), (&*aside.layout, dense));
        // SAFETY: they are of that layout, and the page stays until the next tuples are loaded.
        unsafe { load_dense(addresses, bytes, places, form, field, vector) };
    }
}

/// What is known of each tuple of a unit's probe side after some of the build side's blocks.
#[derive(Debug)]
pub(super) struct Known {
    matched: Vec<u64>,
    /// Whether it is unknown if it matches; nothing if it never is.
    unknown: Vec<u64>,
    _memory: Reservation,
}

impl Known {
    /// Bytes for so many tuples.
    pub(super) fn bytes(tuples: usize, has_unknown: bool) -> u64 {
        (tuples.div_ceil(64) * size_of::<u64>() * (1 + usize::from(has_unknown))) as u64
    }

    /// Nothing is known of any of the tuples.
    pub(super) fn new(tuples: usize, has_unknown: bool, memory: Reservation) -> Known {
        let words = tuples.div_ceil(64);
        let unknown = if has_unknown { vec![0; words] } else { Vec::new() };
        Known { matched: vec![0; words], unknown, _memory: memory }
    }

    pub(super) fn has_matched(&self, number: u64) -> bool {
        self.matched[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    pub(super) fn match_tuple(&mut self, number: u64) {
        self.matched[(number / 64) as usize] |= 1 << (number % 64);
    }

    /// It is unknown whether the tuples match that have a bit among those of what is loaded.
    pub(super) fn add_unknown(&mut self, loaded: Loaded, rows: &Rows) {
        for row in (0..loaded.rows).filter(|row| rows[row / 64] >> (row % 64) & 1 == 1) {
            let number = loaded.first + row as u64;
            self.unknown[(number / 64) as usize] |= 1 << (number % 64);
        }
    }

    /// Those of what is loaded that have no match, and of which it is unknown whether they have one.
    pub(super) fn unknown(&self, loaded: Loaded) -> Rows {
        let mut rows = [0; VECTOR_ROWS_MAX / 64];
        if self.unknown.is_empty() {
            return rows;
        }
        for row in 0..loaded.rows {
            let number = loaded.first + row as u64;
            let (word, bit) = ((number / 64) as usize, number % 64);
            rows[row / 64] |= ((self.unknown[word] & !self.matched[word]) >> bit & 1) << (row % 64);
        }
        rows
    }
}
