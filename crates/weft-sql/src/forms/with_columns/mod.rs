//! Forms that depend on the columns of FROM, written out once there is a catalog that tells them, before joins with USING are
//! (`using_joins.rs`): `*` with options (`star.rs`), COLUMNS (`columns.rs`), names of items of the select list in WHERE and in later
//! items (`aliases.rs`), ORDER BY ALL, PIVOT and UNPIVOT (`pivots.rs`).
//!
//! Statements without such forms are not looked at: to know the columns costs a plan.

mod aliases;
mod columns;
mod pivots;
mod probe;
mod star;

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut, With,
};

use self::probe::{columns_of_query, stand_in};
use crate::error::{Result, SqlError};
use crate::statement::inner_statement;
use crate::using_joins::query_of;

pub(crate) use self::columns::has_columns;
use self::columns::is_columns;

/// True if a statement has such a form.
pub(crate) fn are_in(statement: &mut DfStatement) -> bool {
    inner_statement(statement).is_some_and(|inner| Visit::visit(&*inner, &mut Finder).is_break())
}

/// Writes out the forms of a statement, in a state that `using_joins::with_tables` made for it.
///
/// # Errors
/// For names that are not those of columns, and for what cannot be planned.
pub(crate) fn write_out(statement: &mut DfStatement, state: &SessionState) -> Result<()> {
    let Some(inner) = inner_statement(statement) else { return Ok(()) };
    let mut writer = Writer { state, withs: Vec::new(), kept: Vec::new() };
    match inner.visit(&mut writer) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Finds the forms.
struct Finder;

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match query.order_by.as_ref().map(|order| &order.kind) {
            Some(OrderByKind::All(_)) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        match star::is_in(&select.projection) || aliases::may_be_in(select) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match pivots::is_one(table) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match is_columns(expr) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Writes out forms, query by query.
struct Writer<'a> {
    /// What DataFusion plans in, with the tables of the statement.
    state: &'a SessionState,
    /// The common table expressions that the current query may name.
    withs: Vec<With>,
    /// Queries whose visit is over, for as long as the visitor is on its way through something else.
    kept: Vec<Query>,
}

impl Writer<'_> {
    fn query(&mut self, query: &mut Query, recursive: Option<&TableAlias>) -> Result<()> {
        let outer = self.withs.len();
        if let Some(with) = &mut query.with {
            self.with(with)?;
        }
        self.body(&mut query.body, query.order_by.as_mut(), recursive)?;
        if let Some(order) = &mut query.order_by
            && let OrderByKind::All(options) = order.kind
        {
            let whole = Query { order_by: None, ..query_of_body(&query.body) };
            let count = columns_of_query(self.state, whole, &self.withs)?.len();
            let number =
                |number: usize| Expr::Value(Value::Number(number.to_string(), false).into());
            let term = |place| OrderByExpr { expr: number(place), options, with_fill: None };
            order.kind = OrderByKind::Expressions((1..=count).map(term).collect());
        }
        self.visit(&mut query.order_by)?;
        self.visit(&mut query.limit_clause)?;
        self.withs.truncate(outer);
        Ok(())
    }

    fn with(&mut self, with: &mut With) -> Result<()> {
        let place = self.withs.len();
        self.withs.push(With { cte_tables: Vec::new(), ..with.clone() });
        for table in &mut with.cte_tables {
            self.query(&mut table.query, with.recursive.then_some(&table.alias))?;
            self.withs[place].cte_tables.push(table.clone());
        }
        Ok(())
    }

    fn body(
        &mut self,
        body: &mut SetExpr,
        order: Option<&mut OrderBy>,
        recursive: Option<&TableAlias>,
    ) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, order),
            SetExpr::Query(query) => self.query(query, None),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, None, None)?;
                let outer = self.withs.len();
                self.withs.extend(recursive.map(|alias| stand_in(alias, left)));
                let result = self.body(right, None, None);
                self.withs.truncate(outer);
                result
            }
            other => self.visit(other),
        }
    }

    fn select(&mut self, select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
        self.visit(&mut select.from)?;
        star::write_out(select, self.state, &self.withs)?;
        columns::write_out(select, order, self.state, &self.withs)?;
        aliases::write_out(select, self.state, &self.withs)?;
        self.visit(&mut select.projection)?;
        self.visit(&mut select.distinct)?;
        self.visit(&mut select.prewhere)?;
        self.visit(&mut select.selection)?;
        self.visit(&mut select.group_by)?;
        self.visit(&mut select.having)?;
        self.visit(&mut select.named_window)?;
        self.visit(&mut select.qualify)
    }

    /// Goes through a part of a statement for the queries in it.
    fn visit(&mut self, part: &mut impl VisitMut) -> Result<()> {
        match part.visit(self) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }
}

impl VisitorMut for Writer<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Err(error) = self.query(query, None) {
            return ControlFlow::Break(error);
        }
        // It was visited in an order of its own: the visitor finds nothing there.
        self.kept.push(std::mem::replace(query, query_of(Vec::new())));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        *query = self.kept.pop().expect("what is visited was kept");
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<SqlError> {
        match pivots::write_out(self, table) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn query_of_body(body: &SetExpr) -> Query {
    crate::statement::query_of(body.clone())
}

/// A column of FROM as an item of a select list, under another name if there is one.
fn item(expr: Expr, name: &str) -> SelectItem {
    let is_named = match &expr {
        Expr::Identifier(ident) => ident.value == name,
        Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|last| last.value == name),
        _ => false,
    };
    match is_named {
        true => SelectItem::UnnamedExpr(expr),
        false => SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) },
    }
}
