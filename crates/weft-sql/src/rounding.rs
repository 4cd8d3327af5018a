//! Casts to integers round: DataFusion cuts off what is behind the point.
//!
//! Decimals are rounded half away from zero, floating point numbers half to even, as in DuckDB and
//! PostgreSQL, and text half away from zero (`integer_text.rs`).
//!
//! Functions that round have results with a digit more before the point, and it is known how many they have behind it when types
//! are coerced: DataFusion finds that out later, when the number of digits is a constant of the right type.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType};
use datafusion::arrow::compute::kernels::arity::unary;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::integer_text::IntegerText;
use crate::one_argument::compute_one;
use crate::plan_walk::rewrite_expressions;

/// Rounds what is cast to an integer. To be applied after types were coerced.
#[derive(Debug)]
pub(crate) struct RoundingCasts {
    whole: Arc<ScalarUDF>,
    text: Arc<ScalarUDF>,
}

impl RoundingCasts {
    pub(crate) fn new() -> RoundingCasts {
        RoundingCasts {
            whole: Arc::new(ScalarUDF::from(Whole::new())),
            text: Arc::new(ScalarUDF::from(IntegerText::new())),
        }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        // What rounds what is cast, if it may have a fraction.
        let rounding = |inner: &Expr, to: &DataType| match inner.get_type(schema) {
            _ if !to.is_integer() => None,
            Ok(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
                (scale > 0).then_some(&self.whole)
            }
            Ok(data_type) if data_type.is_floating() => Some(&self.whole),
            Ok(data_type) if data_type.is_string() => Some(&self.text),
            _ => None,
        };
        Ok(match expr {
            Expr::Cast(Cast { expr, field }) => match rounding(&expr, field.data_type()) {
                Some(function) => {
                    let expr = Box::new(function.call(vec![*expr]));
                    Transformed::yes(Expr::Cast(Cast { expr, field }))
                }
                None => Transformed::no(Expr::Cast(Cast { expr, field })),
            },
            Expr::TryCast(TryCast { expr, field }) => match rounding(&expr, field.data_type()) {
                Some(function) => {
                    let expr = Box::new(function.call(vec![*expr]));
                    Transformed::yes(Expr::TryCast(TryCast { expr, field }))
                }
                None => Transformed::no(Expr::TryCast(TryCast { expr, field })),
            },
            Expr::ScalarFunction(mut call) if call.func.name() == WIDER && call.args.len() == 1 => {
                let number = call.args.remove(0);
                let to = wider(&number.get_type(schema)?);
                Transformed::yes(match to {
                    Some(to) => number.cast_to(&to, schema)?,
                    None => number,
                })
            }
            other => Transformed::no(other),
        })
    }
}

/// Gives functions that round the types of their results. To be applied before types are coerced: what type an argument will have
/// then is not known yet, so that it is widened by a function, of which [`RoundingCasts`] makes a cast.
#[derive(Debug)]
pub(crate) struct RoundedDigits {
    wider: Arc<ScalarUDF>,
    whole: Arc<ScalarUDF>,
}

impl RoundedDigits {
    pub(crate) fn new() -> RoundedDigits {
        RoundedDigits {
            wider: Arc::new(ScalarUDF::from(Wider::new())),
            whole: Arc::new(ScalarUDF::from(Whole::new())),
        }
    }
}

impl AnalyzerRule for RoundedDigits {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| match expr {
            Expr::ScalarFunction(mut call) if NEED_A_DIGIT.contains(&call.func.name()) => {
                let (number, digits) = match call.args.as_mut_slice() {
                    [number] => (number, None),
                    [number, digits, ..] => (number, Some(digits)),
                    [] => return Ok(Transformed::no(Expr::ScalarFunction(call))),
                };
                // A parameter may have no type yet.
                let data_type = number.get_type(schema).ok();
                if data_type.is_some() {
                    *number = self.wider.call(vec![std::mem::take(number)]);
                }
                let known = digits.is_some_and(make_constant);
                let changed = data_type.is_some() || known;
                // DataFusion leaves zeros behind the point.
                let leaves_zeros = call.func.name() != "round"
                    && data_type.is_some_and(|data_type| data_type.is_decimal());
                let expr = Expr::ScalarFunction(call);
                let expr = if leaves_zeros { self.whole.call(vec![expr]) } else { expr };
                Ok(Transformed::new_transformed(expr, changed))
            }
            other => Ok(Transformed::no(other)),
        })
    }

    fn name(&self) -> &str {
        "rounded_digits"
    }
}

