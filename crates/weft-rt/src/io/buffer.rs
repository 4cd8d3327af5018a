//! Buffers that a device can read into: aligned, and owned by exactly one party at any time.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::memory::slab::{BLOCK_BYTES_MIN, Block};

/// Alignment in bytes of every buffer: what O_DIRECT asks for on all devices that we know.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Takes back the memory of an [`IoBuf`] that is dropped.
///
/// Called on whichever thread drops the buffer, which is a worker's own when a device finishes a
/// request whose coroutine is gone.
pub trait Recycle: Send + Sync {
    /// The buffer at `ptr` of `len` bytes is no longer used by anyone.
    fn recycle(&self, ptr: NonNull<u8>, len: usize);
}

/// An owned, aligned buffer: of the heap, or a part of an [`Arena`](super::Arena).
///
/// It moves into a request and comes back with the completion, so that nobody else can touch the
/// memory while the kernel writes to it; if the coroutine is dropped meanwhile, the reactor keeps
/// the buffer until the completion arrives.
pub struct IoBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Bytes of its memory, of which `len` count.
    capacity: usize,
    arena: Option<u32>,
    owner: Owner,
}

// SAFETY: an `IoBuf` owns its memory exclusively, and its owner is `Send + Sync`.
unsafe impl Send for IoBuf {}
// SAFETY: shared access only reads the bytes.
unsafe impl Sync for IoBuf {}

/// Whose the memory is.
enum Owner {
    Heap,
    /// Goes back when it is dropped.
    Block {
        _block: Block,
    },
    Other(Arc<dyn Recycle>),
}

impl IoBuf {
    /// A zeroed buffer of `len` bytes, aligned to 4 KiB, of the heap, or a block on huge pages ([`Block`]) of which it takes
    /// most.
    ///
    /// # Panics
    /// If `len` is 0 or the allocator has no memory.
    pub fn zeroed(len: usize) -> IoBuf {
        let mut buffer = IoBuf::to_be_filled(len);
        if !matches!(buffer.owner, Owner::Heap) {
            buffer.fill(0);
        }
        buffer
    }

    /// The same, to be filled as a whole: with anything in it.
    ///
    /// # Panics
    /// As [`IoBuf::zeroed`].
    pub fn to_be_filled(len: usize) -> IoBuf {
        IoBuf::of_block(len).unwrap_or_else(|| IoBuf::of_heap(len))
    }

    /// Bytes that such a buffer of `len` takes, at most.
    pub fn memory_bytes(len: usize) -> usize {
        IoBuf::block_bytes(len).unwrap_or(len)
    }

    /// Bytes of the block of which a buffer takes three quarters, or more.
    fn block_bytes(len: usize) -> Option<usize> {
        let block_bytes = len.next_power_of_two().max(BLOCK_BYTES_MIN);
        (len > 0 && len >= block_bytes / 4 * 3).then_some(block_bytes)
    }

    /// Of a block, if it takes most of one.
    fn of_block(len: usize) -> Option<IoBuf> {
        let block = Block::new(IoBuf::block_bytes(len)?)?;
        let ptr = block.start();
        // The memory is initialized, by the system if by nobody else.
        Some(IoBuf { ptr, len, capacity: len, arena: None, owner: Owner::Block { _block: block } })
    }

    fn of_heap(len: usize) -> IoBuf {
        assert!(len > 0, "an empty buffer cannot be transferred");
        let layout = Layout::from_size_align(len, BUFFER_ALIGNMENT).expect("buffer length");
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: `alloc` returned `len` writable bytes.
        unsafe { ptr.write_bytes(0, len) };
        IoBuf { ptr, len, capacity: len, arena: None, owner: Owner::Heap }
    }

    /// A buffer over memory that belongs to `owner`, which gets it back when the buffer is dropped.
    /// `arena` names the arena that the memory is a part of, if it is one.
    ///
    /// # Safety
    /// `[ptr, ptr + len)` must be initialized, valid for reads and writes and not used by anyone
    /// else until `owner.recycle` is called with it.
    pub unsafe fn from_owner(
        ptr: NonNull<u8>,
        len: usize,
        arena: Option<u32>,
        owner: Arc<dyn Recycle>,
    ) -> IoBuf {
        IoBuf { ptr, len, capacity: len, arena, owner: Owner::Other(owner) }
    }

    /// Gives up the buffer without telling its owner, which from here on has to be told otherwise.
    ///
    /// # Panics
    /// If it is a buffer of the heap or a block, which have no owner.
    pub fn into_raw(mut self) -> (NonNull<u8>, usize) {
        let parts = (self.ptr, self.capacity);
        let owner = std::mem::replace(&mut self.owner, Owner::Heap);
        std::mem::forget(self);
        assert!(matches!(owner, Owner::Other(_)), "a buffer of the heap has no owner");
        parts
    }

    /// Forgets what is behind the first `len` bytes. Its memory stays as it is.
    ///
    /// # Panics
    /// If there are not so many, or none would be left.
    pub fn truncate(&mut self, len: usize) {
        assert!((1..=self.len).contains(&len), "{len} of {} bytes", self.len);
        self.len = len;
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Id of the arena that the buffer is a part of, if it is.
    pub fn arena(&self) -> Option<u32> {
        self.arena
    }
}

impl Deref for IoBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialized, `len` bytes long, and ours alone (see `from_owner`).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Other(owner) => owner.recycle(self.ptr, self.capacity),
            Owner::Block { .. } => {}
            Owner::Heap => {
                let layout =
                    Layout::from_size_align(self.capacity, BUFFER_ALIGNMENT).expect("as made");
                // SAFETY: without an owner the memory came from `alloc` with this layout.
                unsafe { dealloc(self.ptr.as_ptr(), layout) }
            }
        }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn heap_buffers_are_aligned_and_zero() {
        let buf = IoBuf::zeroed(5000);
        assert_eq!(buf.as_ptr().as_ptr() as usize % BUFFER_ALIGNMENT, 0);
        assert!(buf.iter().all(|&byte| byte == 0));
        assert_eq!(buf.len(), 5000);
    }

    #[test]
    fn an_owner_gets_all_of_its_memory_back() {
        struct Count(AtomicUsize);
        impl Recycle for Count {
            fn recycle(&self, _: NonNull<u8>, len: usize) {
                self.0.fetch_add(len, Ordering::Relaxed);
            }
        }
        let owner = Arc::new(Count(AtomicUsize::new(0)));
        let mut memory = [0u8; 64];
        let ptr = NonNull::from(&mut memory).cast();
        // SAFETY: `memory` outlives the buffer and is not used meanwhile.
        let mut buf = unsafe { IoBuf::from_owner(ptr, 64, None, owner.clone()) };
        buf.truncate(16);
        assert_eq!(buf[..].len(), 16);
        drop(buf);
        assert_eq!(owner.0.load(Ordering::Relaxed), 64);
    }
}
