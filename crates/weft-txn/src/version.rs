//! Versions of rows: what a transaction has made of a row, in memory of its own size.
//!
//! A version is a header and the row's bytes in one block, so that both come with one cache miss as a rule.
//! All of the header that changes is atomic; the bytes never change. Whoever may free a version holds
//! it as an [`OwnedVersion`]; everybody else sees it as [`Shared`], for as long as an [`Entered`] transaction lasts.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

#[cfg(not(loom))]
use crate::cells;
use crate::primitives::{AtomicPtr, AtomicU64, Ordering};
use crate::slots::Entered;

/// Models have all versions in the heap.
#[cfg(loom)]
mod cells {
    use std::ptr::NonNull;

    pub(super) fn allocate(_: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) unsafe fn free(_: NonNull<u8>, _: usize) {}
}

/// What a version says of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// These are its bytes.
    Row,
    /// There is no such row any more.
    Deleted,
}

/// The header of a version.
#[repr(C)]
pub(crate) struct Version {
    /// The commit timestamp, or the id of the transaction that made it, until that has ended.
    stamp: AtomicU64,
    /// The next older version.
    next: AtomicPtr<Version>,
    /// SSN: the latest commit timestamp of those who have read it.
    pstamp: AtomicU64,
    /// SSN: the low watermark of the transaction that made it.
    sstamp: AtomicU64,
    len: u32,
    kind: Kind,
    /// It lies in a cell, not in the heap.
    is_cell: bool,
}

fn layout(len: usize) -> Layout {
    let bytes = Layout::array::<u8>(len).expect("fewer than 2^32 bytes");
    Layout::new::<Version>().extend(bytes).expect("fewer than 2^32 bytes").0.pad_to_align()
}

const BYTES_AT: usize = size_of::<Version>();

/// Bytes of memory that a version of a row of `len` bytes takes, with what the allocator needs.
pub(crate) fn memory_bytes(len: usize) -> u64 {
    (layout(len).size() as u64 + 8).next_multiple_of(16)
}

impl Version {
    /// The commit timestamp, or the id of the transaction that made it.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// Puts the commit timestamp in the place of the id.
    pub(crate) fn set_stamp(&self, at: u64, sstamp: u64) {
        self.sstamp.store(sstamp, Ordering::Relaxed);
        // Whoever sees the timestamp sees the watermark.
        self.stamp.store(at, Ordering::Release);
    }

    /// The low watermark of the transaction that made it: counts if the stamp is a timestamp.
    pub(crate) fn sstamp(&self) -> u64 {
        self.sstamp.load(Ordering::Acquire)
    }

    pub(crate) fn pstamp(&self) -> u64 {
        self.pstamp.load(Ordering::SeqCst)
    }

