//! Which state an aggregate function has: one of the engine's own, or DataFusion's accumulator over all values of a
//! group.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result as DfResult, ScalarValue, not_impl_err};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use weft_exec::aggregate::{Aggregate, External, Function, Group, Moment, Quantile};
use weft_exec::program::{self, Register, Step};
use weft_exec::{ExecError, Lane};

use super::compare::{have_one_order, is_ordered, text};
use super::expressions::{Expr, Expressions, is_costly, literal};
use super::row_keys::row_keys;
use super::term::Term;
use crate::foreign_aggregate::is_foreign;

/// An aggregate of the rows for which `filter` is true. Each group has a row if it `has_rows`.
///
/// # Errors
/// Those of its expressions.
pub(super) fn aggregate_of(
    code: &mut Expressions<'_>,
    expr: &Arc<AggregateFunctionExpr>,
    filter: Option<&Expr>,
    has_rows: bool,
) -> DfResult<Aggregate> {
    let filter = match filter {
        Some(filter) => {
            let term = code.term(filter)?;
            Some(code.in_register(&term))
        }
        None => None,
    };
    let args = expr.expressions();
    let types: DfResult<Vec<DataType>> =
        args.iter().map(|arg| arg.data_type(code.schema)).collect();
    let types = types?;
    let result = expr.field();
    // What is left out is not computed.
    let guard = filter.filter(|_| args.iter().any(|arg| is_costly(arg, code.schema)));
    if let Some(condition) = guard {
        code.begin(condition, true);
    }
    let mut aggregate = match function(expr, &args, &types, result.data_type()) {
        Some(function) => {
            let wanted = match &function {
                Function::Texts { .. }
                | Function::ContinuousQuantile(_)
                | Function::DiscreteQuantile(_) => 1,
                _ => args.len(),
            };
            let terms: DfResult<Vec<Term>> =
                args[..wanted].iter().map(|arg| code.term(arg)).collect();
            let mut terms = terms?;
            let is_nullable =
                !has_rows || filter.is_some() || terms.iter().any(|term| term.is_nullable);
            if matches!(function, Function::Count) && !expr.is_distinct() {
                terms.retain(|term| term.is_nullable);
            }
            let lane = match (&function, terms.first()) {
                (Function::Min | Function::Max, Some(term)) => term.lane,
                (Function::DiscreteQuantile(_), Some(term)) => term.lane,
                (Function::First { .. } | Function::Last { .. }, Some(term)) => term.lane,
                _ => Lane::of(result.data_type()),
            };
            let registers: Vec<Register> =
                terms.iter().map(|term| code.in_register(term)).collect();
            let needs_hash =
                expr.is_distinct() || matches!(function, Function::ApproximateDistinct);
            let hash = registers.first().filter(|_| needs_hash).map(|argument| {
                let out = code.register(Lane::U64);
                code.push(Step::Hash { keys: vec![*argument], out });
                out
            });
            let is_distinct = expr.is_distinct();
            Aggregate {
                is_distinct,
                hash,
                is_nullable,
                ..Aggregate::new(function, registers, lane)
            }
        }
        None => external(code, expr, &args, &types)?,
    };
    aggregate.filter = filter;
    // Of a reversed function it is the accumulator that gives its values the other way round.
    let is_backwards = expr.is_reversed() && matches!(aggregate.function, Function::Texts { .. });
    // Quantiles order by their argument, which tells no more than the direction.
    let is_quantile = matches!(
        aggregate.function,
        Function::ContinuousQuantile(_) | Function::DiscreteQuantile(_)
    );
    if !is_quantile {
        aggregate.order = order(code, expr, is_backwards)?;
    }
    if guard.is_some() {
        code.end();
    }
    Ok(aggregate)
}

