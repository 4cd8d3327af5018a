//! Adaptive materialization: the tuples of a pipeline go to pages, by a hash of theirs, and nobody notices when they
//! begin to be partitioned (Spilly, section 4.2, Listing 1; section 5.3).
//!
//! Each worker has a materializer. It keeps the pages that it fills in an array, which `hash >> shift` leads into: with
//! `shift = 64` there is one. Its pages grow by a factor of two; once the next one would be as large as an initial page
//! for each of the 256 partitions, those are allocated instead and the shift becomes 56. Pages that were filled before
//! stay as they are. All of that is decided where pages are allocated, and so is what happens when memory is short.

use std::sync::Arc;

use weft_codec::Sketch;
use weft_rt::memory::{Ledger, Reservation};

use super::budget::Budget;
use super::layout::{HASH_OFFSET, Layout};
use super::page::{Page, Slot};
use crate::error::Result;
use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::program::Register;
use crate::query::PartitionMode;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::VECTOR_ROWS_MAX;

/// Partitions, once there are any.
pub const PARTITIONS: usize = 256;
/// Bytes of the first page, and of the first page of a partition.
pub const PAGE_BYTES_MIN: usize = 4 << 10;
/// Bytes of the largest page of a partition, but for tuples that need a larger one.
pub const PAGE_BYTES_MAX: usize = 64 << 10;
/// Each page is so many times as large as the one before.
const GROWTH: usize = 2;

/// Stores tuples on pages. One worker's.
#[derive(Debug)]
pub struct Materializer {
    layout: Arc<Layout>,
    budget: Budget,
    mode: PartitionMode,
    shift: u32,
    /// The page that is being filled, for each partition or for all tuples.
    filling: Vec<Filling>,
    full: Vec<StoredPage>,
    sketch: Option<Sketch>,
    slots: Box<[Slot; VECTOR_ROWS_MAX]>,
    long_bytes: Box<[u32; VECTOR_ROWS_MAX]>,
}

// SAFETY: `slots` has meaning only within a call of `store`; the pages are owned.
unsafe impl Send for Materializer {}

#[derive(Debug)]
struct Filling {
    page: Option<Page>,
    next_bytes: usize,
}

/// A page, and the partition that its tuples are of.
#[derive(Debug)]
pub struct StoredPage {
    /// `None` if it was filled before there were partitions.
    pub partition: Option<usize>,
    /// The tuples.
    pub page: Page,
}

/// What one or several workers have stored.
#[derive(Debug)]
pub struct Materialized {
    /// How tuples lie.
    pub layout: Arc<Layout>,
    /// Those without a partition first, then those of each partition one after the other.
    pub pages: Vec<StoredPage>,
    /// The hashes that were seen, if they were counted.
    pub sketch: Option<Sketch>,
    /// The memory of the pages.
    pub reservation: Reservation,
}

impl Materialized {
    /// Number of tuples.
    pub fn tuples(&self) -> usize {
        self.pages.iter().map(|stored| stored.page.tuples()).sum()
    }

    /// True if some of the pages are of a partition.
    pub fn is_partitioned(&self) -> bool {
        self.pages.last().is_some_and(|stored| stored.partition.is_some())
    }

    /// Puts together what several workers have stored; `None` if there was nobody.
    pub fn gather(parts: impl IntoIterator<Item = Materialized>) -> Option<Materialized> {
        let mut whole = parts.into_iter().reduce(|mut whole, part| {
            debug_assert_eq!(whole.layout, part.layout);
            whole.pages.extend(part.pages);
            whole.reservation.merge(part.reservation);
            if let (Some(sketch), Some(other)) = (&mut whole.sketch, &part.sketch) {
                sketch.merge(other);
            }
            whole
        })?;
        whole.pages.sort_by_key(|stored| stored.partition);
        Some(whole)
    }
}

impl Materializer {
    /// One without tuples. `operator` is what errors call its owner; it `counts` different hashes if asked to.
    pub fn new(
        layout: Arc<Layout>,
        operator: &'static str,
        ledger: &Ledger,
        mode: PartitionMode,
        counts: bool,
    ) -> Materializer {
        let mut materializer = Materializer {
            layout,
            budget: Budget::new(operator, ledger),
            mode,
            shift: u64::BITS,
            filling: Vec::new(),
            full: Vec::new(),
            sketch: counts.then(Sketch::default),
            slots: Box::new(
                [Slot { tuple: std::ptr::null_mut(), strings: std::ptr::null_mut() };
                    VECTOR_ROWS_MAX],
            ),
            long_bytes: Box::new([0; VECTOR_ROWS_MAX]),
        };
        if mode == PartitionMode::Always {
            materializer.partition();
        } else {
            materializer.filling.push(Filling { page: None, next_bytes: PAGE_BYTES_MIN });
        }
        materializer
    }

