//! Which rows of a node are read: all of them, or those that a scan has selected.

use arrow_buffer::BooleanBuffer;

/// Rows to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// All rows of a node of this many.
    All(usize),
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

    /// Rows of the node.
    pub(crate) fn of(self) -> usize {
        match self {
            Self::All(of) | Self::Picked { of, .. } => of,
        }
    }

    /// Rows to read.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::All(of) => of,
            Self::Picked { rows, .. } => rows.len(),
        }
    }

    /// The bit of each row to read, of the bits of all rows.
    pub(crate) fn pick_bits(self, bits: BooleanBuffer) -> BooleanBuffer {
        match self {
            Self::All(_) => bits,
            Self::Picked { rows, .. } => {
                BooleanBuffer::collect_bool(rows.len(), |i| bits.value(rows[i] as usize))
            }
        }
    }

    /// Where the value of row `row` goes, if it is read.
    pub(crate) fn position(self, row: usize) -> Option<usize> {
        match self {
            Self::All(of) => (row < of).then_some(row),
            Self::Picked { rows, .. } => rows.binary_search(&u32::try_from(row).ok()?).ok(),
        }
    }
}
