//! Single values as text, the same in every mode that is not JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const OPTIONS: FormatOptions<'static> = FormatOptions::new()
    .with_display_error(false)
    .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
    .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
    .with_duration_format(DurationFormat::Pretty);

/// Within lists, structs and maps, strings are quoted and nulls are named.
const NESTED: FormatOptions<'static> = OPTIONS.with_null("NULL").with_quoted_strings(true);

/// A column whose values become text.
pub struct TextColumn<'a> {
    formatter: ArrayFormatter<'a>,
    nulls: Option<NullBuffer>,
}

impl<'a> TextColumn<'a> {
    fn new(array: &'a ArrayRef) -> Result<TextColumn<'a>, ArrowError> {
        let options = if array.data_type().is_nested() { &NESTED } else { &OPTIONS };
        let formatter = ArrayFormatter::try_new(array.as_ref(), options)?;
        Ok(TextColumn { formatter, nulls: array.logical_nulls() })
    }

    /// Appends the value in `row` to `into`; false, and nothing appended, for NULL.
    ///
    /// # Errors
    /// If the value has no text, such as a date beyond the calendar.
    pub fn append(&self, row: usize, into: &mut String) -> Result<bool, ArrowError> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(false);
        }
        self.formatter.value(row).write(into)?;
        Ok(true)
    }

    /// The value in `row`; none for NULL.
    ///
    /// # Errors
    /// As [`TextColumn::append`].
    pub fn get(&self, row: usize) -> Result<Option<String>, ArrowError> {
        let mut text = String::new();
        Ok(self.append(row, &mut text)?.then_some(text))
    }
}

/// The columns of `batch` as text.
///
/// # Errors
/// If a column has a type that cannot be shown.
pub fn columns(batch: &RecordBatch) -> Result<Vec<TextColumn<'_>>, ArrowError> {
    batch.columns().iter().map(TextColumn::new).collect()
}

/// Whether values of a type stand at the right.
pub fn is_right_aligned(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_right_aligned(values),
        other => other.is_numeric(),
    }
}

/// Columns of a terminal that `text` takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// `text` on one line and without control characters, which could steer the terminal.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if is_hidden(c) => {
                let written = write!(shown, "\\u{{{:x}}}", u32::from(c));
                debug_assert!(written.is_ok(), "writing to a string never fails");
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that turn the direction of a line around.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` cut to `columns` of the terminal, with `…` for what is missing.
pub fn shortened(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut taken = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        taken += c.width().unwrap_or(0);
        if taken + 1 > columns {
            break;
        }
        end = at + c.len_utf8();
    }
    Cow::Owned(format!("{}…", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortening_counts_columns() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("abc", 1, "…"),
        ] {
            assert_eq!(shortened(text, columns), expected, "{text} in {columns}");
        }
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(one_line("a\n\t\u{1b}[31m\u{202e}"), "a\\n\\t\\u{1b}[31m\\u{202e}");
        assert_eq!(one_line("é"), "é");
    }
}
