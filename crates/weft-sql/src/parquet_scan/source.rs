//! The source: pieces of row groups, for any worker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::conjunction;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use weft_exec::Lane;
use weft_exec::pipeline::{Morsel, Source};
use weft_exec::profile::{Fact, Facts};
use weft_exec::program::Constant;
use weft_exec::query::Context;
use weft_exec::source::{AskedBounds, AskedColumn};
use weft_parquet::{InFlight, Piece, ReadCounts};
use weft_rt::MorselQueue;
use weft_rt::memory::Reservation;

use super::condition::Condition;
use super::file::{TableFile, open};
use super::morsel::{InOrder, PieceMorsel};
use super::node::ScanOf;
use super::pieces::{Cut, divided};
use crate::control::units_of_files;
use crate::file_readers::batch_rows;
use crate::plan_node::Expr;

/// Files that are opened at once.
const OPENED_AT_ONCE: usize = 16;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// Pieces that a worker reads and decodes at once, at most.
const DEPTH: usize = 4;

/// The same of files elsewhere: each waits for tens of milliseconds.
const REMOTE_DEPTH: usize = 16;

/// A scan of Parquet files.
#[derive(Debug)]
pub(crate) struct ParquetScan {
    scan: Arc<ScanOf>,
    lanes: Arc<[Lane]>,
    condition: Option<Arc<Condition>>,
    bounds: Vec<AskedBounds>,
    asked: Vec<Arc<AskedColumn>>,
    is_ordered: Arc<AtomicBool>,
    counts: Arc<ReadCounts>,
    shared: Arc<OnceLock<Arc<Shared>>>,
}

/// What the morsels of a scan share.
pub(super) struct Shared {
    pub(super) lanes: Arc<[Lane]>,
    /// The columns that the scan gives, by their places among those that it wants.
    pub(super) output: Vec<usize>,
    pub(super) condition: Option<ByPlaces<Arc<Condition>>>,
    pub(super) asked: Vec<ByPlaces<Arc<AskedColumn>>>,
    pub(super) files: Vec<TableFile>,
    /// Which file, and what of it.
    pub(super) pieces: Vec<(usize, Piece)>,
    queue: MorselQueue,
    pub(super) in_flight: InFlight,
    pub(super) context: Context,
    pub(super) batch_rows: usize,
    pub(super) counts: Arc<ReadCounts>,
    pub(super) rows: AtomicU64,
    pub(super) rows_skipped: AtomicU64,
    groups: u64,
    groups_pruned: u64,
    told_bytes: AtomicU64,
    /// The memory of the footers, if there is some: they are needed in any case.
    _footers: Option<Reservation>,
}

/// Something that looks at columns, by their places among those that the scan wants.
#[derive(Debug)]
pub(super) struct ByPlaces<T> {
    pub(super) places: Vec<usize>,
    pub(super) of: T,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} pieces of {} files", self.pieces.len(), self.files.len())
    }
}

impl ParquetScan {
    /// Scans files, a column for each of `lanes`, without most rows that `condition` does not hold of, as long as these are many.
    pub(crate) fn new(
        scan: Arc<ScanOf>,
        lanes: Vec<Lane>,
        condition: Option<Condition>,
    ) -> ParquetScan {
        ParquetScan {
            scan,
            lanes: lanes.into(),
            condition: condition.map(Arc::new),
            bounds: Vec::new(),
            asked: Vec::new(),
            is_ordered: Arc::default(),
            counts: Arc::default(),
            shared: Arc::default(),
        }
    }

    /// The same scan, without row groups and pages that have nothing between these bounds, and without most rows that
    /// the filters drop, as long as they drop many.
    pub(crate) fn asking(self, bounds: Vec<AskedBounds>, asked: Vec<AskedColumn>) -> ParquetScan {
        bounds.iter().for_each(AskedBounds::want);
        let asked = asked.into_iter().map(Arc::new).collect();
        ParquetScan { bounds, asked, ..self }
    }

    /// To be set, before the query runs, if one worker is to get all rows, in the order of the files.
    pub(crate) fn is_ordered(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_ordered)
    }

    /// The condition of the plan, and the bounds of the joins' keys, when they are known.
    fn predicate(&self) -> Option<Expr> {
        let mut conditions: Vec<Expr> = self.scan.predicate.iter().cloned().collect();
        for asked in &self.bounds {
            let column = self.scan.projection[asked.column];
            let field = self.scan.table.field(column);
            let Some(bounds) = asked.get() else { continue };
            let Some((least, greatest)) = bounds else {
                conditions.push(Arc::new(Literal::new(ScalarValue::Boolean(Some(false)))));
                continue;
            };
            for (op, bound) in [(Operator::GtEq, least), (Operator::LtEq, greatest)] {
                let Some(value) = scalar(&bound, field.data_type()) else { continue };
                let left: Expr = Arc::new(Column::new(field.name(), column));
                let right: Expr = Arc::new(Literal::new(value));
                conditions.push(Arc::new(BinaryExpr::new(left, op, right)));
            }
        }
        (!conditions.is_empty()).then(|| conjunction(conditions))
    }

    /// The columns of the table that are needed, those that come first.
    fn wanted(&self) -> Vec<usize> {
        let mut wanted: Vec<usize> = Vec::new();
        let of_condition = self.condition.iter().flat_map(|condition| condition.columns());
        for column in self.scan.projection.iter().chain(of_condition) {
            if !wanted.contains(column) {
                wanted.push(*column);
            }
        }
        wanted
    }
}

