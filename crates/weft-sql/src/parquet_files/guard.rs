//! A source of files whose decoder may panic on damaged files: a panic becomes an error that names the file, and every
//! other error names it, too.

use std::any::Any;
use std::fmt;
use std::fmt::Formatter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result as DfResult, exec_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use weft_remote::{RemoteError, name_of_location};

use super::elsewhere::ElsewhereFiles;
use super::footer::Footers;
use crate::error::SqlError;

/// A source within the guard.
#[derive(Clone)]
pub(super) struct Guarded {
    pub(super) inner: Arc<dyn FileSource>,
    /// Where the footers are, once a scan has been planned.
    footers: Option<Footers>,
    elsewhere: ElsewhereFiles,
}

impl Guarded {
    /// Guards `inner`.
    pub(super) fn new(
        inner: Arc<dyn FileSource>,
        footers: Option<Footers>,
        elsewhere: ElsewhereFiles,
    ) -> Guarded {
        Guarded { inner, footers, elsewhere }
    }

    /// Guards another source in its place.
    fn around(&self, inner: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Guarded::new(inner, self.footers.clone(), self.elsewhere.clone()))
    }
}

/// The source of Parquet that a scan has, where the footers of its files are, and the files that are elsewhere.
pub(crate) fn parquet_source(
    scan: &FileScanConfig,
) -> Option<(&ParquetSource, &Footers, &ElsewhereFiles)> {
    let guarded = scan.file_source().downcast_ref::<Guarded>()?;
    let source = guarded.inner.downcast_ref::<ParquetSource>()?;
    Some((source, guarded.footers.as_ref()?, &guarded.elsewhere))
}

/// The result of a future that may panic, about the file of this name.
///
/// # Errors
/// Those of the future, and its panic.
pub(super) async fn caught<T>(
    name: &str,
    future: impl Future<Output = DfResult<T>>,
) -> DfResult<T> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(result) => result.map_err(|error| named(name, error)),
        Err(panic) => Err(of_panic(name, panic.as_ref())),
    }
}

/// What a call returns that may panic, about the file of this name.
fn caught_call<T>(name: &str, call: impl FnOnce() -> DfResult<T>) -> DfResult<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| named(name, error)),
        Err(panic) => Err(of_panic(name, panic.as_ref())),
    }
}

/// The error of a panic about the file of this name.
pub(crate) fn of_panic(name: &str, panic: &(dyn Any + Send)) -> DataFusionError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("its decoder failed");
    exec_datafusion_err!("cannot read '{name}': it is damaged ({text})")
}

/// The error with the file's name, if it says nothing of files yet and is the file's fault.
fn named(name: &str, error: DataFusionError) -> DataFusionError {
    if let Some(found) = RemoteError::within(&error) {
        return SqlError::from(found.clone()).into();
    }
    let is_of_file = matches!(
        error.find_root(),
        DataFusionError::ParquetError(_)
            | DataFusionError::ArrowError(..)
            | DataFusionError::External(_)
            | DataFusionError::Internal(_)
            | DataFusionError::NotImplemented(_)
    );
    let text = error.to_string();
    match is_of_file && !text.contains(name) {
        true => exec_datafusion_err!("cannot read '{name}': {}", error.find_root()),
        false => error,
    }
}

