//! Arguments of lag, lead, nth_value and ntile that differ from row to row, or are NULL: DataFusion takes literals only, and those
//! of lag and lead that are zero or less it takes wrongly where nulls are ignored. These functions take the places of its own then.
//! Pipelines have them as well.
//!
//! Without a distance or a number the result is NULL. The distances of lag and lead may be negative; the numbers of nth_value
//! and ntile must be greater than zero.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, Int64Array};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    DFSchema, Result as DfResult, ScalarValue, exec_err, internal_err, plan_err,
};
use datafusion::logical_expr::expr::NullTreatment;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LimitEffect, LogicalPlan, PartitionEvaluator, Signature, Volatility,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::PhysicalExpr;

use crate::plan_walk::rewrite_expressions;
use crate::types::type_name;

/// Puts the functions in place of DataFusion's. To be applied before types are coerced.
#[derive(Debug)]
pub(crate) struct WindowArguments;

impl AnalyzerRule for WindowArguments {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        rewrite_expressions(plan, rewrite)
    }

    fn name(&self) -> &str {
        "window_arguments"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let WindowFunctionDefinition::WindowUDF(function) = &call.fun else {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    };
    let of = match function.name() {
        "lag" => Of::Lag,
        "lead" => Of::Lead,
        "nth_value" => Of::Nth,
        "ntile" => Of::Ntile,
        _ => return Ok(Transformed::no(Expr::WindowFunction(call))),
    };
    let is_own = function.inner().downcast_ref::<Varying>().is_some();
    let number_at = usize::from(of != Of::Ntile);
    let args = &mut call.params.args;
    let varies = match args.get(number_at) {
        Some(number) => is_null(number) || !is_constant(number)?,
        None => false,
    };
    let has_default = match args.get(2) {
        Some(default) => of.is_shift() && !is_constant(default)?,
        None => false,
    };
    let ignores_nulls = call.params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let is_unsure =
        ignores_nulls && of.is_shift() && args.get(1).is_some_and(|number| !is_positive(number));
    if is_own || !varies && !has_default && !is_unsure {
        return Ok(Transformed::no(Expr::WindowFunction(call)));
    }
    if args.len() <= number_at {
        args.push(lit(1_i64));
    }
    args[number_at] = number(&args[number_at], of, schema)?;
    if of.is_shift() && args.len() == 3 {
        let [argument, default] = [0, 2].map(|at| args[at].get_type(schema));
        let (argument, default) = (argument?, default?);
        match (argument == DataType::Null, argument == default) {
            (true, _) => args[0] = cast(args[0].clone(), default),
            (false, false) => args[2] = cast(args[2].clone(), argument),
            (false, true) => {}
        }
    }
    call.fun = WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::from(Varying {
        of,
        ignores_nulls,
        signature: Signature::variadic_any(Volatility::Immutable),
    })));
    Ok(Transformed::yes(Expr::WindowFunction(call)))
}

/// A number of rows or parts, as a BIGINT.
fn number(expr: &Expr, of: Of, schema: &DFSchema) -> DfResult<Expr> {
    match expr.get_type(schema)? {
        DataType::Int64 => Ok(expr.clone()),
        DataType::Null => Ok(lit(ScalarValue::Int64(None))),
        data_type if data_type.is_integer() => Ok(cast(expr.clone(), DataType::Int64)),
        data_type => plan_err!(
            "{} of {} is an integer, not {}: cast it",
            of.argument(),
            of.name(),
            type_name(&data_type)
        ),
    }
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(of) => is_null(&of.expr),
        _ => false,
    }
}

/// True of literals of integers above zero.
fn is_positive(expr: &Expr) -> bool {
    let Expr::Literal(value, _) = expr else { return false };
    matches!(value.cast_to(&DataType::Int64), Ok(ScalarValue::Int64(Some(1..))))
}

/// True of what has the same value for all rows, which is known when the statement is planned.
fn is_constant(expr: &Expr) -> DfResult<bool> {
    let varies = expr.exists(|part| {
        let is_known = matches!(
            part,
            Expr::Literal(..)
                | Expr::BinaryExpr(_)
                | Expr::Negative(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
        );
        Ok(!is_known)
    })?;
    Ok(!varies)
}

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    Lag,
    Lead,
    Nth,
    Ntile,
}

impl Of {
    fn name(self) -> &'static str {
        match self {
            Of::Lag => "lag",
            Of::Lead => "lead",
            Of::Nth => "nth_value",
            Of::Ntile => "ntile",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Of::Lag | Of::Lead => "the offset",
            Of::Nth => "the second argument",
            Of::Ntile => "the argument",
        }
    }

    fn is_shift(self) -> bool {
        matches!(self, Of::Lag | Of::Lead)
    }
}

/// Such a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Varying {
    pub(crate) of: Of,
    pub(crate) ignores_nulls: bool,
    signature: Signature,
}

