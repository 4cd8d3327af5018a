//! The settings that SHOW, SET and RESET know, beside DataFusion's own (`datafusion.…`).
//!
//! Nothing is persisted: a database opens with the same settings everywhere, and what differs is
//! said where it is opened. Some settings belong to the database and hold for all its sessions, the
//! others to one session.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use weft_exec::VECTOR_ROWS_MAX;
use weft_exec::compile::CompileMode;
use weft_exec::query::PartitionMode;
use weft_exec::source::OUTER_TUPLES;
use weft_exec::spill::{SpillCompression, SpillMode, SpillOptions};
use weft_remote::{CacheOptions, RequestOptions};
use weft_rt::IO_DEPTH_MAX;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::SimDisk;

use crate::access_path::IndexUse;
use crate::error::{ErrorKind, Result, SqlError};
use crate::sizes::{human_bytes, parse_bytes};
use crate::suggest;

/// One setting as SHOW lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value now.
    pub value: String,
    /// What it does.
    pub description: String,
}

/// Weft's settings: name and description, in the order of SHOW ALL.
pub(crate) const SETTINGS: [(&str, &str); 21] = [
    ("batch_size", "rows that operators pass on at a time; of the session"),
    (
        "cache_directory",
        "where what is read of object stores and web servers is kept: beside the database where nothing else is said; of the database",
    ),
    ("cache_size", "bytes that may be kept there, or 0 for none; of the database"),
    (
        "compile",
        "when pipelines are compiled: auto (where that pays, as measured), always (before they begin), or never; of the session",
    ),
    (
        "engine",
        "what executes queries: weft as far as it can, datafusion, or auto: weft those that it can wholly; of the session",
    ),
    (
        "http_retries",
        "how often a request to an object store or a web server is made again if it fails; of the database",
    ),
    (
        "http_timeout",
        "seconds that an object store or a web server may take to answer; of the database",
    ),
    (
        "index_join",
        "when joins look rows up in an index: auto (where a scan takes longer), always, or never; of the session",
    ),
    ("index_join_tuples", "rows that a coroutine of a join looks up in an index; of the session"),
    (
        "index_scan",
        "when rows are looked up in an index: auto (where a scan takes longer), always, or never; of the session",
    ),
    (
        "io_bandwidth_limit",
        "bytes per second that the devices move at most, reads and writes of tables and of what is spilled together, or \
         unlimited; of the database",
    ),
    ("io_depth", "row groups that a scan reads at a time, per thread; of the session"),
    (
        "io_driver",
        "how devices are reached: auto, uring, posix or blocking; fixed when the database is opened",
    ),
    ("max_temp_size", "bytes that spilled data may take on disk, or unlimited; of the database"),
    (
        "memory_limit",
        "memory for cache, operators and loads, as bytes or a share of the machine's; of the database",
    ),
    (
        "partition",
        "when joins and groupings partition what they keep: adaptive (when it outgrows caches), always (both sides of \
         joins, too), or never (only to spill it); of the database",
    ),
    (
        "spill_compression",
        "how what operators spill is compressed: off, lz4, zstd:N at level N, or auto (where that makes \
         spilling faster); of the database",
    ),
    (
        "spill_mode",
        "what joins and groupings spill: hybrid (no more than has to be) or all (everything, once something has to be); of the \
         database",
    ),
    ("temp_directory", "where operators spill; fixed when the database is opened"),
    (
        "threads",
        "threads that operators run on, and as many that read, decode and write tables and execute pipelines; of \
         the database",
    ),
    ("timezone", "time zone of the session, such as '+02:00' or 'Europe/Berlin'"),
];

/// No limit, as a value.
const UNLIMITED: &str = "unlimited";

/// Rows that operators pass on at a time, where nothing else is said.
const BATCH_ROWS_DEFAULT: usize = 8_192;

/// Row groups that a scan reads at a time, where nothing else is said.
const SCAN_DEPTH_DEFAULT: usize = 32;

/// Share of the machine's memory, in percent, where nothing else is said.
const MEMORY_PERCENT_DEFAULT: u64 = 75;

/// Least memory that a database works with, in bytes.
const MEMORY_LIMIT_BYTES_MIN: u64 = 16 << 20;

