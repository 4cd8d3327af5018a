//! What all sessions of one database share: the memory budget, the threads, DataFusion's
//! environment, and the settings of the database.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use datafusion::execution::SessionState;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use url::Url;
use weft_exec::compile::{CompileMode, Compiling};
use weft_exec::spill::{Levels, Spilling};
use weft_jit::JitCompiler;
use weft_remote::{CacheOptions, Remote, STORE_URL};
use weft_rt::background;
use weft_rt::io::sim::SimDisk;
use weft_rt::memory::{Ledger, heap, kept, slab};
use weft_rt::{IO_DEPTH_DEFAULT, Runtime, RuntimeOptions};
use weft_store::Store;
use weft_store::spill::temp_directory;

use crate::attach::Attached;
use crate::control::Control;
use crate::depth::STACK_BYTES;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::memory::LedgerPool;
use crate::open::open_store;
use crate::parquet_files::KeptFooters;
use crate::sequences::Positions;
use crate::settings::{DatabaseSettings, SETTINGS, SessionSettings, Setting, show};
use crate::spill_files::SpillFiles;
use crate::temporary::{drop_left_over, schema_of};

/// How a database is opened.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Its directory; `None` for one that is removed when the database is closed.
    pub path: Option<PathBuf>,
    /// Open an existing database without changing anything.
    pub read_only: bool,
    /// Create the directory if it does not exist.
    pub create: bool,
    /// Directories or block devices that a new database also lies on.
    pub devices: Vec<PathBuf>,
    /// Settings by name, as in SET.
    pub settings: Vec<(String, String)>,
    /// The simulated disk to use, in tests.
    pub sim: Option<SimDisk>,
}

/// What a database has done since it was opened, and what it holds. Bytes, and nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes that tables were read with.
    pub bytes_read: u64,
    /// Bytes written to the devices.
    pub bytes_written: u64,
    /// Time that reads were in flight, summed, in nanoseconds.
    pub io_wait_ns: u64,
    /// Pages that were found in memory.
    pub cache_hits: u64,
    /// Pages that had to be read.
    pub cache_misses: u64,
    /// Bytes of the budget in use.
    pub memory_used: u64,
    /// Bytes of these that pages of tables are cached in, or may be.
    pub memory_cached: u64,
    /// Most bytes of it that were in use at a time.
    pub memory_peak: u64,
    /// The budget.
    pub memory_limit: u64,
    /// Bytes per second that the devices are limited to.
    pub io_bandwidth_limit: Option<u64>,
    /// Bytes that operators have spilled at the moment.
    pub spilled_bytes: u64,
    /// Bytes that the files for it take on disk.
    pub spill_file_bytes: u64,
    /// Bytes that they have spilled.
    pub spill_bytes_written: u64,
    /// Bytes that they have read back.
    pub spill_bytes_read: u64,
    /// Bytes that they have spilled, before compression.
    pub spill_bytes_raw: u64,
    /// The same by how they were compressed.
    pub spill_bytes_by_level: Levels,
    /// Partitions of joins and groupings of which something was spilled.
    pub spill_partitions: u64,
    /// Bytes of it that were compressed, before compression, and the processor time that took, in nanoseconds.
    pub spill_bytes_compressed: u64,
    /// See [`Self::spill_bytes_compressed`].
    pub spill_compression_ns: u64,
    /// Bytes of it that were decompressed, after that, and the processor time that took, in nanoseconds.
    pub spill_bytes_decompressed: u64,
    /// See [`Self::spill_bytes_decompressed`].
    pub spill_decompression_ns: u64,
    /// Bytes on the devices.
    pub bytes_on_disk: u64,
}

/// One open database: what its sessions share.
pub struct Engine {
    pub(crate) ledger: Ledger,
    pub(crate) runtime: Arc<Runtime>,
    store: Arc<Store>,
    path: Option<PathBuf>,
    pub(crate) environment: Arc<RuntimeEnv>,
    pub(crate) session_defaults: SessionSettings,
    pub(crate) datafusion_defaults: Vec<(String, String)>,
    executor: RwLock<Arc<Executor>>,
    settings: Mutex<DatabaseSettings>,
    spill_directory: PathBuf,
    /// Where operators spill to, and how pipelines share memory.
    pub(crate) spilling: Arc<Spilling>,
    /// What compiles pipelines, once that was asked for; nothing where there is no code for the processor.
    compiler: OnceLock<Option<Arc<JitCompiler>>>,
    /// DataFusion's state as sessions have it at first, once one was made.
    first_state: OnceLock<Arc<SessionState>>,
    /// Files in object stores and on web servers.
    pub(crate) remote: Remote,
    /// Other databases, which are read.
    pub(crate) attached: Attached,
    /// How many values the sequences have given.
    pub(crate) sequences: Positions,
    /// The number of the last session that has made something temporary.
    temporary_sessions: AtomicU64,
    /// What makes verifiers of passwords, once there is something that does.
    pub(crate) verifiers: OnceLock<fn(&str) -> String>,
}

