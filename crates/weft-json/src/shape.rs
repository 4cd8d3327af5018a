//! The shape of values: the least type that holds all that were seen.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Fields, TimeUnit};
use chrono::Utc;

use crate::print::write_quoted;
use crate::pull::{Peek, Pull};
use crate::{DEPTH_MAX, JsonError, Result, json_field};

/// Keys of an object within another value, at most: one with more is taken for a map from keys to values, and read as JSON.
const KEYS_MAX: usize = 1_000;

/// A shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Shape {
    /// Of no value but `null`.
    #[default]
    Nothing,
    /// Of `true` and `false`.
    Boolean,
    /// Of whole numbers.
    Integer(Range),
    /// Of numbers.
    Double,
    /// Of dates as texts.
    Date,
    /// Of times as texts.
    Time,
    /// Of dates with times as texts.
    Timestamp,
    /// Of dates with times and zones as texts.
    ZonedTimestamp,
    /// Of texts.
    Text,
    /// Of arrays whose elements have this shape.
    Array(Box<Shape>),
    /// Of objects.
    Object(Members),
    /// Of values that no other shape holds.
    Json,
}

/// What whole numbers lie within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least number.
    pub min: i128,
    /// The greatest number.
    pub max: i128,
}

/// The keys of objects, in the order in which they were first seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members {
    list: Vec<(String, Shape)>,
    numbers: HashMap<String, usize>,
}

impl Members {
    /// Keys and their shapes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Shape)> {
        self.list.iter().map(|(key, shape)| (key.as_str(), shape))
    }

    /// The number of this key, which may be `next`.
    fn number(&mut self, key: &str, next: usize) -> usize {
        if self.list.get(next).is_some_and(|(known, _)| known == key) {
            return next;
        }
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.list.len();
        self.list.push((key.to_owned(), Shape::Nothing));
        self.numbers.insert(key.to_owned(), number);
        number
    }
}

impl Shape {
    /// Widens the shape so that it holds the value that `text` is.
    ///
    /// # Errors
    /// If the text is no JSON.
    pub fn see_text(&mut self, text: &str) -> Result<()> {
        let mut pull = Pull::new(text);
        let peek = pull.peek()?;
        self.see(&mut pull, peek, 0)?;
        pull.finish()
    }

    /// Widens the shape so that it holds the value that begins at byte `start` of the text, or after blanks. Returns the byte
    /// after the value; `None` if only blanks follow.
    ///
    /// # Errors
    /// If the text is no JSON.
    pub fn see_next(&mut self, text: &str, start: usize) -> Result<Option<usize>> {
        let rest = &text[start..];
        if rest.trim_ascii_start().is_empty() {
            return Ok(None);
        }
        let mut pull = Pull::new(rest);
        let seen = pull.peek();
        let seen = seen.and_then(|peek| self.see(&mut pull, peek, 0));
        seen.map_err(|error| error.moved(start))?;
        Ok(Some(start + pull.current_index()))
    }

