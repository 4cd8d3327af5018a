//! Which rows of a node are read: all of them, a range, or those that a scan has selected.

use arrow_buffer::BooleanBuffer;

use crate::lane::CHUNK;

/// Rows to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// All rows of a node of this many.
    All(usize),
    /// `len` rows of a node of `of` rows, from a whole number of chunks on.
    Range { of: usize, start: usize, len: usize },
    /// Some rows of a node of `of` rows: strictly ascending, all below `of`.
    Picked { of: usize, rows: &'a [u32] },
}

impl<'a> Rows<'a> {
    /// The rows `rows` of `of`, which the caller has taken from a mask or sorted.
    pub(crate) fn picked(of: usize, rows: &'a [u32]) -> Self {
        debug_assert!(rows.is_sorted_by(|a, b| a < b), "rows ascend");
        assert!(rows.last().is_none_or(|&last| (last as usize) < of), "rows of the node");
        Self::Picked { of, rows }
    }

    /// `len` rows of `of` from row `start` on, with which a chunk begins.
    pub(crate) fn range(of: usize, start: usize, len: usize) -> Self {
        assert!(start.is_multiple_of(CHUNK) && start + len <= of, "chunks of the node");
        if len == of { Self::All(of) } else { Self::Range { of, start, len } }
    }

    /// Rows of the node.
    pub(crate) fn of(self) -> usize {
        match self {
            Self::All(of) | Self::Range { of, .. } | Self::Picked { of, .. } => of,
        }
    }

    /// Rows to read.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::All(len) | Self::Range { len, .. } => len,
            Self::Picked { rows, .. } => rows.len(),
        }
    }

    /// The bit of each row to read, of the bits of all rows.
    pub(crate) fn pick_bits(self, bits: BooleanBuffer) -> BooleanBuffer {
        match self {
            Self::All(_) => bits,
            Self::Range { start, len, .. } => bits.slice(start, len),
            Self::Picked { rows, .. } => {
                BooleanBuffer::collect_bool(rows.len(), |i| bits.value(rows[i] as usize))
            }
        }
    }

    /// Where the value of row `row` goes, if it is read.
    pub(crate) fn position(self, row: usize) -> Option<usize> {
        match self {
            Self::All(of) => (row < of).then_some(row),
            Self::Range { start, len, .. } => row.checked_sub(start).filter(|row| *row < len),
            Self::Picked { rows, .. } => rows.binary_search(&u32::try_from(row).ok()?).ok(),
        }
    }
}
