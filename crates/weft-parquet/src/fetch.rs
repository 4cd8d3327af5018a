//! Reads byte ranges of a file: ranges that are near to each other by one request, and all requests at once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::try_join_all;

use crate::error::Result;
use crate::handle::{Coalescing, Handle};

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

    /// Requests to the system, or to stores.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// The bytes of these ranges, in their order. Of a local file, on a worker.
///
/// # Errors
/// If there are not so many, or the system or the store has another reason.
pub(crate) async fn fetch(
    file: &Handle,
    name: &str,
    ranges: &[Range<u64>],
    counts: &ReadCounts,
) -> Result<Vec<Bytes>> {
    let requests = coalesced(ranges, file.coalescing());
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

async fn read(
    file: &Handle,
    name: &str,
    request: &Range<u64>,
    counts: &ReadCounts,
) -> Result<Bytes> {
    counts.bytes.fetch_add(request.end - request.start, Ordering::Relaxed);
    counts.requests.fetch_add(1, Ordering::Relaxed);
    file.read(name, request).await
}

/// The requests that all ranges lie in, by their starts.
fn coalesced(ranges: &[Range<u64>], how: Coalescing) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> =
        ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut requests: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match requests.last_mut() {
            // What lies in the request, or reaches out of it, is read with it in any case.
            Some(last)
                if range.start < last.end
                    || (range.start - last.end <= how.gap_bytes
                        && range.end - last.start <= how.request_bytes) =>
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
    use crate::handle::{LOCAL, REMOTE};

    #[test]
    fn near_ranges_are_read_together() {
        for how in [LOCAL, REMOTE] {
            let of = |ranges: &[Range<u64>]| coalesced(ranges, how);
            let gap = how.gap_bytes;
            assert!(of(&[10..20, 0..5, 20..30]).into_iter().eq(std::iter::once(0..30)));
            let end = 2 * gap;
            assert!(of(&[0..5, 5 + gap..end]).into_iter().eq(std::iter::once(0..end)));
            let far = 6 + gap;
            assert_eq!(of(&[0..5, far..far + 1]), [0..5, far..far + 1]);
            assert!(of(&[0..9, 3..3, 2..4]).into_iter().eq(std::iter::once(0..9)));
            let large = how.request_bytes;
            assert_eq!(of(&[0..large, large..large + 1]), [0..large, large..large + 1]);
            assert_eq!(of(&[]), []);
        }
    }
}
