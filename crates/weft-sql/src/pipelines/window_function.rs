//! Which function of the engine a window function is: one of its own, or DataFusion's over whole partitions.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result as DfResult, ScalarValue, not_impl_err};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr,
};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::windows::WindowUDFExpr;
use weft_exec::aggregate::Moment;
use weft_exec::program::Constant;
use weft_exec::window::{Aggregate, Function, Given, Kind, Partitionwise, Shift};
use weft_exec::{ExecError, Lane, aggregate};

use super::expressions::{Expr, Expressions, literal};
use super::stored::Stored;
use super::term::{Place, Term};
use super::window::Call;
use super::window_accumulator::Accumulated;
use super::window_way::Way;
use super::{aggregate_function, window_frame, window_varying};
use crate::exclusions;
use crate::foreign_aggregate::is_foreign;

/// The fields of tuples that expressions become.
pub(super) struct Fields<'a, 'b> {
    pub(super) code: &'a mut Expressions<'b>,
    pub(super) stored: &'a mut Stored,
}

impl Fields<'_, '_> {
    /// The value of an expression.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn term(&mut self, expr: &Expr) -> DfResult<Term> {
        self.code.term(expr)
    }

    /// The field of a value.
    pub(super) fn field(&mut self, term: &Term) -> usize {
        let register = self.code.in_register(term);
        self.stored.add_field(self.code.program, &term.moved(register))
    }

    /// The field of an expression.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn of(&mut self, expr: &Expr) -> DfResult<usize> {
        let term = self.term(expr)?;
        Ok(self.field(&term))
    }
}

/// What a function is called.
pub(super) fn name(call: &Call) -> &str {
    if let Some(call) = standard(call) {
        return call.fun().name();
    }
    aggregate_of(call).map_or_else(|| call.name(), |aggregate| aggregate.fun().name())
}

/// A function that is no aggregate.
fn standard(call: &Call) -> Option<&WindowUDFExpr> {
    let call = call.as_any().downcast_ref::<StandardWindowExpr>()?;
    call.get_standard_func_expr().as_any().downcast_ref()
}

/// The columns that a function looks at, in their order; `None` if they cannot be told.
pub(super) fn columns(call: &Call) -> Option<Vec<usize>> {
    if !has_no_filter(call) {
        return None;
    }
    let args = call.expressions();
    let keys = call.order_by().iter().map(|key| &key.expr);
    let exprs = args.iter().chain(call.partition_by()).chain(keys);
    let mut columns: Vec<usize> =
        exprs.flat_map(collect_columns).map(|column| column.index()).collect();
    columns.sort_unstable();
    columns.dedup();
    Some(columns)
}

/// True if a function certainly has no FILTER: DataFusion tells nobody but in words.
fn has_no_filter(call: &Call) -> bool {
    call.as_any().is::<StandardWindowExpr>() || format!("{call:?}").ends_with("filter: None }")
}

/// A function over fields of tuples.
///
/// # Errors
/// Those of its arguments.
pub(super) fn function(call: &Call, fields: &mut Fields<'_, '_>) -> DfResult<Function> {
    let order: DfResult<Vec<usize>> =
        call.order_by().iter().map(|key| fields.of(&key.expr)).collect();
    let order = order?;
    if let Some((kind, arguments, result)) = own(call, fields)? {
        return Ok(Function { kind, arguments, order, result });
    }
    if call.partition_by().iter().any(|key| exclusions::exclusion(key).is_some()) {
        return not_impl_err!(
            "frames of {} that leave rows out, for DataFusion evaluates it",
            name(call)
        );
    }
    let result = Lane::of(call.field()?.data_type());
    let schema = fields.code.schema;
    let needed = columns(call).unwrap_or_else(|| (0..schema.fields().len()).collect());
    let mut arguments = Vec::new();
    for column in &needed {
        let expr: Expr = Arc::new(Column::new(schema.field(*column).name(), *column));
        arguments.push(fields.of(&expr)?);
    }
    let called = Arc::new(Evaluated::new(call, needed, schema));
    Ok(Function { kind: Kind::Partitionwise(called), arguments, order, result })
}

/// A function of the engine's own, the fields of its arguments, and the lane of the result.
pub(super) type Own = (Kind, Vec<usize>, Lane);

