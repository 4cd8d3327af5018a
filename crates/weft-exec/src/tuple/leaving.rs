//! Memory of pages that are being spilled. If the writer has none to write a page, they lend what they will give back: whoever has all
//! other memory can spill.

use super::behind::Sizes;
use super::budget::Budget;
use super::page::Page;
use crate::spill::writer::Writer;

/// Pages on their way out, and what lies behind their tuples.
pub(super) struct Leaving {
    bytes: u64,
    /// Of those, the ones that were lent, and that the pages do not give back.
    pub(super) lent_bytes: u64,
}

impl Leaving {
    /// These pages, none of whose memory was lent.
    pub(super) fn new(pages: &[Page], behind_bytes: u64) -> Leaving {
        let bytes = pages.iter().map(|page| page.bytes() as u64).sum::<u64>() + behind_bytes;
        Leaving { bytes, lent_bytes: 0 }
    }

    /// Lends the writer what it lacks to write tuples of these sizes.
    pub(super) fn lend(&mut self, sizes: Sizes, budget: &mut Budget, writer: &mut Writer) {
        let lacks_bytes = writer.lacks_bytes_for(sizes.largest_bytes);
        let lent = budget.lend(lacks_bytes.min(self.bytes - self.lent_bytes));
        self.lent_bytes += lent.bytes();
        writer.lend(lent);
    }

    /// Gives a page's memory back.
    pub(super) fn free(&mut self, page: Page, budget: &mut Budget) {
        let bytes = page.bytes() as u64;
        drop(page);
        let lent_bytes = self.lent_bytes.min(bytes);
        self.lent_bytes -= lent_bytes;
        budget.release(bytes - lent_bytes);
    }
}