    /// A transaction with this commit timestamp has read it.
    pub(crate) fn note_read(&self, at: u64) {
        if self.pstamp.load(Ordering::Relaxed) < at {
            self.pstamp.fetch_max(at, Ordering::SeqCst);
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        memory_bytes(self.len as usize)
    }

    /// The chain's link, for [`crate::chain`].
    pub(crate) fn next(&self) -> &AtomicPtr<Version> {
        &self.next
    }
}

/// Where a version lies: of use only to a transaction that has come to it since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionAddress(NonNull<Version>);

// SAFETY: an address alone gives no access; `Shared::at` says what it takes to use one.
unsafe impl Send for VersionAddress {}

/// A version that nobody else frees: not linked yet, or not any more.
pub(crate) struct OwnedVersion(NonNull<Version>);

// SAFETY: a version has no tie to a thread: its header is atomics and constants, its bytes are constant.
unsafe impl Send for OwnedVersion {}

impl OwnedVersion {
    /// A version with this stamp, of a row of fewer than 2^32 bytes.
    pub(crate) fn new(kind: Kind, bytes: &[u8], stamp: u64) -> OwnedVersion {
        let len = u32::try_from(bytes.len()).expect("fewer than 2^32 bytes");
        let layout = layout(bytes.len());
        let cell = cells::allocate(layout.size());
        let ptr = match cell {
            Some(cell) => cell.cast::<Version>(),
            None => {
                // SAFETY: the layout is that of a header at least.
                let raw = unsafe { alloc(layout) };
                let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
                ptr.cast::<Version>()
            }
        };
        let version = Version {
            stamp: AtomicU64::new(stamp),
            next: AtomicPtr::new(std::ptr::null_mut()),
            pstamp: AtomicU64::new(0),
            sstamp: AtomicU64::new(u64::MAX),
            len,
            kind,
            is_cell: cell.is_some(),
        };
        // SAFETY: the block is ours alone, aligned for a header, and has room for it and for the bytes behind it.
        unsafe {
            ptr.write(version);
            let place = ptr.cast::<u8>().add(BYTES_AT).as_ptr();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        OwnedVersion(ptr)
    }

    /// # Safety
    /// `ptr` came from [`OwnedVersion::into_raw`], and nobody else makes an owned one of it.
    pub(crate) unsafe fn from_raw(ptr: NonNull<Version>) -> OwnedVersion {
        OwnedVersion(ptr)
    }

    pub(crate) fn into_raw(self) -> NonNull<Version> {
        let ptr = self.0;
        std::mem::forget(self);
        ptr
    }

    pub(crate) fn header(&self) -> &Version {
        // SAFETY: it is allocated until it is dropped.
        unsafe { self.0.as_ref() }
    }

    /// Overwrites the first byte, for models.
    #[cfg(all(test, loom))]
    pub(crate) fn poison(&self) {
        // SAFETY: the block has a byte behind the header; threads of a model run one at a time.
        unsafe { self.0.cast::<u8>().add(BYTES_AT).write(u8::MAX) };
    }

    #[cfg(any(test, not(loom)))]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block is allocated as long as the version is owned.
        unsafe { bytes_of(self.0) }
    }
}

impl Drop for OwnedVersion {
    fn drop(&mut self) {
        let (layout, is_cell) = (layout(self.header().len as usize), self.header().is_cell);
        // SAFETY: it is ours alone, made by `new` with this layout, and not used any more.
        unsafe {
            self.0.drop_in_place();
            match is_cell {
                true => cells::free(self.0.cast(), layout.size()),
                false => dealloc(self.0.as_ptr().cast(), layout),
            }
        }
    }
}

/// # Safety
/// The version is allocated for `'a`.
unsafe fn bytes_of<'a>(ptr: NonNull<Version>) -> &'a [u8] {
    // SAFETY: the block has as many bytes behind the header, which do not change.
    unsafe {
        let len = (*ptr.as_ptr()).len as usize;
        std::slice::from_raw_parts(ptr.cast::<u8>().add(BYTES_AT).as_ptr(), len)
    }
}

/// A version that a transaction has come to, which stays until the transaction leaves.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'e> {
    ptr: NonNull<Version>,
    _entered: PhantomData<&'e ()>,
}

impl<'e> Shared<'e> {
    /// # Safety
    /// The version was reachable in a chain, or the transaction's own, at some time since `entered` began.
    #[inline]
    pub(crate) unsafe fn new(ptr: NonNull<Version>, _entered: &'e Entered<'_>) -> Shared<'e> {
        Shared { ptr, _entered: PhantomData }
    }

    /// # Safety
    /// As for [`Shared::new`].
    #[inline]
    pub(crate) unsafe fn at(address: VersionAddress, entered: &'e Entered<'_>) -> Shared<'e> {
        // SAFETY: the caller's promise.
        unsafe { Shared::new(address.0, entered) }
    }

    #[inline]
    pub(crate) fn address(self) -> VersionAddress {
        VersionAddress(self.ptr)
    }

    #[inline]
    pub(crate) fn ptr(self) -> NonNull<Version> {
        self.ptr
    }

    #[inline]
    pub(crate) fn header(self) -> &'e Version {
        // SAFETY: see `new`: what was reachable while a transaction was entered is not freed before it leaves.
        unsafe { self.ptr.as_ref() }
    }

    #[inline]
    pub(crate) fn bytes(self) -> &'e [u8] {
        // SAFETY: as above.
        unsafe { bytes_of(self.ptr) }
    }
}

impl PartialEq for Shared<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.ptr == other.ptr
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn versions_keep_their_bytes() {
        for len in [0, 1, 7, 8, 4096] {
            let bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
            let version = OwnedVersion::new(Kind::Row, &bytes, 3);
            assert_eq!((version.bytes(), version.header().stamp()), (&bytes[..], 3));
            version.header().note_read(9);
            version.header().note_read(5);
            assert_eq!(version.header().pstamp(), 9);
        }
        assert_eq!(size_of::<Version>(), 40);
        assert_eq!(memory_bytes(16), 64);
    }
}
