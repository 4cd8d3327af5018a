//! Aggregates of floating point numbers over frames that leave rows behind.
//!
//! DataFusion takes a number that has left out of what it has made of all: infinity less infinity is NaN, and stays for the rest of the
//! partition. So numbers that are not finite are counted beside it, and what comes out is theirs for as long as there are any.

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef, Float64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

/// A function that copes with them, if it is one of those that do not; otherwise it as it is.
pub(crate) fn sliding(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    match Made::by(inner.name()) {
        Some(made) => Arc::new(AggregateUDF::from(Sliding { inner, made })),
        None => inner,
    }
}

/// What is made of numbers that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Made {
    /// The arguments that matter.
    arguments: &'static [usize],
    /// Their sum, rather than NaN.
    is_sum: bool,
    /// Fewest rows for which there is a result.
    rows_min: u64,
}

impl Made {
    fn by(name: &str) -> Option<Made> {
        let (arguments, is_sum, rows_min): (&'static [usize], bool, u64) = match name {
            "avg" | "sum" | "regr_avgy" => (&[0], true, 1),
            "regr_avgx" => (&[1], true, 1),
            "stddev_pop" | "var_pop" | "regr_syy" => (&[0], false, 1),
            "stddev" | "var" => (&[0], false, 2),
            "regr_sxx" => (&[1], false, 1),
            "covar_pop" | "regr_sxy" => (&[0, 1], false, 1),
            "corr" | "covar_samp" | "regr_intercept" | "regr_r2" | "regr_slope" => {
                (&[0, 1], false, 2)
            }
            _ => return None,
        };
        Some(Made { arguments, is_sum, rows_min })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    inner: Arc<AggregateUDF>,
    made: Made,
}

impl AggregateUDFImpl for Sliding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> DfResult<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let are_floats =
            args.expr_fields.iter().all(|field| field.data_type() == &DataType::Float64);
        let is_wanted = are_floats && !args.is_distinct;
        let inner = self.inner.create_sliding_accumulator(args)?;
        if !is_wanted || !inner.supports_retract_batch() {
            return Ok(inner);
        }
        Ok(Box::new(Counted { inner, made: self.made, rows: 0, nan: 0, above: 0, below: 0 }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::NotSupported => ReversedUDAF::NotSupported,
            _ => ReversedUDAF::Identical,
        }
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(statistics)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// What is accumulated of finite numbers, and how many there are of others.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn Accumulator>,
    made: Made,
    /// Rows without nulls.
    rows: u64,
    nan: u64,
    above: u64,
    below: u64,
}

impl Counted {
    /// Counts rows that come in, or go out, and gives back those that the accumulator is to have.
    fn counted(&mut self, values: &[ArrayRef], come_in: bool) -> DfResult<Vec<ArrayRef>> {
        let columns: Option<Vec<&Float64Array>> =
            values.iter().map(|values| values.as_primitive_opt::<Float64Type>()).collect();
        let Some(columns) = columns else {
            return internal_err!("numbers that are not as wide as they were planned");
        };
        let nulls = columns
            .iter()
            .fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.nulls()));
        let rows = columns.first().map_or(0, |column| column.len());
        let count = |count: &mut u64, by: usize| match come_in {
            true => *count += by as u64,
            false => *count = count.saturating_sub(by as u64),
        };
        count(&mut self.rows, rows - nulls.as_ref().map_or(0, NullBuffer::null_count));
        if columns.iter().all(|column| column.values().iter().all(|value| value.is_finite())) {
            return Ok(values.to_vec());
        }
        let is_known = |row: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
        for argument in self.made.arguments {
            for value in (0..rows).filter(is_known).map(|row| columns[*argument].value(row)) {
                match value {
                    f64::INFINITY => count(&mut self.above, 1),
                    f64::NEG_INFINITY => count(&mut self.below, 1),
                    _ if value.is_nan() => count(&mut self.nan, 1),
                    _ => {}
                }
            }
        }
        let counts = |row: &usize| {
            let mut arguments = self.made.arguments.iter();
            is_known(row) && arguments.all(|argument| columns[*argument].value(*row).is_finite())
        };
        let kept = columns.iter().map(|column| {
            let values = (0..rows).map(|row| {
                // What does not matter must not become NaN beside what does.
                let value = Some(column.value(row)).filter(|value| value.is_finite());
                counts(&row).then(|| value.unwrap_or(0.0))
            });
            Arc::new(values.collect::<Float64Array>()) as ArrayRef
        });
        Ok(kept.collect())
    }
}

impl Accumulator for Counted {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.counted(values, true)?;
        self.inner.update_batch(&values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.counted(values, false)?;
        self.inner.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let (nan, above, below) = (self.nan > 0, self.above > 0, self.below > 0);
        if self.rows < self.made.rows_min || !(nan || above || below) {
            return self.inner.evaluate();
        }
        let result = match self.made.is_sum {
            true if above && !below && !nan => f64::INFINITY,
            true if below && !above && !nan => f64::NEG_INFINITY,
            _ => f64::NAN,
        };
        Ok(ScalarValue::Float64(Some(result)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.inner.merge_batch(states)
    }
}
