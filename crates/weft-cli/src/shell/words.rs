//! The words of a dot command: separated by spaces, in quotes where they contain some.

/// The words of `line`; `\` escapes a character within double quotes.
///
/// # Errors
/// If a quote is not closed.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => word.push(escaped(characters.next())),
                        Some(inside) => word.push(inside),
                        None => return Err(format!("the quote {c} is not closed")),
                    }
                }
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn escaped(c: Option<char>) -> char {
    match c {
        Some('n') => '\n',
        Some('t') => '\t',
        Some(other) => other,
        None => '\\',
    }
}

/// The name among `known` that `wrong` was probably meant to be.
pub fn nearest<'k>(wrong: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(wrong.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_join_words() {
        for (line, expected) in [
            ("", vec![]),
            (".a  b\tc ", vec![".a", "b", "c"]),
            (".a 'b c' \"d \\\"e\\n\"", vec![".a", "b c", "d \"e\n"]),
            (".a '' x''y", vec![".a", "", "xy"]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        assert!(words(".a 'b").is_err());
        assert!(words(".a \"b\\\"").is_err());
    }

    #[test]
    fn near_names_are_found() {
        let known = ["tables", "timer", "mode"];
        assert_eq!(nearest("tabels", known.into_iter()), Some("tables"));
        assert_eq!(nearest("xyzzy", known.into_iter()), None);
    }
}
