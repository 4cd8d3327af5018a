//! The strings by which a running statement is held: stop it, ask how far it is.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricValue;
use weft_exec::spill::SpillCounts;
use weft_rt::Share;
use weft_rt::cancel::CancelToken;
use weft_rt::memory::Reservation;
use weft_rt::progress::{Progress, ProgressSnapshot};
use weft_store::{HeldLocks, StatementLocks};

use crate::engine::Engine;
use crate::error::{Result, SqlError};
use crate::file_types::FileTypes;
use crate::plan_node::sources;
use crate::sequences::UsedSequences;
use crate::transactions::SessionTransaction;

const RUNNING: u8 = 0;
const COMMITTING: u8 = 1;
const CANCELLED: u8 = 2;
const ENDED: u8 = 3;

/// Bytes of a file that are a unit of progress: about what a row group of a table has in a few columns.
const FILE_UNIT_BYTES: u64 = 256 << 10;

/// The units of progress that so many bytes of files are.
pub(crate) fn units_of_files(bytes: u64) -> u64 {
    bytes / FILE_UNIT_BYTES
}

/// Cancels one statement, from any thread. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct CancelHandle {
    control: Arc<Control>,
}

impl CancelHandle {
    /// Stops the statement: whoever waits for its result gets an error of the kind `Cancelled`, at
    /// once. A statement that is past the point of no return (its changes are being made durable)
    /// goes on, and one that has ended stays as it is.
    pub fn cancel(&self) {
        self.control.cancel();
    }
}

/// What a statement shares with those who hold it.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) token: CancelToken,
    pub(crate) progress: Arc<Progress>,
    /// The part of each worker's time that it gets.
    pub(crate) share: Share,
    /// What it knows of the types of files.
    pub(crate) files: FileTypes,
    /// What DataFusion's operators spill.
    pub(crate) spilled: Arc<SpillCounts>,
    stage: AtomicU8,
    /// Tells how much memory is in use.
    engine: Weak<Engine>,
    /// The plan, whose scans of files count what they read, and operators of DataFusion's what they spill.
    plan: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    /// Pipelines have executed some of it.
    has_pipelines: AtomicBool,
    /// All of it was left to DataFusion because pipelines cannot execute all of it.
    is_left_over: AtomicBool,
    /// Only pipelines can execute all of it.
    needs_pipelines: AtomicBool,
    /// What its pipelines do is measured.
    is_measured: AtomicBool,
    /// The code of its pipelines is shown.
    shows_code: AtomicBool,
    /// It has aggregates that can be planned without sets and lists of values.
    has_distinct: AtomicBool,
    /// The transaction that it is a statement of. Whoever holds a statement that has ended does not hold its transaction.
    transaction: Weak<SessionTransaction>,
    /// It changes data.
    has_changes: AtomicBool,
    /// It cannot begin anew.
    is_final: AtomicBool,
    /// What it has locked outside of transactions.
    locks: Mutex<Option<Arc<StatementLocks>>>,
    /// Of the rows that its locking reads have found.
    memory: Mutex<Vec<Reservation>>,
    /// Sequences that it has taken values of.
    pub(crate) sequences: Arc<UsedSequences>,
}

impl Control {
    /// For a statement of a database.
    pub(crate) fn of(engine: &Arc<Engine>) -> Control {
        Control { engine: Arc::downgrade(engine), ..Control::default() }
    }

    /// For a statement of a session's transaction.
    pub(crate) fn within(self, transaction: Option<&Arc<SessionTransaction>>) -> Control {
        let transaction = transaction.map_or_else(Weak::new, Arc::downgrade);
        Control { transaction, ..self }
    }

    /// The transaction that the statement belongs to, while it runs.
    pub(crate) fn transaction(&self) -> Option<Arc<SessionTransaction>> {
        self.transaction.upgrade()
    }

    /// Notes that the statement changes data.
    pub(crate) fn note_changes(&self) {
        self.has_changes.store(true, Ordering::Relaxed);
    }

    /// Notes that the statement cannot begin anew.
    pub(crate) fn note_final(&self) {
        self.is_final.store(true, Ordering::Relaxed);
    }

    /// True if the statement cannot begin anew.
    pub(crate) fn is_final(&self) -> bool {
        self.is_final.load(Ordering::Relaxed)
    }