/// The threads that run statements.
#[derive(Debug)]
pub(crate) struct Executor {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Executor {
    fn new(threads: usize) -> Result<Executor> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("weft-sql")
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .build()
            .map_err(|error| {
                SqlError::new(ErrorKind::Io, format!("cannot start {threads} threads: {error}"))
            })?;
        Ok(Executor { runtime: Some(runtime) })
    }

    /// Runs a future on the threads.
    pub(crate) fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(future);
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // The last statement may end, and drop this, on one of its threads, which cannot wait for themselves. Another thread
        // does: `shutdown_background` would detach threads that are about to end (see `background`).
        if let Some(runtime) = self.runtime.take() {
            // Without a thread to wait on, those of the runtime stay.
            let runtime = ManuallyDrop::new(runtime);
            let end = move || drop(ManuallyDrop::into_inner(runtime));
            let shutting_down = background::spawn("weft-end", end);
            if let Err(error) = shutting_down {
                log::warn!("no thread to wait for the end of a database's threads: {error}");
            }
        }
    }
}

/// Of the memory limit, the part that the allocator may keep of freed blocks, and the most bytes of it.
const KEPT_FREED: (u64, u64) = (16, 64 << 20);

/// The memory limit from which on tuples lie on huge pages.
const HUGE_PAGES_FROM: u64 = 256 << 20;

/// The part of the memory limit that these may have free while statements run: of a small limit, and of one from
/// [`slab::SPARE_FROM`] on; and the most bytes of it, all of which go back at once if somebody takes so much.
const FREE_BLOCKS: (u64, u64, u64) = (16, 8, 1 << 30);

/// Has the allocator keep freed blocks for who allocates next, as the memory limit permits.
fn keep_freed(limit_bytes: u64) {
    let (part, most) = KEPT_FREED;
    kept::keep_freed((limit_bytes / part).min(most) as usize);
    let (of_small, of_large, most) = FREE_BLOCKS;
    let free_bytes = if limit_bytes < HUGE_PAGES_FROM {
        0
    } else if limit_bytes < slab::SPARE_FROM {
        limit_bytes / of_small
    } else {
        (limit_bytes / of_large).min(most)
    };
    slab::keep_blocks(free_bytes as usize);
}

/// The memory budget: for all that the process has, if its allocator counts.
fn budget(limit_bytes: u64) -> Ledger {
    keep_freed(limit_bytes);
    match heap::is_counted() {
        true => Ledger::watching(limit_bytes, heap::live_bytes),
        false => Ledger::new(limit_bytes),
    }
}

/// How files elsewhere are kept, where no directory is said: beside the database.
fn with_directory(cache: CacheOptions, database: Option<&Path>) -> CacheOptions {
    let beside = || {
        let name = database?.file_name()?.to_string_lossy().into_owned();
        Some(database?.with_file_name(format!("{name}.cache")))
    };
    CacheOptions { directory: cache.directory.or_else(beside), ..cache }
}

/// Has what is read of files elsewhere kept so from now on.
///
/// # Errors
/// [`ErrorKind::Setting`] without a directory, [`ErrorKind::Io`] if it cannot be made.
fn keep_remote(remote: &Remote, cache: &CacheOptions) -> Result<()> {
    if cache.directory.is_none() && cache.bytes_max > 0 {
        let message = "cache_size needs a directory, which a database in memory does not have";
        return Err(SqlError::new(ErrorKind::Setting, message)
            .with_hint("say where before: SET cache_directory = '…'"));
    }
    remote.set_cache(cache.clone()).map_err(|error| {
        let directory = cache.directory.as_deref().unwrap_or(Path::new(""));
        let message = format!("cannot use the cache_directory '{}': {error}", directory.display());
        SqlError::new(ErrorKind::Io, message)
    })
}

impl Engine {
    /// Looks whether a database can be opened with these settings.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for the first that is unknown or has a bad value.
    pub fn check_settings(settings: &[(String, String)]) -> Result<()> {
        DatabaseSettings::at_open(settings, None).map(drop)
    }

