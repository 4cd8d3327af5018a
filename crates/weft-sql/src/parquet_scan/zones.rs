//! What the footers of all files say of a column, where they are known when a statement is planned.

use datafusion::arrow::datatypes::{DataType, Schema};
use parquet::arrow::parquet_column;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

use super::node::ScanOf;
use crate::parquet_files::arrow_schema;

/// Files whose footers are looked at, at most.
const FILES_MAX: usize = 64;

/// What is known of a column of the table that the scan gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnZone {
    /// The least and the greatest number, decimals without their points; `None` if that is not known.
    pub(crate) bounds: Option<(i128, i128)>,
    /// False if no value is NULL.
    pub(crate) has_nulls: bool,
}

/// Nothing is known.
const UNKNOWN: ColumnZone = ColumnZone { bounds: None, has_nulls: true };

/// A zone for each column that a scan gives.
pub(crate) fn zones(scan: &ScanOf) -> Vec<ColumnZone> {
    let unknown = || vec![UNKNOWN; scan.projection.len()];
    if scan.files.len() > FILES_MAX {
        return unknown();
    }
    let mut zones: Option<Vec<ColumnZone>> = None;
    for file in &scan.files {
        let Some(metadata) = scan.footers.known(&file.object) else { return unknown() };
        let Ok(schema) = arrow_schema(&metadata) else { return unknown() };
        let of_file = scan.projection.iter().map(|column| {
            let field = scan.table.field(*column);
            of_column(&metadata, &schema, field.name(), field.data_type())
        });
        let of_file: Vec<ColumnZone> = of_file.collect();
        zones = Some(match zones {
            None => of_file,
            Some(before) => before.into_iter().zip(of_file).map(|(a, b)| both(a, b)).collect(),
        });
    }
    zones.unwrap_or_else(unknown)
}

fn both(a: ColumnZone, b: ColumnZone) -> ColumnZone {
    let bounds = a.bounds.zip(b.bounds);
    ColumnZone {
        bounds: bounds.map(|((low, high), (least, most))| (low.min(least), high.max(most))),
        has_nulls: a.has_nulls || b.has_nulls,
    }
}

/// The zone of a column of a file that has the table's type.
fn of_column(
    metadata: &ParquetMetaData,
    schema: &Schema,
    name: &str,
    data_type: &DataType,
) -> ColumnZone {
    let descriptor = metadata.file_metadata().schema_descr();
    let Some((leaf, field)) = parquet_column(descriptor, schema, name) else { return UNKNOWN };
    if metadata.num_row_groups() == 0 {
        return UNKNOWN;
    }
    let is_signed = matches!(
        data_type,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Decimal128(..)
    ) && field.data_type() == data_type;
    let is_flat = descriptor.column(leaf).max_rep_level() == 0
        && descriptor.column(leaf).path().parts().len() == 1;
    let chunks = metadata.row_groups().iter().map(|group| group.column(leaf).statistics());
    let zone = |statistics: Option<&Statistics>| {
        let is_sound = |of: &&Statistics| is_flat && !of.is_min_max_deprecated();
        let Some(statistics) = statistics.filter(is_sound) else { return UNKNOWN };
        let bounds = match statistics {
            Statistics::Int32(of) => {
                of.min_opt().zip(of.max_opt()).map(|(min, max)| ((*min).into(), (*max).into()))
            }
            Statistics::Int64(of) => {
                of.min_opt().zip(of.max_opt()).map(|(min, max)| ((*min).into(), (*max).into()))
            }
            _ => None,
        };
        ColumnZone {
            bounds: bounds.filter(|(low, high)| is_signed && low <= high),
            has_nulls: statistics.null_count_opt() != Some(0),
        }
    };
    chunks.map(zone).reduce(both).unwrap_or(UNKNOWN)
}
