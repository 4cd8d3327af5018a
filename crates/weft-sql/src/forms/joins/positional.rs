//! POSITIONAL JOIN: the first row with the first one, the second with the second; the shorter side has NULL.

use std::sync::Arc;

use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result as DfResult};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

/// The names of the numbers of rows.
const NUMBERS: [&str; 2] = ["__left_position", "__right_position"];

/// A full join on the numbers of the rows.
pub(super) fn plan(join: Join) -> DfResult<LogicalPlan> {
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let [left, right] = NUMBERS;
    let numbered = Join::try_new(
        Arc::new(numbered(&join.left, left)?),
        Arc::new(numbered(&join.right, right)?),
        vec![(Expr::Column(Column::from_name(left)), Expr::Column(Column::from_name(right)))],
        None,
        JoinType::Full,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(numbered)).project(columns)?.build()
}

/// The rows with their numbers.
fn numbered(input: &LogicalPlan, name: &str) -> DfResult<LogicalPlan> {
    let number = row_number();
    let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let windowed = LogicalPlanBuilder::from(input.clone()).window([number])?.build()?;
    let numbers = windowed.schema().columns().pop();
    columns.extend(numbers.map(|number| Expr::Column(number).alias(name)));
    LogicalPlanBuilder::from(windowed).project(columns)?.build()
}
