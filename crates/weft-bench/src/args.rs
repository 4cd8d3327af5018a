//! The options of `weft-bench`: which experiment, and what all of them have.

mod all;
mod database;
mod device;
mod papers;
mod values;

use std::path::PathBuf;
use std::thread;

use clap::{Args, Subcommand};

use crate::error::BenchError;
use crate::report::FIELD_HELP;
use crate::workload::{TPCDS, TPCH};

pub use all::AllArgs;
pub use database::{
    CompileArgs, DataArgs, DatabaseArgs, InljArgs, MemoryArgs, RateArgs, Settings, SpillArgs,
    StorageArgs, SuiteArgs, TpcdsArgs, TpchArgs, setting,
};
pub use device::{DeviceArgs, DriverName, SimArgs};
pub use papers::{
    CoroutineArgs, HtapArgs, IoArgs, LookupArgs, PrefetchArgs, ProbeArgs, ScanArgs, TableArgs,
    TpccArgs, YcsbArgs,
};
pub use values::Neighbour;

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
    /// CoroBase's figure 5.1: requests of ten keys looked up in a B+tree in memory, by each variant of the same code
    #[command(after_long_help = json_help())]
    Probe(ProbeArgs),
    /// What a call of an awaited function costs one thread, whatever --threads says, when it suspends and when not: from an async fn of
    /// Rust, from a generated coroutine, and boxed
    #[command(after_long_help = json_help())]
    Coroutine(CoroutineArgs),
    /// CoroBase's table 5.1 and figures 5.10 and 5.11: TPC-C, read-only, and with a query, by each variant of the same transactions;
    /// checks the twelve consistency conditions at the end
    #[command(after_long_help = json_help())]
    Tpcc(TpccArgs),
    /// CoroBase's figures 5.2 to 5.8 and 5.12: YCSB by each variant of the same transactions, in memory and in files that memory
    /// holds a part of; checks at the end that no update is lost
    #[command(after_long_help = json_help())]
    Ycsb(YcsbArgs),
    /// Transactions and analytics on the same tables: TPC-C while the 22 queries of the CH-benCHmark run, each alone and both at once;
    /// checks consistency in snapshots meanwhile, and all answers at the end
    #[command(after_long_help = json_help())]
    Htap(HtapArgs),
    /// TPC-H on the database: loads it if needed, runs the 22 queries and checks their answers
    #[command(after_long_help = json_help())]
    Tpch(TpchArgs),
    /// TPC-DS on the database: loads it if needed, runs the 99 queries and checks their answers
    #[command(after_long_help = json_help())]
    Tpcds(TpcdsArgs),
    /// Resident memory during an import, scans, groupings, sorts and joins of data that is ten times larger
    /// than the memory limit; fails if it is more than the limit, 5 % of it and 64 MiB
    #[command(after_long_help = json_help())]
    Memory(MemoryArgs),
    /// An aggregation with about as many groups as rows, at one memory limit or several
    #[command(after_long_help = json_help())]
    Agg(SpillArgs),
    /// Joins with a large side and with two, at one memory limit or several
    #[command(after_long_help = json_help())]
    Join(SpillArgs),
    /// A sort of all of lineitem, at one memory limit or several
    #[command(after_long_help = json_help())]
    Sort(SpillArgs),
    /// What compression saves and costs on the pages that these spill
    #[command(after_long_help = json_help())]
    Compression(SpillArgs),
    /// Figure 10: TPC-H queries 4, 5 and 10 by index-nested-loop joins, over the part of what they read that fits in memory
    #[command(after_long_help = json_help())]
    Inlj(InljArgs),
    /// How lineitem lies on disk: bytes per value of each column, cold and hot scans by one thread
    #[command(after_long_help = json_help())]
    Storage(StorageArgs),
    /// How fast one thread, whatever --threads says, runs queries 1 and 6 of TPC-H in memory, beside loops written by hand
    #[command(after_long_help = json_help())]
    Rate(RateArgs),
    /// TPC-H queries in memory with compiled pipelines and without, and what compiling takes
    #[command(after_long_help = json_help())]
    Compile(CompileArgs),
    /// Measures nothing: makes the Parquet files that the others load, where they are missing, and with --load the database
    Data(DataArgs),
}

