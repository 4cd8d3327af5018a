//! Transactions of several statements, on top of commits that are all or nothing.
//!
//! A transaction sees the snapshot that it began with and, on top of it, what its own statements have changed: rows are written
//! and deleted as commits do it, but in tables of its own that no manifest names (`own.rs`). Nothing of that is visible to others,
//! and all its space goes back when the last reader of these tables has gone. A commit puts what the transaction has changed
//! on top of what others have committed meanwhile, by one ordinary commit, or finds that the two do not go together
//! (`rebase.rs`): snapshot isolation, in which the first one to commit wins. Changes of few rows need not be applied for the
//! transaction before it reads them (`deferred.rs`).

mod deferred;
mod few;
mod own;
mod rebase;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::memory::{Ledger, Reservation};

use crate::append::STATISTICS_ROWS_MIN;
use crate::change::Change;
use crate::commit::{Work, commit};
use crate::core::Core;
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::point::ResidentRow;
use crate::row_locks::{
    FoundRows, LockOwner, NewKeys, Wanted, WhenLocked, check_keys, dead_rows, keys_of, lock_found,
};
use crate::row_set::RowSet;
use crate::snapshot::Snapshot;
use crate::store::deleted_rows;
use crate::table::Table;

use deferred::FewChanges;
pub(crate) use own::OwnChanges;
pub(crate) use rebase::{Finished, as_conflict, rebase};

/// What a transaction promises about others that run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed when it began, beside what the transaction itself has changed. Once that is much, or
    /// other than rows, the transaction goes on with what it saw last.
    ReadCommitted,
    /// It sees one snapshot, and no row is changed by it and another one at the same time.
    #[default]
    Snapshot,
    /// What it has read is moreover the same when it commits, by tables, if it changes anything.
    Serializable,
}

/// A transaction. It is rolled back when it is dropped.
#[derive(Debug)]
pub struct Transaction {
    core: Arc<Core>,
    isolation: Isolation,
    /// Tables that there were when it began have identities below.
    next_table_id: u64,
    state: Mutex<State>,
    /// One statement changes it at a time: a budget of 1.
    changing: Ledger,
    /// Identities of the tables that were read.
    reads: Mutex<BTreeSet<u64>>,
    /// The rows of before that it has changed, and others wait for.
    locks: LockOwner,
}

/// What the statements so far have made of it.
#[derive(Debug)]
struct State {
    /// `None` once the transaction has ended.
    now: Option<Moment>,
    savepoints: Vec<(String, Moment)>,
    /// Of what is kept in memory.
    memory: Option<Reservation>,
}

/// A transaction between two statements.
#[derive(Clone, Debug)]
struct Moment {
    view: Arc<Snapshot>,
    own: OwnChanges,
    /// All changes, if they are few; the view lacks those of them that wait.
    few: Option<FewChanges>,
}

impl Moment {
    /// A transaction on top of a snapshot, with changes that wait.
    fn new(begin: Arc<Snapshot>, few: FewChanges) -> Moment {
        Moment { view: begin.clone(), own: OwnChanges::new(begin), few: Some(few) }
    }
}

