//! The values that a client binds to the parameters of a statement.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use pgwire::api::Type;
use pgwire::error::{PgWireError, PgWireResult};
use weft::Value;

use crate::binary::{EPOCH_DAYS, EPOCH_US, NUMERIC_NEGATIVE};
use crate::error::{error, error_with_hint};
use crate::types::item_type;

/// Most digits of a decimal.
const DECIMAL_DIGITS_MAX: usize = 38;

/// The value of a parameter of a type, from the bytes that a client sent.
///
/// # Errors
/// SQLSTATE 22P02 or 22P03 for bytes that are no value of the type, 0A000 for types that parameters cannot have.
pub(crate) fn value(wire: &Type, bytes: Option<&[u8]>, is_binary: bool) -> PgWireResult<Value> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    match is_binary {
        true => from_binary(wire, bytes),
        false => {
            let text = std::str::from_utf8(bytes).map_err(|_| not_utf8())?;
            from_text(wire, text)
        }
    }
}

fn not_utf8() -> PgWireError {
    error("22021", "a parameter is not UTF-8")
}

fn from_text(wire: &Type, text: &str) -> PgWireResult<Value> {
    let bad = || error("22P02", format!("'{text}' is no value of the type {}", wire.name()));
    let trimmed = text.trim();
    Ok(match *wire {
        Type::BOOL => Value::Boolean(match trimmed.to_ascii_lowercase().as_str() {
            "t" | "true" | "1" | "on" | "yes" | "y" => true,
            "f" | "false" | "0" | "off" | "no" | "n" => false,
            _ => return Err(bad()),
        }),
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => {
            Value::Integer(trimmed.parse().map_err(|_| bad())?)
        }
        Type::FLOAT4 | Type::FLOAT8 => Value::Double(trimmed.parse().map_err(|_| bad())?),
        Type::NUMERIC => decimal(trimmed).ok_or_else(bad)?,
        Type::BYTEA => Value::Blob(bytea(text).ok_or_else(bad)?),
        Type::DATE => {
            let date: NaiveDate = trimmed.parse().map_err(|_| bad())?;
            Value::Date(days_of(date))
        }
        Type::TIME => {
            let time: NaiveTime = trimmed.parse().map_err(|_| bad())?;
            let seconds = i64::from(time.num_seconds_from_midnight());
            Value::Time(seconds * 1_000_000 + i64::from(time.nanosecond() / 1000))
        }
        Type::TIMESTAMP => Value::Timestamp(timestamp(trimmed).ok_or_else(bad)?),
        Type::TIMESTAMPTZ => Value::TimestampUtc(timestamp_with_zone(trimmed).ok_or_else(bad)?),
        _ if is_textual(wire) => Value::Text(text.to_owned()),
        _ => match item_type(wire) {
            Some(item) => {
                let items = weft::array_items(text).ok_or_else(bad)?.into_iter();
                let value = |text: Option<String>| match text {
                    Some(text) => from_text(&item, &text),
                    None => Ok(Value::Null),
                };
                Value::List(items.map(value).collect::<PgWireResult<_>>()?)
            }
            None => return Err(no_parameter(wire)),
        },
    })
}

/// Types whose values are given to the database as text.
fn is_textual(wire: &Type) -> bool {
    matches!(
        *wire,
        Type::TEXT
            | Type::VARCHAR
            | Type::BPCHAR
            | Type::NAME
            | Type::CHAR
            | Type::UNKNOWN
            | Type::JSON
            | Type::JSONB
            | Type::UUID
            | Type::INTERVAL
    )
}

fn no_parameter(wire: &Type) -> PgWireError {
    error_with_hint(
        "0A000",
        format!("parameters of the type {} are not supported yet", wire.name()),
        "send the value as text and cast it in the statement: CAST($1 AS …)",
    )
}

