//! Scans by whoever runs on the workers itself: row groups are handed out, and read and decoded on the worker that took
//! them, without a channel between.
//!
//! The scan shares everything else with [`Scan`](crate::Scan): the plan, what is in flight, memory, counters.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use weft_rt::memory::Ledger;
use weft_rt::worker_index;

use crate::error::Result;
use crate::group_rows::{GroupRows, ScanRows};
use crate::page_io::count;
use crate::scan::{DECODED_GROUPS, InFlight, Plan, ScanShared};
use crate::scan_group::read_group;
use crate::scan_options::{ScanOptions, ScanStats};
use crate::table::Table;

/// A scan that hands out its row groups. Clones are the same scan.
#[derive(Clone, Debug)]
pub struct MorselScan {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<ScanShared>,
    shares: Vec<Share>,
}

/// What one worker may have in flight. Workers share none of it: whoever has rows of the scan may wait for memory that
/// others hold, and those others come to give it back only if they can go on reading.
#[derive(Debug)]
struct Share {
    in_flight: InFlight,
    /// A budget in row groups that are decoded and not yet used up.
    decoding: Ledger,
}

impl Table {
    /// The rows, to be read by coroutines of this database's workers; [`ScanOptions::io_depth`] is theirs to keep.
    ///
    /// # Errors
    /// As [`Table::scan`].
    pub fn scan_morsels(self: &Arc<Self>, options: ScanOptions) -> Result<MorselScan> {
        let shared = ScanShared::new(self, options, true)?;
        let workers = self.access.runtime.workers();
        let share = |_| Share {
            in_flight: InFlight::new(&self.access.ledger, workers),
            decoding: Ledger::new(DECODED_GROUPS),
        };
        let shares = (0..workers).map(share).collect();
        Ok(MorselScan { inner: Arc::new(Inner { shared, shares }) })
    }
}

impl MorselScan {
    /// The schema of the batches, but for dictionaries ([`ScanMorsel::next`]).
    pub fn schema(&self) -> SchemaRef {
        self.inner.shared.schema.clone()
    }

    /// Finds out which row groups there are to read, on a worker. To be awaited before the first [`MorselScan::next`].
    ///
    /// # Errors
    /// Those of reading the table's directory.
    pub async fn open(&self) -> Result<()> {
        self.inner.shared.plan().await.map(drop)
    }

    /// The next rows to read: a row group, all of a small table, or rows that are only counted; `None` when all have
    /// been handed out.
    ///
    /// # Panics
    /// If the scan was not opened.
    pub fn next(&self) -> Option<ScanMorsel> {
        let plan = self.plan();
        let groups = plan.queue.next().map(|groups| Part::Groups { groups, rows: None });
        let part =
            groups.or_else(|| plan.counted.next().map(|rows| Part::Counted(rows.end - rows.start)));
        part.map(|part| ScanMorsel { scan: self.clone(), part })
    }

    /// How many morsels each of `workers` may have at once, so that all have some to the end.
    ///
    /// # Panics
    /// If the scan was not opened.
    pub fn share(&self, workers: usize) -> usize {
        self.plan().queue.share(workers)
    }

    /// What was done so far.
    pub fn stats(&self) -> ScanStats {
        self.inner.shared.stats()
    }

    fn plan(&self) -> &Plan {
        self.inner.shared.plan.get().expect("the scan was opened")
    }
}

/// Rows that one coroutine reads.
#[derive(Debug)]
pub struct ScanMorsel {
    scan: MorselScan,
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// Row groups, by their places in the plan, and what is left of the one before.
    Groups { groups: std::ops::Range<u64>, rows: Option<Box<GroupRows>> },
    /// So many, without columns.
    Counted(u64),
}

impl ScanMorsel {
    /// The next rows; `None` after the last. On a worker of the database's runtime. The memory of the batches of a row
    /// group is the scan's until the call after its last batch, or until this is dropped.
    ///
    /// Rows come as they lie: strings that are stored as a dictionary of few entries as one, `Dictionary(UInt16, views)`,
    /// and most of the rows of a row group as all of them, with a selection.
    ///
    /// # Errors
    /// What went wrong with a file, naming table, row group and column.
    pub async fn next(&mut self) -> Result<Option<ScanRows>> {
        let Inner { shared, shares } = &*self.scan.inner;
        let Share { in_flight, decoding } = &shares[worker_index() % shares.len()];
        let (groups, rows) = match &mut self.part {
            Part::Groups { groups, rows } => (groups, rows),
            Part::Counted(rows) => {
                let rows = std::mem::take(rows);
                let counted = (rows > 0).then(|| counted(shared, rows));
                return Ok(counted.map(|batch| ScanRows { batch, selected: None }));
            }
        };
        loop {
            if let Some(group) = rows {
                if let Some(rows) = group.next(shared).await? {
                    return Ok(Some(rows));
                }
                *rows = None;
                in_flight.widen();
                shared.options.progress.add_done(1);
            }
            let Some(place) = groups.next() else { return Ok(None) };
            let plan = self.scan.plan();
            let (segment, within, number) = plan.groups[place as usize];
            let segment = &plan.directory[segment];
            let read = read_group(shared, in_flight, segment, (within, number), decoding).await?;
            *rows = Some(Box::new(read));
        }
    }
}

/// A batch of `rows` rows without columns.
fn counted(shared: &ScanShared, rows: u64) -> RecordBatch {
    count(&shared.counters.rows_out, rows);
    shared.options.progress.add_rows(rows);
    let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
    let batch = RecordBatch::try_new_with_options(shared.schema.clone(), Vec::new(), &options);
    batch.expect("no columns, of any length")
}
