//! Self-regulating compression of what a worker writes (Spilly, section 4.4, listing 3): where the device is the bottleneck
//! pages are compressed more, where the processor is, less.
//!
//! After every run of pages the costs of a byte are compared: of the operator and of compression, in processor time of the worker's thread,
//! and of the device. Two things differ from the listing. Latencies of writes do not tell what the device costs here: a worker that
//! computes notices late that a write has ended. But if it has waited for writes with nothing else to do, then the device is
//! the bottleneck, and what it costs is the time of the run by the bytes that went to disk. And compression goes
//! to the place on the scale where writing and reading back are expected to take the least time, instead of one
//! place up whenever the device costs more than the processor: next to a device that is only a little too slow, compression would cost more than it saves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft_store::spill::{Grade, SCALE, Scheme, thread_time};

/// Pages between decisions, for each that may be on its way at once.
const RUN_PAGES: usize = 2;

/// The device is the bottleneck if it is waited for this part of the time of computing.
const WAITED_PART: u32 = 16;

/// How much of what was known a run leaves.
const KEPT: f64 = 0.5;

/// How much of what the device costs is believed after a run that says no more than that it does not cost too much: one that was shared
/// is looked at again after some tens of runs.
const BELIEVED: f64 = 0.97;

/// After so many runs without compression, other pages may have come, which it makes smaller.
const UNCOMPRESSED_RUNS: u32 = 32;

/// The first place of the scale is taken that costs no more than this factor above the best.
const SLACK: f64 = 1.03;

/// How a database compresses what is spilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillCompression {
    /// Where that makes spilling faster.
    Auto,
    /// By one scheme.
    Fixed(Scheme),
}

impl Default for SpillCompression {
    /// Nothing: where the device is not far slower than the processor, `auto` still compresses more than pays.
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

/// What is known of the device and of the pages, which every writer of a database goes on from.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Of the scale.
    place: usize,
    /// Nanoseconds that a byte on disk costs a worker; 0 if the device was never waited for.
    device_ns: f64,
    /// How much longer compressing takes than the scale says.
    slowness: f64,
    /// How much of what the scale says is saved.
    fit: f64,
    /// Runs that said nothing of that.
    uncompressed_runs: u32,
}

impl Default for Known {
    fn default() -> Known {
        Known { place: 0, device_ns: 0.0, slowness: 1.0, fit: 1.0, uncompressed_runs: 0 }
    }
}

/// What the writers of a database know together.
#[derive(Clone, Debug, Default)]
pub(super) struct Experience {
    known: Arc<Mutex<Known>>,
}

impl Experience {
    fn get(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, known: Known) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// What a page was written in.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCosts {
    pub(super) raw_bytes: usize,
    pub(super) written_bytes: usize,
    pub(super) compressing: Duration,
}

/// Pages since the last decision.
#[derive(Debug, Default)]
struct Run {
    pages: u32,
    raw_bytes: f64,
    written_bytes: f64,
    compressing: Duration,
    waited: Duration,
}

/// What one writer's pages are compressed by.
#[derive(Debug)]
pub(super) struct Regulator {
    experience: Experience,
    known: Known,
    run: Run,
    /// When the run began, if one has.
    began: Option<Waiting>,
    run_pages: u32,
}

impl Regulator {
    /// One that goes on from what others know, for a writer with `depth` pages on their way at once.
    pub(super) fn new(experience: Experience, depth: usize) -> Regulator {
        let (known, run_pages) = (experience.get(), (RUN_PAGES * depth) as u32);
        Regulator { experience, known, run: Run::default(), began: None, run_pages }
    }

    /// The scheme for the next page.
    pub(super) fn scheme(&mut self, compression: SpillCompression) -> Scheme {
        match compression {
            SpillCompression::Fixed(scheme) => scheme,
            SpillCompression::Auto => {
                self.began.get_or_insert_with(Waiting::now);
                SCALE[self.known.place].scheme
            }
        }
    }

    /// Counts a page that was written.
    pub(super) fn note_written(&mut self, page: PageCosts) {
        self.run.pages += 1;
        self.run.raw_bytes += page.raw_bytes as f64;
        self.run.written_bytes += page.written_bytes as f64;
        self.run.compressing += page.compressing;
        if self.run.pages >= self.run_pages
            && let Some(began) = self.began
        {
            let now = Waiting::now();
            let computing = now.thread_time.saturating_sub(began.thread_time);
            self.decide(now.time.saturating_duration_since(began.time), computing);
            self.began = Some(now);
        }
    }

    /// Counts how long a write was waited for: `since` says when that began.
    pub(super) fn note_waited(&mut self, since: Waiting) {
        self.run.waited +=
            since.time.elapsed().saturating_sub(thread_time().saturating_sub(since.thread_time));
    }

    fn decide(&mut self, took: Duration, computing: Duration) {
        let run = std::mem::take(&mut self.run);
        self.learn(&run, took, computing);
        let operator = computing.saturating_sub(run.compressing);
        let operator_ns = operator.as_nanos() as f64 / run.raw_bytes;
        let ns = SCALE.map(|grade| self.known.ns(&grade, operator_ns));
        let least_ns = ns.iter().copied().fold(f64::INFINITY, f64::min);
        let is_good = |ns: &f64| *ns <= least_ns * SLACK;
        self.known.place = ns.iter().position(is_good).unwrap_or(0);
        self.experience.set(self.known);
    }

