//! Arrays of the cells of columns.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Date32Builder, Float64Builder, StringViewBuilder,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};

use super::cell::{Cell, Kind};

/// Microseconds of a day.
const DAY_MICROS: i64 = 86_400_000_000;

/// The cells of a column so far.
pub(super) enum ColumnBuilder {
    Number(Float64Builder),
    Bool(BooleanBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Text(StringViewBuilder),
}

impl ColumnBuilder {
    pub(super) fn new(kind: Kind) -> ColumnBuilder {
        match kind {
            Kind::Empty | Kind::Number => ColumnBuilder::Number(Float64Builder::new()),
            Kind::Bool => ColumnBuilder::Bool(BooleanBuilder::new()),
            Kind::Date => ColumnBuilder::Date(Date32Builder::new()),
            Kind::Time => ColumnBuilder::Time(Time64MicrosecondBuilder::new()),
            Kind::Timestamp => ColumnBuilder::Timestamp(TimestampMicrosecondBuilder::new()),
            Kind::Text => ColumnBuilder::Text(StringViewBuilder::new()),
        }
    }

    /// Adds a cell. One that the column cannot have is NULL if `ignores_errors`.
    ///
    /// # Errors
    /// What is wrong with it, otherwise.
    pub(super) fn push(&mut self, cell: &Cell, ignores_errors: bool) -> Result<(), String> {
        match (&mut *self, cell) {
            (ColumnBuilder::Number(builder), Cell::Number(number)) => builder.append_value(*number),
            (ColumnBuilder::Bool(builder), Cell::Bool(flag)) => builder.append_value(*flag),
            (ColumnBuilder::Date(builder), Cell::Date(days)) => builder.append_value(*days),
            (ColumnBuilder::Time(builder), Cell::Time(micros)) => builder.append_value(*micros),
            (ColumnBuilder::Timestamp(builder), Cell::Timestamp(micros)) => {
                builder.append_value(*micros);
            }
            (ColumnBuilder::Timestamp(builder), Cell::Date(days)) => {
                builder.append_value(i64::from(*days) * DAY_MICROS);
            }
            (_, Cell::Empty) => self.push_null(),
            (_, Cell::Error(_)) if ignores_errors => self.push_null(),
            (_, Cell::Error(error)) => return Err(format!("its value is the error {error}")),
            (ColumnBuilder::Text(builder), cell) => builder.append_value(cell.text()),
            _ if ignores_errors => self.push_null(),
            // The file was another one when its types were looked at.
            (_, cell) => return Err(format!("'{}' is not of its column's type", cell.text())),
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            ColumnBuilder::Number(builder) => builder.append_null(),
            ColumnBuilder::Bool(builder) => builder.append_null(),
            ColumnBuilder::Date(builder) => builder.append_null(),
            ColumnBuilder::Time(builder) => builder.append_null(),
            ColumnBuilder::Timestamp(builder) => builder.append_null(),
            ColumnBuilder::Text(builder) => builder.append_null(),
        }
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            ColumnBuilder::Number(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Bool(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Date(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Time(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Timestamp(mut builder) => Arc::new(builder.finish()),
            ColumnBuilder::Text(mut builder) => Arc::new(builder.finish()),
        }
    }
}
