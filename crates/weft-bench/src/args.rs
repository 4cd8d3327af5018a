//! The options of `weft bench`.

use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use crate::size_class::SizeClass;
use clap::{Args, Parser, Subcommand};
use weft_rt::Boundary;

use crate::error::BenchError;
use crate::report::FIELD_HELP;
use crate::workload::tpch_queries::{QUERIES, Query};

/// Measures what coroutines buy on this machine, and redraws the figures of "What Are You Waiting
/// For? Use Coroutines for Asynchronous I/O to Hide I/O Latencies and Maximize the Read Bandwidth!"
/// (ADMS 2022).
#[derive(Args, Clone, Debug)]
#[command(after_long_help = json_help())]
pub struct BenchArgs {
    /// Which experiment.
    #[command(subcommand)]
    pub experiment: Experiment,
}

fn json_help() -> String {
    format!("With --json, each measured point is an object on a line of its own:\n\n{FIELD_HELP}")
}

/// The experiments.
#[derive(Subcommand, Clone, Debug)]
pub enum Experiment {
    /// All of them, at sizes that take a few minutes: every figure in one report
    All(AllArgs),
    /// Table 1: bandwidth, IOPS and latency of the devices and of memory
    #[command(after_long_help = json_help())]
    Io(IoArgs),
    /// Figures 5, 6 and 7: TPC-H query 1 over pages partly in memory
    #[command(after_long_help = json_help())]
    Scan(ScanArgs),
    /// Figure 8: TPC-H query 14 as an index-nested-loop join, lookups per second
    #[command(after_long_help = json_help())]
    Lookup(LookupArgs),
    /// Memory accesses hidden by prefetch-and-suspend, and what a switch costs
    #[command(after_long_help = json_help())]
    Prefetch(PrefetchArgs),
    /// TPC-H on the database: loads it if needed, runs the 22 queries and checks their answers
    #[command(after_long_help = json_help())]
    Tpch(TpchArgs),
    /// Resident memory during an import and scans of data ten times larger than the memory limit
    #[command(after_long_help = json_help())]
    Memory(MemoryArgs),
    /// How lineitem lies on disk: bytes per value of each column, cold and hot scans by one thread
    #[command(after_long_help = json_help())]
    Storage(StorageArgs),
}

impl Experiment {
    /// Where the data lies: the data directory, or the devices given instead.
    pub fn places(&self) -> Vec<PathBuf> {
        let device = match self {
            Experiment::All(_) | Experiment::Prefetch(_) => {
                return vec![self.common().data.clone()];
            }
            Experiment::Io(args) => &args.device,
            Experiment::Scan(args) => &args.device,
            Experiment::Lookup(args) => &args.device,
            Experiment::Tpch(args) => return args.places(),
            Experiment::Memory(_) | Experiment::Storage(_) => {
                return vec![self.common().data.clone()];
            }
        };
        device.directories(self.common())
    }

    /// The options that every experiment has.
    pub fn common(&self) -> &CommonArgs {
        match self {
            Experiment::All(args) => &args.common,
            Experiment::Io(args) => &args.common,
            Experiment::Scan(args) => &args.common,
            Experiment::Lookup(args) => &args.common,
            Experiment::Prefetch(args) => &args.common,
            Experiment::Tpch(args) => &args.common,
            Experiment::Memory(args) => &args.common,
            Experiment::Storage(args) => &args.common,
        }
    }

    fn common_mut(&mut self) -> &mut CommonArgs {
        match self {
            Experiment::All(args) => &mut args.common,
            Experiment::Io(args) => &mut args.common,
            Experiment::Scan(args) => &mut args.common,
            Experiment::Lookup(args) => &mut args.common,
            Experiment::Prefetch(args) => &mut args.common,
            Experiment::Tpch(args) => &mut args.common,
            Experiment::Memory(args) => &mut args.common,
            Experiment::Storage(args) => &mut args.common,
        }
    }
}

/// Options of every experiment.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Worker threads; a list sweeps [default: 1 and the number of cores]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,

    /// Runs of each point; the median is shown
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,

    /// Seed of everything random
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,

    /// Directory for generated data
    #[arg(long, default_value = "bench-data", value_name = "DIR")]
    pub data: PathBuf,

    /// Write a report there: index.html, an SVG per figure, CSV and JSON lines
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Print JSON lines instead of tables
    #[arg(long)]
    pub json: bool,
}

impl CommonArgs {
    /// The thread counts to sweep.
    pub fn threads(&self) -> Vec<u32> {
        if !self.threads.is_empty() {
            return distinct(&self.threads);
        }
        let cores = cores();
        if cores == 1 { vec![1] } else { vec![1, cores] }
    }
}

