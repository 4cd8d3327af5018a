//! Copies of tuples that lie on other pages, for operators that keep few of many.

use super::allowed::Allowance;
use super::layout::HASH_OFFSET;
use super::materializer::Materializer;
use super::pack::{Form, long_bytes, pack};

impl Materializer {
    /// Stores a copy of a tuple of the same layout; false if there is no memory that is free and allowed.
    ///
    /// # Safety
    /// There is one at `tuple`, which nobody writes to until this has ended.
    pub(crate) unsafe fn copy(&mut self, tuple: *const u8, allowance: &mut Allowance) -> bool {
        let layout = self.layout().clone();
        // SAFETY: the header of the tuple, and its strings, which lie behind it.
        let (hash, long_bytes) =
            unsafe { (tuple.add(HASH_OFFSET).cast::<u64>().read(), long_bytes(&layout, tuple)) };
        let slot = loop {
            match self.slot(hash, long_bytes) {
                Some(slot) => break slot,
                None if self.has_room(long_bytes, allowance) => {}
                None => return false,
            }
        };
        // SAFETY: as promised; the slot has room for the tuple.
        unsafe { pack(&layout, tuple, Form::Live, slot) };
        true
    }
}
