//! Computed floating point numbers have one zero and one NaN.
//!
//! DataFusion compares numbers by their bits' total order: a negative zero, as `-1 * 0` is, is less than
//! zero there, and a negative NaN, as processors make of `inf - inf`, less than everything. In SQL zeros
//! are equal, and NaN is greater than everything and equal to itself.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, plan_err};
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// Puts [`Canonical`] around what computes floating point numbers. To be applied after types were
/// coerced.
#[derive(Debug)]
pub(crate) struct CanonicalFloats {
    canonical: Arc<ScalarUDF>,
}

/// Name of the function.
const CANONICAL: &str = "canonical";

impl CanonicalFloats {
    pub(crate) fn new() -> CanonicalFloats {
        CanonicalFloats { canonical: Arc::new(ScalarUDF::from(Canonical::new())) }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let expr = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_arithmetic(op) => {
                // Which zero or NaN it is only shows in a comparison, and in a zero to divide by.
                let right = if op == Operator::Divide { right } else { Box::new(plain(*right)) };
                Expr::BinaryExpr(BinaryExpr { left: Box::new(plain(*left)), op, right })
            }
            Expr::Negative(inner) => Expr::Negative(Box::new(plain(*inner))),
            Expr::ScalarFunction(call) if call.func.name() != CANONICAL => {
                Expr::ScalarFunction(call)
            }
            Expr::Cast(Cast { expr, field })
                if expr.get_type(schema).is_ok_and(|data_type| data_type.is_string()) =>
            {
                Expr::Cast(Cast { expr, field })
            }
            other => return Ok(Transformed::no(other)),
        };
        match expr.get_type(schema) {
            Ok(DataType::Float32 | DataType::Float64) => {
                Ok(Transformed::yes(self.canonical.call(vec![expr])))
            }
            _ => Ok(Transformed::no(expr)),
        }
    }
}

impl AnalyzerRule for CanonicalFloats {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "canonical_floats"
    }
}

fn is_arithmetic(op: Operator) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(op, Plus | Minus | Multiply | Divide | Modulo)
}

/// An expression without the function around it.
fn plain(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == CANONICAL => match call.args.pop() {
            Some(inner) => inner,
            None => Expr::ScalarFunction(call),
        },
        other => other,
    }
}

/// The same number, with one zero and one NaN.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Canonical {
    signature: Signature,
}

impl Canonical {
    fn new() -> Canonical {
        Canonical { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &str {
        CANONICAL
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type @ (DataType::Float32 | DataType::Float64)] => Ok(data_type.clone()),
            _ => plan_err!("{CANONICAL} has one floating point number as argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |numbers| Ok(canonical(numbers)))
    }
}

/// The same number, with one zero and one NaN.
pub(crate) fn canonical_32(number: f32) -> f32 {
    if number.is_nan() { f32::NAN } else { number + 0.0 }
}

/// As [`canonical_32`].
pub(crate) fn canonical_64(number: f64) -> f64 {
    if number.is_nan() { f64::NAN } else { number + 0.0 }
}

fn canonical(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            Arc::new(unary::<Float32Type, _, Float32Type>(array.as_primitive(), canonical_32))
        }
        DataType::Float64 => {
            Arc::new(unary::<Float64Type, _, Float64Type>(array.as_primitive(), canonical_64))
        }
        _ => Arc::clone(array),
    }
}