    /// Opens a database.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for bad settings, [`ErrorKind::Storage`] if the directory cannot be
    /// opened, [`ErrorKind::Io`] if the system refuses threads or files.
    pub fn open(options: &EngineOptions) -> Result<Arc<Engine>> {
        let given = DatabaseSettings::at_open(&options.settings, options.sim.clone())?;
        let (mut settings, session_defaults) = (given.database, given.session);
        settings.cache = with_directory(settings.cache, options.path.as_deref());
        let temp_directory = settings.temp_directory.as_deref().map(temp_directory).transpose()?;
        let ledger = budget(settings.memory_limit_bytes);
        let runtime = Runtime::new(&RuntimeOptions {
            workers: settings.threads,
            driver: settings.io_driver.clone(),
            io_depth: session_defaults.io_depth.max(IO_DEPTH_DEFAULT),
            ..RuntimeOptions::default()
        })
        .map_err(|error| SqlError::new(ErrorKind::Io, error.to_string()))?;
        runtime.limit_bandwidth(settings.io_bandwidth_limit);
        let runtime = Arc::new(runtime);
        let store = open_store(options, &settings, Arc::clone(&runtime), ledger.clone())?;
        if !options.read_only {
            drop_left_over(&store)?;
        }
        let spill_directory = match &temp_directory {
            Some(directory) => directory.path(),
            None => store.spill_directory(),
        };
        let spill_directory = spill_directory.to_path_buf();
        let spilling = Spilling::new(store.spill_area(temp_directory, settings.max_temp_bytes));
        spilling.set_options(settings.spilling);
        spilling.set_cached(store.cached_bytes_min());
        let pool = LedgerPool::new(ledger.clone());
        let footers = Some(KeptFooters::cache(&ledger));
        let caches = CacheManagerConfig::default().with_file_metadata_cache(footers);
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_cache_manager(caches)
            .build_arc()?;
        let directory = match spill_directory.is_dir() {
            true => spill_directory.clone(),
            false => std::env::temp_dir(),
        };
        let remote = Remote::new(ledger.clone(), directory);
        remote.set_options(settings.requests);
        keep_remote(&remote, &settings.cache)?;
        let elsewhere = Url::parse(STORE_URL).map_err(|error| internal(&error.to_string()))?;
        environment.register_object_store(&elsewhere, remote.store());
        let executor = RwLock::new(Arc::new(Executor::new(settings.threads)?));
        Ok(Arc::new(Engine {
            remote,
            ledger,
            store,
            path: options.path.clone(),
            runtime,
            environment,
            session_defaults,
            datafusion_defaults: given.datafusion,
            executor,
            settings: Mutex::new(settings),
            spill_directory,
            spilling,
            compiler: OnceLock::new(),
            first_state: OnceLock::new(),
            attached: Attached::default(),
            sequences: Positions::default(),
            temporary_sessions: AtomicU64::new(0),
            verifiers: OnceLock::new(),
        }))
    }

