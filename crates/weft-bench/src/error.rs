//! What can go wrong in an experiment.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use arrow::error::ArrowError;
use weft_buffer::static_cache::CacheError;
use weft_buffer::{BufferError, PageId, StaticPool};
use weft_index::IndexError;
use weft_rt::io::FileError;
use weft_rt::{JoinError, MorselError, RuntimeError};
use weft_store::StoreError;
use weft_tpcc::TpccError;
use weft_ycsb::YcsbError;

use crate::report::ReportError;
use crate::report::units::bytes as in_units;
use crate::tpch::{LayoutError, TpchError};
use crate::workload::{WorkloadError, advice};

/// Why an experiment has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Options that contradict each other or the machine.
    #[error("{0}")]
    Usage(String),
    /// The data could not be generated or opened, or an answer was wrong.
    #[error(transparent)]
    Tpch(#[from] TpchError),
    /// A workload's data could not be had, a statement failed, or an answer was wrong.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The storage could not be opened, written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Rows could not be made.
    #[error("cannot make rows: {0}; please report it")]
    Rows(#[from] ArrowError),
    /// A page could not be read.
    #[error("{what}; {advice}", what = .0, advice = of_buffer(.0))]
    Buffer(#[from] BufferError),
    /// A page could not be read from a simulated device.
    #[error("{device}: {source}; {advice}", advice = of_simulated(source))]
    Simulated {
        /// The device in words.
        device: String,
        /// What happened.
        source: BufferError,
    },
    /// A sound page that holds something else than the experiment expects.
    #[error("{page:?} in {path} is not usable: {source}; delete the file and run again")]
    Layout {
        /// The file.
        path: PathBuf,
        /// The page.
        page: PageId,
        /// What is wrong with it.
        source: LayoutError,
    },
    /// A walk through memory ended elsewhere than it must.
    #[error(
        "the walks of {batch} coroutines through {place} read {found:#x} in all where {expected:#x} \
         is right; test the machine's memory"
    )]
    WrongWalk {
        /// Memory or cache.
        place: &'static str,
        /// Coroutines.
        batch: u32,
        /// The sum of the last words read.
        found: u64,
        /// What it has to be.
        expected: u64,
    },
    /// Coroutines cannot be generated.
    #[error(
        "there is no code of coroutines for this processor, or no memory for it; use x86-64 or AArch64"
    )]
    NoCode,
    /// A call gave something else than it must.
    #[error(
        "a call by {variant} gave {found:?} for key {key} where {expected:?} is right; please report it"
    )]
    WrongCall {
        /// How it was called.
        variant: &'static str,
        /// What it was called with.
        key: u64,
        /// What it gave.
        found: [u64; 2],
        /// What it has to give.
        expected: [u64; 2],
    },
    /// A snapshot violates what all transactions keep.
    #[error(
        "a snapshot has part of a transaction: that {condition} does not hold ({rows}); please report it"
    )]
    Condition {
        /// What does not hold.
        condition: &'static str,
        /// What was found instead of 0.
        rows: String,
    },
    /// More memory than there is.
    #[error("{purpose} would take {} of memory, {} are available; {advice}", in_units(*.bytes), in_units(*.available))]
    Memory {
        /// What for.
        purpose: &'static str,
        /// Bytes needed.
        bytes: u64,
        /// Bytes available.
        available: u64,
        /// What the user can do.
        advice: &'static str,
    },
    /// The file to read from does not fit.
    #[error(
        "the disk is full at {path}, which needs {mib} MiB; free some space, or choose a smaller \
         --size, another --data or another --device"
    )]
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
        /// Its size.
        mib: u64,
    },
    /// A file could not be opened, read or written.
    #[error("{what}; {advice}", what = .0, advice = of_file(.0))]
    File(#[from] FileError),
    /// Something other than a device request failed.
    #[error("cannot {action} {path}: {source}; check the path and its permissions")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A value of an option that a database would not take.
    #[error("--{option}: {source}{}", advice(.source))]
    Option {
        /// The option.
        option: String,
        /// What the database says.
        source: weft::Error,
    },
    /// The neighbour was late.
    #[error(
        "{queries}: the query ended before the neighbour came; have it come earlier with --neighbour, or have the query \
         take longer with a larger --scale or a lower --memory-limit"
    )]
    NoNeighbour {
        /// In which queries.
        queries: String,
    },
    /// A lookup in an index failed.
    #[error("{0}; use fewer --rows")]
    Index(#[from] IndexError),
    /// TPC-C could not be loaded or run, or has left the database inconsistent.
    #[error("{0}; {advice}", advice = of_tpcc(.0))]
    Tpcc(#[from] TpccError),
    /// YCSB could not be loaded or run, or has lost an update.
    #[error("{0}; {advice}", advice = of_ycsb(.0))]
    Ycsb(#[from] YcsbError),
    /// The workers could not be started.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A worker's task was lost.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// Data could not be made by a process of its own.
    #[error("the process that makes the data failed ({0}); what it says is above")]
    Generation(ExitStatus),
    /// Queries have no answer, or a wrong one.
    #[error("queries have failed:\n{failed}")]
    Queries {
        /// Which, how they were run, and what happened: a line each.
        failed: String,
    },
    /// Two things are wrong with what was measured.
    #[error("{0}\n{1}")]
    Both(Box<BenchError>, Box<BenchError>),
    /// A process had more resident memory than it may.
    #[error(
        "{phases}: more resident memory than the limit, 5 % of it and 64 MiB; please report it with \
         the table above"
    )]
    Resident {
        /// What ran meanwhile.
        phases: String,
    },
    /// The report could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// fio did not do its part.
    #[error("fio: {0}; install fio, or leave out --fio")]
    Fio(String),
}

