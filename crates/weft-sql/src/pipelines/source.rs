//! Leaves of plans: scans of tables, relations without rows or with one, and what DataFusion executes.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result as DfResult;
use futures::stream::BoxStream;
use weft_exec::Lane;
use weft_exec::program::Register;
use weft_exec::source::{BatchStreams, Batches, TableScan};
use weft_store::{ScanOptions, Zone};

use super::asks::{Asks, OfScan, in_words};
use super::bounds::Bounds;
use super::condition;
use super::description::shortened;
use super::open::{InOrder, Open};
use super::term::Term;
use crate::parquet_scan::{ParquetScan, ParquetScanExec, zones};
use crate::scan::ScanExec;

/// So many different strings, or fewer, are few.
const FEW: u64 = 1000;

/// Batches from DataFusion.
pub(super) type Stream = BoxStream<'static, weft_exec::Result<RecordBatch>>;

/// Columns of a schema in registers of their types' lanes.
fn columns(schema: &Schema, registers: &[Register]) -> Vec<Term> {
    let fields = schema.fields().iter().zip(registers);
    let term = |(field, register): (&Arc<_>, &Register)| {
        let field: &datafusion::arrow::datatypes::Field = field;
        let lane = Lane::of(field.data_type());
        Term::new(*register, lane, field.data_type(), field.is_nullable())
    };
    fields.map(term).collect()
}

fn lanes(schema: &Schema) -> Vec<Lane> {
    schema.fields().iter().map(|field| Lane::of(field.data_type())).collect()
}

/// The rows of a table, with the conditions that the scan applies, and without what it drops as `asks` say: row groups and blocks by the bounds of keys, and rows by single keys, as long as these are many.
pub(super) fn table(scan: &ScanExec, schema: &Schema, asks: &Asks) -> Open {
    let (table, projection) = (scan.table(), scan.projection());
    let options = ScanOptions {
        projection: projection.to_vec(),
        predicates: scan.conditions().to_vec(),
        with_row_id: scan.has_row_ids(),
        ..ScanOptions::default()
    };
    let lanes = lanes(schema);
    // The ids of rows have no zones.
    let OfScan { bounds, filters, after } = match scan.has_row_ids() {
        true => OfScan::default(),
        false => asks.of_scan(&lanes),
    };
    let source = TableScan::new(table.clone(), options, lanes.clone()).asking(bounds, filters);
    let zones: Vec<Option<Zone>> =
        projection.iter().map(|column| table.zone(*column).ok()).collect();
    let mut label = format!("scan of {}", table.schema().name);
    if !scan.conditions().is_empty() {
        label.push_str(&format!(" where {}", shortened(&scan.conditions_in_words())));
    }
    if !after.is_empty() {
        label.push_str(&format!(" filtered by {}", in_words(&after)));
    }
    let open = Open::new(Box::new(source), label, &lanes, |registers| {
        let mut columns = columns(schema, registers);
        for (term, column) in columns.iter_mut().zip(projection) {
            let distinct = scan.distinct(*column).filter(|_| term.lane == Lane::Str);
            term.has_few = distinct.is_some_and(|distinct| distinct <= FEW);
        }
        for (term, zone) in columns.iter_mut().zip(&zones) {
            let Some(zone) = zone else { continue };
            term.is_nullable &= zone.null_count > 0;
            if let (Some(of_type), Some(of_zone)) = (term.bounds, Bounds::of_zone(zone)) {
                term.bounds = Some(of_type.meet(of_zone));
            }
        }
        columns
    });
    open.after(&after)
}

/// The rows of Parquet files, without what the scan's condition and `asks` drop: row groups and pages by statistics, and rows as long as
/// these are many.
///
/// # Errors
/// Those of the condition's translation.
pub(super) fn parquet(scan: &ParquetScanExec, schema: &Schema, asks: &Asks) -> DfResult<Open> {
    let lanes = lanes(schema);
    let OfScan { bounds, filters, after } = asks.of_scan(&lanes);
    let condition = condition::of_scan(scan.scan())?;
    let source = ParquetScan::new(Arc::clone(scan.scan()), lanes.clone(), condition);
    let source = source.asking(bounds, filters);
    let is_ordered = source.is_ordered();
    let mut label = scan.label().to_owned();
    if !after.is_empty() {
        label.push_str(&format!(" filtered by {}", in_words(&after)));
    }
    let columns = |registers: &[Register]| {
        let mut columns = columns(schema, registers);
        for (term, zone) in columns.iter_mut().zip(zones(scan.scan())) {
            term.is_nullable &= zone.has_nulls;
            if let (Some(of_type), Some((low, high))) = (term.bounds, zone.bounds) {
                term.bounds = Some(of_type.meet(Bounds { low, high }));
            }
        }
        columns
    };
    let mut open = Open::new(Box::new(source), label, &lanes, columns);
    if scan.is_one() {
        open.order = InOrder::OnRequest(is_ordered);
    }
    Ok(open.after(&after))
}

/// No rows.
pub(super) fn nothing(schema: &Schema) -> Open {
    let lanes = lanes(schema);
    let source = Batches::new(Vec::new(), lanes.clone());
    Open::new(Box::new(source), "no rows", &lanes, |registers| columns(schema, registers))
}

/// One row, of nulls if it has columns.
///
/// # Errors
/// If there are no nulls of the columns.
pub(super) fn one_row(schema: &SchemaRef) -> DfResult<Open> {
    let fields: Vec<_> =
        schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let arrays = fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?;
    let lanes = lanes(&schema);
    let source = Batches::new(vec![batch], lanes.clone());
    Ok(Open::new(Box::new(source), "one row", &lanes, |registers| columns(&schema, registers)))
}

/// What DataFusion gives. The rows of one stream come in their order if somebody asks for it; those of several do not.
pub(super) fn streams(
    streams: Vec<Stream>,
    schema: &Schema,
    is_one: bool,
    label: impl Into<String>,
) -> Open {
    let lanes = lanes(schema);
    let source = BatchStreams::new(streams, lanes.clone());
    let is_ordered = source.is_ordered();
    let columns = |registers: &[Register]| columns(schema, registers);
    let mut open = Open::new(Box::new(source), label, &lanes, columns);
    if is_one {
        open.order = InOrder::OnRequest(is_ordered);
    }
    open
}
