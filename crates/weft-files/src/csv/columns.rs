//! Columns of a piece: the texts of one field after the other as an array.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanBuilder, PrimitiveBuilder, StringViewBuilder,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};

use super::lex::{Dialect, Field, unescaped};
use super::times::{self, DateShape, Instant, TimeFormat};
use super::values::{boolean, decimal, float, integer};

/// How the texts of a column become values.
#[derive(Clone, Debug)]
pub(crate) struct ColumnFormat {
    pub(crate) data_type: DataType,
    pub(crate) dates: DateFormat,
    pub(crate) decimal_separator: u8,
}

/// How dates are written.
#[derive(Clone, Debug)]
pub(crate) enum DateFormat {
    Shape(DateShape),
    Named(TimeFormat),
}

/// True for types that texts are read as; the caller casts texts to the others.
pub fn is_native(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, zone) => {
            zone.as_deref().is_none_or(|zone| zone == super::values::ZONE)
        }
        DataType::Boolean
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Decimal128(..)
        | DataType::Time64(_)
        | DataType::Utf8View => true,
        other => other.is_integer(),
    }
}

/// The texts of one column of a piece.
pub(crate) struct Texts<'a> {
    pub(crate) text: &'a str,
    pub(crate) dialect: &'a Dialect,
    /// The fields of all records, `width` of each.
    pub(crate) fields: &'a [Field],
    pub(crate) width: usize,
    pub(crate) column: usize,
    pub(crate) nulls: &'a [String],
    /// Texts in quotes that are among `nulls` are NULL, too.
    pub(crate) quoted_is_null: bool,
}

/// A field that is no value of its column's type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misfit {
    /// The record's number.
    pub(crate) row: usize,
}

