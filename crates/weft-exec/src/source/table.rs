//! Native tables: a worker reads and decodes the row groups that it then works on.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_store::{MorselScan, ROW_GROUP_ROWS_MAX, ScanMorsel, ScanOptions, ScanStats, Table};

use crate::error::Result;
use crate::lane::Lane;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::query::Context;
use crate::source::batches::BatchTuples;

/// A scan of a table, with the predicates that it applies itself.
#[derive(Debug)]
pub struct TableScan {
    table: Arc<Table>,
    options: ScanOptions,
    lanes: Arc<[Lane]>,
    scan: Arc<OnceLock<MorselScan>>,
}

/// What a scan has done, also after its pipeline is gone.
#[derive(Clone, Debug)]
pub struct TableScanStats {
    scan: Arc<OnceLock<MorselScan>>,
}

impl TableScan {
    /// Scans `table`, a column for each of `lanes`, the row id last if it is asked for. Of `options` it is the columns,
    /// predicates and row groups that count; the rest comes from the query. Decimals of up to 18 digits come in 64 bits.
    pub fn new(table: Arc<Table>, options: ScanOptions, lanes: Vec<Lane>) -> TableScan {
        TableScan { table, options, lanes: lanes.into(), scan: Arc::default() }
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
    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            let options = ScanOptions {
                batch_rows: ROW_GROUP_ROWS_MAX,
                io_depth: context.io_depth,
                narrow_decimals: true,
                cancel: context.cancel.clone(),
                progress: context.progress.clone(),
                ..self.options.clone()
            };
            let scan = self.table.scan_morsels(options)?;
            self.scan.get_or_init(|| scan.clone());
            // What reads from devices stays on one worker, which this future need not.
            context.on_a_worker(move || async move { Ok(scan.open().await?) }).await
        }
        .boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let morsel = self.scan.get().expect("the source was opened").next()?;
        Some(Box::new(TableMorsel { morsel, lanes: self.lanes.clone() }))
    }

    fn depth(&self, context: &Context) -> usize {
        context.io_depth
    }
}

struct TableMorsel {
    morsel: ScanMorsel,
    lanes: Arc<[Lane]>,
}

impl Morsel for TableMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let Some(batch) = self.morsel.next().await? else { return Ok(None) };
            let tuples = BatchTuples::new(&batch, &self.lanes)?;
            Ok(Some(Box::new(tuples) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}
