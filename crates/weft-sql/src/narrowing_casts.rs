//! Casts that may change a number, or have none for it, are made before their result is compared: DataFusion compares what is
//! cast instead, so that `CAST(1.04 AS DECIMAL(10,0)) = 1` would not hold, and `TRY_CAST(100000 AS SMALLINT) > 14` would.
//!
//! A function around the cast, which does nothing, keeps the optimizer from seeing it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// The name of the function.
pub(crate) const AS_CAST: &str = "as_cast";

/// Puts the function around casts between numbers that do not keep all of them. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct NarrowingCasts {
    as_cast: Arc<ScalarUDF>,
}

impl NarrowingCasts {
    pub(crate) fn new() -> NarrowingCasts {
        let signature = Signature::any(1, Volatility::Immutable);
        NarrowingCasts { as_cast: Arc::new(ScalarUDF::from(AsCast { signature })) }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let (from, to) = match &expr {
            Expr::Cast(cast) => (&cast.expr, &cast.field),
            Expr::TryCast(cast) => (&cast.expr, &cast.field),
            _ => return Ok(Transformed::no(expr)),
        };
        match from.get_type(schema) {
            Ok(from) if is_number(&from) && is_number(to.data_type()) => {
                if keeps_numbers(&from, to.data_type()) {
                    return Ok(Transformed::no(expr));
                }
                Ok(Transformed::yes(self.as_cast.call(vec![expr])))
            }
            _ => Ok(Transformed::no(expr)),
        }
    }
}

impl AnalyzerRule for NarrowingCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "narrowing_casts"
    }
}

/// True of numbers that optimizers compare instead of what they are cast to.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}

/// True if every number of a type is the same one of another.
fn keeps_numbers(from: &DataType, to: &DataType) -> bool {
    match (digits(from), digits(to)) {
        _ if from == to => true,
        // Of integers the type says more than digits.
        (Some((_, 0)), Some((_, 0))) if from.is_integer() && to.is_integer() => {
            let is_signed = |data_type: &DataType| data_type.is_signed_integer();
            let wider = to.primitive_width() > from.primitive_width();
            match (is_signed(from), is_signed(to)) {
                (true, true) | (false, false) => to.primitive_width() >= from.primitive_width(),
                (false, true) => wider,
                (true, false) => false,
            }
        }
        (Some(from), Some((whole, fraction))) if to.is_decimal() => {
            from.0 <= whole && from.1 <= fraction
        }
        _ => false,
    }
}

/// Digits before and behind the point that numbers of a type have at most.
fn digits(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        _ => return None,
    })
}

/// Its argument, a cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsCast {
    signature: Signature,
}

impl ScalarUDFImpl for AsCast {
    fn name(&self) -> &str {
        AS_CAST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => plan_err!("{AS_CAST} has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::clone(field)),
            _ => plan_err!("{AS_CAST} has one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |values| Ok(Arc::clone(values)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_types_keep_numbers() {
        use DataType::*;
        for (from, to, keeps) in [
            (Int32, Int64, true),
            (Int64, Int32, false),
            (UInt32, Int64, true),
            (UInt32, Int32, false),
            (UInt64, Int64, false),
            (Int8, UInt64, false),
            (Int32, Decimal128(12, 2), true),
            (Int32, Decimal128(11, 2), false),
            (Decimal128(10, 2), Decimal128(12, 3), true),
            (Decimal128(10, 2), Decimal128(10, 3), false),
            (Decimal128(10, 2), Decimal128(38, 1), false),
            (Decimal128(5, 0), Int32, false),
        ] {
            assert_eq!(keeps_numbers(&from, &to), keeps, "{from} to {to}");
        }
    }
}
