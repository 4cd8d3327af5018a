//! Adaptive materialization: the tuples of a pipeline go to pages, by a hash of theirs, and nobody notices when they
//! begin to be partitioned (Spilly, section 4.2, Listing 1; section 5.3).
//!
//! Each worker has a materializer. It keeps the pages that it fills in an array, which `hash >> shift` leads into: with
//! `shift = 64` there is one. Its pages grow by a factor of two; once the next one would be as large as an initial page
//! for each of the 256 partitions, those are allocated instead and the shift becomes 56. Pages that were filled before
//! stay as they are. All of that is decided where pages are allocated, and so is what happens when memory is short
//! (`pressure`).

use std::ops::Range;
use std::sync::Arc;

use weft_codec::Sketch;
use weft_rt::memory::{Ledger, Reservation};

use super::budget::Budget;
use super::codebook::{Coder, STRINGS_MAX};
use super::layout::{Field, HASH_OFFSET, Layout};
use super::materialized::{Materialized, StoredPage};
use super::pack::Form;
use super::page::{Page, Slot};
use super::pressure::Pressure;
use super::through::Through;
use crate::error::{ExecError, Result, check_length};
use crate::lane::Lane;
use crate::program::Register;
use crate::query::PartitionMode;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::spill::Assured;
use crate::spill::writer::Spills;
use crate::text::Str;
use crate::vector::VECTOR_ROWS_MAX;

/// Partitions, once there are any.
pub const PARTITIONS: usize = 256;
/// Bytes of the first page, and of the first page of a partition.
pub const PAGE_BYTES_MIN: usize = 4 << 10;
/// Bytes of the largest page of a partition, but for tuples that need a larger one.
pub const PAGE_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a row's long strings: its page is to go to disk in one piece, which has less than 4 GiB.
const ROW_STRINGS_MAX: usize = Str::BYTES_MAX - (16 << 20);

/// Each page is so many times as large as the one before.
const GROWTH: usize = 2;

/// Stores tuples on pages. One worker's.
#[derive(Debug)]
pub struct Materializer {
    pub(super) layout: Arc<Layout>,
    pub(super) operator: &'static str,
    pub(super) budget: Budget,
    mode: PartitionMode,
    /// Bits of the hash that are the same for all tuples, and do not count.
    skipped_bits: u32,
    shift: u32,
    /// Bits of the hash that lead to a partition, once there are any.
    partition_bits: u32,
    /// The pages of each partition, or of all tuples.
    pub(super) filling: Vec<Filling>,
    /// Those that were filled before there were partitions.
    pub(super) loose: Vec<Page>,
    /// Bytes behind their tuples, as far as the owner has told.
    pub(super) behind_bytes: u64,
    /// Of those, the ones that its memory does not have yet.
    pub(super) unpaid_bytes: u64,
    /// Of the memory behind tuples that are gone, what was lent and does not come back.
    pub(super) lent_bytes: u64,
    pub(super) pressure: Option<Pressure>,
    pub(super) through: Through,
    sketch: Option<Sketch>,
    /// Of each field that is coded.
    pub(super) coders: Vec<Option<Coder>>,
    pub(super) slots: Box<[Slot; VECTOR_ROWS_MAX]>,
    pub(super) long_bytes: Box<[u32; VECTOR_ROWS_MAX]>,
}

// SAFETY: `slots` has meaning only within a call of `store`; the pages are owned.
unsafe impl Send for Materializer {}

#[derive(Debug)]
pub(super) struct Filling {
    pub(super) page: Option<Page>,
    pub(super) full: Vec<Page>,
    /// Bytes behind their tuples, as far as the owner has told.
    pub(super) behind_bytes: u64,
    next_bytes: usize,
}

impl Filling {
    fn new() -> Filling {
        Filling { page: None, full: Vec::new(), behind_bytes: 0, next_bytes: PAGE_BYTES_MIN }
    }

    /// Bytes of all its tuples.
    pub(super) fn used_bytes(&self) -> usize {
        self.full.iter().chain(&self.page).map(Page::used_bytes).sum()
    }

    /// The same, and what lies behind them.
    pub(super) fn held_bytes(&self) -> usize {
        self.used_bytes() + self.behind_bytes as usize
    }
}

