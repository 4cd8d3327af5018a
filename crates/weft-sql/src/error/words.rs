//! Messages of other crates in the words of ours.

/// Names of types as people know them, in place of Arrow's.
pub(super) fn plain_types(message: &str) -> String {
    const TYPES: [(&str, &str); 17] = [
        ("Interval(MonthDayNano)", "INTERVAL"),
        ("LargeUtf8", "VARCHAR"),
        ("Utf8View", "VARCHAR"),
        ("Utf8", "VARCHAR"),
        ("BinaryView", "BLOB"),
        ("UInt8", "TINYINT UNSIGNED"),
        ("UInt16", "SMALLINT UNSIGNED"),
        ("UInt32", "INTEGER UNSIGNED"),
        ("UInt64", "BIGINT UNSIGNED"),
        ("Int8", "TINYINT"),
        ("Int16", "SMALLINT"),
        ("Int32", "INTEGER"),
        ("Int64", "BIGINT"),
        ("Float32", "REAL"),
        ("Float64", "DOUBLE"),
        ("Date32", "DATE"),
        ("Decimal128", "DECIMAL"),
    ];
    let mut plain = String::with_capacity(message.len());
    for (text, is_quoted) in quotations(message) {
        if is_quoted {
            plain.push_str(text);
            continue;
        }
        let mut text = text.to_owned();
        for (arrow, sql) in TYPES {
            text = text.replace(arrow, sql);
        }
        plain.push_str(&text);
    }
    plain
}

/// The parts of a message, and whether they are quoted, as people's texts are, which stay as they are.
fn quotations(message: &str) -> Vec<(&str, bool)> {
    let is_letter = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    let mut parts = Vec::new();
    let (mut start, mut is_quoted) = (0, false);
    for (at, _) in message.match_indices('\'') {
        let before = message[..at].chars().next_back();
        let after = message[at + 1..].chars().next();
        if !is_quoted && !is_letter(before) {
            parts.push((&message[start..at], false));
            (start, is_quoted) = (at, true);
        } else if is_quoted && at > start && !is_letter(after) {
            parts.push((&message[start..=at], true));
            (start, is_quoted) = (at + 1, false);
        }
    }
    parts.push((&message[start..], false));
    parts
}

/// Takes away the names of crates and error types that nested errors put in front.
pub(super) fn strip_prefixes(message: &str) -> String {
    const PREFIXES: [&str; 22] = [
        "DataFusion error: ",
        "External error: ",
        "External: ",
        "Arrow error: ",
        "Arrow: ",
        "Parquet error: ",
        "Parquet: ",
        "Parser error: ",
        "Csv error: ",
        "Json error: ",
        "Cast error: ",
        "Compute error: ",
        "Invalid argument error: ",
        "Arithmetic overflow: ",
        "Schema error: ",
        "Execution error: ",
        "Error during planning: ",
        "Optimizer rule ",
        "Object Store error: ",
        "Generic LocalFileSystem error: ",
        "IO error: ",
        "Io error: ",
    ];
    let mut message = message.trim();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest.trim_start();
    }
    message.to_owned()
}

pub(super) fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(start)?;
    rest.split_once(end).map(|(name, _)| name)
}

pub(super) fn first_paragraph(text: &str) -> &str {
    text.split("\n\n").next().unwrap_or(text).trim()
}

/// A message as the others: it starts small, unless with a name, and has no full stop.
pub(super) fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_put_plainly_but_not_in_quotations() {
        for (message, expected) in [
            (
                "cannot cast string 'Utf8 and Int8' to Int32",
                "cannot cast string 'Utf8 and Int8' to INTEGER",
            ),
            ("Utf8 can't be 'it's Utf8' of Int8", "VARCHAR can't be 'it's Utf8' of TINYINT"),
            ("'Int8", "'TINYINT"),
        ] {
            assert_eq!(plain_types(message), expected);
        }
    }
}
