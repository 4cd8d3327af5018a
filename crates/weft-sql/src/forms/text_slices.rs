//! Slices of texts: `'abc'[1:2]` and `'abc'[-1]` by characters, as of lists.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, GetFieldAccess, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::error::SqlError;

/// Plans indexes and ranges of texts.
#[derive(Debug)]
pub(crate) struct TextSlices;

impl ExprPlanner for TextSlices {
    fn plan_field_access(
        &self,
        raw: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> DfResult<PlannerResult<RawFieldAccessExpr>> {
        let is_text = matches!(
            raw.expr.get_type(schema),
            Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        );
        let arguments = match &raw.field_access {
            _ if !is_text => return Ok(PlannerResult::Original(raw)),
            GetFieldAccess::ListIndex { key } => vec![key.as_ref().clone(), key.as_ref().clone()],
            GetFieldAccess::ListRange { start, stop, stride } => {
                if !matches!(stride.as_ref(), Expr::Literal(ScalarValue::Int64(Some(1)), _)) {
                    let error = SqlError::not_supported("a slice of a text with a step");
                    return Err(error
                        .with_hint("make a list of it first: string_to_array(x, NULL)[a:b:step]")
                        .into());
                }
                vec![start.as_ref().clone(), stop.as_ref().clone()]
            }
            GetFieldAccess::NamedStructField { .. } => return Ok(PlannerResult::Original(raw)),
        };
        let arguments = [vec![raw.expr], arguments].concat();
        Ok(PlannerResult::Planned(ScalarUDF::from(TextSlice::new()).call(arguments)))
    }
}

/// The characters from one place to another.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextSlice {
    signature: Signature,
}

impl TextSlice {
    fn new() -> TextSlice {
        TextSlice { signature: Signature::any(3, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TextSlice {
    fn name(&self) -> &str {
        "text_slice"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = cast(&arrays[0], &DataType::Utf8View)?;
        let starts = cast(&arrays[1], &DataType::Int64)?;
        let stops = cast(&arrays[2], &DataType::Int64)?;
        let (starts, stops): (&Int64Array, &Int64Array) =
            (starts.as_primitive::<Int64Type>(), stops.as_primitive::<Int64Type>());
        let texts = texts.as_string_view();
        let slice = |row: usize| {
            let is_null = texts.is_null(row) || starts.is_null(row) || stops.is_null(row);
            (!is_null).then(|| sliced(texts.value(row), starts.value(row), stops.value(row)))
        };
        let slices: StringViewArray = (0..texts.len()).map(slice).collect();
        if is_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&slices, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(slices)))
    }
}

/// The characters from one place to another, both counted from 1, or from the end if they are negative.
fn sliced(text: &str, start: i64, stop: i64) -> &str {
    let count = text.chars().count() as i64;
    let from_front =
        |place: i64| if place < 0 { count.saturating_add(place).saturating_add(1) } else { place };
    let (start, stop) = (from_front(start).max(1), from_front(stop).min(count));
    if start > stop {
        return "";
    }
    let byte = |place: i64| {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        text.char_indices().nth(place).map_or(text.len(), |(byte, _)| byte)
    };
    &text[byte(start - 1)..byte(stop)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_both_ends() {
        for (start, stop, slice) in [
            (2, 4, "bcd"),
            (2, -1, "bcdé"),
            (-2, -1, "dé"),
            (1, -2, "abcd"),
            (0, 2, "ab"),
            (-9, 2, "ab"),
            (0, 0, ""),
            (9, 9, ""),
            (4, 2, ""),
            (i64::MIN, i64::MAX, "abcdé"),
        ] {
            assert_eq!(sliced("abcdé", start, stop), slice);
        }
    }
}