fn from_binary(wire: &Type, bytes: &[u8]) -> PgWireResult<Value> {
    let bad = || {
        let length = bytes.len();
        error("22P03", format!("{length} bytes are no binary value of the type {}", wire.name()))
    };
    Ok(match *wire {
        Type::BOOL => match bytes {
            [byte] => Value::Boolean(*byte != 0),
            _ => return Err(bad()),
        },
        Type::INT2 | Type::INT4 | Type::INT8 => Value::Integer(integer(bytes).ok_or_else(bad)?),
        Type::OID => {
            let bytes: [u8; 4] = bytes.try_into().map_err(|_| bad())?;
            Value::Integer(u32::from_be_bytes(bytes).into())
        }
        Type::FLOAT4 => {
            Value::Double(f32::from_be_bytes(bytes.try_into().map_err(|_| bad())?).into())
        }
        Type::FLOAT8 => Value::Double(f64::from_be_bytes(bytes.try_into().map_err(|_| bad())?)),
        Type::NUMERIC => numeric(bytes).ok_or_else(bad)?,
        Type::BYTEA => Value::Blob(bytes.to_vec()),
        Type::DATE => {
            let days = integer(bytes).and_then(|days| i32::try_from(days + EPOCH_DAYS).ok());
            Value::Date(days.ok_or_else(bad)?)
        }
        Type::TIME => Value::Time(integer(bytes).ok_or_else(bad)?),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let since = integer(bytes).and_then(|us| us.checked_add(EPOCH_US)).ok_or_else(bad)?;
            match *wire {
                Type::TIMESTAMP => Value::Timestamp(since),
                _ => Value::TimestampUtc(since),
            }
        }
        Type::INTERVAL => {
            let (time, rest) = bytes.split_at_checked(8).ok_or_else(bad)?;
            let (days, months) = rest.split_at_checked(4).ok_or_else(bad)?;
            let part = |bytes| integer(bytes).and_then(|value| i32::try_from(value).ok());
            let nanoseconds = integer(time).and_then(|us| us.checked_mul(1000));
            match (part(months), part(days), nanoseconds) {
                (Some(months), Some(days), Some(time)) => Value::Interval(months, days, time),
                _ => return Err(bad()),
            }
        }
        Type::UUID => {
            let bytes: [u8; 16] = bytes.try_into().map_err(|_| bad())?;
            Value::Text(uuid(bytes))
        }
        // A byte for the version of the format comes first.
        Type::JSONB => match bytes.split_first() {
            Some((1, text)) => {
                Value::Text(std::str::from_utf8(text).map_err(|_| not_utf8())?.to_owned())
            }
            _ => return Err(bad()),
        },
        _ if is_textual(wire) => {
            Value::Text(std::str::from_utf8(bytes).map_err(|_| not_utf8())?.to_owned())
        }
        _ => match item_type(wire) {
            Some(item) => Value::List(binary_items(&item, bytes).ok_or_else(bad)??),
            None => return Err(no_parameter(wire)),
        },
    })
}

