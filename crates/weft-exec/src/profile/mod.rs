//! What a pipeline does, measured for whoever wants to know where the time goes: EXPLAIN ANALYZE.
//!
//! A query is measured if its [`Context`](crate::query::Context) has a [`Profile`] for each of its pipelines; otherwise nothing of
//! this costs more than a branch per step of a vector. Processor time is that of the threads, read at the beginning and end of
//! each time that a task of the pipeline runs (`wait`), some hundred microseconds; within, a `meter` tells the parts of the
//! pipeline apart by a clock that costs some ten nanoseconds, once for each part and vector. Where a task has waited, whoever
//! waited last has said for what.

mod facts;
mod meter;
mod parts;
mod wait;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use facts::{Fact, Facts, Unit};
pub(crate) use meter::{Meter, timed_in};
pub use parts::{PartName, Parts};
pub(crate) use wait::{
    Measuring, Wait, measured, measured_within, note_apart, note_wait, waiting, waiting_in,
};

use crate::compile::Compilation;
use crate::pipeline::Pipeline;
use crate::program::Step;
use crate::spill::SpillCounts;

/// Processor time that a task is to take at most until it lets others run.
pub const LONG_TURN: Duration = Duration::from_millis(1);

/// What is measured of a pipeline.
#[derive(Debug)]
pub struct Profile {
    parts: Parts,
    measured: Vec<Measured>,
    /// Processor time of all tasks, and the time for which they ran, in ns.
    cpu_ns: AtomicU64,
    ran_ns: AtomicU64,
    /// How often tasks have run, how often for more than [`LONG_TURN`], and the most processor time that one has taken at once, in ns.
    turns: AtomicU64,
    long_turns: AtomicU64,
    turn_max_ns: AtomicU64,
    waited_ns: [AtomicU64; 2],
    began: OnceLock<Instant>,
    ended: OnceLock<Instant>,
    spilled: SpillCounts,
    facts: Mutex<Vec<(PartName, Facts)>>,
    compilation: OnceLock<Compilation>,
}

/// What is counted of a part.
#[derive(Debug, Default)]
struct Measured {
    rows_in: AtomicU64,
    rows_out: AtomicU64,
    ran_ns: AtomicU64,
    waited_ns: [AtomicU64; 2],
}

/// What a part of a pipeline has done: all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartDone {
    /// Tuples that it was given.
    pub rows_in: u64,
    /// Tuples that it has given.
    pub rows_out: u64,
    /// Processor time.
    pub cpu: Duration,
    /// Time that workers could not go on for devices.
    pub waited_for_devices: Duration,
    /// Time that workers could not go on for memory.
    pub waited_for_memory: Duration,
}

/// What a pipeline has done: all workers together.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// When it began and ended; `None` if it did not.
    pub began: Option<Instant>,
    /// See [`Done::began`].
    pub ended: Option<Instant>,
    /// Processor time.
    pub cpu: Duration,
    /// Time that workers could not go on for devices.
    pub waited_for_devices: Duration,
    /// Time that workers could not go on for memory.
    pub waited_for_memory: Duration,
    /// How long tasks have run until they let others run.
    pub turns: Turns,
}

/// How long tasks run until they let others run, in processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// How often tasks have run.
    pub count: u64,
    /// How often for more than [`LONG_TURN`].
    pub long: u64,
    /// The longest.
    pub max: Duration,
}

impl Turns {
    /// With those of other tasks.
    pub fn merge(&mut self, others: Turns) {
        self.count += others.count;
        self.long += others.long;
        self.max = self.max.max(others.max);
    }
}

impl Profile {
    /// Nothing yet of a pipeline with these parts.
    pub fn new(parts: Parts) -> Profile {
        let measured = (0..parts.count()).map(|_| Measured::default()).collect();
        Profile {
            parts,
            measured,
            cpu_ns: AtomicU64::new(0),
            ran_ns: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            long_turns: AtomicU64::new(0),
            turn_max_ns: AtomicU64::new(0),
            waited_ns: Default::default(),
            began: OnceLock::new(),
            ended: OnceLock::new(),
            spilled: SpillCounts::default(),
            facts: Mutex::default(),
            compilation: OnceLock::new(),
        }
    }

