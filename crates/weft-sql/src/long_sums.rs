//! Long chains of `+`, `-` and `*`, which programs write with hundreds of terms: one call computes them from left to right. As
//! operators they would be nested as deeply as there are terms, and whoever asks for the type or the name of each part of such a
//! tree takes time that grows with the square of its depth.
//!
//! The statement's text has the call before it is planned, whatever the terms are. Once their types are known, it stays for signed
//! integers and DOUBLEs, in parts of one type each; other terms become operators again.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, binary_expr, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator};

use crate::functions::call;
use crate::mixed_numbers::to_float;
use crate::plan_walk::rewrite_expressions;

/// The name of the function. Its first argument has a character for each operator, the others are the terms.
pub(crate) const IN_TURN: &str = "in_turn";

/// Operators that a chain has at least.
const OPERATORS_MIN: usize = 32;

/// Operators of the chain of sums and products that ends with an expression.
pub(crate) fn operators_of(expr: &ast::Expr) -> usize {
    let mut operators = 0;
    let mut rest = expr;
    while let ast::Expr::BinaryOp { left, op, .. } = rest
        && sign(op).is_some()
    {
        operators += 1;
        rest = left;
    }
    operators
}

/// Puts a call in place of a long chain.
pub(crate) fn rewrite(expr: &mut ast::Expr) {
    let operators = operators_of(expr);
    if operators < OPERATORS_MIN {
        return;
    }
    let mut terms_from_last = Vec::with_capacity(operators + 2);
    let mut signs_from_last = Vec::with_capacity(operators);
    let mut rest = std::mem::replace(expr, ast::Expr::Value(ast::Value::Null.into()));
    loop {
        match rest {
            ast::Expr::BinaryOp { left, op, right } if sign(&op).is_some() => {
                signs_from_last.extend(sign(&op));
                terms_from_last.push(*right);
                rest = *left;
            }
            first => {
                terms_from_last.push(first);
                break;
            }
        }
    }
    let signs = ast::Value::SingleQuotedString(signs_from_last.into_iter().rev().collect());
    terms_from_last.push(ast::Expr::Value(signs.into()));
    *expr = call(IN_TURN, terms_from_last.into_iter().rev());
}

fn sign(op: &BinaryOperator) -> Option<char> {
    match op {
        BinaryOperator::Plus => Some('+'),
        BinaryOperator::Minus => Some('-'),
        BinaryOperator::Multiply => Some('*'),
        _ => None,
    }
}

fn operator(sign: char) -> Operator {
    match sign {
        '-' => Operator::Minus,
        '*' => Operator::Multiply,
        _ => Operator::Plus,
    }
}

/// The function that computes chains.
pub(crate) fn in_turn() -> Arc<ScalarUDF> {
    let signature = Signature::variadic_any(Volatility::Immutable);
    Arc::new(ScalarUDF::from(InTurn { signature }))
}

/// Leaves calls in place for terms of one type, and puts operators in place of others. To be applied before all other rules.
#[derive(Debug)]
pub(crate) struct LongSums;

impl AnalyzerRule for LongSums {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, |expr, schema| match expr {
            Expr::ScalarFunction(call) if call.func.name() == IN_TURN => {
                Ok(Transformed::yes(typed(call, schema)?))
            }
            other => Ok(Transformed::no(other)),
        })
    }

    fn name(&self) -> &str {
        "long_sums"
    }
}

fn typed(call: ScalarFunction, schema: &DFSchema) -> DfResult<Expr> {
    let Some(signs) = call.args.first().and_then(signs_of).map(str::to_owned) else {
        return plan_err!("{IN_TURN} has operators and terms");
    };
    let terms = call.args.into_iter().skip(1);
    let terms: Vec<(Expr, DataType)> = terms
        .map(|term| term.get_type(schema).map(|data_type| (term, data_type)))
        .collect::<DfResult<_>>()?;
    let mut data_type = match terms.first() {
        Some((_, data_type)) => data_type.clone(),
        None => return plan_err!("{IN_TURN} has operators and terms"),
    };
    // The type that each operator has.
    let mut types = Vec::with_capacity(signs.len());
    for (_, of_term) in terms.iter().skip(1) {
        let Some(met) = meeting(&data_type, of_term) else { return Ok(nested(&signs, terms)) };
        data_type = met;
        types.push(data_type.clone());
    }
    let mut terms = terms.into_iter();
    let Some((first, first_type)) = terms.next() else { return plan_err!("{IN_TURN} has terms") };
    let mut part = Part { data_type: first_type, terms: vec![first], signs: String::new() };
    for ((sign, (term, of_term)), data_type) in signs.chars().zip(terms).zip(types) {
        if data_type != part.data_type {
            let from = part.data_type.clone();
            let computed = converted(part.computed(), &from, &data_type);
            part = Part { data_type, terms: vec![computed], signs: String::new() };
        }
        part.terms.push(converted(term, &of_term, &part.data_type));
        part.signs.push(sign);
    }
    Ok(part.computed())
}

