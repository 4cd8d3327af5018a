//! The chain of a row's versions, newest first, and the word of the indirection array that leads to it.
//!
//! Who may change what: a new version is put in front by an exchange, by the one transaction that
//! changes the row (the version in front of it has committed). While its version is in front, that
//! transaction alone takes versions of its own away again. Behind a committed version that every snapshot sees,
//! all older ones are cut off, by whoever comes first: each link is taken by an exchange, so each version is
//! unlinked once.

use std::ptr::NonNull;

use crate::primitives::{AtomicPtr, Ordering};
use crate::slots::Entered;
use crate::version::{OwnedVersion, Shared, Version};

/// The address of no version: a row that is gone for good.
const DEAD: usize = 1;

fn dead() -> *mut Version {
    std::ptr::without_provenance_mut(DEAD)
}

/// What an entry of the indirection array leads to.
#[derive(Clone, Copy)]
pub(crate) enum Head<'e> {
    /// Nothing was changed since the row was frozen; or there is no row.
    Empty,
    /// The row is gone for good: no version is ever put in front.
    Dead,
    Version(Shared<'e>),
}

/// What an entry led to, for an exchange that expects it to be so still: of use to the transaction that looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadMark(*mut Version);

impl Head<'_> {
    pub(crate) fn mark(self) -> HeadMark {
        HeadMark(match self {
            Head::Empty => std::ptr::null_mut(),
            Head::Dead => dead(),
            Head::Version(version) => version.ptr().as_ptr(),
        })
    }
}

impl HeadMark {
    /// No version.
    pub(crate) fn empty() -> HeadMark {
        HeadMark(std::ptr::null_mut())
    }
}

/// An entry of the indirection array.
pub(crate) struct Chain(AtomicPtr<Version>);

impl Chain {
    pub(crate) fn new() -> Chain {
        Chain(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The newest version.
    #[inline]
    pub(crate) fn head<'e>(&self, entered: &'e Entered<'_>) -> Head<'e> {
        let raw = self.0.load(Ordering::Acquire);
        if raw.addr() == DEAD {
            return Head::Dead;
        }
        match NonNull::new(raw) {
            // SAFETY: it was reachable just now.
            Some(ptr) => Head::Version(unsafe { Shared::new(ptr, entered) }),
            None => Head::Empty,
        }
    }

    /// Where the entry itself lies, to be prefetched.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn place(&self) -> *const u8 {
        (&raw const self.0).cast()
    }

    /// The address of the newest version, to be prefetched.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn head_place(&self) -> *const u8 {
        self.0.load(Ordering::Relaxed).cast()
    }