    /// How tuples lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.budget.bytes()
    }

    /// Stores the tuples that are selected: `fields` in the order of the layout, under the hashes in `hash`. Waits for
    /// memory.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub async fn store(
        &mut self,
        registers: &Registers,
        hash: Register,
        fields: &[Register],
    ) -> Result<()> {
        let rows = registers.selected();
        let hashes = registers.values::<u64>(hash);
        if let Some(sketch) = &mut self.sketch {
            rows.for_each(|row| sketch.add(hashes[row]));
        }
        self.measure_strings(registers, fields);
        let mut done = 0;
        while done < rows.count() {
            let placed = self.place(rows, hashes, done);
            done += placed;
            if done < rows.count() {
                let row = at(rows, done);
                self.renew(self.partition_of(hashes[row]), self.long_bytes[done] as usize).await?;
            }
        }
        self.write(registers, hashes, fields);
        Ok(())
    }

    /// Room for one tuple, whose long strings take `long_bytes`; `None` if the page of its partition is full, then
    /// [`Materializer::make_room`] is awaited. The hash is written already, everything else is the caller's to write.
    #[inline]
    pub fn slot(&mut self, hash: u64, long_bytes: usize) -> Option<Slot> {
        let partition = self.partition_of(hash);
        let slot = self.filling[partition].page.as_mut()?.slot(long_bytes)?;
        // SAFETY: the tuple has room for its header, and nobody else has it.
        unsafe { slot.tuple.add(HASH_OFFSET).cast::<u64>().write(hash) };
        Some(slot)
    }

    /// Sees to it that the next [`Materializer::slot`] of that hash has room. Tuples stay where they are; which
    /// partition a hash leads to may change.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub async fn make_room(&mut self, hash: u64, long_bytes: usize) -> Result<()> {
        self.renew(self.partition_of(hash), long_bytes).await
    }

    /// As [`Materializer::make_room`], without waiting: false if that would be necessary, or if it is time to
    /// partition.
    pub fn try_make_room(&mut self, hash: u64, long_bytes: usize) -> bool {
        let partition = self.partition_of(hash);
        if self.must_partition() {
            return false;
        }
        let bytes = self.page_bytes(partition, long_bytes);
        let is_granted = self.budget.try_reserve(bytes as u64);
        if is_granted {
            self.replace_page(partition, bytes);
        }
        is_granted
    }

    /// Counts different hashes so far, if hashes are counted.
    pub fn estimate(&self) -> Option<u64> {
        self.sketch.as_ref().map(Sketch::estimate)
    }

    /// Waits for memory for what lies behind the tuples.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub async fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.budget.reserve(bytes).await
    }

    /// Counts a hash, if hashes are counted.
    #[inline]
    pub fn count(&mut self, hash: u64) {
        if let Some(sketch) = &mut self.sketch {
            sketch.add(hash);
        }
    }

    /// Number of partitions now: 1 or [`PARTITIONS`].
    pub fn partitions(&self) -> usize {
        self.filling.len()
    }

    /// The partition that a hash leads to now.
    #[inline]
    pub fn partition_of(&self, hash: u64) -> usize {
        // A shift by all bits is none for the processor, so it is done in two.
        (hash >> (self.shift / 2) >> (self.shift - self.shift / 2)) as usize
    }

    /// What was stored.
    pub fn finish(mut self) -> Materialized {
        self.retire();
        let mut pages = self.full;
        pages.retain(|stored| stored.page.tuples() > 0);
        pages.sort_by_key(|stored| stored.partition);
        Materialized {
            layout: self.layout,
            pages,
            sketch: self.sketch,
            reservation: self.budget.finish(),
        }
    }

    /// Sums up what the long strings of each row take.
    fn measure_strings(&mut self, registers: &Registers, fields: &[Register]) {
        let rows = registers.selected();
        self.long_bytes[..rows.count()].fill(0);
        for (field, register) in self.layout.fields().iter().zip(fields) {
            if field.lane != Lane::Str {
                continue;
            }
            let vector = registers.vector(*register);
            let strings = vector.values::<Str>();
            let mut number = 0;
            rows.for_each(|row| {
                if vector.validity.is_valid(row) {
                    let bytes = Layout::long_bytes(strings[row]) as u32;
                    self.long_bytes[number] = self.long_bytes[number].saturating_add(bytes);
                }
                number += 1;
            });
        }
    }

    /// Finds slots for the rows from the `done`th on, until a page is full; returns for how many.
    fn place(&mut self, rows: Selected<'_>, hashes: &[u64], done: usize) -> usize {
        let count = rows.count();
        for number in done..count {
            let partition = self.partition_of(hashes[at(rows, number)]);
            let Some(page) = &mut self.filling[partition].page else { return number - done };
            let Some(slot) = page.slot(self.long_bytes[number] as usize) else {
                return number - done;
            };
            self.slots[number] = slot;
        }
        count - done
    }

    /// Writes hashes and fields into the slots, a field of all tuples after the other.
    fn write(&mut self, registers: &Registers, hashes: &[u64], fields: &[Register]) {
        let rows = registers.selected();
        let layout = self.layout.clone();
        let slots = &mut self.slots[..rows.count()];
        let mut number = 0;
        rows.for_each(|row| {
            // SAFETY: the slot is this tuple's own, of the layout's bytes.
            unsafe { slots[number].tuple.add(HASH_OFFSET).cast::<u64>().write(hashes[row]) };
            number += 1;
        });
        for (field, register) in layout.fields().iter().zip(fields) {
            let vector = registers.vector(*register);
            if let Some((byte, bit)) = field.null_place() {
                let is_first = bit == 1;
                let mut number = 0;
                rows.for_each(|row| {
                    let null = if vector.validity.is_valid(row) { 0 } else { bit };
                    // SAFETY: the byte lies in the tuple; its first bit comes first, so it is initialized by then.
                    unsafe {
                        let place = slots[number].tuple.add(byte);
                        let others = if is_first { 0 } else { place.read() };
                        place.write(others | null);
                    }
                    number += 1;
                });
            } else {
                debug_assert!(!vector.validity.has_nulls(), "a null in a field that has none");
            }
            if field.lane == Lane::Str {
                write_strings(slots, rows, vector, field.offset);
            } else {
                for_lane!(field.lane, T => write_values(slots, rows, vector.values::<T>(), field.offset));
            }
        }
    }

    /// Replaces the page of a partition that has no room for a tuple with `long_bytes`, or begins to partition.
    async fn renew(&mut self, partition: usize, long_bytes: usize) -> Result<()> {
        if self.must_partition() {
            self.retire();
            self.partition();
            return Ok(());
        }
        let bytes = self.page_bytes(partition, long_bytes);
        self.budget.reserve(bytes as u64).await?;
        self.replace_page(partition, bytes);
        Ok(())
    }

    /// True if the next page would be as large as one for each partition.
    fn must_partition(&self) -> bool {
        self.mode == PartitionMode::Adaptive
            && self.filling.len() == 1
            && self.filling[0].next_bytes >= PARTITIONS * PAGE_BYTES_MIN
    }

    /// Bytes of the next page of a partition, for a tuple with `long_bytes` at least.
    fn page_bytes(&self, partition: usize, long_bytes: usize) -> usize {
        let tuple_bytes = (self.layout.bytes() + long_bytes).next_multiple_of(PAGE_BYTES_MIN);
        self.filling[partition].next_bytes.max(tuple_bytes)
    }

    /// Puts an empty page where that of a partition is.
    fn replace_page(&mut self, partition: usize, bytes: usize) {
        let is_partitioned = self.filling.len() > 1;
        let filling = &mut self.filling[partition];
        let page = Page::new(bytes, self.layout.bytes());
        if let Some(page) = filling.page.replace(page) {
            self.full.push(StoredPage { partition: is_partitioned.then_some(partition), page });
        }
        let bytes_max = if is_partitioned { PAGE_BYTES_MAX } else { PARTITIONS * PAGE_BYTES_MIN };
        filling.next_bytes = (filling.next_bytes * GROWTH).min(bytes_max);
    }

    fn partition(&mut self) {
        self.shift = u64::BITS - PARTITIONS.ilog2();
        self.filling.clear();
        self.filling.resize_with(PARTITIONS, || Filling { page: None, next_bytes: PAGE_BYTES_MIN });
    }

    /// Puts away the pages that are being filled.
    fn retire(&mut self) {
        let is_partitioned = self.filling.len() > 1;
        for (partition, filling) in self.filling.iter_mut().enumerate() {
            if let Some(page) = filling.page.take() {
                self.full.push(StoredPage { partition: is_partitioned.then_some(partition), page });
            }
        }
    }
}

