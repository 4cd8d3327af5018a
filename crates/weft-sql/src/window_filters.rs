//! FILTER of aggregates over windows: rows that are left out count as null, which the aggregate passes over. DataFusion
//! tells nobody of a physical plan what the condition is.
//!
//! FILTER of others: what is aggregated is null for rows that are left out, if computing it may fail. DataFusion computes what several
//! aggregates have in common for all rows.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition, lit, when};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::rewrite_expressions;

/// Aggregates that pass over rows for which their first argument is null.
const PASS_OVER_NULLS: [&str; 42] = [
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "enum_max",
    "enum_min",
    "kurtosis",
    "kurtosis_pop",
    "max",
    "median",
    "min",
    "mode",
    "percentile_cont",
    "product",
    "quantile_disc",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "skewness",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_samp",
];

/// Puts CASE in place of FILTER, or beside it. To be applied before types are coerced.
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
    let mut call = match expr {
        Expr::WindowFunction(call) => call,
        Expr::AggregateFunction(mut call) => {
            let Some(condition) = &call.params.filter else {
                return Ok(Transformed::no(Expr::AggregateFunction(call)));
            };
            let mut changed = false;
            // What differs each time that it is computed cannot be written twice.
            let is_volatile = condition.is_volatile();
            for argument in &mut call.params.args {
                if !is_volatile && may_fail(argument)? {
                    let computed = std::mem::take(argument);
                    *argument = when(condition.as_ref().clone(), computed).end()?;
                    changed = true;
                }
            }
            return Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed));
        }
        expr => return Ok(Transformed::no(expr)),
    };
    let passes_over_nulls = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(function) => {
            PASS_OVER_NULLS.contains(&function.name())
        }
        WindowFunctionDefinition::WindowUDF(_) => false,
    };
    if !passes_over_nulls || call.params.args.is_empty() {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    }
    let Some(condition) = call.params.filter.take() else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let argument = std::mem::take(&mut call.params.args[0]);
    // As nobody writes it: two expressions of a window that become the same have one name.
    call.params.args[0] = when(condition.is_true(), argument).otherwise(lit(ScalarValue::Null))?;
    Ok(Transformed::yes(Expr::WindowFunction(call)))
}

/// True of an expression that computes something, and not by cases already.
fn may_fail(expr: &Expr) -> DfResult<bool> {
    if matches!(expr, Expr::Case(_)) {
        return Ok(false);
    }
    expr.exists(|part| {
        Ok(matches!(
            part,
            Expr::BinaryExpr(_)
                | Expr::Negative(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::ScalarFunction(_)
        ))
    })
}
