//! A transaction: what it sees, and how it ends.
//!
//! It reads the version that was committed last when its snapshot was taken (CoroBase, section 4.5), which takes three
//! pointers that may miss the caches: the index's nodes, the entry of the indirection array, the version. At each
//! it prefetches and suspends. A version whose maker is about to commit, at a timestamp that the snapshot covers, is
//! waited for. To commit, a transaction draws a timestamp; from there to the end it waits for none but those
//! with earlier timestamps, so no circle of transactions waits.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_index::{Coroutines, Mode};
use weft_rt::sync::ParkingLot;
use weft_rt::{prefetch_line, yield_now};

use crate::chain::{self, Chain, Head};
use crate::change::Savepoint;
use crate::context::{ContextState, Garbage, ReadSet, StaleEntry, WriteSet};
use crate::engine::Core;
use crate::error::{Result, TxnError};
use crate::log::Log;
use crate::slots::{Entered, Status, TransactionId};
use crate::table::Table;
use crate::version::{Kind, Shared};

/// What a transaction sees of others that run at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each operation, or statement, sees what was committed when it began.
    ReadCommitted,
    /// All of it sees what was committed when it began, and it changes no row that was changed since.
    #[default]
    Snapshot,
    /// As that, and what transactions of this kind do together is what they do in some order, one after the other.
    Serializable,
}

/// When a commit is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once it is durable, with all that the transaction has seen.
    #[default]
    Durable,
    /// At once: it is durable at most so much later. A crash before loses it, and all that was committed after it.
    Relaxed(Duration),
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionOptions {
    /// What it sees.
    pub isolation: Isolation,
    /// When it is reported as committed, where there is a log.
    pub durability: Durability,
    /// How often [`Engine::transaction`](crate::Engine::transaction) runs it again if it fails because of others.
    pub retries: u32,
}

/// The bytes of a row as a transaction sees it.
#[derive(Debug)]
pub enum RowBytes<'t> {
    /// Of a version, which stays as long as the transaction runs.
    Version(&'t [u8]),
    /// Of the frozen row.
    Frozen(Box<[u8]>),
}

impl Deref for RowBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            RowBytes::Version(bytes) => bytes,
            RowBytes::Frozen(bytes) => bytes,
        }
    }
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// It has drawn its timestamp.
    Deciding,
    Committed,
    RolledBack,
}

/// A transaction that runs. Dropped without a commit, it is rolled back.
pub struct Transaction<'c, M: Mode = Coroutines> {
    pub(crate) core: &'c Core,
    /// Not there after it has left.
    pub(crate) entered: Option<Entered<'c>>,
    pub(crate) reads: &'c RefCell<ReadSet>,
    pub(crate) writes: &'c mut WriteSet,
    pub(crate) garbage: &'c mut Garbage,
    pub(crate) mode: M,
    pub(crate) options: TransactionOptions,
    /// What was committed at or before this timestamp is seen.
    pub(crate) snapshot: Cell<u64>,
    /// The latest commit that was seen.
    seen: Cell<u64>,
    /// The transaction that has changed a row that this one was to change, and had not ended.
    pub(crate) blocker: &'c Cell<Option<TransactionId>>,
    /// Whether the snapshot of a statement stays.
    is_held: bool,
    /// The state before the change that is being made: if its coroutine is dropped, the transaction goes back there.
    pub(crate) unfinished: Option<Savepoint>,
    pub(crate) phase: Phase,
}

/// What a snapshot makes of a version.
enum Verdict {
    Seen,
    NotSeen,
    /// Its maker is about to commit or to abort.
    Undecided,
}

/// What a transaction sees of a row.
#[derive(Clone, Copy)]
pub(crate) enum Found<'e> {
    Version(Shared<'e>),
    /// No version: the frozen row, if there is one.
    Frozen,
    /// The row is gone for good, or was never there.
    Gone,
}

