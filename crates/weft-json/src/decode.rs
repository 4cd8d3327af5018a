//! Values to Arrow arrays of a given type.

mod column;
mod parsed;

use std::collections::HashMap;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};

use crate::moments::{date, timestamp};
use crate::parts::compact;
use crate::pull::{Peek, Pull};
use crate::shape::Shape;
use crate::{DEPTH_MAX, JsonError, Result};

use column::{Column, Keys, integer_name};

/// Characters of a value that a message shows, at most.
const SHOWN_MAX: usize = 60;

/// Collects values of a field.
pub struct Decoder {
    field: FieldRef,
    column: Column,
    /// A value that does not fit is NULL rather than an error.
    is_lenient: bool,
    /// A key that the type has no field for is an error rather than left out.
    keys_known: bool,
}

impl Decoder {
    /// True if values of this field are read as such from JSON, in all rows alike. Others are cast from texts.
    pub fn is_native(field: &Field) -> bool {
        match field.data_type() {
            DataType::List(item) => Decoder::is_native(item),
            DataType::Struct(fields) => fields.iter().all(|field| Decoder::is_native(field)),
            DataType::Timestamp(_, zone) => zone.is_none(),
            DataType::Boolean | DataType::Null | DataType::Utf8View => true,
            DataType::Date32 | DataType::Time64(_) => true,
            other => other.is_numeric(),
        }
    }

    /// A decoder of values of this field. With `is_lenient`, what does not fit its type is NULL, with `keys_known` a key
    /// that the type lacks is an error.
    pub fn new(field: FieldRef, is_lenient: bool, keys_known: bool) -> Decoder {
        Decoder { column: Column::new(&field, None), field, is_lenient, keys_known }
    }

    /// A decoder of rows: objects with these keys, in this order mostly, of which those with a field in `field` are wanted, or any
    /// values. With a shape, which a sample had, what it had not is an error: other keys, and values other than `null` where it
    /// had none.
    pub fn of_rows<'a>(
        field: FieldRef,
        keys: Option<impl Iterator<Item = &'a str>>,
        sample: Option<&Shape>,
        is_lenient: bool,
    ) -> Decoder {
        let mut column = Column::new(&field, sample);
        if let (Column::Struct { fields, keys: known, .. }, Some(keys)) = (&mut column, keys) {
            let numbers: HashMap<&str, usize> = fields
                .iter()
                .enumerate()
                .map(|(number, field)| (field.name().as_str(), number))
                .collect();
            *known = Keys::new(keys.map(|key| (key, numbers.get(key).copied())));
        }
        Decoder { column, field, is_lenient, keys_known: sample.is_some() }
    }

    /// Adds NULL.
    pub fn push_null(&mut self) {
        self.column.push_null();
    }

    /// Adds the value that `text` is.
    ///
    /// # Errors
    /// If the text is no JSON, or the value does not fit.
    pub fn push_text(&mut self, text: &str) -> Result<()> {
        let mut pull = Pull::new(text);
        let peek = pull.peek()?;
        let rules = Rules { text, is_lenient: self.is_lenient, keys_known: self.keys_known };
        rules.push(&mut self.column, &mut pull, peek, 0)?;
        pull.finish()
    }

    /// Adds the value that begins at byte `start` of the text, or after blanks. Returns the byte after the value; `None` if only
    /// blanks follow.
    ///
    /// # Errors
    /// If the text is no JSON, or the value does not fit.
    pub fn push_next(&mut self, text: &str, start: usize) -> Result<Option<usize>> {
        let rest = &text[start..];
        if rest.trim_ascii_start().is_empty() {
            return Ok(None);
        }
        let mut pull = Pull::new(rest);
        let rules = Rules { text: rest, is_lenient: self.is_lenient, keys_known: self.keys_known };
        let pushed = pull.peek();
        let pushed = pushed.and_then(|peek| rules.push(&mut self.column, &mut pull, peek, 0));
        pushed.map_err(|error| error.moved(start))?;
        Ok(Some(start + pull.current_index()))
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.column.len()
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The array of all values.
    ///
    /// # Errors
    /// If one does not fit.
    pub fn finish(self) -> Result<ArrayRef> {
        self.column.finish(self.field.name(), self.field.data_type(), self.is_lenient)
    }
}

