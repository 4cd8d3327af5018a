//! What a spill area has in one place, and what is free of it: a file, or parts of a block device.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::background;
use weft_rt::io::{File, FileError};
use weft_rt::memory::Ledger;

use super::address::DEVICE_UNITS_MAX;
use super::area::failed;
use super::place::{Kind, SpillPlace};
use crate::directory::{Directory, off_worker};
use crate::error::{Result, StoreError, is_no_space, is_unsupported};
use crate::extent::{Extent, FreeSet, UNIT_BYTES};
use crate::space::{Allocation, Space};

/// Units that a file grows by, and a part of a block device has, if there is room for so many.
const GROW_UNITS: u64 = (64 << 20) / UNIT_BYTES;

/// Of what is free of a block device, what one part takes if more than a piece.
const FREE_PART: u64 = 8;

/// What an area may take of all its places.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) limit_bytes: AtomicU64,
    /// Bytes that it has there.
    pub(super) taken_bytes: AtomicU64,
}

impl Quota {
    /// Takes units, if they are not too many.
    fn take(&self, units: u64) -> bool {
        let bytes = units * UNIT_BYTES;
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= limit);
        self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, units: u64) {
        self.taken_bytes.fetch_sub(units * UNIT_BYTES, Ordering::Relaxed);
    }
}

/// What an area has in one place.
#[derive(Debug)]
pub(super) struct SpillFile {
    place: SpillPlace,
    state: Mutex<State>,
    /// One gets more of it at a time: a budget of 1.
    growing: Ledger,
}

#[derive(Debug, Default)]
struct State {
    /// One without a name, or the block device.
    file: Option<File>,
    /// In a file of the area's own.
    free: FreeSet,
    /// The unit behind the last one of that.
    end: u64,
    /// Of a block device, by the first unit.
    parts: BTreeMap<u64, Part>,
    is_growing: bool,
}

/// A part of a block device. It goes back to the database when all of it is free.
#[derive(Debug)]
struct Part {
    of_device: Allocation,
    free: FreeSet,
}

impl SpillFile {
    pub(super) fn new(place: SpillPlace) -> SpillFile {
        SpillFile { place, state: Mutex::default(), growing: Ledger::new(1) }
    }

