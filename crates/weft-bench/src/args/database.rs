//! The options of the benchmarks of the database as a whole.

use std::path::PathBuf;

use clap::Args;
use weft::DatabaseOptions;

use super::values::{Neighbour, neighbour, percent, scale_factor};
use super::{CommonArgs, cores, distinct};
use crate::error::BenchError;
use crate::workload::{Query, Suite, TPCDS, TPCH};

/// A database of a benchmark, and how it is opened.
#[derive(Args, Clone, Debug)]
pub struct DatabaseArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Scale factors; a list sweeps
    #[arg(long, default_value = "1", value_delimiter = ',', value_name = "LIST", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: Vec<f64>,

    /// The database; created and loaded if needed [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Memory limit of the database, such as 16GB,1GB,512MB; a list sweeps [default: the database's]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub memory_limit: Vec<String>,

    /// When operators partition what they keep: adaptive, always or never; a list sweeps [default: the database's]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub partition: Vec<String>,

    /// Which partitions operators spill: hybrid or all; a list sweeps [default: the database's]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub spill_mode: Vec<String>,

    /// How what is spilled is compressed: off, lz4, zstd:N or auto; a list sweeps [default: the database's]
    #[arg(long, value_delimiter = ',', value_name = "LIST", allow_hyphen_values = true)]
    pub spill_compression: Vec<String>,

    /// Bytes per second that the devices move at most, such as 100MB,400MB,unlimited; a list sweeps [default: unlimited]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub io_bandwidth_limit: Vec<String>,
}

/// Settings that a database is opened with: names and values.
pub type Settings<'a> = Vec<(&'static str, &'a str)>;

impl DatabaseArgs {
    /// The scale factor of a run: the first, where runs are swept over several.
    ///
    /// # Panics
    /// If there is none; arguments have one.
    pub fn scale(&self) -> f64 {
        self.scale[0]
    }

    /// The same at each of the scale factors.
    pub fn at_scales(&self) -> Vec<DatabaseArgs> {
        let at = |scale: f64| DatabaseArgs { scale: vec![scale], ..self.clone() };
        distinct(&self.scale).into_iter().map(at).collect()
    }

    /// The directory of the database of a benchmark.
    pub fn database(&self, suite: &Suite) -> PathBuf {
        database(suite, &self.common, self.db.as_ref(), self.scale())
    }

    /// The thread counts to sweep: all cores if none are given.
    pub fn threads(&self) -> Vec<u32> {
        if self.common.threads.is_empty() { vec![cores()] } else { distinct(&self.common.threads) }
    }

    /// The settings to sweep.
    pub fn settings(&self) -> Vec<Settings<'_>> {
        combinations(&self.lists())
    }

    fn lists(&self) -> [(&'static str, &[String]); 5] {
        [
            ("memory_limit", &self.memory_limit),
            ("partition", &self.partition),
            ("spill_mode", &self.spill_mode),
            ("io_bandwidth_limit", &self.io_bandwidth_limit),
            ("spill_compression", &self.spill_compression),
        ]
    }

    /// Looks whether a database takes all of the values that are to be swept: before minutes of measuring, not after.
    ///
    /// # Errors
    /// [`BenchError::Option`] for the first that it does not.
    pub fn check(&self) -> Result<(), BenchError> {
        for (name, values) in self.lists() {
            values.iter().try_for_each(|value| check_setting(name, value, name))?;
        }
        Ok(())
    }
}

/// Looks whether a setting, which an option gives, may have a value.
fn check_setting(name: &str, value: &str, option: &str) -> Result<(), BenchError> {
    let checked = DatabaseOptions::default().with(name, value).check_settings();
    checked.map_err(|source| BenchError::Option { option: option.replace('_', "-"), source })
}

/// The directory of a benchmark's database: the one that is named, or one of the scale in the data directory.
fn database(suite: &Suite, common: &CommonArgs, named: Option<&PathBuf>, scale: f64) -> PathBuf {
    named.cloned().unwrap_or_else(|| suite.database(&common.data, scale))
}

/// The value of one of the settings, if it is given.
pub fn setting<'a>(settings: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    settings.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// All combinations of values, of which there are none for what is left as it is.
fn combinations<'a>(lists: &[(&'static str, &'a [String])]) -> Vec<Settings<'a>> {
    lists.iter().filter(|(_, values)| !values.is_empty()).fold(
        vec![Vec::new()],
        |all, (name, values)| {
            let with = |before: &Settings<'a>, value: &'a String| {
                [before.as_slice(), &[(*name, value.as_str())]].concat()
            };
            all.iter().flat_map(|before| values.iter().map(|value| with(before, value))).collect()
        },
    )
}

/// `weft-bench agg`, `join`, `sort` and `compression`.
#[derive(Args, Clone, Debug)]
pub struct SpillArgs {
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// A neighbour that comes while a query runs, leaves so many bytes per second of the devices, and goes again, such as 2s..6s:100MB
    #[arg(long, value_name = "FROM..TO:BYTES", value_parser = neighbour)]
    pub neighbour: Option<Neighbour>,
}

impl SpillArgs {
    /// The same at each of the scale factors.
    pub fn at_scales(&self) -> Vec<SpillArgs> {
        let at = |database| SpillArgs { database, ..self.clone() };
        self.database.at_scales().into_iter().map(at).collect()
    }

    /// As [`DatabaseArgs::check`], the neighbour included.
    ///
    /// # Errors
    /// As there.
    pub fn check(&self) -> Result<(), BenchError> {
        self.database.check()?;
        self.neighbour.iter().try_for_each(|neighbour| {
            check_setting("io_bandwidth_limit", &neighbour.bandwidth, "neighbour")
        })
    }
}

