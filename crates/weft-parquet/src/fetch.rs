//! Reads byte ranges of a file: ranges that are near to each other by one request, and all requests at once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::try_join_all;
use weft_rt::io::{File, IoBuf};

use crate::error::{ReadError, Result};

/// Bytes between two ranges that are read with them, at most: reading so much takes no longer than another request.
const GAP_BYTES: u64 = 64 << 10;

/// Bytes of a request for several ranges, at most.
const REQUEST_BYTES: u64 = 8 << 20;

/// What was read.
#[derive(Debug, Default)]
pub struct ReadCounts {
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl ReadCounts {
    /// Bytes that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests to the system.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A buffer that bytes are parts of.
struct Owner(IoBuf);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes of these ranges, in their order. On a worker.
///
/// # Errors
/// [`ReadError::Io`] if there are not so many, or the system has another reason.
pub(crate) async fn fetch(
    file: &File,
    name: &str,
    ranges: &[Range<u64>],
    counts: &ReadCounts,
) -> Result<Vec<Bytes>> {
    let requests = coalesced(ranges);
    let read = requests.iter().map(|request| read(file, name, request, counts));
    let read = try_join_all(read).await?;
    let bytes = ranges.iter().map(|range| {
        let number = requests.partition_point(|request| request.start <= range.start);
        match number.checked_sub(1).filter(|_| !range.is_empty()) {
            Some(number) => {
                let start = (range.start - requests[number].start) as usize;
                read[number].slice(start..start + (range.end - range.start) as usize)
            }
            None => Bytes::new(),
        }
    });
    Ok(bytes.collect())
}

async fn read(file: &File, name: &str, request: &Range<u64>, counts: &ReadCounts) -> Result<Bytes> {
    let len = request.end - request.start;
    counts.bytes.fetch_add(len, Ordering::Relaxed);
    counts.requests.fetch_add(1, Ordering::Relaxed);
    let (result, buffer) = file.read_exact(IoBuf::to_be_filled(len as usize), request.start).await;
    match result {
        Ok(_) => Ok(Bytes::from_owner(Owner(buffer))),
        Err(source) => Err(ReadError::Io { name: name.to_owned(), source }),
    }
}

/// The requests that all ranges lie in, by their starts.
fn coalesced(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> =
        ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut requests: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match requests.last_mut() {
            // What lies in the request, or reaches out of it, is read with it in any case.
            Some(last)
                if range.start < last.end
                    || (range.start - last.end <= GAP_BYTES
                        && range.end - last.start <= REQUEST_BYTES) =>
            {
                last.end = last.end.max(range.end);
            }
            _ => requests.push(range),
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_read_together() {
        assert!(coalesced(&[10..20, 0..5, 20..30]).into_iter().eq(std::iter::once(0..30)));
        assert!(
            coalesced(&[0..5, 5 + GAP_BYTES..100_000]).into_iter().eq(std::iter::once(0..100_000))
        );
        let far = 6 + GAP_BYTES;
        assert_eq!(coalesced(&[0..5, far..far + 1]), [0..5, far..far + 1]);
        assert!(coalesced(&[0..9, 3..3, 2..4]).into_iter().eq(std::iter::once(0..9)));
        let large = REQUEST_BYTES;
        assert_eq!(coalesced(&[0..large, large..large + 1]), [0..large, large..large + 1]);
        assert_eq!(coalesced(&[]), []);
    }
}
