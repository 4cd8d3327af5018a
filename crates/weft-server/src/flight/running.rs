//! The statements of a client that run: so they can be cancelled, and keep the client's session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weft::CancelHandle;

use super::session::FlightSession;
use crate::server::Cancel;
use crate::state::Busy;

/// The running statements of one session.
#[derive(Default)]
pub(super) struct RunningStatements {
    by_number: Mutex<HashMap<u64, RunningStatement>>,
}

struct RunningStatement {
    /// The ticket whose rows it computes; empty if there is none.
    ticket: Bytes,
    handle: CancelHandle,
}

impl RunningStatements {
    fn by_number(&self) -> MutexGuard<'_, HashMap<u64, RunningStatement>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number().is_empty()
    }

    pub(super) fn add(&self, number: u64, ticket: Bytes, handle: CancelHandle) {
        self.by_number().insert(number, RunningStatement { ticket, handle });
    }

    /// Cancels the statements of a ticket; false if none runs.
    pub(super) fn cancel_ticket(&self, ticket: &[u8]) -> bool {
        let mut is_found = false;
        for running in self.by_number().values().filter(|running| running.ticket == ticket) {
            running.handle.cancel();
            is_found = true;
        }
        is_found
    }
}

impl Cancel for RunningStatements {
    fn cancel(&self) {
        for running in self.by_number().values() {
            running.handle.cancel();
        }
    }
}

/// The entry of a statement among the running statements, which goes when the guard is dropped.
pub(super) struct RunningGuard {
    session: Arc<FlightSession>,
    number: u64,
    _busy: Busy,
}

impl RunningGuard {
    pub(super) fn new(session: &Arc<FlightSession>, number: u64, busy: Busy) -> RunningGuard {
        RunningGuard { session: Arc::clone(session), number, _busy: busy }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.session.running().by_number().remove(&self.number);
        self.session.note_transaction();
    }
}
