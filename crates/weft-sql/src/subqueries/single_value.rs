//! The one value of a subquery that stands for a value: more rows than one are an error.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use crate::error::{ErrorKind, SqlError};

/// The function.
pub(super) fn single_value() -> Arc<AggregateUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(AggregateUDF::from(SingleValue { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => plan_err!("single_value has one argument"),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        let value = args.return_field.as_ref().clone().with_name("value").with_nullable(true);
        let found = Field::new("found", DataType::Boolean, false);
        Ok(vec![Arc::new(value), Arc::new(found)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let value = ScalarValue::try_new_null(args.return_field.data_type())?;
        Ok(Box::new(Single { value, found: false }))
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    found: bool,
}

impl Single {
    fn add(&mut self, value: ScalarValue) -> DfResult<()> {
        if self.found {
            let error = SqlError::new(
                ErrorKind::Data,
                "a subquery that stands for a value returns more than one row",
            );
            return Err(error.with_hint("add LIMIT 1, or take its min or max").into());
        }
        (self.value, self.found) = (value, true);
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for row in 0..values[0].len() {
            self.add(ScalarValue::try_from_array(&values[0], row)?)?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Boolean(Some(self.found))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        for row in 0..states[0].len() {
            if ScalarValue::try_from_array(&states[1], row)? == ScalarValue::Boolean(Some(true)) {
                self.add(ScalarValue::try_from_array(&states[0], row)?)?;
            }
        }
        Ok(())
    }
}
