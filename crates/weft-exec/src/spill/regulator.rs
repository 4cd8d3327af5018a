//! Self-regulating compression of what a worker writes (Spilly, section 4.4, listing 3): where the device is the bottleneck
//! pages are compressed more, where the processor is, less.
//!
//! After every run of pages the cost of the device is compared with that of computing, of the operator and of compression, and
//! compression goes one place up or down the scale. Latencies of writes do not tell what the device costs here: a worker that
//! computes notices late that a write has ended. What the device costs beyond computing is what the worker has to wait for
//! writes, with nothing else to do: so the device is the bottleneck if that is a noticeable part of the processor time of the worker's
//! thread from page to page.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weft_store::spill::{SCALE, Scheme};

use super::writer::WRITES_MAX;

/// Pages between decisions: twice as many as are on their way at once.
const RUN_PAGES: u32 = 2 * WRITES_MAX as u32;

/// The device is the bottleneck if it is waited for this part of the time of computing.
const WAITED_PART: u32 = 16;

/// How a database compresses what is spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillCompression {
    /// As far as writes are waited for.
    Auto,
    /// By one scheme.
    Fixed(Scheme),
}

impl Default for SpillCompression {
    /// Nothing: where the device is not far slower than the processor, even `auto` costs more than it saves.
    fn default() -> SpillCompression {
        SpillCompression::Fixed(Scheme::Off)
    }
}

impl SpillCompression {
    /// What `auto`, `off`, `lz4` and `zstd:` with a level mean.
    pub fn parse(name: &str) -> Option<SpillCompression> {
        match name {
            "auto" => Some(SpillCompression::Auto),
            other => Scheme::parse(other).map(SpillCompression::Fixed),
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            SpillCompression::Auto => "auto".into(),
            SpillCompression::Fixed(scheme) => scheme.name(),
        }
    }
}

/// What one writer's pages are compressed by.
#[derive(Debug, Default)]
pub(super) struct Regulator {
    place: usize,
    pages: u32,
    waited: Duration,
    /// The thread's processor time when the run began, if one has.
    began: Option<Duration>,
}

impl Regulator {
    /// The scheme for the next page.
    pub(super) fn scheme(&mut self, compression: SpillCompression) -> Scheme {
        match compression {
            SpillCompression::Fixed(scheme) => scheme,
            SpillCompression::Auto => {
                self.began.get_or_insert_with(thread_time);
                SCALE[self.place]
            }
        }
    }

    /// Counts a page that was written.
    pub(super) fn note_written(&mut self) {
        self.pages += 1;
        if self.pages >= RUN_PAGES
            && let Some(began) = self.began
        {
            let now = thread_time();
            self.decide(now.saturating_sub(began));
            self.began = Some(now);
        }
    }

    /// Counts how long a write was waited for: `since` says when that began.
    pub(super) fn note_waited(&mut self, since: Waiting) {
        self.waited +=
            since.time.elapsed().saturating_sub(thread_time().saturating_sub(since.thread_time));
    }

    fn decide(&mut self, computing: Duration) {
        self.place = match self.waited * WAITED_PART > computing {
            true => (self.place + 1).min(SCALE.len() - 1),
            false => self.place.saturating_sub(1),
        };
        (self.pages, self.waited) = (0, Duration::ZERO);
    }
}

/// When somebody began to wait. What the thread computes meanwhile is not waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    time: Instant,
    thread_time: Duration,
}

impl Waiting {
    pub(super) fn now() -> Waiting {
        Waiting { time: Instant::now(), thread_time: thread_time() }
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose writes are waited for so long each.
    fn run(regulator: &mut Regulator, waited: Duration) -> Scheme {
        for _ in 0..RUN_PAGES {
            regulator.waited += waited;
            regulator.note_written();
        }
        regulator.scheme(SpillCompression::Auto)
    }

    #[test]
    fn slow_devices_are_spared() {
        let mut regulator = Regulator::default();
        assert_eq!(regulator.scheme(SpillCompression::Auto), Scheme::Off);
        for scheme in SCALE[1..].iter().chain(&SCALE[SCALE.len() - 1..]) {
            assert_eq!(run(&mut regulator, Duration::from_secs(1)), *scheme);
        }
        for scheme in SCALE[..SCALE.len() - 1].iter().rev().chain([&Scheme::Off]) {
            assert_eq!(run(&mut regulator, Duration::ZERO), *scheme);
        }
        let waiting = Waiting::now();
        std::thread::sleep(Duration::from_millis(20));
        regulator.note_waited(waiting);
        assert!(regulator.waited >= Duration::from_millis(10), "{regulator:?}");
        let fixed = SpillCompression::Fixed(Scheme::Lz4);
        assert_eq!(regulator.scheme(fixed), Scheme::Lz4);
        for compression in [fixed, SpillCompression::Auto] {
            assert_eq!(SpillCompression::parse(&compression.name()), Some(compression));
        }
    }
}
