//! Contexts: what a transaction has beside its slot, kept from one transaction to the next.
//!
//! CoroBase has an array of what used to be thread-local, an entry for each transaction of the batch (section 4.4).
//! Here each coroutine of a batch has a context, with sets and buffers that are empty between
//! transactions but keep their memory, and with the garbage that its transactions have left.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use weft_index::{Coroutines, Mode};
use weft_rt::sync::ParkingLot;
use weft_rt::yield_now;

use crate::engine::Engine;
use crate::limbo::Limbo;
use crate::primitives::lock;
use crate::slots::TransactionId;
use crate::table::{KeyRange, Table};
use crate::transaction::{Transaction, TransactionOptions};
use crate::version::{Kind, VersionAddress};

/// Runs transactions one after the other.
pub struct Context {
    engine: Engine,
    /// Not there after it was dropped.
    state: Option<ContextState>,
}

/// What is kept of a context that is not in use.
pub(crate) struct ContextState {
    pub(crate) slot: u32,
    pub(crate) reads: RefCell<ReadSet>,
    pub(crate) blocker: Cell<Option<TransactionId>>,
    pub(crate) writes: WriteSet,
    pub(crate) garbage: Garbage,
}

/// What a serializable transaction has read.
#[derive(Default)]
pub(crate) struct ReadSet {
    pub(crate) rows: Vec<RowRead>,
    /// Keys of primary indexes that had no row.
    pub(crate) absent: Vec<(Arc<Table>, Vec<u8>)>,
    pub(crate) ranges: Vec<(Arc<Table>, usize, KeyRange)>,
    pub(crate) tables: Vec<Arc<Table>>,
}

/// A row that was read.
pub(crate) struct RowRead {
    /// Its table's place in [`ReadSet::tables`].
    pub(crate) table: usize,
    pub(crate) row: u64,
    /// The version that was read; `None` if it was the frozen row.
    pub(crate) version: Option<VersionAddress>,
}

/// What a transaction has changed.
#[derive(Default)]
pub(crate) struct WriteSet {
    pub(crate) rows: Vec<RowWrite>,
    pub(crate) entries: Vec<EntryWrite>,
    pub(crate) redo: Vec<u8>,
    pub(crate) tables: Vec<Arc<Table>>,
}

/// A version that a transaction has made.
#[derive(Clone, Copy)]
pub(crate) struct RowWrite {
    /// The table's place in [`WriteSet::tables`].
    pub(crate) table: usize,
    pub(crate) row: u64,
    pub(crate) version: VersionAddress,
    pub(crate) kind: Kind,
    /// The version behind it is the transaction's own, too.
    pub(crate) covers_own: bool,
    /// The row's id is new.
    pub(crate) is_fresh: bool,
}

/// A key that a row has come to have.
pub(crate) struct EntryWrite {
    pub(crate) table: usize,
    pub(crate) index: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) row: u64,
    /// The index has a new entry for it.
    pub(crate) is_new: bool,
}

/// What transactions leave behind.
#[derive(Default)]
pub(crate) struct Garbage {
    /// Rows that have a newer version, or are deleted, since a commit timestamp.
    pub(crate) superseded: VecDeque<(u64, Arc<Table>, u64)>,
    /// Entries of indexes that perhaps no version needs.
    pub(crate) stale: Vec<StaleEntry>,
    pub(crate) limbo: Limbo,
    /// Bytes of memory for versions to come.
    pub(crate) credit: u64,
    /// Transactions since the horizon was looked for.
    pub(crate) ends: u32,
}

/// An entry of an index that perhaps no version needs.
pub(crate) struct StaleEntry {
    pub(crate) table: Arc<Table>,
    pub(crate) index: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) row: u64,
}

impl ContextState {
    pub(crate) fn new(slot: u32) -> ContextState {
        ContextState {
            slot,
            reads: RefCell::default(),
            blocker: Cell::new(None),
            writes: WriteSet::default(),
            garbage: Garbage::default(),
        }
    }
}

/// The place of a table in a list of few.
pub(crate) fn place_in(tables: &mut Vec<Arc<Table>>, table: &Arc<Table>) -> usize {
    match tables.iter().position(|other| Arc::ptr_eq(other, table)) {
        Some(place) => place,
        None => {
            tables.push(table.clone());
            tables.len() - 1
        }
    }
}

impl ReadSet {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.absent.clear();
        self.ranges.clear();
    }

    pub(crate) fn note(&mut self, table: &Arc<Table>, row: u64, version: Option<VersionAddress>) {
        let table = place_in(&mut self.tables, table);
        self.rows.push(RowRead { table, row, version });
    }
}

impl WriteSet {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.entries.clear();
        self.redo.clear();
        // What a large transaction took, the small ones behind it do not need.
        self.redo.shrink_to(64 << 10);
        self.rows.shrink_to(4096);
        self.entries.shrink_to(4096);
    }
}

impl Context {
    pub(crate) fn new(engine: Engine, state: ContextState) -> Context {
        Context { engine, state: Some(state) }
    }

    /// Begins a transaction.
    pub fn begin(&mut self, options: TransactionOptions) -> Transaction<'_> {
        self.begin_in(Coroutines, options)
    }

    /// As [`Context::begin`], in another mode.
    pub fn begin_in<M: Mode>(
        &mut self,
        mode: M,
        options: TransactionOptions,
    ) -> Transaction<'_, M> {
        let state = self.state.as_mut().expect("it is in use");
        Transaction::begin(&self.engine.core, state, mode, options)
    }

    /// Before a transaction is run again that has failed with [`TxnError::Conflict`](crate::TxnError::Conflict) or [`TxnError::Deadlock`](crate::TxnError::Deadlock): waits until the
    /// transaction has ended that was in its way, or lets others run if it has by now. The context's last transaction has ended.
    pub async fn wait_for_conflict(&mut self) {
        let state = self.state.as_ref().expect("it is in use");
        let Some(blocker) = state.blocker.take() else { return yield_now().await };
        let slots = &self.engine.core.slots;
        let must_wait = || slots.must_park(blocker);
        ParkingLot::global().park(slots.parking_key(blocker), must_wait).await;
    }

    /// The state, which does not go back to the engine.
    pub(crate) fn into_state(mut self) -> ContextState {
        self.state.take().expect("it is in use")
    }

    pub(crate) fn slot(&self) -> u32 {
        self.state.as_ref().expect("it is in use").slot
    }

    /// The engine that it belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Frees what no transaction needs of that which transactions in this context have left.
    ///
    /// # Errors
    /// Those of the indexes, entries of which are taken away.
    pub async fn collect(&mut self) -> crate::Result<()> {
        let mut transaction = self.begin(TransactionOptions::default());
        let collected = transaction.collect_all().await;
        transaction.rollback().await;
        collected
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            lock(&self.engine.core.idle).push(state);
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slot = self.state.as_ref().map(|state| state.slot);
        write!(f, "Context({slot:?})")
    }
}
