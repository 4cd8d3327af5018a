//! Aggregate functions that DataFusion lacks: `mode`, `quantile_disc`, `histogram`, `entropy` and `mad`, which need all values of a group at once, and
//! `product`, `kurtosis`, `kurtosis_pop` and `skewness`, which do not (`moments.rs`) unless they are DISTINCT.
//!
//! The values are kept and sorted in the end, so that results do not depend on the order in which they came.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, MapArray, RecordBatch, StructArray, UInt64Array, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{concat, filter, is_not_null, partition, sort, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Schema};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, Volatility,
};
use weft_exec::aggregate::Quantile;

use crate::moments::{Moments, Numbers};
use crate::types::type_name;

/// The functions.
pub(crate) fn collected() -> impl Iterator<Item = Arc<AggregateUDF>> {
    let moments = [Moments::Kurtosis, Moments::KurtosisPop, Moments::Product, Moments::Skewness];
    let others = [Kind::Entropy, Kind::Histogram, Kind::Mad, Kind::Mode, Kind::QuantileDisc];
    let kinds = moments.map(Kind::Moments).into_iter().chain(others);
    kinds.map(|kind| Arc::new(AggregateUDF::from(Collected::new(kind))))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// The entropy of the values' frequencies, in bits.
    Entropy,
    /// A map of the values with the number of times that each occurs.
    Histogram,
    /// The median distance of numbers from their median.
    Mad,
    /// What is made of numbers one after the other.
    Moments(Moments),
    /// The most frequent value, the least one of several.
    Mode,
    /// The first value that is not less than a fraction of them.
    QuantileDisc,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Collected {
    kind: Kind,
    signature: Signature,
    aliases: Vec<String>,
}

impl Collected {
    fn new(kind: Kind) -> Collected {
        let aliases = match kind {
            Kind::QuantileDisc => vec!["percentile_disc".to_owned(), "quantile".to_owned()],
            _ => Vec::new(),
        };
        let signature = match kind {
            Kind::Moments(_) | Kind::Mad => Signature::user_defined(Volatility::Immutable),
            Kind::Entropy | Kind::Histogram | Kind::Mode => {
                Signature::any(1, Volatility::Immutable)
            }
            Kind::QuantileDisc => Signature::any(2, Volatility::Immutable),
        };
        Collected { kind, signature, aliases }
    }

    fn is_of_numbers(&self) -> bool {
        matches!(self.kind, Kind::Moments(_) | Kind::Mad)
    }
}

/// The quantile that the second argument of a function, and the order of the first one, ask for.
///
/// # Errors
/// If the argument is not a constant from 0 to 1.
pub(crate) fn quantile(name: &str, args: &AccumulatorArgs) -> DfResult<Quantile> {
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    let fraction = match args.exprs.get(1).map(|expr| expr.evaluate(&nothing)) {
        Some(Ok(ColumnarValue::Scalar(value))) => value.cast_to(&DataType::Float64)?,
        _ => return plan_err!("the fraction of {name} has to be constant"),
    };
    let ScalarValue::Float64(Some(fraction)) = fraction else {
        return plan_err!("the fraction of {name} cannot be NULL");
    };
    let is_descending = args.order_bys.first().is_some_and(|key| key.options.descending);
    match (0.0..=1.0).contains(&fraction) {
        true => Ok(Quantile { fraction, is_descending }),
        false => plan_err!("the fraction of {name} is {fraction}, not from 0 to 1"),
    }
}

impl AggregateUDFImpl for Collected {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Entropy => "entropy",
            Kind::Histogram => "histogram",
            Kind::Mad => "mad",
            Kind::Moments(moments) => moments.name(),
            Kind::Mode => "mode",
            Kind::QuantileDisc => "quantile_disc",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types.first() {
            Some(number) if self.is_of_numbers() => match number.is_numeric() || number.is_null() {
                true => Ok(DataType::Float64),
                false => plan_err!("{} takes numbers, not {}", self.name(), type_name(number)),
            },
            Some(_) if self.kind == Kind::Entropy => Ok(DataType::Float64),
            Some(value) if self.kind == Kind::Histogram => Ok(counts_of(value)),
            Some(value) => Ok(value.clone()),
            None => plan_err!("{} has an argument", self.name()),
        }
    }

    /// Numbers are computed with as floats; what is no number is refused with its own type.
    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        match types {
            [number] if number.is_numeric() || number.is_null() => Ok(vec![DataType::Float64]),
            [other] => Ok(vec![other.clone()]),
            _ => plan_err!("{} takes one number", self.name()),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        if matches!(self.kind, Kind::Moments(_)) && !args.is_distinct {
            return Ok(Numbers::state_fields());
        }
        let item = Field::new_list_field(args.input_fields[0].data_type().clone(), true);
        Ok(vec![Arc::new(Field::new_list("values", item, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        if let Kind::Moments(moments) = self.kind
            && !args.is_distinct
        {
            return Ok(Box::new(Numbers::new(moments)));
        }
        Ok(Box::new(Values {
            kind: self.kind,
            quantile: match self.kind {
                Kind::QuantileDisc => quantile(self.name(), &args)?,
                _ => Quantile::ascending(0.0),
            },
            is_distinct: args.is_distinct,
            of: args.expr_fields[0].data_type().clone(),
            to: args.return_field.data_type().clone(),
            values: Vec::new(),
        }))
    }

    fn supports_within_group_clause(&self) -> bool {
        matches!(self.kind, Kind::Mode | Kind::QuantileDisc)
    }
}

/// The type of a map of values with their counts.
fn counts_of(value: &DataType) -> DataType {
    let key = Field::new("key", value.clone(), false);
    let count = Field::new("value", DataType::UInt64, true);
    let entries = DataType::Struct(vec![key, count].into());
    DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
}

/// The map of distinct values with these counts.
fn histogram(values: ArrayRef, counts: Vec<u64>, to: &DataType) -> DfResult<ScalarValue> {
    let DataType::Map(entries, _) = to else {
        return plan_err!("histogram is a map, not {}", type_name(to));
    };
    let DataType::Struct(fields) = entries.data_type() else {
        return plan_err!("a map has entries, not {}", type_name(entries.data_type()));
    };
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    let columns: Vec<ArrayRef> = vec![values, Arc::new(UInt64Array::from(counts))];
    let structs = StructArray::try_new(fields.clone(), columns, None)?;
    let map = MapArray::try_new(Arc::clone(entries), offsets, structs, None, false)?;
    ScalarValue::try_from_array(&map, 0)
}

/// The median of sorted numbers.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[half - 1], sorted[half]),
        _ => sorted[half],
    }
}

/// The median distance of sorted numbers from their median.
fn median_distance(sorted: &ArrayRef) -> f64 {
    let numbers = sorted.as_primitive::<Float64Type>().values();
    let median = middle(numbers);
    let mut distances: Vec<f64> = numbers.iter().map(|number| (number - median).abs()).collect();
    distances.sort_by(f64::total_cmp);
    middle(&distances)
}

/// The values of a group.
#[derive(Debug)]
struct Values {
    kind: Kind,
    quantile: Quantile,
    is_distinct: bool,
    of: DataType,
    to: DataType,
    values: Vec<ArrayRef>,
}

impl Values {
    fn all(&self) -> DfResult<ArrayRef> {
        let arrays: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        match arrays.is_empty() {
            true => Ok(new_empty_array(&self.of)),
            false => Ok(concat(&arrays)?),
        }
    }

    fn add(&mut self, values: &ArrayRef) -> DfResult<()> {
        let known = match values.logical_null_count() {
            0 => Arc::clone(values),
            _ => filter(values, &is_not_null(values)?)?,
        };
        if !known.is_empty() {
            self.values.push(known);
        }
        Ok(())
    }

    /// The place of the result among sorted values, which stand in these ranges if they are equal.
    fn place(&self, equal: &[Range<usize>], count: usize) -> usize {
        if self.kind == Kind::Mode {
            let longest = equal.iter().rev().max_by_key(|range| range.len());
            return longest.filter(|_| !self.is_distinct).map_or(0, |range| range.start);
        }
        self.quantile.place(count)
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.add(&values[0])
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let mut sorted = sort(&self.all()?, None)?;
        let equal = partition(&[Arc::clone(&sorted)])?.ranges();
        if self.kind == Kind::Entropy && sorted.is_empty() {
            return Ok(ScalarValue::Float64(Some(0.0)));
        }
        if sorted.is_empty() || sorted.data_type().is_null() {
            return ScalarValue::try_new_null(&self.to);
        }
        if self.is_distinct {
            let firsts = equal.iter().map(|range| range.start as u64);
            sorted = take(&sorted, &UInt64Array::from_iter_values(firsts), None)?;
        }
        let counts = || {
            let counts = equal.iter().map(|range| range.len() as u64);
            counts.map(|count| if self.is_distinct { 1 } else { count }).collect::<Vec<u64>>()
        };
        match self.kind {
            Kind::Entropy => {
                let counts = counts();
                let all = counts.iter().sum::<u64>() as f64;
                let shares = counts.iter().map(|&count| count as f64 / all);
                let entropy = -shares.map(|share| share * share.log2()).sum::<f64>();
                return Ok(ScalarValue::Float64(Some(entropy.abs())));
            }
            Kind::Histogram => {
                let firsts = equal.iter().map(|range| range.start as u64);
                let firsts = UInt64Array::from_iter_values(firsts);
                let values = match self.is_distinct {
                    true => sorted,
                    false => take(&sorted, &firsts, None)?,
                };
                return histogram(values, counts(), &self.to);
            }
            Kind::Mad => return Ok(ScalarValue::Float64(Some(median_distance(&sorted)))),
            _ => {}
        }
        let Kind::Moments(moments) = self.kind else {
            return ScalarValue::try_from_array(&sorted, self.place(&equal, sorted.len()));
        };
        let mut numbers = Numbers::new(moments);
        numbers.update_batch(&[sorted])?;
        numbers.evaluate()
    }

    fn size(&self) -> usize {
        let arrays = self.values.iter().map(|values| values.get_array_memory_size());
        size_of_val(self) + arrays.sum::<usize>()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![SingleRowListArrayBuilder::new(self.all()?).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add(&values)?;
        }
        Ok(())
    }
}
