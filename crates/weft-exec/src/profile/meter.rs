//! A worker's meter: which part of the pipeline its vectors are in, how many tuples come and go, and how long it takes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::wait::apart;
use super::{PartName, Profile, waiting_in};

/// Counts for one worker; adds to the profile when it is dropped.
#[derive(Debug)]
pub(crate) struct Meter {
    profile: Arc<Profile>,
    /// Of each part, by its place.
    counted: Vec<Counted>,
    /// The place of the part that runs, and since when.
    place: usize,
    since: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    rows_in: u64,
    rows_out: u64,
    ran: Duration,
}

impl Meter {
    pub(crate) fn new(profile: &Arc<Profile>) -> Meter {
        let counted = vec![Counted::default(); profile.parts.count()];
        Meter { profile: profile.clone(), counted, place: 0, since: Instant::now() }
    }

    /// What the source has loaded is selected, and has taken the time since.
    pub(crate) fn loaded(&mut self, rows: usize, since: Instant) {
        self.counted[0].rows_out += rows as u64;
        self.counted[0].ran += since.elapsed();
    }

    /// Tuples were pushed into the sink, which has taken so long.
    pub(crate) fn pushed(&mut self, rows: usize, ran: Duration) {
        let sink = self.counted.last_mut().expect("a sink");
        sink.rows_in += rows as u64;
        sink.ran += ran;
    }

    /// The part of a step has run for so long while it waited.
    pub(crate) fn ran_step(&mut self, step: usize, ran: Duration) {
        let place = self.place_of(step);
        self.counted[place].ran += ran;
    }

    /// The part that a step belongs to.
    pub(crate) fn part_of(&self, step: usize) -> PartName {
        self.profile.parts.of_step(step)
    }

    /// Tuples that were just loaded come to the first step.
    pub(crate) fn begin(&mut self, rows: usize) {
        self.resume(0);
        self.count_in(rows);
    }

    /// Tuples that have come to a step before go on with it.
    pub(crate) fn resume(&mut self, step: usize) {
        self.place = self.place_of(step);
        self.since = Instant::now();
    }

    /// Tuples that have waited go on, in the part that they were in.
    pub(crate) fn go_on(&mut self) {
        self.since = Instant::now();
    }

    /// Tuples come to a step, which may be that of another part.
    pub(crate) fn reach(&mut self, step: usize, rows: usize) {
        let place = self.place_of(step);
        if place != self.place {
            self.pass(rows);
            self.place = place;
            self.count_in(rows);
        }
    }

    /// Tuples have come through all steps.
    pub(crate) fn end(&mut self, rows: usize) {
        self.pass(rows);
    }

    /// A step waits, with all tuples.
    pub(crate) fn stop(&mut self) {
        let now = Instant::now();
        self.counted[self.place].ran += now - self.since;
        self.since = now;
    }

    /// Tuples leave the part that runs.
    fn pass(&mut self, rows: usize) {
        self.stop();
        if self.is_group(self.place) {
            self.counted[self.place].rows_out += rows as u64;
        }
    }

    fn count_in(&mut self, rows: usize) {
        if self.is_group(self.place) {
            self.counted[self.place].rows_in += rows as u64;
        }
    }

    /// True for steps: sources and sinks are counted where their tuples are.
    fn is_group(&self, place: usize) -> bool {
        (1..self.counted.len() - 1).contains(&place)
    }

    fn place_of(&self, step: usize) -> usize {
        let parts = &self.profile.parts;
        parts.place(parts.of_step(step))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        for (counted, measured) in self.counted.iter().zip(&self.profile.measured) {
            measured.rows_in.fetch_add(counted.rows_in, Ordering::Relaxed);
            measured.rows_out.fetch_add(counted.rows_out, Ordering::Relaxed);
            measured.ran_ns.fetch_add(counted.ran.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// Waits for `future`; gives also how long it ran, if somebody wants to know.
pub(crate) async fn timed<T>(is_measured: bool, future: impl Future<Output = T>) -> (T, Duration) {
    if !is_measured {
        return (future.await, Duration::ZERO);
    }
    let mut future = pin!(future);
    let mut ran = Duration::ZERO;
    poll_fn(|context| {
        let (began, apart_before) = (Instant::now(), apart());
        let polled = future.as_mut().poll(context);
        ran += began.elapsed() + (apart() - apart_before);
        polled.map(|output| (output, ran))
    })
    .await
}

/// Waits for `future`, which is that of a part if somebody wants to know; gives also how long it ran then.
pub(crate) async fn timed_in<T>(
    part: Option<PartName>,
    future: impl Future<Output = T>,
) -> (T, Duration) {
    match part {
        Some(part) => timed(true, waiting_in(part, future)).await,
        None => (future.await, Duration::ZERO),
    }
}

impl Profile {
    /// Waits for `future`, which runs for a part.
    pub(crate) async fn timing<T>(&self, name: PartName, future: impl Future<Output = T>) -> T {
        let (output, ran) = timed(true, waiting_in(name, future)).await;
        self.note_part(name, ran);
        output
    }
}
