//! Decoded strings and binaries as Arrow arrays: views as they are, other types by copying.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray};
use arrow_array::{LargeBinaryArray, LargeStringArray, StringArray, StringViewArray};
use arrow_buffer::{Buffer, MutableBuffer, NullBuffer};
use arrow_schema::DataType;

use crate::error::{Result, damaged};
use crate::strings::Views;

/// Checked UTF-8 as `data_type`, one of Arrow's types of strings.
pub(crate) fn strings(views: Views, nulls: Option<NullBuffer>, data_type: &DataType) -> ArrayRef {
    let buffers = [Buffer::from(views.bytes)];
    // SAFETY: `strings::views` made every view from a range of the one buffer, on boundaries of
    // characters of its valid UTF-8; there is a view and a validity bit per row.
    let array = unsafe { StringViewArray::new_unchecked(views.views.into(), buffers, nulls) };
    match data_type {
        DataType::Utf8 => Arc::new(StringArray::from_iter(array.iter())),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(array.iter())),
        _ => Arc::new(array),
    }
}

/// Bytes as `data_type`, one of Arrow's types of binaries.
pub(crate) fn binaries(
    views: Views,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let buffers = [Buffer::from(views.bytes)];
    // SAFETY: `strings::views` made every view from a range of the one buffer; there is a view and a
    // validity bit per row.
    let array = unsafe { BinaryViewArray::new_unchecked(views.views.into(), buffers, nulls) };
    Ok(match data_type {
        DataType::Binary => Arc::new(BinaryArray::from_iter(array.iter())),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(array.iter())),
        DataType::FixedSizeBinary(len) => Arc::new(fixed_size(&array, *len)?),
        _ => Arc::new(array),
    })
}

/// Values of `len` bytes each; null ones get zeros.
fn fixed_size(array: &BinaryViewArray, len: i32) -> Result<FixedSizeBinaryArray> {
    let unsound = |what: String| damaged("binary", what);
    let bytes = usize::try_from(len).map_err(|_| unsound(format!("values of {len} bytes")))?;
    let total = bytes.checked_mul(array.len()).filter(|total| *total <= crate::MAX_BODY_BYTES);
    let total = total.ok_or_else(|| unsound(format!("{} values of {len} bytes", array.len())))?;
    let mut values = MutableBuffer::with_capacity(total);
    for value in array {
        match value {
            Some(value) if value.len() == bytes => values.extend_from_slice(value),
            Some(value) => return Err(unsound(format!("{} bytes instead of {len}", value.len()))),
            None => values.extend_zeros(bytes),
        }
    }
    let nulls = array.nulls().cloned();
    FixedSizeBinaryArray::try_new_with_len(len, values.into(), nulls, array.len())
        .map_err(|error| unsound(error.to_string()))
}
