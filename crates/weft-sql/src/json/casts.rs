//! Casts to JSON, which check texts and make JSON of other values, and from JSON, which take its values rather than its text.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, ScalarUDF, TryCast};
use datafusion::optimizer::AnalyzerRule;
use weft_json::is_json;

use super::functions::{CHECKED, CHECKED_OR_NULL, function};
use super::transform::to_type;
use crate::plan_walk::rewrite_expressions;

/// Makes functions of casts to and from JSON.
#[derive(Debug)]
pub(crate) struct JsonCasts {
    checked: Arc<ScalarUDF>,
    checked_or_null: Arc<ScalarUDF>,
}

impl JsonCasts {
    pub(crate) fn new() -> JsonCasts {
        JsonCasts { checked: function(&CHECKED), checked_or_null: function(&CHECKED_OR_NULL) }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let (inner, field, is_lenient) = match &expr {
            Expr::Cast(Cast { expr, field }) => (expr, field, false),
            Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
            _ => return Ok(Transformed::no(expr)),
        };
        let from = inner.to_field(schema)?.1;
        let inner = inner.as_ref().clone();
        Ok(match (is_json(&from), is_json(field)) {
            (true, true) => Transformed::yes(inner),
            (false, true) => {
                let function = if is_lenient { &self.checked_or_null } else { &self.checked };
                Transformed::yes(function.call(vec![inner]))
            }
            (true, false) if !field.data_type().is_string() => {
                Transformed::yes(to_type(field.data_type(), is_lenient).call(vec![inner]))
            }
            _ => Transformed::no(expr),
        })
    }
}

impl AnalyzerRule for JsonCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "json_casts"
    }
}
