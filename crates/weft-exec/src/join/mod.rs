//! The unified hash join (Spilly, sections 4.5 and 5.3): one pipeline materializes the build side, the next looks tuples
//! up in it, and where unmatched tuples of the build side count too, a third goes through those.
//!
//! [`Join`] is what these share. [`Build`] is the first one's sink: it stores tuples as every pipeline breaker does, and
//! when all are there puts them into chains that begin in a directory. [`Probe`] is the second one's step:
//! it takes a vector through, all tuples through one stage before the next stage begins.
//! [`Remainder`] is the third one's source. A [`Filter`] lets pipelines of the probe side leave out what matches nothing, if
//! they ask for it.

mod build;
mod directory;
mod filter;
mod gather;
mod key_set;
mod keys;
mod lookup;
mod probe;
mod remainder;
mod state;
mod unknown;
mod wanted;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use build::Build;
pub use filter::Filter;
pub use gather::gather;
pub use probe::{Kind, Probe, Residual};
pub use remainder::{Remainder, Which};
pub use wanted::{Asked, AskedRows, Wanted};
use weft_rt::memory::Reservation;

use crate::tuple::{Layout, Materialized};
use directory::{Directory, Link};

/// What a null in a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// It matches nothing, as with `=` in ON.
    Never,
    /// It matches null, as with IS NOT DISTINCT FROM, INTERSECT and EXCEPT.
    Equal,
    /// Whether it matches is unknown, as with IN and NOT IN: a tuple of the probe side for which that is all there is to
    /// say is no result of [`Kind::Anti`], and null for [`Kind::Mark`]. For other kinds as `Never`.
    Unknown,
}

/// A key of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The field of the build side's tuples that has it.
    pub field: usize,
    /// What null means.
    pub nulls: Nulls,
}

/// What the pipelines of a join share.
#[derive(Debug)]
pub struct Join {
    layout: Arc<Layout>,
    keys: Vec<Key>,
    is_preserved: bool,
    filters: Vec<Arc<Wanted>>,
    parts: Mutex<Vec<Materialized>>,
    table: OnceLock<Table>,
}

/// A finished build side.
#[derive(Debug)]
pub(crate) struct Table {
    pub directory: Directory,
    pub tuples: Materialized,
    /// The chain of the tuples that a key of makes unknown whether they match.
    pub unknown: Link,
    /// The memory of directory and filters.
    pub reservation: Reservation,
}

impl Join {
    /// A join whose build side has tuples of `layout`. All of them are kept if it `is_preserved` (the build side is the
    /// outer one, or unmatched tuples of it are wanted), else tuples whose keys can match nothing are not. Those of the
    /// `filters` are made that somebody asks.
    ///
    /// # Panics
    /// If a key is no field of the layout, or a filter is about a key that there is not.
    pub fn new(
        layout: Arc<Layout>,
        keys: Vec<Key>,
        is_preserved: bool,
        filters: Vec<Arc<Wanted>>,
    ) -> Join {
        assert!(keys.iter().all(|key| key.field < layout.fields().len()), "keys are fields");
        let is_known = |wanted: &Arc<Wanted>| wanted.keys().iter().all(|key| *key < keys.len());
        assert!(filters.iter().all(is_known), "filters are about keys");
        Join {
            layout,
            keys,
            is_preserved,
            filters,
            parts: Mutex::default(),
            table: OnceLock::new(),
        }
    }

    /// How tuples of the build side lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Number of tuples on the build side; `None` while it is not finished.
    pub fn tuples(&self) -> Option<usize> {
        self.table.get().map(|table| table.tuples.tuples())
    }

    /// Number of the directory's entries; `None` while the build side is not finished.
    pub fn entries(&self) -> Option<usize> {
        self.table.get().map(|table| table.directory.entries().count())
    }

    /// Bytes of the build side's tuples, directory and filters; `None` while it is not finished.
    pub fn bytes(&self) -> Option<u64> {
        self.table.get().map(|table| table.reservation.bytes() + table.tuples.reservation.bytes())
    }

    /// The finished build side.
    ///
    /// # Panics
    /// If it is not finished.
    pub(crate) fn table(&self) -> &Table {
        self.table.get().expect("the pipeline of the build side ended first")
    }

    fn add(&self, part: Materialized) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }

    fn take_parts(&self) -> Vec<Materialized> {
        std::mem::take(&mut self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_unknown(&self) -> bool {
        self.keys.iter().any(|key| key.nulls == Nulls::Unknown)
    }
}