impl WindowUDFImpl for Varying {
    fn name(&self) -> &str {
        self.of.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs,
    ) -> DfResult<Box<dyn PartitionEvaluator>> {
        let Varying { of, ignores_nulls, .. } = *self;
        Ok(Box::new(Evaluator { of, ignores_nulls, row: 0 }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> DfResult<FieldRef> {
        let data_type = match (self.of, args.input_fields()) {
            (Of::Ntile, _) => DataType::Int64,
            (_, [argument, ..]) => argument.data_type().clone(),
            (_, []) => return plan_err!("{} has no argument", self.of.name()),
        };
        Ok(Arc::new(Field::new(args.name(), data_type, true)))
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

/// The function over a partition, by DataFusion's operators.
#[derive(Debug)]
struct Evaluator {
    of: Of,
    ignores_nulls: bool,
    /// The row that comes next: frames are asked for one after the other.
    row: usize,
}

impl PartitionEvaluator for Evaluator {
    fn uses_window_frame(&self) -> bool {
        self.of == Of::Nth
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> DfResult<ArrayRef> {
        match (self.of, values) {
            (Of::Ntile, [parts]) => ntile(parts, rows),
            (Of::Lag | Of::Lead, [argument, numbers, rest @ ..]) => {
                self.shift(argument, numbers, rest.first(), rows)
            }
            _ => internal_err!("{} of {} arguments", self.of.name(), values.len()),
        }
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> DfResult<ScalarValue> {
        let [argument, numbers, ..] = values else {
            return internal_err!("nth_value of {} arguments", values.len());
        };
        let row = self.row;
        self.row += 1;
        let nothing = ScalarValue::try_from(argument.data_type());
        let Some(number) = positive(numbers, row, "the second argument of nth_value")? else {
            return nothing;
        };
        let counts = |row: &usize| !self.ignores_nulls || argument.is_valid(*row);
        let found = match (self.ignores_nulls, number) {
            (false, number) => {
                Some(range.start.saturating_add(number)).filter(|row| *row < range.end)
            }
            (true, number) => range.clone().filter(counts).nth(number),
        };
        found.map_or(nothing, |row| ScalarValue::try_from_array(argument, row))
    }
}

impl Evaluator {
    fn shift(
        &self,
        argument: &ArrayRef,
        numbers: &ArrayRef,
        defaults: Option<&ArrayRef>,
        rows: usize,
    ) -> DfResult<ArrayRef> {
        let numbers = numbers.as_primitive::<Int64Type>();
        let known: Vec<usize> = (0..rows).filter(|row| argument.is_valid(*row)).collect();
        let nothing = ScalarValue::try_from(argument.data_type())?.to_array()?;
        let places: Vec<(usize, usize)> = (0..rows)
            .map(|row| {
                if !numbers.is_valid(row) {
                    return (1, 0);
                }
                let number = numbers.value(row);
                let ahead = if self.of == Of::Lead { number } else { number.saturating_neg() };
                let other = match (self.ignores_nulls && number != 0, ahead > 0) {
                    (false, _) => moved(row, ahead),
                    // Among those that count, the first one behind the row is one row ahead.
                    (true, true) => moved(known.partition_point(|known| *known <= row), ahead - 1)
                        .and_then(|place| known.get(place).copied()),
                    (true, false) => moved(known.partition_point(|known| *known < row), ahead)
                        .and_then(|place| known.get(place).copied()),
                };
                match (other.filter(|other| *other < rows), defaults) {
                    (Some(other), _) => (0, other),
                    (None, Some(_)) => (2, row),
                    (None, None) => (1, 0),
                }
            })
            .collect();
        let arrays: Vec<&dyn Array> = [Some(argument), Some(&nothing), defaults]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
            .collect();
        Ok(interleave(&arrays, &places)?)
    }
}

fn moved(place: usize, ahead: i64) -> Option<usize> {
    let distance = usize::try_from(ahead.unsigned_abs()).ok()?;
    if ahead < 0 { place.checked_sub(distance) } else { place.checked_add(distance) }
}

/// A number from 0 on of which a row says that it counts from 1 on; `None` if it is null.
fn positive(numbers: &ArrayRef, row: usize, argument: &str) -> DfResult<Option<usize>> {
    let numbers: &Int64Array = numbers.as_primitive::<Int64Type>();
    if !numbers.is_valid(row) {
        return Ok(None);
    }
    match numbers.value(row) {
        number if number > 0 => Ok(Some(usize::try_from(number - 1).unwrap_or(usize::MAX))),
        number => exec_err!("{argument} must be greater than zero, but is {number}"),
    }
}

fn ntile(parts: &ArrayRef, rows: usize) -> DfResult<ArrayRef> {
    let mut numbers = Vec::with_capacity(rows);
    for row in 0..rows {
        let parts =
            positive(parts, row, "the argument of ntile")?.map(|parts| parts.saturating_add(1));
        numbers.push(parts.map(|parts| {
            let (least, larger) = (rows / parts, rows % parts);
            let in_larger = larger * (least + 1);
            let part = if row < in_larger {
                row / (least + 1)
            } else {
                larger + (row - in_larger) / least
            };
            part as i64 + 1
        }));
    }
    Ok(Arc::new(Int64Array::from(numbers)))
}
