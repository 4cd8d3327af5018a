//! What an open database consists of; shared by its handles, snapshots and tasks.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use weft_rt::memory::Ledger;

use crate::commit::Waiting;
use crate::directory::Directory;
use crate::error::{Result, StoreError};
use crate::journal::Journal;
use crate::lock::Lock;
use crate::row_locks::RowLocks;
use crate::snapshot::{Access, Snapshot};
use crate::space::Space;

/// What becomes of row groups of which many rows are deleted.
#[derive(Debug)]
pub(crate) struct Tidying {
    /// One coroutine writes them anew at a time: a budget of 1.
    pub(crate) turn: Ledger,
    /// The coroutine of the background runs.
    pub(crate) is_running: AtomicBool,
    /// Commits that have left such row groups.
    pub(crate) commits: AtomicU64,
    /// The database is being closed.
    pub(crate) is_closing: AtomicBool,
}

impl Default for Tidying {
    fn default() -> Tidying {
        Tidying {
            turn: Ledger::new(1),
            is_running: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
        }
    }
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) directory: Directory,
    pub(crate) space: Arc<Space>,
    pub(crate) access: Arc<Access>,
    pub(crate) read_only: bool,
    /// False for temporary databases, which need not survive anything.
    pub(crate) sync: bool,
    /// One commits at a time: a budget of 1.
    pub(crate) committing: Ledger,
    /// What makes small commits durable.
    pub(crate) journal: Journal,
    /// What writes row groups anew of which many rows are deleted.
    pub(crate) tidying: Tidying,
    /// Rows that transactions have changed, and commits are changing.
    pub(crate) row_locks: Arc<RowLocks>,
    /// Work that waits for its commit.
    waiting: Mutex<Vec<Waiting>>,
    /// Of the directory.
    pub(crate) lock: Arc<Lock>,
    current: RwLock<Arc<Snapshot>>,
    /// Why no more commits are taken.
    halted: Mutex<Option<String>>,
}

impl Core {
    pub(crate) fn new(
        directory: Directory,
        space: Arc<Space>,
        snapshot: Snapshot,
        (lock, journal): (Arc<Lock>, Journal),
        (read_only, sync): (bool, bool),
    ) -> Core {
        Core {
            directory,
            space,
            access: snapshot.access.clone(),
            read_only,
            sync,
            committing: Ledger::new(1),
            journal,
            tidying: Tidying::default(),
            row_locks: Arc::default(),
            waiting: Mutex::default(),
            lock,
            current: RwLock::new(Arc::new(snapshot)),
            halted: Mutex::new(None),
        }
    }

    /// Work that waits for its commit, in the order in which it came.
    pub(crate) fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest generation.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `snapshot` the newest generation; returns the one before.
    pub(crate) fn replace(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, snapshot)
    }

    /// Takes no more commits, because of `reason`.
    pub(crate) fn halt(&self, reason: &StoreError) {
        let mut halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
        halted.get_or_insert_with(|| reason.to_string());
    }

    /// Checks that the database takes commits.
    pub(crate) fn check_writable(&self, action: &'static str) -> Result<()> {
        if self.read_only {
            let path = self.directory.path().into();
            return Err(StoreError::ReadOnly { path, action });
        }
        let halted = self.halted.lock().unwrap_or_else(PoisonError::into_inner);
        match &*halted {
            None => Ok(()),
            Some(reason) => Err(StoreError::Halted {
                path: self.directory.path().into(),
                reason: reason.clone(),
            }),
        }
    }
}
