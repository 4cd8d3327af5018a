//! `sum(NULL)` and `avg(NULL)`: NULL without a type is a BIGINT for sum, a DOUBLE for avg. `sum` of truths counts those that
//! are true. DataFusion has none of them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, WindowFunctionDefinition, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::rewrite_expressions;

/// Gives NULL a type. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct NullArguments;

impl AnalyzerRule for NullArguments {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, rewrite)
    }

    fn name(&self) -> &str {
        "null_arguments"
    }
}

fn rewrite(mut expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let (function, args) = match &mut expr {
        Expr::AggregateFunction(call) => (&call.func, &mut call.params.args),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(function) => (function, &mut call.params.args),
            WindowFunctionDefinition::WindowUDF(_) => return Ok(Transformed::no(expr)),
        },
        _ => return Ok(Transformed::no(expr)),
    };
    let [argument] = &mut args[..] else { return Ok(Transformed::no(expr)) };
    if !matches!(function.name(), "sum" | "avg") {
        return Ok(Transformed::no(expr));
    }
    let Some(data_type) = other_type(function.name(), &[argument.get_type(schema)?]) else {
        return Ok(Transformed::no(expr));
    };
    *argument = cast(std::mem::take(argument), data_type);
    Ok(Transformed::yes(expr))
}

/// The type that an argument of a function gets: that of NULL, and of truths, which `sum` counts.
pub(crate) fn other_type(function: &str, types: &[DataType]) -> Option<DataType> {
    match (function, types) {
        ("sum", [DataType::Null | DataType::Boolean]) => Some(DataType::Int64),
        ("avg", [DataType::Null]) => Some(DataType::Float64),
        _ => None,
    }
}
