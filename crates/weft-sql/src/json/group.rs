//! Aggregates that make one JSON value of many: `json_group_array` and `json_group_object`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use weft_json::{json_field, write_quoted};

use super::texts::{encoded, json_texts};

/// Bytes of a text, at most.
const BYTES_MAX: usize = i32::MAX as usize;

/// Both aggregates.
pub(crate) fn json_aggregates() -> [Arc<AggregateUDF>; 2] {
    let aggregate = |is_object| {
        let signature = Signature::any(if is_object { 2 } else { 1 }, Volatility::Immutable);
        Arc::new(AggregateUDF::from(Group { is_object, signature }))
    };
    [aggregate(false), aggregate(true)]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Group {
    is_object: bool,
    signature: Signature,
}

impl AggregateUDFImpl for Group {
    fn name(&self) -> &str {
        if self.is_object { "json_group_object" } else { "json_group_array" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field(&self, _: &[FieldRef]) -> DfResult<FieldRef> {
        Ok(Arc::new(json_field(self.name(), true)))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        if args.is_distinct {
            return plan_err!("{} has no DISTINCT: select distinct rows below it", self.name());
        }
        let fields = args.expr_fields.to_vec();
        Ok(Box::new(Grouped { is_object: self.is_object, fields, parts: String::new(), rows: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        let field = |name: &str, data_type| {
            Arc::new(Field::new(format!("{}[{name}]", args.name), data_type, true))
        };
        Ok(vec![field("parts", DataType::Utf8View), field("rows", DataType::UInt64)])
    }

    fn default_value(&self, _: &DataType) -> DfResult<ScalarValue> {
        Ok(ScalarValue::Utf8View(None))
    }
}

/// The elements or members so far, with commas between.
#[derive(Debug)]
struct Grouped {
    is_object: bool,
    fields: Vec<FieldRef>,
    parts: String,
    rows: u64,
}

impl Grouped {
    fn begin_part(&mut self) {
        if self.rows > 0 {
            self.parts.push(',');
        }
        self.rows += 1;
    }

    fn check(&self) -> DfResult<()> {
        match self.parts.len() <= BYTES_MAX {
            true => Ok(()),
            false => exec_err!("a group's JSON has more than 2 GiB"),
        }
    }
}

impl Accumulator for Grouped {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let Some((last, field)) = values.last().zip(self.fields.last()) else { return Ok(()) };
        let texts = encoded(last, field, false)?;
        let keys = match self.is_object {
            true => Some(json_texts(&values[0], &self.fields[0])?),
            false => None,
        };
        for (row, text) in texts.iter().enumerate() {
            if let Some(keys) = &keys {
                if arrow::array::Array::is_null(keys, row) {
                    return exec_err!("a key of json_group_object is NULL");
                }
                self.begin_part();
                write_quoted(keys.value(row), &mut self.parts);
                self.parts.push(':');
            } else {
                self.begin_part();
            }
            self.parts.push_str(text.unwrap_or("null"));
        }
        self.check()
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        if self.rows == 0 {
            return Ok(ScalarValue::Utf8View(None));
        }
        let (open, close) = if self.is_object { ('{', '}') } else { ('[', ']') };
        Ok(ScalarValue::Utf8View(Some(format!("{open}{}{close}", self.parts))))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.parts.capacity()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let parts = std::mem::take(&mut self.parts);
        Ok(vec![ScalarValue::Utf8View(Some(parts)), ScalarValue::UInt64(Some(self.rows))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        let (parts, rows) = (&states[0], &states[1]);
        let rows = rows.as_primitive::<arrow::datatypes::UInt64Type>();
        for (part, rows) in parts.as_string_view().iter().zip(rows) {
            let (Some(part), Some(rows)) = (part, rows) else { continue };
            if rows == 0 {
                continue;
            }
            if self.rows > 0 {
                self.parts.push(',');
            }
            self.parts.push_str(part);
            self.rows += rows;
        }
        self.check()
    }
}
