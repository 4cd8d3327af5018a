//! The names of the output modes.

use std::fmt;

/// The form in which results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Aligned columns in a box that fits the terminal.
    Table,
    /// The same drawn with `+`, `-` and `|`.
    Ascii,
    /// Comma-separated values (RFC 4180).
    Csv,
    /// One JSON array with an object per row.
    Json,
    /// A JSON object per line.
    JsonLines,
    /// A Markdown table.
    Markdown,
    /// A line per value, an empty line between rows.
    Line,
    /// Values separated by `|`.
    List,
    /// Values separated by tabs.
    Tabs,
}

/// Every mode, its name, other names for it, and what it is.
const MODES: [(Mode, &str, &[&str], &str); 9] = [
    (Mode::Table, "table", &["box", "duckbox", "column"], "aligned columns, fits the terminal"),
    (Mode::Ascii, "ascii", &[], "the same drawn with + - |"),
    (Mode::Csv, "csv", &[], "comma-separated values with a header line"),
    (Mode::Json, "json", &[], "an array of objects"),
    (Mode::JsonLines, "jsonlines", &["ndjson", "jsonl"], "an object per line"),
    (Mode::Markdown, "markdown", &["md"], "a Markdown table"),
    (Mode::Line, "line", &["lines"], "a line per value"),
    (Mode::List, "list", &[], "values separated by |"),
    (Mode::Tabs, "tabs", &["tsv"], "values separated by tabs"),
];

impl Mode {
    /// The mode called `name`.
    pub fn named(name: &str) -> Option<Mode> {
        let is_called = |known: &&str| known.eq_ignore_ascii_case(name);
        MODES
            .iter()
            .find(|(_, first, others, _)| is_called(first) || others.iter().any(is_called))
            .map(|(mode, ..)| *mode)
    }

    /// The names of all modes, with what each is.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        MODES.iter().map(|(_, name, _, what)| (*name, *what))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = MODES.iter().find(|(mode, ..)| mode == self);
        f.write_str(known.map_or("", |(_, name, ..)| name))
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Mode, String> {
        let names: Vec<_> = Mode::all().map(|(name, _)| name).collect();
        Mode::named(name).ok_or_else(|| format!("the modes are {}", names.join(", ")))
    }
}
