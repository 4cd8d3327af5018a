//! Redo records: what a transaction has made of rows, as the log and checkpoints have it.
//!
//! A record is a tag, the table's id, the row's id, and the bytes of the row after their length. Indexes have
//! no records: their keys are made of the rows again.

use crate::error::{Result, TxnError};
use crate::version::Kind;

const ROW: u8 = 1;
const DELETED: u8 = 2;
const HEAD_BYTES: usize = 1 + 4 + 8 + 4;

/// Appends a record.
pub(crate) fn append(redo: &mut Vec<u8>, table: u32, row: u64, kind: Kind, bytes: &[u8]) {
    let (tag, bytes) = match kind {
        Kind::Row => (ROW, bytes),
        Kind::Deleted => (DELETED, &[][..]),
    };
    redo.push(tag);
    redo.extend_from_slice(&table.to_le_bytes());
    redo.extend_from_slice(&row.to_le_bytes());
    redo.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    redo.extend_from_slice(bytes);
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) table: u32,
    pub(crate) row: u64,
    /// `None` if the row was deleted.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Takes the first record off; `None` if there is none. `file` is what an error names.
pub(crate) fn next<'a>(rest: &mut &'a [u8], file: &str) -> Result<Option<Record<'a>>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let damaged = || TxnError::LogDamaged {
        file: file.into(),
        offset: 0,
        reason: "a record is cut off, or is none, although its checksum is right".into(),
    };
    let (head, behind) = rest.split_at_checked(HEAD_BYTES).ok_or_else(damaged)?;
    let table = u32::from_le_bytes(head[1..5].try_into().expect("4 bytes"));
    let row = u64::from_le_bytes(head[5..13].try_into().expect("8 bytes"));
    let len = u32::from_le_bytes(head[13..17].try_into().expect("4 bytes")) as usize;
    let (bytes, behind) = behind.split_at_checked(len).ok_or_else(damaged)?;
    let bytes = match head[0] {
        ROW => Some(bytes),
        DELETED if bytes.is_empty() => None,
        _ => return Err(damaged()),
    };
    *rest = behind;
    Ok(Some(Record { table, row, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let mut redo = Vec::new();
        append(&mut redo, 7, 1 << 40, Kind::Row, b"bytes");
        append(&mut redo, 8, 3, Kind::Deleted, b"keys that are not logged");
        let mut rest = &redo[..];
        let first = Record { table: 7, row: 1 << 40, bytes: Some(b"bytes") };
        assert_eq!(next(&mut rest, "log").unwrap(), Some(first));
        assert_eq!(next(&mut rest, "log").unwrap(), Some(Record { table: 8, row: 3, bytes: None }));
        assert_eq!(next(&mut rest, "log").unwrap(), None);
        for len in (1..redo.len()).filter(|&len| len != HEAD_BYTES + 5) {
            let mut rest = &redo[..len];
            let records = std::iter::from_fn(|| next(&mut rest, "log").transpose());
            assert!(records.take(3).any(|record| record.is_err()), "cut off after {len}");
        }
    }
}
