//! Tuples of partitions that are on disk in part: they go from registers straight to a page for the disk, in the form that they
//! have there ([`Dense`](super::dense)), without being stored in memory and packed later.
//!
//! Once a materializer has spilled a partition it has such a page for it, as long as its share of the memory is ample: for a page
//! of full size for each partition. When memory is short these pages leave for the disk, and tuples are stored in memory again
//! until their partition is spilled the next time.

use weft_rt::memory::Reservation;

use super::dense::{DenseSize, appended_bytes};
use super::layout::Layout;
use super::materializer::Materializer;
use super::pressure::Pressure;
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::spill::frozen::{FROZEN_BYTES_MAX, Freezing};
use crate::spill::writer::SPARE_BYTES;
use crate::text::Str;

/// Bytes of a page for the disk.
const PAGE_BYTES: usize = FROZEN_BYTES_MAX;

/// A materializer's pages for the disk.
#[derive(Debug, Default)]
pub(super) struct Through {
    /// True if tuples come from registers.
    pub(super) is_asked_for: bool,
    /// That of each partition; none at all if no partition has one.
    pages: Vec<Option<Open>>,
    open: usize,
    /// Rows of a vector that go to pages for the disk, and the others.
    rows: Vec<u16>,
    others: Vec<u16>,
    /// What each of the former takes.
    sizes: Vec<u32>,
}

/// A page that is being filled, and its memory.
#[derive(Debug)]
struct Open {
    page: Freezing,
    memory: Reservation,
}

impl Through {
    /// True if some partitions have a page.
    pub(super) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Bytes of all pages.
    fn bytes(&self) -> u64 {
        (self.open * PAGE_BYTES) as u64
    }

    fn take(&mut self, partition: usize) -> Option<Open> {
        let open = self.pages.get_mut(partition)?.take();
        self.open -= usize::from(open.is_some());
        open
    }
}

impl Materializer {
    /// Bytes of all pages, those for the disk among them that are open or retained.
    pub(super) fn held_bytes(&self) -> u64 {
        let retained_bytes = self.pressure.as_ref().map_or(0, Pressure::retained_bytes);
        self.budget.bytes() + self.through.bytes() + retained_bytes
    }

    /// Stores the tuples that are selected: those whose partition has a page for the disk there.
    pub(super) async fn store_through(
        &mut self,
        registers: &Registers,
        hashes: &[u64],
        fields: &[Register],
    ) -> Result<()> {
        let mut rows = std::mem::take(&mut self.through.rows);
        let mut others = std::mem::take(&mut self.through.others);
        rows.clear();
        others.clear();
        registers.selected().for_each(|row| {
            let has_page = self.through.pages[self.partition_of(hashes[row])].is_some();
            let to = if has_page { &mut rows } else { &mut others };
            to.push(row as u16);
        });
        let is_refused = self.place_through(registers, &rows, hashes, fields, &mut others).await?;
        if is_refused {
            others.sort_unstable();
        }
        self.store_rows(registers, Selected::Some(&others), hashes, fields).await?;
        (self.through.rows, self.through.others) = (rows, others);
        Ok(())
    }

    /// Writes rows to pages for the disk; those for which there is none any more are added to the others. True if there were some.
    async fn place_through(
        &mut self,
        registers: &Registers,
        rows: &[u16],
        hashes: &[u64],
        fields: &[Register],
        others: &mut Vec<u16>,
    ) -> Result<bool> {
        let dense = self.layout.dense().expect("tuples that take another form").clone();
        self.measure(registers, rows, fields, dense.run_bytes());
        let others_then = others.len();
        // Those that have a slot; of the first of them all is written.
        let mut placed: Vec<u16> = Vec::with_capacity(rows.len());
        let mut written = 0;
        for (number, row) in rows.iter().enumerate() {
            let partition = self.partition_of(hashes[usize::from(*row)]);
            let (bytes, long_bytes) = (self.through.sizes[number], self.long_bytes[number]);
            let size = DenseSize { bytes: bytes as usize, long_bytes: long_bytes as usize };
            loop {
                let Some(Open { page, .. }) = &mut self.through.pages[partition] else {
                    others.push(*row);
                    break;
                };
                if let Some(slot) = page.dense_slot(size) {
                    self.slots[placed.len()] = slot;
                    placed.push(*row);
                    break;
                }
                if page.tuples() == 0 {
                    // Larger than a page.
                    others.push(*row);
                    break;
                }
                // What is sent must be complete.
                let some = Selected::Some(&placed[written..]);
                self.write(registers, some, hashes, fields, written, Some(&dense));
                written = placed.len();
                self.send_one_through(partition);
                self.open_through(partition).await?;
            }
        }
        let some = Selected::Some(&placed[written..]);
        self.write(registers, some, hashes, fields, written, Some(&dense));
        Ok(others.len() > others_then)
    }

