//! CHECK: conditions that no row may make false, put to rows as these are written.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use weft_store::{Check, TableSchema};

use crate::assign::marked_schema;
use crate::catalog::StatementCatalog;
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::optimize::analyzed;
use crate::point::is_pure;
use crate::relation::Relation;
use crate::schemas::parts;
use crate::statement::parse_query;

/// Columns of a row that the error of a condition shows, and characters of each.
const SHOWN_COLUMNS_MAX: usize = 8;
const SHOWN_CHARACTERS_MAX: usize = 40;

/// The conditions of a table, ready to be put to its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    conditions: Arc<[Condition]>,
}

#[derive(Debug)]
struct Condition {
    check: Check,
    expr: Arc<dyn PhysicalExpr>,
    /// It says the same of a row at any time.
    is_immutable: bool,
}

impl Checks {
    /// Plans the conditions of a table, which there need not be yet.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] for what is no condition on a row alone.
    pub(crate) async fn of(
        catalog: &StatementCatalog,
        schema: &TableSchema,
        checks: &[Check],
    ) -> Result<Checks> {
        if checks.is_empty() {
            return Ok(Checks::default());
        }
        // The table as a relation without rows, to plan queries of it.
        let relation = Relation::of_rows(marked_schema(schema), Vec::new())?;
        let name = parts(catalog.snapshot(), &schema.name).1;
        let relations = Arc::new(HashMap::from([(name.to_owned(), relation)]));
        let catalog = &catalog.clone().with_relations(&relations);
        let mut conditions = Vec::with_capacity(checks.len());
        for check in checks {
            let planned = plan(catalog, name, check).await;
            let (expr, is_immutable) = planned.map_err(|error| {
                let message =
                    format!("the condition {} does not work: {}", check.name, error.message());
                let named = SqlError::new(error.kind(), message);
                error.subject().map_or(named.clone(), |subject| named.about(subject))
            })?;
            conditions.push(Condition { check: check.clone(), expr, is_immutable });
        }
        Ok(Checks { conditions: conditions.into() })
    }

    /// True if the conditions say the same of a row at any time.
    pub(crate) fn are_immutable(&self) -> bool {
        self.conditions.iter().all(|condition| condition.is_immutable)
    }

    /// Checks rows, which have the table's types.
    ///
    /// # Errors
    /// [`ErrorKind::CheckViolation`], with the row; what goes wrong in a condition.
    pub(crate) fn check(&self, table: &str, batch: &RecordBatch) -> Result<()> {
        for Condition { check, expr, .. } in self.conditions.iter() {
            let value = expr.evaluate(batch)?.into_array(batch.num_rows())?;
            let holds = value.as_boolean();
            // NULL is not false.
            let is_false = |row: &usize| holds.is_valid(*row) && !holds.value(*row);
            if let Some(row) = (0..holds.len()).find(is_false) {
                let message = format!(
                    "a row of table {table} does not satisfy the condition {}, CHECK ({}): {}",
                    check.name,
                    check.sql,
                    row_in_words(batch, row)
                );
                return Err(SqlError::new(ErrorKind::CheckViolation, message));
            }
        }
        Ok(())
    }
}

async fn plan(
    catalog: &StatementCatalog,
    name: &str,
    check: &Check,
) -> Result<(Arc<dyn PhysicalExpr>, bool)> {
    let query = parse_query(&format!("SELECT ({}) FROM {}", check.sql, quoted(name)))?;
    let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
    let state = catalog.planning_state();
    let plan = catalog.plan(&state, statement).await?;
    let plan = analyzed(&state, plan, || {})?;
    let LogicalPlan::Projection(plan) = plan else { return Err(not_of_a_row()) };
    let ([condition], LogicalPlan::TableScan(_)) = (&plan.expr[..], plan.input.as_ref()) else {
        return Err(not_of_a_row());
    };
    let (mut is_of_a_row, mut is_immutable) = (true, true);
    condition.apply(|expr| {
        is_of_a_row &= !matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
        );
        is_immutable &= is_pure(expr);
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !is_of_a_row {
        return Err(not_of_a_row());
    }
    let expr = state.create_physical_expr(condition.clone(), plan.input.schema())?;
    if expr.data_type(plan.input.schema().as_arrow())? != DataType::Boolean {
        let message = "a condition is true or false, and this is neither";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    Ok((expr, is_immutable))
}

fn not_of_a_row() -> SqlError {
    let message = "it is about more than the columns of one row";
    SqlError::new(ErrorKind::Semantic, message)
        .with_hint("subqueries and aggregates cannot stand in CHECK")
}

fn row_in_words(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns()).take(SHOWN_COLUMNS_MAX);
    let mut words: Vec<String> = fields
        .map(|(field, column)| {
            let text = match column.is_null(row) {
                true => "NULL".to_owned(),
                false => array_value_to_string(column, row).unwrap_or_default(),
            };
            let short: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
            let more = if short.len() < text.len() { "…" } else { "" };
            format!("{} = {short}{more}", field.name())
        })
        .collect();
    if batch.num_columns() > SHOWN_COLUMNS_MAX {
        words.push("…".to_owned());
    }
    words.join(", ")
}
