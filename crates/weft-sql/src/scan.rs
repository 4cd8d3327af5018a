//! The leaf of a plan that reads a table: Weft's workers feed DataFusion's streams.
//!
//! The partitions of a plan share the table's row groups: whoever is ready takes the next one.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result as DfResult, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Metric, MetricValue, MetricsSet, Time,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::Stream;
use weft_store::{Scan, ScanOptions, ScanStats, Table};

use crate::assign::marked_schema;
use crate::error::from_store;
use crate::plan_node::plan_node;
use crate::pushdown::{Condition, share, share_of_all};
use crate::table::{ScanContext, project, statistics, with_row_id};

/// A scan of a table with its projection and conditions.
#[derive(Debug)]
pub(crate) struct ScanExec {
    table: Arc<Table>,
    learned: Option<Arc<weft_store::Statistics>>,
    projection: Vec<usize>,
    conditions: Vec<Condition>,
    limit: Option<usize>,
    /// Whether the ids of the rows come behind the columns.
    with_row_ids: bool,
    context: ScanContext,
    properties: Arc<PlanProperties>,
    statistics: Arc<Statistics>,
    metrics: ExecutionPlanMetricsSet,
    running: Arc<Mutex<Running>>,
}

/// The scans under way. They are made together, as they share the row groups.
#[derive(Debug, Default)]
struct Running {
    partitions: Vec<Option<Scan>>,
    /// What they have done, as of the last batch of any of them.
    stats: ScanStats,
}

impl ScanExec {
    /// A scan as `partitions` streams, with what was `learned` of the rows when they were loaded.
    pub(crate) fn new(
        table: Arc<Table>,
        learned: Option<Arc<weft_store::Statistics>>,
        projection: Vec<usize>,
        conditions: Vec<Condition>,
        partitions: usize,
        context: ScanContext,
    ) -> DfResult<ScanExec> {
        let schema = project(&marked_schema(table.schema()), &projection);
        let properties = properties_of(schema, partitions);
        let statistics = Arc::new(estimate(&table, &projection, &conditions));
        Ok(ScanExec {
            table,
            learned,
            projection,
            conditions,
            limit: None,
            with_row_ids: false,
            context,
            properties: Arc::new(properties),
            statistics,
            metrics: ExecutionPlanMetricsSet::new(),
            running: Arc::default(),
        })
    }

    /// The same for somebody who wants no more than `limit` rows of each stream.
    pub(crate) fn with_limit(&self, limit: Option<usize>) -> ScanExec {
        ScanExec {
            table: Arc::clone(&self.table),
            learned: self.learned.clone(),
            projection: self.projection.clone(),
            conditions: self.conditions.clone(),
            limit,
            with_row_ids: self.with_row_ids,
            context: self.context.clone(),
            properties: Arc::clone(&self.properties),
            statistics: Arc::clone(&self.statistics),
            metrics: ExecutionPlanMetricsSet::new(),
            running: Arc::default(),
        }
    }

    /// The same with the ids of the rows behind the columns.
    pub(crate) fn with_row_ids(self) -> ScanExec {
        let properties = properties_of(with_row_id(&self.schema()), self.partitions());
        let mut statistics = (*self.statistics).clone();
        statistics.column_statistics.push(ColumnStatistics::new_unknown());
        let (properties, statistics) = (Arc::new(properties), Arc::new(statistics));
        ScanExec { with_row_ids: true, properties, statistics, ..self }
    }

    /// Whether the ids of the rows come behind the columns.
    pub(crate) fn has_row_ids(&self) -> bool {
        self.with_row_ids
    }

    /// Whether no more than some rows of each stream are wanted.
    pub(crate) fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// What the scans of the statement share.
    pub(crate) fn context(&self) -> &ScanContext {
        &self.context
    }

    /// The table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// What was learned of the rows when they were loaded.
    pub(crate) fn learned(&self) -> Option<&weft_store::Statistics> {
        self.learned.as_deref()
    }

    /// About how many different values a column of the table has, if all rows were counted.
    pub(crate) fn distinct(&self, column: usize) -> Option<u64> {
        let learned = self.learned.as_ref()?;
        (learned.rows() == self.table.rows()).then(|| learned.distinct(column))?
    }

    /// The columns that are read, by number.
    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// The conditions that rows satisfy.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The conditions as a text.
    pub(crate) fn conditions_in_words(&self) -> String {
        let schema = self.table.schema();
        let condition = |(column, condition): &Condition| {
            let column = &schema.columns[*column];
            crate::describe::condition(&column.name, &column.data_type, condition)
        };
        let conditions: Vec<String> = self.conditions.iter().map(condition).collect();
        conditions.join(" AND ")
    }

    fn partitions(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    fn start(&self, batch_rows: usize) -> DfResult<Vec<Option<Scan>>> {
        let options = ScanOptions {
            projection: self.projection.clone(),
            predicates: self.conditions.clone(),
            batch_rows: self.limit.map_or(batch_rows, |limit| batch_rows.min(limit.max(1))),
            with_row_id: self.with_row_ids,
            io_depth: self.context.io_depth,
            workers: self.context.threads,
            share: Some(self.context.control.share),
            cancel: self.context.control.token.clone(),
            progress: Arc::clone(&self.context.control.progress),
            ..ScanOptions::default()
        };
        let scans = self.table.scan_partitions(self.partitions(), options);
        Ok(scans.map_err(|error| from_store(&error))?.into_iter().map(Some).collect())
    }
}

fn properties_of(schema: SchemaRef, partitions: usize) -> PlanProperties {
    PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    )
}

