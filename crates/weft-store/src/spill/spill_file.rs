//! The file of a spill area in one directory, and what is free in it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_rt::io::{File, FileError};
use weft_rt::memory::Ledger;

use super::address::DEVICE_UNITS_MAX;
use super::area::failed;
use crate::directory::{Directory, off_worker};
use crate::error::{Result, StoreError, is_no_space, is_unsupported};
use crate::extent::{FreeSet, UNIT_BYTES};

/// Units that a file grows by, if there is room for so many.
const GROW_UNITS: u64 = (64 << 20) / UNIT_BYTES;

/// What all files of an area may take.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) limit_bytes: AtomicU64,
    /// Bytes that the files have.
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

/// A file without a name, made when it is first needed.
#[derive(Debug)]
pub(super) struct SpillFile {
    directory: Directory,
    state: Mutex<State>,
    /// One grows the file at a time: a budget of 1.
    growing: Ledger,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    free: FreeSet,
    end: u64,
    is_growing: bool,
}

impl SpillFile {
    pub(super) fn new(directory: Directory) -> SpillFile {
        SpillFile { directory, state: Mutex::default(), growing: Ledger::new(1) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `units` in a row, and says in which file; it grows if they are not free.
    ///
    /// # Errors
    /// [`StoreError::SpillLimit`], [`StoreError::SpillFull`]; what keeps the file from being made.
    pub(super) async fn take(&self, units: u64, quota: &Quota) -> Result<(File, u64)> {
        loop {
            if let Some(taken) = self.state().take(units) {
                return Ok(taken);
            }
            let _growing = self.growing.reserve(1).await?;
            // Somebody else may have grown the file meanwhile.
            if let Some(taken) = self.state().take(units) {
                return Ok(taken);
            }
            self.state().is_growing = true;
            let mut growing = Growing { file: self, quota, has_grown: false };
            self.grow(units, quota).await?;
            growing.has_grown = true;
        }
    }

    /// Lengthens the file so that its end has `units` free units.
    async fn grow(&self, units: u64, quota: &Quota) -> Result<()> {
        let (file, end, tail) = {
            let state = self.state();
            (state.file.clone(), state.end, state.free.tail(state.end))
        };
        let file = match file {
            Some(file) => file,
            None => {
                let directory = self.directory.clone();
                let made = off_worker(move || directory.create_unnamed()).await?;
                let file = made.map_err(failed)?;
                self.state().file = Some(file.clone());
                file
            }
        };
        let needed = units - tail.min(units);
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
        let needed_bytes = needed * UNIT_BYTES;
        Err(match full {
            Some(source) => self.full(needed_bytes, source),
            None => {
                let limit_bytes = quota.limit_bytes.load(Ordering::Relaxed);
                StoreError::SpillLimit { needed_bytes, limit_bytes }
            }
        })
    }

    /// The error for a disk without room for `needed_bytes`.
    pub(super) fn full(&self, needed_bytes: u64, source: FileError) -> StoreError {
        let path = self.directory.path().into();
        StoreError::SpillFull { path, needed_bytes, source: Box::new(source) }
    }

    /// Gives `units` from `start` on back. A file that nobody uses is forgotten, with its space.
    pub(super) fn give_back(&self, start: u64, units: u64, quota: &Quota) {
        let mut state = self.state();
        state.free.insert(start, units);
        if !state.is_growing {
            self.forget_unused(state, quota);
        }
    }

    fn forget_unused(&self, mut state: MutexGuard<'_, State>, quota: &Quota) {
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
    let closing = std::thread::Builder::new().name("weft-names".into()).spawn(clear);
    if let Err(error) = closing {
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
        let start = self.free.take(units)?;
        Some((self.file.clone().expect("what is free lies in a file"), start))
    }
}