    /// Sums up what each row takes on disk, and its long strings in memory.
    fn measure(
        &mut self,
        registers: &Registers,
        rows: &[u16],
        fields: &[Register],
        run_bytes: usize,
    ) {
        let sizes = &mut self.through.sizes;
        sizes.clear();
        sizes.resize(rows.len(), run_bytes as u32);
        let long_bytes = &mut self.long_bytes[..rows.len()];
        long_bytes.fill(0);
        for (field, register) in self.layout.fields().iter().zip(fields) {
            if field.lane != Lane::Str {
                continue;
            }
            let vector = registers.vector(*register);
            let strings = vector.values::<Str>();
            for ((size, long_bytes), row) in sizes.iter_mut().zip(&mut *long_bytes).zip(rows) {
                let row = usize::from(*row);
                let string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
                *size = size.saturating_add(appended_bytes(string.len()) as u32);
                *long_bytes = long_bytes.saturating_add(Layout::long_bytes(string) as u32);
            }
        }
    }

    /// Opens a page for the disk for a partition that was spilled, if tuples come from registers and take another form there, and
    /// memory is ample.
    ///
    /// # Errors
    /// Those of earlier writes.
    pub(super) async fn open_through(&mut self, partition: usize) -> Result<()> {
        let (partitions, held_bytes) = (self.filling.len(), self.held_bytes());
        let takes_another_form = self.layout.dense().is_some() && !self.layout.keeps();
        if !self.through.is_asked_for || !takes_another_form || partitions == 1 {
            return Ok(());
        }
        let Some(pressure) = &mut self.pressure else { return Ok(()) };
        let is_open = self.through.pages.get(partition).is_some_and(Option::is_some);
        let is_ample =
            pressure.page_bytes_max(partitions, 0) >= PAGE_BYTES && !pressure.retains(partitions);
        if is_open || !is_ample || !pressure.allows(held_bytes + PAGE_BYTES as u64) {
            return Ok(());
        }
        if let Some(memory) = pressure.writer.own_memory(PAGE_BYTES, SPARE_BYTES).await? {
            let thawed_bytes = pressure.writer.spills().page_bytes_max();
            let page = Freezing::new(PAGE_BYTES, thawed_bytes, &self.layout);
            self.through.pages.resize_with(partitions, || None);
            self.through.pages[partition] = Some(Open { page, memory });
            self.through.open += 1;
        }
        Ok(())
    }

    /// True if tuples have gone to a page for the disk.
    #[cfg(test)]
    pub(super) fn has_gone_through(&self) -> bool {
        !self.through.sizes.is_empty()
    }

    /// Sends all pages to disk and waits until they are there.
    ///
    /// # Errors
    /// The first that a write has.
    pub(super) async fn close_through(&mut self) -> Result<()> {
        if !self.through.is_open() {
            return Ok(());
        }
        self.settle().await
    }

    /// Sends all pages to disk.
    pub(super) fn send_through(&mut self) {
        (0..self.through.pages.len()).for_each(|partition| self.send_one_through(partition));
    }

    /// Sends a partition's page to disk, if it has one with tuples.
    fn send_one_through(&mut self, partition: usize) {
        let Some(Open { page, memory }) = self.through.take(partition) else { return };
        if page.tuples() > 0
            && let Some(pressure) = &mut self.pressure
        {
            pressure.writer.retain(false);
            pressure.writer.write(partition, page, memory);
        }
    }
}
