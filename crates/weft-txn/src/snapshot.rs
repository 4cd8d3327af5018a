//! Snapshots that several transactions read: one query on several threads, or its tables one after the other.

use std::sync::Mutex;

use weft_index::Mode;

use crate::context::{Context, ContextState};
use crate::engine::Engine;
use crate::error::Result;
use crate::primitives::lock;
use crate::transaction::{Transaction, TransactionOptions};

/// What was committed at one time. While it is there, no version is freed that it has.
pub struct Snapshot {
    engine: Engine,
    at: u64,
    slot: u32,
    /// The context's state that goes back to the engine; not there after the snapshot was dropped.
    state: Mutex<Option<ContextState>>,
}

impl Engine {
    /// What is committed now, for transactions that begin later.
    ///
    /// # Errors
    /// [`TxnError::TooManyTransactions`](crate::TxnError::TooManyTransactions) if as many are in use as there may be: it counts as one.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let mut context = self.context()?;
        // A transaction that was leaked in the slot is rolled back by this one.
        drop(context.begin(TransactionOptions::default()));
        let state = context.into_state();
        let slot = state.slot;
        // The slot is left when the snapshot is dropped.
        let at = self.core.slots.enter(slot).begin();
        Ok(Snapshot { engine: self.clone(), at, slot, state: Mutex::new(Some(state)) })
    }
}

impl Snapshot {
    /// Commits up to this timestamp are seen.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Begins a transaction that sees the snapshot. What it changes conflicts with all that was committed since.
    ///
    /// # Panics
    /// If the context is of another engine.
    pub fn begin<'c, M: Mode>(&'c self, context: &'c mut Context, mode: M) -> Transaction<'c, M> {
        let is_same = std::ptr::eq(&raw const *self.engine.core, &raw const *context.engine().core);
        assert!(is_same, "the snapshot is of another engine than the context");
        let transaction = context.begin_in(mode, TransactionOptions::default());
        transaction.snapshot.set(self.at);
        transaction
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // No coroutine waits for it, as it has changed nothing.
        self.engine.core.slots.leaked(self.slot).leave();
        if let Some(state) = lock(&self.state).take() {
            lock(&self.engine.core.idle).push(state);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.at)
    }
}