    /// What a run tells of the device and of the pages.
    fn learn(&mut self, run: &Run, took: Duration, computing: Duration) {
        let known = &mut self.known;
        let (grade, towards) =
            (&SCALE[known.place], |old: f64, new: f64| old * KEPT + new * (1.0 - KEPT));
        let byte_ns = took.as_nanos() as f64 / run.written_bytes;
        known.device_ns = match run.waited * WAITED_PART > computing {
            true if known.device_ns > 0.0 => towards(known.device_ns, byte_ns),
            true => byte_ns,
            false => (known.device_ns * BELIEVED).min(byte_ns),
        };
        if grade.scheme == Scheme::Off {
            known.uncompressed_runs += 1;
            if known.uncompressed_runs >= UNCOMPRESSED_RUNS {
                (known.fit, known.uncompressed_runs) = (1.0, 0);
            }
            return;
        }
        known.uncompressed_runs = 0;
        let saved = (run.raw_bytes / run.written_bytes - 1.0) / (grade.ratio - 1.0);
        known.fit = towards(known.fit, saved.max(0.0));
        let compress_ns = run.compressing.as_nanos() as f64 / run.raw_bytes;
        known.slowness = towards(known.slowness, compress_ns / grade.compress_ns);
    }
}

impl Known {
    /// Nanoseconds that a byte of a page is expected to take at a place of the scale, to be written and to come back. The operator is
    /// expected to take as long for a byte that comes back as for one that goes.
    fn ns(&self, grade: &Grade, operator_ns: f64) -> f64 {
        let device_ns = self.device_ns / (1.0 + (grade.ratio - 1.0) * self.fit);
        [grade.compress_ns, grade.decompress_ns]
            .map(|compression_ns| (operator_ns + compression_ns * self.slowness).max(device_ns))
            .iter()
            .sum()
    }
}

/// A moment, when somebody began to wait, say. What the thread computes from then on is not waiting.
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

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: usize = 8;

    /// A run of a worker that computes so long per byte of a page, on a device that takes so long per byte on disk; pages are as the scale says.
    fn run(regulator: &mut Regulator, operator_ns: f64, device_ns: f64) -> Scheme {
        let grade = &SCALE[regulator.known.place];
        let raw_bytes = 65_536.0 * f64::from(regulator.run_pages);
        let written_bytes = raw_bytes / grade.ratio;
        let nanos = |per_byte: f64| Duration::from_nanos((per_byte * raw_bytes) as u64);
        let compressing = nanos(grade.compress_ns);
        let computing = nanos(operator_ns) + compressing;
        let took = computing.max(Duration::from_nanos((device_ns * written_bytes) as u64));
        let waited = took - computing;
        let pages = regulator.run_pages;
        regulator.run = Run { pages, raw_bytes, written_bytes, compressing, waited };
        regulator.decide(took, computing);
        regulator.scheme(SpillCompression::Auto)
    }

    fn settled(regulator: &mut Regulator, operator_ns: f64, device_ns: f64) -> Scheme {
        for _ in 0..10 {
            run(regulator, operator_ns, device_ns);
        }
        run(regulator, operator_ns, device_ns)
    }

    #[test]
    fn slow_devices_are_spared() {
        let mut regulator = Regulator::new(Experience::default(), DEPTH);
        assert_eq!(regulator.scheme(SpillCompression::Auto), Scheme::Off);
        // The device keeps up; it is a little too slow, so that compression would be slower still; it is far too slow.
        assert_eq!(settled(&mut regulator, 1.5, 1.0), Scheme::Off);
        assert_eq!(settled(&mut regulator, 1.5, 2.0), Scheme::Off);
        assert_eq!(settled(&mut regulator, 1.5, 6.0), Scheme::Lz4);
        assert_eq!(settled(&mut regulator, 1.5, 40.0), Scheme::Zstd(1));
        // A writer of the same database begins there.
        let mut other = Regulator::new(regulator.experience.clone(), DEPTH);
        assert_eq!(other.scheme(SpillCompression::Auto), Scheme::Zstd(1));
        // The neighbour is gone.
        for _ in 0..200 {
            run(&mut regulator, 1.5, 0.5);
        }
        assert_eq!(regulator.scheme(SpillCompression::Auto), Scheme::Off);
    }

    #[test]
    fn what_cannot_be_compressed_is_not() {
        let mut regulator = Regulator::new(Experience::default(), DEPTH);
        let mut compressed = 0;
        for _ in 0..100 {
            let scheme = regulator.scheme(SpillCompression::Auto);
            let compressing = if scheme == Scheme::Off { 0 } else { 100 };
            compressed += u32::from(scheme != Scheme::Off);
            let (raw_bytes, millis) =
                (65_536.0 * f64::from(regulator.run_pages), Duration::from_millis);
            let compressing = millis(compressing) / 100;
            let (written_bytes, took) = (raw_bytes, millis(100));
            let waited = millis(90);
            let pages = regulator.run_pages;
            regulator.run = Run { pages, raw_bytes, written_bytes, compressing, waited };
            regulator.decide(took, millis(10));
        }
        assert!(compressed < 30, "{compressed} of 100 runs");
    }

    #[test]
    fn waiting_is_not_computing() {
        let mut regulator = Regulator::new(Experience::default(), DEPTH);
        let waiting = Waiting::now();
        std::thread::sleep(Duration::from_millis(20));
        regulator.note_waited(waiting);
        assert!(regulator.run.waited >= Duration::from_millis(10), "{regulator:?}");
    }

    #[test]
    fn names_are_read_back() {
        let fixed = SpillCompression::Fixed(Scheme::Lz4);
        let mut regulator = Regulator::new(Experience::default(), DEPTH);
        assert_eq!(regulator.scheme(fixed), Scheme::Lz4);
        for compression in [fixed, SpillCompression::Auto] {
            assert_eq!(SpillCompression::parse(&compression.name()), Some(compression));
        }
    }
}
