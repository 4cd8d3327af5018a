//! What columns FROM has, and a query: those of a plan of it.

use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, Query, SelectItem, SetExpr, Statement, TableAlias, TableWithJoins, With,
};
use futures::FutureExt;

use crate::error::{Result, SqlError, internal};
use crate::using_joins::{self, no_token, query_of};

/// A column that a select list may name.
#[derive(Clone, Debug)]
pub(super) struct FromColumn {
    pub(super) table: Option<TableReference>,
    pub(super) name: String,
}

impl FromColumn {
    /// The column, named with its table.
    pub(super) fn expr(&self) -> Expr {
        let mut parts = match &self.table {
            None => Vec::new(),
            Some(TableReference::Bare { table }) => vec![table],
            Some(TableReference::Partial { schema, table }) => vec![schema, table],
            Some(TableReference::Full { catalog, schema, table }) => vec![catalog, schema, table],
        }
        .into_iter()
        .map(|part| Ident::with_quote('"', part.as_ref()))
        .collect::<Vec<_>>();
        let column = Ident::with_quote('"', self.name.as_str());
        if parts.is_empty() {
            return Expr::Identifier(column);
        }
        parts.push(column);
        Expr::CompoundIdentifier(parts)
    }
}

/// The columns that an item of a select list, `*` or `t.*`, stands for.
///
/// # Errors
/// If FROM cannot be planned.
pub(super) fn columns_of(
    state: &SessionState,
    from: &[TableWithJoins],
    item: SelectItem,
    withs: &[With],
) -> Result<Vec<FromColumn>> {
    let mut query = query_of(from.to_vec());
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![item];
    }
    columns_of_query(state, query, withs)
}

/// The columns of a query that may name these common table expressions.
///
/// # Errors
/// If it cannot be planned.
pub(super) fn columns_of_query(
    state: &SessionState,
    mut query: Query,
    withs: &[With],
) -> Result<Vec<FromColumn>> {
    for with in withs.iter().rev().filter(|with| !with.cte_tables.is_empty()) {
        let mut outer = query_of(Vec::new());
        outer.with = Some(with.clone());
        *outer.body = SetExpr::Query(Box::new(query));
        query = outer;
    }
    let mut statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(query))));
    if using_joins::are_in(&mut statement) {
        using_joins::write_out(&mut statement, state);
    }
    let plan = state.statement_to_plan(statement).now_or_never();
    let plan =
        plan.ok_or_else(|| internal("a query waits for its tables"))?.map_err(SqlError::from)?;
    let columns = plan.schema().iter();
    let column =
        |(table, field): (Option<&TableReference>, &datafusion::arrow::datatypes::FieldRef)| {
            FromColumn { table: table.cloned(), name: field.name().clone() }
        };
    Ok(columns.map(column).collect())
}

/// What the recursive part of a common table expression is told by: the part that does not name it.
pub(super) fn stand_in(alias: &TableAlias, first: &SetExpr) -> With {
    let mut query = query_of(Vec::new());
    *query.body = first.clone();
    let table = Cte {
        alias: alias.clone(),
        query: Box::new(query),
        from: None,
        materialized: None,
        closing_paren_token: no_token(),
    };
    With { with_token: no_token(), recursive: false, cte_tables: vec![table] }
}