/// The engine's own function, if it has it for these types.
pub(super) fn function(
    expr: &AggregateFunctionExpr,
    args: &[Expr],
    types: &[DataType],
    result: &DataType,
) -> Option<Function> {
    let is_float =
        |data_type: &DataType| matches!(data_type, DataType::Float32 | DataType::Float64);
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    let is_number = |data_type: &DataType| {
        data_type.is_integer() || is_float(data_type) || is_decimal(data_type)
    };
    let is_sum_of = |data_type: &DataType| {
        data_type.is_integer() && result.is_integer()
            || is_float(data_type) && *result == DataType::Float64
            || scale(data_type).is_some() && scale(data_type) == scale(result)
    };
    let ignores_nulls = expr.ignore_nulls();
    let moment = |moment| {
        types
            .iter()
            .all(|data_type| *data_type == DataType::Float64)
            .then_some(Function::Moment(moment))
    };
    match (expr.fun().name(), types) {
        ("count", [..]) if !expr.is_distinct() || types.len() == 1 => Some(Function::Count),
        ("sum", [of]) if is_sum_of(of) => Some(Function::Sum),
        ("avg", [of]) if is_float(of) && is_float(result) => Some(Function::Average { digits: 0 }),
        ("avg", [of]) => {
            let digits = scale(result)?.checked_sub(scale(of)?)?;
            Some(Function::Average { digits })
        }
        ("min", [of]) if is_ordered(of) => Some(Function::Min),
        ("max", [of]) if is_ordered(of) => Some(Function::Max),
        ("var", [_]) => moment(Moment::VarianceSample),
        ("var_pop", [_]) => moment(Moment::VariancePopulation),
        ("stddev", [_]) => moment(Moment::DeviationSample),
        ("stddev_pop", [_]) => moment(Moment::DeviationPopulation),
        ("covar_samp", [_, _]) => moment(Moment::CovarianceSample),
        ("covar_pop", [_, _]) => moment(Moment::CovariancePopulation),
        ("corr", [_, _]) => moment(Moment::Correlation),
        ("skewness", [_]) => moment(Moment::Skewness),
        ("kurtosis", [_]) => moment(Moment::KurtosisSample),
        ("kurtosis_pop", [_]) => moment(Moment::KurtosisPopulation),
        ("product", [DataType::Float64]) => Some(Function::Product),
        ("bool_and", [DataType::Boolean]) => Some(Function::And),
        ("bool_or", [DataType::Boolean]) => Some(Function::Or),
        ("bit_and", [of]) if of.is_integer() => Some(Function::And),
        ("bit_or", [of]) if of.is_integer() => Some(Function::Or),
        ("bit_xor", [of]) if of.is_integer() => Some(Function::Xor),
        ("median", [of]) if is_number(of) && of == result => {
            Some(Function::ContinuousQuantile(Quantile::ascending(0.5)))
        }
        ("percentile_cont", [of, _]) if is_float(of) && of == result => {
            quantile(expr, &args[1]).map(Function::ContinuousQuantile)
        }
        ("quantile_disc", [of, _]) if is_ordered(of) => {
            quantile(expr, &args[1]).map(Function::DiscreteQuantile)
        }
        ("first_value", [_]) => Some(Function::First { ignores_nulls }),
        ("last_value", [_]) => Some(Function::Last { ignores_nulls }),
        ("approx_distinct", [_]) => Some(Function::ApproximateDistinct),
        ("string_agg", [of, _]) if have_one_order(of, &DataType::Utf8) => {
            let separator = args.get(1).and_then(literal).and_then(text)?.as_bytes();
            Some(Function::Texts { separator: separator.into() })
        }
        _ => None,
    }
}

/// The quantile with this fraction, if that is a constant that it may be.
fn quantile(expr: &AggregateFunctionExpr, fraction: &Expr) -> Option<Quantile> {
    match literal(fraction)?.cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(Some(fraction)) if (0.0..=1.0).contains(&fraction) => {
            let is_descending = expr.order_bys().first().is_some_and(|key| key.options.descending);
            Some(Quantile { fraction, is_descending })
        }
        _ => None,
    }
}

fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    }
}

