//! Medians, quantiles and modes without lists of values, for a statement whose lists do not fit into memory: values are
//! grouped and counted, windows over the groups in the order of the values tell which ranks each of them has among all
//! values, and what is left to aggregate is the one or two with the ranks that matter. Groups and windows spill.
//!
//! `SELECT k, median(a), mode(b) FROM t GROUP BY k` becomes, as `distinct_groups.rs` plans it,
//!
//! ```sql
//! SELECT k, median(a) FILTER (WHERE id = 0 AND has_median(until, rows, total)),
//!     first_value(b ORDER BY rows DESC, b) FILTER (WHERE id = 1 AND rows > 0)
//! FROM (
//!     SELECT *, sum(rows) OVER (PARTITION BY id, k ORDER BY a, b ROWS UNBOUNDED PRECEDING) AS until,
//!         sum(rows) OVER (PARTITION BY id, k) AS total
//!     FROM (
//!         SELECT k, a, b, grouping(a, b) AS id, CASE id WHEN 0 THEN count(a) WHEN 1 THEN count(b) END AS rows
//!         FROM t GROUP BY GROUPING SETS ((k, a), (k, b), (k))
//!     )
//! ) GROUP BY k
//! ```

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, plan_err};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_aggregate::min_max::max_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, SortExpr, Volatility, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, lit,
};
use datafusion::logical_expr::{cast as cast_expr, expr::WindowFunction};
use weft_exec::aggregate::{Quantile, between};

/// An aggregate of the values with some ranks.
#[derive(Clone, Debug)]
pub(crate) enum Ranked {
    /// Of the one or two in the middle.
    Median,
    /// The value at a fraction of them.
    Discrete { fraction: f64, is_descending: bool },
    /// Between the two values at a fraction of them.
    Continuous { fraction: f64, is_descending: bool },
    /// The most frequent value, the least one of several.
    Mode,
}

/// What windows tell of a group of equal values.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    /// How many values there are that are not greater.
    pub(crate) until: Expr,
    /// How many are equal.
    pub(crate) rows: Expr,
    /// How many there are.
    pub(crate) total: Expr,
}

