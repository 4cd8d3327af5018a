//! Joins with USING and NATURAL, written out as joins with ON before DataFusion plans them: for it, such a
//! join has both sides' keys, and a name without a table means one of them, or is ambiguous.
//!
//! In SQL, each key is one column of the join, merged of both: the left side's for INNER and LEFT joins, the
//! right side's for RIGHT joins, the one that is there for FULL joins. A name without a table means the
//! merged column, and `*` has the merged columns first, then the left side's others, then the right side's.
//! With a table, names mean the sides' own columns as before.
//!
//! What a name means depends on the columns of all that FROM has, of which DataFusion is asked
//! (`probe.rs`). `relation.rs` knows what a join of such tables offers, `scope.rs` what a name means there,
//! in a query and in those within it, and `select_list.rs` writes out `*`. A query with tables whose
//! columns cannot be told, such as those of a subquery's derived table that uses the outer query's columns,
//! is left to DataFusion.

mod from;
mod probe;
mod relation;
mod scope;
mod select_list;

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Cte, Distinct, Expr, Ident, JoinConstraint, OrderBy, Query, Select, SelectItem, SetExpr,
    TableAlias, TableFactor, TableWithJoins, VisitMut, VisitorMut, With,
};

use self::from::constraint;
use self::relation::Relation;
use self::scope::{Clause, Scope};
use crate::statement::{fold, inner_statement};

pub(crate) use self::probe::{no_token, query_of, with_tables};

/// True if a statement has joins with USING or NATURAL.
pub(crate) fn are_in(statement: &mut DfStatement) -> bool {
    inner_statement(statement).is_some_and(|inner| inner.visit(&mut Finder).is_break())
}

/// Writes out the joins with USING and NATURAL of a statement, in a state that [`with_tables`] made for it.
pub(crate) fn write_out(statement: &mut DfStatement, state: &SessionState) {
    if let Some(inner) = inner_statement(statement) {
        visit(inner, &mut Writer::new(state));
    }
}

/// Finds joins with USING and NATURAL.
struct Finder;

impl VisitorMut for Finder {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        match has_using(&select.from) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// True of FROM clauses with joins with USING or NATURAL, those of their subqueries apart.
fn has_using(from: &[TableWithJoins]) -> bool {
    let within = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => {
            has_using(std::slice::from_ref(table_with_joins))
        }
        _ => false,
    };
    from.iter().any(|table| {
        within(&table.relation)
            || table.joins.iter().any(|join| {
                let found = constraint(&join.join_operator);
                within(&join.relation)
                    || matches!(found, Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
            })
    })
}

/// Writes out joins, query by query from the outside in.
struct Writer<'a> {
    /// What DataFusion plans in, with the tables of the statement.
    state: &'a SessionState,
    /// The queries that the current one is in, from the outermost on.
    scopes: Vec<Scope>,
    /// The common table expressions that it may name.
    withs: Vec<With>,
    /// Queries whose visit is over, for as long as the visitor is on its way through something else.
    kept: Vec<Query>,
    /// How many derived tables without a name got one.
    named: usize,
}

