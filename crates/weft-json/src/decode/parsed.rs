//! Values that are written as texts: parsed as they come, or cast by Arrow at the end.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayBuilder, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveBuilder, StringViewArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::util::display::FormatOptions;

use super::{misfit, shown};
use crate::Result;

/// Values that are parsed from texts, and the texts that Arrow's parser is left with.
pub(super) struct Parsed<T: ArrowPrimitiveType> {
    pub(super) values: PrimitiveBuilder<T>,
    /// Rows, which have NULL until the end, and their texts.
    others: Vec<(usize, String)>,
}

impl<T: ArrowPrimitiveType> Parsed<T> {
    pub(super) fn new() -> Parsed<T> {
        Parsed { values: PrimitiveBuilder::new(), others: Vec::new() }
    }

    /// Adds a value, or the text that it is to be parsed from.
    pub(super) fn push(&mut self, value: Option<T::Native>, text: &str) {
        if value.is_none() {
            self.others.push((self.values.len(), text.to_owned()));
        }
        self.values.append_option(value);
    }

    /// The array of all values.
    ///
    /// # Errors
    /// If a text is no value of the type.
    pub(super) fn finish(
        mut self,
        name: &str,
        data_type: &DataType,
        is_lenient: bool,
    ) -> Result<ArrayRef> {
        let values = self.values.finish().with_data_type(data_type.clone());
        if self.others.is_empty() {
            return Ok(Arc::new(values));
        }
        let texts = self.others.iter().map(|(_, text)| Some(text.as_str()));
        let others = cast_texts(&texts.collect(), name, data_type, is_lenient)?;
        let mut builder = PrimitiveBuilder::<T>::with_capacity(values.len());
        let mut left = self.others.iter().map(|(row, _)| *row).zip(others.as_primitive::<T>());
        let mut next = left.next();
        for (row, value) in values.iter().enumerate() {
            match next {
                Some((other, parsed)) if other == row => {
                    builder.append_option(parsed);
                    next = left.next();
                }
                _ => builder.append_option(value),
            }
        }
        Ok(Arc::new(builder.finish().with_data_type(data_type.clone())))
    }
}

/// Texts as values of another type; NULL, or an error, where they are none.
pub(super) fn cast_texts(
    texts: &StringViewArray,
    name: &str,
    data_type: &DataType,
    is_lenient: bool,
) -> Result<ArrayRef> {
    let options = CastOptions { safe: true, format_options: FormatOptions::default() };
    let cast = cast_with_options(texts, data_type, &options);
    let cast = cast.map_err(|error| misfit(name, 0, &error.to_string()))?;
    let mut rows = texts.iter().enumerate();
    let lost = rows.find_map(|(row, text)| text.filter(|_| cast.is_null(row)));
    match lost {
        Some(text) if !is_lenient => {
            let problem = format!("'{}' is no {}", shown(text), named(data_type));
            Err(misfit(name, 0, &problem))
        }
        _ => Ok(cast),
    }
}

/// The name of a type in SQL, if it has no parameters.
pub(super) fn name_of(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Date32 => "DATE",
        DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, None) => "TIMESTAMP",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        _ => return None,
    })
}

/// The name of a type in SQL.
fn named(data_type: &DataType) -> String {
    match (data_type, name_of(data_type)) {
        (_, Some(name)) => name.to_owned(),
        (DataType::Decimal128(digits, scale), None) => format!("DECIMAL({digits}, {scale})"),
        (other, None) => other.to_string(),
    }
}