/// The database that the queries of a benchmark run on.
#[derive(Args, Clone, Debug)]
pub struct SuiteArgs {
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// A directory on a further device that a new database also lies on
    #[arg(long, value_name = "PATH")]
    pub device: Vec<PathBuf>,

    /// How requests reach the device: auto, uring, posix or blocking; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "LIST", value_parser = ["auto", "uring", "posix", "blocking"])]
    pub io_driver: Vec<String>,
}

impl SuiteArgs {
    /// The same at each of the scale factors.
    pub fn at_scales(&self) -> Vec<SuiteArgs> {
        let at = |database| SuiteArgs { database, ..self.clone() };
        self.database.at_scales().into_iter().map(at).collect()
    }

    /// Where the database of a benchmark lies.
    pub(super) fn places(&self, suite: &Suite) -> Vec<PathBuf> {
        let mut places = vec![self.database.database(suite)];
        places.extend(self.device.iter().cloned());
        places
    }
}

/// `weft-bench tpch`.
#[derive(Args, Clone, Debug)]
pub struct TpchArgs {
    /// The database.
    #[command(flatten)]
    pub suite: SuiteArgs,

    /// Which queries, such as 1,6,14 [default: all 22]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=22))]
    pub queries: Vec<u32>,
}

/// `weft-bench tpcds`.
#[derive(Args, Clone, Debug)]
pub struct TpcdsArgs {
    /// The database.
    #[command(flatten)]
    pub suite: SuiteArgs,

    /// Which queries, such as 1,67,99 [default: all 99]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub queries: Vec<u32>,
}

impl TpchArgs {
    /// The queries to run, in the order given.
    pub fn queries(&self) -> Vec<&'static Query> {
        chosen(&TPCH, &self.queries)
    }
}

impl TpcdsArgs {
    /// The queries to run, in the order given.
    pub fn queries(&self) -> Vec<&'static Query> {
        chosen(&TPCDS, &self.queries)
    }
}

/// The queries of these numbers, all if there are none.
fn chosen(suite: &Suite, numbers: &[u32]) -> Vec<&'static Query> {
    match numbers.is_empty() {
        true => suite.queries.iter().collect(),
        false => distinct(numbers)
            .into_iter()
            .map(|number| &suite.queries[number as usize - 1])
            .collect(),
    }
}

/// `weft-bench memory`.
#[derive(Args, Clone, Debug)]
pub struct MemoryArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor of the data
    #[arg(long, default_value_t = 10.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// Memory limit of the database, such as 256MB [default: a tenth of the Parquet files]
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<String>,
}

/// `weft-bench storage`.
#[derive(Args, Clone, Debug)]
pub struct StorageArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// Row groups in flight
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,

    /// How requests reach the device
    #[arg(long, default_value = "auto", value_name = "DRIVER", value_parser = ["auto", "uring", "posix", "blocking"])]
    pub io_driver: String,

    /// Memory that the cache and the scans may take, in MiB
    #[arg(long, default_value_t = 4096, value_name = "MiB", value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    pub memory_mib: u64,
}

/// `weft-bench rate`.
#[derive(Args, Clone, Debug)]
pub struct RateArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// The database; created and loaded if needed [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
}

impl RateArgs {
    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        database(&TPCH, &self.common, self.db.as_ref(), self.scale)
    }
}

/// `weft-bench compile`.
#[derive(Args, Clone, Debug)]
pub struct CompileArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// The database; created and loaded if needed [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
}

impl CompileArgs {
    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        database(&TPCH, &self.common, self.db.as_ref(), self.scale)
    }
}

/// `weft-bench inlj`.
#[derive(Args, Clone, Debug)]
pub struct InljArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// The database, which gets indexes; created and loaded if needed [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Coroutines per thread, and row groups that scans read at a time; the blocking driver has 1
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,

    /// Percentage of what a query reads that fits in memory; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "0,20,40,60,80,100", value_name = "LIST", allow_negative_numbers = true, value_parser = percent)]
    pub cached: Vec<f64>,

    /// How requests reach the device: blocking, auto, uring or posix; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "blocking,uring", value_name = "LIST", value_parser = ["auto", "uring", "posix", "blocking"])]
    pub driver: Vec<String>,

    /// Outer tuples of a coroutine
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub tuples_per_coroutine: u32,

    /// Whether lookups run as generated coroutines: never, always or auto; a list compares them
    #[arg(long, value_delimiter = ',', default_value = "never", value_name = "LIST", value_parser = ["never", "always", "auto"])]
    pub compile: Vec<String>,

    /// Run the queries by scanning, too
    #[arg(long)]
    pub compare_scan: bool,
}

impl InljArgs {
    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        let name = format!("{}-sf{}-indexed.weft", TPCH.name, self.scale);
        self.db.clone().unwrap_or_else(|| self.common.data.join(name))
    }

    /// The fractions to sweep, from the least to the most in memory.
    pub fn fractions(&self) -> Vec<f64> {
        let mut fractions = self.cached.clone();
        fractions.sort_by(f64::total_cmp);
        fractions.dedup();
        fractions
    }
}

/// `weft-bench data`.
#[derive(Args, Clone, Debug)]
pub struct DataArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor of the data
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// Also load them into a database, where tables are missing
    #[arg(long)]
    pub load: bool,

    /// The database [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR", requires = "load")]
    pub db: Option<PathBuf>,
}

impl DataArgs {
    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        database(&TPCH, &self.common, self.db.as_ref(), self.scale)
    }
}