impl Texts<'_> {
    fn rows(&self) -> usize {
        self.fields.len() / self.width
    }

    fn column(&self) -> impl Iterator<Item = Field> + '_ {
        self.fields.iter().skip(self.column).step_by(self.width).copied()
    }

    /// True of a text that stands for NULL.
    fn is_null(&self, text: &str, is_quoted: bool, is_text: bool) -> bool {
        if text.is_empty() && (is_quoted || !is_text) {
            return !is_text;
        }
        (self.quoted_is_null || !is_quoted) && self.nulls.iter().any(|null| null == text)
    }

    /// Makes an array.
    pub(crate) fn array(
        &self,
        format: &ColumnFormat,
        skip: &mut Skip<'_>,
    ) -> Result<ArrayRef, Misfit> {
        let separator = format.decimal_separator;
        macro_rules! integers {
            ($type:ty) => {
                self.primitive::<$type>(skip, |text| integer(text)?.try_into().ok())
            };
        }
        Ok(match &format.data_type {
            DataType::Int8 => integers!(Int8Type)?.finish_as(),
            DataType::Int16 => integers!(Int16Type)?.finish_as(),
            DataType::Int32 => integers!(Int32Type)?.finish_as(),
            DataType::Int64 => self.primitive::<Int64Type>(skip, integer)?.finish_as(),
            DataType::UInt8 => integers!(UInt8Type)?.finish_as(),
            DataType::UInt16 => integers!(UInt16Type)?.finish_as(),
            DataType::UInt32 => integers!(UInt32Type)?.finish_as(),
            DataType::UInt64 => self
                .primitive::<UInt64Type>(skip, |text| text.trim_matches(' ').parse().ok())?
                .finish_as(),
            DataType::Float32 => self
                .primitive::<Float32Type>(skip, |text| Some(float(text, separator)? as f32))?
                .finish_as(),
            DataType::Float64 => {
                self.primitive::<Float64Type>(skip, |text| float(text, separator))?.finish_as()
            }
            DataType::Decimal128(precision, scale) => {
                let of = |text: &str| decimal(text, *precision, *scale, separator);
                let mut array = self.primitive::<Decimal128Type>(skip, of)?;
                let array = array.0.finish();
                Arc::new(array.with_data_type(format.data_type.clone()))
            }
            DataType::Boolean => self.booleans(skip)?,
            DataType::Date32 => match &format.dates {
                DateFormat::Shape(shape) => self
                    .primitive::<Date32Type>(skip, |text| times::date(text, *shape))?
                    .finish_as(),
                DateFormat::Named(named) => {
                    self.primitive::<Date32Type>(skip, |text| named.date(text))?.finish_as()
                }
            },
            DataType::Time64(TimeUnit::Nanosecond) => self
                .primitive::<Time64NanosecondType>(skip, |text| Some(times::time(text)? * 1_000))?
                .finish_as(),
            DataType::Time64(_) => {
                self.primitive::<Time64MicrosecondType>(skip, times::time)?.finish_as()
            }
            DataType::Timestamp(unit, _) => self.timestamps(*unit, format, skip)?,
            _ => self.strings(skip),
        })
    }

    /// Hands each text that is not NULL to `append`, and `None` for NULL.
    #[inline]
    fn each(
        &self,
        is_text: bool,
        skip: &mut Skip<'_>,
        mut append: impl FnMut(Option<&str>) -> bool,
    ) -> Result<(), Misfit> {
        let nulls_are_empty = matches!(self.nulls, [only] if only.is_empty());
        for (row, field) in self.column().enumerate() {
            let raw = field.raw(self.text);
            let fits = if field.is_escaped() {
                append(Some(&unescaped(raw, self.dialect)))
            } else if raw.is_empty() || !nulls_are_empty {
                let is_null = self.is_null(raw, field.is_quoted(), is_text);
                append((!is_null).then_some(raw))
            } else {
                append(Some(raw))
            };
            if !fits {
                append(None);
                skip.row(row)?;
            }
        }
        Ok(())
    }

    fn primitive<T: ArrowPrimitiveType>(
        &self,
        skip: &mut Skip<'_>,
        parse: impl Fn(&str) -> Option<T::Native>,
    ) -> Result<Primitive<T>, Misfit> {
        let mut builder = PrimitiveBuilder::<T>::with_capacity(self.rows());
        self.each(false, skip, |text| match text {
            Some(text) => match parse(text) {
                Some(value) => {
                    builder.append_value(value);
                    true
                }
                None => false,
            },
            None => {
                builder.append_null();
                true
            }
        })?;
        Ok(Primitive(builder))
    }

    fn booleans(&self, skip: &mut Skip<'_>) -> Result<ArrayRef, Misfit> {
        let mut builder = BooleanBuilder::with_capacity(self.rows());
        self.each(false, skip, |text| {
            let value = match text {
                Some(text) => match boolean(text) {
                    Some(value) => Some(value),
                    None => return false,
                },
                None => None,
            };
            builder.append_option(value);
            true
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn strings(&self, skip: &mut Skip<'_>) -> ArrayRef {
        let mut builder = StringViewBuilder::with_capacity(self.rows());
        let all_fit = self.each(true, skip, |text| {
            builder.append_option(text);
            true
        });
        debug_assert!(all_fit.is_ok(), "any text is a text");
        Arc::new(builder.finish())
    }

    fn timestamps(
        &self,
        unit: TimeUnit,
        format: &ColumnFormat,
        skip: &mut Skip<'_>,
    ) -> Result<ArrayRef, Misfit> {
        let DataType::Timestamp(_, zone) = &format.data_type else { return Err(Misfit { row: 0 }) };
        // Without a zone in its type, a column would lose that of its values.
        let parse = |text: &str| {
            let at = match &format.dates {
                DateFormat::Shape(shape) => times::timestamp(text, *shape),
                DateFormat::Named(named) => named.timestamp(text),
            };
            at.filter(|at| zone.is_some() || at.zone_seconds.is_none())
        };
        macro_rules! timestamps {
            ($type:ty, $of:expr) => {{
                let of: fn(Instant) -> Option<i64> = $of;
                let mut array = self.primitive::<$type>(skip, |text| of(parse(text)?))?;
                let array = array.0.finish();
                Arc::new(array.with_timezone_opt(zone.clone()))
            }};
        }
        Ok(match unit {
            TimeUnit::Second => {
                timestamps!(TimestampSecondType, |at| Some(at.micros().div_euclid(1_000_000)))
            }
            TimeUnit::Millisecond => {
                timestamps!(TimestampMillisecondType, |at| Some(at.micros().div_euclid(1_000)))
            }
            TimeUnit::Microsecond => timestamps!(TimestampMicrosecondType, |at| Some(at.micros())),
            TimeUnit::Nanosecond => timestamps!(TimestampNanosecondType, |at| at.nanos()),
        })
    }
}

/// An array that is being made.
struct Primitive<T: ArrowPrimitiveType>(PrimitiveBuilder<T>);

impl<T: ArrowPrimitiveType> Primitive<T> {
    fn finish_as(mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

/// What happens to records with a value that does not fit.
pub(crate) enum Skip<'a> {
    /// They are errors.
    Never,
    /// They are marked, and left out.
    Marked(&'a mut [bool]),
}

impl Skip<'_> {
    fn row(&mut self, row: usize) -> Result<(), Misfit> {
        match self {
            Skip::Never => Err(Misfit { row }),
            Skip::Marked(rows) => {
                rows[row] = true;
                Ok(())
            }
        }
    }
}