    /// The locks that the statement has outside of transactions; `new` makes those of one that has none yet.
    pub(crate) fn locks(&self, new: impl FnOnce() -> StatementLocks) -> Arc<StatementLocks> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.get_or_insert_with(|| Arc::new(new())))
    }

    /// Unlocks what the statement has locked outside of transactions, and lets go of what its locking reads have found.
    pub(crate) fn release_locks(&self) {
        let locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(locks);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What transactions and statements have locked, and for whom they wait, while the database is open.
    pub(crate) fn held_locks(&self) -> Vec<HeldLocks> {
        self.engine.upgrade().map(|engine| engine.store().locks()).unwrap_or_default()
    }

    /// Keeps memory until the statement has ended.
    pub(crate) fn keep_memory(&self, memory: Reservation) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    pub(crate) fn handle(self: &Arc<Control>) -> CancelHandle {
        CancelHandle { control: Arc::clone(self) }
    }

    /// The memory limit in bytes, while the database is open.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        Some(self.engine.upgrade()?.ledger().limit())
    }

    /// Has code go that planning has brought in, where memory is little.
    pub(crate) fn trim_code(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.ledger().trim_code_of_small();
        }
    }

    /// Notes that pipelines execute some of the statement.
    pub(crate) fn note_pipelines(&self) {
        self.has_pipelines.store(true, Ordering::Relaxed);
    }

    /// True if pipelines have executed some of the statement.
    pub(crate) fn has_pipelines(&self) -> bool {
        self.has_pipelines.load(Ordering::Relaxed)
    }

    /// Notes that the statement is left to DataFusion, though pipelines may execute some of it.
    pub(crate) fn note_left_over(&self) {
        self.is_left_over.store(true, Ordering::Relaxed);
    }

    /// True if the statement was left to DataFusion so.
    pub(crate) fn is_left_over(&self) -> bool {
        self.is_left_over.load(Ordering::Relaxed)
    }

    /// Notes that the statement has a part that only pipelines can execute.
    pub(crate) fn note_needs_pipelines(&self) {
        self.needs_pipelines.store(true, Ordering::Relaxed);
    }

    /// True if it has such a part.
    pub(crate) fn needs_pipelines(&self) -> bool {
        self.needs_pipelines.load(Ordering::Relaxed)
    }

    /// Has what the statement's pipelines do measured. To be called before it is planned.
    pub(crate) fn measure(&self) {
        self.is_measured.store(true, Ordering::Relaxed);
    }

    /// True if what its pipelines do is measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured.load(Ordering::Relaxed)
    }

    /// Has the code of the statement's pipelines shown instead of its plan.
    pub(crate) fn show_code(&self) {
        self.shows_code.store(true, Ordering::Relaxed);
    }

    /// True if the code of its pipelines is shown.
    pub(crate) fn shows_code(&self) -> bool {
        self.shows_code.load(Ordering::Relaxed)
    }

    /// Notes that the statement has aggregates that can be planned without sets and lists of values.
    pub(crate) fn note_distinct(&self) {
        self.has_distinct.store(true, Ordering::Relaxed);
    }

    /// True if it has such aggregates.
    pub(crate) fn has_distinct(&self) -> bool {
        self.has_distinct.load(Ordering::Relaxed)
    }

    /// Stops the statement, and has its transaction fail with it.
    pub(crate) fn cancel(&self) {
        self.stop(true);
    }

    /// Stops the statement, in whose result nobody is interested any more: that of a query is no loss.
    pub(crate) fn abandon(&self) {
        self.stop(self.has_changes.load(Ordering::Relaxed));
    }

    fn stop(&self, has_failed: bool) {
        let before =
            self.stage.compare_exchange(RUNNING, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        if before.is_ok() {
            if let Some(transaction) = self.transaction().filter(|_| has_failed) {
                transaction.fail();
            }
            self.token.cancel();
        }
    }

    /// The statement has ended: it can be stopped no more. After an error its transaction has failed.
    pub(crate) fn end(&self, is_error: bool) {
        let before =
            self.stage.compare_exchange(RUNNING, ENDED, Ordering::AcqRel, Ordering::Acquire);
        // Of one that was stopped before, that was decided then.
        let was_stopped = before == Err(CANCELLED);
        if let Some(transaction) = self.transaction()
            && is_error
            && !was_stopped
        {
            transaction.fail();
        }
    }

    /// Passes the point of no return.
    ///
    /// # Errors
    /// If the statement was cancelled before.
    pub(crate) fn begin_commit(&self) -> Result<()> {
        let before =
            self.stage.compare_exchange(RUNNING, COMMITTING, Ordering::AcqRel, Ordering::Acquire);
        match before {
            Ok(_) | Err(COMMITTING) => Ok(()),
            Err(_) => Err(SqlError::cancelled()),
        }
    }

    pub(crate) fn watch(&self, plan: &Arc<dyn ExecutionPlan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(plan));
    }

    /// Lets go of the plan, and so of the snapshot that it reads, and of locks; what its scans counted is kept.
    pub(crate) fn finish(&self) {
        self.release_locks();
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(plan) = plan {
            let mut counted = ProgressSnapshot::default();
            count_metrics(&plan, &mut counted);
            self.progress.add_bytes_read(counted.bytes_read);
            self.progress.add_done(counted.units_done);
            self.progress.add_rows(counted.rows);
        }
    }

    /// How far the statement is.
    pub(crate) fn snapshot(&self) -> ProgressSnapshot {
        let mut snapshot = self.progress.snapshot();
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(plan) = plan {
            count_metrics(&plan, &mut snapshot);
        }
        let mut snapshot = self.progress.told(snapshot);
        snapshot.memory_bytes = self.engine.upgrade().map_or(0, |engine| engine.memory_in_use());
        snapshot
    }
}

/// Adds what the scans of files in `plan` have read. (Weft's scans count by themselves, and so does whoever spills.)
fn count_metrics(plan: &Arc<dyn ExecutionPlan>, snapshot: &mut ProgressSnapshot) {
    let metrics = plan.metrics().unwrap_or_default();
    if plan.name() == "DataSourceExec" {
        let bytes = metrics
            .sum(|metric| {
                matches!(metric.value(), MetricValue::Count { name, .. } if name == "bytes_scanned")
            })
            .map_or(0, |value| value.as_usize() as u64);
        snapshot.bytes_read += bytes;
        snapshot.units_done += units_of_files(bytes);
        snapshot.rows += metrics.output_rows().unwrap_or(0) as u64;
    }
    for child in sources(plan) {
        count_metrics(child, snapshot);
    }
}
