//! Where the bytes of a file come from: the one boundary behind which local files and files elsewhere lie. All that reads Parquet asks
//! for ranges, and how they are put together into requests follows from what a request costs.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use weft_remote::RemoteFile;
use weft_rt::io::{File, IoBuf};

use crate::error::{ReadError, Result};

/// A file that is open for reads of any offset and length.
#[derive(Clone)]
pub enum Handle {
    /// In the file system, read by the worker's reactor.
    Local(File),
    /// In an object store or on a web server, read by requests that other threads carry out.
    Remote(RemoteFile),
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handle::Local(_) => formatter.write_str("Local"),
            Handle::Remote(file) => write!(formatter, "{file:?}"),
        }
    }
}

/// How ranges become requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coalescing {
    /// Bytes between two ranges that are read with them, at most: reading so much takes no longer than another request.
    pub(crate) gap_bytes: u64,
    /// Bytes of a request for several ranges, at most.
    pub(crate) request_bytes: u64,
    /// Bytes of a file's end that are read first: most footers, and of files elsewhere most page indexes, are smaller.
    pub(crate) tail_bytes: u64,
}

/// For devices: a request takes a tenth of a millisecond.
pub(crate) const LOCAL: Coalescing =
    Coalescing { gap_bytes: 64 << 10, request_bytes: 8 << 20, tail_bytes: 64 << 10 };

/// For stores: a request takes tens of milliseconds.
pub(crate) const REMOTE: Coalescing =
    Coalescing { gap_bytes: 1 << 20, request_bytes: 16 << 20, tail_bytes: 256 << 10 };

impl Handle {
    /// How ranges become requests.
    pub(crate) fn coalescing(&self) -> Coalescing {
        match self {
            Handle::Local(_) => LOCAL,
            Handle::Remote(_) => REMOTE,
        }
    }

    /// Reads a range. A local file is read by the worker that polls; a file elsewhere, wherever this is awaited.
    ///
    /// # Errors
    /// [`ReadError::Io`] and [`ReadError::Remote`].
    pub(crate) async fn read(&self, name: &str, range: &Range<u64>) -> Result<Bytes> {
        match self {
            Handle::Local(file) => {
                let buffer = IoBuf::to_be_filled((range.end - range.start) as usize);
                let (result, buffer) = file.read_exact(buffer, range.start).await;
                match result {
                    Ok(_) => Ok(Bytes::from_owner(Owner(buffer))),
                    Err(source) => Err(ReadError::Io { name: name.to_owned(), source }),
                }
            }
            Handle::Remote(file) => Ok(file.read(range.clone()).await?),
        }
    }
}

/// A buffer that bytes are parts of.
struct Owner(IoBuf);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