impl FileSource for Guarded {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> DfResult<Arc<dyn FileOpener>> {
        self.inner.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> DfResult<Box<dyn Morselizer>> {
        let inner = self.inner.create_morselizer(store, config, partition)?;
        Ok(Box::new(GuardedMorselizer { inner }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.inner.table_schema()
    }

    fn with_batch_size(&self, rows: usize) -> Arc<dyn FileSource> {
        self.around(self.inner.with_batch_size(rows))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.inner.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.inner.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.inner.metrics()
    }

    fn file_type(&self) -> &str {
        self.inner.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut Formatter) -> fmt::Result {
        self.inner.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.inner.supports_repartitioning()
    }

    fn repartitioned(
        &self,
        partitions: usize,
        file_bytes_min: usize,
        ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> DfResult<Option<FileScanConfig>> {
        self.inner.repartitioned(partitions, file_bytes_min, ordering, config)
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> DfResult<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut pushed = self.inner.try_pushdown_filters(filters, config)?;
        pushed.updated_node = pushed.updated_node.map(|inner| self.around(inner));
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> DfResult<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        let guarded = |inner| self.around(inner);
        Ok(match self.inner.try_pushdown_sort(order, properties)? {
            SortOrderPushdownResult::Exact { inner } => {
                SortOrderPushdownResult::Exact { inner: guarded(inner) }
            }
            SortOrderPushdownResult::Inexact { inner } => {
                SortOrderPushdownResult::Inexact { inner: guarded(inner) }
            }
            SortOrderPushdownResult::Unsupported => SortOrderPushdownResult::Unsupported,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.inner.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> DfResult<Option<Arc<dyn FileSource>>> {
        let pushed = self.inner.try_pushdown_projection(projection)?;
        Ok(pushed.map(|inner| self.around(inner)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }
}

#[derive(Debug)]
struct GuardedMorselizer {
    inner: Box<dyn Morselizer>,
}

impl Morselizer for GuardedMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> DfResult<Box<dyn MorselPlanner>> {
        let name: Arc<str> = name_of_location(&file.object_meta.location).into();
        let inner = caught_call(&name, || self.inner.plan_file(file))?;
        Ok(Box::new(GuardedPlanner { name, inner }))
    }
}

#[derive(Debug)]
struct GuardedPlanner {
    name: Arc<str>,
    inner: Box<dyn MorselPlanner>,
}

impl MorselPlanner for GuardedPlanner {
    fn plan(self: Box<Self>) -> DfResult<Option<MorselPlan>> {
        let GuardedPlanner { name, inner } = *self;
        let Some(mut plan) = caught_call(&name, || inner.plan())? else { return Ok(None) };
        let planner = |inner: Box<dyn MorselPlanner>| -> Box<dyn MorselPlanner> {
            Box::new(GuardedPlanner { name: Arc::clone(&name), inner })
        };
        let morsel = |inner: Box<dyn Morsel>| -> Box<dyn Morsel> {
            Box::new(GuardedMorsel { name: Arc::clone(&name), inner })
        };
        let mut guarded = MorselPlan::new()
            .with_morsels(plan.take_morsels().into_iter().map(morsel).collect())
            .with_planners(plan.take_ready_planners().into_iter().map(planner).collect());
        if let Some(pending) = plan.take_pending_planner() {
            let name = Arc::clone(&name);
            guarded.set_pending_planner(async move {
                let inner = caught(&name, pending.into_future()).await?;
                Ok(Box::new(GuardedPlanner { name, inner }) as Box<dyn MorselPlanner>)
            });
        }
        Ok(Some(guarded))
    }
}

#[derive(Debug)]
struct GuardedMorsel {
    name: Arc<str>,
    inner: Box<dyn Morsel>,
}

impl Morsel for GuardedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, DfResult<RecordBatch>> {
        let GuardedMorsel { name, inner } = *self;
        let stream = match catch_unwind(AssertUnwindSafe(|| inner.into_stream())) {
            Ok(stream) => stream,
            Err(panic) => {
                let error = of_panic(&name, panic.as_ref());
                return futures::stream::iter([Err(error)]).boxed();
            }
        };
        // A stream that panicked is not polled again: `catch_unwind` ends there.
        AssertUnwindSafe(stream)
            .catch_unwind()
            .map(move |item| match item {
                Ok(batch) => batch.map_err(|error| named(&name, error)),
                Err(panic) => Err(of_panic(&name, panic.as_ref())),
            })
            .boxed()
    }
}
