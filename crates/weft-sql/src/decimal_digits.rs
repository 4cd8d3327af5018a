//! Decimals of more than 38 digits are an error: DataFusion computes them in 128 bits, and shows the first 38 digits.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, FieldRef,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, exec_err, plan_err};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// The name of the function that checks.
pub(crate) const IN_38_DIGITS: &str = "in_38_digits";

/// Checks what computes decimals that may have more digits. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct CheckedDecimals {
    check: Arc<ScalarUDF>,
}

impl CheckedDecimals {
    pub(crate) fn new() -> CheckedDecimals {
        let signature = Signature::any(1, Volatility::Immutable);
        CheckedDecimals { check: Arc::new(ScalarUDF::from(In38Digits { signature })) }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        use Operator::{Minus, Multiply, Plus};
        let computes =
            matches!(&expr, Expr::BinaryExpr(BinaryExpr { op: Plus | Minus | Multiply, .. }));
        let is_wide = || {
            let widest =
                |data_type| matches!(data_type, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _));
            expr.get_type(schema).is_ok_and(widest)
        };
        if !computes || !is_wide() {
            return Ok(Transformed::no(expr));
        }
        Ok(Transformed::yes(self.check.call(vec![expr])))
    }
}

impl AnalyzerRule for CheckedDecimals {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "checked_decimals"
    }
}

/// Its argument, if that has no more digits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct In38Digits {
    signature: Signature,
}

impl ScalarUDFImpl for In38Digits {
    fn name(&self) -> &str {
        IN_38_DIGITS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type @ DataType::Decimal128(..)] => Ok(data_type.clone()),
            _ => plan_err!("{IN_38_DIGITS} has a decimal as argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::clone(field)),
            _ => plan_err!("{IN_38_DIGITS} has one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |values| {
            let largest = Decimal128Type::MAX_FOR_EACH_PRECISION
                [usize::from(DECIMAL128_MAX_PRECISION)]
            .unsigned_abs();
            let decimals = values.as_primitive::<Decimal128Type>();
            if decimals.iter().flatten().any(|value| value.unsigned_abs() > largest) {
                return exec_err!("overflow: a decimal has more than 38 digits");
            }
            Ok(Arc::clone(values))
        })
    }
}