/// What a database is opened with.
#[derive(Clone, Debug)]
pub(crate) struct OpenSettings {
    pub(crate) database: DatabaseSettings,
    /// What its sessions start with.
    pub(crate) session: SessionSettings,
    /// DataFusion's settings that its sessions start with.
    pub(crate) datafusion: Vec<(String, String)>,
}

/// The settings of a database.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseSettings {
    pub(crate) memory_limit_bytes: u64,
    pub(crate) threads: usize,
    pub(crate) io_driver: DriverKind,
    /// `None`: the database's own spill area.
    pub(crate) temp_directory: Option<PathBuf>,
    /// `u64::MAX` without a limit.
    pub(crate) max_temp_bytes: u64,
    pub(crate) spilling: SpillOptions,
    /// Bytes per second.
    pub(crate) io_bandwidth_limit: Option<u64>,
    /// How files elsewhere are asked for.
    pub(crate) requests: RequestOptions,
    /// What is kept of them.
    pub(crate) cache: CacheOptions,
}

/// The settings of a session, beside those in DataFusion's configuration.
#[derive(Clone, Debug)]
pub(crate) struct SessionSettings {
    /// When pipelines are compiled.
    pub(crate) compile: CompileMode,
    pub(crate) batch_rows: usize,
    pub(crate) io_depth: usize,
    pub(crate) timezone: Option<String>,
    pub(crate) engine: ExecutedBy,
    pub(crate) index_use: IndexUse,
    pub(crate) index_join: IndexUse,
    pub(crate) index_join_tuples: usize,
}

/// What executes queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExecutedBy {
    /// Weft's pipelines for a query that has pipelines as a whole, DataFusion's operators for any other.
    #[default]
    Auto,
    /// DataFusion's operators.
    DataFusion,
    /// Weft's pipelines, and DataFusion's operators for what has none.
    Weft,
}

impl ExecutedBy {
    const ALL: [ExecutedBy; 3] = [ExecutedBy::Auto, ExecutedBy::DataFusion, ExecutedBy::Weft];

    fn name(self) -> &'static str {
        match self {
            ExecutedBy::Auto => "auto",
            ExecutedBy::DataFusion => "datafusion",
            ExecutedBy::Weft => "weft",
        }
    }
}

impl Default for DatabaseSettings {
    fn default() -> DatabaseSettings {
        DatabaseSettings {
            memory_limit_bytes: machine_memory_bytes() / 100 * MEMORY_PERCENT_DEFAULT,
            threads: thread::available_parallelism().map_or(1, usize::from),
            io_driver: DriverKind::Auto,
            temp_directory: None,
            max_temp_bytes: 1 << 40,
            spilling: SpillOptions::default(),
            io_bandwidth_limit: None,
            requests: RequestOptions::default(),
            cache: CacheOptions::default(),
        }
    }
}

impl Default for SessionSettings {
    fn default() -> SessionSettings {
        SessionSettings {
            batch_rows: BATCH_ROWS_DEFAULT,
            compile: CompileMode::default(),
            io_depth: SCAN_DEPTH_DEFAULT,
            timezone: None,
            engine: ExecutedBy::default(),
            index_use: IndexUse::default(),
            index_join: IndexUse::default(),
            index_join_tuples: OUTER_TUPLES,
        }
    }
}

impl DatabaseSettings {
    /// The settings with these changes, given when the database is opened. What is a session's
    /// goes to the settings that its sessions start with.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for unknown names and bad values.
    pub(crate) fn at_open(
        changes: &[(String, String)],
        sim: Option<SimDisk>,
    ) -> Result<OpenSettings> {
        let (mut database, mut session) = Self::defaults(sim.as_ref());
        let mut others = Vec::new();
        for (name, value) in changes {
            match name.as_str() {
                "io_driver" if sim.is_none() => database.io_driver = parse_driver(value)?,
                "io_driver" => {}
                "temp_directory" => database.temp_directory = Some(PathBuf::from(value)),
                "memory_limit" | "threads" | "max_temp_size" | "partition" | "http_retries"
                | "http_timeout" | "spill_compression" | "spill_mode" | "io_bandwidth_limit"
                | "cache_directory" | "cache_size" => {
                    database.set(name, value)?;
                }
                "batch_size" | "compile" | "engine" | "index_join" | "index_join_tuples"
                | "index_scan" | "io_depth" | "timezone" => {
                    session.set(name, value)?;
                }
                other if other.starts_with("datafusion.") => {
                    others.push((name.clone(), value.clone()));
                }
                other => return Err(unknown_setting(other)),
            }
        }
        Ok(OpenSettings { database, session, datafusion: others })
    }

