//! Tuples of a materializer leave for the disk: a partition's, or those from before there were partitions. And packed copies of tuples
//! come to one that has no others.

use super::behind::{Pieces, Sizes, measure_pieces};
use super::layout::HASH_OFFSET;
use super::leaving::Leaving;
use super::materializer::Materializer;
use super::pack::Form;
use super::packing::{Packing, measure};
use super::page::Page;
use super::pressure::Pressure;
use crate::error::Result;
use crate::pace::Pace;

impl Materializer {
    /// Spills a partition.
    ///
    /// # Errors
    /// What went wrong with spilling.
    ///
    /// # Panics
    /// If it is none that spills.
    pub(crate) async fn spill(&mut self, partition: usize) -> Result<()> {
        let partitions = self.filling.len();
        let filling = &mut self.filling[partition];
        let mut pages = std::mem::take(&mut filling.full);
        pages.extend(filling.page.take());
        let behind_bytes = std::mem::take(&mut filling.behind_bytes);
        let paid_bytes = behind_bytes.saturating_sub(self.unpaid_bytes);
        let Materializer { layout, pressure, budget, lent_bytes, .. } = self;
        let pressure = pressure.as_mut().expect("only who spills packs");
        let retains = pressure.retains(partitions);
        let Pressure { writer, form, .. } = pressure;
        writer.retain(retains);
        while !retains && writer.send_retained().await? {}
        let mut pace = Pace::default();
        let mut sizes = Sizes::default();
        for page in &pages {
            // SAFETY: the pages are ours, and their tuples complete.
            unsafe { measure(layout, page, *form, &mut sizes, &mut pace).await };
        }
        let mut leaving = Leaving::new(&pages, paid_bytes);
        leaving.lend(sizes, budget, writer);
        let mut packing = Packing::new(layout, writer, *form, partition, sizes.bytes);
        for page in pages {
            // SAFETY: as above.
            unsafe { packing.add(page.addresses()).await? };
            leaving.free(page, budget);
            pace.keep().await;
        }
        packing.close();
        *lent_bytes += leaving.lent_bytes;
        Ok(())
    }

    /// Spills what was stored before there were partitions.
    pub(super) async fn spill_loose(&mut self) -> Result<()> {
        let pages = std::mem::take(&mut self.loose);
        let addresses =
            |page: &Page| (0..page.tuples()).map(|at| page.tuple(at) as usize).collect();
        let mut tuples: Vec<(usize, usize)> = Vec::new();
        for page in &pages {
            let found: Vec<usize> = addresses(page);
            // SAFETY: a tuple begins with its hash.
            let hash = |tuple: usize| unsafe {
                (tuple as *const u8).add(HASH_OFFSET).cast::<u64>().read()
            };
            tuples.extend(found.into_iter().map(|tuple| (self.partition_of(hash(tuple)), tuple)));
        }
        // Stable: tuples of a group stay in their order.
        tuples.sort_by_key(|(partition, _)| *partition);
        let behind_bytes = std::mem::take(&mut self.behind_bytes);
        let paid_bytes = behind_bytes.saturating_sub(self.unpaid_bytes);
        let Materializer { layout, pressure, budget, lent_bytes, .. } = self;
        let Pressure { writer, form, .. } = pressure.as_mut().expect("only who spills packs");
        // It is little, of all partitions.
        writer.retain(false);
        let mut leaving = Leaving::new(&pages, paid_bytes);
        let mut pace = Pace::default();
        for tuples in tuples.chunk_by(|a, b| a.0 == b.0) {
            let mut sizes = Sizes::default();
            for (_, tuple) in tuples {
                // SAFETY: the pages are ours, and their tuples complete.
                unsafe {
                    measure_pieces(layout, *tuple as *const u8, *form, &mut sizes, &mut pace).await;
                }
            }
            leaving.lend(sizes, budget, writer);
            let mut packing = Packing::new(layout, writer, *form, tuples[0].0, sizes.bytes);
            // SAFETY: as above.
            unsafe { packing.add(tuples.iter().map(|(_, tuple)| *tuple as *const u8)).await? };
            packing.close();
            pace.keep().await;
        }
        pages.into_iter().for_each(|page| leaving.free(page, budget));
        *lent_bytes += leaving.lent_bytes;
        Ok(())
    }

    /// Stores a packed copy of a tuple that has this form. For those of [`Materializer::packed`].
    ///
    /// # Safety
    /// There is one, which nobody writes to until this has ended.
    ///
    /// # Errors
    /// As [`Materializer::make_room`].
    pub(crate) async unsafe fn store_packed(&mut self, tuple: *const u8, form: Form) -> Result<()> {
        // SAFETY: a tuple begins with its hash.
        let hash = unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() };
        self.count(hash);
        let layout = self.layout.clone();
        // SAFETY: as promised.
        let mut pieces = unsafe { Pieces::new(&layout, tuple, form) };
        let mut pace = Pace::default();
        while let Some(long_bytes) = pieces.next() {
            let slot = loop {
                match self.slot(hash, long_bytes) {
                    Some(slot) => break slot,
                    // Nobody knows addresses.
                    None => drop(self.make_room(hash, long_bytes).await?),
                }
            };
            // SAFETY: the slot has room for the piece.
            unsafe { pieces.pack(slot) };
            pace.keep().await;
        }
        Ok(())
    }
}
