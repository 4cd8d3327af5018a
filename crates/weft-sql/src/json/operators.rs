//! `->` and `->>`: a part of a JSON value, as JSON and as text.

use std::sync::Arc;

use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::functions::{EXTRACT, EXTRACT_TEXT, function};

/// Plans the operators as functions.
#[derive(Debug)]
pub(crate) struct JsonOperators {
    as_json: Arc<ScalarUDF>,
    as_text: Arc<ScalarUDF>,
}

impl JsonOperators {
    pub(crate) fn new() -> JsonOperators {
        JsonOperators { as_json: function(&EXTRACT), as_text: function(&EXTRACT_TEXT) }
    }
}

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> DfResult<PlannerResult<RawBinaryExpr>> {
        let function = match expr.op {
            BinaryOperator::Arrow => &self.as_json,
            BinaryOperator::LongArrow => &self.as_text,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(PlannerResult::Planned(function.call(vec![expr.left, expr.right])))
    }
}