/// The values of a list, each once, in the order given.
pub fn distinct<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut values = Vec::new();
    for &value in list {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// Cores that this process may use.
pub fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// Options of the experiments that use a device.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// I/O depth per thread: morsel coroutines, and so requests, in flight; a list sweeps. Blocking
    /// drivers have depth 1 [default: 64,128 for scan, 64,512 for lookup, 1,8,32,64,128 for io]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: Vec<u32>,

    /// How requests reach the device: blocking, uring, posix, auto, or a simulated array: sim,
    /// sim-blocking; a list sweeps, all interleaved in one run
    #[arg(long, value_delimiter = ',', default_value = "blocking,auto", value_name = "LIST")]
    pub driver: Vec<DriverName>,

    /// A directory on a further device; data is spread round-robin over all of them [default: the
    /// data directory]. For io also a file or block device, which is only read
    #[arg(long, value_name = "PATH")]
    pub device: Vec<PathBuf>,

    /// Compare with fio on the same files in the same minute (fio must be installed)
    #[arg(long)]
    pub fio: bool,

    /// The simulated array.
    #[command(flatten)]
    pub sim: SimArgs,
}

impl DeviceArgs {
    /// The directories that data is spread over.
    pub fn directories(&self, common: &CommonArgs) -> Vec<PathBuf> {
        if self.device.is_empty() { vec![common.data.clone()] } else { self.device.clone() }
    }

    /// The depths to sweep.
    pub fn depths(&self, default: &[u32]) -> Vec<u32> {
        if self.depth.is_empty() { default.to_vec() } else { distinct(&self.depth) }
    }

    /// Checks what the parser cannot: that devices exist, and that the simulated array can.
    ///
    /// # Errors
    /// [`BenchError::Usage`] with what to change.
    pub fn check(&self) -> Result<(), BenchError> {
        // A directory that is made up, say where a device is not mounted, would be on another device.
        if let Some(absent) = self.device.iter().find(|path| !path.exists()) {
            return Err(BenchError::Usage(format!(
                "--device {} does not exist; mount the device and create the directory, or name \
                 another one",
                absent.display()
            )));
        }
        let simulated = self.driver.iter().any(|driver| driver.is_simulated());
        if self.sim.sim_error_after.is_some() && !simulated {
            return Err(BenchError::Usage(
                "--sim-error-after makes a simulated disk fail; add --driver sim or sim-blocking"
                    .to_owned(),
            ));
        }
        let transfer = self.sim.transfer_us();
        if simulated && transfer > self.sim.sim_latency {
            return Err(BenchError::Usage(format!(
                "a read of 4 KiB cannot take {} µs: one of {} devices with {} GB/s in all transfers \
                 it in {transfer:.1} µs; raise --sim-latency or --sim-bandwidth",
                self.sim.sim_latency, self.sim.sim_devices, self.sim.sim_bandwidth
            )));
        }
        Ok(())
    }
}

/// The simulated array of the drivers `sim` and `sim-blocking`; by default that of the paper: eight
/// SSDs of 73 µs and 50 GB/s in all.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Simulated SSDs
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Simulated array")]
    pub sim_devices: u32,

    /// Latency of a 4 KiB read, in µs
    #[arg(long, default_value_t = 73.0, value_name = "µs", value_parser = within::<1, 1_000_000>, help_heading = "Simulated array")]
    pub sim_latency: f64,

    /// Bandwidth of the whole array, in GB/s
    #[arg(long, default_value_t = 50.0, value_name = "GB/s", value_parser = within::<1, 10_000>, help_heading = "Simulated array")]
    pub sim_bandwidth: f64,

    /// Reads per second of the whole array, in millions
    #[arg(long, default_value_t = 8.0, value_name = "M", value_parser = within::<1, 10_000>, help_heading = "Simulated array")]
    pub sim_iops: f64,

    /// Fail the N-th read of each simulated disk and all later ones with an I/O error, as a device that
    /// dies in the middle of a scan does; reads that fill the cache count too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Simulated array")]
    pub sim_error_after: Option<u64>,
}

impl SimArgs {
    /// Bytes per second of one device.
    pub fn device_bandwidth(&self) -> f64 {
        self.sim_bandwidth * 1e9 / f64::from(self.sim_devices)
    }

    /// How long one device transfers 4 KiB, in µs.
    pub fn transfer_us(&self) -> f64 {
        4096.0 / self.device_bandwidth() * 1e6
    }
}