    /// Puts a version in front of what is expected to be there; gives it back if something else is.
    pub(crate) fn push<'e>(
        &self,
        expected: HeadMark,
        version: OwnedVersion,
        entered: &'e Entered<'_>,
    ) -> Result<Shared<'e>, OwnedVersion> {
        let before = expected.0;
        debug_assert!(before.addr() != DEAD, "a row that is gone");
        version.header().next().store(before, Ordering::Relaxed);
        let ptr = version.into_raw();
        let exchanged =
            self.0.compare_exchange(before, ptr.as_ptr(), Ordering::AcqRel, Ordering::Acquire);
        match exchanged {
            // SAFETY: it is reachable now.
            Ok(_) => Ok(unsafe { Shared::new(ptr, entered) }),
            // SAFETY: it was made raw above, and nobody has seen it.
            Err(_) => Err(unsafe { OwnedVersion::from_raw(ptr) }),
        }
    }

    /// Takes the newest version away, which the calling transaction has put there and not committed.
    pub(crate) fn pop(&self, own: Shared<'_>) -> OwnedVersion {
        let next = own.header().next().load(Ordering::Acquire);
        self.replace(own, next)
    }

    /// Has the row be gone for good, whose only version is the calling transaction's, which has not committed.
    pub(crate) fn pop_to_dead(&self, own: Shared<'_>) -> OwnedVersion {
        debug_assert!(own.header().next().load(Ordering::Relaxed).is_null(), "there are others");
        self.replace(own, dead())
    }

    fn replace(&self, own: Shared<'_>, by: *mut Version) -> OwnedVersion {
        let ptr = own.ptr().as_ptr();
        let exchanged = self.0.compare_exchange(ptr, by, Ordering::AcqRel, Ordering::Acquire);
        assert!(exchanged.is_ok(), "a transaction changes the rows alone that it has changed");
        // SAFETY: the exchange has unlinked it, and nobody else could.
        unsafe { OwnedVersion::from_raw(own.ptr()) }
    }

    /// Has a row be gone for good that was deleted, if that is still its newest version; gives the versions
    /// that were in the chain.
    pub(crate) fn bury(&self, deleted: Shared<'_>, unlinked: &mut Vec<OwnedVersion>) -> bool {
        let ptr = deleted.ptr().as_ptr();
        if self.0.compare_exchange(ptr, dead(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        cut_behind(deleted, unlinked);
        // SAFETY: the exchange has unlinked it.
        unlinked.push(unsafe { OwnedVersion::from_raw(deleted.ptr()) });
        true
    }

    /// Has the chain consist of one version, or of none, while no transaction changes the row.
    #[cfg(not(loom))]
    pub(crate) fn reset(
        &self,
        version: Option<OwnedVersion>,
        entered: &Entered<'_>,
        unlinked: &mut Vec<OwnedVersion>,
    ) {
        let new = version.map_or(std::ptr::null_mut(), |version| version.into_raw().as_ptr());
        let before = self.head(entered);
        let exchanged =
            self.0.compare_exchange(before.mark().0, new, Ordering::AcqRel, Ordering::Acquire);
        assert!(exchanged.is_ok(), "nobody else changes the row");
        if let Head::Version(version) = before {
            cut_behind(version, unlinked);
            // SAFETY: the exchange has unlinked it.
            unlinked.push(unsafe { OwnedVersion::from_raw(version.ptr()) });
        }
    }

    /// Frees all versions.
    pub(crate) fn clear(&mut self) {
        let raw = self.0.load(Ordering::Acquire);
        self.0 = AtomicPtr::new(std::ptr::null_mut());
        let mut next = (raw.addr() != DEAD).then(|| NonNull::new(raw)).flatten();
        while let Some(ptr) = next {
            // SAFETY: nobody else has the chain, so nobody has its versions.
            let version = unsafe { OwnedVersion::from_raw(ptr) };
            next = NonNull::new(version.header().next().load(Ordering::Acquire));
        }
    }
}

/// The next older version.
#[inline]
pub(crate) fn older<'e>(version: Shared<'e>, entered: &'e Entered<'_>) -> Option<Shared<'e>> {
    let next = version.header().next().load(Ordering::Acquire);
    // SAFETY: it was reachable from one that was, since `entered` began: links only ever lead to what was reachable.
    NonNull::new(next).map(|ptr| unsafe { Shared::new(ptr, entered) })
}

/// Unlinks what is behind a version: one that has committed and that every snapshot sees, or a newer one is.
pub(crate) fn cut_behind(version: Shared<'_>, unlinked: &mut Vec<OwnedVersion>) {
    let mut next = version.header().next().swap(std::ptr::null_mut(), Ordering::AcqRel);
    while let Some(ptr) = NonNull::new(next) {
        // SAFETY: whoever takes the link by the exchange unlinks the version, so it is taken once.
        let version = unsafe { OwnedVersion::from_raw(ptr) };
        next = version.header().next().swap(std::ptr::null_mut(), Ordering::AcqRel);
        unlinked.push(version);
    }
}

/// Unlinks the version right behind one, both of the calling transaction, whose versions are in front.
pub(crate) fn skip_own(newer: Shared<'_>, own: Shared<'_>) -> OwnedVersion {
    let next = own.header().next().load(Ordering::Acquire);
    let before = newer.header().next().swap(next, Ordering::AcqRel);
    assert!(std::ptr::eq(before, own.ptr().as_ptr()), "the two follow each other");
    // SAFETY: the exchange has unlinked it, and nobody else could.
    unsafe { OwnedVersion::from_raw(own.ptr()) }
}
