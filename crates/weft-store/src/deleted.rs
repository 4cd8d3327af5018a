//! Which rows of a row group are deleted. Their values stay where they are until the row group is written anew.

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

use crate::row_group::ROW_GROUP_ROWS_MAX;
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Up to so many deleted rows of a row group are listed on the disk; more are bits.
const LISTED_MAX: u32 = 4096;

/// The rows of a row group that are left of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deleted {
    /// A bit for each row, which is set as long as the row is there.
    live: BooleanBuffer,
    /// Rows that are not.
    rows: u32,
}

impl Deleted {
    /// Of rows whose bits say which of them are there; `None` if all are.
    pub(crate) fn of_live(live: BooleanBuffer) -> Option<Deleted> {
        let rows = (live.len() - live.count_set_bits()) as u32;
        (rows > 0).then_some(Deleted { live, rows })
    }

    /// A bit for each row, which is set as long as the row is there.
    pub(crate) fn live(&self) -> &BooleanBuffer {
        &self.live
    }

    /// The number of deleted rows.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u32(self.rows);
        let gone = !&self.live;
        if self.rows <= LISTED_MAX {
            gone.set_indices().for_each(|row| writer.u16(row as u16));
            return;
        }
        for first in (0..gone.len()).step_by(64) {
            let bits = gone.slice(first, 64.min(gone.len() - first));
            writer.u64(bits.set_indices().fold(0, |word, bit| word | 1 << bit));
        }
    }

    /// Reads the deleted rows of a row group of `rows` rows.
    pub(crate) fn read(reader: &mut Reader<'_>, rows: u32) -> WireResult<Deleted> {
        let count = reader.u32()?;
        if count == 0 || count >= rows || rows as usize > ROW_GROUP_ROWS_MAX {
            return wrong(format!("{count} deleted rows in a row group of {rows}"));
        }
        let mut live = BooleanBufferBuilder::new(rows as usize);
        live.append_n(rows as usize, true);
        if count <= LISTED_MAX {
            for _ in 0..count {
                let row = reader.u16()?;
                if u32::from(row) >= rows {
                    return wrong(format!("row {row} of {rows} is deleted"));
                }
                live.set_bit(row.into(), false);
            }
        } else {
            for first in (0..rows).step_by(64) {
                let word = reader.u64()?;
                let bits = (0..64).filter(|bit| word >> bit & 1 == 1);
                for row in bits.map(|bit| first + bit) {
                    if row >= rows {
                        return wrong(format!("row {row} of {rows} is deleted"));
                    }
                    live.set_bit(row as usize, false);
                }
            }
        }
        match Deleted::of_live(live.finish()) {
            Some(deleted) if deleted.rows == count => Ok(deleted),
            _ => wrong(format!("the deleted rows are not {count}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: u32, is_live: impl Fn(u32) -> bool) {
        let live = BooleanBuffer::collect_bool(rows as usize, |row| is_live(row as u32));
        let deleted = Deleted::of_live(live).unwrap();
        let mut writer = Writer::default();
        deleted.write(&mut writer);
        let mut reader = Reader::new(&writer.0);
        assert_eq!(Deleted::read(&mut reader, rows), Ok(deleted));
        reader.end().unwrap();
        for len in 0..writer.0.len() {
            assert!(Deleted::read(&mut Reader::new(&writer.0[..len]), rows).is_err());
        }
        assert!(Deleted::read(&mut Reader::new(&writer.0), rows / 2).is_err());
    }

    #[test]
    fn few_and_many_deleted_rows_come_back() {
        check(10, |row| row != 9);
        check(65_536, |row| row != 65_535);
        check(65_536, |row| row == 7);
        check(1_000, |row| row % 2 == 0);
        check(60_001, |row| row % 3 == 0);
    }

    #[test]
    fn no_deleted_rows_are_nothing() {
        assert_eq!(Deleted::of_live(BooleanBuffer::new_set(5)), None);
    }
}
