//! RETURNING: a query over the rows that a statement has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, Ident, SelectItem, SetExpr, TableWithJoins};
use futures::{FutureExt, TryStreamExt};
use weft_rt::memory::{Ledger, Reservation};
use weft_store::Table;

use crate::assign::marked_schema;
use crate::catalog::StatementCatalog;
use crate::change_statement::{table_factor, template};
use crate::char_length;
use crate::error::{ErrorKind, Result, SqlError};
use crate::relation::Relation;
use crate::rewrite;
use crate::run::{Run, Started};
use crate::spill_files::task_context;

impl Run {
    /// A statement that changes rows and returns some of them, or none without `returning`. `work` changes the rows, keeps those that
    /// are returned, and gives the number of changed rows.
    ///
    /// # Errors
    /// What is wrong with the items.
    pub(crate) async fn returning<F, W>(
        &self,
        tag: &'static str,
        returning: Option<Returning>,
        work: F,
    ) -> Result<Started>
    where
        F: FnOnce(Arc<Kept>) -> W + Send + 'static,
        W: Future<Output = Result<u64>> + Send + 'static,
    {
        let Some(items) = returning else {
            let work = async move { work(Arc::new(Kept::new(None))).await.map(Some) };
            return Ok(Started::Command { tag, work: work.boxed() });
        };
        let schema = items.schema().await?;
        let run = self.clone();
        let rows = async move {
            let kept = Arc::new(Kept::new(Some(run.session.engine().ledger().clone())));
            work(Arc::clone(&kept)).await?;
            let (state, plan) = items.plan(kept.batches()).await?;
            let physical = run.physical(&state, &plan).await?;
            Ok(execute_stream(physical, task_context(&state))?)
        };
        let rows = rows.map(|rows: Result<_>| rows.map_err(DataFusionError::from));
        let rows = futures::stream::once(rows).try_flatten();
        Ok(Started::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, rows))))
    }
}

/// What RETURNING asks for.
pub(crate) struct Returning {
    catalog: StatementCatalog,
    query: Box<ast::Query>,
    /// The name of the relation of changed rows.
    name: String,
    schema: SchemaRef,
}

impl Returning {
    /// Items about rows of a table that the statement calls `alias`.
    ///
    /// # Errors
    /// What is wrong with the items.
    pub(crate) fn new(
        catalog: &StatementCatalog,
        table: &Table,
        alias: &Ident,
        items: Vec<SelectItem>,
    ) -> Result<Returning> {
        let name = format!("returned rows of {}", table.schema().name);
        let mut query = template()?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            let rows = ast::ObjectName::from(vec![Ident::with_quote('"', &name)]);
            let relation = table_factor(rows, alias)?;
            select.projection = items;
            select.from = vec![TableWithJoins { relation, joins: Vec::new() }];
        }
        rewrite::query(&mut query)?;
        char_length::rewrite_casts(&mut query)?;
        let schema = marked_schema(table.schema());
        Ok(Returning { catalog: catalog.clone(), query, name, schema })
    }

    /// The columns that are returned.
    ///
    /// # Errors
    /// What is wrong with the items.
    pub(crate) async fn schema(&self) -> Result<SchemaRef> {
        let (state, plan) = self.plan(Vec::new()).await?;
        let plan = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
        Ok(Arc::clone(plan.schema().inner()))
    }

    /// The plan over rows that were changed.
    ///
    /// # Errors
    /// What is wrong with the items.
    pub(crate) async fn plan(
        &self,
        batches: Vec<RecordBatch>,
    ) -> Result<(SessionState, LogicalPlan)> {
        let relation = Relation::of_rows(Arc::clone(&self.schema), batches)?;
        let relations = Arc::new(HashMap::from([(self.name.clone(), relation)]));
        let catalog = self.catalog.clone().with_relations(&relations);
        let state = catalog.planning_state();
        let query = ast::Statement::Query(self.query.clone());
        let plan = catalog.plan(&state, DfStatement::Statement(Box::new(query))).await?;
        Ok((state, plan))
    }
}

/// Changed rows that are to be returned.
pub(crate) struct Kept {
    /// `None` if nothing is returned.
    ledger: Option<Ledger>,
    /// With the partition that each comes from.
    batches: Mutex<Vec<(usize, RecordBatch, Reservation)>>,
}

impl Kept {
    /// Rows that take memory of a budget; none are kept without one.
    pub(crate) fn new(ledger: Option<Ledger>) -> Kept {
        Kept { ledger, batches: Mutex::default() }
    }

    /// True if rows are kept.
    pub(crate) fn is_wanted(&self) -> bool {
        self.ledger.is_some()
    }

    /// Keeps rows of a partition, behind those that it had before.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(crate) fn keep(&self, partition: usize, rows: RecordBatch) -> Result<()> {
        let Some(ledger) = self.ledger.as_ref().filter(|_| rows.num_rows() > 0) else {
            return Ok(());
        };
        let Some(memory) = ledger.try_reserve(rows.get_array_memory_size() as u64) else {
            let message = "out of memory: there is none for the rows that the statement returns";
            return Err(SqlError::new(ErrorKind::OutOfMemory, message)
                .with_hint("raise the setting memory_limit, or query the rows afterwards"));
        };
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.push((partition, rows, memory));
        Ok(())
    }

    /// All rows that were kept, in the order of the partitions.
    pub(crate) fn batches(&self) -> Vec<RecordBatch> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.sort_by_key(|(partition, ..)| *partition);
        batches.iter().map(|(_, rows, _)| rows.clone()).collect()
    }
}
