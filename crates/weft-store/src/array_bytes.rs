//! How much memory values take, by which rows are cut into row groups and memory is accounted for.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// Bytes of an array's values: of a slice only its part of shared buffers.
pub(crate) fn logical_bytes(array: &ArrayRef) -> u64 {
    let bytes = match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            16 * views.len() + views.lengths().map(|len| len as usize).sum::<usize>()
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            16 * views.len() + views.lengths().map(|len| len as usize).sum::<usize>()
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or(0),
    };
    bytes as u64
}
