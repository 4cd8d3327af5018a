//! A slower device than there is: all transfers of a runtime together get so many bytes per second.
//!
//! What fewer or slower devices, or a neighbour who uses them too, cost a query can be seen on any machine so (Spilly, sections
//! 6.8 and 6.9, figures 11 and 12; neighbours are in section 4.4). A request goes to the device at once, and its coroutine hears of the completion no sooner than a
//! device of that bandwidth, which serves one request after the other, would have been done with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the transfers of all workers share.
#[derive(Debug, Default)]
pub(crate) struct Bandwidth {
    limit: Mutex<Option<Limit>>,
    /// Transfers that have ended, and their bytes.
    ended: AtomicU64,
    moved: AtomicU64,
}

/// Reads and writes that have ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// How many.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    bytes_per_s: u64,
    /// When the device is done with all that it was asked for so far.
    free_at: Option<Instant>,
}

impl Bandwidth {
    /// Limits what begins from now on.
    ///
    /// # Panics
    /// If the limit is 0.
    pub(crate) fn set(&self, bytes_per_s: Option<u64>) {
        assert_ne!(bytes_per_s, Some(0), "a device moves some bytes");
        let limit = bytes_per_s.map(|bytes_per_s| Limit { bytes_per_s, free_at: None });
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }

    /// Counts a transfer of so many bytes that has ended.
    pub(crate) fn note_moved(&self, bytes: u64) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All that have ended.
    pub(crate) fn transfers(&self) -> Transfers {
        let [count, bytes] = [&self.ended, &self.moved].map(|it| it.load(Ordering::Relaxed));
        Transfers { count, bytes }
    }

    /// When a transfer that begins now is done at the earliest, if there is a limit.
    pub(crate) fn take(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = limit.as_mut()?;
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(limit.bytes_per_s);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 2));
        let begins = limit.free_at.map_or(now, |free_at| free_at.max(now));
        limit.free_at = begins.checked_add(takes);
        limit.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_come_after_each_other() {
        let bandwidth = Bandwidth::default();
        let now = Instant::now();
        assert_eq!(bandwidth.take(1 << 20, now), None);
        bandwidth.set(Some(1_000_000));
        assert_eq!(bandwidth.take(1_000, now), Some(now + Duration::from_millis(1)));
        assert_eq!(bandwidth.take(2_000, now), Some(now + Duration::from_millis(3)));
        let later = now + Duration::from_secs(1);
        assert_eq!(bandwidth.take(1_000, later), Some(later + Duration::from_millis(1)));
        bandwidth.set(None);
        assert_eq!(bandwidth.take(1, later), None);
    }
}