fn misfit(column: &str, offset: usize, problem: &str) -> JsonError {
    JsonError { offset, problem: problem.to_owned(), column: Some(column.to_owned()) }
}

/// A value as a message shows it.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// How values are taken.
struct Rules<'a> {
    text: &'a str,
    is_lenient: bool,
    keys_known: bool,
}

impl Rules<'_> {
    fn push(
        &self,
        column: &mut Column,
        pull: &mut Pull<'_>,
        peek: Peek,
        depth: usize,
    ) -> Result<()> {
        let start = pull.current_index();
        if depth > DEPTH_MAX {
            return Err(JsonError::too_deep(start));
        }
        if peek == Peek::Null {
            pull.known_null()?;
            column.push_null();
            return Ok(());
        }
        match (column, peek) {
            (Column::Boolean(builder), Peek::True | Peek::False) => {
                builder.append_value(pull.known_bool(peek)?);
            }
            (Column::Integer(builder, min, max), Peek::Number) => {
                let number = pull.known_number()?.to_i64();
                match number.filter(|number| (*min..=*max).contains(number)) {
                    Some(number) => builder.append_value(number),
                    None if self.is_lenient => builder.append_null(),
                    None => return Err(self.no_fit(start, pull, integer_name(*min, *max))),
                }
            }
            (Column::Double(builder), Peek::Number) => {
                builder.append_option(pull.known_number()?.to_f64());
            }
            (Column::Date(parsed), Peek::Text) => {
                let text = pull.known_str()?;
                parsed.push(date(text), text);
            }
            (Column::Timestamp(parsed, is_zoned), Peek::Text) => {
                let text = pull.known_str()?;
                parsed.push(timestamp(text, *is_zoned), text);
            }
            (Column::Text(builder), Peek::Text) => builder.append_value(pull.known_str()?),
            (Column::Text(builder) | Column::Json(builder), peek) => {
                pull.known_skip(peek)?;
                builder.append_value(compact(&self.text[start..pull.current_index()]));
            }
            (Column::List { column, offsets, valid, .. }, Peek::Array) => {
                let mut next = pull.known_array()?;
                while let Some(peek) = next {
                    self.push(column, pull, peek, depth + 1)?;
                    next = pull.array_step()?;
                }
                let end = i32::try_from(column.len());
                offsets.push(end.map_err(|_| misfit("", start, "lists of over 2^31 elements"))?);
                valid.push(true);
            }
            (Column::Struct { keys, columns, valid, .. }, Peek::Object) => {
                self.push_members(keys, columns, pull, valid.len(), depth)?;
                valid.push(true);
            }
            (column, peek) => {
                pull.known_skip(peek)?;
                self.push_other(column, start, pull)?;
            }
        }
        Ok(())
    }

    fn push_members(
        &self,
        keys: &Keys,
        columns: &mut [Column],
        pull: &mut Pull<'_>,
        row: usize,
        depth: usize,
    ) -> Result<()> {
        let start = pull.current_index();
        let mut has_member = pull.opens_members();
        let (mut next, mut pushed) = (0, 0);
        while has_member {
            let expected = keys.list.get(next);
            let number = match expected {
                Some(key) if pull.takes_key(&key.quoted)? => Some(next),
                _ => {
                    let name = pull.key()?;
                    let number = keys.numbers.get(name).copied();
                    if number.is_none() && self.keys_known {
                        let name = name.to_owned();
                        return Err(misfit(&name, start, "this key was not known before"));
                    }
                    number
                }
            };
            let peek = pull.peek()?;
            let column = number.and_then(|number| keys.list[number].column);
            match column.map(|column| &mut columns[column]) {
                Some(column) if column.len() == row => {
                    let done = self.push(column, pull, peek, depth + 1);
                    if let (Err(error), Some(key)) = (done, number.map(|number| &keys.list[number]))
                    {
                        return Err(error.within(&key.name));
                    }
                    pushed += 1;
                }
                // Of a key that occurs twice, the first one counts.
                _ => pull.known_skip(peek)?,
            }
            next = number.map_or(next, |number| number + 1);
            has_member = pull.has_next_member()?;
        }
        if pushed < columns.len() {
            columns.iter_mut().filter(|column| column.len() == row).for_each(Column::push_null);
        }
        Ok(())
    }

    /// Adds a value of another kind: from a text, what it says; else NULL or an error.
    fn push_other(&self, column: &mut Column, start: usize, pull: &Pull<'_>) -> Result<()> {
        let value = &self.text[start..pull.current_index()];
        let said = crate::text_of(value)?.unwrap_or_default();
        let wanted = match column {
            Column::Boolean(builder) => match said.to_ascii_lowercase().parse() {
                Ok(value) => {
                    builder.append_value(value);
                    return Ok(());
                }
                Err(_) => "BOOLEAN",
            },
            Column::Integer(builder, min, max) => match said.trim().parse() {
                Ok(value) if (*min..=*max).contains(&value) => {
                    builder.append_value(value);
                    return Ok(());
                }
                _ => integer_name(*min, *max),
            },
            Column::Double(builder) => match said.trim().parse() {
                Ok(value) => {
                    builder.append_value(value);
                    return Ok(());
                }
                Err(_) => "DOUBLE",
            },
            Column::List { .. } => "list",
            Column::Struct { .. } => "STRUCT",
            Column::Date(_) => "DATE",
            Column::Timestamp(..) => "TIMESTAMP",
            Column::Unseen(_) => {
                return Err(misfit("", start, &format!("{} is other than null", shown(value))));
            }
            _ => "NULL",
        };
        match self.is_lenient {
            true => {
                column.push_null();
                Ok(())
            }
            false => Err(self.no_fit(start, pull, wanted)),
        }
    }

    fn no_fit(&self, start: usize, pull: &Pull<'_>, wanted: &str) -> JsonError {
        let value = &self.text[start..pull.current_index()];
        misfit("", start, &format!("{} is no {wanted}", shown(value)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Array;
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn round_trip(values: &[&str]) -> Vec<String> {
        let mut shape = Shape::Nothing;
        values.iter().for_each(|value| shape.see_text(value).unwrap());
        let mut decoder = Decoder::new(shape.field("x"), false, true);
        values.iter().for_each(|value| decoder.push_text(value).unwrap());
        let array = decoder.finish().unwrap();
        (0..array.len()).map(|row| array_value_to_string(&array, row).unwrap()).collect()
    }

    #[test]
    fn values_become_arrays() {
        assert_eq!(round_trip(&["1", "18446744073709551615"]), ["1", "18446744073709551615"]);
        assert_eq!(round_trip(&["-1", "18446744073709551615"]), ["-1", "18446744073709551615"]);
        assert_eq!(round_trip(&["1", "\"x\"", "[1, 2]"]), ["1", "\"x\"", "[1,2]"]);
        assert_eq!(round_trip(&["[[1],null]", "[]"]), ["[[1], ]", "[]"]);
        assert_eq!(
            round_trip(&["{\"a\":1}", "{\"b\":{\"c\":\"x\"},\"a\":2,\"a\":3}"]),
            ["{a: 1, b: }", "{a: 2, b: {c: x}}"]
        );
        assert_eq!(round_trip(&["\"2020-01-01T12:00:00+02:00\""]), ["2020-01-01T10:00:00Z"]);
        assert_eq!(round_trip(&["\"10:00:00.5\""]), ["10:00:00.500"]);
    }

    #[test]
    fn what_does_not_fit_is_an_error_or_null() {
        let field = Arc::new(Field::new("x", DataType::Int64, true));
        let mut strict = Decoder::new(Arc::clone(&field), false, false);
        assert!(strict.push_text("1.5").is_err());
        assert!(strict.push_text("\"x\"").is_err());
        let mut lenient = Decoder::new(field, true, false);
        for value in ["1.5", "\"x\"", "[1]", "\"7\""] {
            lenient.push_text(value).unwrap();
        }
        let array = lenient.finish().unwrap();
        assert_eq!((array.len(), array.null_count()), (4, 3));
    }
}
