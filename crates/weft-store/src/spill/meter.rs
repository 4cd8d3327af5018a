//! How fast devices are, read off the pieces that go there or come from there.
//!
//! A piece that begins when many are on their way, and whose end a worker sees that slept until then, has kept the device busy from its
//! beginning to its end: what was moved meanwhile, by that time, is the bandwidth. All that is read and written counts, as what tables
//! are read for takes its part of the device. (It is the latency in a request's user data by the requests in flight of Spilly, section
//! 4.4, without what a worker adds that computes instead of looking: that may be many times as much.) A device for which no worker
//! sleeps may be faster than is known.
//!
//! Some devices take as long for a small request as for one that is four times as large: nothing is gained there by moving less. So
//! it is also learned how much longer those take that are larger than others of about the same time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weft_rt::io::Transfers;
use weft_rt::{now, transfers};

/// So many pieces on their way keep a device busy.
const BUSY_PIECES: usize = 8;

/// Of their bytes, the part that is moved at least until the last of them has ended, if that is so: workers that compute do not see
/// what has ended, and it seems to be on its way.
const BUSY_PART: u64 = 2;

/// Bytes after which what was known before counts half.
const WINDOW_BYTES: f64 = (8 << 20) as f64;

/// The same of how the time of a piece depends on its size, which is the device's way.
const SHAPE_BYTES: f64 = (128 << 20) as f64;

/// So many pieces at a time are compared with the ones before, for that: the last may have ended, or not, when the worker looks.
const COMPARED_PIECES: f64 = 64.0;

/// Until sizes differ by more than this part, pieces are taken to need as long as their bytes.
const SIZES_DIFFER: f64 = 0.01;

/// If a piece takes by more than this part longer or shorter than its size can say, the device has become another.
const DEVICE_DIFFERS: f64 = 0.5;

/// How much faster than known a device may be that has delivered a window while no worker slept.
const DRIFT: f64 = 1.1;

/// After so many windows it is not presumed to be faster still.
const DRIFTS_MAX: u32 = 30;

/// Reads or writes of an area.
#[derive(Debug, Default)]
pub(super) struct Meter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// On their way.
    pieces: usize,
    /// Until when what was moved has been counted.
    counted: Option<Moment>,
    /// What was moved while the device was busy, and the time of that; what is older counts less.
    busy: Busy,
    shape: Shape,
    /// That was two windows of bytes once.
    is_known: bool,
    /// What was delivered since then while no worker slept.
    other_bytes: f64,
    /// How often it has been presumed to be faster since.
    drifted: u32,
}

/// What was moved in which time.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    pieces: f64,
    bytes: f64,
    seconds: f64,
}

impl Busy {
    fn add(&mut self, other: Busy) {
        let Busy { pieces, bytes, seconds } = other;
        self.pieces += pieces;
        self.bytes += bytes;
        self.seconds += seconds;
    }

    /// What is older than a window counts half, when there are two.
    fn forget(&mut self) {
        if self.bytes >= 2.0 * WINDOW_BYTES {
            *self = Busy {
                pieces: self.pieces / 2.0,
                bytes: self.bytes / 2.0,
                seconds: self.seconds / 2.0,
            };
        }
    }

    /// Bytes of a piece, and its seconds.
    fn piece(&self) -> [f64; 2] {
        [self.bytes, self.seconds].map(|sum| sum / self.pieces)
    }
}

/// How the time of a piece depends on its size: what differs from one observation to the next, as a part of both, squared or
/// multiplied. Whatever makes the device slower for a while does not matter so.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// What is observed now.
    now: Busy,
    /// What was observed last: bytes of a piece, and its seconds.
    before: Option<[f64; 2]>,
    bytes: f64,
    observed: f64,
    sizes: f64,
    sizes_times: f64,
}

impl Shape {
    fn add(&mut self, moved: Busy) {
        // What is seen with others, when a worker wakes, has no time of its own.
        if moved.seconds > 0.0 && self.now.pieces >= COMPARED_PIECES {
            let observed = std::mem::take(&mut self.now);
            self.observe(observed);
        }
        self.now.add(moved);
    }

