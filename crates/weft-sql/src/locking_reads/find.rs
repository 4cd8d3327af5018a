//! Finds the locking reads of a statement: takes their clauses from them, and has them read what is locked in place of tables.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    self, Expr, LimitClause, Query, SelectItem, SetExpr, Visit, VisitMut, Visitor, VisitorMut, With,
};
use weft_store::WhenLocked;

use super::names::{LockedTable, Names, is_called, name_of, names_of};
use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::{Parsed, inner_statement};

/// A query whose rows are to be locked.
pub(super) struct LockingRead {
    /// The query as it was written, but for the names of tables.
    pub(super) written: Box<Query>,
    /// What finds the rows: the query as it was written, without its clause, over relations of rows with their ids.
    pub(super) query: Box<Query>,
    pub(super) tables: Vec<LockedTable>,
    pub(super) when_locked: WhenLocked,
    /// How many rows it wants, those of OFFSET among them.
    pub(super) count: Option<Expr>,
}

/// Whether a statement has locking reads.
pub(super) fn has_locks(parsed: &mut Parsed) -> bool {
    struct HasLocks;
    impl VisitorMut for HasLocks {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            match query.locks.is_empty() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }
    }
    visit(parsed, &mut HasLocks).is_break()
}

/// Has a statement lock nothing.
pub(super) fn take_locks(parsed: &mut Parsed) {
    struct TakeLocks;
    impl VisitorMut for TakeLocks {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            query.locks.clear();
            ControlFlow::Continue(())
        }
    }
    // The visitor never breaks.
    let _ = visit(parsed, &mut TakeLocks);
}

/// Takes the first locking read from a statement within which there is no other one. `number` tells its names from those of others;
/// `waits` is whether locks are taken that have to be waited for.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for queries whose rows are none of tables; [`ErrorKind::Semantic`] for names of OF that are none.
pub(super) fn next_read(
    parsed: &mut Parsed,
    number: usize,
    waits: bool,
) -> Result<Option<LockingRead>> {
    let mut finder = Finder { withs: Vec::new(), number, waits };
    match visit(parsed, &mut finder) {
        ControlFlow::Break(found) => found.map(Some),
        ControlFlow::Continue(()) => Ok(None),
    }
}

/// Visits the queries of a statement that locks what they find.
fn visit<V: VisitorMut>(parsed: &mut Parsed, visitor: &mut V) -> ControlFlow<V::Break> {
    match parsed {
        Parsed::Sql(statement) => match inner_statement(statement) {
            Some(ast::Statement::CreateView(_)) | None => ControlFlow::Continue(()),
            Some(statement) => VisitMut::visit(statement, visitor),
        },
        Parsed::Change(change) => VisitMut::visit(&mut change.query, visitor),
        Parsed::CopyTo { query, .. } => VisitMut::visit(query, visitor),
        _ => ControlFlow::Continue(()),
    }
}

/// Whether a statement tells of another one, which is not run.
pub(super) fn is_explained(parsed: &Parsed) -> bool {
    matches!(parsed, Parsed::Sql(statement)
        if matches!(statement.as_ref(), DfStatement::Explain(explain) if !explain.options.analyze))
}

struct Finder {
    /// The common table expressions of the queries around.
    withs: Vec<Option<With>>,
    number: usize,
    waits: bool,
}

impl VisitorMut for Finder {
    type Break = Result<LockingRead>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.withs.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.withs.pop();
        if query.locks.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.taken(query) {
            Ok(Some(read)) => ControlFlow::Break(Ok(read)),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }
}

impl Finder {
    /// What a locking read is to lock; `None` if that is nothing.
    fn taken(&self, query: &mut Query) -> Result<Option<LockingRead>> {
        let locks = std::mem::take(&mut query.locks);
        let mut waits = locks.iter().map(|lock| match lock.nonblock {
            None => WhenLocked::Wait,
            Some(ast::NonBlock::Nowait) => WhenLocked::Fail,
            Some(ast::NonBlock::SkipLocked) => WhenLocked::Skip,
        });
        let when_locked = waits.next().unwrap_or(WhenLocked::Wait);
        if waits.any(|other| other != when_locked) {
            return Err(SqlError::not_supported("NOWAIT or SKIP LOCKED of some tables of a query")
                .with_hint("write it for all of them"));
        }
        if when_locked == WhenLocked::Wait && !self.waits {
            return Ok(None);
        }
        check_form(query)?;
        let count = count_of(query);
        let mut ctes = names_of(query.with.as_ref());
        self.withs.iter().for_each(|with| ctes.extend(names_of(with.as_ref())));
        let mut names = Names { locks: &locks, ctes, number: self.number, tables: Vec::new() };
        let SetExpr::Select(select) = query.body.as_mut() else { return Ok(None) };
        let mut with_ids = select.from.clone();
        // The query reads what is locked, and what finds that reads the tables.
        for (from, finds) in select.from.iter_mut().zip(&mut with_ids) {
            names.of_joins(from, finds)?;
        }
        let tables = names.tables;
        for of in locks.iter().filter_map(|lock| lock.of.as_ref()) {
            if !tables.iter().any(|table| is_called(&table.alias, of)) {
                let message =
                    format!("relation {of} in the FOR UPDATE clause is not a table of FROM");
                return Err(SqlError::new(ErrorKind::Semantic, message).with_sqlstate("42P01"));
            }
        }
        if tables.is_empty() {
            return Ok(None);
        }
        let written = Box::new(query.clone());
        let mut finds = written.clone();
        (finds.limit_clause, finds.fetch) = (None, None);
        if let SetExpr::Select(select) = finds.body.as_mut() {
            select.from = with_ids;
            order_without_items(select, &mut finds.order_by);
        }
        finds.with = self.with_around(finds.with.take());
        Ok(Some(LockingRead { written, query: finds, tables, when_locked, count }))
    }

