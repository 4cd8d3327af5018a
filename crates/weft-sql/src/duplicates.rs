//! INTERSECT ALL and EXCEPT ALL count duplicates: DataFusion plans them as joins that keep or drop all
//! copies of a row at once.
//!
//! The copies of each row are numbered on both sides, and the number is compared as well.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result as DfResult};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder,
    WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;

/// Name of the column with the numbers.
const COPY: &str = "__copy";

/// Numbers the copies. To be applied first, while such a join can come from nothing else.
#[derive(Debug)]
pub(crate) struct CountedDuplicates;

impl AnalyzerRule for CountedDuplicates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if keeps_all_copies(&join) => {
                Ok(Transformed::yes(count(join)?))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "counted_duplicates"
    }
}

/// True of the join that INTERSECT ALL or EXCEPT ALL has become; without ALL its left side is distinct.
fn keeps_all_copies(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn count(join: Join) -> DfResult<LogicalPlan> {
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let (left, left_number) = numbered(&join.left, "left")?;
    let (right, right_number) = numbered(&join.right, "right")?;
    let mut on = join.on;
    on.push((left_number, right_number));
    let counted = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(counted)).project(columns)?.build()
}

/// A plan with the number of each copy of a row.
fn numbered(plan: &LogicalPlan, side: &str) -> DfResult<(LogicalPlan, Expr)> {
    let name = format!("{COPY}_{side}");
    let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let number = Expr::from(WindowFunction::new(function, Vec::new()))
        .partition_by(plan.schema().columns().into_iter().map(Expr::Column).collect())
        .build()?
        .alias(&name);
    let plan = LogicalPlanBuilder::from(plan.clone()).window([number])?.build()?;
    Ok((plan, Expr::Column(Column::new_unqualified(name))))
}
