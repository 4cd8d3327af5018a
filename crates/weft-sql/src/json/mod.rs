//! JSON in SQL: the type, its operators and functions. A value is a text that is JSON; the field's metadata says so
//! (Arrow's extension type `arrow.json`), and a table's column keeps it as a length that no text has ([`JSON_LENGTH`]).

mod casts;
pub(crate) mod each;
mod functions;
mod group;
mod operators;
mod texts;
mod transform;

pub(crate) use casts::JsonCasts;
pub(crate) use each::each_functions;
pub(crate) use functions::json_functions;
pub(crate) use group::json_aggregates;
pub(crate) use operators::JsonOperators;

use arrow::datatypes::Field;

/// The greatest length of a column's texts that says that they are JSON. No declared one is as great.
pub(crate) const JSON_LENGTH: u32 = u32::MAX;

/// The field of a column with this greatest length of its texts: marked where they are JSON.
pub(crate) fn marked(field: Field, max_length: Option<u32>) -> Field {
    match max_length {
        Some(JSON_LENGTH) => {
            let metadata = weft_json::json_field("", true).metadata().clone();
            field.with_metadata(metadata)
        }
        _ => field,
    }
}