    /// Compares what was moved with what was before.
    fn observe(&mut self, now: Busy) {
        let Some(before) = self.before.replace(now.piece()) else { return };
        let differs = |at: usize| {
            let (before, now) = (before[at], now.piece()[at]);
            2.0 * (now - before) / (now + before)
        };
        let (size, time) = (differs(0), differs(1));
        // It is between none and all of the time that depends on the size.
        if (time - size / 2.0).abs() > size.abs() / 2.0 + DEVICE_DIFFERS {
            return;
        }
        self.bytes += now.bytes;
        self.observed += 1.0;
        self.sizes += size * size;
        self.sizes_times += size * time;
        if self.bytes >= 2.0 * SHAPE_BYTES {
            for sum in [&mut self.bytes, &mut self.observed, &mut self.sizes, &mut self.sizes_times]
            {
                *sum /= 2.0;
            }
        }
    }

    /// The part of a piece's time that its bytes take, if it is of the mean size.
    fn of_bytes(&self) -> f64 {
        let presumed = self.observed * SIZES_DIFFER * SIZES_DIFFER;
        if presumed == 0.0 {
            return 1.0;
        }
        ((self.sizes_times + presumed) / (self.sizes + presumed)).clamp(0.0, 1.0)
    }
}

/// How long a busy device takes for pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bytes of those that were moved of late, on an average.
    pub piece_bytes: f64,
    /// Nanoseconds for one of so many bytes.
    pub piece_ns: f64,
    /// The part of these that its bytes take: what is left is the same for all.
    pub of_bytes: f64,
}

impl Rate {
    /// Nanoseconds for `bytes` in so many pieces.
    pub fn ns(&self, pieces: f64, bytes: f64) -> f64 {
        let Rate { piece_bytes, piece_ns, of_bytes } = *self;
        piece_ns * (pieces * (1.0 - of_bytes) + bytes / piece_bytes * of_bytes)
    }
}

/// A time, and what all workers had moved by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) moved: Transfers,
}

impl Moment {
    /// On a worker.
    pub(super) fn now() -> Moment {
        Moment { at: now(), moved: transfers() }
    }

    /// What was moved since.
    fn since(&self, before: Moment) -> Busy {
        Busy {
            pieces: self.moved.count.saturating_sub(before.moved.count) as f64,
            bytes: self.moved.bytes.saturating_sub(before.moved.bytes) as f64,
            seconds: self.at.saturating_duration_since(before.at).as_secs_f64(),
        }
    }
}

/// A piece on its way, until this is dropped.
#[derive(Debug)]
pub(super) struct OnItsWay<'a> {
    meter: &'a Meter,
    began: Moment,
    /// Many others were under way then.
    is_among_many: bool,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.meter.state().pieces -= 1;
    }
}

impl OnItsWay<'_> {
    /// Counts its bytes when it ended well: at the moment `seen`, if that is known.
    pub(super) fn end(self, bytes: u64, seen: Option<Moment>) {
        let mut state = self.meter.state();
        let moved_least = BUSY_PIECES as u64 / BUSY_PART * bytes;
        let is_busy = |seen: &Moment| {
            self.is_among_many
                && seen.at > self.began.at
                && seen.since(self.began).bytes >= moved_least as f64
        };
        match seen.filter(is_busy) {
            Some(seen) => state.count(self.began, seen),
            None => state.other_bytes += bytes as f64,
        }
        if state.other_bytes >= WINDOW_BYTES {
            state.other_bytes = 0.0;
            if state.drifted < DRIFTS_MAX {
                state.drifted += 1;
                state.busy.seconds /= DRIFT;
            }
        }
    }
}

