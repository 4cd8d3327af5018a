//! RETURNING: a query over the rows that a statement has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, Ident, SelectItem, SetExpr, TableWithJoins};
use weft_rt::memory::{Ledger, Reservation};
use weft_store::Table;

use crate::assign::marked_schema;
use crate::catalog::StatementCatalog;
use crate::change_statement::{table_factor, template};
use crate::char_length;
use crate::error::{ErrorKind, Result, SqlError};
use crate::relation::Relation;
use crate::rewrite;

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
        let relation = Relation::of_batches(Arc::clone(&self.schema), batches)?;
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
    batches: Mutex<Vec<(RecordBatch, Reservation)>>,
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

    /// Keeps rows.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub(crate) fn keep(&self, rows: RecordBatch) -> Result<()> {
        let Some(ledger) = self.ledger.as_ref().filter(|_| rows.num_rows() > 0) else {
            return Ok(());
        };
        let Some(memory) = ledger.try_reserve(rows.get_array_memory_size() as u64) else {
            let message = "out of memory: there is none for the rows that the statement returns";
            return Err(SqlError::new(ErrorKind::OutOfMemory, message)
                .with_hint("raise the setting memory_limit, or query the rows afterwards"));
        };
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push((rows, memory));
        Ok(())
    }

    /// All rows that were kept.
    pub(crate) fn batches(&self) -> Vec<RecordBatch> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.iter().map(|(rows, _)| rows.clone()).collect()
    }
}
