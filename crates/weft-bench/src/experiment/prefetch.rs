//! Memory accesses hidden by prefetch-and-suspend (CoroBase, section 3), and what a switch costs.
//!
//! Coroutines walk chains of dependent accesses through memory far larger than the caches. Without a
//! prefetch each access waits for memory; with one, the other coroutines of the batch run meanwhile.
//! The same walks through memory that fits the first-level cache show what suspending and resuming
//! costs above the work itself.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use weft_rt::{Batch, Boundary, Runtime, RuntimeOptions, prefetch};

use crate::args::{PrefetchArgs, distinct};
use crate::data;
use crate::dram::{self, Memory};
use crate::error::BenchError;
use crate::report::{Machine, Point};
use crate::resident;

/// Accesses of a run through memory.
const MEMORY_ACCESSES: u64 = 4_000_000;
/// Accesses of a run inside the cache.
const CACHE_ACCESSES: u64 = 20_000_000;
/// Bytes of the memory that fits the first-level cache.
const CACHE_BYTES: u64 = 16 << 10;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// The chains one after the other.
    Plain,
    /// A batch of coroutines that prefetch and suspend.
    Coroutines,
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if there is too little memory.
pub fn run(args: &PrefetchArgs, _machine: &Machine) -> Result<Vec<Point>, BenchError> {
    resident::require(args.size << 20, "the memory to jump about in", "use a smaller --size")?;
    let memory = Arc::new(Memory::new((args.size << 20) as usize)?);
    let options = RuntimeOptions { workers: 1, pin: true, ..RuntimeOptions::default() };
    let runtime = Runtime::new(&options)?;
    let mut points = Vec::new();
    for (place, bytes, accesses) in
        [("memory", args.size << 20, MEMORY_ACCESSES), ("cache", CACHE_BYTES, CACHE_ACCESSES)]
    {
        let mut cases = vec![(Variant::Plain, 1)];
        cases.extend(distinct(&args.depth).into_iter().map(|depth| (Variant::Coroutines, depth)));
        let bar = data::measuring("prefetch", cases.len(), &args.common);
        let mut runs: Vec<Vec<f64>> = cases.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.common.repeat {
            for (&(variant, depth), runs) in cases.iter().zip(&mut runs) {
                let lines = (bytes / 64) as usize;
                let sum = Cell::new(0);
                let walk = Walk { memory: memory.clone(), lines, depth, accesses, sum };
                runs.push(walk.run(&runtime, variant, place)?);
                bar.inc(1);
            }
        }
        let plain = dram::median(runs[0].iter().copied());
        for ((variant, depth), runs) in cases.into_iter().zip(runs) {
            let seconds = dram::median(runs.iter().copied());
            let ns = seconds * 1e9 / accesses as f64;
            let pattern = match variant {
                Variant::Plain => format!("{place}, plain"),
                Variant::Coroutines => format!("{place}, coroutines"),
            };
            points.push(Point {
                experiment: "prefetch".to_owned(),
                pattern: Some(pattern),
                driver: "memory".to_owned(),
                device: "DRAM".to_owned(),
                threads: 1,
                depth,
                repetitions: args.common.repeat,
                seconds,
                seconds_min: Some(runs.iter().copied().fold(f64::INFINITY, f64::min)),
                seconds_max: Some(runs.iter().copied().fold(0.0, f64::max)),
                ns_per_op: Some(ns),
                overhead_ns: (variant == Variant::Coroutines && place == "cache")
                    .then(|| (seconds - plain) * 1e9 / accesses as f64),
                ratio_to_blocking: (variant == Variant::Coroutines && place == "memory")
                    .then(|| plain / seconds),
                answer: Some("correct".to_owned()),
                ..Point::default()
            });
        }
    }
    Ok(points)
}

/// A number of chains of accesses.
struct Walk {
    memory: Arc<Memory>,
    /// Cache lines that the chains jump about in.
    lines: usize,
    /// Chains, walked as one batch.
    depth: u32,
    /// Accesses of all chains.
    accesses: u64,
    /// Sum of the last words that the chains read.
    sum: Cell<u64>,
}

impl Walk {
    /// Seconds of a run, whose answer is right.
    fn run(
        self,
        runtime: &Runtime,
        variant: Variant,
        place: &'static str,
    ) -> Result<f64, BenchError> {
        let (batch, expected) = (self.depth, self.expected());
        let (seconds, found) = self.time(runtime, variant)?;
        if found != expected {
            return Err(BenchError::WrongWalk { place, batch, found, expected });
        }
        Ok(seconds)
    }

    /// Steps of each chain.
    fn steps(&self) -> u64 {
        self.accesses / u64::from(self.depth)
    }

    /// What the last words add up to, computed without memory: each word is its own index.
    fn expected(&self) -> u64 {
        let last = |seed| {
            let (mut state, mut value) = (seed, 0);
            for _ in 0..self.steps() {
                state = next_state(state, value);
                value = (dram::scaled(state, self.lines) * 8) as u64;
            }
            value
        };
        (1..=u64::from(self.depth)).map(last).fold(0, u64::wrapping_add)
    }

    /// Seconds of a run, and the sum of the last words read.
    fn time(self, runtime: &Runtime, variant: Variant) -> Result<(f64, u64), BenchError> {
        runtime.block_on(move || async move {
            let start = Instant::now();
            let chains = u64::from(self.depth);
            let mut chain = 0;
            let batch = Batch::new(self.depth as usize, Boundary::Weak, || {
                chain += 1;
                (chain <= chains).then(|| self.chain(chain, self.steps(), variant))
            });
            let result: Result<(), BenchError> = batch.await;
            let seconds = start.elapsed().as_secs_f64();
            result.map(|()| (seconds, self.sum.get()))
        })?
    }

    async fn chain(&self, seed: u64, steps: u64, variant: Variant) -> Result<(), BenchError> {
        let words = self.memory.words();
        let mut state = seed;
        let mut value = 0;
        for _ in 0..steps {
            state = next_state(state, value);
            let word = &words[dram::scaled(state, self.lines) * 8];
            if variant == Variant::Coroutines {
                prefetch(word).await;
            }
            value = *word;
        }
        self.sum.set(self.sum.get().wrapping_add(value));
        Ok(())
    }
}

/// Where a chain goes on: the address depends on the word just read.
fn next_state(state: u64, value: u64) -> u64 {
    (state ^ value).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)
}
