//! One open database directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_buffer::BufferPool;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, WorkerRef};

use crate::change::Change;
use crate::commit::{Work, commit};
use crate::core::Core;
use crate::device::DEVICES_MAX;
use crate::directory::Directory;
use crate::error::{Result, StoreError};
use crate::lock::Lock;
use crate::manifest_file;
use crate::open::{open, pool_bytes_min};
use crate::place::Place;
use crate::row_locks::{
    FoundRows, HeldLocks, LockOwner, NewKeys, Wanted, WhenLocked, check_keys, keys_of, lock_found,
};
use crate::schema::TableSchema;
use crate::snapshot::{Access, Snapshot};
use crate::spill::{SpillArea, SpillDirectory, SpillPlace};
use crate::tidy;
use crate::transaction::{Isolation, Transaction};
use crate::writer::{TableWriter, WriterOptions};

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// Changes are refused, and nothing is written to the directory.
    pub read_only: bool,
    /// Makes the database if the directory holds none.
    pub create: bool,
    /// Directories of its devices, each for a data file: for a new database all of them (none: the
    /// database's own directory). For an existing one, those it does not have yet are added; a device
    /// that was moved is looked for in them.
    pub devices: Vec<PathBuf>,
    /// The directory goes when the database is closed, and nothing is made durable.
    pub temporary: bool,
}

/// What the whole database has read and written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes read from devices.
    pub bytes_read: u64,
    /// Bytes written to devices, without manifests.
    pub bytes_written: u64,
    /// Requests to devices.
    pub reads: u64,
    /// Pages that were in memory already.
    pub cache_hits: u64,
    /// Pages that were read from a device.
    pub cache_misses: u64,
    /// Time that row groups waited for their pages, summed, in ns.
    pub io_wait_ns: u64,
}

/// An open database. It is closed when it has been dropped, every commit and writer has ended, and no spill area on a block
/// device of it is left; its snapshots can be read longer.
#[derive(Debug)]
pub struct Store {
    core: Arc<Core>,
    spill: SpillDirectory,
    /// What is spilled to all devices, and so to those that are added.
    area: Mutex<Option<SpillArea>>,
}

impl Store {
    /// Opens the database in `directory`. Blocks this thread, which must be no worker.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is none and it is not to be made; [`StoreError::Locked`] if
    /// another process has it; [`StoreError::FormatVersion`], [`StoreError::Device`],
    /// [`StoreError::Damaged`] and [`StoreError::File`] for what can be wrong with its files.
    pub fn open(
        directory: &Directory,
        options: &StoreOptions,
        runtime: Arc<Runtime>,
        ledger: Ledger,
    ) -> Result<Arc<Store>> {
        let options =
            &StoreOptions { devices: absolute(directory, &options.devices)?, ..options.clone() };
        check_directory(directory, options)?;
        let lock = match options.read_only {
            true => Lock::shared(directory)?,
            false => {
                directory.create()?;
                Lock::exclusive(directory)?
            }
        };
        let (directory, options) = (directory.clone(), options.clone());
        let spill = SpillDirectory::new(&directory, options.read_only)?;
        let temporary = options.temporary;
        let for_core = (directory.clone(), options.clone(), runtime.clone());
        let opened = runtime.block_on(move || async move {
            let (directory, options, runtime) = for_core;
            open(directory, &options, runtime, ledger, lock).await
        });
        let core = opened??;
        let spill = if temporary { spill.with_whole(directory) } else { spill };
        let store = Store { core, spill, area: Mutex::new(None) };
        for path in &options.devices {
            if !options.read_only && !store.devices().contains(path) {
                store.add_device(path)?;
            }
        }
        Ok(Arc::new(store))
    }

