//! A reader of rows that are evaluated once.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};

use super::rows::OnceRows;
use crate::plan_node::{Plan, plan_node};
use crate::table::project;

/// Reads columns of rows that are evaluated once. A leaf: what evaluates them is planned already.
#[derive(Debug)]
pub(crate) struct OnceExec {
    name: String,
    rows: Arc<OnceRows>,
    projection: Vec<usize>,
    /// No other reader was planned before.
    is_first: bool,
    properties: Arc<PlanProperties>,
}

impl OnceExec {
    pub(super) fn new(
        name: &str,
        rows: Arc<OnceRows>,
        projection: Vec<usize>,
        is_first: bool,
    ) -> OnceExec {
        let schema = project(&rows.plan().schema(), &projection);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (name, properties) = (name.to_owned(), Arc::new(properties));
        OnceExec { name, rows, projection, is_first, properties }
    }

    /// What evaluates the rows, if this is the reader that shows it.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.is_first.then(|| self.rows.plan())
    }
}

impl DisplayAs for OnceExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::TreeRender => writeln!(f, "of={}", self.name),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "OnceExec: {}", self.name)
            }
        }
    }
}

impl ExecutionPlan for OnceExec {
    fn name(&self) -> &str {
        "OnceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    plan_node!(leaf);

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let (rows, projection) = (Arc::clone(&self.rows), self.projection.clone());
        let read = async move { rows.read(context).await };
        let batches = futures::stream::once(read).try_flatten();
        let batches = batches.map(move |batch| Ok(batch?.project(&projection)?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> DfResult<Arc<Statistics>> {
        let whole =
            StatisticsContext::new().compute(self.rows.plan().as_ref(), &StatisticsArgs::new())?;
        // Volatile functions may let other rows through each time.
        let whole = whole.as_ref().clone().to_inexact();
        let columns = self.projection.iter();
        let column_statistics =
            columns.map(|column| whole.column_statistics[*column].clone()).collect();
        Ok(Arc::new(Statistics { column_statistics, ..whole }))
    }
}