/// The statistics of the rows that satisfy the conditions.
fn estimate(table: &Table, projection: &[usize], conditions: &[Condition]) -> Statistics {
    let mut found = statistics(table, projection);
    if conditions.is_empty() {
        return found;
    }
    let rows = table.rows();
    let kept = share_of_all(conditions, |column, condition| {
        table.zone(column).map_or(1.0, |zone| share(condition, &zone, rows))
    });
    let scaled = |count: usize| (count as f64 * kept).ceil() as usize;
    found = found.to_inexact();
    found.num_rows = Precision::Inexact(scaled(usize::try_from(rows).unwrap_or(usize::MAX)));
    if let Precision::Inexact(bytes) = found.total_byte_size {
        found.total_byte_size = Precision::Inexact(scaled(bytes));
    }
    found
}

/// Adds what a scan has done to what EXPLAIN ANALYZE shows.
fn add_metrics(stats: &ScanStats, metrics: &mut MetricsSet) {
    for (name, value) in [
        ("bytes_read", stats.bytes_read),
        ("reads", stats.reads),
        ("cache_hits", stats.cache_hits),
        ("row_groups", stats.row_groups),
        ("row_groups_pruned", stats.row_groups_pruned),
        ("blocks_pruned", stats.blocks_pruned),
        ("rows_read", stats.rows_in),
    ] {
        add_count(name, value, metrics);
    }
    let time = Time::new();
    time.add_duration(std::time::Duration::from_nanos(stats.io_wait_ns));
    let value = MetricValue::Time { name: "io_wait".into(), time };
    metrics.push(Arc::new(Metric::new(value, None)));
}

/// Adds a count to what EXPLAIN ANALYZE shows.
fn add_count(name: &'static str, value: u64, metrics: &mut MetricsSet) {
    let count = Count::new();
    count.add(usize::try_from(value).unwrap_or(usize::MAX));
    let value = MetricValue::Count { name: name.into(), count };
    metrics.push(Arc::new(Metric::new(value, None)));
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.table.schema();
        let name = |column: &usize| schema.columns[*column].name.as_str();
        let columns: Vec<&str> = self.projection.iter().map(name).collect();
        let conditions = self.conditions_in_words();
        match kind {
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", schema.name)?;
                if !conditions.is_empty() {
                    writeln!(f, "filter={conditions}")?;
                }
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "WeftScan: table={}, columns=[{}]", schema.name, columns.join(", "))?;
                if !conditions.is_empty() {
                    write!(f, ", filter=[{conditions}]")?;
                }
                if let Some(limit) = self.limit {
                    write!(f, ", limit={limit}")?;
                }
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        "WeftScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    plan_node!(leaf);

    fn reset_state(self: Arc<Self>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.with_limit(self.limit)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DfResult<SendableRecordBatchStream> {
        let mut running = lock(&self.running);
        let mut scan = running.partitions.get_mut(partition).and_then(Option::take);
        if scan.is_none() {
            // The first partition of all, or the plan is run once more.
            running.partitions = self.start(context.session_config().batch_size())?;
            scan = running.partitions.get_mut(partition).and_then(Option::take);
        }
        let Some(scan) = scan else {
            return internal_err!("partition {partition} of a scan of {}", self.partitions());
        };
        Ok(Box::pin(ScanStream {
            scan,
            schema: self.schema(),
            left: self.limit,
            running: Arc::clone(&self.running),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        let stats = lock(&self.running).stats;
        add_metrics(&stats, &mut metrics);
        Some(metrics)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &datafusion::physical_plan::statistics::StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        if args.partition().is_none() {
            return Ok(Arc::clone(&self.statistics));
        }
        // Who takes which row groups is decided while they run.
        let mut part = (*self.statistics).clone().to_inexact();
        if let Precision::Inexact(rows) = part.num_rows {
            part.num_rows = Precision::Inexact(rows / self.partitions());
        }
        if let Precision::Inexact(bytes) = part.total_byte_size {
            part.total_byte_size = Precision::Inexact(bytes / self.partitions());
        }
        Ok(Arc::new(part))
    }
}

/// One partition of a scan.
struct ScanStream {
    scan: Scan,
    schema: SchemaRef,
    /// Rows that are still wanted.
    left: Option<usize>,
    running: Arc<Mutex<Running>>,
    baseline: BaselineMetrics,
}

impl ScanStream {
    /// The batch with the schema that was promised, and no more rows than are wanted.
    fn adjust(&mut self, batch: RecordBatch) -> DfResult<RecordBatch> {
        let rows = self.left.map_or(batch.num_rows(), |left| left.min(batch.num_rows()));
        if let Some(left) = &mut self.left {
            *left -= rows;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = batch.columns().iter().map(|column| column.slice(0, rows)).collect();
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl Stream for ScanStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.left == Some(0) {
            return Poll::Ready(None);
        }
        let polled = ready!(self.scan.poll_next(context));
        let stats = self.scan.stats();
        lock(&self.running).stats = stats;
        let polled = polled.map(|batch| match batch {
            Ok(batch) => self.adjust(batch),
            Err(error) => Err(from_store(&error).into()),
        });
        self.baseline.record_poll(Poll::Ready(polled))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