    fn defaults(sim: Option<&SimDisk>) -> (DatabaseSettings, SessionSettings) {
        let mut database = DatabaseSettings::default();
        if let Some(disk) = sim {
            database.io_driver = DriverKind::Sim(disk.clone());
        }
        (database, SessionSettings::default())
    }

    /// Changes one of the settings that can change while the database is open.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for the others, and for bad values.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "memory_limit" => {
                let bytes = parse_bytes(name, value, Some(machine_memory_bytes()))?;
                if bytes < MEMORY_LIMIT_BYTES_MIN {
                    return Err(too_small(value, bytes));
                }
                self.memory_limit_bytes = bytes;
            }
            "max_temp_size" => self.max_temp_bytes = parse_limit(name, value)?.unwrap_or(u64::MAX),
            "partition" => {
                self.spilling.partition =
                    parse_mode(name, value, PartitionMode::ALL, PartitionMode::name)?;
            }
            "spill_compression" => {
                let name = value.trim().to_lowercase();
                self.spilling.compression =
                    SpillCompression::parse(&name).ok_or_else(|| no_compression(value))?;
            }
            "spill_mode" => {
                self.spilling.mode = parse_mode(name, value, SpillMode::ALL, SpillMode::name)?;
            }
            "io_bandwidth_limit" => self.io_bandwidth_limit = parse_limit(name, value)?,
            "cache_directory" if value.trim().is_empty() => {
                let message = "cache_directory cannot be '': give the path of a directory";
                return Err(SqlError::new(ErrorKind::Setting, message));
            }
            "cache_directory" => self.cache.directory = Some(PathBuf::from(value)),
            "cache_size" if value.trim() == "0" => self.cache.bytes_max = 0,
            "cache_size" => {
                let bytes = parse_bytes(name, value, None);
                let bytes = bytes.map_err(|error| error.with_hint("to keep nothing: 0"))?;
                self.cache.bytes_max = bytes;
            }
            "http_retries" => self.requests.retries = parse_count(name, value, 0, 100)?,
            "http_timeout" => {
                let seconds = parse_count(name, value, 1, 86_400)? as u64;
                self.requests.timeout = Duration::from_secs(seconds);
            }
            "threads" => self.threads = parse_count(name, value, 1, 1_024)?,
            "io_driver" | "temp_directory" => {
                return Err(SqlError::new(
                    ErrorKind::Setting,
                    format!("{name} is fixed while a database is open"),
                )
                .with_hint("give it when the database is opened"));
            }
            other => return Err(unknown_setting(other)),
        }
        Ok(())
    }
}

impl DatabaseSettings {
    /// Gives one of the settings the value that it has where nothing is said.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for those that are fixed, and for unknown ones.
    pub(crate) fn reset(&mut self, name: &str) -> Result<()> {
        let default = DatabaseSettings::default();
        match name {
            "memory_limit" => self.memory_limit_bytes = default.memory_limit_bytes,
            "max_temp_size" => self.max_temp_bytes = default.max_temp_bytes,
            "partition" => self.spilling.partition = default.spilling.partition,
            "spill_compression" => self.spilling.compression = default.spilling.compression,
            "spill_mode" => self.spilling.mode = default.spilling.mode,
            "io_bandwidth_limit" => self.io_bandwidth_limit = default.io_bandwidth_limit,
            "http_retries" => self.requests.retries = default.requests.retries,
            "http_timeout" => self.requests.timeout = default.requests.timeout,
            "cache_directory" => self.cache.directory = None,
            "cache_size" => self.cache.bytes_max = 0,
            "threads" => self.threads = default.threads,
            other => self.set(other, "")?,
        }
        Ok(())
    }
}

impl SessionSettings {
    /// Gives one of the settings the value of `default`.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for unknown names.
    pub(crate) fn reset(&mut self, name: &str, default: &SessionSettings) -> Result<()> {
        match name {
            "batch_size" => self.batch_rows = default.batch_rows,
            "compile" => self.compile = default.compile,
            "io_depth" => self.io_depth = default.io_depth,
            "timezone" => self.timezone = default.timezone.clone(),
            "engine" => self.engine = default.engine,
            "index_join" => self.index_join = default.index_join,
            "index_join_tuples" => self.index_join_tuples = default.index_join_tuples,
            "index_scan" => self.index_use = default.index_use,
            other => return Err(unknown_setting(other)),
        }
        Ok(())
    }