impl<'a> Writer<'a> {
    fn new(state: &'a SessionState) -> Writer<'a> {
        Writer { state, scopes: Vec::new(), withs: Vec::new(), kept: Vec::new(), named: 0 }
    }

    /// A query; `recursive` is the name that its second part may use for it.
    fn query(&mut self, query: &mut Query, recursive: Option<&TableAlias>) {
        if !query.pipe_operators.is_empty() {
            return;
        }
        let outer = self.withs.len();
        if let Some(with) = &mut query.with {
            self.with(with);
        }
        self.body(&mut query.body, query.order_by.as_mut(), recursive);
        visit(&mut query.limit_clause, self);
        self.withs.truncate(outer);
    }

    fn with(&mut self, with: &mut With) {
        let known = With { cte_tables: Vec::new(), ..with.clone() };
        let place = self.withs.len();
        self.withs.push(known);
        for table in &mut with.cte_tables {
            self.query(&mut table.query, with.recursive.then_some(&table.alias));
            self.withs[place].cte_tables.push(table.clone());
        }
    }

    fn body(
        &mut self,
        body: &mut SetExpr,
        order: Option<&mut OrderBy>,
        recursive: Option<&TableAlias>,
    ) {
        match body {
            SetExpr::Select(select) => return self.select(select, order),
            SetExpr::Query(query) => self.query(query, None),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, None, None);
                let outer = self.withs.len();
                self.withs.extend(recursive.map(|alias| stand_in(alias, left)));
                self.body(right, None, None);
                self.withs.truncate(outer);
            }
            other => visit(other, self),
        }
        // It sorts by columns of the result, and by nothing else.
        if let Some(order) = order {
            self.within(Scope::unknown(), |writer| visit(order, writer));
        }
    }

    fn select(&mut self, select: &mut Select, order: Option<&mut OrderBy>) {
        self.nested_queries(&mut select.from);
        let relation = self.write_from(select);
        self.scopes.push(Scope::of(relation));
        self.items(&mut select.projection);
        visit(&mut select.prewhere, self);
        visit(&mut select.selection, self);
        visit(&mut select.named_window, self);
        let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
        self.current().name_items(&select.projection, is_distinct);
        self.current().clause = Clause::Groups;
        visit(&mut select.group_by, self);
        visit(&mut select.having, self);
        visit(&mut select.qualify, self);
        self.current().clause = Clause::Order;
        visit(&mut select.distinct, self);
        if let Some(order) = order {
            visit(order, self);
        }
        self.scopes.pop();
    }

    /// Puts joins with ON into FROM and writes out `*`. What FROM offers then, if it matters and is known.
    fn write_from(&mut self, select: &mut Select) -> Option<Relation> {
        let is_using = has_using(&select.from);
        if is_using || self.scopes.iter().any(Scope::has_merged) {
            let mut from = select.from.clone();
            let relation = self.from(&mut from, is_using);
            let items = relation.as_ref().and_then(|relation| match is_using {
                true => select_list::write_out(&select.projection, relation),
                false => Some(select.projection.clone()),
            });
            if let (Some(relation), Some(items)) = (relation, items) {
                select.from = from;
                select.projection = items;
                return Some(relation);
            }
        }
        self.within(Scope::unknown(), |writer| writer.conditions(&mut select.from));
        None
    }

    /// The items of a select list, which keep their names.
    fn items(&mut self, items: &mut [SelectItem]) {
        for item in items.iter_mut() {
            if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
                && let Some(expr) = self.meaning(name)
            {
                let mut alias = Ident::with_quote('"', folded(name));
                alias.span = name.span;
                *item = SelectItem::ExprWithAlias { expr, alias };
            } else {
                visit(item, self);
            }
        }
        if self.current().has_merged() {
            select_list::name_apart(items);
        }
    }

    fn current(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("a select is visited within its scope")
    }

    fn within<T>(&mut self, scope: Scope, visit: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(scope);
        let result = visit(self);
        self.scopes.pop();
        result
    }

    /// What stands for a name without a table, if that is a merged column.
    fn meaning(&self, name: &Ident) -> Option<Expr> {
        let folded = folded(name);
        let found = self.scopes.iter().rev().find_map(|scope| scope.meaning(&folded))?;
        found.map(|column| column.expr(name.span))
    }
}

impl VisitorMut for Writer<'_> {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        self.query(query, None);
        // It was visited in an order of its own: the visitor finds nothing there.
        self.kept.push(std::mem::replace(query, query_of(Vec::new())));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        *query = self.kept.pop().expect("what is visited was kept");
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Identifier(name) = expr
            && let Some(meant) = self.meaning(name)
        {
            *expr = meant;
        }
        ControlFlow::Continue(())
    }
}

/// Goes through a part of a statement, which nothing stops.
fn visit(part: &mut impl VisitMut, writer: &mut Writer<'_>) {
    let ControlFlow::Continue(()) = part.visit(writer);
}

/// What the recursive part of a common table expression is told by: the part that does not name it.
fn stand_in(alias: &TableAlias, first: &SetExpr) -> With {
    let mut query = query_of(Vec::new());
    *query.body = first.clone();
    let table = Cte {
        alias: alias.clone(),
        query: Box::new(query),
        from: None,
        materialized: None,
        closing_paren_token: probe::no_token(),
    };
    With { with_token: probe::no_token(), recursive: false, cte_tables: vec![table] }
}

fn folded(name: &Ident) -> String {
    fold(name.value.clone(), name.quote_style)
}
