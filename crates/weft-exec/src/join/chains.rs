//! Tuples of a build side on their way into the chains of a directory.

use std::sync::atomic::AtomicU64;

use weft_rt::prefetch_line;

use super::directory::{Directory, Link, Tag, push, unchain};
use super::words::Words;
use super::{Join, Nulls};
use crate::tuple::hash_at;

/// Tuples whose entries are fetched ahead.
const AHEAD: usize = 32;

/// A directory that is being filled.
#[derive(Debug)]
pub(super) struct Chains {
    directory: Directory,
    /// What makes a tuple one that nothing is found by.
    nulls: Vec<(usize, u8)>,
    has_unknown: bool,
    unknown: AtomicU64,
}

impl Chains {
    /// Without tuples.
    pub(super) fn new(join: &Join, directory: Directory) -> Chains {
        let plain = join.keys.iter().filter(|key| key.nulls != Nulls::Equal);
        let nulls = plain.filter_map(|key| join.layout.field(key.field).null_place()).collect();
        let (has_unknown, unknown) = (join.has_unknown(), AtomicU64::new(0));
        Chains { directory, nulls, has_unknown, unknown }
    }

    /// Adds the first `count` tuples of a page, `ALONE` if nobody else has to do with their chains.
    ///
    /// # Safety
    /// `tuple` gives complete tuples of the join's layout, which nobody else uses. They outlive the directory's use.
    pub(super) unsafe fn add<const ALONE: bool>(
        &self,
        count: usize,
        tuple: impl Fn(usize) -> *mut u8,
    ) {
        let entries = self.directory.entries();
        // SAFETY: as the caller promises.
        let hash = |tuple: *mut u8| unsafe { hash_at(tuple) };
        for number in 0..count {
            if number + AHEAD < count {
                prefetch_line(entries.head(hash(tuple(number + AHEAD))));
            }
            let tuple = tuple(number);
            let hash = hash(tuple);
            // SAFETY: as the caller promises.
            unsafe {
                if self.has_null(tuple) {
                    self.set_aside(tuple);
                } else {
                    push::<ALONE>(entries.head(hash), tuple as u64, Tag::of(hash));
                }
            }
        }
    }

    /// True if a key has a null that is not equal to null.
    ///
    /// # Safety
    /// There is a tuple of the join's layout.
    #[inline(always)]
    pub(super) unsafe fn has_null(&self, tuple: *const u8) -> bool {
        // SAFETY: as the caller promises.
        self.nulls.iter().any(|(byte, bit)| unsafe { tuple.add(*byte).read() } & bit != 0)
    }

    /// # Safety
    /// As [`Chains::add`].
    #[cold]
    unsafe fn set_aside(&self, tuple: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe {
            if self.has_unknown {
                push::<false>(&self.unknown, tuple as u64, Tag::NONE);
            } else {
                unchain(tuple as u64);
            }
        }
    }

    /// The directory's memory.
    pub(super) fn words(&self) -> &Words {
        self.directory.words()
    }

    /// The directory, and the chain of the tuples that nothing is found by but what is unknown.
    pub(super) fn finish(self) -> (Directory, Link) {
        (self.directory, Link::of(self.unknown.into_inner()))
    }
}
