//! A table of the store as DataFusion sees it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{
    ColumnStatistics, DFSchema, Result as DfResult, Statistics, internal_err,
};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use futures::future::BoxFuture;
use weft_exec::compile::Compiling;
use weft_exec::spill::Turn;
use weft_remote::RemoteFiles;
use weft_store::{ROW_ID, Table};

use crate::access_path::{self, AccessPath, IndexUse};
use crate::assign::marked_schema;
use crate::control::Control;
use crate::error::from_store;
use crate::index_scan::IndexScanExec;
use crate::pushdown::{self, scalar_value};
use crate::scan::ScanExec;

/// What the scans of one statement share.
#[derive(Clone, Debug)]
pub(crate) struct ScanContext {
    pub(crate) control: Arc<Control>,
    pub(crate) io_depth: usize,
    /// Workers that read and decode, at most.
    pub(crate) threads: usize,
    /// The statement's turn to have much memory, of all of its pipelines.
    pub(crate) turn: Arc<Turn>,
    /// When rows are looked up in indexes.
    pub(crate) index_use: IndexUse,
    /// When joins look rows up in indexes, and how many at a time.
    pub(crate) index_join: IndexUse,
    pub(crate) index_join_tuples: usize,
    /// What compiles pipelines, and when; nothing if all are interpreted.
    pub(crate) compiling: Option<Compiling>,
    /// The files elsewhere that the statement reads.
    pub(crate) remote: RemoteFiles,
}

/// A table of one snapshot.
#[derive(Debug)]
pub(crate) struct StoredTable {
    table: Arc<Table>,
    schema: SchemaRef,
    /// What columns without a value get.
    defaults: HashMap<String, Expr>,
    context: ScanContext,
    learned: Option<Arc<weft_store::Statistics>>,
    /// Whether the ids of rows are a column more.
    has_row_ids: bool,
}

impl StoredTable {
    /// A table, with what was `learned` of its rows when they were loaded.
    pub(crate) fn new(
        table: Arc<Table>,
        defaults: HashMap<String, Expr>,
        context: ScanContext,
        learned: Option<Arc<weft_store::Statistics>>,
    ) -> StoredTable {
        let schema = marked_schema(table.schema());
        StoredTable { table, schema, defaults, context, learned, has_row_ids: false }
    }

    /// The same with the ids of the rows as the last column.
    pub(crate) fn with_row_ids(self) -> StoredTable {
        let schema = with_row_id(&self.schema);
        StoredTable { schema, has_row_ids: true, ..self }
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// Least and most rows that satisfy these conditions, as zones tell.
    pub(crate) fn rows_within(&self, conditions: &[pushdown::Condition]) -> (u64, u64) {
        self.table.rows_within(conditions)
    }

    /// Distinct counts and a sample of the rows.
    pub(crate) fn learned(&self) -> Option<&weft_store::Statistics> {
        self.learned.as_deref()
    }
}

impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match pushdown::translate(filter, &self.schema) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    // Written out as `async_trait` would, but for the future: see `planned`.
    fn scan<'a, 'b, 'c, 'd, 'f>(
        &'a self,
        state: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, DfResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        'b: 'f,
        'c: 'f,
        'd: 'f,
        Self: 'f,
    {
        planned(self, state, projection, filters, limit)
    }

    fn statistics(&self) -> Option<Statistics> {
        None
    }
}

/// The plan of a scan. A function without conditions on lifetimes, so that the compiler proves only once that
/// expressions may be sent to other threads: in a method of `async_trait` it takes seconds for each.
fn planned<'a>(
    table: &'a StoredTable,
    state: &'a dyn Session,
    projection: Option<&'a Vec<usize>>,
    filters: &'a [Expr],
    limit: Option<usize>,
) -> BoxFuture<'a, DfResult<Arc<dyn ExecutionPlan>>> {
    Box::pin(async move {
        if let Some(transaction) = table.context.control.transaction() {
            transaction.note_read(table.table.number());
        }
        table.table.load().await.map_err(|error| from_store(&error))?;
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..table.schema.fields().len()).collect(),
        };
        let mut conditions = Vec::new();
        for filter in filters {
            match pushdown::translate(filter, &table.schema) {
                Some(translated) => conditions.extend(translated),
                // The optimizer may have changed a condition since it was accepted.
                None => return internal_err!("a scan was given the condition {filter}"),
            }
        }
        let columns = table.table.schema().columns.len();
        let ids = projection.iter().position(|column| *column == columns);
        let with_row_id = ids.is_some_and(|_| table.has_row_ids);
        let projection = match ids {
            Some(ids) if ids + 1 < projection.len() => {
                return internal_err!("the ids of rows come before other columns");
            }
            Some(ids) => projection[..ids].to_vec(),
            None => projection,
        };
        let (learned, index_use) = (table.learned(), table.context.index_use);
        let asked = (projection.as_slice(), conditions.as_slice());
        let path = access_path::choose(&table.table, learned, asked, index_use);
        if let Some(path) = path {
            let wanted = (projection.as_slice(), with_row_id);
            return looked_up(table, state, path, wanted, (filters, &conditions));
        }
        let config = state.config();
        let partitions = config.target_partitions().min(table.table.row_groups()).max(1);
        let scan = ScanExec::new(
            Arc::clone(&table.table),
            table.learned.clone(),
            projection,
            conditions,
            partitions,
            table.context.clone(),
        )?;
        let scan = if with_row_id { scan.with_row_ids() } else { scan };
        let scan: Arc<dyn ExecutionPlan> = Arc::new(scan.with_limit(limit));
        Ok(scan)
    })
}

