//! Aggregates of numbers that come one after the other, of which none is kept: `product`, `kurtosis`, `kurtosis_pop` and
//! `skewness`, as DataFusion accumulates them. Pipelines have states of their own for them.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;
use weft_exec::aggregate::{Product, Shape};

/// What is asked about the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Moments {
    /// The kurtosis of what they are a sample of.
    Kurtosis,
    /// Their own kurtosis.
    KurtosisPop,
    /// All of them multiplied.
    Product,
    /// The skewness of what they are a sample of.
    Skewness,
}

impl Moments {
    /// The name of the function.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Moments::Kurtosis => "kurtosis",
            Moments::KurtosisPop => "kurtosis_pop",
            Moments::Product => "product",
            Moments::Skewness => "skewness",
        }
    }
}

/// The fields of a state: the shape, and the product.
const FIELDS: [&str; 7] = ["count", "mean", "second", "third", "fourth", "scaled", "exponent"];

/// The numbers of a group.
#[derive(Debug)]
pub(crate) struct Numbers {
    moments: Moments,
    shape: Shape,
    product: Product,
}

impl Numbers {
    /// None yet.
    pub(crate) fn new(moments: Moments) -> Numbers {
        Numbers { moments, shape: Shape::default(), product: Product::default() }
    }

    /// What [`Accumulator::state`] has.
    pub(crate) fn state_fields() -> Vec<FieldRef> {
        let field = |name: &str| Arc::new(Field::new(name, DataType::Float64, true));
        FIELDS.iter().map(|name| field(name)).collect()
    }
}

impl Accumulator for Numbers {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.shape.add(value);
            self.product.add(value);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::Float64(match self.moments {
            Moments::Kurtosis => self.shape.kurtosis(),
            Moments::KurtosisPop => self.shape.kurtosis_of_population(),
            Moments::Product => self.product.value(),
            Moments::Skewness => self.shape.skewness(),
        }))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let Shape { count, mean, sums: [second, third, fourth] } = self.shape;
        let Product { scaled, exponent, .. } = self.product;
        let state = [count, mean, second, third, fourth, scaled, exponent];
        Ok(state.map(|number| ScalarValue::Float64(Some(number))).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        let fields: Vec<&[f64]> =
            states.iter().map(|state| &state.as_primitive::<Float64Type>().values()[..]).collect();
        let [count, mean, second, third, fourth, scaled, exponent] = fields[..] else {
            return internal_err!("the state of {} has other fields", self.moments.name());
        };
        for (row, count) in count.iter().copied().enumerate() {
            let sums = [second[row], third[row], fourth[row]];
            self.shape.merge(&Shape { count, mean: mean[row], sums });
            let (scaled, exponent) = (scaled[row], exponent[row]);
            self.product.merge(&Product { count, scaled, exponent });
        }
        Ok(())
    }
}