/// The items of an array of one dimension in the binary format; `None` if these bytes are none.
fn binary_items(item: &Type, bytes: &[u8]) -> Option<PgWireResult<Vec<Value>>> {
    let word = |at: usize| -> Option<i32> {
        Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let count = match word(0)? {
        0 => return Some(Ok(Vec::new())),
        1 => usize::try_from(word(12)?).ok()?,
        _ => return None,
    };
    let mut at = 20;
    let mut values = Vec::new();
    for _ in 0..count {
        let length = word(at)?;
        at += 4;
        if length == -1 {
            values.push(Value::Null);
            continue;
        }
        let end = at.checked_add(usize::try_from(length).ok()?)?;
        match from_binary(item, bytes.get(at..end)?) {
            Ok(value) => values.push(value),
            Err(error) => return Some(Err(error)),
        }
        at = end;
    }
    (at == bytes.len()).then_some(Ok(values))
}

/// A signed number of 2, 4 or 8 bytes.
fn integer(bytes: &[u8]) -> Option<i64> {
    Some(match bytes.len() {
        2 => i16::from_be_bytes(bytes.try_into().ok()?).into(),
        4 => i32::from_be_bytes(bytes.try_into().ok()?).into(),
        8 => i64::from_be_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// A decimal number; a floating point number if it has an exponent, is none at all (NaN), or has too many digits.
fn decimal(text: &str) -> Option<Value> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let count = digits.trim_start_matches(['-', '+']).len();
    let scale = i8::try_from(fraction.len()).ok();
    match (digits.parse(), scale) {
        (Ok(value), Some(scale)) if count <= DECIMAL_DIGITS_MAX => {
            let precision = u8::try_from(count.max(1)).ok()?;
            Some(Value::Decimal(value, precision, scale))
        }
        _ => text.parse().ok().map(Value::Double),
    }
}

/// A numeric in the binary format: number of groups, weight, sign, scale, groups of four digits.
fn numeric(bytes: &[u8]) -> Option<Value> {
    let parts: Vec<i16> =
        bytes.chunks_exact(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect();
    let [count, weight, sign, scale, groups @ ..] = parts.as_slice() else { return None };
    if usize::try_from(*count).ok()? != groups.len() || !bytes.len().is_multiple_of(2) {
        return None;
    }
    let sign = match sign.cast_unsigned() {
        0 => "",
        NUMERIC_NEGATIVE => "-",
        0xC000 => return Some(Value::Double(f64::NAN)),
        0xD000 => return Some(Value::Double(f64::INFINITY)),
        0xF000 => return Some(Value::Double(f64::NEG_INFINITY)),
        _ => return None,
    };
    let group = |power: i64| {
        let number = usize::try_from(i64::from(*weight) - power).ok();
        let group = number.and_then(|number| groups.get(number)).copied().unwrap_or(0);
        format!("{group:04}")
    };
    let scale = usize::try_from(*scale).ok()?;
    let whole: String = (0..=i64::from(*weight)).rev().map(group).collect();
    let groups_behind = scale.div_ceil(4) as i64;
    let mut fraction: String = (1..=groups_behind).map(|power| group(-power)).collect();
    fraction.truncate(scale);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    decimal(&format!("{sign}{whole}.{fraction}"))
}

/// A binary value as the text that means it.
///
/// # Errors
/// SQLSTATE 22P03 for bytes that are no value of the type.
pub(crate) fn binary_text(wire: &Type, bytes: &[u8]) -> PgWireResult<String> {
    let time_of = |us: i64| DateTime::from_timestamp_micros(us).map(|time| time.naive_utc());
    let text = match from_binary(wire, bytes)? {
        Value::Boolean(value) => Some(value.to_string()),
        Value::Integer(value) => Some(value.to_string()),
        Value::Double(value) => Some(value.to_string()),
        Value::Text(text) => Some(text),
        Value::Decimal(digits, _, scale) => Some(with_point(digits, scale.unsigned_abs().into())),
        Value::Blob(bytes) => {
            Some(bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")))
        }
        Value::Date(days) => {
            time_of(i64::from(days) * 86_400_000_000).map(|time| time.date().to_string())
        }
        Value::Time(us) => time_of(us).map(|time| time.time().to_string()),
        Value::Timestamp(us) => time_of(us).map(|time| time.to_string()),
        Value::TimestampUtc(us) => time_of(us).map(|time| format!("{time}Z")),
        Value::Interval(months, days, nanoseconds) => {
            Some(format!("{months} months {days} days {nanoseconds} nanoseconds"))
        }
        _ => None,
    };
    text.ok_or_else(|| {
        error("22003", format!("a value of the type {} is out of range", wire.name()))
    })
}

/// The digits of a decimal number with its point.
fn with_point(digits: i128, scale: usize) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

/// Bytes as text: `\x` and hexadecimal digits, or characters with escapes.
pub(crate) fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits = digits.as_bytes();
        let is_whole = digits.len() % 2 == 0;
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        return is_whole.then(|| digits.chunks(2).map(byte).collect()).flatten();
    }
    let mut found = Vec::new();
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        bytes = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => {
                found.push(b'\\');
                rest
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                found.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest
            }
            (b'\\', _) => return None,
            (byte, rest) => {
                found.push(*byte);
                rest
            }
        };
    }
    Some(found)
}

fn days_of(date: NaiveDate) -> i32 {
    let since = date.signed_duration_since(NaiveDate::default()).num_days();
    // A date of chrono's is within 262,000 years.
    i32::try_from(since).unwrap_or(i32::MAX)
}

/// Microseconds since 1970-01-01 of a timestamp as text; a zone behind it does not count, as in PostgreSQL.
fn timestamp(text: &str) -> Option<i64> {
    if let Some(time) = DateTime::parse_from_rfc3339(text).ok().or_else(|| zoned(text)) {
        return Some(time.naive_local().and_utc().timestamp_micros());
    }
    naive(text).map(|time| time.and_utc().timestamp_micros())
}

/// Microseconds since 1970-01-01 UTC of a timestamp as text; without a zone it is in UTC.
fn timestamp_with_zone(text: &str) -> Option<i64> {
    let zoned = DateTime::parse_from_rfc3339(text).ok().or_else(|| zoned(text));
    zoned.map(|time| time.timestamp_micros()).or_else(|| timestamp(text))
}

fn zoned(text: &str) -> Option<DateTime<chrono::FixedOffset>> {
    let forms = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z"];
    forms.iter().find_map(|form| DateTime::parse_from_str(text, form).ok())
}

fn naive(text: &str) -> Option<NaiveDateTime> {
    let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let time = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    time.or_else(|| text.parse::<NaiveDate>().ok().map(|date| date.into()))
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(wire: &Type, value: &str) -> Value {
        super::value(wire, Some(value.as_bytes()), false).unwrap()
    }

    #[test]
    fn texts_become_values_of_their_types() {
        assert_eq!(text(&Type::INT4, "-7"), Value::Integer(-7));
        assert_eq!(text(&Type::BOOL, "t"), Value::Boolean(true));
        assert_eq!(text(&Type::NUMERIC, "-12.50"), Value::Decimal(-1250, 4, 2));
        assert_eq!(text(&Type::NUMERIC, "1e3"), Value::Double(1000.0));
        assert_eq!(text(&Type::DATE, "1970-01-02"), Value::Date(1));
        assert_eq!(text(&Type::TIMESTAMP, "1970-01-01 00:00:01.5"), Value::Timestamp(1_500_000));
        let zoned = text(&Type::TIMESTAMPTZ, "1970-01-01 02:00:00+02");
        assert_eq!(zoned, Value::TimestampUtc(0));
        assert_eq!(text(&Type::BYTEA, "\\x00ff"), Value::Blob(vec![0, 255]));
        assert_eq!(text(&Type::BYTEA, "a\\\\\\001"), Value::Blob(b"a\\\x01".to_vec()));
        assert!(super::value(&Type::INT4, Some(b"1x"), false).is_err());
    }

    #[test]
    fn arrays_come_as_lists() {
        let numbers =
            |values: &[i64]| Value::List(values.iter().copied().map(Value::Integer).collect());
        assert_eq!(text(&Type::INT4_ARRAY, "{1, 2}"), numbers(&[1, 2]));
        assert_eq!(text(&Type::INT4_ARRAY, "{}"), numbers(&[]));
        let texts = ["a,b", "say \"x\""].map(|text| Value::Text(text.to_owned()));
        let found = text(&Type::TEXT_ARRAY, r#"{"a,b","say \"x\"",NULL}"#);
        assert_eq!(found, Value::List(texts.into_iter().chain([Value::Null]).collect()));
        assert!(super::value(&Type::INT4_ARRAY, Some(b"{{1},{2}}"), false).is_err());
        let words = [1, 1, 23, 2, 1, 4, 7, -1];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &i32| word.to_be_bytes()).collect();
        let found = super::value(&Type::INT4_ARRAY, Some(&bytes), true).unwrap();
        assert_eq!(found, Value::List(vec![Value::Integer(7), Value::Null]));
        assert!(super::value(&Type::INT4_ARRAY, Some(&bytes[..31]), true).is_err());
    }

    #[test]
    fn binary_values_come_back() {
        let numeric = |parts: &[i16]| {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_be_bytes()).collect();
            super::value(&Type::NUMERIC, Some(&bytes), true)
        };
        assert_eq!(
            numeric(&[3, 1, 0, 3, 1, 2345, 6780]).unwrap(),
            Value::Decimal(12_345_678, 8, 3)
        );
        assert_eq!(numeric(&[1, -1, 0x4000, 4, 1]).unwrap(), Value::Decimal(-1, 5, 4));
        assert!(numeric(&[2, 0, 0, 0, 1]).is_err());
        let seven = 7_i64.to_be_bytes();
        assert_eq!(super::value(&Type::INT8, Some(&seven), true).unwrap(), Value::Integer(7));
        assert!(super::value(&Type::INT8, Some(&seven[1..]), true).is_err());
        assert_eq!(super::value(&Type::INT8, None, true).unwrap(), Value::Null);
    }
}
