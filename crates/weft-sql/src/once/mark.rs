//! Common table expressions that may be different each time get a second name below their own, which no other query has: the planner
//! copies their plans, and does not tell which of them are copies.

use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::execution::SessionState;
use datafusion::logical_expr::Volatility;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, ObjectName, Query, SetExpr, Statement, TableFactor, VisitMut, VisitorMut,
};

use crate::exclusions::is_mark_name;
use crate::statement::{fold, parse_query};

/// What second names begin with.
const PREFIX: &str = "__once_";

/// True for a second name.
pub(super) fn is_mark(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Marks what a statement reads more than once and what may be different each time: calls of volatile functions, and views that
/// may have some.
pub(crate) fn mark(
    statement: &mut Statement,
    state: &SessionState,
    is_view: &dyn Fn(&str) -> bool,
) {
    let mut names = Names::default();
    visit(statement, &mut names);
    if names.has_with {
        let fleeting = HashSet::new();
        visit(statement, &mut Marker { state, is_view, read: names.relations, fleeting });
    }
}

fn visit<V: VisitorMut<Break = Infallible>>(part: &mut impl VisitMut, visitor: &mut V) {
    let ControlFlow::Continue(()) = part.visit(visitor);
}

/// The names of relations and functions, as often as they occur.
#[derive(Default)]
struct Names {
    relations: Vec<String>,
    functions: Vec<String>,
    has_with: bool,
}

impl VisitorMut for Names {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        self.has_with |= query.with.is_some();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Infallible> {
        self.relations.push(last(relation));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Expr::Function(function) = expr {
            self.functions.push(last(&function.name));
        }
        ControlFlow::Continue(())
    }
}

/// The last part of a name, as the catalog has it.
fn last(name: &ObjectName) -> String {
    let ident = name.0.last().and_then(|part| part.as_ident());
    ident.map(folded).unwrap_or_default()
}

fn folded(ident: &Ident) -> String {
    fold(ident.value.clone(), ident.quote_style)
}

/// Marks queries, from the inside out.
struct Marker<'a> {
    state: &'a SessionState,
    is_view: &'a dyn Fn(&str) -> bool,
    /// The names of relations that are read.
    read: Vec<String>,
    /// Names of what may be different each time.
    fleeting: HashSet<String>,
}

impl VisitorMut for Marker<'_> {
    type Break = Infallible;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        if let Some(with) = &mut query.with {
            with.cte_tables.iter_mut().for_each(|table| self.mark(table));
        }
        ControlFlow::Continue(())
    }
}

impl Marker<'_> {
    fn mark(&mut self, table: &mut Cte) {
        let name = folded(&table.alias.name);
        let mut names = Names::default();
        visit(&mut table.query, &mut names);
        let is_fleeting = names.functions.iter().any(|function| self.is_volatile(function))
            || names.relations.iter().any(|of| self.fleeting.contains(of) || (self.is_view)(of));
        if !is_fleeting {
            return;
        }
        // A recursive one is told by its steps, and must stay a UNION.
        let is_recursive = names.relations.contains(&name);
        let times = self.read.iter().filter(|read| **read == name).count();
        if !is_recursive && times > 1 {
            name_twice(&mut table.query);
        }
        self.fleeting.insert(name);
    }

    fn is_volatile(&self, function: &str) -> bool {
        if is_mark_name(function) {
            return false;
        }
        let function = self.state.scalar_functions().get(function);
        function.is_some_and(|function| function.signature().volatility == Volatility::Volatile)
    }
}

/// Puts a query with a name of its own around a query.
fn name_twice(query: &mut Box<Query>) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let around = parse_query(&format!("SELECT * FROM (SELECT 1) AS {PREFIX}{number}"));
    let inner = std::mem::replace(query, Box::new(around.expect("a query")));
    let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("a SELECT") };
    match select.from.first_mut().map(|table| &mut table.relation) {
        Some(TableFactor::Derived { subquery, .. }) => *subquery = inner,
        _ => unreachable!("a query with a name"),
    }
}