impl Transaction {
    pub(crate) fn new(core: Arc<Core>, isolation: Isolation, pid: i32) -> Transaction {
        let begin = core.snapshot();
        let next_table_id = begin.next_table_id;
        let now = Moment::new(begin, FewChanges::default());
        let state = State { now: Some(now), savepoints: Vec::new(), memory: None };
        let (state, changing, reads) = (Mutex::new(state), Ledger::new(1), Mutex::default());
        let locks = core.row_locks.owner(pid);
        Transaction { core, isolation, next_table_id, state, changing, reads, locks }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Result<Moment> {
        self.state().now.clone().ok_or(StoreError::TransactionEnded)
    }

    /// What it promises.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The database as the transaction sees it, without changes that [wait](Transaction::defer).
    ///
    /// # Errors
    /// [`StoreError::TransactionEnded`].
    pub fn snapshot(&self) -> Result<Arc<Snapshot>> {
        self.now().map(|now| now.view)
    }

    /// Notes that a statement reads the table of this number.
    pub fn note_read(&self, table: u64) {
        if self.isolation == Isolation::Serializable && table < self.next_table_id {
            self.reads.lock().unwrap_or_else(PoisonError::into_inner).insert(table);
        }
    }

    /// Has a read committed transaction see what was committed by now, if that takes no waiting; false if it does.
    ///
    /// # Errors
    /// [`StoreError::TransactionEnded`].
    pub fn refresh_now(&self) -> Result<bool> {
        if self.isolation != Isolation::ReadCommitted {
            return Ok(true);
        }
        let newest = self.core.snapshot();
        let mut state = self.state();
        let now = state.now.as_mut().ok_or(StoreError::TransactionEnded)?;
        if now.own.begin.generation == newest.generation {
            return Ok(true);
        }
        let Some(few) = now.few.as_ref().and_then(|few| few.on(&newest)) else { return Ok(false) };
        let before = std::mem::replace(now, Moment::new(newest, few));
        drop(state);
        drop(before);
        Ok(true)
    }

    /// Has a read committed transaction see what was committed by now, beside what it has changed, if that is few rows. On any
    /// executor.
    ///
    /// # Errors
    /// [`StoreError::Serialization`] if what it has changed does not go together with that;
    /// [`StoreError::TransactionEnded`]; those of reading and writing.
    pub async fn refresh(self: &Arc<Self>) -> Result<()> {
        if self.refresh_now()? {
            return Ok(());
        }
        let transaction = self.clone();
        let runtime = &self.core.access.runtime;
        runtime.spawn(move || async move { transaction.refresh_on_worker().await }).await?
    }

    async fn refresh_on_worker(&self) -> Result<()> {
        let _turn = self.changing.reserve(1).await?;
        let Moment { view, own, few } = self.now()?;
        let changes = match few {
            Some(few) => few.all(),
            None => {
                let reads = BTreeSet::new();
                let finished = Finished { view, own, reads, few: None, is_whole: true };
                let changes = finished.few_changes(&self.core.access).await?;
                let Some(changes) = changes else { return Ok(()) };
                changes
            }
        };
        let newest = self.core.snapshot();
        let few = FewChanges::default().followed_by(&changes, &newest);
        let mut draft = Draft::within(newest.clone(), OwnChanges::new(newest));
        if let Err(error) = self.change(&mut draft, changes).await {
            draft.take_back().await;
            return Err(as_conflict(error));
        }
        let (view, own) = draft.into_view();
        self.install(Moment { view: Arc::new(view), own, few: few.map(FewChanges::applied) })
    }

    /// True if a table of this name has changes of the transaction that [wait](Transaction::defer), so that what is read of it lacks
    /// them.
    pub fn has_waiting(&self, table: &str) -> bool {
        let state = self.state();
        let few = state.now.as_ref().and_then(|now| now.few.as_ref());
        few.is_some_and(|few| few.wait_for(table))
    }

    /// Makes changes that need not be applied before something reads their tables, as [`Transaction::settle`] does for those that do;
    /// on any thread, without waiting. Gives the changes back if they are to be [applied](Transaction::apply).
    ///
    /// # Errors
    /// [`StoreError::TransactionEnded`], [`StoreError::TransactionMemory`]; those of reading.
    pub fn defer(&self, changes: Vec<Change>) -> Result<Option<Vec<Change>>> {
        let Some(_turn) = self.changing.try_reserve(1) else { return Ok(Some(changes)) };
        self.core.check_writable("change it")?;
        let Moment { view, own, few } = self.now()?;
        // What a serializable transaction has changed is looked at as a whole.
        let Some(few) = few.filter(|_| self.isolation != Isolation::Serializable) else {
            return Ok(Some(changes));
        };
        let Some(next) = few.followed_by(&changes, &own.begin) else { return Ok(Some(changes)) };
        if !few.may_wait(&changes, &view, &own)? {
            return Ok(Some(changes));
        }
        self.reserve(own.bytes() + next.bytes())?;
        self.install(Moment { view, own, few: Some(next) })?;
        Ok(None)
    }

    /// The row of a table, as the transaction's [snapshot](Transaction::snapshot) has it, with a key of a unique index, as
    /// [`Table::resident_row`], but with the transaction's changes that [wait](Transaction::defer). The ids of rows that it has added
    /// are not those that they get.
    ///
    /// # Errors
    /// Those of [`Table::resident_row`]; [`StoreError::TransactionEnded`].
    pub fn resident_row(
        &self,
        table: &Table,
        (index, key): (&str, &[u8]),
        projection: &[usize],
    ) -> Result<ResidentRow> {
        let Moment { view, few, .. } = self.now()?;
        let seen = view
            .table(&table.schema().name)
            .filter(|seen| Arc::ptr_eq(&seen.version, &table.version));
        match (seen, few) {
            (Some(table), Some(few)) => few.resident_row(&table, (index, key), projection),
            _ => Ok(ResidentRow::Unknown),
        }
    }

    /// Applies changes that [wait](Transaction::defer), for this transaction alone. On any executor; once begun, it goes on although
    /// the future is dropped.
    ///
    /// # Errors
    /// [`StoreError::Serialization`] if they do not go together with what others have committed meanwhile;
    /// [`StoreError::TransactionEnded`]; those of reading and writing.
    pub async fn settle(self: &Arc<Self>) -> Result<()> {
        if self.now()?.few.is_none_or(|few| few.are_applied()) {
            return Ok(());
        }
        let transaction = self.clone();
        let runtime = &self.core.access.runtime;
        let settle = move || async move {
            let _turn = transaction.changing.reserve(1).await?;
            transaction.settle_in_turn().await
        };
        runtime.spawn(settle).await?
    }

    async fn settle_in_turn(&self) -> Result<()> {
        let settled = self.settled(self.now()?).await?;
        self.install(settled)
    }

    /// A moment whose view has all its changes, on a worker.
    async fn settled(&self, moment: Moment) -> Result<Moment> {
        let Moment { view, own, few } = moment;
        let few = match few {
            Some(few) if !few.are_applied() => few,
            few => return Ok(Moment { view, own, few }),
        };
        let mut draft = Draft::within(view, own);
        if let Err(error) = self.change(&mut draft, few.waiting()).await {
            draft.take_back().await;
            return Err(as_conflict(error));
        }
        let (view, own) = draft.into_view();
        Ok(Moment { view: Arc::new(view), own, few: Some(few.applied()) })
    }

    /// Locks the rows that changes of a statement delete, before they are applied, and the keys of few rows that it inserts if there are new
    /// ones among them: waits for transactions that have one of them to end. On any executor; dropped before, it has locked nothing.
    ///
    /// # Errors
    /// [`StoreError::Deadlock`]; [`StoreError::Conflict`] if one of few rows is not there any more, or one of a key, as the statement sees
    /// it: run again in a read committed transaction, it sees what has become of the row, in others it never will;
    /// [`StoreError::Duplicate`] for a key that was committed since; [`StoreError::TransactionEnded`]; those of reading.
    pub async fn lock_rows(&self, changes: &[Change], has_new_keys: bool) -> Result<()> {
        let Moment { view, own, .. } = self.now()?;
        let begin = &own.begin;
        let mut wanted = deleted_rows(changes, |table| view.tables.get(table).map(|of| of.id));
        for Wanted { table, rows, .. } in &mut wanted {
            let base = begin.tables.values().find(|version| version.id == *table);
            let first_own_row = base.map_or(0, |base| base.next_row_id);
            if rows.last().is_some_and(|row| row >= first_own_row) {
                let mut of_before = RowSet::default();
                let before = rows.iter().take_while(|row| *row < first_own_row);
                before.for_each(|row| _ = of_before.insert(row));
                *rows = of_before;
            }
        }
        wanted.retain(|wanted| !wanted.rows.is_empty());
        // Nobody else has tables that the transaction has made.
        let mut keys = if has_new_keys { keys_of(changes, &view)? } else { Vec::new() };
        keys.retain(|keys| keys.is_of(begin));
        wanted.extend(keys.iter().map(NewKeys::wanted));
        if wanted.is_empty() {
            return Ok(());
        }
        self.locks.lock(&wanted).await?;
        for Wanted { table, rows, .. } in wanted {
            if rows.len() < STATISTICS_ROWS_MIN
                && !dead_rows(&self.core, begin, table, &rows).await?.is_empty()
            {
                let version = begin.tables.values().find(|version| version.id == table);
                let table = version.map(|version| version.schema.name.clone()).unwrap_or_default();
                return Err(StoreError::Conflict { table, change: "changed" });
            }
        }
        check_keys((&self.core, &self.locks), begin, &keys).await
    }

    /// Locks rows that a query of the transaction has found, the first `count` of them at most, and returns which are locked now, or are
    /// the transaction's own. On any executor; dropped before, it has locked nothing.
    ///
    /// # Errors
    /// [`StoreError::RowLocked`] where locked rows are errors; [`StoreError::Deadlock`]; [`StoreError::Conflict`] as for
    /// [`Transaction::lock_rows`]; [`StoreError::TransactionEnded`]; those of reading.
    pub async fn lock_found(
        &self,
        found: FoundRows,
        (count, when_locked): (usize, WhenLocked),
    ) -> Result<Vec<usize>> {
        let begin = self.now()?.own.begin;
        lock_found((&self.core, &self.locks), &begin, found, (count, when_locked)).await
    }

    /// Applies changes for this transaction alone, all or none. On any executor; once begun, it goes on although
    /// the future is dropped.
    ///
    /// # Errors
    /// As [`Store::commit`](crate::Store::commit), but for what goes wrong with making them durable;
    /// [`StoreError::TransactionEnded`], [`StoreError::TransactionMemory`].
    pub async fn apply(self: &Arc<Self>, changes: Vec<Change>) -> Result<()> {
        let transaction = self.clone();
        let runtime = &self.core.access.runtime;
        runtime.spawn(move || async move { transaction.apply_on_worker(changes).await }).await?
    }

    async fn apply_on_worker(&self, changes: Vec<Change>) -> Result<()> {
        let _turn = self.changing.reserve(1).await?;
        self.core.check_writable("change it")?;
        self.settle_in_turn().await?;
        let Moment { view, own, few } = self.now()?;
        let few = few.and_then(|few| few.followed_by(&changes, &own.begin));
        let mut draft = Draft::within(view, own);
        if let Err(error) = self.change(&mut draft, changes).await {
            draft.take_back().await;
            return Err(error);
        }
        let (view, own) = draft.into_view();
        self.install(Moment { view: Arc::new(view), own, few: few.map(FewChanges::applied) })
    }

    async fn change(&self, draft: &mut Draft, changes: Vec<Change>) -> Result<()> {
        let Core { space, access, .. } = &*self.core;
        for change in changes {
            draft.apply(change, space, access).await?;
        }
        draft.remake_indexes(access).await?;
        draft.check_references(access).await?;
        self.reserve(draft.own.as_ref().map_or(0, OwnChanges::bytes))
    }

    /// Accounts for `bytes` of what is kept until the end.
    fn reserve(&self, bytes: u64) -> Result<()> {
        let mut state = self.state();
        let reserved = state.memory.as_ref().map_or(0, Reservation::bytes);
        let is_granted = bytes <= reserved
            || match &mut state.memory {
                Some(memory) => memory.try_grow(bytes - reserved),
                None => {
                    state.memory = self.core.access.ledger.try_reserve(bytes);
                    state.memory.is_some()
                }
            };
        if is_granted { Ok(()) } else { Err(StoreError::TransactionMemory { bytes }) }
    }

    fn install(&self, moment: Moment) -> Result<()> {
        let mut state = self.state();
        // It may have been rolled back meanwhile, by another thread.
        let now = state.now.as_mut().ok_or(StoreError::TransactionEnded)?;
        let before = std::mem::replace(now, moment);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Marks this moment; one of the same name is hidden until this one is released.
    ///
    /// # Errors
    /// [`StoreError::TransactionEnded`].
    pub fn savepoint(&self, name: &str) -> Result<()> {
        let now = self.now()?;
        self.state().savepoints.push((name.to_owned(), now));
        Ok(())
    }

    /// Forgets a savepoint and those after it; what was changed since stays.
    ///
    /// # Errors
    /// [`StoreError::TransactionEnded`], [`StoreError::NoSuchSavepoint`].
    pub fn release(&self, name: &str) -> Result<()> {
        self.now()?;
        let mut state = self.state();
        let at = position(&state.savepoints, name)?;
        let released = state.savepoints.split_off(at);
        drop(state);
        drop(released);
        Ok(())
    }

    /// Takes back what was changed since a savepoint, which stays; those after it go. On any executor.
    ///
    /// # Errors
    /// [`StoreError::TransactionEnded`], [`StoreError::NoSuchSavepoint`]; those of making indexes of its own rows anew.
    pub async fn roll_back_to(self: &Arc<Self>, name: &str) -> Result<()> {
        let (transaction, name) = (self.clone(), name.to_owned());
        let runtime = &self.core.access.runtime;
        runtime.spawn(move || async move { transaction.return_to(&name).await }).await?
    }

    async fn return_to(&self, name: &str) -> Result<()> {
        let _turn = self.changing.reserve(1).await?;
        let now = self.now()?;
        let (at, moment) = {
            let state = self.state();
            let at = position(&state.savepoints, name)?;
            (at, state.savepoints[at].1.clone())
        };
        // Trees of its own rows have changed since, and have no versions.
        let mut draft = Draft::within(moment.view.clone(), moment.own);
        draft.note_changed_since(&now.view);
        if let Err(error) = draft.remake_indexes(&self.core.access).await {
            draft.take_back().await;
            return Err(error);
        }
        let (view, own) = draft.into_view();
        let moment = Moment { view: Arc::new(view), own, few: moment.few };
        let mut state = self.state();
        let gone = state.savepoints.split_off(at + 1);
        let before = std::mem::replace(&mut state.savepoints[at].1, moment.clone());
        drop(state);
        drop((gone, before));
        self.install(moment)
    }

    /// Makes what the transaction has changed durable and visible, all or none of it, and ends it. On any executor; once
    /// begun, it goes on although the future is dropped.
    ///
    /// # Errors
    /// [`StoreError::Serialization`] if it does not go together with what others have committed meanwhile;
    /// [`StoreError::TransactionEnded`]; what keeps a commit from being made durable. The transaction is rolled back.
    pub async fn commit(self: &Arc<Self>) -> Result<()> {
        let transaction = self.clone();
        let runtime = &self.core.access.runtime;
        runtime.spawn(move || async move { transaction.commit_on_worker().await }).await?
    }

    async fn commit_on_worker(&self) -> Result<()> {
        let _turn = self.changing.reserve(1).await?;
        let moment = self.end().ok_or(StoreError::TransactionEnded)?;
        let committed = self.commit_moment(moment).await;
        self.locks.release();
        committed
    }

    async fn commit_moment(&self, moment: Moment) -> Result<()> {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap_or_else(PoisonError::into_inner));
        let Moment { view, own, few } = moment.clone();
        let is_whole = few.as_ref().is_none_or(FewChanges::are_applied);
        let has_few = few.as_ref().is_some_and(|few| !few.is_empty());
        let mut finished = Finished { view, own, reads, few: None, is_whole };
        if !has_few && !finished.has_changes() {
            return Ok(());
        }
        finished.few = match few {
            Some(few) if finished.reads.is_empty() => Some(few.all()),
            _ => finished.few_changes(&self.core.access).await?,
        };
        let work = Work { transaction: Some(finished), ..Work::default() };
        let committed = commit(&self.core, work).await.map(drop);
        match committed {
            // The table may have another name by now, which the transaction as a whole finds.
            Err(StoreError::Serialization { change: "dropped", .. }) if !is_whole => {}
            committed => return committed,
        }
        let Moment { view, own, .. } = self.settled(moment).await?;
        let reads = BTreeSet::new();
        let finished = Finished { view, own, reads, few: None, is_whole: true };
        let work = Work { transaction: Some(finished), ..Work::default() };
        commit(&self.core, work).await.map(drop)
    }

    /// Ends the transaction without a trace; one that has ended already stays as it is.
    pub fn roll_back(&self) {
        drop(self.end());
        self.locks.release();
    }

    /// Ends it, and gives what it was in the end.
    fn end(&self) -> Option<Moment> {
        let mut state = self.state();
        let (now, savepoints) = (state.now.take(), std::mem::take(&mut state.savepoints));
        let memory = state.memory.take();
        drop(state);
        drop((savepoints, memory));
        now
    }
}

fn position(savepoints: &[(String, Moment)], name: &str) -> Result<usize> {
    let found = savepoints.iter().rposition(|(of, _)| of == name);
    found.ok_or_else(|| StoreError::NoSuchSavepoint { name: name.to_owned() })
}