    fn see(&mut self, pull: &mut Pull<'_>, peek: Peek, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(JsonError::too_deep(pull.current_index()));
        }
        match peek {
            Peek::Null => pull.known_null(),
            _ if matches!(self, Shape::Json) => pull.known_skip(peek),
            Peek::Object => self.see_object(pull, depth),
            Peek::Array => self.see_array(pull, depth),
            Peek::True | Peek::False => {
                pull.known_bool(peek)?;
                self.widen(Shape::Boolean);
                Ok(())
            }
            Peek::Text => {
                let text = pull.known_str()?;
                if !matches!(self, Shape::Text) {
                    self.widen(of_text(text));
                }
                Ok(())
            }
            _ => {
                let number = pull.known_number()?;
                if !matches!(self, Shape::Double) {
                    let number = of_number(number.text);
                    self.widen(number);
                }
                Ok(())
            }
        }
    }

    fn see_object(&mut self, pull: &mut Pull<'_>, depth: usize) -> Result<()> {
        match self {
            Shape::Nothing => *self = Shape::Object(Members::default()),
            Shape::Object(_) => {}
            _ => *self = Shape::Json,
        }
        let Shape::Object(members) = self else { return pull.known_skip(Peek::Object) };
        let mut next = 0;
        let mut key = pull.known_object()?;
        while let Some(name) = key {
            let number = members.number(name, next);
            next = number + 1;
            let peek = pull.peek()?;
            members.list[number].1.see(pull, peek, depth + 1)?;
            key = pull.next_key()?;
        }
        if depth > 0 && members.list.len() > KEYS_MAX {
            *self = Shape::Json;
        }
        Ok(())
    }

    fn see_array(&mut self, pull: &mut Pull<'_>, depth: usize) -> Result<()> {
        match self {
            Shape::Nothing => *self = Shape::Array(Box::default()),
            Shape::Array(_) => {}
            _ => *self = Shape::Json,
        }
        let Shape::Array(element) = self else { return pull.known_skip(Peek::Array) };
        let mut next = pull.known_array()?;
        while let Some(peek) = next {
            element.see(pull, peek, depth + 1)?;
            next = pull.array_step()?;
        }
        Ok(())
    }

    /// Widens the shape so that it holds what `other` holds, too.
    pub fn widen(&mut self, other: Shape) {
        let old = std::mem::take(self);
        *self = match (old, other) {
            (Shape::Nothing, one) | (one, Shape::Nothing) => one,
            (Shape::Integer(a), Shape::Integer(b)) => {
                Shape::Integer(Range { min: a.min.min(b.min), max: a.max.max(b.max) })
            }
            (Shape::Integer(_), Shape::Double) | (Shape::Double, Shape::Integer(_)) => {
                Shape::Double
            }
            (Shape::Date, Shape::Timestamp) | (Shape::Timestamp, Shape::Date) => Shape::Timestamp,
            (Shape::Array(mut a), Shape::Array(b)) => {
                a.widen(*b);
                Shape::Array(a)
            }
            (Shape::Object(mut a), Shape::Object(b)) => {
                for (next, (key, shape)) in b.list.into_iter().enumerate() {
                    let number = a.number(&key, next);
                    a.list[number].1.widen(shape);
                }
                Shape::Object(a)
            }
            (a, b) if a == b => a,
            (a, b) if a.is_text() && b.is_text() => Shape::Text,
            _ => Shape::Json,
        };
    }

    fn is_text(&self) -> bool {
        matches!(
            self,
            Shape::Date | Shape::Time | Shape::Timestamp | Shape::ZonedTimestamp | Shape::Text
        )
    }

    /// The shape of the elements of arrays.
    pub(crate) fn element(&self) -> Option<&Shape> {
        match self {
            Shape::Array(element) => Some(element),
            _ => None,
        }
    }

    /// The shape of the values that objects have under this key.
    pub(crate) fn member(&self, key: &str) -> Option<&Shape> {
        match self {
            Shape::Object(members) => {
                members.numbers.get(key).map(|number| &members.list[*number].1)
            }
            _ => None,
        }
    }

    /// A field for values of this shape.
    pub fn field(&self, name: &str) -> FieldRef {
        let within = |shape: &Shape| shape.field("item");
        let data_type = match self {
            Shape::Nothing | Shape::Json => return Arc::new(json_field(name, true)),
            Shape::Object(members) if members.list.is_empty() => {
                return Arc::new(json_field(name, true));
            }
            Shape::Boolean => DataType::Boolean,
            Shape::Integer(range) => range.data_type(),
            Shape::Double => DataType::Float64,
            Shape::Date => DataType::Date32,
            Shape::Time => DataType::Time64(TimeUnit::Microsecond),
            Shape::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Shape::ZonedTimestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Shape::Text => DataType::Utf8View,
            Shape::Array(element) => DataType::List(within(element)),
            Shape::Object(members) => DataType::Struct(members.fields()),
        };
        Arc::new(Field::new(name, data_type, true))
    }

    /// Writes the shape as a value: names of types in place of values.
    pub fn write(&self, out: &mut String) {
        match self {
            Shape::Array(element) => {
                out.push('[');
                element.write(out);
                out.push(']');
            }
            Shape::Object(members) => {
                out.push('{');
                for (number, (key, shape)) in members.list.iter().enumerate() {
                    if number > 0 {
                        out.push(',');
                    }
                    write_quoted(key, out);
                    out.push(':');
                    shape.write(out);
                }
                out.push('}');
            }
            other => write_quoted(other.name(), out),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Shape::Nothing => "NULL",
            Shape::Boolean => "BOOLEAN",
            Shape::Integer(range) => range.name(),
            Shape::Double => "DOUBLE",
            Shape::Json => "JSON",
            _ => "VARCHAR",
        }
    }
}

impl Members {
    /// A field for each key.
    pub fn fields(&self) -> Fields {
        self.iter().map(|(key, shape)| shape.field(key)).collect()
    }
}

