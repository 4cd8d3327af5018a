//! What a scan is asked for, and what it has done.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DECIMAL64_MAX_PRECISION, DataType};
use weft_codec::Predicate;
use weft_rt::Share;
use weft_rt::cancel::CancelToken;
use weft_rt::progress::Progress;

use crate::page_io::ReadStats;
use crate::schema::scan_type;

/// Name of the column with the row ids, which comes last where it is asked for: 64 bits, unsigned.
pub const ROW_ID: &str = "rowid";

/// Says of the values of a column which rows are wanted: whoever scans knows more than a predicate can say.
pub trait ColumnFilter: fmt::Debug + Send + Sync {
    /// False if so many rows are wanted that it is better not to ask.
    fn is_worth_it(&self) -> bool;

    /// A bit for each value, which comes in the type of [`ScanOptions::data_type`]; `None` if all are wanted. The values
    /// stand for so many rows: several for each, if they follow each other.
    fn wanted(&self, values: &ArrayRef, rows: usize) -> Option<BooleanBuffer>;
}

/// What a scan gives and how.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Columns by number, in the order in which they are to come; none to count rows only.
    pub projection: Vec<usize>,
    /// Conditions on columns; only rows that satisfy all of them come.
    pub predicates: Vec<(usize, Predicate)>,
    /// Conditions that rows are not looked at for: what is left out are row groups and blocks whose zones say that no
    /// row satisfies them.
    pub zone_predicates: Vec<(usize, Predicate)>,
    /// Columns that are decoded first, and what says then which rows are wanted of the others.
    pub filters: Vec<(usize, Arc<dyn ColumnFilter>)>,
    /// Rows of a batch, at most.
    pub batch_rows: usize,
    /// Row groups that each worker has in flight, at most; fewer where memory is short.
    pub io_depth: usize,
    /// Workers that read and decode, at most; all of the runtime's by default.
    pub workers: usize,
    /// The part of each worker's time that reading and decoding get; as much as any other task's by default.
    pub share: Option<Share>,
    /// Only these row groups, by number.
    pub row_groups: Option<Range<usize>>,
    /// Adds a column with the row ids.
    pub with_row_id: bool,
    /// Decimals of up to 18 digits leave in 64 bits, as `Decimal64`, instead of the 128 that they may be declared with.
    pub narrow_decimals: bool,
    /// Ends the scan early.
    pub cancel: CancelToken,
    /// Counts row groups, rows and bytes read.
    pub progress: Arc<Progress>,
}

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions {
            projection: Vec::new(),
            predicates: Vec::new(),
            zone_predicates: Vec::new(),
            filters: Vec::new(),
            batch_rows: 8192,
            io_depth: 32,
            workers: usize::MAX,
            share: None,
            row_groups: None,
            with_row_id: false,
            narrow_decimals: false,
            cancel: CancelToken::new(),
            progress: Arc::new(Progress::new()),
        }
    }
}

impl ScanOptions {
    /// The type in which values of a column declared with `data_type` leave.
    pub fn data_type(&self, data_type: &DataType) -> DataType {
        match data_type {
            DataType::Decimal128(digits, scale)
                if self.narrow_decimals && *digits <= DECIMAL64_MAX_PRECISION =>
            {
                DataType::Decimal64(*digits, *scale)
            }
            other => scan_type(other),
        }
    }
}

/// What a scan has done so far; of all its partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Bytes read from devices.
    pub bytes_read: u64,
    /// Requests to devices.
    pub reads: u64,
    /// Pages that were in memory already.
    pub cache_hits: u64,
    /// Time that row groups waited for their pages, summed over those in flight together, in ns.
    pub io_wait_ns: u64,
    /// Row groups of the scan.
    pub row_groups: u64,
    /// Row groups that their zones excluded.
    pub row_groups_pruned: u64,
    /// Blocks of the other row groups that their zones excluded.
    pub blocks_pruned: u64,
    /// Rows of the row groups looked at.
    pub rows_in: u64,
    /// Rows given.
    pub rows_out: u64,
}

/// The counters behind [`ScanStats`].
#[derive(Debug, Default)]
pub(crate) struct ScanCounters {
    pub(crate) row_groups: AtomicU64,
    pub(crate) row_groups_pruned: AtomicU64,
    pub(crate) blocks_pruned: AtomicU64,
    pub(crate) rows_in: AtomicU64,
    pub(crate) rows_out: AtomicU64,
}

impl ScanCounters {
    pub(crate) fn stats(&self, read: &ReadStats) -> ScanStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ScanStats {
            bytes_read: of(&read.bytes),
            reads: of(&read.reads),
            cache_hits: of(&read.hits),
            io_wait_ns: of(&read.wait_ns),
            row_groups: of(&self.row_groups),
            row_groups_pruned: of(&self.row_groups_pruned),
            blocks_pruned: of(&self.blocks_pruned),
            rows_in: of(&self.rows_in),
            rows_out: of(&self.rows_out),
        }
    }
}