/// An aggregate by DataFusion's accumulator, which gets arguments and what rows are ordered by.
fn external(
    code: &mut Expressions<'_>,
    expr: &Arc<AggregateFunctionExpr>,
    args: &[Expr],
    types: &[DataType],
) -> DfResult<Aggregate> {
    let mut inputs: Vec<Expr> = args.to_vec();
    let mut input_types = types.to_vec();
    for key in expr.order_bys() {
        inputs.push(key.expr.clone());
        input_types.push(key.expr.data_type(code.schema)?);
    }
    let terms: DfResult<Vec<Term>> = inputs.iter().map(|input| code.term(input)).collect();
    let registers: Vec<Register> = terms?.iter().map(|term| code.in_register(term)).collect();
    let (register, input_type) = match (&registers[..], &input_types[..]) {
        ([register], [data_type]) => (*register, data_type.clone()),
        _ => {
            let packed = Packed::new(&input_types);
            let output_type = packed.output_type.clone();
            let out = code.register(Lane::of(&output_type));
            code.push(Step::Call { function: Arc::new(packed), inputs: registers, out });
            (out, output_type)
        }
    };
    if is_foreign(expr.fun()) {
        return not_impl_err!("no worker executes the function {}", expr.fun().name());
    }
    let is_packed = inputs.len() != 1;
    let function = Accumulated { expr: expr.clone(), input_type, is_packed };
    let lane = Lane::of(expr.field().data_type());
    Ok(Aggregate::new(Function::External(Arc::new(function)), vec![register], lane))
}

/// The register of what rows are ordered by, if the aggregate has an order.
fn order(
    code: &mut Expressions<'_>,
    expr: &AggregateFunctionExpr,
    is_backwards: bool,
) -> DfResult<Option<Register>> {
    if expr.order_bys().is_empty() {
        return Ok(None);
    }
    let keys = expr.order_bys().iter().map(|key| {
        let options = if is_backwards { !key.options } else { key.options };
        (&key.expr, options)
    });
    row_keys(code, keys).map(Some)
}

/// Several columns as one of structs.
#[derive(Debug)]
struct Packed {
    input_types: Vec<DataType>,
    fields: Fields,
    output_type: DataType,
}

impl Packed {
    fn new(types: &[DataType]) -> Packed {
        let field = |(number, data_type): (usize, &DataType)| {
            Field::new(number.to_string(), data_type.clone(), true)
        };
        let fields: Fields = types.iter().enumerate().map(field).collect();
        let output_type = DataType::Struct(fields.clone());
        Packed { input_types: types.to_vec(), fields, output_type }
    }
}

impl program::Function for Packed {
    fn name(&self) -> &str {
        "row"
    }

    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn output_type(&self) -> &DataType {
        &self.output_type
    }

    fn call(&self, inputs: &[ArrayRef], rows: usize) -> weft_exec::Result<ArrayRef> {
        let array =
            StructArray::try_new_with_length(self.fields.clone(), inputs.to_vec(), None, rows);
        Ok(Arc::new(array?))
    }
}

/// An aggregate function of DataFusion's.
#[derive(Debug)]
struct Accumulated {
    expr: Arc<AggregateFunctionExpr>,
    input_type: DataType,
    /// Several columns come as one.
    is_packed: bool,
}

impl External for Accumulated {
    fn name(&self) -> &str {
        self.expr.fun().name()
    }

    fn input_type(&self) -> &DataType {
        &self.input_type
    }

    fn begin(&self) -> weft_exec::Result<Box<dyn Group>> {
        let accumulator = ours(self.expr.create_accumulator())?;
        Ok(Box::new(Accumulating { accumulator, is_packed: self.is_packed }))
    }
}

/// What it has of a group.
struct Accumulating {
    accumulator: Box<dyn Accumulator>,
    is_packed: bool,
}

impl Group for Accumulating {
    fn add(&mut self, values: &ArrayRef) -> weft_exec::Result<()> {
        ours(match self.is_packed {
            true => self.accumulator.update_batch(values.as_struct().columns()),
            false => self.accumulator.update_batch(std::slice::from_ref(values)),
        })
    }

    fn value(&mut self) -> weft_exec::Result<ArrayRef> {
        ours(self.accumulator.evaluate().and_then(|value| value.to_array()))
    }
}

/// An error in our terms.
fn ours<T>(result: DfResult<T>) -> weft_exec::Result<T> {
    result.map_err(|error| ExecError::Function(Box::new(error)))
}
