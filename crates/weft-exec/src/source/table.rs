//! Native tables: a worker reads and decodes the row groups that it then works on.

use std::sync::{Arc, OnceLock};

use arrow_schema::DataType;
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_store::{
    MorselScan, Op, Predicate, ROW_GROUP_ROWS_MAX, Scalar, ScanMorsel, ScanOptions, ScanStats,
    Table,
};

use crate::error::Result;
use crate::join::Wanted;
use crate::lane::Lane;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::program::Constant;
use crate::query::Context;
use crate::source::batches::BatchTuples;

/// A scan of a table, with the predicates that it applies itself.
#[derive(Debug)]
pub struct TableScan {
    table: Arc<Table>,
    options: ScanOptions,
    lanes: Arc<[Lane]>,
    bounds: Vec<AskedBounds>,
    scan: Arc<OnceLock<MorselScan>>,
}

/// A key of a join's filter that is a column of a scan: blocks without a value between its bounds are left out.
#[derive(Clone, Debug)]
pub struct AskedBounds {
    /// The column, by its place among those of the scan.
    pub column: usize,
    /// The key, by its place among those of the filter. Nulls are no keys of the build side, or match nothing.
    pub key: usize,
    /// The filter, whose build side ends before the scan is opened.
    pub wanted: Arc<Wanted>,
}

/// A value as zones have it, in which all integers are of one kind; `None` if zones have it in another way.
fn scalar(value: &Constant, data_type: &DataType) -> Option<Scalar> {
    Some(Scalar::Int128(match value {
        Constant::I8(value) => (*value).into(),
        Constant::I16(value) => (*value).into(),
        Constant::I32(value) => (*value).into(),
        Constant::I64(value) => (*value).into(),
        Constant::I128(value) => *value,
        Constant::U8(value) => (*value).into(),
        Constant::U16(value) => (*value).into(),
        Constant::U32(value) => (*value).into(),
        Constant::U64(value) => (*value).into(),
        Constant::Str(_) if Lane::is_row_encoded(data_type) => return None,
        Constant::Str(value) => return Some(Scalar::Bytes(value.to_vec())),
        // NaN is a key like others, but nothing that zones know.
        Constant::Bool(_) | Constant::F32(_) | Constant::F64(_) => return None,
    }))
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
        let (lanes, scan) = (lanes.into(), Arc::default());
        TableScan { table, options, lanes, bounds: Vec::new(), scan }
    }

    /// The same scan, without row groups and blocks that have nothing between these bounds.
    pub fn with_bounds(mut self, bounds: Vec<AskedBounds>) -> TableScan {
        bounds.iter().for_each(|asked| asked.wanted.want_bounds());
        self.bounds = bounds;
        self
    }

    /// The bounds as conditions on columns of the table, now that they are known.
    fn zone_predicates(&self) -> Vec<(usize, Predicate)> {
        let mut predicates = Vec::new();
        for AskedBounds { column, key, wanted } in &self.bounds {
            let Some(filter) = wanted.filter() else { continue };
            let column = self.options.projection[*column];
            let data_type = &self.table.schema().columns[column].data_type;
            match filter.bounds(*key) {
                Some((least, greatest)) => {
                    let bounds = [(Op::GtEq, least), (Op::LtEq, greatest)];
                    predicates.extend(bounds.into_iter().filter_map(|(op, bound)| {
                        Some((column, Predicate::Compare(op, scalar(&bound, data_type)?)))
                    }));
                }
                None => predicates.push((column, Predicate::Compare(Op::Eq, Scalar::Null))),
            }
        }
        predicates
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
                zone_predicates: self.zone_predicates(),
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
