//! FILTER of aggregates over windows: rows that are left out count as null, which the aggregate passes over. DataFusion
//! tells nobody of a physical plan what the condition is.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition, when};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::rewrite_expressions;

/// Aggregates of one argument for which nulls are no values.
const PASS_OVER_NULLS: [&str; 12] = [
    "avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "count", "max", "median", "min",
    "stddev", "sum",
];

/// Puts CASE in place of FILTER. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct WindowFilters;

impl AnalyzerRule for WindowFilters {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, rewrite)
    }

    fn name(&self) -> &str {
        "window_filters"
    }
}

fn rewrite(expr: Expr, _: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let passes_over_nulls = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            PASS_OVER_NULLS.contains(&function.name())
        }
        WindowFunctionDefinition::WindowUDF(_) => false,
    };
    let condition = match call.params.args.len() {
        1 if passes_over_nulls => call.params.filter.take(),
        _ => None,
    };
    let Some(condition) = condition else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let argument = call.params.args.remove(0);
    call.params.args.push(when(*condition, argument).end()?);
    Ok(Transformed::yes(Expr::WindowFunction(call)))
}
