//! An open database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_rt::io::sim::SimDisk;
use weft_sql::{Engine, EngineOptions, Result, Role, SPILL_LEVELS, Setting};

use crate::session::Session;

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Open an existing database without changing anything. Several processes may read one at once.
    pub read_only: bool,
    /// Create the database if there is none at the path.
    pub create: bool,
    /// Directories or block devices, beside the database's directory, that a new database also lies
    /// on.
    pub devices: Vec<PathBuf>,
    /// Settings by name, as in SET; those that are fixed while a database is open can be given here.
    pub settings: Vec<(String, String)>,
    /// A simulated disk in place of the file system, for tests.
    pub sim: Option<SimDisk>,
}

impl Default for DatabaseOptions {
    fn default() -> DatabaseOptions {
        DatabaseOptions {
            read_only: false,
            create: true,
            devices: Vec::new(),
            settings: Vec::new(),
            sim: None,
        }
    }
}

impl DatabaseOptions {
    /// The same with a setting.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> DatabaseOptions {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Looks whether a database can be opened with these settings, and opens none.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) for the first that is unknown or has a bad value.
    pub fn check_settings(&self) -> Result<()> {
        Engine::check_settings(&self.settings)
    }

    fn engine(&self, path: Option<&Path>) -> EngineOptions {
        EngineOptions {
            path: path.map(Path::to_owned),
            read_only: self.read_only,
            create: self.create,
            devices: self.devices.clone(),
            settings: self.settings.clone(),
            sim: self.sim.clone(),
        }
    }
}

/// An open database. Clones are the same one; it is closed when the last clone, session and result
/// of it are gone.
#[derive(Clone)]
pub struct Database {
    engine: Arc<Engine>,
    path: Option<PathBuf>,
    is_read_only: bool,
}

/// What a database has done since it was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// Bytes that its tables were read with.
    pub bytes_read: u64,
    /// Bytes written to its devices.
    pub bytes_written: u64,
    /// Time that reads of tables were in flight, summed over them, in nanoseconds.
    pub io_wait_ns: u64,
    /// Pages that were found in memory.
    pub cache_hits: u64,
    /// Pages that had to be read.
    pub cache_misses: u64,
    /// Bytes of the memory budget in use.
    pub memory_used: u64,
    /// Bytes of these that pages of tables are cached in, or may be.
    pub memory_cached: u64,
    /// Most bytes of it that were in use at a time.
    pub memory_peak: u64,
    /// The memory budget in bytes.
    pub memory_limit: u64,
    /// Bytes per second that the devices are limited to.
    pub io_bandwidth_limit: Option<u64>,
    /// Bytes that operators have spilled to disk at the moment.
    pub spilled_bytes: u64,
    /// Bytes that the files for it take on disk.
    pub spill_file_bytes: u64,
    /// Bytes that operators have spilled since the database was opened.
    pub spill_bytes_written: u64,
    /// Bytes of it that they have read back.
    pub spill_bytes_read: u64,
    /// Bytes that operators have spilled, before compression.
    pub spill_bytes_raw: u64,
    /// The same by how they were compressed: as [`spill_level_name`](crate::spill_level_name) says.
    pub spill_bytes_by_level: [u64; SPILL_LEVELS],
    /// Partitions of joins and groupings of which pipelines have spilled something.
    pub spill_partitions: u64,
    /// Bytes of it that were compressed, before compression, and the processor time that took, in nanoseconds.
    pub spill_bytes_compressed: u64,
    /// See [`Self::spill_bytes_compressed`].
    pub spill_compression_ns: u64,
    /// Bytes of it that were decompressed, after that, and the processor time that took, in nanoseconds.
    pub spill_bytes_decompressed: u64,
    /// See [`Self::spill_bytes_decompressed`].
    pub spill_decompression_ns: u64,
    /// Bytes that the database takes on its devices.
    pub bytes_on_disk: u64,
}

impl Database {
    /// Opens the database in the directory `path`, or creates it.
    ///
    /// # Errors
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if it is locked by another process,
    /// damaged, of another version, or missing and not to be created;
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) for bad settings.
    pub fn open(path: impl AsRef<Path>, options: &DatabaseOptions) -> Result<Database> {
        let path = path.as_ref();
        let engine = Engine::open(&options.engine(Some(path)))?;
        let is_read_only = options.read_only;
        Ok(Database { engine, path: Some(path.to_owned()), is_read_only })
    }

    /// Opens an empty database in a temporary directory, which is removed when the database is
    /// closed (or, after a crash, when the next one is opened). It may be larger than memory.
    ///
    /// # Errors
    /// As for [`Database::open`].
    pub fn in_memory(options: &DatabaseOptions) -> Result<Database> {
        let engine = Engine::open(&options.engine(None))?;
        Ok(Database { engine, path: None, is_read_only: false })
    }

    /// A new session.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`](crate::ErrorKind::Setting) if a setting that the database was opened
    /// with does not fit.
    pub fn session(&self) -> Result<Session> {
        Session::new(self)
    }

    /// True if the database was opened to be read only.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// A role; `None` if there is none of the name.
    pub fn role(&self, name: &str) -> Option<Role> {
        self.engine.role(name)
    }

    /// True if there are roles.
    pub fn has_roles(&self) -> bool {
        self.engine.has_roles()
    }

    /// True if there are roles with passwords, which can log in.
    pub fn has_logins(&self) -> bool {
        self.engine.has_logins()
    }

    /// Has passwords in `CREATE ROLE … PASSWORD 'text'` become verifiers by this function, which returns verifiers as they are. A
    /// server has one; without one, statements give verifiers themselves.
    pub fn make_verifiers_by(&self, make: fn(&str) -> String) {
        self.engine.make_verifiers_by(make);
    }

    /// The directory; none for a database in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The settings that a new session has.
    pub fn settings(&self) -> Vec<Setting> {
        self.engine.settings_list()
    }

    /// What the database has done and holds.
    pub fn stats(&self) -> DatabaseStats {
        let counters = self.engine.counters();
        DatabaseStats {
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            io_wait_ns: counters.io_wait_ns,
            cache_hits: counters.cache_hits,
            cache_misses: counters.cache_misses,
            memory_used: counters.memory_used,
            memory_cached: counters.memory_cached,
            memory_peak: counters.memory_peak,
            memory_limit: counters.memory_limit,
            io_bandwidth_limit: counters.io_bandwidth_limit,
            spilled_bytes: counters.spilled_bytes,
            spill_file_bytes: counters.spill_file_bytes,
            spill_bytes_written: counters.spill_bytes_written,
            spill_bytes_read: counters.spill_bytes_read,
            spill_bytes_raw: counters.spill_bytes_raw,
            spill_bytes_by_level: counters.spill_bytes_by_level,
            spill_partitions: counters.spill_partitions,
            spill_bytes_compressed: counters.spill_bytes_compressed,
            spill_compression_ns: counters.spill_compression_ns,
            spill_bytes_decompressed: counters.spill_bytes_decompressed,
            spill_decompression_ns: counters.spill_decompression_ns,
            bytes_on_disk: counters.bytes_on_disk,
        }
    }

    /// A directory for temporary files of this database.
    pub(crate) fn temp_directory(&self) -> PathBuf {
        self.engine.temp_directory()
    }

    /// Drops this handle. The database is closed when the last one is gone.
    pub fn close(self) {}

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
