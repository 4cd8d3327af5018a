//! Between Arrow's arrays and vectors: [`ArrowColumn`] is an array that vectors are loaded from, [`ColumnBuilder`]
//! gathers vectors into an array.

pub mod builder;
pub mod column;
mod dictionary;

pub use builder::ColumnBuilder;
pub use column::{ArrowColumn, Entries};

use arrow_schema::DataType;

use crate::lane::Lane;

/// True if a register has values of this type as Arrow's rows: lists, structs, maps, which one has to encode and decode.
pub(crate) fn is_encoded(data_type: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Dictionary, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8, Utf8View,
    };
    let is_string = matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | FixedSizeBinary(_)
    );
    Lane::of(data_type) == Lane::Str && !is_string && !matches!(data_type, Dictionary(..))
}

#[cfg(test)]
mod tests;
