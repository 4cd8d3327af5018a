//! Tuples on their way to disk: packed onto one page after the other, which a writer takes over.

use weft_rt::io::IoBuf;
use weft_rt::memory::Reservation;

use super::behind::{Pieces, Sizes, measure_pieces};
use super::layout::Layout;
use super::pack::Form;
use super::page::{Page, Slot};
use crate::error::Result;
use crate::pace::Pace;
use crate::spill::frozen::{Freezing, page_bytes};
use crate::spill::writer::Writer;

/// Tuples of a partition, and the page that they are being packed onto.
pub(crate) struct Packing<'a> {
    layout: &'a Layout,
    writer: &'a mut Writer,
    form: Form,
    partition: usize,
    page: Option<(Freezing, Reservation)>,
    /// Bytes of the tuples that are still to come.
    left_bytes: usize,
    pace: Pace,
}

impl<'a> Packing<'a> {
    /// For tuples of the layout that have this form, so many bytes of them on disk.
    pub(crate) fn new(
        layout: &'a Layout,
        writer: &'a mut Writer,
        form: Form,
        partition: usize,
        bytes: usize,
    ) -> Packing<'a> {
        Packing {
            layout,
            writer,
            form,
            partition,
            page: None,
            left_bytes: bytes,
            pace: Pace::default(),
        }
    }

    /// Packs a tuple.
    ///
    /// # Safety
    /// There is a complete one of the layout, in the form, that nobody writes to until this has ended.
    ///
    /// # Errors
    /// As [`Writer::memory`].
    pub(crate) async unsafe fn add(&mut self, tuple: *const u8) -> Result<()> {
        // SAFETY: as promised.
        let mut pieces = unsafe { Pieces::new(self.layout, tuple, self.form) };
        while let Some(long_bytes) = pieces.next() {
            let slot = self.slot(long_bytes).await?;
            // SAFETY: the slot has room for the piece.
            unsafe { pieces.pack(slot) };
            if !self.layout.behind().is_empty() {
                self.pace.keep().await;
            }
        }
        Ok(())
    }

    /// Room for a tuple.
    async fn slot(&mut self, long_bytes: usize) -> Result<Slot> {
        let bytes = self.layout.bytes() + long_bytes;
        let slot = loop {
            let slot = self.page.as_mut().and_then(|(page, _)| page.slot(long_bytes));
            if let Some(slot) = slot {
                break slot;
            }
            self.send();
            let page_bytes = page_bytes(bytes, self.left_bytes);
            let memory = self.writer.memory(page_bytes).await?;
            let buffer = IoBuf::zeroed(page_bytes);
            self.page = Some((Freezing::new(buffer, self.layout.bytes()), memory));
        };
        self.left_bytes -= bytes;
        Ok(slot)
    }

    /// Sends the page to disk, if there is one.
    fn send(&mut self) {
        if let Some((page, memory)) = self.page.take() {
            self.writer.write(self.partition, page, memory);
        }
    }

    /// Sends the last page to disk.
    pub(crate) fn close(mut self) {
        debug_assert_eq!(self.left_bytes, 0, "all tuples were packed");
        self.send();
    }
}

/// Adds what a page's tuples take on disk.
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
    if !layout.has_strings() && !layout.keeps() {
        sizes.add_plain(page.tuples(), layout.bytes());
        return;
    }
    for number in 0..page.tuples() {
        // SAFETY: as promised.
        unsafe { measure_pieces(layout, page.tuple(number), form, sizes, pace).await };
    }
}
