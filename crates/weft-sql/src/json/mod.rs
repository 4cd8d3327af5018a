//! JSON in SQL: the type, its operators and functions. A value is a text that is JSON; the field's metadata says so
//! (Arrow's extension type `arrow.json`, see `text_kinds.rs`).

mod casts;
pub(crate) mod each;
mod functions;
mod group;
mod operators;
mod texts;
mod transform;

pub(crate) use casts::JsonCasts;
pub(crate) use each::each_functions;
pub(crate) use functions::{json_functions, json_value};
pub(crate) use group::json_aggregates;
pub(crate) use operators::JsonOperators;
pub(crate) use transform::json_as;
