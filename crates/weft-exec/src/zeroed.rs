//! Memory for many values of a type, which are zero in the beginning.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use weft_rt::io::arena::HUGE_PAGE_BYTES;
use weft_rt::memory::huge::HugeBlock;

/// Values that are zero in the beginning. Many are on huge pages, which come as they are first used: neither to make them nor to
/// drop them takes long.
pub(crate) struct Zeroed<T> {
    start: NonNull<T>,
    count: usize,
    _memory: Memory<T>,
}

/// What keeps them.
enum Memory<T> {
    Heap { _values: Vec<T> },
    Huge { _block: HugeBlock },
}

// SAFETY: the values are its own.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T: Pod> Zeroed<T> {
    /// So many zeros.
    pub(crate) fn new(count: usize) -> Zeroed<T> {
        const { assert!(align_of::<T>() <= HUGE_PAGE_BYTES) };
        let bytes = count * size_of::<T>();
        if bytes >= HUGE_PAGE_BYTES {
            match HugeBlock::new(bytes) {
                Ok(block) => {
                    let start = block.start().cast();
                    return Zeroed { start, count, _memory: Memory::Huge { _block: block } };
                }
                Err(error) => log::debug!("{bytes} bytes are not on huge pages: {error}"),
            }
        }
        let mut values = bytemuck::zeroed_vec(count);
        let start = NonNull::from(&mut *values).cast();
        Zeroed { start, count, _memory: Memory::Heap { _values: values } }
    }

    /// Those behind the first `count` are forgotten; their memory is not given back.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
    }
}

impl<T> Zeroed<T> {
    /// How many there are. Borrows none of them, of which others may have some to write to.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many values are there, any bytes are some, and the borrow keeps them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl<T> fmt::Debug for Zeroed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Zeroed({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_zero_and_stay_what_they_become() {
        for count in [0, 1, 1000, HUGE_PAGE_BYTES / 16, HUGE_PAGE_BYTES / 16 + 1] {
            let mut values = Zeroed::<u128>::new(count);
            assert_eq!(values.len(), count);
            assert!(values.iter().all(|value| *value == 0));
            for (number, value) in values.iter_mut().enumerate() {
                *value = number as u128;
            }
            let mut moved = values;
            moved.truncate(count / 2);
            assert!(moved.iter().copied().eq(0..(count / 2) as u128));
        }
    }
}
