//! `nullif(a, b)` has the type of `a`: DataFusion gives it one that both have in common, which may not have all values of `a`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{Case, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::rewrite_expressions;

/// Puts `CASE WHEN a = b THEN NULL ELSE a END` in place of it where the types differ. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct Nullif;

impl AnalyzerRule for Nullif {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, rewrite)
    }

    fn name(&self) -> &str {
        "nullif"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "nullif" => match &call.args[..] {
            // What differs each time that it is computed cannot be written twice.
            [value, other] if differ(value, other, schema) && !value.is_volatile() => {
                let equal = Box::new(value.clone().eq(other.clone()));
                let null = Box::new(Expr::Literal(ScalarValue::Null, None));
                let value = Some(Box::new(value.clone()));
                Ok(Transformed::yes(Expr::Case(Case::new(None, vec![(equal, null)], value))))
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
        },
        other => Ok(Transformed::no(other)),
    }
}

/// True of values of two types.
fn differ(value: &Expr, other: &Expr, schema: &DFSchema) -> bool {
    match (value.get_type(schema), other.get_type(schema)) {
        (Ok(DataType::Null), _) | (_, Ok(DataType::Null)) => false,
        (Ok(value), Ok(other)) => value != other,
        _ => false,
    }
}
