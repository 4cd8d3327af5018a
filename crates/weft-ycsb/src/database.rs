//! The table: rows of a key, a counter and a filling.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_buffer::{BufferPool, Devices, PoolOptions};
use weft_index::{BulkLoad, Direction, TreeForm};
use weft_rt::Runtime;
use weft_rt::io::File;
use weft_rt::memory::Ledger;
use weft_txn::{Engine, EngineOptions, RowKeys, Table, TableForm, TransactionOptions};

use crate::error::{Result, YcsbError};
use crate::files::{Files, Places};

/// Bytes of a key, at most.
pub const KEY_BYTES_MAX: usize = 64;
/// Bytes of a value, at most.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Bytes of a number: the least that a key and a value have.
const NUMBER_BYTES: usize = 8;
/// Rows that a transaction of the load inserts.
const LOAD_ROWS: u64 = 1000;

/// Of the memory of a table in files, the part for versions.
const VERSIONS_PART: u64 = 4;

/// What a table is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Rows at first.
    pub rows: u64,
    /// Bytes of a key, 8 to [`KEY_BYTES_MAX`].
    pub key_bytes: usize,
    /// Bytes of a value, 8 to [`VALUE_BYTES_MAX`].
    pub value_bytes: usize,
}

impl Form {
    /// Bytes that the rows take in memory with their index, about.
    pub fn memory_bytes(&self) -> u64 {
        // The head of a version and its place in the indirection array; an entry of the index, whose nodes are not full.
        let version = (self.row_bytes() + 40).next_multiple_of(16) + 8;
        let entry = (self.key_bytes + 16) * 10 / 9;
        self.rows * (version + entry) as u64
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.key_bytes + self.value_bytes
    }

    pub(crate) fn check(&self) -> Result<()> {
        let is_key = (NUMBER_BYTES..=KEY_BYTES_MAX).contains(&self.key_bytes);
        let is_value = (NUMBER_BYTES..=VALUE_BYTES_MAX).contains(&self.value_bytes);
        if self.rows == 0 || self.rows > 1 << 40 || !is_key || !is_value {
            return Err(YcsbError::Form(format!(
                "a table has 1 to 2^40 rows, keys of {NUMBER_BYTES} to {KEY_BYTES_MAX} bytes and values of {NUMBER_BYTES} to {VALUE_BYTES_MAX} bytes"
            )));
        }
        Ok(())
    }

    /// Appends a key: its number, and a filling.
    pub(crate) fn append_key(&self, number: u64, key: &mut Vec<u8>) {
        key.extend_from_slice(&number.to_be_bytes());
        key.resize(key.len() + self.key_bytes - NUMBER_BYTES, b'k');
    }

    /// Makes the row of a key, with a counter of 0.
    pub(crate) fn fill_row(&self, number: u64, row: &mut Vec<u8>) {
        row.clear();
        self.append_key(number, row);
        row.extend_from_slice(&0_u64.to_le_bytes());
        row.resize(self.row_bytes(), b'v');
    }

    /// The counter of a row.
    pub(crate) fn counter(&self, row: &[u8]) -> u64 {
        let bytes = row.get(self.key_bytes..self.key_bytes + NUMBER_BYTES);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    /// Makes the row with a counter that is larger by one.
    pub(crate) fn increment(&self, row: &[u8], changed: &mut Vec<u8>) {
        let start = changed.len();
        changed.extend_from_slice(row);
        let counter = self.counter(row).wrapping_add(1);
        let at = start + self.key_bytes;
        changed[at..at + NUMBER_BYTES].copy_from_slice(&counter.to_le_bytes());
    }
}

/// Where the rows lie.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory, as versions.
    Memory,
    /// In files, of which the ledger's memory is a part.
    Files(Files),
}

struct Keys {
    key_bytes: usize,
}

impl RowKeys for Keys {
    fn append_key(&self, _: usize, row: &[u8], key: &mut Vec<u8>) {
        key.extend_from_slice(&row[..self.key_bytes]);
    }
}

/// The table. Clones are the same one.
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Engine,
    pub(crate) table: Arc<Table>,
    pub(crate) form: Form,
    /// Rows that were inserted, or are about to be.
    pub(crate) inserted: Arc<AtomicU64>,
    /// Updates that have committed.
    pub(crate) updates: Arc<AtomicU64>,
    /// The budgets of its memory.
    ledgers: Vec<Ledger>,
}

