//! Texts of lists, structs and maps, taken apart into those of their elements.
//!
//! Elements stand between commas. One in quotes, single or double, may contain anything; a backslash within them takes the character
//! behind it as it is. Brackets nest.

use std::borrow::Cow;

/// Why a text is not the text of a list, struct or map.
pub(super) type Problem = &'static str;

/// The texts of the elements between `open` and its closing bracket.
///
/// # Errors
/// If the text does not begin and end with the brackets, or one within is not closed.
pub(super) fn elements(text: &str, open: char) -> Result<Vec<&str>, Problem> {
    let inner = within(text, open)?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut elements = Vec::new();
    let mut begin = 0;
    scan(inner, |at, character| {
        if character == ',' {
            elements.push(inner[begin..at].trim());
            begin = at + 1;
        }
    })?;
    elements.push(inner[begin..].trim());
    Ok(elements)
}

/// The key and the value of an entry, on both sides of the first `separator`; nothing without one.
pub(super) fn entry(text: &str, separator: char) -> Option<(&str, &str)> {
    let mut place = None;
    // Brackets and quotes have been found closed when the entries were taken apart.
    scan(text, |at, character| {
        if character == separator && place.is_none() {
            place = Some(at);
        }
    })
    .ok()?;
    let place = place?;
    Some((text[..place].trim(), text[place + separator.len_utf8()..].trim()))
}

/// The text of a value that has no elements; `None` for NULL, which stands without quotes.
pub(super) fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    if text.eq_ignore_ascii_case("null") {
        return None;
    }
    if !text.contains(['"', '\'']) {
        return Some(Cow::Borrowed(text));
    }
    let mut value = String::with_capacity(text.len());
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => value.extend(characters.next()),
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            _ => value.push(character),
        }
    }
    Some(Cow::Owned(value))
}

/// What is within the outermost brackets.
fn within(text: &str, open: char) -> Result<&str, Problem> {
    let (close, problem) = match open {
        '[' => (']', "it is not of the form [a, b]"),
        '(' => (')', "it is not of the form (a, b)"),
        _ => ('}', "it is not in braces"),
    };
    text.trim().strip_prefix(open).and_then(|text| text.strip_suffix(close)).ok_or(problem)
}

/// Calls `see` for the characters outside of quotes and brackets.
fn scan(text: &str, mut see: impl FnMut(usize, char)) -> Result<(), Problem> {
    let mut closing = Vec::new();
    let mut quote = None;
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => drop(characters.next()),
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => closing.push(']'),
            (None, '{') => closing.push('}'),
            (None, '(') => closing.push(')'),
            (None, ']' | '}' | ')') => {
                if closing.pop() != Some(character) {
                    return Err("a bracket in it closes none");
                }
            }
            (None, _) if closing.is_empty() => see(at, character),
            (None, _) => {}
        }
    }
    match (quote, closing.is_empty()) {
        (Some(_), _) => Err("a quote in it is not closed"),
        (None, false) => Err("a bracket in it is not closed"),
        (None, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stand_between_commas() {
        assert_eq!(elements(" [ 1 , [2, 3] , 'a, ]' ] ", '['), Ok(vec!["1", "[2, 3]", "'a, ]'"]));
        assert_eq!(elements("[]", '['), Ok(vec![]));
        assert_eq!(elements("[,]", '['), Ok(vec!["", ""]));
        assert_eq!(elements(r#"["\"", '\'']"#, '['), Ok(vec![r#""\"""#, r"'\''"]));
    }

    #[test]
    fn brackets_and_quotes_have_to_be_closed() {
        for text in ["", "1", "[1", "[1] x", "['a]", "[[1]", "[1]]", "[(1]", "{1}"] {
            assert!(elements(text, '[').is_err(), "{text}");
        }
    }

    #[test]
    fn entries_have_a_key_before_the_separator() {
        assert_eq!(entry("'a:b': {c: 1}", ':'), Some(("'a:b'", "{c: 1}")));
        assert_eq!(entry("a: b: c", ':'), Some(("a", "b: c")));
        assert_eq!(entry("a", ':'), None);
    }

    #[test]
    fn quotes_are_taken_off() {
        for (text, expected) in [
            ("a b", "a b"),
            (r"a\b", r"a\b"),
            (r"'a\\b'", r"a\b"),
            (r"'it\'s'", "it's"),
            (r#"c"d"e"#, "cde"),
            ("'NULL'", "NULL"),
            ("''", ""),
        ] {
            assert_eq!(unquoted(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(unquoted("null"), None);
    }
}
