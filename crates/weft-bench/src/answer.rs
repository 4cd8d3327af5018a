//! Reference answers of SQL queries, and whether a result is one.
//!
//! Numbers are compared as numbers, everything else as text, and rows in order only as far as ORDER BY
//! fixes it: the columns that it names must come in the same sequence, the rest is a multiset. Where a
//! LIMIT cuts through ties, the reference has all the rows that may be there.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// How NULL is written in a reference answer.
pub const NULL: &str = "NULL";

/// Relative difference at which numbers are the same: engines differ in the digits of averages.
const TOLERANCE: f64 = 1e-6;

/// Decimals with at least this many digits after the point, on the side that has fewer, may differ by a
/// few in the last of these: averages of decimals are cut off there, and so are the quotients in a sum.
const CUT_SCALE_MIN: usize = 4;

/// How much they may differ there.
const CUT_UNITS: f64 = 3.0;

/// Decimals with at most this many digits after the point, on both sides, must be the same exactly.
const EXACT_SCALE_MAX: usize = 6;

/// Most digits after the point that any number has.
const MAX_DIGITS: usize = 350;

/// A result as text, a row each.
pub type TextRows = Vec<Vec<String>>;

/// The same with little memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRows(String);

impl PackedRows {
    /// What ends a row, and what is between its values: values have neither.
    const ROW_END: char = '\u{1e}';
    const BETWEEN: &str = "\u{1f}";

    /// These rows.
    pub fn of(rows: &[Vec<String>]) -> PackedRows {
        let mut text = String::new();
        for row in rows {
            text += &row.join(Self::BETWEEN);
            text.push(Self::ROW_END);
        }
        text.shrink_to_fit();
        PackedRows(text)
    }

    /// The rows.
    pub fn unpack(&self) -> TextRows {
        let rows = self.0.split_terminator(Self::ROW_END);
        rows.map(|row| row.split(Self::BETWEEN).map(str::to_owned).collect()).collect()
    }
}

/// What a query has to return.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    rows: TextRows,
    order_keys: Vec<usize>,
    limit: usize,
    keys_only: bool,
}

/// Why an answer is not the reference, or the reference is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The reference cannot be read.
    #[error("the reference answer is not usable: {0}; restore the file")]
    Reference(String),
    /// Not the number of rows.
    #[error("{found} rows instead of {expected}")]
    Rows {
        /// Rows of the result.
        found: usize,
        /// Rows there should be.
        expected: usize,
    },
    /// The columns of ORDER BY have another sequence.
    #[error("row {row} has ({found}) in the columns of ORDER BY instead of ({expected})")]
    Order {
        /// Number of the row, from 1.
        row: usize,
        /// Key of the result.
        found: String,
        /// Key it should have.
        expected: String,
    },
    /// A row that is not in the reference, or not as often.
    #[error("row {row} is ({found}), which the reference lacks; its row {row} is ({expected})")]
    Row {
        /// Number of the row, from 1.
        row: usize,
        /// Row of the result.
        found: String,
        /// Row of the reference in its place.
        expected: String,
    },
}

impl Answer {
    /// The answer in the text of a CSV file with a header line. `order_keys` are the columns (from 0)
    /// that ORDER BY names, `limit` is what LIMIT says.
    ///
    /// # Errors
    /// [`AnswerError::Reference`] if the text is not CSV.
    pub fn parse(
        csv: &str,
        order_keys: &[usize],
        limit: Option<usize>,
    ) -> Result<Answer, AnswerError> {
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let rows: Result<TextRows, csv::Error> = reader
            .records()
            .map(|record| Ok(record?.iter().map(str::to_owned).collect()))
            .collect();
        let rows = rows.map_err(|error| AnswerError::Reference(error.to_string()))?;
        Ok(Answer::of_rows(rows, order_keys, limit))
    }

    /// The answer in rows of text.
    pub fn of_rows(rows: TextRows, order_keys: &[usize], limit: Option<usize>) -> Answer {
        let limit = limit.unwrap_or(usize::MAX).min(rows.len());
        Answer { rows, order_keys: order_keys.to_vec(), limit, keys_only: false }
    }

    /// What later runs must return, after a run that returned `rows`. Where these may have been cut
    /// off at ties, only the columns of ORDER BY are compared.
    pub fn of_run(rows: TextRows, order_keys: &[usize], limit: Option<usize>) -> Answer {
        let is_cut = limit == Some(rows.len());
        let mut answer = Answer::of_rows(rows, order_keys, limit);
        answer.keys_only = is_cut;
        answer
    }

    /// Rows that a result has.
    pub fn row_count(&self) -> usize {
        self.limit
    }