    /// The database as the last commit left it.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.core.snapshot()
    }

    /// Applies changes, all or none, and returns when they are durable. Commits follow one after the
    /// other. On any executor; once begun, a commit goes on although the future is dropped.
    ///
    /// # Errors
    /// What is wrong with a change: [`StoreError::Exists`], [`StoreError::NoSuchTable`],
    /// [`StoreError::NoSuchView`], [`StoreError::Conflict`], [`StoreError::Mismatch`],
    /// [`StoreError::Schema`], [`StoreError::UnsupportedType`]; [`StoreError::ReadOnly`];
    /// [`StoreError::DiskFull`] and [`StoreError::File`] if it cannot be written; in all these cases
    /// nothing has changed. [`StoreError::InDoubt`] if its last step failed, so that all or none of it may be
    /// durable, and [`StoreError::Halted`] after such a failure.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Arc<Snapshot>> {
        self.run(Work { changes, ..Work::default() }).await
    }

    /// Begins a transaction on the database as the last commit left it. It is rolled back unless it is committed.
    pub fn begin(&self, isolation: Isolation) -> Transaction {
        self.begin_for(isolation, 0)
    }

    /// The same for a connection of this number, by which [`Store::locks`] tells whose locks the transaction's are.
    pub fn begin_for(&self, isolation: Isolation, pid: i32) -> Transaction {
        Transaction::new(self.core.clone(), isolation, pid)
    }

    /// Writes a manifest that has everything, if commits are in the journal alone: what is recovered after a crash is read from there.
    /// On any executor.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub async fn checkpoint(&self) -> Result<()> {
        if !self.core.journal.has_commits() {
            return Ok(());
        }
        self.run(Work { is_checkpoint: true, ..Work::default() }).await.map(drop)
    }

    /// Writes all row groups anew of which rows are deleted, of one table or of all: the background does so with those of which many are.
    /// On any executor.
    ///
    /// # Errors
    /// [`StoreError::NoSuchTable`]; as [`Store::commit`].
    pub async fn tidy(&self, table: Option<&str>) -> Result<()> {
        let (core, table) = (self.core.clone(), table.map(str::to_owned));
        let tidied = self
            .core
            .access
            .runtime
            .spawn(move || async move { tidy::tidy(&core, table.as_deref()).await });
        tidied.await?
    }

    /// The locks of a statement outside of transactions, none yet, of a connection of this number.
    pub fn statement_locks(&self, pid: i32) -> StatementLocks {
        StatementLocks { core: self.core.clone(), owner: self.core.row_locks.owner(pid) }
    }

    /// What transactions and statements have locked, and for whom they wait, in the order in which they began.
    pub fn locks(&self) -> Vec<HeldLocks> {
        self.core.row_locks.list()
    }

    async fn run(&self, work: Work) -> Result<Arc<Snapshot>> {
        let core = self.core.clone();
        self.core.access.runtime.spawn(move || async move { commit(&core, work).await }).await?
    }

    /// [`Store::commit`] for a plain thread, which must be no worker.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn commit_blocking(&self, changes: Vec<Change>) -> Result<Arc<Snapshot>> {
        weft_rt::sync::block_on(self.commit(changes))
    }

    /// Writes rows for a table with this schema, to be committed with [`Change::Append`].
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`], [`StoreError::Halted`], [`StoreError::UnsupportedType`];
    /// [`StoreError::Schema`] for columns or row groups that there cannot be.
    pub fn writer(&self, schema: &TableSchema, options: WriterOptions) -> Result<TableWriter> {
        self.core.check_writable("write to it")?;
        schema.check()?;
        let rows = options.row_group_rows;
        if rows == 0 || rows > crate::ROW_GROUP_ROWS_MAX {
            return Err(StoreError::Schema {
                table: schema.name.clone(),
                problem: format!("a row group has 1 to 65,536 rows, not {rows}"),
            });
        }
        let access = &self.core.access;
        Ok(TableWriter::new(
            access.runtime.clone(),
            self.core.space.clone(),
            access.ledger.clone(),
            self.core.lock.clone(),
            (Arc::new(schema.clone()), options),
        ))
    }

    /// Adds a device: a data file in the directory `path`, which is made. Blocks this thread, which must
    /// be no worker.
    ///
    /// # Errors
    /// [`StoreError::Device`] if it has a data file already or there are too many; as
    /// [`Store::commit`].
    pub fn add_device(&self, path: &Path) -> Result<()> {
        let path = absolute(&self.core.directory, &[path.into()])?.pop();
        let work = Work { device: path.clone(), ..Work::default() };
        weft_rt::sync::block_on(self.run(work))?;
        let added = path.and_then(|path| {
            let number = self.devices().iter().position(|device| *device == path)?;
            Some(self.spills_to(number, &path))
        });
        if let (Some(area), Some(place)) = (&*self.area(), added) {
            area.add(place);
        }
        Ok(())
    }

    /// The directories of the devices, by number; empty for the database's own.
    pub fn devices(&self) -> Vec<PathBuf> {
        self.core.snapshot().devices.clone()
    }

    /// The directory for what does not fit in memory, of the operating system unless the database is simulated: empty when the
    /// database was opened, made when something is first written there, and gone after it was closed.
    pub fn spill_directory(&self) -> &Path {
        self.spill.path()
    }

    /// An area for what does not fit in memory: in `temp_directory`, or on all devices of the database, those
    /// among them that are added later, and in the database's directory if these have no room left. It may take `limit_bytes` of them together.
    pub fn spill_area(&self, temp_directory: Option<Directory>, limit_bytes: u64) -> SpillArea {
        let elsewhere = match temp_directory {
            None if self.core.read_only => Some(Directory::Os(self.spill.path().into())),
            given => given,
        };
        if let Some(directory) = elsewhere {
            return SpillArea::new(vec![directory], limit_bytes);
        }
        let devices = self.devices();
        let places = devices.iter().enumerate();
        let mut places: Vec<SpillPlace> =
            places.map(|(number, path)| self.spills_to(number, path)).collect();
        if devices.iter().all(|path| !path.as_os_str().is_empty()) && places.len() < DEVICES_MAX {
            let own = SpillPlace::from(self.spill.directory(&self.core.directory));
            places.push(own.last_resort());
        }
        let area = SpillArea::new(places, limit_bytes);
        *self.area() = Some(area.clone());
        area
    }

    fn area(&self) -> MutexGuard<'_, Option<SpillArea>> {
        self.area.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where on the device at `path` something is spilled to.
    fn spills_to(&self, number: usize, path: &Path) -> SpillPlace {
        let database = &self.core.directory;
        match Place::of(database, path) {
            Place::File(_) if path.as_os_str().is_empty() => self.spill.directory(database).into(),
            Place::File(directory) => directory.into(),
            Place::Block(_) => {
                let (space, lock) = (self.core.space.clone(), self.core.lock.clone());
                SpillPlace::block(space, number as u8, lock)
            }
        }
    }

    /// The database's directory.
    pub fn path(&self) -> &Path {
        self.core.directory.path()
    }

    /// Bytes of all data files.
    pub fn bytes_on_disk(&self) -> u64 {
        self.core.space.bytes()
    }

    /// Bytes of the data files that are free.
    pub fn bytes_free(&self) -> u64 {
        self.core.space.free_bytes()
    }

    /// The memory budget.
    pub fn ledger(&self) -> &Ledger {
        &self.core.access.ledger
    }

    /// Changes the memory budget, and with it what the buffer pool always has.
    pub fn set_memory_limit(&self, bytes: u64) {
        let Access { source, ledger, .. } = &*self.core.access;
        let least = pool_bytes_min(bytes);
        // What the pool is to give is free before others have less, and the other way round.
        if bytes < ledger.limit() {
            source.set_bytes_min(least);
            ledger.set_limit(bytes);
        } else {
            ledger.set_limit(bytes);
            source.set_bytes_min(least);
        }
    }

    /// Bytes of the memory budget that the buffer pool keeps whoever lacks them.
    pub fn cached_bytes_min(&self) -> u64 {
        pool_bytes_min(self.core.access.ledger.limit())
    }

    /// Bytes of the memory budget in which pages and blocks are cached, or may be.
    pub fn cached_bytes(&self) -> u64 {
        self.pool().cache_stats().bytes_reserved + self.core.access.source.decompressed().bytes()
    }

    /// The buffer pool.
    pub fn pool(&self) -> &Arc<BufferPool> {
        self.core.access.source.pool()
    }

    /// The workers.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.core.access.runtime
    }

    /// What has been read so far.
    pub fn stats(&self) -> StoreStats {
        let total = self.core.access.source.total();
        let pool = self.pool().cache_stats();
        StoreStats {
            bytes_read: pool.bytes_read,
            bytes_written: self.core.space.written_bytes(),
            reads: pool.reads,
            cache_hits: pool.hits,
            cache_misses: pool.misses,
            io_wait_ns: total.wait_ns.load(Ordering::Relaxed),
        }
    }
}

/// Rows that no other transaction or statement changes as long as this lives.
#[derive(Debug)]
pub struct StatementLocks {
    core: Arc<Core>,
    owner: LockOwner,
}

impl StatementLocks {
    /// Locks the rows that changes delete, of a statement that is about to commit them, against transactions, and the keys of few rows that it
    /// inserts if there are new ones among them: waits for those that have one of them to end. On any executor.
    ///
    /// # Errors
    /// [`StoreError::Deadlock`]; [`StoreError::Duplicate`] for a key that was committed; those of reading.
    pub async fn lock_rows(&self, changes: &[Change], has_new_keys: bool) -> Result<()> {
        let snapshot = self.core.snapshot();
        let mut wanted = deleted_rows(changes, |table| snapshot.tables.get(table).map(|of| of.id));
        let keys = if has_new_keys { keys_of(changes, &snapshot)? } else { Vec::new() };
        wanted.extend(keys.iter().map(NewKeys::wanted));
        if wanted.is_empty() {
            return Ok(());
        }
        self.owner.lock(&wanted).await?;
        match check_keys((&self.core, &self.owner), &snapshot, &keys).await {
            // The commit sees it.
            Err(StoreError::Conflict { .. }) => Ok(()),
            checked => checked,
        }
    }

    /// Locks rows that a query of a snapshot has found, the first `count` of them at most, and returns which are locked now. On any executor;
    /// dropped before, it has locked nothing.
    ///
    /// # Errors
    /// [`StoreError::RowLocked`] where locked rows are errors; [`StoreError::Deadlock`]; [`StoreError::Conflict`] if rows are not there any
    /// more: the statement is to run again; those of reading.
    pub async fn lock_found(
        &self,
        snapshot: &Snapshot,
        found: FoundRows,
        (count, when_locked): (usize, WhenLocked),
    ) -> Result<Vec<usize>> {
        lock_found((&self.core, &self.owner), snapshot, found, (count, when_locked)).await
    }
}

/// The rows that changes delete, by the identities of tables that `table_id` knows.
pub(crate) fn deleted_rows(
    changes: &[Change],
    table_id: impl Fn(&str) -> Option<u64>,
) -> Vec<Wanted> {
    let deleted = changes.iter().filter_map(|change| match change {
        Change::Delete { table, rows, .. } => Some(Wanted::changed(table_id(table)?, rows.clone())),
        _ => None,
    });
    deleted.collect()
}

impl Drop for Store {
    fn drop(&mut self) {
        // A worker must not wait; what the journal has is applied when the database is opened again.
        if WorkerRef::current().is_some() {
            return;
        }
        let path = self.core.directory.path();
        // Whatever writes row groups anew in the background holds the database as long as it has its turn.
        self.core.tidying.is_closing.store(true, Ordering::Release);
        drop(weft_rt::sync::block_on(self.core.tidying.turn.reserve(1)));
        match weft_rt::sync::block_on(self.checkpoint()) {
            Ok(()) => self.core.journal.remove(&self.core.directory),
            Err(error) => {
                log::warn!("{}: its last commits stay in its journal: {error}", path.display())
            }
        }
    }
}

/// The directories of devices as the manifest is to have them: whatever the current directory will be.
fn absolute(database: &Directory, devices: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let absolute = |path: &PathBuf| match database {
        Directory::Sim(..) => Ok(path.clone()),
        Directory::Os(_) => std::path::absolute(path).map_err(|source| StoreError::Io {
            action: "find",
            path: path.clone(),
            source,
        }),
    };
    if let Some(path) = devices.iter().find(|path| path.to_str().is_none()) {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not UTF-8");
        return Err(StoreError::Io { action: "use", path: path.clone(), source });
    }
    devices.iter().map(absolute).collect()
}

/// Checks that the directory holds a database, or may get one, before anything is written there.
fn check_directory(directory: &Directory, options: &StoreOptions) -> Result<()> {
    let names = directory.list()?.unwrap_or_default();
    let path = || directory.path().to_path_buf();
    if manifest_file::is_there(&names) {
        return Ok(());
    }
    if options.read_only || !options.create {
        return Err(StoreError::NotFound { path: path() });
    }
    if manifest_file::is_unfinished(&names) {
        return Ok(());
    }
    let problem = "the directory is not empty, and what it holds is no database";
    let source = std::io::Error::new(std::io::ErrorKind::AlreadyExists, problem);
    Err(StoreError::Io { action: "create a database in", path: path(), source })
}
