//! What can go wrong with an index.

use arrow_schema::DataType;
use weft_buffer::{BufferError, PageError, PageId};
use weft_rt::io::FileError;
use weft_rt::memory::MemoryError;

/// Why an index could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A page could not be read, is damaged, or cannot be written.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A device failed while the directory of an index was read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No memory for the directory of an index.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A page of the directory is damaged.
    #[error("the directory of the index is damaged: {id:?}: {source}; REINDEX makes it anew")]
    Directory {
        /// The page.
        id: PageId,
        /// What is wrong with it.
        source: PageError,
    },
    /// A node is missing, or leads to nodes that do not fit it.
    #[error("the index is damaged between {low} and {high}: {reason}; REINDEX makes it anew")]
    Damaged {
        /// Where the keys of the damaged part begin, in hexadecimal.
        low: String,
        /// Where they end.
        high: String,
        /// What is wrong.
        reason: String,
    },
    /// A key, with its row's included values, is too long for a node.
    #[error(
        "a row takes {bytes} bytes in the index, of which there may be {bytes_max}: index shorter columns"
    )]
    TooLong {
        /// Bytes of key and included values.
        bytes: usize,
        /// Most bytes.
        bytes_max: usize,
    },
    /// Rows to be loaded are not in the order of their keys, or a key of a unique index is there twice.
    #[error("row {row} has the key of row {other}, or one before it")]
    Order {
        /// Id of the row that does not come after the other.
        row: u64,
        /// Id of the other row, the last one loaded.
        other: u64,
    },
    /// There is no order of values of this type.
    #[error("values of type {data_type} have no order: they cannot be part of a key")]
    KeyType {
        /// The type.
        data_type: DataType,
    },
    /// Columns are not those of the key.
    #[error("the columns do not fit the key: {reason}")]
    KeyColumns {
        /// Why not.
        reason: String,
    },
    /// There is no place for another page.
    #[error("there is no place for another page of the index: {reason}")]
    Space {
        /// Why not.
        reason: String,
    },
}

impl From<Box<IndexError>> for IndexError {
    fn from(error: Box<IndexError>) -> IndexError {
        *error
    }
}