/// The engine's own function, if it has it.
fn own(call: &Call, fields: &mut Fields<'_, '_>) -> DfResult<Option<Own>> {
    if let Some(function) = standard(call) {
        if let Some(kind) = by_rank(function) {
            return Ok(Some((kind, Vec::new(), Lane::of(call.field()?.data_type()))));
        }
        if let Some(own) = window_varying::varying(call, function, fields)? {
            return Ok(Some(own));
        }
        return match function.fun().name() {
            "lag" | "lead" => shift(call, function, fields),
            "first_value" | "last_value" | "nth_value" => nth(call, function, fields),
            _ => Ok(None),
        };
    }
    match aggregate_of(call) {
        Some(aggregate) if has_no_filter(call) => match of_frame(call, aggregate, fields)? {
            Some(own) => Ok(Some(own)),
            None => foreign(call, aggregate, fields),
        },
        _ => Ok(None),
    }
}

/// An aggregate of frames that DataFusion accumulates.
fn foreign(
    call: &Call,
    expr: &AggregateFunctionExpr,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Own>> {
    if is_foreign(expr.fun()) {
        return not_impl_err!("no worker executes the function {}", expr.fun().name());
    }
    let Some(frame) = window_frame::frame(call, fields)? else { return Ok(None) };
    let (mut arguments, mut input_types) = (Vec::new(), Vec::new());
    for arg in expr.expressions() {
        arguments.push(fields.of(&arg)?);
        input_types.push(arg.data_type(fields.code.schema)?);
    }
    let slides = !frame.is_from_start();
    let lane = Lane::of(call.field()?.data_type());
    let foreign = Arc::new(Accumulated::new(expr, input_types, slides));
    Ok(Some((Kind::Foreign(foreign, frame), arguments, lane)))
}

/// A function that says where a row is in its partition.
fn by_rank(call: &WindowUDFExpr) -> Option<Kind> {
    Some(match call.fun().name() {
        "row_number" => Kind::RowNumber,
        "rank" => Kind::Rank,
        "dense_rank" => Kind::DenseRank,
        "percent_rank" => Kind::PercentRank,
        "cume_dist" => Kind::CumeDist,
        "ntile" => {
            let parts = literal(call.args().first()?)?.cast_to(&DataType::Int64).ok()?;
            match parts {
                ScalarValue::Int64(Some(parts)) if parts > 0 => Kind::Ntile(Given::Constant(parts)),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// lag and lead.
fn shift(
    call: &Call,
    function: &WindowUDFExpr,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Own>> {
    let ([argument], Some(way)) = (&call.expressions()[..], Way::of_shift(function)?) else {
        return Ok(None);
    };
    let term = fields.term(argument)?;
    let default = match function.args().get(2) {
        None => None,
        Some(default) => {
            let Some(default) = literal(default) else { return Ok(None) };
            let default = default.cast_to(&term.data_type)?;
            match (default.is_null(), in_lane(&default, term.lane)) {
                (true, _) => None,
                (false, Some(constant)) => Some(Given::Constant(constant)),
                (false, None) => return Ok(None),
            }
        }
    };
    let Way { distance, ignores_nulls } = way;
    let shift = Shift { back: Given::Constant(distance), is_ahead: false, ignores_nulls, default };
    Ok(Some((Kind::Shift(shift), vec![fields.field(&term)], term.lane)))
}

/// A value as a constant of a lane.
fn in_lane(value: &ScalarValue, lane: Lane) -> Option<Constant> {
    match Term::literal(value)?.place {
        Place::Constant(constant) if constant.lane() == lane => Some(constant),
        Place::Constant(constant) => Constant::of_integer(constant.integer()?, lane),
        _ => None,
    }
}

/// first_value, last_value and nth_value.
fn nth(
    call: &Call,
    function: &WindowUDFExpr,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Own>> {
    let Some(argument) = function.args().first() else { return Ok(None) };
    let Some(Way { distance: row, ignores_nulls }) = Way::of_nth(function)? else {
        return Ok(None);
    };
    let Some(frame) = window_frame::frame(call, fields)? else { return Ok(None) };
    let term = fields.term(argument)?;
    let row = Given::Constant(row);
    Ok(Some((Kind::Nth { row, ignores_nulls, frame }, vec![fields.field(&term)], term.lane)))
}

/// The aggregate function that a function over frames is.
fn aggregate_of(call: &Call) -> Option<&AggregateFunctionExpr> {
    let any = call.as_any();
    match any.downcast_ref::<PlainAggregateWindowExpr>() {
        Some(call) => Some(call.get_aggregate_expr()),
        None => any
            .downcast_ref::<SlidingAggregateWindowExpr>()
            .map(SlidingAggregateWindowExpr::get_aggregate_expr),
    }
}

/// An aggregate of frames.
fn of_frame(
    call: &Call,
    expr: &AggregateFunctionExpr,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Own>> {
    let args = expr.expressions();
    let types: DfResult<Vec<DataType>> =
        args.iter().map(|arg| arg.data_type(fields.code.schema)).collect();
    let field = call.field()?;
    let function = aggregate_function::function(expr, &args, &types?, field.data_type());
    let aggregate = match function {
        _ if expr.is_distinct() => return Ok(None),
        Some(aggregate::Function::Count) if args.len() == 1 => Aggregate::Count,
        Some(aggregate::Function::Sum) => Aggregate::Sum,
        Some(aggregate::Function::Average { digits }) => Aggregate::Average { digits },
        Some(aggregate::Function::Moment(moment)) if args.len() == 1 && is_of_variance(moment) => {
            Aggregate::Moment(moment)
        }
        Some(aggregate::Function::Min) => Aggregate::Min,
        Some(aggregate::Function::Max) => Aggregate::Max,
        Some(aggregate::Function::And) if *field.data_type() == DataType::Boolean => Aggregate::All,
        Some(aggregate::Function::Or) if *field.data_type() == DataType::Boolean => Aggregate::Any,
        _ => return Ok(None),
    };
    let Some(frame) = window_frame::frame(call, fields)? else { return Ok(None) };
    let term = fields.term(&args[0])?;
    if matches!(aggregate, Aggregate::Moment(_)) && term.lane != Lane::F64 {
        return Ok(None);
    }
    let lane = match aggregate {
        Aggregate::Min | Aggregate::Max => term.lane,
        _ => Lane::of(field.data_type()),
    };
    let arguments = match aggregate {
        Aggregate::Count if !term.is_nullable => Vec::new(),
        _ => vec![fields.field(&term)],
    };
    Ok(Some((Kind::Aggregate(aggregate, frame), arguments, lane)))
}

/// True of what is asked about squares of deviations.
fn is_of_variance(moment: Moment) -> bool {
    matches!(
        moment,
        Moment::VarianceSample
            | Moment::VariancePopulation
            | Moment::DeviationSample
            | Moment::DeviationPopulation
    )
}

/// A function as DataFusion evaluates it.
#[derive(Debug)]
struct Evaluated {
    name: String,
    call: Call,
    /// The columns that it looks at.
    columns: Vec<usize>,
    input_types: Vec<DataType>,
    /// In which all other columns are of the type of nulls, which takes no memory.
    schema: SchemaRef,
}

impl Evaluated {
    fn new(call: &Call, columns: Vec<usize>, schema: &Schema) -> Evaluated {
        let field = |(number, field): (usize, &Arc<Field>)| match columns.contains(&number) {
            true => field.as_ref().clone(),
            false => Field::new(field.name(), DataType::Null, true),
        };
        let fields: Vec<Field> = schema.fields().iter().enumerate().map(field).collect();
        let input_type = |column: &usize| schema.field(*column).data_type().clone();
        Evaluated {
            name: call.name().to_owned(),
            call: call.clone(),
            input_types: columns.iter().map(input_type).collect(),
            columns,
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

impl Partitionwise for Evaluated {
    fn name(&self) -> &str {
        &self.name
    }

    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn evaluate(&self, inputs: &[ArrayRef], rows: usize) -> weft_exec::Result<ArrayRef> {
        let nulls: ArrayRef = Arc::new(NullArray::new(rows));
        let mut arrays = vec![nulls; self.schema.fields().len()];
        for (column, input) in self.columns.iter().zip(inputs) {
            arrays[*column] = Arc::clone(input);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        let values = self.call.evaluate(&batch);
        values.map_err(|error| ExecError::Function(Box::new(error)))
    }
}