/// A bound as statistics are compared with it; `None` where that is not worth it.
fn scalar(bound: &Constant, data_type: &DataType) -> Option<ScalarValue> {
    use ScalarValue as S;
    if let Constant::Str(bytes) = bound {
        let text = || std::str::from_utf8(bytes).ok().map(str::to_owned);
        return match data_type {
            DataType::Utf8 => text().map(|text| S::Utf8(Some(text))),
            DataType::LargeUtf8 => text().map(|text| S::LargeUtf8(Some(text))),
            DataType::Utf8View => text().map(|text| S::Utf8View(Some(text))),
            _ => None,
        };
    }
    // NaN is a key like others, but nothing that statistics know: no floats.
    let number = bound.integer()?;
    let narrow = i64::try_from(number).ok();
    Some(match data_type {
        DataType::Int8 => S::Int8(Some(i8::try_from(number).ok()?)),
        DataType::Int16 => S::Int16(Some(i16::try_from(number).ok()?)),
        DataType::Int32 => S::Int32(Some(i32::try_from(number).ok()?)),
        DataType::Int64 => S::Int64(Some(narrow?)),
        DataType::UInt8 => S::UInt8(Some(u8::try_from(number).ok()?)),
        DataType::UInt16 => S::UInt16(Some(u16::try_from(number).ok()?)),
        DataType::UInt32 => S::UInt32(Some(u32::try_from(number).ok()?)),
        DataType::UInt64 => S::UInt64(Some(u64::try_from(number).ok()?)),
        DataType::Date32 => S::Date32(Some(i32::try_from(number).ok()?)),
        DataType::Decimal128(digits, scale) => S::Decimal128(Some(number), *digits, *scale),
        DataType::Timestamp(..) => {
            S::Int64(Some(narrow?)).cast_to(data_type).ok().filter(|value| !value.is_null())?
        }
        _ => return None,
    })
}

impl Source for ParquetScan {
    fn facts(&self) -> Facts {
        let mut facts = vec![
            Fact::bytes("read", self.counts.bytes()),
            Fact::count("reads", self.counts.requests()),
            Fact::count("files", self.scan.files.len() as u64),
        ];
        let Some(shared) = self.shared.get() else { return facts };
        facts.push(Fact::count("row groups", shared.groups - shared.groups_pruned));
        if shared.groups_pruned > 0 {
            facts.push(Fact::count("row groups left out", shared.groups_pruned));
        }
        facts.push(Fact::count("rows looked at", shared.rows.load(Ordering::Relaxed)));
        if let Some(condition) = &self.condition {
            let (rows_in, rows_out) = condition.rows();
            let dropped = rows_in.saturating_sub(rows_out);
            if dropped > 0 {
                facts.push(Fact::count("rows dropped by the condition", dropped));
            }
        }
        let asked = self.asked.iter().map(|asked| asked.rows().get());
        let dropped: u64 = asked.map(|(rows_in, rows_out)| rows_in.saturating_sub(rows_out)).sum();
        if dropped > 0 {
            facts.push(Fact::count("rows dropped by filters", dropped));
        }
        let skipped = shared.rows_skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            facts.push(Fact::count("rows skipped", skipped));
        }
        facts
    }

    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, weft_exec::Result<()>> {
        let (scan, predicate) = (Arc::clone(&self.scan), self.predicate());
        let (wanted, condition) = (self.wanted(), self.condition.clone());
        let (lanes, asked) = (Arc::clone(&self.lanes), self.asked.clone());
        let (counts, context) = (Arc::clone(&self.counts), context.clone());
        let is_ordered = self.is_ordered.load(Ordering::Relaxed);
        async move {
            let opening = Opening {
                scan,
                predicate,
                wanted,
                condition,
                lanes,
                asked,
                counts,
                is_ordered,
                context: context.clone(),
            };
            // What reads from devices stays on one worker, which this future need not.
            let shared = context.on_a_worker(move || opening.open()).await?;
            shared.tell(0);
            self.shared.get_or_init(|| shared);
            Ok(())
        }
        .boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let shared = self.shared.get().expect("the source was opened");
        let number = shared.queue.next()?.start as usize;
        match self.is_ordered.load(Ordering::Relaxed) {
            true => Some(Box::new(InOrder::new(shared))),
            false => Some(Box::new(PieceMorsel::new(shared, number))),
        }
    }

    fn depth(&self, context: &Context) -> usize {
        let most = if self.scan.is_remote() { REMOTE_DEPTH } else { DEPTH };
        context.io_depth.min(most)
    }

    fn share(&self, context: &Context) -> usize {
        self.shared.get().map_or(1, |shared| shared.queue.share(context.workers))
    }
}

