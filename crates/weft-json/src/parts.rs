//! The parts of a value's text.

use std::borrow::Cow;

use crate::Result;
use crate::pull::{Peek, Pull};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number with neither a point nor an exponent.
    Integer,
    /// Any other number.
    Float,
    /// A text.
    Text,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// What a value is, by how its text begins, and a number by its digits.
pub fn kind(value: &str) -> Kind {
    let value = value.trim_ascii();
    match value.as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::Text,
        Some(b't' | b'f') => Kind::Boolean,
        Some(b'n') | None => Kind::Null,
        _ if value.contains(['.', 'e', 'E']) => Kind::Float,
        _ => Kind::Integer,
    }
}

/// Checks that the text is one value.
///
/// # Errors
/// What is wrong, and where.
pub fn check(text: &str) -> Result<()> {
    let mut pull = Pull::new(text);
    let peek = pull.peek()?;
    pull.known_skip(peek)?;
    pull.finish()
}

/// The text of a value without blanks between its tokens.
pub fn compact(value: &str) -> Cow<'_, str> {
    let value = value.trim_ascii();
    let bytes = value.as_bytes();
    if !bytes.iter().any(u8::is_ascii_whitespace) {
        return Cow::Borrowed(value);
    }
    let mut kept = String::with_capacity(value.len());
    let (mut start, mut at, mut is_text) = (0, 0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            byte if !is_text && byte.is_ascii_whitespace() => {
                kept.push_str(&value[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    kept.push_str(&value[start..]);
    Cow::Owned(kept)
}

/// The characters of a text value, which is written in quotes.
///
/// # Errors
/// If it is no text.
pub fn unescaped(value: &str) -> Result<Cow<'_, str>> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some(inner) = inner
        && !inner.contains('\\')
    {
        return Ok(Cow::Borrowed(inner));
    }
    let mut pull = Pull::new(value);
    match pull.peek()? {
        Peek::Text => Ok(Cow::Owned(pull.known_str()?.to_owned())),
        _ => Err(crate::JsonError::at(0, "a text is expected")),
    }
}

/// A value as text in SQL: the characters of a text, no value for `null`, and else its JSON.
///
/// # Errors
/// If it is no JSON.
pub fn text_of(value: &str) -> Result<Option<Cow<'_, str>>> {
    let value = value.trim_ascii();
    Ok(match kind(value) {
        Kind::Null => None,
        Kind::Text => Some(unescaped(value)?),
        _ => Some(compact(value)),
    })
}

/// The elements of an array, in order; of another value, nothing.
///
/// # Errors
/// If the text is no JSON.
pub fn elements(value: &str) -> Result<Option<Vec<&str>>> {
    let mut pull = Pull::new(value);
    let peek = pull.peek()?;
    if peek != Peek::Array {
        pull.known_skip(peek)?;
        pull.finish()?;
        return Ok(None);
    }
    let mut found = Vec::new();
    let mut next = pull.known_array()?;
    while let Some(peek) = next {
        let start = pull.current_index();
        pull.known_skip(peek)?;
        found.push(&value[start..pull.current_index()]);
        next = pull.array_step()?;
    }
    pull.finish()?;
    Ok(Some(found))
}

/// The keys of an object, without escapes, and the texts of their values.
pub type Members<'a> = Vec<(Cow<'a, str>, &'a str)>;

/// The keys and values of an object, in order; of another value, nothing.
///
/// # Errors
/// If the text is no JSON.
pub fn members(value: &str) -> Result<Option<Members<'_>>> {
    let mut pull = Pull::new(value);
    let peek = pull.peek()?;
    if peek != Peek::Object {
        pull.known_skip(peek)?;
        pull.finish()?;
        return Ok(None);
    }
    let mut found = Vec::new();
    let mut next = place_of(value, pull.object_raw()?);
    while let Some((start, end)) = next {
        // With its quotes, which stand around it.
        let key = unescaped(&value[start - 1..end + 1])?;
        let peek = pull.peek()?;
        let first = pull.current_index();
        pull.known_skip(peek)?;
        found.push((key, &value[first..pull.current_index()]));
        next = place_of(value, pull.next_key_raw()?);
    }
    pull.finish()?;
    Ok(Some(found))
}

/// Where a part of the text lies in it.
fn place_of(text: &str, part: Option<&str>) -> Option<(usize, usize)> {
    part.map(|part| {
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        (start, start + part.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let text = r#" {"a" : [1, {"b": "x y"}], "q\"": "\u00e9"} "#;
        let found = members(text).unwrap().unwrap();
        assert_eq!(found[0], (Cow::Borrowed("a"), r#"[1, {"b": "x y"}]"#));
        assert_eq!(found[1].0, "q\"");
        assert_eq!(unescaped(found[1].1).unwrap(), "é");
        assert_eq!(elements(found[0].1).unwrap().unwrap(), ["1", r#"{"b": "x y"}"#]);
        assert_eq!(compact(text), r#"{"a":[1,{"b":"x y"}],"q\"":"\u00e9"}"#);
        assert_eq!(members("[1]"), Ok(None));
        assert_eq!(elements("{}"), Ok(None));
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in
            ["", "{", "[1,]", "[1 2]", "{\"a\"}", "x", "1 2", "\"\u{1}\"", "nul", "01", "NaN"]
        {
            assert!(check(text).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(check(&deep).is_err());
        assert!(members(&deep).is_err());
    }
}
