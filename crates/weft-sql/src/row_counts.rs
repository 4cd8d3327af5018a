//! `count(b.*)` counts the rows of `b`: DataFusion takes it for `count(*)`, so that a LEFT JOIN without a row of `b` counts.
//!
//! A mark beside the columns of `b` says that there is a row, and is counted.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Join, OrderBy, Query,
    Select, SelectItem, TableAlias, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{SqlError, internal};
use crate::statement::fold;
use crate::text::DIALECT;

/// The name of the mark.
const MARK: &str = "row of the table";

/// Has the rows of tables counted in a query without `*` in its select list.
///
/// # Errors
/// None that are known of.
pub(crate) fn count_rows(
    select: &mut Select,
    order_by: Option<&mut OrderBy>,
) -> ControlFlow<SqlError> {
    let is_wildcard = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    if select.projection.iter().any(is_wildcard) {
        return ControlFlow::Continue(());
    }
    let mut found = Counted { tables: Vec::new(), depth: 0 };
    // The visitor never breaks.
    let _ = select.projection.visit(&mut found);
    let _ = select.having.visit(&mut found);
    if let Some(order_by) = order_by {
        let _ = order_by.visit(&mut found);
    }
    for table in &mut select.from {
        mark(&mut table.relation, &found.tables)?;
        for Join { relation, .. } in &mut table.joins {
            mark(relation, &found.tables)?;
        }
    }
    ControlFlow::Continue(())
}

/// The tables of which rows are counted, and how deep in other queries the visitor is.
struct Counted {
    tables: Vec<String>,
    depth: usize,
}

impl VisitorMut for Counted {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Function(function) = expr
            && let Some(table) = counted(function)
        {
            self.tables.push(table);
        }
        ControlFlow::Continue(())
    }
}

/// The table of which a function counts the rows, which are marks from now on.
fn counted(function: &mut Function) -> Option<String> {
    if !function.name.to_string().eq_ignore_ascii_case("count") {
        return None;
    }
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let [FunctionArg::Unnamed(argument)] = list.args.as_mut_slice() else { return None };
    let FunctionArgExpr::QualifiedWildcard(table) = argument else { return None };
    let table = table.0.last()?.as_ident()?.clone();
    let mark = vec![table.clone(), Ident::with_quote('"', MARK)];
    *argument = FunctionArgExpr::Expr(Expr::CompoundIdentifier(mark));
    Some(fold(table.value, table.quote_style))
}

/// Puts a table with marks in place of one whose rows are counted.
fn mark(factor: &mut TableFactor, tables: &[String]) -> ControlFlow<SqlError> {
    if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
        mark(&mut table_with_joins.relation, tables)?;
        for join in &mut table_with_joins.joins {
            mark(&mut join.relation, tables)?;
        }
        return ControlFlow::Continue(());
    }
    let name = match factor {
        TableFactor::Table { alias: Some(TableAlias { name, .. }), .. }
        | TableFactor::Derived { alias: Some(TableAlias { name, .. }), .. } => name.clone(),
        TableFactor::Table { name, alias: None, .. } => {
            match name.0.last().and_then(|part| part.as_ident()) {
                Some(name) => name.clone(),
                None => return ControlFlow::Continue(()),
            }
        }
        _ => return ControlFlow::Continue(()),
    };
    if !tables.contains(&fold(name.value.clone(), name.quote_style)) {
        return ControlFlow::Continue(());
    }
    let is_lateral = matches!(factor, TableFactor::Derived { lateral: true, .. });
    let lateral = if is_lateral { "LATERAL " } else { "" };
    if let TableFactor::Derived { lateral, .. } = factor {
        *lateral = false;
    }
    let sql = format!("{lateral}(SELECT *, true AS \"{MARK}\" FROM {factor}) AS {name}");
    let parsed =
        Parser::new(&DIALECT).try_with_sql(&sql).and_then(|mut parser| parser.parse_table_factor());
    match parsed {
        Ok(marked) => *factor = marked,
        Err(error) => return ControlFlow::Break(internal(&error.to_string())),
    }
    ControlFlow::Continue(())
}
