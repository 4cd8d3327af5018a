//! `min` and `max` of enumerations, by the order of their labels.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, UInt32Type};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature, Volatility,
};

use super::EnumType;
use super::functions::codes;

/// The function in place of `min` or `max`, by whose name it goes.
pub(super) fn extreme(name: &str, ty: &Arc<EnumType>) -> Option<Arc<AggregateUDF>> {
    let (name, is_max) = match name {
        "min" => ("enum_min", false),
        "max" => ("enum_max", true),
        _ => return None,
    };
    let signature = Signature::any(1, Volatility::Immutable);
    Some(Arc::new(AggregateUDF::from(Extreme { name, is_max, ty: Arc::clone(ty), signature })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    name: &'static str,
    is_max: bool,
    ty: Arc<EnumType>,
    signature: Signature,
}

impl Extreme {
    fn values(&self, is_sliding: bool) -> Box<dyn Accumulator> {
        let (ty, is_max) = (Arc::clone(&self.ty), self.is_max);
        let counts = is_sliding.then(|| vec![0; ty.labels().len()]);
        Box::new(Values { ty, is_max, found: None, counts })
    }
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field(&self, _: &[FieldRef]) -> DfResult<FieldRef> {
        Ok(Arc::new(self.ty.field(self.name)))
    }

    fn state_fields(&self, _: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new("code", DataType::UInt32, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(self.values(false))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(self.values(true))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The values of a group or frame.
#[derive(Debug)]
struct Values {
    ty: Arc<EnumType>,
    is_max: bool,
    /// The least or the greatest code, where values only come.
    found: Option<u32>,
    /// How many values there are of each code, where they go again.
    counts: Option<Vec<u64>>,
}

impl Values {
    fn extreme(&self) -> Option<usize> {
        let is_there = |count: &u64| *count > 0;
        match (&self.counts, self.is_max) {
            (None, _) => self.found.map(|code| code as usize),
            (Some(counts), true) => counts.iter().rposition(is_there),
            (Some(counts), false) => counts.iter().position(is_there),
        }
    }

    fn add(&mut self, codes: &ArrayRef) {
        let codes = codes.as_primitive::<UInt32Type>().iter().flatten();
        match &mut self.counts {
            Some(counts) => codes.for_each(|code| counts[code as usize] += 1),
            None if self.is_max => self.found = self.found.into_iter().chain(codes).max(),
            None => self.found = self.found.into_iter().chain(codes).min(),
        }
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.add(&codes(&self.ty, &values[0])?);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let codes = codes(&self.ty, &values[0])?;
        if let Some(counts) = &mut self.counts {
            for code in codes.as_primitive::<UInt32Type>().iter().flatten() {
                counts[code as usize] -= 1;
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.counts.is_some()
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let label = self.extreme().map(|code| self.ty.labels()[code].clone());
        Ok(ScalarValue::Utf8View(label))
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let code = self.extreme().and_then(|code| u32::try_from(code).ok());
        Ok(vec![ScalarValue::UInt32(code)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.add(&states[0]);
        Ok(())
    }

    fn size(&self) -> usize {
        let counts = self.counts.as_ref().map_or(0, Vec::capacity);
        size_of_val(self) + counts * size_of::<u64>()
    }
}
