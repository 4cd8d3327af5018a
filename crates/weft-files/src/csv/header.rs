//! Names of columns.

use super::options::CsvOptions;
use crate::names::distinct;

/// The names of columns: those of a header, of options, and `column0`, `column1`, … for those that have none. A name
/// that is there already, whatever the case of its letters, gets `_1`, `_2`, …
pub(crate) fn names(header: Option<&[String]>, width: usize, options: &CsvOptions) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(width);
    for number in 0..width {
        let given = options.names.get(number).map(String::as_str);
        let found = header.and_then(|header| header.get(number)).map(|name| name.trim());
        let name = match given.or(found).filter(|name| !name.is_empty()) {
            Some(name) if options.normalize_names => normalized(name),
            Some(name) => name.to_owned(),
            None => format!("column{number}"),
        };
        names.push(name);
    }
    distinct(&mut names);
    names
}

/// A name of lower case letters, digits and underscores.
fn normalized(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    let name = words.join("_");
    match name.chars().next() {
        None => "_".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(header: &[&str]) -> Vec<String> {
        let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
        names(Some(&header), header.len(), &CsvOptions::default())
    }

    #[test]
    fn names_are_there_and_distinct() {
        assert_eq!(named(&["a", "a", "", "b"]), ["a", "a_1", "column2", "b"]);
        assert_eq!(named(&["A", "a", "a_1", "a"]), ["A", "a_2", "a_1", "a_3"]);
        assert_eq!(named(&[" a ", "column0", ""]), ["a", "column0", "column2"]);
        assert_eq!(named(&["", "column0"]), ["column0", "column0_1"]);
    }

    #[test]
    fn normalized_names() {
        assert_eq!(normalized("Total (EUR)"), "total_eur");
        assert_eq!(normalized("2020"), "_2020");
        assert_eq!(normalized("??"), "_");
    }
}