impl Database {
    /// Makes the table in memory, or opens that of files; from outside of the runtime.
    ///
    /// # Errors
    /// [`YcsbError`] for a form that cannot be, too little memory, or files that cannot be read.
    pub fn open(
        runtime: &Runtime,
        form: Form,
        place: Place,
        ledger: Ledger,
    ) -> std::result::Result<Database, YcsbError> {
        form.check()?;
        runtime.block_on(move || async move {
            match place {
                Place::Memory => Database::load(form, ledger).await,
                Place::Files(files) => Database::of_files(&files, ledger).await,
            }
        })?
    }

    async fn load(form: Form, ledger: Ledger) -> Result<Database> {
        // Nodes never leave memory: the file stays empty.
        let devices = Devices::new(vec![File::unnamed(&std::env::temp_dir())?]);
        let pool = BufferPool::dynamic(devices, ledger.clone(), PoolOptions::default())?;
        let mut tree = BulkLoad::new(pool, Arc::new(Places::new(0, 0)), TreeForm::new(true));
        let mut bytes = Vec::new();
        for row in 0..form.rows {
            bytes.clear();
            form.append_key(row, &mut bytes);
            tree.push(&bytes, row, &[]).await?;
        }
        let table = TableForm {
            id: 1,
            primary: Some(tree.finish().await?),
            secondary: Vec::new(),
            keys: Arc::new(Keys { key_bytes: form.key_bytes }),
            frozen: None,
            row_end: form.rows,
        };
        let database = Database::of_table(form, table, vec![ledger])?;
        let mut context = database.engine.context()?;
        for first in (0..form.rows).step_by(LOAD_ROWS as usize) {
            let mut transaction = context.begin(TransactionOptions::default());
            for key in first..form.rows.min(first + LOAD_ROWS) {
                form.fill_row(key, &mut bytes);
                transaction.insert(&database.table, &bytes).await?;
            }
            transaction.commit().await?;
        }
        drop(context);
        Ok(database)
    }

    async fn of_files(files: &Files, ledger: Ledger) -> Result<Database> {
        let form = files.form;
        // Versions do not make pages leave memory: they have a part of their own.
        let for_versions = Ledger::new(ledger.limit() / VERSIONS_PART);
        let for_pages = Ledger::new(ledger.limit() - for_versions.limit());
        let (tree, rows) = files.open(for_pages.clone()).await?;
        let table = TableForm {
            id: 1,
            primary: Some(tree),
            secondary: Vec::new(),
            keys: Arc::new(Keys { key_bytes: form.key_bytes }),
            frozen: Some(rows),
            row_end: form.rows,
        };
        Database::of_table(form, table, vec![for_versions, for_pages])
    }

    /// The first ledger is that of versions.
    fn of_table(form: Form, table: TableForm, ledgers: Vec<Ledger>) -> Result<Database> {
        let engine = Engine::new(ledgers[0].clone(), &EngineOptions::default());
        let table = engine.add_table(Table::new(table)?)?;
        let (inserted, updates) = (Arc::default(), Arc::default());
        Ok(Database { engine, table, form, inserted, updates, ledgers })
    }

    /// What the table is like.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.ledgers.iter().map(Ledger::used).sum()
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({:?})", self.form)
    }
}

/// Looks whether the counters of all rows are what the updates that have committed add up to; from outside of the runtime, when no
/// transaction runs.
///
/// # Errors
/// [`YcsbError::Inconsistent`]; those of reading.
pub fn check(runtime: &Runtime, database: &Database) -> std::result::Result<(), YcsbError> {
    let (of_scan, form) = (database.clone(), database.form);
    let found = runtime.block_on(move || async move {
        let mut context = of_scan.engine.context()?;
        let transaction = context.begin(TransactionOptions::default());
        let mut sum = 0_u64;
        let add = |_, row: &[u8]| {
            sum = sum.wrapping_add(form.counter(row));
            ControlFlow::Continue(())
        };
        transaction.scan(&of_scan.table, 0, None, None, Direction::Forwards, add).await?;
        transaction.rollback().await;
        Ok::<u64, YcsbError>(sum)
    })??;
    let expected = database.updates.load(Ordering::Relaxed);
    match found == expected {
        true => Ok(()),
        false => Err(YcsbError::Inconsistent { expected, found }),
    }
}