    /// A name for the schema of a session's temporary tables.
    pub(crate) fn next_temporary_schema(&self) -> String {
        schema_of(self.temporary_sessions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// What compiles pipelines in this mode; `None` if nothing does.
    pub(crate) fn compiling(&self, mode: CompileMode) -> Option<Compiling> {
        if mode == CompileMode::Never {
            return None;
        }
        let compiler = self.compiler.get_or_init(|| JitCompiler::new(&self.ledger)).clone()?;
        Some(Compiling { compiler, mode })
    }

    /// DataFusion's state as sessions have it at first, which all of them share.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn first_state(
        &self,
        make: impl FnOnce(&Engine) -> Result<SessionState>,
    ) -> Result<Arc<SessionState>> {
        if let Some(state) = self.first_state.get() {
            return Ok(Arc::clone(state));
        }
        let made = Arc::new(make(self)?);
        Ok(Arc::clone(self.first_state.get_or_init(|| made)))
    }

    /// DataFusion's environment for one statement.
    ///
    /// # Errors
    /// None that are known.
    pub(crate) fn environment(&self, control: &Control) -> Result<Arc<RuntimeEnv>> {
        let (runtime, ledger) = (Arc::clone(&self.runtime), self.ledger.clone());
        let spilling = Arc::clone(&self.spilling);
        SpillFiles::new(runtime, ledger, spilling, control).environment(&self.environment)
    }

    /// Its directory, as it was given; `None` of a database in memory.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// A directory for temporary files: that which operators spill to, if it is one, and the system's otherwise.
    pub fn temp_directory(&self) -> PathBuf {
        match self.spill_directory.is_dir() {
            true => self.spill_directory.clone(),
            false => std::env::temp_dir(),
        }
    }

    /// The database directory.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn settings(&self) -> MutexGuard<'_, DatabaseSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn executor(&self) -> Arc<Executor> {
        Arc::clone(&self.executor.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes a setting of the database, for all sessions, from their next statements on.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for those that are fixed, and for bad values.
    pub(crate) fn set(&self, name: &str, value: Option<&str>) -> Result<()> {
        let mut changed = self.settings().clone();
        match value {
            Some(value) => changed.set(name, value)?,
            None => changed.reset(name)?,
        }
        match name {
            "memory_limit" => {
                keep_freed(changed.memory_limit_bytes);
                self.store.set_memory_limit(changed.memory_limit_bytes);
                self.spilling.set_cached(self.store.cached_bytes_min());
            }
            "max_temp_size" => self.spilling.area().set_limit(changed.max_temp_bytes),
            "http_retries" | "http_timeout" => self.remote.set_options(changed.requests),
            "cache_directory" | "cache_size" => {
                changed.cache = with_directory(changed.cache, self.path());
                keep_remote(&self.remote, &changed.cache)?;
            }
            "io_bandwidth_limit" => self.runtime.limit_bandwidth(changed.io_bandwidth_limit),
            "partition" | "spill_compression" | "spill_mode" => {
                self.spilling.set_options(changed.spilling);
            }
            "threads" => {
                let grown = self.runtime.grow(changed.threads);
                grown.map_err(|error| SqlError::new(ErrorKind::Io, error.to_string()))?;
                let executor = Arc::new(Executor::new(changed.threads)?);
                // Statements that run go on with the old threads.
                *self.executor.write().unwrap_or_else(PoisonError::into_inner) = executor;
            }
            _ => {}
        }
        *self.settings() = changed;
        Ok(())
    }

    /// Weft's settings with the values that a session has.
    pub(crate) fn list_settings(&self, session: &SessionSettings) -> Vec<Setting> {
        SETTINGS
            .iter()
            .filter_map(|(name, description)| {
                let value = self.show(name, session)?;
                Some(Setting {
                    name: (*name).to_owned(),
                    value,
                    description: (*description).to_owned(),
                })
            })
            .collect()
    }

    /// The value of one of Weft's settings, as SHOW prints it.
    pub(crate) fn show(&self, name: &str, session: &SessionSettings) -> Option<String> {
        let directory = self.spill_directory.display().to_string();
        show(name, &self.settings(), session, &directory, self.runtime.driver())
    }

    /// Weft's settings with the values that a new session has.
    pub fn settings_list(&self) -> Vec<Setting> {
        self.list_settings(&self.session_defaults)
    }

    /// What the database has done and holds.
    pub fn counters(&self) -> Counters {
        let (read, spilling) = (self.store.stats(), self.spilling.area().stats());
        Counters {
            bytes_read: read.bytes_read,
            bytes_written: read.bytes_written,
            io_wait_ns: read.io_wait_ns,
            cache_hits: read.cache_hits,
            cache_misses: read.reads,
            bytes_on_disk: self.store.bytes_on_disk(),
            memory_used: self.ledger.used(),
            memory_cached: self.store.cached_bytes(),
            memory_peak: self.ledger.peak(),
            memory_limit: self.ledger.limit(),
            io_bandwidth_limit: self.settings().io_bandwidth_limit,
            spilled_bytes: spilling.used_bytes,
            spill_file_bytes: spilling.file_bytes,
            spill_bytes_written: spilling.written_bytes,
            spill_bytes_read: spilling.read_bytes,
            spill_bytes_raw: spilling.raw_bytes,
            spill_bytes_by_level: spilling.level_bytes,
            spill_partitions: self.spilling.partitions(),
            spill_bytes_compressed: spilling.compression.bytes,
            spill_compression_ns: spilling.compression.time.as_nanos() as u64,
            spill_bytes_decompressed: spilling.decompression.bytes,
            spill_decompression_ns: spilling.decompression.time.as_nanos() as u64,
        }
    }

    /// Bytes of the memory budget in use, beside the cache of tables.
    pub(crate) fn memory_in_use(&self) -> u64 {
        self.ledger.used().saturating_sub(self.store.cached_bytes())
    }

    /// The memory budget.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}
