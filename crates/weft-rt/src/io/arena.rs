//! Arenas: one mapping of huge pages that many buffers are parts of.
//!
//! A driver can register an arena with the kernel once, which spares each transfer the pinning of
//! its pages; on huge pages it also spares the device one descriptor per 4 KiB.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::buffer::{BUFFER_ALIGNMENT, IoBuf, Recycle};

/// Bytes of a huge page, to which arenas are aligned and rounded.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The longest arena that a driver can register, 1 GiB: the kernel's limit.
pub const REGISTERED_BYTES_MAX: usize = 1 << 30;

static NEXT_ID: AtomicU32 = AtomicU32::new(0);

/// A mapping of anonymous memory, zeroed, aligned to 2 MiB and on huge pages where the system
/// grants them.
#[derive(Debug)]
pub struct Arena {
    id: u32,
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: an arena only names memory; whoever carves buffers out of it keeps them apart.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps at least `bytes` bytes, rounded up to 2 MiB. Memory is taken as it is first touched.
    ///
    /// # Errors
    /// The system's error if it has no address space or memory left.
    ///
    /// # Panics
    /// If `bytes` is 0.
    pub fn new(bytes: usize) -> io::Result<Arc<Arena>> {
        Arena::map(bytes, libc::MADV_HUGEPAGE)
    }

    /// Maps address space of at least `bytes` bytes for memory that comes and goes in pieces of 4 KiB:
    /// not on huge pages but by [`Arena::populate`], so that no more becomes resident than was touched, and
    /// given back by [`Arena::discard`]. Left out of core dumps.
    ///
    /// # Errors
    /// The system's error if it has no address space left.
    ///
    /// # Panics
    /// If `bytes` is 0.
    pub fn sparse(bytes: usize) -> io::Result<Arc<Arena>> {
        let arena = Arena::map(bytes, libc::MADV_NOHUGEPAGE)?;
        // SAFETY: advice about the mapping just made; its failure is of no consequence.
        unsafe { libc::madvise(arena.ptr.as_ptr().cast(), arena.len, libc::MADV_DONTDUMP) };
        Ok(arena)
    }

