//! Values as text for people, and the structure of a value.

use crate::parts::{Kind, elements, kind, members};
use crate::{Result, Shape};

/// The text in quotes, as JSON writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_quoted(text, &mut out);
    out
}

/// Writes the text in quotes, as JSON writes it.
pub fn write_quoted(text: &str, out: &mut String) {
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[start..at]);
        match escape {
            "" => out.push_str(&format!("\\u{byte:04x}")),
            escape => out.push_str(escape),
        }
        start = at + 1;
    }
    out.push_str(&text[start..]);
    out.push('"');
}

/// The value over several lines, four blanks a level.
///
/// # Errors
/// If the text is no JSON.
pub fn pretty(value: &str) -> Result<String> {
    let mut out = String::with_capacity(2 * value.len());
    write_pretty(value, 0, &mut out)?;
    Ok(out)
}

fn write_pretty(value: &str, level: usize, out: &mut String) -> Result<()> {
    let line = |level: usize, out: &mut String| {
        out.push('\n');
        out.extend(std::iter::repeat_n("    ", level));
    };
    if let Some(members) = members(value)?.filter(|members| !members.is_empty()) {
        out.push('{');
        for (number, (key, part)) in members.into_iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            line(level + 1, out);
            write_quoted(&key, out);
            out.push_str(": ");
            write_pretty(part, level + 1, out)?;
        }
        line(level, out);
        out.push('}');
        return Ok(());
    }
    if let Some(elements) = elements(value)?.filter(|elements| !elements.is_empty()) {
        out.push('[');
        for (number, part) in elements.into_iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            line(level + 1, out);
            write_pretty(part, level + 1, out)?;
        }
        line(level, out);
        out.push(']');
        return Ok(());
    }
    match kind(value) {
        Kind::Object => out.push_str("{}"),
        Kind::Array => out.push_str("[]"),
        _ => out.push_str(value.trim_ascii()),
    }
    Ok(())
}

/// The structure of a value: the names of types in place of its values, and one element in place of an array's.
///
/// # Errors
/// If the text is no JSON.
pub fn structure(value: &str) -> Result<String> {
    let mut shape = Shape::Nothing;
    shape.see_text(value)?;
    let mut out = String::new();
    shape.write(&mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\\n\u{1}é"), r#""a\"b\\\n\u0001é""#);
    }

    #[test]
    fn values_are_printed() {
        let pretty = pretty(r#"{"a":[1,{}],"b":{}}"#).unwrap();
        assert_eq!(pretty, "{\n    \"a\": [\n        1,\n        {}\n    ],\n    \"b\": {}\n}");
    }

    #[test]
    fn structures_are_those_of_all_elements() {
        let of = |value| structure(value).unwrap();
        assert_eq!(
            of(r#"{"a":[1,-2,1.5],"b":{"c":null}}"#),
            r#"{"a":["DOUBLE"],"b":{"c":"NULL"}}"#
        );
        assert_eq!(of(r#"[{"a":1},{"b":2}]"#), r#"[{"a":"UBIGINT","b":"UBIGINT"}]"#);
        assert_eq!(of(r#"[1,"x"]"#), r#"["JSON"]"#);
    }
}
