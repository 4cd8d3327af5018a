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
use weft_store::{IndexScan, IndexScanOptions, Table};

use crate::access_path::AccessPath;
use crate::assign::marked_schema;
use crate::error::from_store;
use crate::plan_node::plan_node;
use crate::table::{ScanContext, project, with_row_id};

/// The rows of a table whose keys are in ranges of an index; one stream.
#[derive(Debug)]
pub(crate) struct IndexScanExec {
    table: Arc<Table>,
    path: AccessPath,
    projection: Vec<usize>,
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
        IndexScanExec { table, path, projection, has_row_ids, context, properties, metrics }
    }

    /// What it does, in words.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "lookup in table {} by index {}: {}",
            self.table.schema().name,
            self.path.index,
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
                writeln!(f, "index={}", self.path.index)?;
                writeln!(f, "key={conditions}")
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(
                f,
                "WeftIndexScan: table={}, index={}, columns=[{}], key=[{conditions}]",
                schema.name,
                self.path.index,
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
        found.num_rows = Precision::Inexact(self.path.rows.ceil() as usize);
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
