//! Versions that are unlinked and may still be looked at, until no transaction is left that could.
//!
//! They are tagged with a tick of the clock. A transaction that began at that tick or later has seen the
//! clock after it moved, so it sees the links as they are since: when the horizon has come to the tick, all
//! transactions that run are such.

use std::collections::VecDeque;

use crate::slots::Slots;
use crate::version::OwnedVersion;

/// Versions in the order in which they were unlinked.
#[derive(Default)]
pub(crate) struct Limbo {
    fresh: Vec<OwnedVersion>,
    aged: VecDeque<(u64, Vec<OwnedVersion>)>,
}

impl Limbo {
    /// Where unlinked versions are put.
    pub(crate) fn fresh(&mut self) -> &mut Vec<OwnedVersion> {
        &mut self.fresh
    }

    #[cfg(not(loom))]
    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.aged.is_empty()
    }

    /// Frees what is fresh, which no transaction has come to; gives the bytes.
    #[cfg(not(loom))]
    pub(crate) fn free_fresh(&mut self) -> u64 {
        self.fresh.drain(..).map(|version| version.header().memory_bytes()).sum()
    }

    /// Tags what is fresh.
    pub(crate) fn age(&mut self, slots: &Slots) {
        if !self.fresh.is_empty() {
            // A tick by an exchange: who reads the clock after it sees that they are unlinked.
            let tick = slots.draw();
            self.aged.push_back((tick, std::mem::take(&mut self.fresh)));
        }
    }

    /// Frees what no transaction can come to; gives the bytes.
    pub(crate) fn free(&mut self, horizon: u64) -> u64 {
        let mut bytes = 0;
        while let Some((_, versions)) = self.aged.pop_front_if(|(tick, _)| *tick <= horizon) {
            bytes += versions.iter().map(|version| version.header().memory_bytes()).sum::<u64>();
        }
        bytes
    }

    /// Overwrites the bytes of what would be freed, for models.
    #[cfg(all(test, loom))]
    pub(crate) fn poison_freed(&mut self, horizon: u64) {
        for (_, versions) in self.aged.iter().filter(|(tick, _)| *tick <= horizon) {
            versions.iter().for_each(OwnedVersion::poison);
        }
    }
}