/// The plan of a lookup in an index, whose rows all conditions are put to. It gives the columns of the projection, and behind
/// them the rows' ids if they are asked for.
fn looked_up(
    table: &StoredTable,
    state: &dyn Session,
    path: AccessPath,
    (projection, with_row_ids): (&[usize], bool),
    (filters, conditions): (&[Expr], &[pushdown::Condition]),
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let mut columns = projection.to_vec();
    for (column, _) in conditions {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    let (stored, context) = (Arc::clone(&table.table), table.context.clone());
    let beside = columns.len() - projection.len();
    let rows = IndexScanExec::new(stored, path, columns, with_row_ids, context)
        .with_conditions(conditions);
    let schema = rows.schema();
    let Some(filter) = conjunction(filters.iter().cloned()) else {
        return internal_err!("an index is asked without a condition");
    };
    let filter = state.create_physical_expr(filter, &DFSchema::try_from(Arc::clone(&schema))?)?;
    let filtered = FilterExec::try_new(filter, Arc::new(rows))?;
    if beside == 0 {
        return Ok(Arc::new(filtered));
    }
    let only_filtered = projection.len()..projection.len() + beside;
    let fields = schema.fields().iter().enumerate();
    let fields = fields.filter(|(at, _)| !only_filtered.contains(at));
    let wanted = fields.map(|(at, field)| {
        let expr = Arc::new(Column::new(field.name(), at)) as Arc<dyn PhysicalExpr>;
        ProjectionExpr { expr, alias: field.name().clone() }
    });
    let wanted: Vec<ProjectionExpr> = wanted.collect();
    Ok(Arc::new(ProjectionExec::try_new(wanted, Arc::new(filtered))?))
}

/// Bytes of a row beside those of its values: DataFusion builds the hash table of the side of a join that has fewer bytes, and a tuple
/// of a hash table costs about the time of so many bytes more, however small it is.
const TUPLE_BYTES: usize = 48;

/// What is known of the table's rows without reading them. The table's directory is loaded.
pub(crate) fn statistics(table: &Table, projection: &[usize]) -> Statistics {
    let rows = table.rows();
    let has_deleted = table.may_have_deleted_rows();
    let schema = table.arrow_schema();
    let column = |number: &usize| {
        let Ok(zone) = table.zone(*number) else { return ColumnStatistics::new_unknown() };
        let data_type = schema.field(*number).data_type();
        let nulls = usize::try_from(zone.null_count).unwrap_or(usize::MAX);
        let bound = |value: Option<&weft_store::Scalar>| match value
            .and_then(|value| scalar_value(value, data_type))
        {
            Some(value) if zone.exact && !data_type.is_floating() => Precision::Exact(value),
            Some(value) => Precision::Inexact(value),
            None => Precision::Absent,
        };
        ColumnStatistics {
            null_count: match has_deleted {
                true => Precision::Inexact(nulls),
                false => Precision::Exact(nulls),
            },
            min_value: bound(zone.min.as_ref()),
            max_value: bound(zone.max.as_ref()),
            ..ColumnStatistics::new_unknown()
        }
    };
    let columns = table.schema().columns.len().max(1);
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    let bytes = table.bytes() as usize / columns * projection.len();
    let bytes = bytes.saturating_add(rows.saturating_mul(TUPLE_BYTES));
    Statistics {
        num_rows: Precision::Exact(rows),
        total_byte_size: Precision::Inexact(bytes),
        column_statistics: projection.iter().map(column).collect(),
    }
}

/// Columns with those of the ids of rows behind them.
pub(crate) fn with_row_id(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone());
    let ids = Field::new(ROW_ID, DataType::UInt64, false);
    Arc::new(Schema::new(fields.chain([ids]).collect::<Vec<_>>()))
}

/// The columns of a projection.
pub(crate) fn project(schema: &Schema, projection: &[usize]) -> SchemaRef {
    let fields: Vec<Field> =
        projection.iter().map(|column| schema.field(*column).clone()).collect();
    Arc::new(Schema::new(fields))
}
