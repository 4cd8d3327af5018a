//! The engine: what all transactions of a database share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use weft_rt::memory::Ledger;

use crate::context::{Context, ContextState};
use crate::error::{Result, TxnError};
use crate::log::{Log, LogOptions};
use crate::memory::VersionMemory;
use crate::primitives::lock;
use crate::slots::{SLOTS_MAX, Slots, TransactionId};
use crate::table::Table;
use crate::transaction::{Transaction, TransactionOptions};
use crate::version::Shared;

/// How an engine is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Most transactions that run at once, up to 65,536.
    pub transactions_max: usize,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { transactions_max: 4096 }
    }
}

/// Runs transactions on tables. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

/// What the clones share.
pub(crate) struct Core {
    // Contexts hold versions that the tables' chains do not: they go first, and it makes no difference.
    pub(crate) idle: Mutex<Vec<ContextState>>,
    tables: RwLock<Vec<Arc<Table>>>,
    pub(crate) slots: Slots,
    pub(crate) memory: VersionMemory,
    pub(crate) counts: Counts,
    pub(crate) log: Option<Log>,
    /// For tasks that outlive the coroutine that starts them.
    pub(crate) this: Weak<Core>,
}

impl Core {
    /// True if there is a log.
    pub(crate) fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// A deleted row is about to go for good: what its last version knows of readers stays known of its key.
    pub(crate) fn note_burial(&self, table: &Table, deleted: Shared<'_>) {
        let Some(primary) = &table.primary else { return };
        let stamp = deleted.header().stamp();
        let at = if TransactionId::of_stamp(stamp).is_some() { self.slots.now() } else { stamp };
        let at = at.max(deleted.header().pstamp());
        for (_, key) in table.keys_of(&deleted).iter().filter(|(index, _)| *index == 0) {
            primary.absent_reads.note_key(key, at);
        }
    }
}

/// What has happened so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) commits: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) freed_versions_bytes: AtomicU64,
}

impl Engine {
    /// An engine without tables, whose versions are part of this budget.
    ///
    /// # Panics
    /// If more transactions are asked for than there can be, or none.
    pub fn new(ledger: Ledger, options: &EngineOptions) -> Engine {
        Engine::of(ledger, options, None)
    }

    /// As [`Engine::new`], with a log: [`Engine::recover`] is to be called before the first transaction.
    ///
    /// # Panics
    /// As [`Engine::new`].
    pub fn with_log(ledger: Ledger, options: &EngineOptions, log: LogOptions) -> Engine {
        Engine::of(ledger, options, Some(Log::new(log)))
    }

    fn of(ledger: Ledger, options: &EngineOptions, log: Option<Log>) -> Engine {
        assert!((1..=SLOTS_MAX).contains(&options.transactions_max), "{options:?}");
        let core = |this: &Weak<Core>| Core {
            idle: Mutex::default(),
            tables: RwLock::default(),
            slots: Slots::new(options.transactions_max),
            memory: VersionMemory::new(ledger),
            counts: Counts::default(),
            log,
            this: this.clone(),
        };
        Engine { core: Arc::new_cyclic(core) }
    }

    /// Adds a table, which stays as long as the engine.
    ///
    /// # Errors
    /// [`TxnError::Table`] if there is one with its id.
    pub fn add_table(&self, mut table: Table) -> Result<Arc<Table>> {
        let mut tables = self.core.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.iter().any(|other| other.id() == table.id()) {
            let reason = "there is one with this id".into();
            return Err(TxnError::Table { table: table.id(), reason });
        }
        table.join(&self.core);
        let table = Arc::new(table);
        tables.push(table.clone());
        Ok(table)
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        self.core.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The table with this id.
    ///
    /// # Errors
    /// [`TxnError::Table`] if there is none.
    pub fn table(&self, id: u32) -> Result<Arc<Table>> {
        let tables = self.core.tables.read().unwrap_or_else(PoisonError::into_inner);
        let found = tables.iter().find(|table| table.id() == id).cloned();
        found.ok_or_else(|| TxnError::Table { table: id, reason: "there is none".into() })
    }

    /// A context, in which transactions run one after the other.
    ///
    /// # Errors
    /// [`TxnError::TooManyTransactions`] if as many are in use as there may be.
    pub fn context(&self) -> Result<Context> {
        let idle = lock(&self.core.idle).pop();
        let state = match idle {
            Some(state) => state,
            None => {
                let count = self.core.slots.capacity();
                let slot = self.core.slots.take().ok_or(TxnError::TooManyTransactions { count })?;
                ContextState::new(slot)
            }
        };
        Ok(Context::new(self.clone(), state))
    }

    /// Runs a transaction: commits it if `work` gives `Ok`, rolls it back otherwise. If it fails for a reason that
    /// may be another one's, it is run again, up to as many times as the options say.
    ///
    /// # Errors
    /// Those of `work`, of beginning and of [`Transaction::commit`].
    pub async fn transaction<T, F>(&self, options: TransactionOptions, mut work: F) -> Result<T>
    where
        F: AsyncFnMut(&mut Transaction<'_>) -> Result<T>,
    {
        let mut context = self.context()?;
        let mut tries_left = options.retries;
        loop {
            let mut transaction = context.begin(options);
            let done = match work(&mut transaction).await {
                Ok(value) => transaction.commit().await.map(|_| value),
                Err(error) => {
                    transaction.rollback().await;
                    Err(error)
                }
            };
            match done {
                Err(error) if error.is_retryable() && tries_left > 0 => tries_left -= 1,
                done => return done,
            }
            context.wait_for_conflict().await;
        }
    }

    /// Frees what no transaction needs of that which contexts have left that are not in use; gives the bytes of
    /// versions freed so far, by whomever.
    ///
    /// # Errors
    /// Those of the indexes, entries of which are taken away.
    pub async fn collect(&self) -> Result<u64> {
        let idle = std::mem::take(&mut *lock(&self.core.idle));
        let mut contexts: Vec<Context> =
            idle.into_iter().map(|state| Context::new(self.clone(), state)).collect();
        // Twice: what the first time unlinks, the second time may free.
        for _ in 0..2 {
            for context in &mut contexts {
                context.collect().await?;
            }
        }
        Ok(self.core.counts.freed_versions_bytes.load(Ordering::Relaxed))
    }

    /// Bytes of memory that versions have, with what is ready for those to come.
    pub fn version_bytes(&self) -> u64 {
        self.core.memory.used()
    }

    /// Transactions that have committed and that have not, so far.
    pub fn transaction_counts(&self) -> (u64, u64) {
        let counts = &self.core.counts;
        (counts.commits.load(Ordering::Relaxed), counts.aborts.load(Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({} tables)", self.tables().len())
    }
}
