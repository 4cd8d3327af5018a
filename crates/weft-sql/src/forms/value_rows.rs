//! VALUES with subqueries, as a UNION ALL of a query for each row: DataFusion evaluates the rows of VALUES while it plans.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, SetOperator, SetQuantifier, Values, Visit, Visitor,
};

use crate::using_joins::query_of;

/// Makes queries of rows, if a query is among their values.
pub(crate) fn rewrite(body: &mut SetExpr) {
    let SetExpr::Values(values) = &*body else { return };
    if Visit::visit(values, &mut Queries).is_continue() || has_default(values) {
        return;
    }
    let rows = values.rows.iter().map(|row| row_of(&row.content));
    let union = rows.reduce(|left, right| SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(left),
        right: Box::new(right),
    });
    if let Some(union) = union {
        *body = union;
    }
}

/// The query for a row.
fn row_of(values: &[Expr]) -> SetExpr {
    let mut body = *query_of(Vec::new()).body;
    if let SetExpr::Select(select) = &mut body {
        let column = |(place, value): (usize, &Expr)| SelectItem::ExprWithAlias {
            expr: value.clone(),
            alias: Ident::with_quote('"', format!("column{}", place + 1)),
        };
        select.projection = values.iter().enumerate().map(column).collect();
    }
    body
}

/// True of rows with DEFAULT, which is the business of INSERT.
fn has_default(values: &Values) -> bool {
    let is_default = |value: &Expr| {
        matches!(value, Expr::Identifier(name)
            if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
    };
    values.rows.iter().any(|row| row.content.iter().any(is_default))
}

/// Finds queries.
struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