impl State {
    /// The device has been busy between these moments.
    fn count(&mut self, began: Moment, seen: Moment) {
        let since = self.counted.filter(|counted| counted.at > began.at).unwrap_or(began);
        // Others may have looked later before, at what has ended sooner.
        self.counted = Some(match self.counted {
            Some(counted) => Moment {
                at: counted.at.max(seen.at),
                moved: Transfers {
                    count: counted.moved.count.max(seen.moved.count),
                    bytes: counted.moved.bytes.max(seen.moved.bytes),
                },
            },
            None => seen,
        });
        let moved = seen.since(since);
        self.shape.add(moved);
        self.busy.add(moved);
        self.is_known |= self.busy.bytes >= 2.0 * WINDOW_BYTES;
        self.busy.forget();
        (self.other_bytes, self.drifted) = (0.0, 0);
    }
}

impl Meter {
    /// Counts a piece that goes to the device.
    pub(super) fn begin(&self, began: Moment) -> OnItsWay<'_> {
        let mut state = self.state();
        state.pieces += 1;
        OnItsWay { meter: self, began, is_among_many: state.pieces >= BUSY_PIECES }
    }

    /// How long the device takes when it is busy; `None` if it was not for long.
    pub(super) fn rate(&self) -> Option<Rate> {
        let state = self.state();
        let [piece_bytes, piece_s] = state.busy.piece();
        let of_bytes = state.shape.of_bytes();
        let is_known = state.is_known && piece_s > 0.0;
        is_known.then_some(Rate { piece_bytes, piece_ns: piece_s * 1e9, of_bytes })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;

    const PIECE: u64 = 64 << 10;

    /// A worker that sends pieces to a device, so many of which are on their way at once, computes for so long after each, and sleeps
    /// when there is nothing else to do.
    struct Sender {
        moment: Moment,
        bytes_per_s: f64,
        /// What the device takes for a piece beside its bytes.
        piece_takes: Duration,
        depth: usize,
        computes: Duration,
        /// What pieces are compressed to, and how much that differs.
        bytes: (u64, u64),
        /// Ends that are seen at once.
        together: usize,
    }

    impl Sender {
        fn new(bytes_per_s: f64, depth: usize, computes: Duration) -> Sender {
            let moment = Moment { at: Instant::now(), moved: Transfers::default() };
            let (piece_takes, bytes) = (Duration::ZERO, (PIECE, 0));
            Sender { moment, bytes_per_s, piece_takes, depth, computes, bytes, together: 1 }
        }

        fn send(&mut self, meter: &Meter, pieces: usize) {
            let Sender { moment, bytes_per_s, piece_takes, depth, computes, bytes, together } =
                self;
            let (mut left, mut free_at) = (pieces, moment.at);
            let mut under_way = VecDeque::new();
            let mut random = fastrand::Rng::with_seed(7);
            while left > 0 || !under_way.is_empty() {
                if under_way.len() < *depth && left > 0 {
                    left -= 1;
                    let bytes = bytes.0 - random.u64(..=bytes.1);
                    let takes = Duration::from_secs_f64(bytes as f64 / *bytes_per_s) + *piece_takes;
                    free_at = free_at.max(moment.at) + takes;
                    under_way.push_back((free_at, bytes, meter.begin(*moment)));
                    moment.at += *computes;
                }
                let must_wait = under_way.len() == *depth || left == 0;
                let mut slept = false;
                let last = (*together).min(under_way.len()) - 1;
                if must_wait && under_way[last].0 > moment.at {
                    (moment.at, slept) = (under_way[last].0, true);
                }
                while under_way.front().is_some_and(|(ends, ..)| *ends <= moment.at) {
                    let (_, bytes, piece) = under_way.pop_front().unwrap();
                    moment.moved.count += 1;
                    moment.moved.bytes += bytes;
                    piece.end(bytes, slept.then_some(*moment));
                }
            }
        }
    }

    fn bytes_per_s(meter: &Meter) -> Option<f64> {
        Some(PIECE as f64 / meter.rate()?.ns(1.0, PIECE as f64) * 1e9)
    }

    fn assert_near(meter: &Meter, wanted: f64) {
        let found = bytes_per_s(meter).unwrap() / wanted;
        assert!((0.8..1.2).contains(&found), "{found} of what it is");
    }

    #[test]
    fn busy_devices_are_measured() {
        let micro = Duration::from_micros(1);
        // Nothing is known of a device that is never busy.
        let meter = Meter::default();
        Sender::new(1e9, 2, micro).send(&meter, 1000);
        assert_eq!(meter.rate(), None);
        let mut sender = Sender::new(1e9, 16, micro);
        sender.send(&meter, 1000);
        assert_near(&meter, 1e9);
        // A neighbour comes,
        sender.bytes_per_s = 1e8;
        sender.send(&meter, 1000);
        assert_near(&meter, 1e8);
        // and goes: as long as nobody sleeps it may be so.
        (sender.bytes_per_s, sender.computes) = (1e9, 100 * micro);
        sender.send(&meter, 3200);
        assert!(bytes_per_s(&meter).unwrap() > 8e8);
        sender.computes = micro;
        sender.send(&meter, 1000);
        assert_near(&meter, 1e9);
    }

    /// The device is a little slower than the worker, which sleeps for a short time only.
    #[test]
    fn workers_that_compute_most_of_the_time_measure_what_is_busy() {
        let meter = Meter::default();
        Sender::new(1e9, 8, Duration::from_micros(55)).send(&meter, 4000);
        assert_near(&meter, 1e9);
    }

    /// Pieces of 64 KiB or less take 40 µs, and what is theirs of 1.6 GB/s.
    #[test]
    fn devices_may_take_long_for_small_pieces() {
        let micro = Duration::from_micros(1);
        for (piece_takes, together) in
            [(40 * micro, 1), (40 * micro, 6), (Duration::ZERO, 1), (Duration::ZERO, 6)]
        {
            let meter = Meter::default();
            let bytes = (PIECE, PIECE / 2);
            let mut sender =
                Sender { piece_takes, bytes, together, ..Sender::new(1.6e9, 16, micro) };
            sender.send(&meter, 4000);
            let check = |meter: &Meter, bytes: f64| {
                let takes_ns = bytes / 1.6 + piece_takes.as_nanos() as f64;
                let found = meter.rate().unwrap().ns(1.0, bytes) / takes_ns;
                assert!((0.8..1.2).contains(&found), "{found} of what it is for {bytes}");
            };
            check(&meter, PIECE as f64);
            check(&meter, PIECE as f64 / 2.0);
            // They are compressed.
            sender.bytes = (PIECE / 2, PIECE / 4);
            sender.send(&meter, 4000);
            check(&meter, PIECE as f64);
            check(&meter, PIECE as f64 / 2.0);
            // A neighbour takes three quarters of the device, and pieces become smaller.
            (sender.bytes_per_s, sender.piece_takes) = (4e8, 4 * piece_takes);
            sender.bytes = (PIECE / 4, PIECE / 8);
            sender.send(&meter, 4000);
            let found = [0.25, 0.125].map(|part| {
                let bytes = PIECE as f64 * part;
                meter.rate().unwrap().ns(1.0, bytes)
                    / (bytes / 0.4 + 4.0 * piece_takes.as_nanos() as f64)
            });
            assert!(found.iter().all(|found| (0.8..1.2).contains(found)), "{found:?}");
        }
        // Until sizes differ that is not seen.
        let meter = Meter::default();
        let mut sender = Sender { piece_takes: 40 * micro, ..Sender::new(1.6e9, 16, micro) };
        sender.send(&meter, 4000);
        assert_eq!(meter.rate().unwrap().of_bytes, 1.0);
    }

    /// Compressing takes longer than writing what comes of it: pieces seem to be under way all the time.
    #[test]
    fn workers_that_compute_say_nothing_of_the_device() {
        let meter = Meter::default();
        Sender::new(1e9, 16, Duration::from_micros(500)).send(&meter, 1000);
        assert_eq!(meter.rate(), None);
        // Others have ended pieces that seem to be on their way, and have not looked.
        let moment = Moment { at: Instant::now(), moved: Transfers::default() };
        let _ended: Vec<_> = (0..16).map(|_| meter.begin(moment)).collect();
        Sender::new(1e8, 2, Duration::ZERO).send(&meter, 1000);
        assert_eq!(meter.rate(), None);
    }
}
