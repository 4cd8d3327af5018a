//! Which numbers of nodes are in use, and which of their places no durable tree refers to.

use std::collections::HashSet;

use weft_buffer::PageId;

use crate::error::IndexError;

/// Gives places for pages, and takes them back.
pub trait Space: Send + Sync {
    /// A place for a page of `bytes` bytes, which nothing refers to.
    ///
    /// # Errors
    /// [`IndexError::Space`] if there is none.
    fn allocate(&self, bytes: usize) -> Result<PageId, IndexError>;

    /// Nothing refers to this place any more, and nothing durable ever did.
    fn release(&self, id: PageId);
}

/// What changes of a tree leave behind until it is flushed.
#[derive(Default)]
pub(crate) struct Places {
    /// The first number that was never used.
    pub(crate) next: u32,
    /// Numbers below that are in no use.
    pub(crate) unused: Vec<u32>,
    /// Nodes whose place is new since the last flush: they may be written there again.
    pub(crate) fresh: HashSet<u32>,
    /// Numbers whose place, or whose being in use, is not what the durable tree says.
    pub(crate) changed: HashSet<u32>,
    /// Places that the durable tree refers to, and the tree as it is now does not.
    pub(crate) released: Vec<PageId>,
}

impl Places {
    /// A number that is in no use.
    pub(crate) fn take_number(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Notes that node `number` has moved to a new place from `old`; true if the old one can be used again at once.
    pub(crate) fn note_moved(&mut self, number: u32, old: Option<PageId>) -> Option<PageId> {
        self.changed.insert(number);
        let was_fresh = !self.fresh.insert(number);
        let old = old?;
        if was_fresh {
            return Some(old);
        }
        self.released.push(old);
        None
    }

    /// Notes that there is no node `number` any more; gives its place if that can be used again at once.
    pub(crate) fn note_gone(&mut self, number: u32, place: PageId) -> Option<PageId> {
        self.changed.insert(number);
        self.unused.push(number);
        if self.fresh.remove(&number) {
            return Some(place);
        }
        self.released.push(place);
        None
    }
}