impl BenchError {
    /// The error for page number `page` of a pool's table.
    pub fn layout(pool: &StaticPool, page: usize, source: LayoutError) -> BenchError {
        let page = pool.table().id(page);
        BenchError::Layout { path: pool.devices().of(page).path().to_owned(), page, source }
    }
}

/// What to do about TPC-C that cannot be run.
fn of_tpcc(error: &TpccError) -> &'static str {
    match error {
        TpccError::Inconsistent { .. } | TpccError::Missing { .. } => {
            "run again with the same --seed"
        }
        TpccError::Transaction(_) | TpccError::Index(_) | TpccError::Buffer(_) => {
            "use fewer --warehouses or fewer --seconds"
        }
        _ => "see weft-bench tpcc --help",
    }
}

/// What to do about YCSB that cannot be run.
fn of_ycsb(error: &YcsbError) -> &'static str {
    match error {
        YcsbError::Inconsistent { .. } | YcsbError::Missing(_) => "run again with the same --seed",
        YcsbError::Transaction(_) | YcsbError::Index(_) | YcsbError::Buffer(_) => {
            "use fewer --rows or fewer --seconds"
        }
        _ => "see weft-bench ycsb --help",
    }
}

/// What to do about a page that cannot be had.
fn of_buffer(error: &BufferError) -> &'static str {
    match error {
        BufferError::Read(error) | BufferError::WriteBack { source: error, .. } => of_file(error),
        BufferError::Page { .. } | BufferError::Vacant { .. } => {
            "delete the file and run again, which writes it anew"
        }
        BufferError::Memory { .. } | BufferError::Budget(_) => {
            "use a lower --depth or fewer --threads"
        }
        BufferError::Device { .. } => "name all directories of the data",
    }
}

/// What to do about a page that cannot be had from a simulated device.
fn of_simulated(error: &BufferError) -> &'static str {
    match error {
        BufferError::Read(FileError::Transfer { .. }) => {
            "simulated devices fail only when --sim-error-after asks for it"
        }
        other => of_buffer(other),
    }
}

/// What to do about a file that cannot be used.
fn of_file(error: &FileError) -> &'static str {
    match error {
        FileError::Open { .. } => "check that the path is the one you mean and may be read",
        FileError::Transfer { .. } => {
            "see the kernel's log (dmesg) for the device, or use another --data or --device"
        }
        FileError::Truncated { .. } => "delete the file and run again, which writes it anew",
        FileError::Kind { .. } => "name a directory, a file or a block device",
    }
}

impl From<CacheError> for BenchError {
    fn from(error: CacheError) -> BenchError {
        match error {
            CacheError::Buffer(error) => error.into(),
            CacheError::Join(error) => error.into(),
        }
    }
}

impl From<MorselError<BenchError>> for BenchError {
    fn from(error: MorselError<BenchError>) -> BenchError {
        match error {
            MorselError::Failed(error) => error,
            MorselError::Cancelled => BenchError::Cancelled,
            MorselError::Join(error) => error.into(),
        }
    }
}
