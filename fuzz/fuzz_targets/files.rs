//! Any bytes as a manifest, as the directory of a table, and as its statistics.
#![no_main]

use arrow_schema::DataType;
use libfuzzer_sys::fuzz_target;
use weft_store::{Column, TableSchema, fuzzing};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => fuzzing::manifest_file(bytes),
        1 => fuzzing::manifest_body(bytes),
        2 => fuzzing::row_groups(bytes),
        _ => fuzzing::statistics(bytes, &schema()),
    }
});

/// Columns of all that statistics tell apart: with a sketch and without, of fixed and of variable length.
fn schema() -> TableSchema {
    let types = [DataType::Int64, DataType::Utf8View, DataType::Float32, DataType::Boolean];
    let column = |(number, data_type)| Column {
        name: format!("c{number}"),
        data_type,
        nullable: true,
        default: None,
        max_length: None,
        kind: None,
    };
    let columns = types.into_iter().enumerate().map(column).collect();
    TableSchema { name: "t".into(), columns }
}
