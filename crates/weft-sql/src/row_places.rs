//! The places of a query's rows: a number for each, in the order that ORDER BY at the query's end says.

use std::sync::Arc;

use datafusion::common::Column as ColumnName;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, SortExpr, WindowFunctionDefinition,
};

use crate::error::Result;

/// The column of the places of rows, which are counted from 1.
pub(crate) const PLACE: &str = "place of the row";

/// A plan with one more column, which has the places of its rows in their order.
///
/// # Errors
/// None that are known.
pub(crate) fn with_places(plan: LogicalPlan) -> Result<LogicalPlan> {
    let place = || Expr::Column(ColumnName::new_unqualified(PLACE));
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = with_places(Arc::unwrap_or_clone(projection.input))?;
            let exprs = projection.expr.into_iter().chain([place()]);
            Ok(LogicalPlanBuilder::from(input).project(exprs)?.build()?)
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            let order = sort.expr.clone();
            numbered(Arc::unwrap_or_clone(sort.input), order)
        }
        plan => numbered(plan, Vec::new()),
    }
}

fn numbered(plan: LogicalPlan, order: Vec<SortExpr>) -> Result<LogicalPlan> {
    let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let number = Expr::from(WindowFunction::new(function, Vec::new()));
    let number = match order.is_empty() {
        true => number,
        false => number.order_by(order).build()?,
    };
    let name = number.schema_name().to_string();
    let columns: Vec<Expr> = plan
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .chain([Expr::Column(ColumnName::new_unqualified(name)).alias(PLACE)])
        .collect();
    Ok(LogicalPlanBuilder::from(plan).window([number])?.project(columns)?.build()?)
}
