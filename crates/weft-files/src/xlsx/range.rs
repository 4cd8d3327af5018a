//! Places of cells as spreadsheets write them: `B3`, `A1:C10`.

use crate::error::{FilesError, Result};

/// The number of the last row that a sheet may have, from 0 on.
pub(super) const ROW_MAX: u32 = (1 << 20) - 1;

/// The number of the last column that a sheet may have, from 0 on.
pub(super) const COLUMN_MAX: u32 = (1 << 14) - 1;

/// Cells between two rows and two columns, which count from 0 and are within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRange {
    pub(super) first_row: u32,
    pub(super) last_row: u32,
    pub(super) first_column: u32,
    pub(super) last_column: u32,
}

impl CellRange {
    /// Reads `A1:C10`, `A:C` (all rows), `2:5` (all columns) or `A2:C` (all rows from the second one on).
    ///
    /// # Errors
    /// [`FilesError::Option`] for anything else.
    pub fn parse(text: &str) -> Result<CellRange> {
        let wrong = || {
            FilesError::option(format!("the option range cannot be '{text}'"))
                .with_hint("write the first and the last cell, such as 'A1:C10'")
        };
        let (first, last) = text.trim().split_once(':').ok_or_else(wrong)?;
        let (first_column, first_row) = parts(first).ok_or_else(wrong)?;
        let (last_column, last_row) = parts(last).ok_or_else(wrong)?;
        let range = CellRange {
            first_row: first_row.unwrap_or(0),
            last_row: last_row.unwrap_or(ROW_MAX),
            first_column: first_column.unwrap_or(0),
            last_column: last_column.unwrap_or(COLUMN_MAX),
        };
        let is_right = range.first_row <= range.last_row && range.first_column <= range.last_column;
        // Either both sides name columns, or none does.
        if !is_right || first_column.is_some() != last_column.is_some() {
            return Err(wrong());
        }
        Ok(range)
    }
}

/// Column and row of a place, either of which may be missing.
fn parts(place: &str) -> Option<(Option<u32>, Option<u32>)> {
    let place = place.trim().replace('$', "");
    let end = place.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(place.len());
    let (letters, digits) = place.split_at(end);
    if letters.is_empty() && digits.is_empty() {
        return None;
    }
    let column = match letters {
        "" => None,
        letters => Some(column_of(letters.as_bytes())?),
    };
    let row = match digits {
        "" => None,
        digits => Some(row_of(digits.as_bytes())?),
    };
    Some((column, row))
}

/// The number of a column by its letters.
fn column_of(letters: &[u8]) -> Option<u32> {
    if letters.len() > 3 {
        return None;
    }
    let number = letters.iter().try_fold(0_u32, |number, letter| {
        let letter = letter.to_ascii_uppercase();
        letter.is_ascii_uppercase().then(|| number * 26 + u32::from(letter - b'A') + 1)
    })?;
    number.checked_sub(1).filter(|number| *number <= COLUMN_MAX)
}

/// The number of a row by its digits.
pub(super) fn row_of(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 7 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
    number.checked_sub(1).filter(|number| *number <= ROW_MAX)
}

/// Row and column of `B3`.
pub(super) fn cell_of(place: &[u8]) -> Option<(u32, u32)> {
    let end = place.iter().position(|byte| !byte.is_ascii_alphabetic())?;
    let (letters, digits) = place.split_at(end);
    Some((row_of(digits)?, column_of(letters)?))
}

/// The place of a cell as spreadsheets write it.
pub(super) fn cell_name(row: u32, column: u32) -> String {
    let (mut letters, mut rest) = (Vec::new(), column + 1);
    while rest > 0 {
        letters.push(char::from(b'A' + ((rest - 1) % 26) as u8));
        rest = (rest - 1) / 26;
    }
    let letters: String = letters.into_iter().rev().collect();
    format!("{letters}{}", row + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for (place, row, column) in
            [("A1", 0, 0), ("Z9", 8, 25), ("AA10", 9, 26), ("XFD1048576", ROW_MAX, COLUMN_MAX)]
        {
            assert_eq!(cell_of(place.as_bytes()), Some((row, column)), "{place}");
            assert_eq!(cell_name(row, column), place);
        }
        for place in ["", "A", "1", "A0", "XFE1", "A1048577", "AAAA1", "A1B", "A-1", "A99999999999"]
        {
            assert_eq!(cell_of(place.as_bytes()), None, "{place}");
        }
    }

    #[test]
    fn ranges_are_read() {
        let of = |text| {
            CellRange::parse(text)
                .ok()
                .map(|r| (r.first_row, r.last_row, r.first_column, r.last_column))
        };
        assert_eq!(of("A1:C10"), Some((0, 9, 0, 2)));
        assert_eq!(of("$b$2:c3"), Some((1, 2, 1, 2)));
        assert_eq!(of("A:C"), Some((0, ROW_MAX, 0, 2)));
        assert_eq!(of("2:5"), Some((1, 4, 0, COLUMN_MAX)));
        assert_eq!(of("A2:C"), Some((1, ROW_MAX, 0, 2)));
        for wrong in ["", "A1", "C1:A1", "A3:A1", "A1:5", ":", "A1:C10:D3", "ä1:b2"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
