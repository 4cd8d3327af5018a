//! Copies of tuples that lie on other pages, for operators that keep few of many.

use super::layout::{HASH_OFFSET, Layout};
use super::materializer::Materializer;
use crate::error::Result;
use crate::lane::Lane;
use crate::text::Str;

impl Materializer {
    /// Stores a copy of a tuple of the same layout. Waits for memory.
    ///
    /// # Safety
    /// There is one at `tuple`, which nobody writes to until this has ended.
    ///
    /// # Errors
    /// [`ExecError::Memory`](crate::ExecError::Memory)
    pub async unsafe fn copy(&mut self, tuple: *const u8) -> Result<()> {
        let layout = self.layout().clone();
        let strings = || layout.fields().iter().filter(|field| field.lane == Lane::Str);
        // SAFETY: a field of the tuple.
        let string = |offset: usize| unsafe { tuple.add(offset).cast::<Str>().read_unaligned() };
        // SAFETY: the header of the tuple.
        let hash = unsafe { tuple.add(HASH_OFFSET).cast::<u64>().read() };
        let long_bytes = strings().map(|field| Layout::long_bytes(string(field.offset))).sum();
        let slot = loop {
            match self.slot(hash, long_bytes) {
                Some(slot) => break slot,
                // Nobody knows addresses.
                None => drop(self.make_room(hash, long_bytes).await?),
            }
        };
        // SAFETY: both are of the layout's bytes, and the slot is new.
        unsafe { std::ptr::copy_nonoverlapping(tuple, slot.tuple, layout.bytes()) };
        let mut place = slot.strings;
        for field in strings() {
            let string = string(field.offset).unpacked(tuple);
            if string.is_inline() {
                continue;
            }
            // SAFETY: the string's bytes lie behind the tuple; the slot has as many, counted above, and the field.
            unsafe {
                let bytes = string.bytes();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
                let distance = place.offset_from(slot.tuple) as u64;
                let field = slot.tuple.add(field.offset).cast::<Str>();
                field.write_unaligned(string.packed(distance));
                place = place.add(bytes.len());
            }
        }
        Ok(())
    }
}
