//! VALUES with queries in them, as `VALUES ((SELECT 1), 2)`: DataFusion evaluates rows of values without having executed such
//! queries. So the rows are put as queries themselves.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, SetExpr, Values, Visit, Visitor};
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{SqlError, internal};
use crate::text::DIALECT;

/// Puts rows of values that have queries in them as a UNION of queries.
///
/// # Errors
/// None that are known of.
pub(crate) fn as_queries(body: &mut SetExpr) -> ControlFlow<SqlError> {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            as_queries(left)?;
            as_queries(right)?;
        }
        SetExpr::Values(values) if has_query(values) => {
            let rows: Vec<String> = values.rows.iter().map(|row| select(row)).collect();
            let sql = union(&rows);
            let parsed = Parser::new(&DIALECT).try_with_sql(&sql);
            match parsed.and_then(|mut parser| parser.parse_query()) {
                Ok(query) => *body = *query.body,
                Err(error) => return ControlFlow::Break(internal(&error.to_string())),
            }
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

/// The rows as one query that is nested no deeper than need be.
fn union(rows: &[String]) -> String {
    match rows {
        [row] => row.clone(),
        rows => {
            let (left, right) = rows.split_at(rows.len() / 2);
            format!("({}) UNION ALL ({})", union(left), union(right))
        }
    }
}

fn select(row: &[Expr]) -> String {
    let columns = row.iter().zip(1..).map(|(value, number)| format!("{value} AS column{number}"));
    format!("SELECT {}", columns.collect::<Vec<_>>().join(", "))
}

fn has_query(values: &Values) -> bool {
    struct Queries;
    impl Visitor for Queries {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    values.visit(&mut Queries).is_break()
}
