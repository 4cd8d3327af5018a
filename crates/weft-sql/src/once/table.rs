//! A query that is evaluated once, as a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;

use super::exec::OnceExec;
use super::rows::OnceRows;
use crate::optimize::apply_rules;

/// The rows of a query.
#[derive(Debug)]
pub(super) struct OnceTable {
    name: String,
    /// Analyzed.
    query: LogicalPlan,
    schema: SchemaRef,
    /// What all readers read, once it was planned.
    rows: OnceCell<Arc<OnceRows>>,
    has_readers: AtomicBool,
}

impl OnceTable {
    /// The rows of an analyzed query, whose columns have different names.
    pub(super) fn new(name: &str, query: LogicalPlan) -> OnceTable {
        let schema = Arc::clone(query.schema().inner());
        OnceTable {
            name: name.to_owned(),
            query,
            schema,
            rows: OnceCell::new(),
            has_readers: AtomicBool::new(false),
        }
    }

    async fn rows(&self, state: &SessionState) -> DfResult<&Arc<OnceRows>> {
        let planned = || async {
            let query = apply_rules(state, self.query.clone(), || {})?;
            let plan = state.query_planner().create_physical_plan(&query, state).await?;
            Ok(Arc::new(OnceRows::new(plan)))
        };
        self.rows.get_or_try_init(planned).await
    }
}

impl TableProvider for OnceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    // Written out as `async_trait` would, but for the future: see `planned`.
    fn scan<'a, 'b, 'c, 'd, 'f>(
        &'a self,
        state: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        _: &'d [Expr],
        _: Option<usize>,
    ) -> BoxFuture<'f, DfResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        'b: 'f,
        'c: 'f,
        'd: 'f,
        Self: 'f,
    {
        planned(self, state, projection)
    }
}

/// The plan of a reader. A function without conditions on lifetimes, so that the compiler proves only once that expressions may be
/// sent to other threads.
fn planned<'a>(
    table: &'a OnceTable,
    state: &'a dyn Session,
    projection: Option<&'a Vec<usize>>,
) -> BoxFuture<'a, DfResult<Arc<dyn ExecutionPlan>>> {
    Box::pin(async move {
        let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
            return internal_err!("a session of another kind");
        };
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..table.schema.fields().len()).collect(),
        };
        let rows = Arc::clone(table.rows(state).await?);
        let is_first = !table.has_readers.swap(true, Ordering::Relaxed);
        let exec = OnceExec::new(&table.name, rows, projection, is_first);
        Ok(Arc::new(exec) as Arc<dyn ExecutionPlan>)
    })
}