    /// Changes one of the settings.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for unknown names and bad values.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "batch_size" => self.batch_rows = parse_count(name, value, 1, 65_536)?,
            "compile" => {
                self.compile = parse_mode(name, value, CompileMode::ALL, CompileMode::name)?
            }
            "io_depth" => self.io_depth = parse_count(name, value, 1, IO_DEPTH_MAX)?,
            "engine" => self.engine = parse_mode(name, value, ExecutedBy::ALL, ExecutedBy::name)?,
            "index_join" => {
                self.index_join = parse_mode(name, value, IndexUse::ALL, IndexUse::name)?;
            }
            "index_join_tuples" => {
                self.index_join_tuples = parse_count(name, value, 1, VECTOR_ROWS_MAX)?;
            }
            "index_scan" => {
                self.index_use = parse_mode(name, value, IndexUse::ALL, IndexUse::name)?;
            }
            "timezone" => {
                value.parse::<arrow::array::timezone::Tz>().map_err(|_| {
                    SqlError::new(ErrorKind::Setting, format!("there is no time zone '{value}'"))
                        .with_hint("write '+02:00' or a name such as 'Europe/Berlin'")
                })?;
                self.timezone = Some(value.to_owned());
            }
            other => return Err(unknown_setting(other)),
        }
        Ok(())
    }
}

/// A size, or `None` for no limit.
fn parse_limit(name: &str, value: &str) -> Result<Option<u64>> {
    if value.trim().eq_ignore_ascii_case(UNLIMITED) {
        return Ok(None);
    }
    let bytes = parse_bytes(name, value, None);
    bytes.map(Some).map_err(|error| error.with_hint("without a limit: 'unlimited'"))
}

/// The value of one of [`SETTINGS`] as SHOW prints it.
pub(crate) fn show(
    name: &str,
    database: &DatabaseSettings,
    session: &SessionSettings,
    temp_directory: &str,
    driver: &str,
) -> Option<String> {
    Some(match name {
        "batch_size" => session.batch_rows.to_string(),
        "cache_directory" => {
            let directory = database.cache.directory.as_ref();
            directory.map(|directory| directory.display().to_string()).unwrap_or_default()
        }
        "cache_size" if database.cache.bytes_max == 0 => "0".to_owned(),
        "cache_size" => human_bytes(database.cache.bytes_max),
        "compile" => session.compile.name().to_owned(),
        "engine" => session.engine.name().to_owned(),
        "http_retries" => database.requests.retries.to_string(),
        "http_timeout" => database.requests.timeout.as_secs().to_string(),
        "index_join" => session.index_join.name().to_owned(),
        "index_join_tuples" => session.index_join_tuples.to_string(),
        "index_scan" => session.index_use.name().to_owned(),
        "io_bandwidth_limit" => {
            database.io_bandwidth_limit.map_or_else(|| UNLIMITED.to_owned(), human_bytes)
        }
        "io_depth" => session.io_depth.to_string(),
        "io_driver" => driver.to_owned(),
        "max_temp_size" if database.max_temp_bytes == u64::MAX => UNLIMITED.to_owned(),
        "max_temp_size" => human_bytes(database.max_temp_bytes),
        "memory_limit" => human_bytes(database.memory_limit_bytes),
        "partition" => database.spilling.partition.name().to_owned(),
        "spill_compression" => database.spilling.compression.name(),
        "spill_mode" => database.spilling.mode.name().to_owned(),
        "temp_directory" => temp_directory.to_owned(),
        "threads" => database.threads.to_string(),
        "timezone" => session.timezone.clone().unwrap_or_else(|| "UTC".to_owned()),
        _ => return None,
    })
}