/// What became of a wish for room. But for the first, addresses of some tuples are not valid any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is known of tuples that are gone must be forgotten"]
pub enum Room {
    /// There is room now. All tuples are where they were.
    Made,
    /// Tuples are partitioned from now on. Those from before are where they were.
    Partitioned,
    /// All tuples from before there were partitions are gone; there may be partitions only from now on.
    LooseSpilled,
    /// All tuples of this partition are gone.
    Spilled(usize),
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
        let fields = layout.fields().iter().enumerate();
        let coder = |(number, field): (usize, &Field)| {
            field.is_coded().then(|| Coder::new(layout.codebook(number).clone()))
        };
        let coders = fields.map(coder).collect();
        let mut materializer = Materializer {
            layout,
            operator,
            budget: Budget::new(operator, ledger),
            mode,
            skipped_bits: 0,
            shift: u64::BITS,
            partition_bits: PARTITIONS.ilog2(),
            filling: Vec::new(),
            loose: Vec::new(),
            behind_bytes: 0,
            unpaid_bytes: 0,
            lent_bytes: 0,
            pressure: None,
            through: Through::default(),
            sketch: counts.then(Sketch::default),
            coders,
            slots: Box::new(
                [Slot { tuple: std::ptr::null_mut(), strings: std::ptr::null_mut() };
                    VECTOR_ROWS_MAX],
            ),
            long_bytes: Box::new([0; VECTOR_ROWS_MAX]),
        };
        if mode == PartitionMode::Always {
            materializer.partition();
        } else {
            materializer.filling.push(Filling::new());
        }
        materializer
    }

    /// One that spills when it has its share of the memory, or there is no more.
    pub(crate) fn spilling(mut self, spills: Spills) -> Materializer {
        self.pressure = Some(Pressure::new(self.operator, spills));
        self
    }

    /// One that retains what it would spill in memory, packed, as long as that is ample, if tuples take less when they are.
    pub(crate) fn retaining(mut self) -> Materializer {
        if let Some(pressure) = self.pressure.as_mut().filter(|_| self.layout.dense().is_some()) {
            pressure.retain();
        }
        self
    }

    /// One that has memory of its own beside its share, so that it can write one page after the other whatever others have.
    pub(crate) fn keeping(mut self, memory: Reservation) -> Materializer {
        if let Some(pressure) = &mut self.pressure {
            pressure.writer.keep(memory);
        }
        self
    }

    /// One that may have so many bytes of what its worker is assured of, whatever its share is.
    pub(crate) fn assured(mut self, assured: Arc<Assured>, bytes: u64) -> Materializer {
        self.budget.assure(assured, bytes);
        self
    }

    /// Each tuple needs so many bytes more later, which count as a part of the share.
    pub(crate) fn expecting(mut self, bytes: usize) -> Materializer {
        let tuple_bytes = self.layout.bytes();
        if let Some(pressure) = &mut self.pressure {
            pressure.expect(bytes, tuple_bytes);
        }
        self
    }

    /// One for packed tuples whose hashes have the first `skipped_bits` in common.
    pub(crate) fn packed(mut self, skipped_bits: u32) -> Materializer {
        self.skipped_bits = skipped_bits;
        if let Some(pressure) = &mut self.pressure {
            pressure.form = Form::Packed;
        }
        self
    }

    /// One that will have 2 to the power of `bits` partitions, once it has any, which it has not yet.
    ///
    /// # Panics
    /// If there are to be none or more than [`PARTITIONS`], or there are some.
    pub(crate) fn partitioned_later(mut self, bits: u32) -> Materializer {
        assert!((1..=PARTITIONS.ilog2()).contains(&bits), "{bits} bits of a hash for partitions");
        assert!(self.filling.len() == 1, "partitioned already");
        self.partition_bits = bits;
        self
    }

    /// One that has 2 to the power of `bits` partitions, from the first tuple on. Fewer of them need less memory.
    ///
    /// # Panics
    /// If there are to be none or more than [`PARTITIONS`], or it has tuples.
    pub(crate) fn partitioned(mut self, bits: u32) -> Materializer {
        assert!((1..=PARTITIONS.ilog2()).contains(&bits), "{bits} bits of a hash for partitions");
        assert!(self.bytes() == 0, "partitioned anew");
        self.filling.clear();
        self.partition_bits = bits;
        self.partition();
        self
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
    /// [`ExecError::Memory`]; [`ExecError::TooManyTexts`]
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
        self.encode(registers, rows, fields)?;
        self.through.is_asked_for = true;
        if self.through.is_open() {
            return self.store_through(registers, hashes, fields).await;
        }
        self.store_rows(registers, rows, hashes, fields).await
    }

    /// Finds the numbers of strings that are stored as such.
    fn encode(
        &mut self,
        registers: &Registers,
        rows: Selected<'_>,
        fields: &[Register],
    ) -> Result<()> {
        for (coder, register) in self.coders.iter_mut().zip(fields) {
            if let Some(coder) = coder
                && !coder.encode(registers.vector(*register), rows)
            {
                return Err(ExecError::TooManyTexts { texts_max: STRINGS_MAX });
            }
        }
        Ok(())
    }

    /// Stores tuples in memory.
    pub(super) async fn store_rows(
        &mut self,
        registers: &Registers,
        rows: Selected<'_>,
        hashes: &[u64],
        fields: &[Register],
    ) -> Result<()> {
        self.measure_strings(registers, rows, fields)?;
        let (mut done, mut written) = (0, 0);
        while done < rows.count() {
            let placed = self.place(rows, hashes, done);
            done += placed;
            if done < rows.count() {
                let row = at(rows, done);
                let (partition, long_bytes) =
                    (self.partition_of(hashes[row]), self.long_bytes[done]);
                if self.pressure.is_some() {
                    // What is spilled must be complete.
                    self.write_some(registers, rows, hashes, fields, written..done);
                    written = done;
                }
                // Nobody knows addresses yet.
                let _room = self.renew(partition, long_bytes as usize).await?;
            }
        }
        if written == 0 {
            self.write(registers, rows, hashes, fields, 0, None);
        } else {
            self.write_some(registers, rows, hashes, fields, written..done);
        }
        Ok(())
    }

    /// Writes hashes and fields of a range of the rows.
    pub(super) fn write_some(
        &mut self,
        registers: &Registers,
        rows: Selected<'_>,
        hashes: &[u64],
        fields: &[Register],
        range: Range<usize>,
    ) {
        let numbers: Vec<u16> = range.clone().map(|number| at(rows, number) as u16).collect();
        self.write(registers, Selected::Some(&numbers), hashes, fields, range.start, None);
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

    /// Makes room for the next [`Materializer::slot`] of that hash, or takes a step towards it: then this is called again.
    /// All tuples must be complete: they may be spilled.
    ///
    /// # Errors
    /// [`ExecError::Memory`]; what went wrong with spilling.
    pub async fn make_room(&mut self, hash: u64, long_bytes: usize) -> Result<Room> {
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
        let is_granted = self.try_reserve(bytes as u64);
        if is_granted {
            self.replace_page(partition, bytes);
        }
        is_granted
    }

    /// Counts different hashes so far, if hashes are counted.
    pub fn estimate(&self) -> Option<u64> {
        self.sketch.as_ref().map(Sketch::estimate)
    }

    /// Takes memory for what lies behind the tuples, if it is free and not more than there may be.
    pub fn try_reserve(&mut self, bytes: u64) -> bool {
        let bytes_then = self.held_bytes() + bytes;
        let is_allowed = self.pressure.as_mut().is_none_or(|pressure| pressure.allows(bytes_then));
        is_allowed && self.budget.try_reserve(bytes) || self.budget.try_reserve_assured(bytes)
    }

    /// True if it had to take some of what its worker is assured of, or some beyond its share.
    pub(crate) fn needs_assured(&self) -> bool {
        self.budget.needs_assured()
    }

    /// Bytes that it may have in memory now.
    pub fn share_bytes(&self) -> u64 {
        self.pressure.as_ref().map_or(u64::MAX, Pressure::share_bytes)
    }

    /// Gives memory back that was taken for what lies behind the tuples.
    ///
    /// # Panics
    /// If it was less.
    pub fn release(&mut self, bytes: u64) {
        let lent_bytes = self.lent_bytes.min(bytes);
        self.lent_bytes -= lent_bytes;
        self.budget.release(bytes - lent_bytes);
    }

    /// Notes how many bytes of its memory lie behind tuples: those from before there were partitions, and those of each partition,
    /// if there are any. What has most of them is spilled first. `unpaid_bytes` of them all are still to be taken from it.
    pub(crate) fn weigh(
        &mut self,
        loose_bytes: u64,
        partitions: impl Iterator<Item = u64>,
        unpaid_bytes: u64,
    ) {
        self.behind_bytes = loose_bytes;
        self.unpaid_bytes = unpaid_bytes;
        for (filling, bytes) in self.filling.iter_mut().zip(partitions) {
            filling.behind_bytes = bytes;
        }
    }

    /// Counts a hash, if hashes are counted.
    #[inline]
    pub fn count(&mut self, hash: u64) {
        if let Some(sketch) = &mut self.sketch {
            sketch.add(hash);
        }
    }

    /// Number of partitions now; 1 before there are any.
    pub fn partitions(&self) -> usize {
        self.filling.len()
    }

    /// The partition that a hash leads to now.
    #[inline]
    pub fn partition_of(&self, hash: u64) -> usize {
        // A shift by all bits is none for the processor, so it is done in two.
        ((hash << self.skipped_bits) >> (self.shift / 2) >> (self.shift - self.shift / 2)) as usize
    }

    /// What was stored.
    ///
    /// # Panics
    /// If it is being spilled: then [`Materializer::settle`] was to be awaited.
    pub fn finish(mut self) -> Materialized {
        assert_eq!(self.lent_bytes, 0, "what was lent is gone");
        assert!(!self.through.is_open(), "settled");
        self.retire();
        let is_partitioned = self.filling.len() > 1;
        let writer = weft_rt::try_worker_index();
        let stored = move |partition, page| StoredPage { partition, writer, page };
        let has_tuples = |page: &Page| page.tuples() > 0;
        let full: usize = self.filling.iter().map(|filling| filling.full.len()).sum();
        let mut pages = Vec::with_capacity(self.loose.len() + full);
        pages.extend(self.loose.into_iter().filter(has_tuples).map(|page| stored(None, page)));
        for (partition, filling) in self.filling.into_iter().enumerate() {
            let partition = is_partitioned.then_some(partition);
            let full = filling.full.into_iter().filter(has_tuples);
            pages.extend(full.map(|page| stored(partition, page)));
        }
        Materialized {
            layout: self.layout,
            pages,
            spilled: self.pressure.map(Pressure::finish).unwrap_or_default(),
            sketch: self.sketch,
            reservation: self.budget.finish(),
        }
    }

    /// Sums up what the long strings of each row take.
    ///
    /// # Errors
    /// [`ExecError::TooLong`] if no page has room for those of one.
    pub(super) fn measure_strings(
        &mut self,
        registers: &Registers,
        rows: Selected<'_>,
        fields: &[Register],
    ) -> Result<()> {
        let count = rows.count();
        self.long_bytes[..count].fill(0);
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
        let longest = self.long_bytes[..count].iter().max().map_or(0, |bytes| *bytes as usize);
        check_length("a row with texts", longest, ROW_STRINGS_MAX)
    }

    /// Finds slots for the rows from the `done`th on, until a page is full; returns for how many.
    pub(super) fn place(&mut self, rows: Selected<'_>, hashes: &[u64], done: usize) -> usize {
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

    /// Replaces the page of a partition that has no room for a tuple with `long_bytes`, or begins to partition.
    async fn renew(&mut self, partition: usize, long_bytes: usize) -> Result<Room> {
        if self.must_partition() {
            self.partition();
            return Ok(Room::Partitioned);
        }
        let bytes = self.page_bytes(partition, long_bytes);
        let room = self.relieve(bytes as u64).await?;
        if room == Room::Made {
            self.replace_page(partition, bytes);
        }
        Ok(room)
    }

    /// True if the next page would be as large as one for each partition.
    fn must_partition(&self) -> bool {
        self.mode == PartitionMode::Adaptive
            && self.filling.len() == 1
            && self.filling[0].next_bytes >= PARTITIONS * PAGE_BYTES_MIN
    }

    /// Bytes of the next page of a partition, for a tuple with `long_bytes` at least.
    pub(super) fn page_bytes(&self, partition: usize, long_bytes: usize) -> usize {
        let tuple_bytes = (self.layout.bytes() + long_bytes).next_multiple_of(PAGE_BYTES_MIN);
        let bytes_max = match &self.pressure {
            Some(pressure) if self.filling.len() > 1 => {
                pressure.page_bytes_max(self.filling.len(), self.budget.assured_bytes())
            }
            _ => usize::MAX,
        };
        self.filling[partition].next_bytes.min(bytes_max).max(tuple_bytes)
    }

    /// Puts an empty page where that of a partition is.
    pub(super) fn replace_page(&mut self, partition: usize, bytes: usize) {
        let is_partitioned = self.filling.len() > 1;
        let filling = &mut self.filling[partition];
        let page = Page::new(bytes, self.layout.bytes());
        filling.full.extend(filling.page.replace(page));
        let bytes_max = if is_partitioned { PAGE_BYTES_MAX } else { PARTITIONS * PAGE_BYTES_MIN };
        filling.next_bytes = (filling.next_bytes * GROWTH).min(bytes_max);
    }

    /// From now on tuples are partitioned.
    pub(super) fn partition(&mut self) {
        self.retire();
        self.shift = u64::BITS - self.partition_bits;
        self.loose.extend(self.filling.drain(..).flat_map(|filling| filling.full));
        self.filling.resize_with(1 << self.partition_bits, Filling::new);
    }

    /// Puts away the pages that are being filled.
    fn retire(&mut self) {
        for filling in &mut self.filling {
            filling.full.extend(filling.page.take());
        }
    }
}

/// The `number`th of the rows.
#[inline]
pub(super) fn at(rows: Selected<'_>, number: usize) -> usize {
    match rows {
        Selected::All(_) => number,
        Selected::Some(rows) => rows[number].into(),
    }
}
