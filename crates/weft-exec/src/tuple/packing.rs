//! Tuples on their way to disk: packed onto one page after the other, which a writer takes over.

use weft_rt::memory::Reservation;

use super::behind::{Pieces, Sizes, measure_pieces};
use super::layout::Layout;
use super::pack::{Form, long_bytes};
use super::page::Page;
use crate::error::Result;
use crate::pace::Pace;
use crate::spill::frozen::{FROZEN_BYTES_MAX, Freezing, page_bytes};
use crate::spill::writer::Writer;

/// Tuples that are measured before others may run.
const TUPLES_PER_TURN: usize = 512;

/// Tuples of a partition, and the page that they are being packed onto.
pub(crate) struct Packing<'a> {
    layout: &'a Layout,
    writer: &'a mut Writer,
    form: Form,
    partition: usize,
    page: Option<(Freezing, Reservation)>,
    /// Bytes in memory of the tuples that are on no page before this one, at most.
    left_bytes: usize,
    pace: Pace,
}

impl<'a> Packing<'a> {
    /// For tuples of the layout that have this form, of so many bytes in memory at most.
    pub(crate) fn new(
        layout: &'a Layout,
        writer: &'a mut Writer,
        form: Form,
        partition: usize,
        bytes: usize,
    ) -> Packing<'a> {
        let page = writer.take_open(partition);
        let open_bytes = page.as_ref().map_or(0, |(page, _)| page.tuples_bytes());
        let left_bytes = bytes + open_bytes;
        Packing { layout, writer, form, partition, page, left_bytes, pace: Pace::default() }
    }

    /// Packs tuples.
    ///
    /// # Safety
    /// There is a complete one of the layout, in the form, at each address, that nobody writes to until this has ended.
    ///
    /// # Errors
    /// As [`Writer::memory`].
    pub(crate) async unsafe fn add(
        &mut self,
        tuples: impl Iterator<Item = *const u8>,
    ) -> Result<()> {
        let layout = self.layout;
        for tuple in tuples {
            if !layout.behind().is_empty() {
                // SAFETY: as promised.
                unsafe { self.add_pieces(tuple).await? };
                continue;
            }
            loop {
                let (form, page) = (self.form, self.page.as_mut());
                // SAFETY: as promised.
                if page.is_some_and(|(page, _)| unsafe { page.add(layout, tuple, form) }) {
                    break;
                }
                // SAFETY: as promised.
                let long_bytes = unsafe { long_bytes(layout, tuple) };
                self.renew(layout.bytes() + long_bytes).await?;
            }
        }
        Ok(())
    }

    /// Packs a tuple with lists or sets.
    ///
    /// # Safety
    /// As for many.
    async unsafe fn add_pieces(&mut self, tuple: *const u8) -> Result<()> {
        // SAFETY: as promised.
        let mut pieces = unsafe { Pieces::new(self.layout, tuple, self.form) };
        while let Some(long_bytes) = pieces.next() {
            let slot = loop {
                let slot = self.page.as_mut().and_then(|(page, _)| page.slot(long_bytes));
                match slot {
                    Some(slot) => break slot,
                    None => self.renew(self.layout.bytes() + long_bytes).await?,
                }
            };
            // SAFETY: the slot has room for the piece.
            unsafe { pieces.pack(slot) };
            self.pace.keep().await;
        }
        Ok(())
    }

    /// Begins with another page, for a tuple of so many bytes and others.
    async fn renew(&mut self, tuple_bytes: usize) -> Result<()> {
        self.send();
        self.pace.keep().await;
        let all_bytes = match self.writer.retains() {
            // Other tuples are to come.
            true => FROZEN_BYTES_MAX,
            false => self.left_bytes,
        };
        let bytes = page_bytes(tuple_bytes, all_bytes.max(tuple_bytes));
        let thawed_bytes = self.writer.spills().page_bytes_max();
        let memory = self.writer.memory(bytes).await?;
        self.page = Some((Freezing::new(bytes, thawed_bytes, self.layout), memory));
        Ok(())
    }

    /// Sends the page to disk, if there is one.
    fn send(&mut self) {
        if let Some((page, memory)) = self.page.take() {
            self.left_bytes = self.left_bytes.saturating_sub(page.tuples_bytes());
            self.writer.write(self.partition, page, memory);
        }
    }

    /// Sends the last page to disk, or retains it for more tuples of the partition.
    pub(crate) fn close(mut self) {
        match self.page.take_if(|_| self.writer.retains()) {
            Some((page, memory)) => self.writer.leave_open(self.partition, page, memory),
            None => self.send(),
        }
    }
}

/// Adds what a page's tuples take when they are packed, at most.
///
/// # Safety
/// The page's tuples are complete ones of the layout, in that form, which nobody writes to until this has ended.
pub(crate) async unsafe fn measure(
    layout: &Layout,
    page: &Page,
    form: Form,
    sizes: &mut Sizes,
    pace: &mut Pace,
) {
    if !layout.keeps() && page.bytes() <= FROZEN_BYTES_MAX {
        sizes.add_page(page.used_bytes());
        return;
    }
    for number in 0..page.tuples() {
        // SAFETY: as promised.
        unsafe { measure_pieces(layout, page.tuple(number), form, sizes, pace).await };
        if number % TUPLES_PER_TURN == 0 {
            pace.keep().await;
        }
    }
}
