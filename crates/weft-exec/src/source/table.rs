//! Native tables: a worker reads and decodes the row groups that it then works on.

use std::sync::{Arc, OnceLock};

use arrow_array::{Array, RecordBatch};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::Ledger;
use weft_store::{
    ColumnFilter, MorselScan, Predicate, ROW_GROUP_ROWS_MAX, ScanMorsel, ScanOptions, ScanRows,
    ScanStats, Table,
};

use crate::arrow::Entries;
use crate::error::Result;
use crate::lane::Lane;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::profile::{Fact, Facts};
use crate::query::Context;
use crate::source::asked::{AskedBounds, AskedColumn};
use crate::source::batches::BatchTuples;

/// A scan of a table, with the predicates that it applies itself.
#[derive(Debug)]
pub struct TableScan {
    table: Arc<Table>,
    options: ScanOptions,
    lanes: Arc<[Lane]>,
    bounds: Vec<AskedBounds>,
    filters: Vec<Arc<AskedColumn>>,
    scan: Arc<OnceLock<MorselScan>>,
    /// The budget, which hears of what is decoded.
    ledger: OnceLock<Ledger>,
}

/// What a scan has done, also after its pipeline is gone.
#[derive(Clone, Debug)]
pub struct TableScanStats {
    scan: Arc<OnceLock<MorselScan>>,
}

impl TableScan {
    /// Scans `table`, a column for each of `lanes`, the row id last if it is asked for. Of `options` it is the columns,
    /// predicates and row groups that count; the rest comes from the query. Decimals of up to 18 digits come in 64
    /// bits.
    pub fn new(table: Arc<Table>, options: ScanOptions, lanes: Vec<Lane>) -> TableScan {
        let (lanes, scan) = (lanes.into(), Arc::default());
        let ledger = OnceLock::new();
        TableScan { table, options, lanes, bounds: Vec::new(), filters: Vec::new(), scan, ledger }
    }

    /// The same scan, without row groups and blocks that have nothing between these bounds, and without rows that
    /// the filters drop, as long as they drop many.
    pub fn asking(mut self, bounds: Vec<AskedBounds>, filters: Vec<AskedColumn>) -> TableScan {
        bounds.iter().for_each(AskedBounds::want);
        self.bounds = bounds;
        self.filters = filters.into_iter().map(Arc::new).collect();
        self
    }

    /// The bounds as conditions on columns of the table, when they are known.
    fn zone_predicates(&self) -> Vec<(usize, Predicate)> {
        let mut predicates = Vec::new();
        for asked in &self.bounds {
            let column = self.options.projection[asked.column];
            let data_type = &self.table.schema().columns[column].data_type;
            predicates.extend(asked.predicates(data_type).into_iter().map(|p| (column, p)));
        }
        predicates
    }

    /// The filters, with the numbers of their columns in the table.
    fn column_filters(&self) -> Vec<(usize, Arc<dyn ColumnFilter>)> {
        let filter = |asked: &Arc<AskedColumn>| {
            (self.options.projection[asked.column()], asked.clone() as Arc<dyn ColumnFilter>)
        };
        self.filters.iter().map(filter).collect()
    }

    /// To ask later what the scan has done.
    pub fn stats(&self) -> TableScanStats {
        TableScanStats { scan: self.scan.clone() }
    }
}

impl TableScanStats {
    /// What it has done so far.
    pub fn get(&self) -> ScanStats {
        self.scan.get().map(MorselScan::stats).unwrap_or_default()
    }
}

impl Source for TableScan {
    fn units(&self) -> u64 {
        self.table.row_groups() as u64
    }

    fn facts(&self) -> Facts {
        let stats = self.stats().get();
        let mut facts = vec![
            Fact::bytes("read", stats.bytes_read),
            Fact::count("reads", stats.reads),
            Fact::count("pages in memory", stats.cache_hits),
            Fact::count("row groups", stats.row_groups),
        ];
        let pruned = [
            ("row groups left out", stats.row_groups_pruned),
            ("blocks left out", stats.blocks_pruned),
        ];
        let pruned = pruned.into_iter().filter(|(_, value)| *value > 0);
        facts.extend(pruned.map(|(name, value)| Fact::count(name, value)));
        facts.push(Fact::count("rows looked at", stats.rows_in));
        let asked = self.filters.iter().map(|filter| filter.rows().get());
        let dropped: u64 = asked.map(|(rows_in, rows_out)| rows_in.saturating_sub(rows_out)).sum();
        if dropped > 0 {
            facts.push(Fact::count("rows dropped by filters", dropped));
        }
        facts
    }

    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            let options = ScanOptions {
                batch_rows: ROW_GROUP_ROWS_MAX,
                io_depth: context.io_depth,
                narrow_decimals: true,
                zone_predicates: self.zone_predicates(),
                filters: self.column_filters(),
                cancel: context.cancel.clone(),
                progress: context.progress.clone(),
                ..self.options.clone()
            };
            let scan = self.table.scan_morsels(options)?;
            self.scan.get_or_init(|| scan.clone());
            self.ledger.get_or_init(|| context.ledger.clone());
            // What reads from devices stays on one worker, which this future need not.
            context.on_a_worker(move || async move { Ok(scan.open().await?) }).await
        }
        .boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let morsel = self.scan.get().expect("the source was opened").next()?;
        let (lanes, ledger) = (self.lanes.clone(), self.ledger.get().cloned());
        Some(Box::new(TableMorsel { morsel, lanes, dictionaries: Vec::new(), ledger }))
    }

    fn depth(&self, context: &Context) -> usize {
        context.io_depth
    }

    fn share(&self, context: &Context) -> usize {
        self.scan.get().expect("the source was opened").share(context.workers)
    }
}

struct TableMorsel {
    morsel: ScanMorsel,
    lanes: Arc<[Lane]>,
    /// The entries of the dictionaries of the last rows, by column.
    dictionaries: Vec<Option<Arc<Entries>>>,
    /// The budget, which hears of what is decoded.
    ledger: Option<Ledger>,
}

impl Morsel for TableMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let Some(ScanRows { batch, selected }) = self.morsel.next().await? else {
                return Ok(None);
            };
            if let Some(ledger) = &self.ledger {
                // Others before it had as much, and are gone, or soon will be.
                ledger.note_freed(slice_bytes(&batch));
            }
            let tuples = BatchTuples::of(batch, &self.lanes, &mut self.dictionaries).await?;
            Ok(Some(Box::new(tuples.with_selected(selected)) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

/// About what the values of a batch take, whose arrays may be parts of larger ones.
fn slice_bytes(batch: &RecordBatch) -> u64 {
    let bytes = batch.columns().iter().map(|array| {
        array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    });
    bytes.sum::<usize>() as u64
}