/// The `number`th of the rows.
#[inline]
fn at(rows: Selected<'_>, number: usize) -> usize {
    match rows {
        Selected::All(_) => number,
        Selected::Some(rows) => rows[number].into(),
    }
}

fn write_values<T: Value>(slots: &[Slot], rows: Selected<'_>, values: &[T], offset: usize) {
    let mut number = 0;
    rows.for_each(|row| {
        // SAFETY: the field lies in the slot, which is this tuple's own.
        unsafe { slots[number].tuple.add(offset).cast::<T>().write_unaligned(values[row]) };
        number += 1;
    });
}

fn write_strings(slots: &mut [Slot], rows: Selected<'_>, vector: &crate::Vector, offset: usize) {
    let strings = vector.values::<Str>();
    let mut number = 0;
    rows.for_each(|row| {
        let slot = &mut slots[number];
        number += 1;
        let mut string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
        if !string.is_inline() {
            // SAFETY: a register's strings are alive; `long_bytes` counted this one when the slot was made.
            unsafe {
                let bytes = string.bytes();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.strings, bytes.len());
                let distance = slot.strings.offset_from(slot.tuple) as u64;
                slot.strings = slot.strings.add(bytes.len());
                string = string.packed(distance);
            }
        }
        // SAFETY: the field lies in the slot, which is this tuple's own.
        unsafe { slot.tuple.add(offset).cast::<Str>().write_unaligned(string) };
    });
}