impl Range {
    fn data_type(self) -> DataType {
        if self.min >= i128::from(i64::MIN) && self.max <= i128::from(i64::MAX) {
            DataType::Int64
        } else if self.min >= 0 && self.max <= i128::from(u64::MAX) {
            DataType::UInt64
        } else {
            DataType::Decimal128(38, 0)
        }
    }

    fn name(self) -> &'static str {
        match self.data_type() {
            _ if self.min >= 0 && self.max <= i128::from(u64::MAX) => "UBIGINT",
            DataType::Int64 => "BIGINT",
            _ => "HUGEINT",
        }
    }
}

/// Greatest whole number of 38 digits.
const DIGITS_38: i128 = 10i128.pow(38) - 1;

fn of_number(text: &str) -> Shape {
    match text.parse::<i128>() {
        // A negative zero is a number with a fraction.
        Ok(number) if number.abs() <= DIGITS_38 && text != "-0" => {
            Shape::Integer(Range { min: number, max: number })
        }
        _ => Shape::Double,
    }
}

/// What a text looks like.
fn of_text(text: &str) -> Shape {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    let has_date = bytes.len() >= 10 && is(4, b'-') && is(7, b'-');
    if has_date && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(is_digit) {
        let is_date = text.get(..10).is_some_and(|date| Date32Type::parse(date).is_some());
        return match bytes.len() {
            _ if !is_date => Shape::Text,
            10 => Shape::Date,
            _ => of_time_after_date(text),
        };
    }
    if is(2, b':') && is(5, b':') && is_time(text) {
        return Shape::Time;
    }
    Shape::Text
}

/// What a text looks like that starts with a date.
fn of_time_after_date(text: &str) -> Shape {
    let Some(time) = text.get(11..) else { return Shape::Text };
    let is_parted = matches!(text.as_bytes()[10], b' ' | b'T');
    let end = time.find(['Z', '+', '-', ' ']).unwrap_or(time.len());
    if !is_parted || !is_time(&time[..end]) {
        return Shape::Text;
    }
    if end == time.len() {
        return Shape::Timestamp;
    }
    match string_to_datetime(&Utc, text) {
        Ok(_) => Shape::ZonedTimestamp,
        Err(_) => Shape::Text,
    }
}

/// True for `hh:mm:ss` with up to six digits of a fraction.
fn is_time(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(a, b)| (a, Some(b)));
    let parts: Vec<&str> = whole.split(':').collect();
    let below = |part: &str, end: u8| {
        part.len() == 2
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse().is_ok_and(|number: u8| number < end)
    };
    let is_whole = matches!(parts[..], [hours, minutes, seconds]
        if below(hours, 24) && below(minutes, 60) && below(seconds, 60));
    is_whole
        && fraction.is_none_or(|digits| {
            (1..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Shape {
        let mut shape = Shape::Nothing;
        for value in values {
            shape.see_text(value).unwrap();
        }
        shape
    }

    #[test]
    fn shapes_hold_all_values() {
        let field = |values: &[&str]| of(values).field("x").data_type().clone();
        assert_eq!(field(&["1", "null", "-2"]), DataType::Int64);
        assert_eq!(field(&["18446744073709551615", "1"]), DataType::UInt64);
        assert_eq!(field(&["18446744073709551615", "-1"]), DataType::Decimal128(38, 0));
        assert_eq!(field(&["1", "1.5"]), DataType::Float64);
        assert_eq!(field(&["1e2"]), DataType::Float64);
        assert_eq!(of(&["1", "\"x\""]), Shape::Json);
        assert_eq!(of(&["\"2020-01-01\"", "\"2020-01-01T10:00:00\""]), Shape::Timestamp);
        assert_eq!(of(&["\"2020-01-01\"", "\"2020-02-30\""]), Shape::Text);
        assert_eq!(of(&["\"2020-01-01T12:00:00+02:00\""]), Shape::ZonedTimestamp);
        assert_eq!(of(&["\"2020-01-01T12:00:00+99:00\""]), Shape::Text);
        assert_eq!(of(&["\"10:00:00\"", "\"007\""]), Shape::Text);
        assert_eq!(of(&["[1]", "[]", "[1.5, null]"]), Shape::Array(Box::new(Shape::Double)));
        let Shape::Object(members) = of(&["{\"b\":1}", "{\"a\":[],\"b\":2}"]) else { panic!() };
        assert_eq!(members.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(of(&["{}", "1"]), Shape::Json);
    }
}