/// No setting has this name.
pub(crate) fn unknown_setting(name: &str) -> SqlError {
    let known: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
    let error = SqlError::new(ErrorKind::Setting, format!("there is no setting {name}"));
    match suggest::hint("setting", name, &known) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn no_compression(value: &str) -> SqlError {
    SqlError::new(ErrorKind::Setting, format!("spill_compression cannot be '{value}'"))
        .with_hint("it is auto, off, lz4, or zstd: and a level of -7 to 19, such as zstd:1")
}

fn too_small(value: &str, bytes: u64) -> SqlError {
    let least = human_bytes(MEMORY_LIMIT_BYTES_MIN);
    let shown = human_bytes(bytes);
    let message =
        format!("memory_limit cannot be '{value}': that is {shown}, and {least} is the least");
    let hint = match value.trim().parse::<f64>() {
        Ok(_) => format!("a number without a unit is bytes: write '{}GiB'", value.trim()),
        Err(_) => "write a size such as '4GiB' or a share of the machine's memory such as '75%'"
            .to_owned(),
    };
    SqlError::new(ErrorKind::Setting, message).with_hint(hint)
}

fn parse_count(name: &str, value: &str, min: usize, max: usize) -> Result<usize> {
    let count = value.trim().replace('_', "").parse::<usize>().ok();
    count.filter(|count| (min..=max).contains(count)).ok_or_else(|| {
        SqlError::new(
            ErrorKind::Setting,
            format!("{name} cannot be '{value}': give a whole number from {min} to {max}"),
        )
        .with_hint(format!("such as SET {name} = {}", 8.clamp(min, max)))
    })
}

/// The one of `modes` whose `name_of` is the value.
fn parse_mode<M: Copy, const N: usize>(
    name: &str,
    value: &str,
    modes: [M; N],
    name_of: fn(M) -> &'static str,
) -> Result<M> {
    let is_named = |mode: &M| name_of(*mode).eq_ignore_ascii_case(value.trim());
    modes.into_iter().find(is_named).ok_or_else(|| {
        let (last, others) = modes.split_last().expect("there are modes");
        let others: Vec<&str> = others.iter().map(|mode| name_of(*mode)).collect();
        let known = format!("{} or {}", others.join(", "), name_of(*last));
        SqlError::new(ErrorKind::Setting, format!("{name} cannot be '{value}': it is {known}"))
    })
}

fn parse_driver(value: &str) -> Result<DriverKind> {
    Ok(match value.trim().to_ascii_lowercase().as_str() {
        "auto" => DriverKind::Auto,
        "uring" | "io_uring" => DriverKind::Uring,
        "posix" => DriverKind::Posix,
        "blocking" => DriverKind::Blocking,
        _ => {
            return Err(SqlError::new(
                ErrorKind::Setting,
                format!("io_driver cannot be '{value}': it is auto, uring, posix or blocking"),
            ));
        }
    })
}

/// Memory in bytes that this process may use: the machine's, or its control group's if that is less.
pub(crate) fn machine_memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib * 1024);
    control_group_limits().into_iter().fold(machine, u64::min)
}

/// The limits of the control groups that this process is in, in bytes.
fn control_group_limits() -> Vec<u64> {
    let mut files = vec![PathBuf::from("/sys/fs/cgroup/memory/memory.limit_in_bytes")];
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for group in groups.lines().filter_map(|line| line.strip_prefix("0::/")) {
        let mut path = PathBuf::from("/sys/fs/cgroup").join(group);
        while path.starts_with("/sys/fs/cgroup") {
            files.push(path.join("memory.max"));
            if !path.pop() {
                break;
            }
        }
    }
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .filter_map(|text| text.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_refuses() {
        let mut database = DatabaseSettings::default();
        database.set("memory_limit", "1GiB").unwrap();
        assert_eq!(database.memory_limit_bytes, 1 << 30);
        database.set("memory_limit", "50%").unwrap();
        assert_eq!(database.memory_limit_bytes, machine_memory_bytes() / 2);
        assert!(database.set("threads", "0").is_err());
        let error = database.set("memory_limit", "10").unwrap_err();
        assert!(error.message().contains("16 MiB is the least"), "{error}");
        assert_eq!(error.hint(), Some("a number without a unit is bytes: write '10GiB'"));
        let error = database.set("io_driver", "posix").unwrap_err();
        assert!(error.message().contains("fixed"), "{error}");
        let error = database.set("memory_limt", "1").unwrap_err();
        assert_eq!(error.hint(), Some("did you mean memory_limit?"));
    }

    #[test]
    fn knows_time_zones() {
        let mut session = SessionSettings::default();
        session.set("timezone", "Europe/Berlin").unwrap();
        assert!(session.set("timezone", "Mars").is_err());
    }
}
