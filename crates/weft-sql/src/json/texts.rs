//! What functions of JSON take: texts that are JSON, and values that become such.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{DataFusionError, Result as DfResult, ScalarValue, exec_datafusion_err};
use weft_json::{Encoder, JsonError};

/// The JSON texts of an argument: a text is JSON already, another value becomes it.
///
/// # Errors
/// For types that have no JSON.
pub(super) fn json_texts(array: &ArrayRef, field: &Field) -> DfResult<StringViewArray> {
    match array.data_type() {
        text if text.is_string() || text.is_null() => {
            Ok(cast(array, &DataType::Utf8View)?.as_string_view().clone())
        }
        _ => encoded(array, field, true),
    }
}

/// The values of an argument as JSON: a text becomes a quoted one, unless it is JSON. NULL stays NULL, or is `null`.
///
/// # Errors
/// For types that have no JSON.
pub(super) fn encoded(
    array: &ArrayRef,
    field: &Field,
    keeps_null: bool,
) -> DfResult<StringViewArray> {
    let encoder = Encoder::new(array, field)?;
    let nulls = array.logical_nulls();
    let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let mut text = String::new();
    Ok((0..array.len())
        .map(|row| {
            if keeps_null && is_null(row) {
                return None;
            }
            text.clear();
            encoder.write(row, &mut text);
            Some(text.clone())
        })
        .collect())
}

/// The only value of an array, with the metadata of a list's items, which DataFusion leaves out.
pub(super) fn only_value(array: &ArrayRef) -> DfResult<ScalarValue> {
    match array.as_list_opt::<i32>() {
        Some(list) => Ok(ScalarValue::List(Arc::new(list.clone()))),
        None => ScalarValue::try_from_array(array, 0),
    }
}

/// An error of a text that is no JSON, which shows the start of it.
pub(super) fn malformed(error: &JsonError, text: &str) -> DataFusionError {
    let shown: String = text.chars().take(40).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    exec_datafusion_err!("{error}, in '{shown}{more}'")
}
