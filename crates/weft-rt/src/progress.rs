//! How far a statement has come, counted with relaxed atomics by the workers that run it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that any number of threads add to. Units are whatever the statement is cut into
/// (morsels, pages, row groups); the fraction done is told in units.
#[derive(Debug, Default)]
pub struct Progress {
    units_total: AtomicU64,
    units_done: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    spilled_bytes_raw: AtomicU64,
    spilled_bytes: AtomicU64,
    rows: AtomicU64,
    /// The bits of the largest fraction that was told.
    told: AtomicU64,
}

/// The counters at about one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// Units known so far to be there to do.
    pub units_total: u64,
    /// Units done.
    pub units_done: u64,
    /// Bytes read from devices.
    pub bytes_read: u64,
    /// Bytes written to devices, what is spilled not among them.
    pub bytes_written: u64,
    /// Bytes that operators have spilled, before compression.
    pub spilled_bytes_raw: u64,
    /// The same as written to disk.
    pub spilled_bytes: u64,
    /// Bytes of the memory budget that are in use by all statements, beside caches; 0 if whoever counts does not know.
    pub memory_bytes: u64,
    /// Rows processed.
    pub rows: u64,
}

impl Progress {
    /// Nothing to do, nothing done.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// Announces `units` more to do.
    pub fn add_total(&self, units: u64) {
        self.units_total.fetch_add(units, Ordering::Relaxed);
    }

    /// Takes back `units` that were announced and are not there to do, or are announced by somebody else.
    pub fn remove_total(&self, units: u64) {
        self.units_total.fetch_sub(units, Ordering::Relaxed);
    }

    /// Counts `units` as done.
    pub fn add_done(&self, units: u64) {
        self.units_done.fetch_add(units, Ordering::Relaxed);
    }

    /// Counts `bytes` as read.
    pub fn add_bytes_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` as written.
    pub fn add_bytes_written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `raw_bytes` as spilled, as `written_bytes` on disk.
    pub fn add_spilled(&self, raw_bytes: u64, written_bytes: u64) {
        self.spilled_bytes_raw.fetch_add(raw_bytes, Ordering::Relaxed);
        self.spilled_bytes.fetch_add(written_bytes, Ordering::Relaxed);
    }

    /// Counts `rows` as processed.
    pub fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// All counters. They are read one after the other while others count.
    pub fn snapshot(&self) -> ProgressSnapshot {
        // What is done is read first, so that it is rarely above the total that goes with it.
        let units_done = self.units_done.load(Ordering::Relaxed);
        ProgressSnapshot {
            units_done,
            units_total: self.units_total.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            spilled_bytes_raw: self.spilled_bytes_raw.load(Ordering::Relaxed),
            spilled_bytes: self.spilled_bytes.load(Ordering::Relaxed),
            memory_bytes: 0,
            rows: self.rows.load(Ordering::Relaxed),
        }
    }

    /// A snapshot to be shown: of the units that are known, no smaller part is done than was shown before, although more may have
    /// become known meanwhile.
    pub fn told(&self, mut snapshot: ProgressSnapshot) -> ProgressSnapshot {
        // The bits of positive numbers are in the order of the numbers.
        let now = snapshot.fraction();
        let most = f64::from_bits(self.told.fetch_max(now.to_bits(), Ordering::Relaxed));
        if most > now {
            let done = (most * snapshot.units_total as f64).ceil() as u64;
            snapshot.units_done = done.min(snapshot.units_total);
        }
        snapshot
    }

    /// [`ProgressSnapshot::fraction`] of the counters now.
    pub fn fraction(&self) -> f64 {
        self.snapshot().fraction()
    }
}

impl ProgressSnapshot {
    /// Share of the units that is done, from 0 to 1; 0 while none has been announced.
    pub fn fraction(&self) -> f64 {
        if self.units_total == 0 {
            return 0.0;
        }
        (self.units_done as f64 / self.units_total as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_among_threads() {
        let progress = Progress::new();
        assert_eq!(progress.fraction(), 0.0);
        progress.add_total(8_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        progress.add_done(1);
                        progress.add_rows(10);
                        progress.add_bytes_read(100);
                        progress.add_bytes_written(3);
                        progress.add_spilled(5, 2);
                        assert!(progress.fraction() <= 0.5);
                    }
                });
            }
        });
        assert_eq!(progress.fraction(), 0.5);
        let snapshot = progress.snapshot();
        assert_eq!((snapshot.units_total, snapshot.units_done), (8_000, 4_000));
        assert_eq!(snapshot.rows, 40_000);
        assert_eq!((snapshot.bytes_read, snapshot.bytes_written), (400_000, 12_000));
        assert_eq!((snapshot.spilled_bytes_raw, snapshot.spilled_bytes), (20_000, 8_000));
        progress.add_done(9_000);
        assert_eq!(progress.fraction(), 1.0);
    }

    #[test]
    fn what_is_told_never_falls() {
        let progress = Progress::new();
        assert_eq!(progress.told(progress.snapshot()).fraction(), 0.0);
        progress.add_total(10);
        progress.add_done(6);
        assert_eq!(progress.told(progress.snapshot()).fraction(), 0.6);
        progress.add_total(20);
        assert_eq!(progress.fraction(), 0.2);
        assert_eq!(progress.told(progress.snapshot()).fraction(), 0.6);
        progress.add_done(18);
        assert_eq!(progress.told(progress.snapshot()).units_done, 24);
    }
}