    fn map(bytes: usize, advice: libc::c_int) -> io::Result<Arc<Arena>> {
        assert!(bytes > 0, "an arena has at least one page");
        let len = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES);
        let reserved = len.and_then(|len| len.checked_add(HUGE_PAGE_BYTES));
        let (Some(len), Some(reserved)) = (len, reserved) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        // Mostly it is aligned as it comes, and then next to the last one: the system, which counts mappings, takes them for one.
        let mut start = map_anywhere(len)?;
        if !start.is_multiple_of(HUGE_PAGE_BYTES) {
            // SAFETY: nobody has heard of the mapping yet.
            unsafe { unmap(start, len) };
            let raw = map_anywhere(reserved)?;
            start = raw.next_multiple_of(HUGE_PAGE_BYTES);
            // SAFETY: both pieces lie in the mapping just made and outside of the aligned part that is kept.
            unsafe {
                unmap(raw, start - raw);
                unmap(start + len, raw + HUGE_PAGE_BYTES - start);
            }
        }
        // SAFETY: advice about the mapping just made; its failure is of no consequence.
        unsafe { libc::madvise(start as *mut libc::c_void, len, advice) };
        let ptr = NonNull::new(start as *mut u8).expect("a mapping is not at address zero");
        Ok(Arc::new(Arena { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), ptr, len }))
    }

    /// Maps an arena of exactly `count` buffers of `bytes` bytes and gives them all out; the arena
    /// itself is there to be registered. It is unmapped when it and the last buffer are dropped.
    ///
    /// # Errors
    /// As [`Arena::new`].
    ///
    /// # Panics
    /// If `count` is 0 or `bytes` is not a positive multiple of 4 KiB.
    pub fn carve(count: usize, bytes: usize) -> io::Result<(Arc<Arena>, Vec<IoBuf>)> {
        assert!(bytes > 0 && bytes.is_multiple_of(BUFFER_ALIGNMENT), "buffers of {bytes} bytes");
        let all_bytes = count.checked_mul(bytes);
        let arena = Arena::new(all_bytes.ok_or(io::Error::from_raw_os_error(libc::ENOMEM))?)?;
        let owner: Arc<dyn Recycle> = Arc::new(Keep(arena.clone()));
        let buffers = (0..count)
            .map(|index| {
                // SAFETY: the part lies in the arena, which `owner` keeps mapped; the arena is new,
                // and no part of it is given out twice.
                unsafe {
                    let start = arena.ptr.add(index * bytes);
                    IoBuf::from_owner(start, bytes, Some(arena.id), owner.clone())
                }
            })
            .collect();
        Ok((arena, buffers))
    }

    /// The arena's number, unique in the process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: an arena has at least one huge page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Gives the memory of `[ptr, ptr + len)` back to the system; it is zero when it is next read.
    ///
    /// # Panics
    /// If that is not a part of this arena, or does not begin and end at multiples of 4 KiB.
    ///
    /// # Safety
    /// Nobody may use that memory, a device included, and nobody may expect what it held.
    pub unsafe fn discard(&self, ptr: NonNull<u8>, len: usize) {
        let aligned = |number: usize| number.is_multiple_of(BUFFER_ALIGNMENT);
        assert!(self.contains(ptr, len) && aligned(ptr.as_ptr() as usize) && aligned(len));
        // SAFETY: the part is mapped and, by this function's contract, nobody's.
        let failed = unsafe { libc::madvise(ptr.as_ptr().cast(), len, libc::MADV_DONTNEED) };
        if failed != 0 {
            // The memory stays resident until it is used again: locked pages do.
            log::debug!("cannot give back {len} bytes: {}", io::Error::last_os_error());
        }
    }

    /// Takes memory for `[ptr, ptr + len)` at once, on huge pages as far as whole ones begin in there and the
    /// system grants them. That costs a fraction of taking it in pieces as it is touched, and reads into it
    /// give the device few addresses. What the last huge page has beyond the end is taken, too: the system grants
    /// none but for a range that has all of it. Without effect where the system has no memory: the pieces come as they
    /// are touched, or fail then.
    ///
    /// # Panics
    /// If that is not a part of this arena, or does not begin and end at multiples of 4 KiB.
    pub fn populate(&self, ptr: NonNull<u8>, len: usize) {
        let aligned = |number: usize| number.is_multiple_of(BUFFER_ALIGNMENT);
        assert!(self.contains(ptr, len) && aligned(ptr.as_ptr() as usize) && aligned(len));
        // Advice that begins or ends within a huge page would break that up. An arena begins and ends with one.
        let start = ptr.as_ptr() as usize;
        let whole = start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = (start + len).next_multiple_of(HUGE_PAGE_BYTES);
        self.advise(start..whole.min(start + len), libc::MADV_POPULATE_WRITE);
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE, libc::MADV_NOHUGEPAGE] {
            self.advise(whole..end, advice);
        }
    }

    /// Advice about a range of addresses that does not change what is there, and may fail without consequence.
    fn advise(&self, range: Range<usize>, advice: libc::c_int) {
        if range.is_empty() {
            return;
        }
        // SAFETY: the part is mapped, and none of this advice changes what it holds.
        let failed = unsafe { libc::madvise(range.start as *mut _, range.len(), advice) };
        if failed != 0 {
            log::debug!(
                "cannot take {} bytes at once: {}",
                range.len(),
                io::Error::last_os_error()
            );
        }
    }

    /// A range of it, in bytes, is not to be on huge pages.
    ///
    /// # Panics
    /// If that is not a part of this arena.
    pub(crate) fn use_small_pages(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len, "a part of the arena");
        // SAFETY: within the mapping; advice does not change what it holds, and may fail without consequence.
        unsafe {
            let start = self.ptr.add(range.start).as_ptr().cast();
            libc::madvise(start, range.len(), libc::MADV_NOHUGEPAGE);
        }
    }

    /// True if `[ptr, ptr + len)` lies in this arena.
    pub fn contains(&self, ptr: NonNull<u8>, len: usize) -> bool {
        let before = (ptr.as_ptr() as usize).checked_sub(self.ptr.as_ptr() as usize);
        before.and_then(|before| before.checked_add(len)).is_some_and(|end| end <= self.len)
    }
}

