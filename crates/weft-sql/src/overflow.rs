//! Integers that overflow are an error, as in every other database: DataFusion's operators wrap.
//!
//! After types were coerced, `+`, `-`, `*` and the sign of integers become functions that check. They are
//! called as the operators in names and plans.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ExprSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

use crate::plan_walk::rewrite_expressions;

/// Puts checked functions in place of operators on integers.
#[derive(Debug)]
pub(crate) struct CheckedIntegers {
    plus: Arc<ScalarUDF>,
    minus: Arc<ScalarUDF>,
    times: Arc<ScalarUDF>,
}

impl CheckedIntegers {
    pub(crate) fn new() -> CheckedIntegers {
        let checked = |sign| Arc::new(ScalarUDF::from(Checked::new(sign)));
        CheckedIntegers {
            plus: checked(Sign::Plus),
            minus: checked(Sign::Minus),
            times: checked(Sign::Times),
        }
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
        let (left, right, function) = match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let function = match op {
                    Operator::Plus => &self.plus,
                    Operator::Minus => &self.minus,
                    Operator::Multiply => &self.times,
                    _ => return Ok(Transformed::no(binary(left, op, right))),
                };
                let integer = integer_type(&left, schema);
                if integer.is_none() || integer != integer_type(&right, schema) {
                    return Ok(Transformed::no(binary(left, op, right)));
                }
                (*left, *right, function)
            }
            Expr::Negative(inner) => match integer_type(&inner, schema) {
                Some(integer) => {
                    let zero = ScalarValue::new_zero(&integer)?;
                    (Expr::Literal(zero, None), *inner, &self.minus)
                }
                None => return Ok(Transformed::no(Expr::Negative(inner))),
            },
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::yes(function.call(vec![left, right])))
    }
}

fn binary(left: Box<Expr>, op: Operator, right: Box<Expr>) -> Expr {
    Expr::BinaryExpr(BinaryExpr { left, op, right })
}

/// The type of an expression if it is one of integers. Of long sums, DataFusion would name each part to find it.
fn integer_type(mut expr: &Expr, schema: &dyn ExprSchema) -> Option<DataType> {
    while let Some((_, _, right)) = checked(expr) {
        expr = right;
    }
    expr.get_type(schema).ok().filter(DataType::is_integer)
}

/// The operator and the operands of a checked operation.
fn checked(expr: &Expr) -> Option<(&Checked, &Expr, &Expr)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    match (call.func.inner().downcast_ref::<Checked>(), call.args.as_slice()) {
        (Some(checked), [left, right]) => Some((checked, left, right)),
        _ => None,
    }
}

/// Writes the name that an expression has in plans: without a text, and a place on the stack, for each part of a long
/// sum.
fn write_name(mut expr: &Expr, name: &mut String) -> std::fmt::Result {
    let mut operands = Vec::new();
    while let Some((checked, left, right)) = checked(expr) {
        operands.push((checked.name(), right));
        expr = left;
    }
    write!(name, "{}", expr.schema_name())?;
    for (operator, right) in operands.into_iter().rev() {
        write!(name, " {operator} ")?;
        write_name(right, name)?;
    }
    Ok(())
}

impl AnalyzerRule for CheckedIntegers {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| self.rewrite(expr, schema))
    }

    fn name(&self) -> &str {
        "checked_integers"
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sign {
    Plus,
    Minus,
    Times,
}

/// One of the operators, checked.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    sign: Sign,
    signature: Signature,
}

impl Checked {
    fn new(sign: Sign) -> Checked {
        Checked { sign, signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.sign {
            Sign::Plus => "+",
            Sign::Minus => "-",
            Sign::Times => "*",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        match args {
            [left, right] => {
                let mut name = String::new();
                write_name(left, &mut name)?;
                write!(name, " {} ", self.name())?;
                write_name(right, &mut name)?;
                Ok(name)
            }
            _ => plan_err!("{} has two operands", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [left, right] if left == right => Ok(left.clone()),
            _ => plan_err!("{} has two operands of one type", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return plan_err!("{} has two operands", self.name());
        };
        match self.sign {
            Sign::Plus => apply(left, right, add),
            Sign::Minus => apply(left, right, sub),
            Sign::Times => apply(left, right, mul),
        }
    }
}
