//! The leaf of a plan that finds the rows of a table by an index.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::stats::Precision;
use datafusion::common::{Result as DfResult, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::Stream;
use weft_store::{IndexEnds, IndexScan, IndexScanOptions, Table};

use crate::access_path::AccessPath;
use crate::assign::marked_schema;
use crate::error::from_store;
use crate::plan_node::plan_node;
use crate::pushdown::Condition;
use crate::table::{ScanContext, project, with_row_id};

/// The rows of a table whose keys are in ranges of an index; one stream.
#[derive(Debug)]
pub(crate) struct IndexScanExec {
    table: Arc<Table>,
    path: AccessPath,
    /// All rows of the path, or those with the first and the last keys.
    ends: Option<IndexEnds>,
    /// All conditions on the rows, of which the path serves some.
    conditions: Vec<Condition>,
    projection: Vec<usize>,
    /// Whether all columns come from the index, and none from the rows.
    is_index_only: bool,
    /// Whether the ids of the rows are a column more, the last one.
    has_row_ids: bool,
    context: ScanContext,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl IndexScanExec {
    /// A lookup that gives the columns of `projection`, and behind them the rows' ids if `has_row_ids` is set.
    pub(crate) fn new(
        table: Arc<Table>,
        path: AccessPath,
        projection: Vec<usize>,
        has_row_ids: bool,
        context: ScanContext,
    ) -> IndexScanExec {
        let schema = project(&marked_schema(table.schema()), &projection);
        let schema = if has_row_ids { with_row_id(&schema) } else { schema };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        let (ends, conditions) = (None, path.served.clone());
        let is_index_only = table.is_covered(&path.index, &projection).unwrap_or(false);
        IndexScanExec {
            table,
            path,
            ends,
            conditions,
            projection,
            is_index_only,
            has_row_ids,
            context,
            properties,
            metrics,
        }
    }

    /// The same of rows that all of these conditions are put to afterwards.
    pub(crate) fn with_conditions(self, conditions: &[Condition]) -> IndexScanExec {
        IndexScanExec { conditions: conditions.to_vec(), ..self }
    }

    /// The same of no more than the rows with the first keys and the last ones.
    pub(crate) fn with_ends(self, ends: IndexEnds) -> IndexScanExec {
        IndexScanExec { ends: Some(ends), ..self }
    }

    /// The table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The way to the rows.
    pub(crate) fn path(&self) -> &AccessPath {
        &self.path
    }

    /// Whether it gives no more than the rows with the first keys and the last ones.
    pub(crate) fn has_ends(&self) -> bool {
        self.ends.is_some()
    }

    /// All conditions on the rows.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The columns that it gives, by number.
    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Whether the ids of the rows are a column more, the last one.
    pub(crate) fn has_row_ids(&self) -> bool {
        self.has_row_ids
    }

    /// What the scans of the statement share.
    pub(crate) fn context(&self) -> &ScanContext {
        &self.context
    }

    /// Whether it reads nothing but the index, and how many rows of which end it gives, if not all.
    fn ends_in_words(&self) -> String {
        let only = if self.is_index_only { ", index only" } else { "" };
        match self.ends {
            None => only.to_owned(),
            Some(IndexEnds { first, last: 0 }) => format!(", first {first}{only}"),
            Some(IndexEnds { first: 0, last }) => format!(", last {last}{only}"),
            Some(IndexEnds { first, last }) => format!(", first {first} and last {last}{only}"),
        }
    }

    /// What it does, in words.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "lookup in table {} by index {}{}: {}",
            self.table.schema().name,
            self.path.index,
            self.ends_in_words(),
            self.conditions_in_words()
        )
    }

    fn conditions_in_words(&self) -> String {
        let schema = self.table.schema();
        let words = self.path.served.iter().map(|(column, predicate)| {
            let column = &schema.columns[*column];
            crate::describe::condition(&column.name, &column.data_type, predicate)
        });
        words.collect::<Vec<_>>().join(" AND ")
    }
}

impl DisplayAs for IndexScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.table.schema();
        let columns: Vec<&str> =
            self.projection.iter().map(|column| schema.columns[*column].name.as_str()).collect();
        let conditions = self.conditions_in_words();
        match kind {
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", schema.name)?;
                writeln!(f, "index={}{}", self.path.index, self.ends_in_words())?;
                writeln!(f, "key={conditions}")
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(
                f,
                "WeftIndexScan: table={}, index={}{}, columns=[{}], key=[{conditions}]",
                schema.name,
                self.path.index,
                self.ends_in_words(),
                columns.join(", "),
            ),
        }
    }
}

impl ExecutionPlan for IndexScanExec {
    fn name(&self) -> &str {
        "WeftIndexScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    plan_node!(leaf);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("partition {partition} of the one of an index scan");
        }
        let options = IndexScanOptions {
            ranges: self.path.ranges.clone(),
            ends: self.ends,
            projection: self.projection.clone(),
            with_row_ids: self.has_row_ids,
            batch_rows: context.session_config().batch_size(),
            depth: self.context.io_depth,
            share: Some(self.context.control.share),
            cancel: self.context.control.token.clone(),
        };
        let scan = self.table.index_scan(&self.path.index, options);
        Ok(Box::pin(IndexStream {
            scan: scan.map_err(|error| from_store(&error))?,
            schema: self.schema(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &datafusion::physical_plan::statistics::StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        let mut found = Statistics::new_unknown(&self.schema());
        let rows = self.path.rows.ceil() as usize;
        let wanted = self.ends.map_or(rows, |ends| ends.first.saturating_add(ends.last));
        found.num_rows = Precision::Inexact(rows.min(wanted));
        Ok(Arc::new(found))
    }
}

struct IndexStream {
    scan: IndexScan,
    schema: SchemaRef,
    baseline: BaselineMetrics,
}

impl Stream for IndexStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = ready!(self.scan.poll_next(context));
        let schema = Arc::clone(&self.schema);
        let polled = polled.map(|batch| match batch {
            Ok(batch) => {
                let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = batch.columns().to_vec();
                Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
            }
            Err(error) => Err(from_store(&error).into()),
        });
        self.baseline.record_poll(Poll::Ready(polled))
    }
}

impl RecordBatchStream for IndexStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