/// Keeps an arena mapped while buffers of it exist.
struct Keep(Arc<Arena>);

impl Recycle for Keep {
    fn recycle(&self, start: NonNull<u8>, len: usize) {
        debug_assert!(self.0.contains(start, len), "the buffer is part of the arena");
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and, by the contract of `IoBuf::from_owner`, unused.
        unsafe { unmap(self.ptr.as_ptr() as usize, self.len) };
    }
}

/// Where a fresh anonymous mapping of so many bytes begins.
fn map_anywhere(bytes: usize) -> io::Result<usize> {
    // SAFETY: a fresh anonymous mapping touches no existing memory.
    let raw = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(raw as usize) }
}

/// # Safety
/// That is a part of mappings, or nothing, which nobody uses.
unsafe fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: by this function's contract.
        unsafe { libc::munmap(start as *mut libc::c_void, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system allows a process some ten thousand mappings.
    #[test]
    fn arenas_are_few_mappings() {
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = mappings();
        let arenas: Vec<_> = (0..256).map(|_| Arena::new(1).unwrap()).collect();
        let more = mappings().saturating_sub(before);
        assert!(more < arenas.len() / 2, "{more} for {} arenas", arenas.len());
    }

    #[test]
    fn arenas_are_aligned_and_zeroed() {
        let arena = Arena::new(5 << 20).unwrap();
        assert_eq!(arena.len(), 6 << 20);
        assert_eq!(arena.as_ptr().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
        // SAFETY: the arena is mapped, and nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts(arena.as_ptr().as_ptr(), arena.len()) };
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    /// Bytes of an arena that are on huge pages; `None` if the system does not tell.
    fn huge_bytes(arena: &Arena) -> Option<usize> {
        let first = arena.as_ptr().as_ptr() as usize;
        let own = first..first + arena.len();
        let (mut is_own, mut bytes) = (false, 0);
        for line in std::fs::read_to_string("/proc/self/smaps").ok()?.lines() {
            if let Some((start, _)) = line.split_once('-')
                && let Ok(start) = usize::from_str_radix(start, 16)
            {
                is_own = own.contains(&start);
            } else if is_own && let Some(huge) = line.strip_prefix("AnonHugePages:") {
                bytes += huge.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10;
            }
        }
        Some(bytes)
    }

    #[test]
    fn populated_memory_is_on_huge_pages() {
        let granted = Arena::new(16 * HUGE_PAGE_BYTES).unwrap();
        // SAFETY: mapped, and nobody else uses it.
        unsafe { granted.as_ptr().write_bytes(1, granted.len()) };
        let arena = Arena::sparse(16 * HUGE_PAGE_BYTES).unwrap();
        // Pieces that neither begin nor end with a huge page.
        let bytes = 3 * (160 << 12);
        for piece in 0..16 {
            // SAFETY: within the arena.
            arena.populate(unsafe { arena.as_ptr().add(piece * bytes) }, bytes);
        }
        let (Some(taken), Some(granted)) = (huge_bytes(&arena), huge_bytes(&granted)) else {
            return;
        };
        // As many as the system has granted for the same, or so; it may have none left.
        assert!(taken >= granted / 2, "{taken} of {granted} bytes on huge pages");
    }

    #[test]
    fn discarded_memory_is_zero() {
        let arena = Arena::sparse(1 << 30).unwrap();
        // SAFETY: the part is mapped, and nobody else uses it.
        unsafe {
            let part = arena.as_ptr().add(1 << 20);
            part.write_bytes(7, 8192);
            arena.discard(part, 4096);
            assert_eq!((part.read(), part.add(4096).read()), (0, 7));
        }
    }
}