    /// Checks a result.
    ///
    /// # Errors
    /// [`AnswerError`] with the first difference.
    pub fn check(&self, found: &[Vec<String>]) -> Result<(), AnswerError> {
        if found.len() != self.limit {
            return Err(AnswerError::Rows { found: found.len(), expected: self.limit });
        }
        let key = |row: &[String]| -> Vec<String> {
            self.order_keys.iter().filter_map(|&column| row.get(column).cloned()).collect()
        };
        let mut unused = vec![true; self.rows.len()];
        let mut first_unused = 0;
        for (index, row) in found.iter().enumerate() {
            let expected = &self.rows[index];
            if !same_row(&key(row), &key(expected)) {
                return Err(AnswerError::Order {
                    row: index + 1,
                    found: key(row).join(", "),
                    expected: key(expected).join(", "),
                });
            }
            if self.keys_only {
                continue;
            }
            while unused.get(first_unused) == Some(&false) {
                first_unused += 1;
            }
            let matching = |&other: &usize| unused[other] && same_row(row, &self.rows[other]);
            match (first_unused..self.rows.len()).find(matching) {
                Some(other) => unused[other] = false,
                None => {
                    return Err(AnswerError::Row {
                        row: index + 1,
                        found: row.join(", "),
                        expected: expected.join(", "),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The number that the last LIMIT of a query gives, if it ends with one.
pub fn limit_of(sql: &str) -> Option<usize> {
    let mut words = sql.trim_end().trim_end_matches(';').split_whitespace().rev();
    let number = words.next()?.parse().ok()?;
    words.next()?.eq_ignore_ascii_case("limit").then_some(number)
}

/// The order keys of each query, by name, of a file `order_keys.csv`.
///
/// # Errors
/// [`AnswerError::Reference`] if the text is not such a file.
pub fn parse_order_keys(csv: &str) -> Result<Vec<(String, Vec<usize>)>, AnswerError> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let lines = reader.records().map(|record| {
        let record = record.map_err(|error| AnswerError::Reference(error.to_string()))?;
        let keys: Result<Vec<usize>, _> =
            record.get(1).unwrap_or("").split_whitespace().map(str::parse).collect();
        let keys = keys.map_err(|_| AnswerError::Reference(format!("order keys {record:?}")))?;
        Ok((record.get(0).unwrap_or("").to_owned(), keys))
    });
    lines.collect()
}

/// A result as text.
///
/// # Errors
/// [`ArrowError`] if a type has no text form.
pub fn text_rows(batches: &[RecordBatch]) -> Result<TextRows, ArrowError> {
    let options = FormatOptions::default().with_null(NULL);
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Result<Vec<ArrayFormatter<'_>>, ArrowError> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect();
        let columns = columns?;
        for row in 0..batch.num_rows() {
            let cells: Result<Vec<String>, ArrowError> =
                columns.iter().map(|column| column.value(row).try_to_string()).collect();
            rows.push(cells?);
        }
    }
    Ok(rows)
}

fn same_row(a: &[String], b: &[String]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
}

fn same_value(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (Some(scale_a), Some(scale_b)) = (scale(a), scale(b)) else { return false };
    if scale_a == scale_b && scale_a <= EXACT_SCALE_MAX {
        return false;
    }
    let cut = match scale_a.min(scale_b) {
        fewer @ CUT_SCALE_MIN..=MAX_DIGITS => CUT_UNITS * 10f64.powi(-(fewer as i32)),
        _ => 0.0,
    };
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= cut.max(TOLERANCE * a.abs().max(b.abs())),
        _ => false,
    }
}

/// Digits after the point of a number, all that there may be for one with an exponent; `None` for
/// other text.
fn scale(text: &str) -> Option<usize> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    match text.split_once('.') {
        _ if text.contains(['e', 'E']) => Some(usize::MAX),
        Some((_, digits)) => Some(digits.len()),
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[&str]) -> TextRows {
        text.iter().map(|row| row.split(' ').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        for (a, b) in [
            ("25.522005", "25.522005853257337"),
            ("0.049985", "0.049985295838"),
            ("1e3", "1000"),
            ("7", "7.00"),
        ] {
            assert!(same_value(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("2456423", "2456424"),
            ("37734107.00", "37734107.01"),
            ("1.5", "1.50001"),
            ("0.0499", "0.051"),
            ("0.04", "0.05"),
            ("NULL", "0"),
            ("abc", "abd"),
            ("-1.25", "1.250"),
        ] {
            assert!(!same_value(a, b), "{a} {b}");
        }
    }

    #[test]
    fn order_counts_only_for_the_keys() {
        let answer = Answer::of_rows(rows(&["1 a", "1 b", "2 c"]), &[0], None);
        assert_eq!(answer.check(&rows(&["1 b", "1 a", "2 c"])), Ok(()));
        let swapped = answer.check(&rows(&["1 a", "2 c", "1 b"]));
        assert!(matches!(swapped, Err(AnswerError::Order { row: 2, .. })), "{swapped:?}");
        let doubled = answer.check(&rows(&["1 a", "1 a", "2 c"]));
        assert!(matches!(doubled, Err(AnswerError::Row { row: 2, .. })), "{doubled:?}");
        let short = answer.check(&rows(&["1 a"]));
        assert!(matches!(short, Err(AnswerError::Rows { found: 1, expected: 3 })), "{short:?}");
    }

    #[test]
    fn ties_at_the_limit_are_all_right() {
        let answer = Answer::of_rows(rows(&["1 a", "2 b", "2 c"]), &[0], Some(2));
        assert_eq!(answer.check(&rows(&["1 a", "2 c"])), Ok(()));
        assert_eq!(answer.check(&rows(&["1 a", "2 b"])), Ok(()));
        assert!(answer.check(&rows(&["1 a", "2 d"])).is_err());
    }

    #[test]
    fn rows_are_packed_and_unpacked() {
        for rows in [vec![], rows(&["1 a", "2 b"]), vec![vec![String::new()]], rows(&["x", "y"])] {
            assert_eq!(PackedRows::of(&rows).unpack(), rows);
        }
    }

    #[test]
    fn limits_are_found_at_the_end() {
        assert_eq!(limit_of("select 1 order by 1\nLIMIT 100;\n"), Some(100));
        assert_eq!(limit_of("select 1 limit 5"), Some(5));
        assert_eq!(limit_of("select (select 2 limit 1)"), None);
        assert_eq!(limit_of("select 100"), None);
    }
}
