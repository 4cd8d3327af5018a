//! How fast devices are, read off the pieces that go there or come from there.
//!
//! A piece that begins when many are on their way, and whose end a worker sees that slept until then, has kept the device busy from its
//! beginning to its end: what was moved meanwhile, by that time, is the bandwidth. All that is read and written counts, as what tables
//! are read for takes its part of the device. (It is the latency in a request's user data by the requests in flight of Spilly, section
//! 4.4, without what a worker adds that computes instead of looking: that may be many times as much.) A device for which no worker
//! sleeps may be faster than is known.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weft_rt::{bytes_moved, now};

/// So many pieces on their way keep a device busy.
const BUSY_PIECES: usize = 8;

/// Of their bytes, the part that is moved at least until the last of them has ended, if that is so: workers that compute do not see
/// what has ended, and it seems to be on its way.
const BUSY_PART: u64 = 2;

/// Bytes after which what was known before counts half.
const WINDOW_BYTES: f64 = (8 << 20) as f64;

/// How much faster than known a device may be that has delivered a window while no worker slept.
const DRIFT: f64 = 1.1;

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
    bytes: f64,
    seconds: f64,
    /// That was two windows of bytes once.
    is_known: bool,
    /// What was delivered since then while no worker slept.
    other_bytes: f64,
}

/// A time, and the bytes that all workers had moved by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) moved: u64,
}

impl Moment {
    /// On a worker.
    pub(super) fn now() -> Moment {
        Moment { at: now(), moved: bytes_moved() }
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
            self.is_among_many && seen.moved.saturating_sub(self.began.moved) >= moved_least
        };
        match seen.filter(is_busy) {
            Some(seen) => {
                let since = match state.counted.replace(seen) {
                    Some(counted) if counted.at > self.began.at => counted,
                    _ => self.began,
                };
                state.bytes += seen.moved.saturating_sub(since.moved) as f64;
                state.seconds += seen.at.saturating_duration_since(since.at).as_secs_f64();
                state.other_bytes = 0.0;
            }
            None => state.other_bytes += bytes as f64,
        }
        if state.bytes >= 2.0 * WINDOW_BYTES {
            state.is_known = true;
            state.bytes /= 2.0;
            state.seconds /= 2.0;
        }
        if state.other_bytes >= WINDOW_BYTES {
            state.seconds /= DRIFT;
            state.other_bytes = 0.0;
        }
    }
}

impl Meter {
    /// Counts a piece that goes to the device.
    pub(super) fn begin(&self, began: Moment) -> OnItsWay<'_> {
        let mut state = self.state();
        state.pieces += 1;
        OnItsWay { meter: self, began, is_among_many: state.pieces >= BUSY_PIECES }
    }

    /// Bytes per second that the device moves when it is busy; `None` if it was not for long.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let state = self.state();
        (state.is_known && state.seconds > 0.0).then(|| state.bytes / state.seconds)
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
        depth: usize,
        computes: Duration,
    }

    impl Sender {
        fn new(bytes_per_s: f64, depth: usize, computes: Duration) -> Sender {
            let moment = Moment { at: Instant::now(), moved: 0 };
            Sender { moment, bytes_per_s, depth, computes }
        }

        fn send(&mut self, meter: &Meter, pieces: usize) {
            let takes = Duration::from_secs_f64(PIECE as f64 / self.bytes_per_s);
            let Sender { moment, depth, computes, .. } = self;
            let (mut left, mut free_at) = (pieces, moment.at);
            let mut under_way = VecDeque::new();
            while left > 0 || !under_way.is_empty() {
                if under_way.len() < *depth && left > 0 {
                    left -= 1;
                    free_at = free_at.max(moment.at) + takes;
                    under_way.push_back((free_at, meter.begin(*moment)));
                    moment.at += *computes;
                }
                let must_wait = under_way.len() == *depth || left == 0;
                let mut slept = false;
                if must_wait && under_way[0].0 > moment.at {
                    (moment.at, slept) = (under_way[0].0, true);
                }
                while under_way.front().is_some_and(|(ends, _)| *ends <= moment.at) {
                    let (_, piece) = under_way.pop_front().unwrap();
                    moment.moved += PIECE;
                    piece.end(PIECE, slept.then_some(*moment));
                }
            }
        }
    }

    fn assert_near(meter: &Meter, bytes_per_s: f64) {
        let found = meter.bytes_per_s().unwrap() / bytes_per_s;
        assert!((0.8..1.2).contains(&found), "{found} of what it is");
    }

    #[test]
    fn busy_devices_are_measured() {
        let micro = Duration::from_micros(1);
        // Nothing is known of a device that is never busy.
        let meter = Meter::default();
        Sender::new(1e9, 2, micro).send(&meter, 1000);
        assert_eq!(meter.bytes_per_s(), None);
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
        assert!(meter.bytes_per_s().unwrap() > 8e8);
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

    /// Compressing takes longer than writing what comes of it: pieces seem to be under way all the time.
    #[test]
    fn workers_that_compute_say_nothing_of_the_device() {
        let meter = Meter::default();
        Sender::new(1e9, 16, Duration::from_micros(500)).send(&meter, 1000);
        assert_eq!(meter.bytes_per_s(), None);
        // Others have ended pieces that seem to be on their way, and have not looked.
        let moment = Moment { at: Instant::now(), moved: 0 };
        let _ended: Vec<_> = (0..16).map(|_| meter.begin(moment)).collect();
        Sender::new(1e8, 2, Duration::ZERO).send(&meter, 1000);
        assert_eq!(meter.bytes_per_s(), None);
    }
}
