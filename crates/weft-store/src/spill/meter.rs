//! How fast devices are, read off the pieces that go there or come from there.
//!
//! While somebody waits for a piece and many are on their way, the device is the bottleneck, and what it delivers by the time of
//! waiting is its bandwidth: all that is read and written, as what tables are read for will not be waited for later. (It is the latency in a request's user data by the requests in flight of Spilly,
//! section 4.4, without what a worker adds that computes instead of looking.) A device for which nobody waits may be faster
//! than is known; and so may one for which a coroutine waits on a worker that is computing meanwhile, be it compressing the very pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::thread_time::thread_time;

/// So many pieces on their way keep a device busy.
const BUSY_PIECES: usize = 8;

/// Whoever waits for less than this has found pieces that had ended before.
const WAIT: Duration = Duration::from_micros(50);

/// The part of their waits that workers are idle for, if the device is what they wait for.
const IDLE: f64 = 0.25;

/// Seconds of waits after which those before count half.
const WAITS_SECONDS: f64 = 0.05;

/// Bytes after which what was known before counts half.
const WINDOW_BYTES: f64 = (8 << 20) as f64;

/// How much faster than known a device may be that has delivered a window while nobody waited.
const DRIFT: f64 = 1.1;

/// Reads or writes of an area.
#[derive(Debug, Default)]
pub(super) struct Meter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: usize,
    /// Those who wait for one.
    waiters: usize,
    /// Since when somebody does.
    waited_since: Option<Instant>,
    /// Until when what was delivered since then is counted.
    counted_until: Option<Instant>,
    /// What had been moved by then.
    moved_before: u64,
    /// Many pieces were on their way until then.
    is_busy: bool,
    /// What was delivered while somebody waited, and the time of that; what is older counts less.
    bytes: f64,
    seconds: f64,
    /// That was two windows of bytes once.
    is_known: bool,
    /// What was delivered since then while nobody waited.
    other_bytes: f64,
    /// How long somebody has waited on his worker, and how long of that the worker was idle; what is older counts less.
    waits_seconds: f64,
    idle_seconds: f64,
}

impl State {
    /// True if workers were idle when somebody waited, or nobody has waited yet.
    fn is_idle(&self) -> bool {
        self.idle_seconds >= self.waits_seconds * IDLE
    }

    /// Somebody has waited so long, and his worker has computed so long meanwhile.
    fn note_wait(&mut self, waited: Duration, computed: Duration) {
        self.waits_seconds += waited.as_secs_f64();
        self.idle_seconds += waited.saturating_sub(computed).as_secs_f64();
        if self.waits_seconds >= 2.0 * WAITS_SECONDS {
            self.waits_seconds /= 2.0;
            self.idle_seconds /= 2.0;
        }
    }
}

/// Held by who waits for a piece.
#[derive(Debug)]
pub struct Waits<'a> {
    meter: &'a Meter,
    /// Since when, and what the thread had computed by then, unless it is known to be idle.
    since: Option<(Instant, Duration)>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let waited = self
            .since
            .map(|(since, computed)| (since.elapsed(), thread_time().saturating_sub(computed)));
        let mut state = self.meter.state();
        if let Some((waited, computed)) = waited {
            state.note_wait(waited, computed);
        }
        state.waiters -= 1;
        if state.waiters == 0 {
            (state.waited_since, state.counted_until) = (None, None);
        }
    }
}

/// A piece on its way, until this is dropped.
#[derive(Debug)]
pub(super) struct OnItsWay<'a> {
    meter: &'a Meter,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.meter.state().pieces -= 1;
    }
}