    /// Its parts.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What the pipeline has done so far.
    pub fn done(&self) -> Done {
        let waited = |wait: Wait| nanos(&self.waited_ns[wait as usize]);
        Done {
            began: self.began.get().copied(),
            ended: self.ended.get().copied(),
            cpu: nanos(&self.cpu_ns),
            waited_for_devices: waited(Wait::Device),
            waited_for_memory: waited(Wait::Memory),
            turns: Turns {
                count: self.turns.load(Ordering::Relaxed),
                long: self.long_turns.load(Ordering::Relaxed),
                max: nanos(&self.turn_max_ns),
            },
        }
    }

    /// What a part has done so far.
    pub fn part(&self, name: PartName) -> PartDone {
        let measured = &self.measured[self.parts.place(name)];
        // While a task runs others may have its core: what it took of it is what the threads say.
        let (cpu, ran) = (nanos(&self.cpu_ns), nanos(&self.ran_ns));
        let share = if ran.is_zero() { 1.0 } else { cpu.div_duration_f64(ran).min(1.0) };
        PartDone {
            rows_in: measured.rows_in.load(Ordering::Relaxed),
            rows_out: measured.rows_out.load(Ordering::Relaxed),
            cpu: nanos(&measured.ran_ns).mul_f64(share),
            waited_for_devices: nanos(&measured.waited_ns[Wait::Device as usize]),
            waited_for_memory: nanos(&measured.waited_ns[Wait::Memory as usize]),
        }
    }

    /// What the pipeline's operators have spilled.
    pub fn spilled(&self) -> &SpillCounts {
        &self.spilled
    }

    /// What a part has told when the pipeline had ended.
    pub fn facts(&self, name: PartName) -> Facts {
        let of_part = |(part, _): &&(PartName, Facts)| *part == name;
        self.known().iter().filter(of_part).flat_map(|(_, facts)| facts.clone()).collect()
    }

    /// What was compiled of the pipeline; `None` if nothing could be.
    pub fn compilation(&self) -> Option<Compilation> {
        self.compilation.get().copied()
    }

    pub(crate) fn note_compilation(&self, compilation: Compilation) {
        self.compilation.get_or_init(|| compilation);
    }

    fn known(&self) -> MutexGuard<'_, Vec<(PartName, Facts)>> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) {
        self.began.get_or_init(Instant::now);
    }

    /// The pipeline has ended: asks its parts what they have done.
    pub(crate) fn end(&self, pipeline: &Pipeline, steps: &[Step]) {
        let mut known = self.known();
        known.push((PartName::Source, pipeline.source.facts()));
        for (number, step) in steps.iter().enumerate() {
            if let Step::Expand(expand) = step {
                known.push((self.parts.of_step(number), expand.facts()));
            }
        }
        known.push((PartName::Sink, pipeline.sink.facts()));
        self.ended.get_or_init(Instant::now);
    }

    /// A task of the pipeline has run.
    fn note_run(&self, cpu: Duration, ran: Duration) {
        self.cpu_ns.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
        self.ran_ns.fetch_add(ran.as_nanos() as u64, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.long_turns.fetch_add(u64::from(cpu > LONG_TURN), Ordering::Relaxed);
        self.turn_max_ns.fetch_max(cpu.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Another thread has had the processor for a task.
    fn note_apart(&self, cpu: Duration) {
        self.cpu_ns.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
        self.ran_ns.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
    }

    /// A task has waited, in a part of the pipeline if that is known.
    fn note_waited(&self, wait: Wait, part: Option<PartName>, waited: Duration) {
        let of_part = part.map(|part| &self.measured[self.parts.place(part)].waited_ns);
        for counters in [Some(&self.waited_ns), of_part].into_iter().flatten() {
            if let Some(counter) = counters.get(wait as usize) {
                counter.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
            }
        }
    }

    /// A part has run, within tasks.
    pub(crate) fn note_part(&self, name: PartName, ran: Duration) {
        let measured = &self.measured[self.parts.place(name)];
        measured.ran_ns.fetch_add(ran.as_nanos() as u64, Ordering::Relaxed);
    }
}

fn nanos(counter: &AtomicU64) -> Duration {
    Duration::from_nanos(counter.load(Ordering::Relaxed))
}