/// A number from `MIN` thousandths to `MAX`.
fn within<const MIN: u32, const MAX: u32>(text: &str) -> Result<f64, String> {
    let least = f64::from(MIN) / 1000.0;
    match text.parse::<f64>() {
        Ok(value) if (least..=f64::from(MAX)).contains(&value) => Ok(value),
        _ => Err(format!("expected a number from {least} to {MAX}")),
    }
}

/// `weft bench all`.
#[derive(Args, Clone, Debug)]
pub struct AllArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// Compare with fio on the same files in the same minute (fio must be installed)
    #[arg(long)]
    pub fio: bool,
}

impl AllArgs {
    /// The experiments that it consists of.
    pub fn commands(&self) -> Vec<Experiment> {
        let fio = if self.fio { " --fio" } else { "" };
        let lines = [
            format!("io --depth 1,8,64,256 --seconds 0.4{fio}"),
            format!("scan --cached 0,20,40,60,80,90,100 --depth 16,64,128{fio}"),
            "scan --cached 60 --threads 1 --driver auto --depth 64 --boundary weak,hard".to_owned(),
            "lookup --cached 0,60,90,100 --depth 64,128,512".to_owned(),
            "scan --cached 0,60,90,100 --threads 1 --depth 128 --driver sim-blocking,sim"
                .to_owned(),
            "lookup --cached 0,60,90 --threads 1 --depth 64,512 --driver sim-blocking,sim"
                .to_owned(),
            "prefetch".to_owned(),
        ];
        lines.iter().map(|line| self.experiment(line)).collect()
    }

    /// The experiment of a command line, with the common options and the scale of this one.
    fn experiment(&self, line: &str) -> Experiment {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).expect("the lines above are valid");
        let mut experiment = parsed.bench.experiment;
        let threads = experiment.common().threads.clone();
        let common = experiment.common_mut();
        *common = self.common.clone();
        if !threads.is_empty() {
            common.threads = threads;
        }
        if let Experiment::Scan(ScanArgs { table, .. })
        | Experiment::Lookup(LookupArgs { table, .. }) = &mut experiment
        {
            table.scale = self.scale;
        }
        experiment
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

/// `weft bench io`.
#[derive(Args, Clone, Debug)]
pub struct IoArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Bytes per read; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "4K,64K", value_name = "LIST", value_parser = page_size)]
    pub page_size: Vec<SizeClass>,

    /// Size of the file to read from, in MiB; it is written once, in each data directory or device
    #[arg(long, default_value_t = 1024, value_name = "MiB", value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    pub size: u64,

    /// Seconds of each run
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = within::<1, 86_400>)]
    pub seconds: f64,
}

/// `weft bench scan`.
#[derive(Args, Clone, Debug)]
pub struct ScanArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Options of the data.
    #[command(flatten)]
    pub table: TableArgs,

    /// Page size, 4K to 1M; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "64K", value_name = "LIST", value_parser = page_size)]
    pub page_size: Vec<SizeClass>,

    /// Tuples per morsel, rounded up to whole pages
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub morsel: u32,
}

/// `weft bench lookup`.
#[derive(Args, Clone, Debug)]
pub struct LookupArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Options of the device.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Options of the data.
    #[command(flatten)]
    pub table: TableArgs,

    /// Page size, 4K to 1M; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "4K", value_name = "LIST", value_parser = page_size)]
    pub page_size: Vec<SizeClass>,

    /// Lineitem tuples per morsel
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub morsel: u32,
}

/// Options of the experiments on TPC-H data.
#[derive(Args, Clone, Debug)]
pub struct TableArgs {
    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// Percentage of the pages (scan) or of the lookups (lookup) served from memory; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "0,60,90,100", value_name = "LIST", allow_negative_numbers = true, value_parser = percent)]
    pub cached: Vec<f64>,

    /// When the next morsel starts: weak (when one has ended) or hard (when all of a batch have); a
    /// list sweeps
    #[arg(long, value_delimiter = ',', default_value = "weak", value_name = "LIST", value_parser = boundary)]
    pub boundary: Vec<Boundary>,
}

impl TableArgs {
    /// The fractions to sweep, from the least to the most in memory.
    pub fn fractions(&self) -> Vec<f64> {
        let mut fractions = self.cached.clone();
        fractions.sort_by(f64::total_cmp);
        fractions.dedup();
        fractions
    }
}

/// `weft bench prefetch`.
#[derive(Args, Clone, Debug)]
pub struct PrefetchArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Coroutines in the batch; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,12,16,32", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: Vec<u32>,

    /// Memory to jump about in, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MiB", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub size: u64,
}