impl OnItsWay<'_> {
    /// Counts its bytes when it ended well; `moved` is what has been moved in all.
    pub(super) fn end(self, bytes: u64, now: Instant, moved: u64) {
        let mut state = self.meter.state();
        // Whoever looks sees many ends at once: the first tells how many pieces were under way until then.
        let is_seen_later =
            state.counted_until.is_some_and(|it| now.saturating_duration_since(it) < WAIT);
        state.is_busy = state.pieces >= BUSY_PIECES || is_seen_later && state.is_busy;
        let is_busy = state.is_busy && state.is_idle();
        let waits = |since: &Instant| now.saturating_duration_since(*since) >= WAIT;
        let counted_until = state.waited_since.filter(waits);
        let counted_until =
            counted_until.map(|since| state.counted_until.replace(now).unwrap_or(since));
        match counted_until {
            Some(since) => {
                let moved_before = std::mem::replace(&mut state.moved_before, moved);
                if is_busy {
                    state.bytes += moved.saturating_sub(moved_before) as f64;
                    state.seconds += now.saturating_duration_since(since).as_secs_f64();
                    state.other_bytes = 0.0;
                } else {
                    state.other_bytes += bytes as f64;
                }
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
    pub(super) fn begin(&self) -> OnItsWay<'_> {
        self.state().pieces += 1;
        OnItsWay { meter: self }
    }

    /// Somebody waits for a piece on this thread, until what this gives is dropped; `moved` is what has been moved in all.
    pub(super) fn wait(&self, moved: u64) -> Waits<'_> {
        let now = Instant::now();
        let mut waits = self.wait_idle(now, moved);
        waits.since = Some((now, thread_time()));
        waits
    }

    /// The same for a thread that computes nothing meanwhile.
    fn wait_idle(&self, now: Instant, moved: u64) -> Waits<'_> {
        let mut state = self.state();
        state.waiters += 1;
        if state.waited_since.is_none() {
            (state.waited_since, state.moved_before) = (Some(now), moved);
        }
        Waits { meter: self, since: None }
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

    use super::*;

    const PIECE: u64 = 64 << 10;

    /// Pieces on a device of so many bytes per second, so many of which are on their way at once, and whose ends are seen every so often.
    fn run(
        meter: &Meter,
        (now, moved): (&mut Instant, &mut u64),
        bytes_per_s: f64,
        depth: usize,
        seen_every: Duration,
        pieces: usize,
    ) {
        let takes = Duration::from_secs_f64(PIECE as f64 / bytes_per_s);
        let (mut left, mut free_at) = (pieces, *now);
        let mut under_way = VecDeque::new();
        while left > 0 || !under_way.is_empty() {
            while under_way.len() < depth && left > 0 {
                left -= 1;
                free_at = free_at.max(*now) + takes;
                under_way.push_back((free_at, meter.begin()));
            }
            *now = (*now + seen_every).max(under_way[0].0);
            while under_way.front().is_some_and(|(ends, _)| *ends <= *now) {
                let (_, piece) = under_way.pop_front().unwrap();
                *moved += PIECE;
                piece.end(PIECE, *now, *moved);
            }
        }
    }

    fn assert_near(meter: &Meter, bytes_per_s: f64) {
        let found = meter.bytes_per_s().unwrap() / bytes_per_s;
        assert!((0.8..1.2).contains(&found), "{found} of what it is");
    }

    #[test]
    fn busy_devices_are_measured() {
        let (meter, mut now, mut moved) = (Meter::default(), Instant::now(), 0);
        let (micro, milli) = (Duration::from_micros(1), Duration::from_millis(1));
        // Nothing is known of a device that is never busy, or for which nobody waits.
        let waits = meter.wait_idle(now, moved);
        run(&meter, (&mut now, &mut moved), 1e9, 2, micro, 1000);
        assert_eq!(meter.bytes_per_s(), None);
        drop(waits);
        run(&meter, (&mut now, &mut moved), 1e9, 16, micro, 1000);
        assert_eq!(meter.bytes_per_s(), None);
        let waits = meter.wait_idle(now, moved);
        run(&meter, (&mut now, &mut moved), 1e9, 16, micro, 1000);
        assert_near(&meter, 1e9);
        // Whoever looks rarely, with enough on its way, sees no more than there is.
        run(&meter, (&mut now, &mut moved), 1e9, 32, milli, 1000);
        assert_near(&meter, 1e9);
        // A neighbour comes,
        run(&meter, (&mut now, &mut moved), 1e8, 16, milli, 1000);
        assert_near(&meter, 1e8);
        // and goes: as long as nobody waits it may be so.
        drop(waits);
        run(&meter, (&mut now, &mut moved), 1e9, 2, micro, 3200);
        assert!(meter.bytes_per_s().unwrap() > 8e8);
        let _waits = meter.wait_idle(now, moved);
        run(&meter, (&mut now, &mut moved), 1e9, 16, micro, 1000);
        assert_near(&meter, 1e9);
    }

    /// All but the first of them end when few others are under way any more.
    #[test]
    fn pieces_whose_ends_are_seen_together_count_together() {
        let (meter, mut now, mut moved) = (Meter::default(), Instant::now(), 0);
        let _waits = meter.wait_idle(now, moved);
        run(&meter, (&mut now, &mut moved), 1e9, 8, Duration::from_micros(400), 1000);
        assert_near(&meter, 1e9);
    }

    /// Compressing takes longer than writing what comes of it: pieces seem to be under way all the time.
    #[test]
    fn workers_that_compute_say_nothing_of_the_device() {
        let (meter, mut now, mut moved) = (Meter::default(), Instant::now(), 0);
        let milli = Duration::from_millis(1);
        meter.state().note_wait(100 * milli, 90 * milli);
        let _waits = meter.wait_idle(now, moved);
        run(&meter, (&mut now, &mut moved), 1e9, 16, 10 * milli, 1000);
        assert_eq!(meter.bytes_per_s(), None);
        // It is idle again.
        meter.state().note_wait(200 * milli, 20 * milli);
        run(&meter, (&mut now, &mut moved), 1e9, 32, milli, 1000);
        assert_near(&meter, 1e9);
    }
}