    /// True if pieces come here only when no other place has room.
    pub(super) fn is_last_resort(&self) -> bool {
        self.place.is_last_resort
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `units` in a row, and says in which file; there come to be more if they are not free.
    ///
    /// # Errors
    /// [`StoreError::SpillLimit`], [`StoreError::SpillFull`]; what keeps the file from being made.
    pub(super) async fn take(&self, units: u64, quota: &Quota) -> Result<(File, u64)> {
        if let Some(taken) = self.state().take(units) {
            return Ok(taken);
        }
        let _growing = self.growing.reserve(1).await?;
        loop {
            // Somebody else may have grown the file meanwhile.
            let taken = self.state().take(units);
            if let Some(taken) = taken {
                self.forget_unused_parts(quota);
                return Ok(taken);
            }
            self.state().is_growing = true;
            let mut growing = Growing { file: self, quota, has_grown: false };
            if let Err(error) = self.grow(units, quota).await {
                // Or given something back.
                return self.state().take(units).ok_or(error);
            }
            growing.has_grown = true;
        }
    }

    /// Has `units` free units in a row, if there is room for so many.
    async fn grow(&self, units: u64, quota: &Quota) -> Result<()> {
        match &self.place.kind {
            Kind::Directory(directory) => self.lengthen(directory, units, quota).await,
            Kind::Block { space, number, .. } => self.take_part(space, *number, units, quota),
        }
    }

    /// Lengthens the file so that its end has `units` free units.
    async fn lengthen(&self, directory: &Directory, units: u64, quota: &Quota) -> Result<()> {
        let (file, end, tail) = {
            let state = self.state();
            (state.file.clone(), state.end, state.free.tail(state.end))
        };
        let file = match file {
            Some(file) => file,
            None => {
                let directory = directory.clone();
                let made = off_worker(move || directory.create_unnamed()).await?;
                let file = made.map_err(failed)?;
                self.state().file = Some(file.clone());
                file
            }
        };
        let needed = units - tail.min(units);
        if needed == 0 {
            // It was given back just now.
            return Ok(());
        }
        let mut full = None;
        // A disk that is nearly full may have room for what is needed and no more.
        for added in [GROW_UNITS.max(needed), needed] {
            if end + added > DEVICE_UNITS_MAX || !quota.take(added) {
                continue;
            }
            match file.allocate(end * UNIT_BYTES, added * UNIT_BYTES).await {
                Err(error) if is_no_space(&error) => {
                    quota.give_back(added);
                    full = Some(error);
                }
                Err(error) if !is_unsupported(&error) => {
                    quota.give_back(added);
                    return Err(failed(error));
                }
                // Where the system does not help, space is taken when it is written to.
                _ => {
                    let mut state = self.state();
                    state.free.insert(end, added);
                    state.end = end + added;
                    return Ok(());
                }
            }
        }
        Err(self.no_room(needed, full, quota))
    }

    /// Takes a part of a block device with `units` units, or more where much is free.
    fn take_part(&self, space: &Arc<Space>, number: u8, units: u64, quota: &Quota) -> Result<()> {
        let most = GROW_UNITS.min(space.free_units(number) / FREE_PART).max(units);
        // The quota may have room for what is needed and no more.
        let Some(taken) = [most, units].into_iter().find(|units| quota.take(*units)) else {
            return Err(self.no_room(units, None, quota));
        };
        let part = space.take_free(number, (units, taken));
        // None where no address leads.
        let part = part.filter(|part| part.extent().end() <= DEVICE_UNITS_MAX);
        quota.give_back(taken - part.as_ref().map_or(0, |part| part.extent().units));
        let Some(of_device) = part else {
            let full = space.no_room(number, units);
            return Err(self.no_room(units, Some(full), quota));
        };
        let Extent { start, units, .. } = of_device.extent();
        let mut free = FreeSet::default();
        free.insert(start, units);
        let device = space.device(number).expect("a device that has room");
        let mut state = self.state();
        state.file.get_or_insert_with(|| device.file.clone());
        state.parts.insert(start, Part { of_device, free });
        Ok(())
    }

    /// The error where nothing could be had: the disk was full, or else the area has what it may have.
    fn no_room(&self, needed: u64, full: Option<FileError>, quota: &Quota) -> StoreError {
        let needed_bytes = needed * UNIT_BYTES;
        match full {
            Some(source) => self.full(needed_bytes, source),
            None => {
                let limit_bytes = quota.limit_bytes.load(Ordering::Relaxed);
                StoreError::SpillLimit { needed_bytes, limit_bytes }
            }
        }
    }

    /// The error for a disk without room for `needed_bytes`.
    pub(super) fn full(&self, needed_bytes: u64, source: FileError) -> StoreError {
        let path = self.place.path();
        StoreError::SpillFull { path, needed_bytes, source: Box::new(source) }
    }

    /// Gives `units` from `start` on back. A file that nobody uses is forgotten, with its space, and so is a part of a block device.
    pub(super) fn give_back(&self, start: u64, units: u64, quota: &Quota) {
        let mut state = self.state();
        if let Kind::Block { .. } = self.place.kind {
            let (first, part) = state.parts.range_mut(..=start).next_back().expect("a part has it");
            part.free.insert(start, units);
            let part_units = part.of_device.extent().units;
            if part.free.units() == part_units {
                let first = *first;
                let unused = state.parts.remove(&first);
                drop(state);
                // Before the quota: who gets that finds the space.
                drop(unused);
                quota.give_back(part_units);
            }
            return;
        }
        state.free.insert(start, units);
        if !state.is_growing {
            self.forget_unused(state, quota);
        }
    }

    /// Parts of a block device go back of which nobody has anything: others have given back what they were taken for.
    fn forget_unused_parts(&self, quota: &Quota) {
        let is_unused = |part: &mut Part| part.free.units() == part.of_device.extent().units;
        let unused: Vec<Part> = self
            .state()
            .parts
            .extract_if(.., |_, part| is_unused(part))
            .map(|(_, part)| part)
            .collect();
        for part in unused {
            let part_units = part.of_device.extent().units;
            // Before the quota: who gets that finds the space.
            drop(part);
            quota.give_back(part_units);
        }
    }

    fn forget_unused(&self, mut state: MutexGuard<'_, State>, quota: &Quota) {
        // Parts of a block device go one by one.
        let Kind::Directory(_) = self.place.kind else { return };
        if state.free.units() < state.end {
            return;
        }
        let State { file, end, .. } = std::mem::take(&mut *state);
        drop(state);
        quota.give_back(end);
        if let Some(file) = file {
            close(file);
        }
    }
}

/// Freeing the blocks of a large file takes its time, which no worker has: neither now nor when its driver notices that the file
/// is closed.
fn close(file: File) {
    let clear = move || {
        if let Err(error) = file.clear() {
            log::debug!("a spill file goes with its last handle: {error}");
        }
    };
    if let Err(error) = background::spawn("weft-names", clear) {
        log::debug!("no thread to close a spill file with: {error}");
    }
}

/// Somebody grows the file.
struct Growing<'a> {
    file: &'a SpillFile,
    quota: &'a Quota,
    has_grown: bool,
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        let mut state = self.file.state();
        state.is_growing = false;
        if !self.has_grown {
            // All of it may have been given back meanwhile.
            self.file.forget_unused(state, self.quota);
        }
    }
}

impl State {
    fn take(&mut self, units: u64) -> Option<(File, u64)> {
        let mut sets = self
            .parts
            .values_mut()
            .map(|part| &mut part.free)
            .chain(std::iter::once(&mut self.free));
        let start = sets.find_map(|free| free.take(units))?;
        Some((self.file.clone().expect("what is free lies in a file"), start))
    }
}

#[cfg(test)]
mod tests {
    use weft_rt::{Runtime, RuntimeOptions};

    use super::*;

    /// Who finds nothing free, and has to have the file grow, finds that others have given back enough, when there can be no more.
    #[test]
    fn what_was_given_back_meanwhile_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        let place = SpillPlace::from(Directory::Os(directory.path().into()));
        let limit_bytes = (GROW_UNITS * UNIT_BYTES).into();
        let quota = Quota { limit_bytes, taken_bytes: AtomicU64::new(0) };
        let file = SpillFile::new(place);
        let options = RuntimeOptions { workers: 1, ..RuntimeOptions::default() };
        let runtime = Runtime::new(&options).unwrap();
        let takes = runtime.spawn(|| async move {
            let (_, start) = file.take(16, &quota).await.unwrap();
            file.grow(8, &quota).await.unwrap();
            let problem = file.take(GROW_UNITS, &quota).await.unwrap_err();
            assert!(matches!(problem, StoreError::SpillLimit { .. }), "{problem}");
            file.give_back(start, 16, &quota);
            assert_eq!(quota.taken_bytes.load(Ordering::Relaxed), 0);
        });
        runtime.block_on(|| takes).unwrap().unwrap();
    }
}