impl<'c, M: Mode> Transaction<'c, M> {
    pub(crate) fn begin(
        core: &'c Core,
        state: &'c mut ContextState,
        mode: M,
        options: TransactionOptions,
    ) -> Transaction<'c, M> {
        let ContextState { slot, .. } = *state;
        if !core.slots.is_idle(slot) {
            // The last transaction was leaked: it is rolled back as it would have been.
            let leaked = core.slots.leaked(slot);
            drop(Transaction::within(core, &mut *state, mode, options, leaked));
        }
        Transaction::within(core, state, mode, options, core.slots.enter(slot))
    }

    fn within(
        core: &'c Core,
        state: &'c mut ContextState,
        mode: M,
        options: TransactionOptions,
        entered: Entered<'c>,
    ) -> Transaction<'c, M> {
        Transaction {
            core,
            snapshot: Cell::new(entered.begin()),
            entered: Some(entered),
            reads: &state.reads,
            writes: &mut state.writes,
            garbage: &mut state.garbage,
            mode,
            options,
            seen: Cell::new(0),
            blocker: &state.blocker,
            is_held: false,
            unfinished: None,
            phase: Phase::Running,
        }
    }

    #[inline]
    pub(crate) fn entered(&self) -> &Entered<'c> {
        self.entered.as_ref().expect("it has not left")
    }

    pub(crate) fn is_serializable(&self) -> bool {
        self.options.isolation == Isolation::Serializable
    }

    pub(crate) fn is_read_committed(&self) -> bool {
        self.options.isolation == Isolation::ReadCommitted
    }

    /// From here on, until [`Transaction::end_statement`], operations of a read committed transaction have one snapshot; else
    /// each has one of its own. Of other transactions nothing changes.
    pub fn begin_statement(&mut self) {
        self.is_held = false;
        self.open_snapshot();
        self.is_held = true;
    }

    /// See [`Transaction::begin_statement`].
    pub fn end_statement(&mut self) {
        self.is_held = false;
    }

    /// Begins an operation on a table.
    pub(crate) fn open_operation(&self, table: &Table) -> Result<()> {
        if !table.is_of(self.core) {
            let reason = "it belongs to another engine".into();
            return Err(TxnError::Table { table: table.id(), reason });
        }
        self.open_snapshot();
        Ok(())
    }

    fn open_snapshot(&self) {
        if self.is_read_committed() && !self.is_held {
            self.renew_snapshot();
        }
    }

    pub(crate) fn renew_snapshot(&self) {
        self.snapshot.set(self.core.slots.now());
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The timestamp of the snapshot: commits up to it are seen.
    pub fn snapshot(&self) -> u64 {
        self.snapshot.get()
    }

    /// The row with this primary key.
    ///
    /// # Errors
    /// [`TxnError`](crate::TxnError) of the index or of reading a frozen row, or if the table has no primary index.
    pub async fn get<'t>(&'t self, table: &Arc<Table>, key: &[u8]) -> Result<Option<RowBytes<'t>>> {
        self.open_operation(table)?;
        let row = M::call(table.index(0)?.tree.get_in(self.mode, key)).await?;
        let found = match row {
            Some(row) if M::IS_FLAT => {
                if let Some(chain) = table.rows.chain(row)
                    && table.is_waited_for()
                {
                    // As `come_to`, without a call in between.
                    prefetch_line(chain.place());
                    self.mode.pause().await;
                    let place = chain.head_place();
                    prefetch_line(place);
                    prefetch_line(place.wrapping_add(48));
                    self.mode.pause().await;
                }
                match self.read_newest(table, row) {
                    Some(found) => found,
                    // A box: most reads find the newest version.
                    None => Box::pin(self.read_present(table, row)).await?,
                }
            }
            Some(row) => M::call(self.read(table, row)).await?,
            None => None,
        };
        if found.is_none() && self.is_serializable() {
            self.reads.borrow_mut().absent.push((table.clone(), key.to_vec()));
        }
        Ok(found)
    }

    /// The row with this id.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_row<'t>(
        &'t self,
        table: &Arc<Table>,
        row: u64,
    ) -> Result<Option<RowBytes<'t>>> {
        self.open_operation(table)?;
        self.read(table, row).await
    }

    /// What is seen of a row, noted as read.
    pub(crate) async fn read<'t>(
        &'t self,
        table: &Arc<Table>,
        row: u64,
    ) -> Result<Option<RowBytes<'t>>> {
        if let Some(chain) = table.rows.chain(row) {
            M::call(self.come_to(table, chain)).await;
        }
        self.read_present(table, row).await
    }

    /// As [`Transaction::read_present`] if the newest version is what is seen; `None` if it is another one, or not known yet.
    #[inline]
    pub(crate) fn read_newest<'t>(
        &'t self,
        table: &Arc<Table>,
        row: u64,
    ) -> Option<Option<RowBytes<'t>>> {
        let Head::Version(version) = table.rows.chain(row)?.head(self.entered()) else {
            return None;
        };
        match self.judge(version) {
            Verdict::Seen => Some(self.note_found(table, row, version)),
            Verdict::NotSeen | Verdict::Undecided => None,
        }
    }

    /// The row that a version is, noted as read.
    #[inline]
    fn note_found<'t>(
        &'t self,
        table: &Arc<Table>,
        row: u64,
        version: Shared<'t>,
    ) -> Option<RowBytes<'t>> {
        let is_own = version.header().stamp() == self.entered().id().stamp();
        if self.is_serializable() && !is_own {
            let address = Some(version.address());
            self.reads.borrow_mut().note(table, row, address);
        }
        let is_row = version.header().kind() == Kind::Row;
        is_row.then(|| RowBytes::Version(version.bytes()))
    }

    /// As [`Transaction::read`], of a row whose entry and newest version were asked for.
    pub(crate) async fn read_present<'t>(
        &'t self,
        table: &Arc<Table>,
        row: u64,
    ) -> Result<Option<RowBytes<'t>>> {
        let found = match table.rows.chain(row) {
            None => Found::Frozen,
            Some(chain) => M::call(self.find(table, chain)).await,
        };
        match found {
            Found::Version(version) => Ok(self.note_found(table, row, version)),
            Found::Frozen => {
                if self.is_serializable() {
                    self.reads.borrow_mut().note(table, row, None);
                }
                // A box, so that coroutines that find all in memory are small.
                if !table.may_be_frozen(row) {
                    return Ok(None);
                }
                let bytes = Box::pin(table.frozen_row(row)).await?;
                Ok(bytes.map(RowBytes::Frozen))
            }
            Found::Gone => Ok(None),
        }
    }

    /// Has the entry of a row and its newest version come to the caches.
    #[inline]
    pub(crate) async fn come_to(&self, table: &Table, chain: &Chain) {
        if M::PREFETCHES && table.is_waited_for() {
            prefetch_line(chain.place());
            self.mode.pause().await;
            let place = chain.head_place();
            prefetch_line(place);
            // Blocks are 16 bytes aligned: most of two lines are needed.
            prefetch_line(place.wrapping_add(48));
            self.mode.pause().await;
        }
    }

    /// Goes along a chain to the version that the snapshot sees.
    #[inline]
    pub(crate) async fn find<'t>(&'t self, table: &Table, chain: &Chain) -> Found<'t> {
        let mut version = match chain.head(self.entered()) {
            Head::Version(version) => version,
            Head::Empty => return Found::Frozen,
            Head::Dead => return Found::Gone,
        };
        loop {
            match self.judge(version) {
                Verdict::Seen => return Found::Version(version),
                Verdict::Undecided => yield_now().await,
                Verdict::NotSeen => match chain::older(version, self.entered()) {
                    Some(older) => {
                        if M::PREFETCHES && table.is_waited_for() {
                            prefetch_line(older.ptr().as_ptr());
                            self.mode.pause().await;
                        }
                        version = older;
                    }
                    None => return Found::Frozen,
                },
            }
        }
    }

    #[inline]
    fn judge(&self, version: Shared<'_>) -> Verdict {
        let snapshot = self.snapshot.get();
        let at = loop {
            let stamp = version.header().stamp();
            let Some(id) = TransactionId::of_stamp(stamp) else { break stamp };
            if id == self.entered().id() {
                return Verdict::Seen;
            }
            match self.core.slots.status(id) {
                Some(Status::Committed(at)) => break at,
                Some(Status::Deciding(Some(at))) if at > snapshot => return Verdict::NotSeen,
                Some(Status::Deciding(_)) => return Verdict::Undecided,
                Some(Status::Active | Status::Aborted) => return Verdict::NotSeen,
                // It has ended: the version has its timestamp by now, unless it was unlinked.
                None if version.header().stamp() == stamp => return Verdict::NotSeen,
                None => {}
            }
        };
        if at > snapshot {
            return Verdict::NotSeen;
        }
        self.note_seen(at);
        Verdict::Seen
    }

    #[inline]
    pub(crate) fn note_seen(&self, at: u64) {
        if at > self.seen.get() {
            self.seen.set(at);
        }
    }

    /// Waits until another transaction has ended; false if that waits for this one.
    pub(crate) async fn wait_for(&self, other: TransactionId) -> bool {
        let entered = self.entered();
        if !entered.begin_wait(other) {
            return false;
        }
        let (slots, lot) = (&self.core.slots, ParkingLot::global());
        let waiting = Waiting(entered);
        lot.park(slots.parking_key(other), || slots.must_park(other)).await;
        drop(waiting);
        true
    }

    /// Commits: gives the commit timestamp, which is the snapshot's if nothing was changed.
    ///
    /// # Errors
    /// [`NotSerializable`](crate::TxnError::NotSerializable), or an index's error in a serializable transaction: it was rolled back.
    /// [`LogFailed`](crate::TxnError::LogFailed): it is not known whether it will have happened once the log is read again.
    pub async fn commit(mut self) -> Result<u64> {
        self.undo_unfinished();
        let changes = !self.writes.rows.is_empty();
        if let Some(log) = self.core.log.as_ref().filter(|_| changes) {
            log.check()?;
        }
        let at = if self.is_serializable() {
            M::call(self.commit_serializable()).await?
        } else if self.writes.rows.is_empty() {
            self.phase = Phase::Committed;
            self.snapshot.get()
        } else {
            let at = self.entered().draw();
            self.phase = Phase::Deciding;
            self.decide(at, at);
            at
        };
        self.core.counts.commits.fetch_add(1, Ordering::Relaxed);
        M::call(self.end()).await;
        if let Some(log) = &self.core.log {
            // A box: most transactions do without.
            Box::pin(self.settle(log, at, changes)).await?;
        }
        Ok(at)
    }

    /// Waits until what was committed, or else what was seen, is durable.
    async fn settle(&self, log: &Log, at: u64, changes: bool) -> Result<()> {
        let seen = self.seen.get();
        match self.options.durability {
            Durability::Durable if changes => log.wait(self.core, at.max(seen)).await,
            Durability::Durable => log.wait(self.core, seen).await,
            Durability::Relaxed(delay) if changes => log.flush_within(self.core, at, delay).await,
            Durability::Relaxed(_) => Ok(()),
        }
    }

    /// It commits: all that others see of that happens here, at once.
    pub(crate) fn decide(&mut self, at: u64, sstamp: u64) {
        if let Some(log) = self.core.log.as_ref().filter(|_| !self.writes.rows.is_empty()) {
            // Before anybody can see it, so that whoever has seen it comes behind it in the log.
            log.enqueue(at, &self.writes.redo);
        }
        self.entered().commit(at, sstamp);
        self.phase = Phase::Committed;
        let entered = self.entered.as_ref().expect("it has not left");
        for write in &self.writes.rows {
            // SAFETY: the transaction has made it, and has not left.
            let version = unsafe { Shared::at(write.version, entered) };
            if write.covers_own {
                let own = chain::older(version, entered).expect("one of its own");
                self.garbage.limbo.fresh().push(chain::skip_own(version, own));
            }
            version.header().set_stamp(at, sstamp);
            if write.kind == Kind::Deleted || chain::older(version, entered).is_some() {
                let table = self.writes.tables[write.table].clone();
                self.garbage.superseded.push_back((at, table, write.row));
            }
        }
    }

    /// Takes back all that was changed.
    pub async fn rollback(mut self) {
        self.undo_all();
        M::call(self.end()).await;
    }

    pub(crate) fn undo_all(&mut self) {
        self.entered().abort();
        self.undo(0, 0);
        self.phase = Phase::RolledBack;
        self.core.counts.aborts.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back changes of rows and entries from these on.
    pub(crate) fn undo(&mut self, rows: usize, entries: usize) {
        let entered = self.entered.as_ref().expect("it has not left");
        for write in self.writes.rows.drain(rows..).rev() {
            let table = &self.writes.tables[write.table];
            let chain = table.rows.chain(write.row).expect("it has a version");
            // SAFETY: the transaction has made it, and has not left.
            let version = unsafe { Shared::at(write.version, entered) };
            let unlinked = match write.is_fresh && !write.covers_own {
                true => chain.pop_to_dead(version),
                false => chain.pop(version),
            };
            self.garbage.limbo.fresh().push(unlinked);
        }
        for entry in self.writes.entries.drain(entries..).filter(|entry| entry.is_new) {
            let table = self.writes.tables[entry.table].clone();
            let (index, row) = (entry.index, entry.row);
            self.garbage.stale.push(StaleEntry { table, index, key: entry.key, row });
        }
    }

    /// Looks after the garbage, and leaves.
    async fn end(&mut self) {
        if self.is_tidying_due() {
            // In a box: most transactions do without.
            if let Err(error) = Box::pin(self.tidy()).await {
                log::warn!("versions and entries of indexes that are not needed stay: {error}");
            }
        }
        self.leave();
    }

    /// Ends the transaction for all others.
    fn leave(&mut self) {
        self.reads.borrow_mut().clear();
        self.writes.clear();
        let Some(entered) = self.entered.take() else { return };
        let (slots, id) = (entered.slots(), entered.id());
        if entered.leave() {
            ParkingLot::global().unpark_all(slots.parking_key(id));
        }
    }
}

/// A wait for another transaction, which ends however the coroutine goes on.
struct Waiting<'a, 's>(&'a Entered<'s>);

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        self.0.end_wait();
    }
}

impl<M: Mode> Drop for Transaction<'_, M> {
    fn drop(&mut self) {
        if self.entered.is_some() {
            if matches!(self.phase, Phase::Running | Phase::Deciding) {
                self.undo_all();
            }
            self.leave();
        }
    }
}

impl<M: Mode> std::fmt::Debug for Transaction<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Transaction({:?}, snapshot {}, {:?})",
            self.options,
            self.snapshot.get(),
            self.phase
        )
    }
}