/// Makes a number of digits a constant of the type that the functions take; false if it is none, or too large.
fn make_constant(digits: &mut Expr) -> bool {
    let number = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => i32::try_from(*number).ok(),
        _ => None,
    };
    let number = match &*digits {
        Expr::Negative(inner) => number(inner).and_then(i32::checked_neg),
        other => number(other),
    };
    if let Some(number) = number {
        *digits = lit(number);
    }
    number.is_some()
}

/// Functions whose results may have a digit more before the point than their argument: `ceil(0.2)`, `round(9.95, 1)`.
/// DataFusion gives decimals as many as before, and says that they overflow.
const NEED_A_DIGIT: [&str; 3] = ["ceil", "floor", "round"];

/// The type of a decimal with a fraction and one more digit before the point; `None` for others, and for those that have all that there are.
fn wider(number: &DataType) -> Option<DataType> {
    match number {
        DataType::Decimal128(precision, scale)
            if *scale > 0 && *precision < DECIMAL128_MAX_PRECISION =>
        {
            Some(DataType::Decimal128(precision + 1, *scale))
        }
        _ => None,
    }
}

/// The name of [`Wider`].
const WIDER: &str = "one_digit_wider";

/// The same number, with one more digit before the point if it is a decimal with a fraction.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Wider {
    signature: Signature,
}

impl Wider {
    fn new() -> Wider {
        Wider { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Wider {
    fn name(&self) -> &str {
        WIDER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [number] => Ok(wider(number).unwrap_or_else(|| number.clone())),
            _ => plan_err!("one number is made wider"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let to = args.return_field.data_type();
        let options = CastOptions { safe: false, ..CastOptions::default() };
        compute_one(self.name(), &args.args, |numbers| {
            Ok(cast_with_options(numbers, to, &options)?)
        })
    }
}

impl AnalyzerRule for RoundingCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "rounding_casts"
    }
}

/// The nearest whole number, as a number of the same kind.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    signature: Signature,
}

impl Whole {
    fn new() -> Whole {
        Whole { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        "whole"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            // One more digit before the point than there was: 9.9 becomes 10.
            [DataType::Decimal128(precision, scale)] => {
                Ok(DataType::Decimal128(whole_digits(*precision, *scale), 0))
            }
            [DataType::Decimal256(precision, scale)] => {
                Ok(DataType::Decimal256(whole_digits(*precision, *scale), 0))
            }
            [data_type] if data_type.is_numeric() => Ok(data_type.clone()),
            _ => plan_err!("only numbers are rounded"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let to = args.return_field.data_type();
        compute_one(self.name(), &args.args, |numbers| round(numbers, to))
    }
}

fn whole_digits(precision: u8, scale: i8) -> u8 {
    let whole = i16::from(precision) - i16::from(scale) + 1;
    u8::try_from(whole.max(1)).unwrap_or(precision)
}

fn round(array: &ArrayRef, to: &DataType) -> DfResult<ArrayRef> {
    fn even<T: ArrowPrimitiveType>(
        array: &ArrayRef,
        nearest: impl Fn(T::Native) -> T::Native,
    ) -> ArrayRef {
        Arc::new(unary::<T, _, T>(array.as_primitive::<T>(), nearest))
    }
    match to {
        DataType::Float32 => Ok(even::<Float32Type>(array, f32::round_ties_even)),
        DataType::Float64 => Ok(even::<Float64Type>(array, f64::round_ties_even)),
        DataType::Float16 => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let wide = cast_with_options(array, &DataType::Float32, &options)?;
            let rounded = even::<Float32Type>(&wide, f32::round_ties_even);
            Ok(cast_with_options(&rounded, to, &options)?)
        }
        // Arrow rounds where it takes digits from a decimal.
        decimal => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            Ok(cast_with_options(array, decimal, &options)?)
        }
    }
}
