//! Of which type the values of a column are: each value leaves the types that it can be read as.

use arrow::datatypes::{DataType, TimeUnit};

use super::times::{self, ALL_SHAPES, DateShape, Shapes};
use super::values::{ZONE, is_boolean, number_kind};

/// Digits of the largest decimals.
const DECIMAL_DIGITS: u8 = 38;

const BOOLEAN: u16 = 1;
const BIGINT: u16 = 1 << 1;
/// Integers of up to 38 digits.
const HUGE: u16 = 1 << 2;
const DOUBLE: u16 = 1 << 3;
const TIME: u16 = 1 << 4;
const DATE: u16 = 1 << 5;
const TIMESTAMP: u16 = 1 << 6;
const ZONED: u16 = 1 << 7;
const ALL: u16 = (1 << 8) - 1;

/// What a number in a text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Integer,
    Huge,
    Float,
}

/// The types that a column's values can be read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    types: u16,
    shapes: Shapes,
    has_values: bool,
    has_nanos: bool,
    has_half_days: bool,
}

/// How the values of a column are read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) data_type: DataType,
    /// How its dates are written, if it has some.
    pub(crate) shape: Option<DateShape>,
}

impl Candidates {
    /// Those of a column without values.
    pub(crate) const ALL: Candidates = Candidates {
        types: ALL,
        shapes: ALL_SHAPES,
        has_values: false,
        has_nanos: false,
        has_half_days: false,
    };

    /// Those of a text.
    pub(crate) fn of(text: &str, decimal_separator: u8) -> Candidates {
        let found = |types| Candidates { types, has_values: true, ..Candidates::ALL };
        match number_kind(text, decimal_separator) {
            Some(NumberKind::Integer) => return found(BIGINT | HUGE | DOUBLE),
            Some(NumberKind::Huge) => return found(HUGE | DOUBLE),
            Some(NumberKind::Float) => return found(DOUBLE),
            None => {}
        }
        if is_boolean(text) {
            return found(BOOLEAN);
        }
        if let Some(seen) = times::seen(text) {
            let types = match (seen.is_date, seen.has_zone) {
                (true, _) => DATE | TIMESTAMP,
                (false, false) => TIMESTAMP,
                (false, true) => ZONED,
            };
            return Candidates {
                types,
                shapes: seen.shapes,
                has_values: true,
                has_nanos: seen.has_nanos,
                has_half_days: seen.is_half_day,
            };
        }
        match times::time(text) {
            Some(_) => found(TIME),
            None => found(0),
        }
    }

    /// Those of both.
    pub(crate) fn meet(self, other: Candidates) -> Candidates {
        Candidates {
            types: self.types & other.types,
            shapes: self.shapes & other.shapes,
            has_values: self.has_values || other.has_values,
            has_nanos: self.has_nanos || other.has_nanos,
            has_half_days: self.has_half_days || other.has_half_days,
        }
    }

    /// True if the values can be read as nothing but texts.
    pub(crate) fn is_text(self) -> bool {
        self.types == 0
    }

    /// True if there were values.
    pub(crate) fn has_values(self) -> bool {
        self.has_values
    }

    /// The type that says most about the values. Without values it is text.
    pub(crate) fn told(self) -> Told {
        let plain = |data_type| Told { data_type, shape: None };
        if !self.has_values {
            return plain(DataType::Utf8View);
        }
        let has = |kind| self.types & kind != 0;
        if has(BOOLEAN) {
            return plain(DataType::Boolean);
        }
        if has(BIGINT) {
            return plain(DataType::Int64);
        }
        if has(HUGE) {
            return plain(DataType::Decimal128(DECIMAL_DIGITS, 0));
        }
        if has(DOUBLE) {
            return plain(DataType::Float64);
        }
        if has(TIME) {
            return plain(DataType::Time64(TimeUnit::Microsecond));
        }
        let Some(shape) = DateShape::likeliest(self.shapes, self.has_half_days) else {
            return plain(DataType::Utf8View);
        };
        let unit = if self.has_nanos { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        let data_type = if has(DATE) {
            DataType::Date32
        } else if has(TIMESTAMP) {
            DataType::Timestamp(unit, None)
        } else if has(ZONED) {
            DataType::Timestamp(unit, Some(ZONE.into()))
        } else {
            return plain(DataType::Utf8View);
        };
        Told { data_type, shape: Some(shape) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(values: &[&str]) -> (DataType, Option<String>) {
        let all = values.iter().map(|value| Candidates::of(value, b'.'));
        let told = all.fold(Candidates::ALL, Candidates::meet).told();
        (told.data_type, told.shape.map(DateShape::format))
    }

    #[test]
    fn values_tell_their_type() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (values, data_type) in [
            (&["1", "-20"][..], DataType::Int64),
            (&["1", "2.5"], DataType::Float64),
            (&["9223372036854775807", "9223372036854775808"], DataType::Decimal128(38, 0)),
            (&["1", "99999999999999999999", "0.5"], DataType::Float64),
            (&["02139", "10001"], DataType::Utf8View),
            (&["+49", "1"], DataType::Utf8View),
            (&["1e5"], DataType::Float64),
            (&["true", "f"], DataType::Boolean),
            (&["true", "1"], DataType::Utf8View),
            (&["12:30", "1:02:03.5"], DataType::Time64(TimeUnit::Microsecond)),
            (&["2024-01-05", "2024-1-6"], DataType::Date32),
            (&["2024-01-05", "2024-01-05 10:30"], micros.clone()),
            (&["2024-01-05T10:30:00.25"], micros),
            (&["2024-01-05", "7"], DataType::Utf8View),
            (
                &["2020-01-01T12:00:00+02:00"],
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ),
            (&["2020-01-01T12:00:00+02:00", "2020-01-01T12:00:00"], DataType::Utf8View),
            (&["2020-01-01 00:00:00.123456789"], DataType::Timestamp(TimeUnit::Nanosecond, None)),
            (&["x"], DataType::Utf8View),
            (&[], DataType::Utf8View),
        ] {
            assert_eq!(told(values).0, data_type, "{values:?}");
        }
    }

    #[test]
    fn dates_tell_their_order() {
        for (values, format) in [
            (&["01/02/2024"][..], "%d/%m/%Y"),
            (&["01/02/2024", "01/13/2024"], "%m/%d/%Y"),
            (&["13.1.2024", "1.2.2024"], "%d.%m.%Y"),
            (&["1/5/2024 10:11:12 PM"], "%m/%d/%Y"),
            (&["01-02-03"], "%y-%m-%d"),
            (&["31-12-99"], "%d-%m-%y"),
        ] {
            assert_eq!(told(values).1.as_deref(), Some(format), "{values:?}");
        }
        assert_eq!(told(&["13/01/2024", "01/13/2024"]).0, DataType::Utf8View);
    }
}
