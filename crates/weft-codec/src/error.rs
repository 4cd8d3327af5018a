//! What can be wrong with the bytes of a block, or with a request to encode or decode one.

use arrow_schema::DataType;

/// Why a block cannot be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The block ends before what its encoding needs.
    #[error(
        "the block is damaged: {encoding} needs {needed} more bytes, {left} are left; \
         restore it from a backup or load the table again"
    )]
    Truncated {
        /// The encoding, or the part of the block, that was being read.
        encoding: &'static str,
        /// How many bytes it needed, in bytes.
        needed: usize,
        /// How many bytes there are, in bytes.
        left: usize,
    },
    /// The bytes say something impossible.
    #[error(
        "the block is damaged: {encoding}: {what}; restore it from a backup or load the table again"
    )]
    Damaged {
        /// The encoding, or the part of the block, that was being read.
        encoding: &'static str,
        /// What is wrong.
        what: String,
    },
    /// An array is too long for one block.
    #[error("a block holds at most {max} rows, not {rows}: split the array", max = crate::MAX_ROWS)]
    TooManyRows {
        /// Rows of the array.
        rows: usize,
    },
    /// The strings of an array are too long for one block.
    #[error(
        "a block holds at most {max} bytes, not {bytes}: split the array into shorter blocks",
        max = crate::MAX_BODY_BYTES
    )]
    TooManyBytes {
        /// Bytes of the encoded strings.
        bytes: usize,
    },
    /// The lists and structs of an array hold too many values for one block, or a damaged block says so.
    #[error(
        "the lists and structs of a block hold at most {max} values: split the array into shorter blocks",
        max = crate::MAX_VALUES
    )]
    TooManyValues,
    /// The type of an array has no physical type here.
    #[error(
        "columns of type {0} cannot be encoded: cast them to a supported type, with at most {max} lists and structs \
         within each other",
        max = crate::nested::MAX_NESTING
    )]
    UnsupportedType(DataType),
    /// A block was asked for as a type that it does not hold.
    #[error("the block holds {physical} values, not {requested}: check the schema of the table")]
    WrongType {
        /// What the block holds.
        physical: crate::Physical,
        /// What was asked for.
        requested: DataType,
    },
    /// A predicate that values of this type cannot satisfy or not.
    #[error(
        "the block holds {physical} values, {predicate} is no predicate on these: compare with a value of the column's type"
    )]
    WrongPredicate {
        /// What the block holds.
        physical: crate::Physical,
        /// The predicate.
        predicate: String,
    },
    /// A selection of another number of rows than the block's.
    #[error(
        "the block has {rows} rows, a selection of {selected} rows was given: pass a bit per row"
    )]
    WrongSelection {
        /// Rows of the selection.
        selected: usize,
        /// Rows of the block.
        rows: usize,
    },
    /// A row beyond the end of the block.
    #[error("the block has {rows} rows, there is no row {row}: rows count from 0")]
    NoSuchRow {
        /// The row asked for.
        row: usize,
        /// Rows of the block.
        rows: usize,
    },
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

/// The error for bytes that `encoding` cannot have written.
pub(crate) fn damaged(encoding: &'static str, what: impl Into<String>) -> Error {
    Error::Damaged { encoding, what: what.into() }
}