    /// The common table expressions of a query and of those around it.
    fn with_around(&self, own: Option<With>) -> Option<With> {
        let mut all = own;
        for outer in self.withs.iter().rev().flatten() {
            let hidden = names_of(all.as_ref());
            let mut outer = outer.clone();
            // One that locks has its rows by now, or is around this one.
            outer.cte_tables.retain(|cte| {
                !hidden.contains(&name_of(&cte.alias.name)) && !locks_rows(&cte.query)
            });
            match &mut all {
                Some(with) => {
                    with.recursive |= outer.recursive;
                    with.cte_tables.splice(0..0, outer.cte_tables);
                }
                None => all = Some(outer).filter(|with| !with.cte_tables.is_empty()),
            }
        }
        all
    }
}

fn locks_rows(query: &Query) -> bool {
    struct Locks;
    impl Visitor for Locks {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            match query.locks.is_empty() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }
    }
    Visit::visit(query, &mut Locks).is_break()
}

/// Refuses queries whose rows are none of tables.
fn check_form(query: &Query) -> Result<()> {
    let not_with = |what: &str| {
        let message = format!("FOR UPDATE is not allowed with {what}");
        Err(SqlError::new(ErrorKind::NotSupported, message)
            .with_hint("lock the rows in a subquery: SELECT … FROM (SELECT … FOR UPDATE) AS t"))
    };
    let SetExpr::Select(select) = query.body.as_ref() else {
        return not_with("UNION, INTERSECT, EXCEPT or VALUES");
    };
    let has_groups = match &select.group_by {
        ast::GroupByExpr::All(_) => true,
        ast::GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    let limit_by = matches!(&query.limit_clause,
        Some(LimitClause::LimitOffset { limit_by, .. }) if !limit_by.is_empty());
    let ties = query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties || fetch.percent);
    let refused = [
        ("DISTINCT", select.distinct.is_some()),
        ("GROUP BY", has_groups),
        ("HAVING", select.having.is_some()),
        ("window functions", select.qualify.is_some()),
        ("LIMIT BY", limit_by),
        ("WITH TIES or PERCENT", ties),
    ];
    match refused.iter().find(|(_, is_there)| *is_there) {
        Some((what, _)) => not_with(what),
        None => Ok(()),
    }
}

/// How many rows a query wants, rows that OFFSET leaves out among them.
fn count_of(query: &Query) -> Option<Expr> {
    let (limit, offset) = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            (limit.clone(), offset.as_ref().map(|offset| offset.value.clone()))
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            (Some(limit.clone()), Some(offset.clone()))
        }
        None => (None, None),
    };
    let one = || Expr::value(ast::Value::Number("1".to_owned(), false));
    let fetched = query.fetch.as_ref().map(|fetch| fetch.quantity.clone().unwrap_or_else(one));
    let nested = |expr| Box::new(Expr::Nested(Box::new(expr)));
    match (limit.or(fetched)?, offset) {
        (limit, None) => Some(limit),
        (limit, Some(offset)) => Some(Expr::BinaryOp {
            left: nested(limit),
            op: ast::BinaryOperator::Plus,
            right: nested(offset),
        }),
    }
}

/// Has ORDER BY name no items of the select list by their names or numbers, and leaves the items out; they stay where that cannot be.
fn order_without_items(select: &mut ast::Select, order_by: &mut Option<ast::OrderBy>) {
    let Some(order_by) = order_by else {
        select.projection.clear();
        return;
    };
    let ast::OrderByKind::Expressions(exprs) = &mut order_by.kind else { return };
    let is_whole = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    let are_numbered = select.projection.iter().all(is_whole);
    let expr_of = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr.clone(),
        _ => Expr::value(ast::Value::Null),
    };
    for order in exprs.iter_mut() {
        let item = match &order.expr {
            Expr::Value(value) => match &value.value {
                ast::Value::Number(number, _) if are_numbered => {
                    let number = number.parse::<usize>().ok().and_then(|of| of.checked_sub(1));
                    match number.and_then(|number| select.projection.get(number)) {
                        Some(item) => Some(expr_of(item)),
                        None => return,
                    }
                }
                _ => return,
            },
            Expr::Identifier(ident) => select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if name_of(alias) == name_of(ident) => {
                    Some(expr.clone())
                }
                _ => None,
            }),
            _ => None,
        };
        if let Some(item) = item {
            order.expr = item;
        }
    }
    select.projection.clear();
}

/// What is in items or ORDER BY, outside of subqueries, that is not of single rows.
pub(super) fn many_rows(
    query: &Query,
    is_aggregate: impl Fn(&str) -> bool,
) -> Option<&'static str> {
    struct ManyRows<F> {
        queries: usize,
        is_aggregate: F,
    }
    impl<F: Fn(&str) -> bool> Visitor for ManyRows<F> {
        type Break = &'static str;

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<&'static str> {
            self.queries += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<&'static str> {
            self.queries -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<&'static str> {
            match expr {
                // The query itself is one.
                Expr::Function(function) if self.queries == 1 => {
                    if function.over.is_some() {
                        return ControlFlow::Break("window functions");
                    }
                    match (self.is_aggregate)(&function.name.to_string().to_ascii_lowercase()) {
                        true => ControlFlow::Break("aggregate functions"),
                        false => ControlFlow::Continue(()),
                    }
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match Visit::visit(query, &mut ManyRows { queries: 0, is_aggregate }) {
        ControlFlow::Break(what) => Some(what),
        ControlFlow::Continue(()) => None,
    }
}
