//! `sum(NULL)` and `avg(NULL)`: NULL without a type is a BIGINT for sum, a DOUBLE for avg. DataFusion has none of them.

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
    let (Some(data_type), [argument]) = (type_of_null(function.name()), &mut args[..]) else {
        return Ok(Transformed::no(expr));
    };
    if argument.get_type(schema)? != DataType::Null {
        return Ok(Transformed::no(expr));
    }
    *argument = cast(std::mem::take(argument), data_type);
    Ok(Transformed::yes(expr))
}

/// What NULL is for a function.
pub(crate) fn type_of_null(function: &str) -> Option<DataType> {
    match function {
        "sum" => Some(DataType::Int64),
        "avg" => Some(DataType::Float64),
        _ => None,
    }
}