/// `weft bench tpch`.
#[derive(Args, Clone, Debug)]
pub struct TpchArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// The database; created and loaded if needed [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// A directory on a further device that a new database also lies on
    #[arg(long, value_name = "PATH")]
    pub device: Vec<PathBuf>,

    /// Memory limit of the database, such as 4GB [default: the database's]
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<String>,

    /// How requests reach the device: auto, uring, posix or blocking; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "auto", value_name = "LIST", value_parser = ["auto", "uring", "posix", "blocking"])]
    pub io_driver: Vec<String>,

    /// Which queries, such as 1,6,14 [default: all 22]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=22))]
    pub queries: Vec<u32>,
}

impl TpchArgs {
    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        let default = || self.common.data.join(format!("tpch-sf{}.weft", self.scale));
        self.db.clone().unwrap_or_else(default)
    }

    /// The thread counts to sweep: all cores if none are given.
    pub fn threads(&self) -> Vec<u32> {
        if self.common.threads.is_empty() { vec![cores()] } else { distinct(&self.common.threads) }
    }

    /// The queries to run, in the order given.
    pub fn queries(&self) -> Vec<&'static Query> {
        let all: Vec<u32> = (1..=QUERIES.len() as u32).collect();
        let numbers = if self.queries.is_empty() { all } else { distinct(&self.queries) };
        numbers.iter().map(|&number| &QUERIES[number as usize - 1]).collect()
    }

    /// Where the database lies.
    fn places(&self) -> Vec<PathBuf> {
        let mut places = vec![self.database()];
        places.extend(self.device.iter().cloned());
        places
    }
}

/// `weft bench memory`.
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

/// `weft bench storage`.
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

/// A driver as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverName {
    /// io_uring where there is one, else threads.
    Auto,
    /// io_uring.
    Uring,
    /// Threads.
    Posix,
    /// Completes in place: the synchronous baseline.
    Blocking,
    /// A simulated array.
    Sim,
    /// The same, completing in place.
    SimBlocking,
}

impl DriverName {
    /// True for the synchronous baselines, whose depth is always one.
    pub fn is_blocking(self) -> bool {
        matches!(self, DriverName::Blocking | DriverName::SimBlocking)
    }

    /// True if the device is simulated.
    pub fn is_simulated(self) -> bool {
        matches!(self, DriverName::Sim | DriverName::SimBlocking)
    }
}

impl FromStr for DriverName {
    type Err = String;

    fn from_str(name: &str) -> Result<DriverName, String> {
        Ok(match name {
            "auto" => DriverName::Auto,
            "uring" => DriverName::Uring,
            "posix" => DriverName::Posix,
            "blocking" => DriverName::Blocking,
            "sim" => DriverName::Sim,
            "sim-blocking" => DriverName::SimBlocking,
            _ => {
                return Err("expected auto, uring, posix, blocking, sim or sim-blocking".into());
            }
        })
    }
}

fn page_size(text: &str) -> Result<SizeClass, String> {
    let upper = text.to_ascii_uppercase();
    let (digits, unit) = match upper.trim_end_matches(['I', 'B']) {
        number if number.ends_with('K') => (&number[..number.len() - 1], 1 << 10),
        number if number.ends_with('M') => (&number[..number.len() - 1], 1 << 20),
        number => (number, 1),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .and_then(SizeClass::from_bytes)
        .ok_or_else(|| "expected a power of two from 4K to 1M".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value / 100.0),
        _ => Err("expected a percentage from 0 to 100".to_owned()),
    }
}

fn scale_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.001..=10_000.0).contains(&value) => Ok(value),
        _ => Err("expected a scale factor from 0.001 to 10000".to_owned()),
    }
}

fn boundary(text: &str) -> Result<Boundary, String> {
    match text {
        "weak" => Ok(Boundary::Weak),
        "hard" => Ok(Boundary::Hard),
        _ => Err("expected weak or hard".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_the_usual_ways() {
        for (text, bytes) in [("4K", 4096), ("4096", 4096), ("64KiB", 65536), ("1m", 1 << 20)] {
            assert_eq!(page_size(text).unwrap().bytes(), bytes, "{text}");
        }
        for text in ["", "K", "3K", "2K", "2M", "-4K", "4G", "99999999999999999999"] {
            assert!(page_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(within::<1, 10>("0.001"), Ok(0.001));
        for text in ["", "0", "-1", "1e300", "1e-300", "inf", "NaN", "10.1"] {
            assert!(within::<1, 10>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_name_each_value_once() {
        assert_eq!(distinct(&[4, 1, 4, 1]), [4, 1]);
    }

    #[test]
    fn percentages_have_bounds() {
        assert_eq!(percent("60"), Ok(0.6));
        assert_eq!(percent("60%"), Ok(0.6));
        for text in ["", "101", "-1", "NaN", "x"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