/// The type of what an operator makes of two values; nothing for types whose operators are not computed in turn.
fn meeting(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (left, right) if left.is_signed_integer() && right.is_signed_integer() => {
            let is_wider = right.primitive_width() > left.primitive_width();
            Some(if is_wider { right.clone() } else { left.clone() })
        }
        (DataType::Float64, other) | (other, DataType::Float64)
            if other.is_signed_integer()
                || matches!(other, DataType::Float64 | DataType::Decimal128(..)) =>
        {
            Some(DataType::Float64)
        }
        _ => None,
    }
}

fn converted(expr: Expr, from: &DataType, to: &DataType) -> Expr {
    match to {
        to if from == to => expr,
        DataType::Float64 => to_float(expr, from),
        to => cast(expr, to.clone()),
    }
}

/// Operators, as the chain was written.
fn nested(signs: &str, terms: Vec<(Expr, DataType)>) -> Expr {
    let mut terms = terms.into_iter().map(|(term, _)| term);
    let first = terms.next().unwrap_or_else(|| lit(ScalarValue::Null));
    let operators = signs.chars().map(operator);
    operators.zip(terms).fold(first, |left, (operator, right)| binary_expr(left, operator, right))
}

/// Terms of one type in a row.
struct Part {
    data_type: DataType,
    terms: Vec<Expr>,
    signs: String,
}

impl Part {
    fn computed(self) -> Expr {
        if self.signs.len() < OPERATORS_MIN {
            let terms = self.terms.into_iter().map(|term| (term, self.data_type.clone()));
            return nested(&self.signs, terms.collect());
        }
        in_turn().call(std::iter::once(lit(self.signs)).chain(self.terms).collect())
    }
}

fn signs_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InTurn {
    signature: Signature,
}

impl ScalarUDFImpl for InTurn {
    fn name(&self) -> &str {
        IN_TURN
    }

    fn display_name(&self, args: &[Expr]) -> DfResult<String> {
        self.schema_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        let mut name = String::new();
        let signs = args.first().and_then(signs_of).unwrap_or_default();
        for (at, term) in args.iter().skip(1).enumerate() {
            if let Some(sign) =
                at.checked_sub(1).and_then(|at| signs.as_bytes().get(at).copied().map(char::from))
            {
                write!(name, " {sign} ")?;
            }
            write!(name, "{}", term.schema_name())?;
        }
        Ok(name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        plan_err!("the type of {IN_TURN} depends on its operators")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        let signs = args.scalar_arguments.first().copied().flatten();
        let signs = signs.and_then(|signs| signs.try_as_str().flatten()).unwrap_or_default();
        let [_, first, rest @ ..] = args.arg_fields else {
            return plan_err!("{IN_TURN} has operators and terms");
        };
        let mut data_type = first.data_type().clone();
        for (sign, term) in signs.chars().zip(rest) {
            data_type = match meeting(&data_type, term.data_type()) {
                Some(met) => met,
                None => BinaryTypeCoercer::new(&data_type, &operator(sign), term.data_type())
                    .get_result_type()?,
            };
        }
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(IN_TURN, data_type, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let mut args = args.args.into_iter();
        let (Some(ColumnarValue::Scalar(signs)), Some(first)) = (args.next(), args.next()) else {
            return plan_err!("{IN_TURN} has operators and terms");
        };
        let signs = signs.try_as_str().flatten().unwrap_or_default();
        signs.chars().zip(args).try_fold(first, |left, (sign, right)| match operator(sign) {
            Operator::Minus => apply(&left, &right, sub),
            Operator::Multiply => apply(&left, &right, mul),
            _ => apply(&left, &right, add),
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::text::DIALECT;

    fn rewritten(sql: &str) -> String {
        let mut expr = Parser::new(&DIALECT).try_with_sql(sql).unwrap().parse_expr().unwrap();
        rewrite(&mut expr);
        expr.to_string()
    }

    #[test]
    fn long_chains_become_calls() {
        let terms = |count: usize| vec!["a"; count];
        let short = terms(OPERATORS_MIN).join(" + ");
        assert_eq!(rewritten(&short), short);
        let long = format!("{} - b * c", terms(OPERATORS_MIN).join(" + "));
        let signs = "+".repeat(OPERATORS_MIN - 1);
        let expected = format!("in_turn('{signs}-', {}, b * c)", terms(OPERATORS_MIN).join(", "));
        assert_eq!(rewritten(&long), expected);
    }
}