impl Ranked {
    /// Nothing if an aggregate is no such, or its DISTINCT, or one that is refused.
    pub(crate) fn of(call: &AggregateFunction, schema: &DFSchema) -> Option<Ranked> {
        let params = &call.params;
        let value = params.args.first()?;
        let is_time = matches!(
            value.get_type(schema),
            Ok(DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
        );
        let is_plain = !params.distinct
            && params.null_treatment.is_none()
            && params.order_by.iter().all(|order| order.expr == *value)
            && params.order_by.len() <= 1;
        if !is_plain {
            return None;
        }
        let is_descending = params.order_by.first().is_some_and(|order| !order.asc);
        match (call.func.name(), &params.args[1..]) {
            ("median", []) if params.order_by.is_empty() && !is_time => Some(Ranked::Median),
            ("mode", []) => Some(Ranked::Mode),
            ("quantile_disc", [fraction]) => {
                Some(Ranked::Discrete { fraction: constant(fraction)?, is_descending })
            }
            ("percentile_cont", [fraction]) if !is_time => {
                Some(Ranked::Continuous { fraction: constant(fraction)?, is_descending })
            }
            _ => None,
        }
    }

    /// The aggregates of groups of equal values that it takes. `value` is that of a group, of which those count for which
    /// `is_counted` is true.
    ///
    /// # Errors
    /// None.
    pub(crate) fn aggregates(
        &self,
        call: &AggregateFunction,
        value: &Expr,
        ranks: &Ranks,
        is_counted: &Expr,
    ) -> DfResult<Vec<Expr>> {
        let first = |filter: Expr, order_by: Vec<SortExpr>| {
            let params = AggregateFunctionParams {
                args: vec![value.clone()],
                distinct: false,
                filter: Some(Box::new(is_counted.clone().and(filter))),
                order_by,
                null_treatment: None,
            };
            Expr::AggregateFunction(AggregateFunction { func: first_value_udaf(), params })
        };
        let at = |place: Place, fraction| first(ranks.hold(place, fraction), Vec::new());
        Ok(match *self {
            Ranked::Median => {
                let mut call = call.clone();
                call.params.args = vec![value.clone()];
                let filter = is_counted.clone().and(ranks.hold(Place::Middle, 0.5));
                call.params.filter = Some(Box::new(filter));
                vec![Expr::AggregateFunction(call)]
            }
            Ranked::Discrete { fraction, is_descending: false } => vec![at(Place::At, fraction)],
            Ranked::Discrete { fraction, is_descending: true } => {
                vec![at(Place::FromTheEnd, fraction)]
            }
            Ranked::Continuous { fraction, is_descending } => {
                let total = max_udaf().call(vec![ranks.total.clone()]);
                let total = total.filter(is_counted.clone()).build()?;
                let (below, above) = match is_descending {
                    false => (Place::Below, Place::Above),
                    true => (Place::BelowFromTheEnd, Place::AboveFromTheEnd),
                };
                vec![at(below, fraction), at(above, fraction), total]
            }
            Ranked::Mode => {
                let order_by =
                    vec![ranks.rows.clone().sort(false, false), value.clone().sort(true, false)];
                vec![first(ranks.rows.clone().gt(lit(0i64)), order_by)]
            }
        })
    }

    /// What is made of these aggregates; of a type.
    ///
    /// # Panics
    /// If it takes others.
    pub(crate) fn result(&self, aggregates: Vec<Expr>, of: &DataType) -> Expr {
        match (self, &aggregates[..]) {
            (Ranked::Continuous { fraction, is_descending }, [below, above, total]) => {
                let between = ScalarUDF::from(Between::new(*is_descending));
                let value = |expr: &Expr| cast_expr(expr.clone(), of.clone());
                between.call(vec![value(below), value(above), total.clone(), lit(*fraction)])
            }
            (_, [result]) => result.clone(),
            (_, others) => unreachable!("{} aggregates of {self:?}", others.len()),
        }
    }
}

/// A fraction that is written as one.
fn constant(expr: &Expr) -> Option<f64> {
    let Expr::Literal(value, _) = expr else { return None };
    match value.cast_to(&DataType::Float64).ok()? {
        ScalarValue::Float64(fraction) => fraction.filter(|value| (0.0..=1.0).contains(value)),
        _ => None,
    }
}

impl Ranks {
    /// Adds windows to a plan whose rows are groups of equal values, one `order` of them in each partition of `keys`.
    ///
    /// # Errors
    /// Those of the plan.
    pub(crate) fn add(
        plan: LogicalPlan,
        rows: &Expr,
        keys: &[Expr],
        order: &[Expr],
    ) -> DfResult<(LogicalPlan, Ranks)> {
        let sum = |order_by: Vec<SortExpr>, end: WindowFrameBound| {
            let unbounded = WindowFrameBound::Preceding(ScalarValue::UInt64(None));
            let frame = WindowFrame::new_bounds(WindowFrameUnits::Rows, unbounded, end);
            let mut call = WindowFunction::new(
                WindowFunctionDefinition::AggregateUDF(sum_udaf()),
                vec![rows.clone()],
            );
            call.params.partition_by = keys.to_vec();
            call.params.order_by = order_by;
            call.params.window_frame = frame;
            Expr::from(call)
        };
        let order: Vec<SortExpr> =
            order.iter().map(|value| value.clone().sort(true, false)).collect();
        let until = sum(order.clone(), WindowFrameBound::CurrentRow);
        let total = sum(order, WindowFrameBound::Following(ScalarValue::UInt64(None)));
        let columns = plan.schema().fields().len();
        let plan = LogicalPlanBuilder::from(plan).window([until, total])?.build()?;
        let added = plan.schema().columns().split_off(columns);
        let [until, total] = &added[..] else {
            return plan_err!("two windows have {} columns", added.len());
        };
        let column = |column| Expr::Column(Clone::clone(column));
        let ranks = Ranks { until: column(until), rows: rows.clone(), total: column(total) };
        Ok((plan, ranks))
    }

    /// True of the group in which a rank lies.
    fn hold(&self, place: Place, fraction: f64) -> Expr {
        let function = ScalarUDF::from(Holds::new(place));
        function.call(vec![
            self.until.clone(),
            self.rows.clone(),
            self.total.clone(),
            lit(fraction),
        ])
    }
}

/// The ranks that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The one in the middle, or both.
    Middle,
    /// The first that a fraction of the values is not greater than.
    At,
    /// The same in the other order.
    FromTheEnd,
    /// The last before a fraction of the way from the first to the last value.
    Below,
    /// The first after it.
    Above,
    /// The same in the other order: the value is still the lesser, and the greater one.
    BelowFromTheEnd,
    /// See [`Place::BelowFromTheEnd`].
    AboveFromTheEnd,
}