impl Experiment {
    /// Where the data lies: the data directory, or the devices given instead.
    pub fn places(&self) -> Vec<PathBuf> {
        let device = match self {
            Experiment::All(_)
            | Experiment::Prefetch(_)
            | Experiment::Probe(_)
            | Experiment::Coroutine(_)
            | Experiment::Tpcc(_)
            | Experiment::Ycsb(_)
            | Experiment::Htap(_)
            | Experiment::Data(_) => {
                return vec![self.common().data.clone()];
            }
            Experiment::Io(args) => &args.device,
            Experiment::Scan(args) => &args.device,
            Experiment::Lookup(args) => &args.device,
            Experiment::Tpch(args) => return args.suite.places(&TPCH),
            Experiment::Tpcds(args) => return args.suite.places(&TPCDS),
            Experiment::Agg(args)
            | Experiment::Join(args)
            | Experiment::Sort(args)
            | Experiment::Compression(args) => {
                return vec![args.database.database(&TPCH)];
            }
            Experiment::Rate(args) => return vec![args.database()],
            Experiment::Compile(args) => return vec![args.database()],
            Experiment::Inlj(args) => return vec![args.database()],
            Experiment::Memory(_) | Experiment::Storage(_) => {
                return vec![self.common().data.clone()];
            }
        };
        device.directories(self.common())
    }

    /// Looks whether the values of options can be, as far as that is not seen at once.
    ///
    /// # Errors
    /// [`BenchError::Option`] for the first that cannot.
    pub fn check(&self) -> Result<(), BenchError> {
        match self {
            Experiment::Agg(args)
            | Experiment::Join(args)
            | Experiment::Sort(args)
            | Experiment::Compression(args) => args.check(),
            Experiment::Tpch(args) => args.suite.database.check(),
            Experiment::Tpcds(args) => args.suite.database.check(),
            _ => Ok(()),
        }
    }

    /// The options that every experiment has.
    pub fn common(&self) -> &CommonArgs {
        match self {
            Experiment::All(args) => &args.common,
            Experiment::Io(args) => &args.common,
            Experiment::Scan(args) => &args.common,
            Experiment::Lookup(args) => &args.common,
            Experiment::Prefetch(args) => &args.common,
            Experiment::Probe(args) => &args.common,
            Experiment::Coroutine(args) => &args.common,
            Experiment::Tpcc(args) => &args.common,
            Experiment::Htap(args) => &args.common,
            Experiment::Ycsb(args) => &args.common,
            Experiment::Tpch(args) => &args.suite.database.common,
            Experiment::Tpcds(args) => &args.suite.database.common,
            Experiment::Agg(args)
            | Experiment::Join(args)
            | Experiment::Sort(args)
            | Experiment::Compression(args) => &args.database.common,
            Experiment::Memory(args) => &args.common,
            Experiment::Inlj(args) => &args.common,
            Experiment::Storage(args) => &args.common,
            Experiment::Rate(args) => &args.common,
            Experiment::Compile(args) => &args.common,
            Experiment::Data(args) => &args.common,
        }
    }

    fn common_mut(&mut self) -> &mut CommonArgs {
        match self {
            Experiment::All(args) => &mut args.common,
            Experiment::Io(args) => &mut args.common,
            Experiment::Scan(args) => &mut args.common,
            Experiment::Lookup(args) => &mut args.common,
            Experiment::Prefetch(args) => &mut args.common,
            Experiment::Probe(args) => &mut args.common,
            Experiment::Coroutine(args) => &mut args.common,
            Experiment::Tpcc(args) => &mut args.common,
            Experiment::Htap(args) => &mut args.common,
            Experiment::Ycsb(args) => &mut args.common,
            Experiment::Tpch(args) => &mut args.suite.database.common,
            Experiment::Tpcds(args) => &mut args.suite.database.common,
            Experiment::Agg(args)
            | Experiment::Join(args)
            | Experiment::Sort(args)
            | Experiment::Compression(args) => &mut args.database.common,
            Experiment::Memory(args) => &mut args.common,
            Experiment::Inlj(args) => &mut args.common,
            Experiment::Storage(args) => &mut args.common,
            Experiment::Rate(args) => &mut args.common,
            Experiment::Compile(args) => &mut args.common,
            Experiment::Data(args) => &mut args.common,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_each_value_once() {
        assert_eq!(distinct(&[4, 1, 4, 1]), [4, 1]);
    }
}
