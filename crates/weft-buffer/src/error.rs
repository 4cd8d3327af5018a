//! What can go wrong with pages.

use std::io;
use std::path::PathBuf;

use weft_rt::io::FileError;
use weft_rt::memory::MemoryError;

use crate::page::{PageError, PageId};

/// Why a page could not be brought into memory, or to its device.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// The device failed, or the file ends too early.
    #[error(transparent)]
    Read(#[from] FileError),
    /// The bytes read are not the page.
    #[error("{id:?} in {path} is damaged: {source}")]
    Page {
        /// The file that the page was read from.
        path: PathBuf,
        /// The page.
        id: PageId,
        /// What is wrong with it.
        source: PageError,
    },
    /// The table has no page of this number now.
    #[error("there is no page {page} in the table")]
    Vacant {
        /// Number of the page in its table.
        page: usize,
    },
    /// A changed page could not be written to its device; it stays in memory, changed.
    #[error("cannot write the changed {id:?}, which stays in memory: {source}")]
    WriteBack {
        /// The page.
        id: PageId,
        /// What the device said.
        source: FileError,
    },
    /// A page id names a device that the pool does not have.
    #[error(
        "{id:?} is on a device that this database does not have ({devices} devices): add it again"
    )]
    Device {
        /// The page.
        id: PageId,
        /// Number of devices that there are.
        devices: usize,
    },
    /// No address space for frames.
    #[error("cannot map {bytes} bytes for pages: {source}")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The memory budget has no room for the page, even when nothing else is in memory.
    #[error(transparent)]
    Budget(#[from] MemoryError),
}