impl Place {
    /// The first and the last of the ranks among so many values, of which there are some, from 1 on.
    fn ranks(self, fraction: f64, count: i64) -> (i64, i64) {
        let at = ((fraction * count as f64).ceil() as i64).clamp(1, count);
        let position = |is_descending| {
            let quantile = Quantile { fraction, is_descending };
            quantile.position(usize::try_from(count).unwrap_or(1))
        };
        let below = |is_descending| position(is_descending).0 as i64 + 1;
        let above = |is_descending| {
            let (place, part) = position(is_descending);
            place as i64 + 1 + i64::from(part > 0.0)
        };
        let one = |rank| (rank, rank);
        match self {
            Place::Middle => ((count + 1) / 2, count / 2 + 1),
            Place::At => one(at),
            Place::FromTheEnd => one(count + 1 - at),
            Place::Below => one(below(false)),
            Place::Above => one(above(false)),
            Place::BelowFromTheEnd => one(below(true)),
            Place::AboveFromTheEnd => one(above(true)),
        }
    }
}

/// Whether a rank lies among `rows` equal values, of `total` ones of which `until` are not greater.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Holds {
    place: Place,
    signature: Signature,
}

impl Holds {
    fn new(place: Place) -> Holds {
        let types = vec![DataType::Int64, DataType::Int64, DataType::Int64, DataType::Float64];
        Holds { place, signature: Signature::exact(types, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Holds {
    fn name(&self) -> &str {
        match self.place {
            Place::Middle => "has_median",
            Place::At => "has_quantile",
            Place::FromTheEnd => "has_quantile_from_end",
            Place::Below => "has_value_below",
            Place::Above => "has_value_above",
            Place::BelowFromTheEnd => "has_value_below_from_end",
            Place::AboveFromTheEnd => "has_value_above_from_end",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [until, rows, total, fraction] = &arrays[..] else {
            return plan_err!("{} has four arguments", self.name());
        };
        let of = |array: &ArrayRef| array.as_primitive::<Int64Type>().clone();
        let (until, rows, total) = (of(until), of(rows), of(total));
        let fraction = fraction.as_primitive::<Float64Type>();
        let holds = |row: usize| {
            let (until, count) = (until.value(row), total.value(row));
            let before = until - rows.value(row);
            let (first, last) = self.place.ranks(fraction.value(row), count.max(1));
            let is_among = |rank| before < rank && rank <= until;
            count > 0 && (is_among(first) || is_among(last))
        };
        let holds: BooleanArray = (0..until.len()).map(|row| Some(holds(row))).collect();
        Ok(ColumnarValue::Array(Arc::new(holds)))
    }
}

/// The value at a fraction of the way between two values of `total` ones.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Between {
    is_descending: bool,
    signature: Signature,
}

impl Between {
    fn new(is_descending: bool) -> Between {
        Between { is_descending, signature: Signature::any(4, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Between {
    fn name(&self) -> &str {
        if self.is_descending { "between_values_from_end" } else { "between_values" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [below, above, total, fraction] = &arrays[..] else {
            return plan_err!("{} has four arguments", self.name());
        };
        let data_type = below.data_type().clone();
        let (below, above) = (cast(below, &DataType::Float64)?, cast(above, &DataType::Float64)?);
        let (below, above) =
            (below.as_primitive::<Float64Type>(), above.as_primitive::<Float64Type>());
        let total = cast(total, &DataType::Int64)?;
        let total = total.as_primitive::<Int64Type>();
        let fraction = fraction.as_primitive::<Float64Type>();
        let rows = below.iter().zip(above).zip(total.iter().zip(fraction));
        let between: Float64Array = rows
            .map(|((below, above), (total, fraction))| {
                let quantile = Quantile { fraction: fraction?, is_descending: self.is_descending };
                let count = usize::try_from(total?).ok().filter(|count| *count > 0)?;
                Some(between(below?, above?, quantile.position(count).1))
            })
            .collect();
        Ok(ColumnarValue::Array(cast(&between, &data_type)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_few_values() {
        let middle = |count| Place::Middle.ranks(0.5, count);
        assert_eq!([1, 2, 3, 4].map(middle), [(1, 1), (1, 2), (2, 2), (2, 3)]);
        for (fraction, count, at, from_the_end, below, above) in [
            (0.0, 1, 1, 1, 1, 1),
            (1.0, 1, 1, 1, 1, 1),
            (0.0, 4, 1, 4, 1, 1),
            (1.0, 4, 4, 1, 4, 4),
            (0.5, 4, 2, 3, 2, 3),
            (0.3, 5, 2, 4, 2, 3),
        ] {
            let ranks = [Place::At, Place::FromTheEnd, Place::Below, Place::Above]
                .map(|place| place.ranks(fraction, count));
            let expected = [at, from_the_end, below, above].map(|rank| (rank, rank));
            assert_eq!(ranks, expected, "{fraction} of {count}");
        }
    }
}
