//! The options of the experiments that redraw the papers' figures.

use clap::Args;
use weft_rt::Boundary;

use super::values::{boundary, page_size, percent, scale_factor, within};
use super::{CommonArgs, DeviceArgs};
use crate::size_class::SizeClass;

/// `weft-bench io`.
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

/// `weft-bench scan`.
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

/// `weft-bench lookup`.
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

/// `weft-bench prefetch`.
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

/// `weft-bench probe`.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Keys of the index; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "10000,60000000", value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows: Vec<u64>,

    /// Lookups in flight at a time, of the variants that suspend; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,10,16,24,32", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,

    /// Neither prefetching nor suspending, prefetching, a state machine, coroutines, coroutines with a box per call; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "naive,ermia,amac-mk,coro-mk,coro-fn-mk", value_name = "LIST", value_parser = ["naive", "ermia", "amac-mk", "coro-mk", "coro-fn-mk"])]
    pub variant: Vec<String>,

    /// Time of a run
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
}

impl ProbeArgs {
    /// The variants, each once.
    pub fn variants(&self) -> Vec<String> {
        let mut variants: Vec<String> = Vec::new();
        for variant in &self.variant {
            if !variants.contains(variant) {
                variants.push(variant.clone());
            }
        }
        variants
    }
}

/// `weft-bench coroutine`.
#[derive(Args, Clone, Debug)]
pub struct CoroutineArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// Keys of a coroutine, each of which is a call; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "128", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub keys: Vec<u32>,
}

/// `weft-bench tpcc`.
#[derive(Args, Clone, Debug)]
pub struct TpccArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// The mix: tpcc (the standard one), tpccr (Order-Status and Stock-Level in halves), tpcch (with a tenth of Q2*); a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "tpcc,tpccr,tpcch", value_name = "LIST", value_parser = ["tpcc", "tpccr", "tpcch"])]
    pub workload: Vec<String>,

    /// One transaction at a time, without prefetching, with it, and with lookups of many keys; batches of coroutines, with a box per
    /// call and flat, of whole batches at a time, and with lookups of many keys; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "naive,ermia,coro-mk,corobase-fn,corobase,hybrid", value_name = "LIST", value_parser = ["naive", "ermia", "coro-mk", "corobase-fn", "corobase", "corobase-hard", "hybrid"])]
    pub variant: Vec<String>,

    /// Warehouses, of about 110 MiB of memory each
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32_767))]
    pub warehouses: u16,

    /// Suppliers that Q2* looks at, of 10,000; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "100", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub suppliers: Vec<u32>,

    /// Transactions of a worker at a time, of the variants with batches; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "8", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,

    /// Snapshot isolation, or the serial safety net on top of it; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "SI", value_name = "LIST", value_parser = ["SI", "SSN"])]
    pub isolation: Vec<String>,

    /// Log changes in the data directory, wait for each commit to be durable, and check what a recovery finds at the end
    #[arg(long)]
    pub durable: bool,

    /// Time of a run
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
}

/// `weft-bench htap`.
#[derive(Args, Clone, Debug)]
pub struct HtapArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// How transactions run: as for `tpcc`
    #[arg(long, default_value = "corobase", value_name = "VARIANT", value_parser = ["naive", "ermia", "coro-mk", "corobase-fn", "corobase", "corobase-hard", "hybrid"])]
    pub variant: String,

    /// Warehouses, of about 330 MiB of memory each with what transactions add
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32_767))]
    pub warehouses: u16,

    /// Transactions of a worker at a time, of the variants with batches
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,

    /// Which queries, such as 1,6,14 [default: all 22]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=22))]
    pub queries: Vec<u32>,

    /// Threads of the queries, beside those of the transactions
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub query_threads: u32,

    /// Time of the run of transactions alone
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
}

/// `weft-bench ycsb`.
#[derive(Args, Clone, Debug)]
pub struct YcsbArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// What transactions do: read, update, rmw (reads, each with an update of its row), mixed (two of these, and reads), insert, or scan; a list
    /// sweeps
    #[arg(long, value_delimiter = ',', default_value = "read,update,mixed", value_name = "LIST", value_parser = ["read", "update", "rmw", "mixed", "insert", "scan"])]
    pub workload: Vec<String>,

    /// One transaction at a time, without prefetching, with it, with lookups of all its keys by a state machine, by coroutines, and by
    /// coroutines with a box per call; batches of coroutines, with a box per call and flat, and of whole batches at a time; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "naive,ermia,amac-mk,coro-mk,coro-fn-mk,corobase-fn,corobase", value_name = "LIST", value_parser = ["naive", "ermia", "amac-mk", "coro-mk", "coro-fn-mk", "corobase-fn", "corobase", "corobase-hard"])]
    pub variant: Vec<String>,

    /// Rows of the table; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "10000000", value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows: Vec<u64>,

    /// Operations of a transaction, or rows of a scan; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "10", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub operations: Vec<u32>,

    /// Skew of the keys, of a Zipfian distribution: 0 is uniform, below 1; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "LIST", value_parser = theta)]
    pub theta: Vec<f64>,

    /// Bytes of a key
    #[arg(long, default_value_t = 8, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(8..=64))]
    pub key_bytes: u16,

    /// Bytes of a value
    #[arg(long, default_value_t = 8, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(8..=1024))]
    pub value_bytes: u16,

    /// Transactions of a worker at a time, of the variants with batches; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "8", value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: Vec<u32>,

    /// Snapshot isolation, or the serial safety net on top of it; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "SI", value_name = "LIST", value_parser = ["SI", "SSN"])]
    pub isolation: Vec<String>,

    /// Percentage of the table and its index that memory holds: below 100, both lie in files of the data directory; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "100", value_name = "LIST", allow_negative_numbers = true, value_parser = percent)]
    pub cached: Vec<f64>,

    /// How requests reach the device, where memory does not hold all: blocking, auto, uring or posix; a list sweeps
    #[arg(long, value_delimiter = ',', default_value = "blocking,uring", value_name = "LIST", value_parser = ["auto", "uring", "posix", "blocking"])]
    pub driver: Vec<String>,

    /// Time of a run
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: f64,
}

fn theta(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if (0.0..1.0).contains(&theta) => Ok(theta),
        _ => Err("expected a number from 0 to below 1".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let range = 0.001..=3600.0;
    if range.contains(&seconds) {
        Ok(seconds)
    } else {
        Err("not between 0.001 and 3600 seconds".into())
    }
}