/// What it takes to open a scan.
struct Opening {
    scan: Arc<ScanOf>,
    predicate: Option<Expr>,
    wanted: Vec<usize>,
    condition: Option<Arc<Condition>>,
    lanes: Arc<[Lane]>,
    asked: Vec<Arc<AskedColumn>>,
    counts: Arc<ReadCounts>,
    is_ordered: bool,
    context: Context,
}

impl Opening {
    async fn open(self) -> weft_exec::Result<Arc<Shared>> {
        let Opening { scan, predicate, wanted, context, counts, .. } = self;
        let in_flight = InFlight::new(&context.ledger, context.workers);
        let bytes_max = in_flight.limit();
        let (files, workers) = (scan.files.len(), context.workers);
        let cut = Cut { bytes_max, files, workers };
        let one = async |file| {
            // Of files whose footers are known none waits.
            weft_rt::yield_now().await;
            open(&scan, file, &wanted, predicate.as_ref(), cut, &counts).await
        };
        let opened: Vec<_> = futures::stream::iter(&scan.files)
            .map(one)
            .buffered(OPENED_AT_ONCE)
            .try_collect()
            .await?;
        let place = |column: &usize| {
            let place = wanted.iter().position(|known| known == column);
            place.expect("the column is among those that are wanted")
        };
        let output: Vec<usize> = scan.projection.iter().map(place).collect();
        let condition = self
            .condition
            .map(|of| ByPlaces { places: of.columns().iter().map(place).collect(), of });
        let asked = self.asked.into_iter();
        let asked = asked.map(|of| ByPlaces { places: vec![output[of.column()]], of }).collect();
        let (mut files, mut pieces, mut groups, mut groups_pruned) = (vec![], vec![], 0, 0);
        for file in opened {
            let number = files.len();
            pieces.extend(file.pieces.into_iter().map(|piece| (number, piece)));
            files.push(file.file);
            groups += file.groups;
            groups_pruned += file.groups_pruned;
        }
        if !self.is_ordered && pieces.len() < context.workers {
            pieces = for_workers(pieces, &files, &output, bytes_max, context.workers);
        }
        let morsels = if self.is_ordered { 1 } else { pieces.len() as u64 };
        let limit = context.ledger.limit();
        let footer_bytes: usize = files.iter().map(|file| file.metadata().memory_size()).sum();
        Ok(Arc::new(Shared {
            _footers: context.ledger.try_reserve(footer_bytes as u64),
            lanes: self.lanes,
            output,
            condition,
            asked,
            files,
            pieces,
            queue: MorselQueue::new(morsels, 1),
            in_flight,
            batch_rows: scan.batch_rows.unwrap_or_else(|| batch_rows(BATCH_ROWS, limit)),
            context,
            counts,
            rows: AtomicU64::new(0),
            rows_skipped: AtomicU64::new(0),
            groups,
            groups_pruned,
            told_bytes: AtomicU64::new(0),
        }))
    }
}

/// Pieces of fewer row groups than there are workers, so that all have something to do, as long as the chunks of one are small.
fn for_workers(
    pieces: Vec<(usize, Piece)>,
    files: &[TableFile],
    output: &[usize],
    bytes_max: u64,
    workers: usize,
) -> Vec<(usize, Piece)> {
    let mut parts = Vec::new();
    let count = pieces.len().max(1);
    for (number, piece) in pieces {
        let metadata = files[number].metadata();
        let group = metadata.row_group(piece.row_group);
        let rows = usize::try_from(group.num_rows()).unwrap_or_default();
        let is_small = piece.bytes(metadata, &files[number].columns(output)) <= bytes_max / 2;
        let mut of_group = Vec::new();
        match is_small && piece.rows == rows {
            true => divided(piece, (2 * workers).div_ceil(count), rows, &mut of_group),
            false => of_group.push(piece),
        }
        parts.extend(of_group.into_iter().map(|piece| (number, piece)));
    }
    parts
}

impl Shared {
    /// Tells the statement of what was read.
    pub(super) fn tell(&self, rows: usize) {
        let progress = &self.context.progress;
        progress.add_rows(rows as u64);
        let bytes = self.counts.bytes();
        let before = self.told_bytes.fetch_max(bytes, Ordering::Relaxed).min(bytes);
        progress.add_bytes_read(bytes - before);
        progress.add_done(units_of_files(bytes) - units_of_files(before));
    }
}
