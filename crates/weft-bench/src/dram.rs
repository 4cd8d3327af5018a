//! How fast this machine's memory is: the other half of the theoretical optimum.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use weft_rt::io::Arena;
use weft_rt::prefetch_line;

use crate::error::BenchError;
use crate::resident;

/// Memory that one thread reads, in bytes: far more than its caches. Less where many threads would
/// otherwise take more than half of the memory that is free.
const BYTES_PER_THREAD: usize = 512 << 20;

/// With less than this, in bytes, a thread would measure the caches.
const BYTES_PER_THREAD_MIN: usize = 64 << 20;

/// Memory on huge pages, filled with a pattern.
pub struct Memory {
    arena: Arc<Arena>,
}

impl Memory {
    /// `bytes` bytes, rounded up to 2 MiB.
    ///
    /// # Errors
    /// [`BenchError::Usage`] if the system has no such memory.
    pub fn new(bytes: usize) -> Result<Memory, BenchError> {
        let arena = Arena::new(bytes).map_err(|error| {
            BenchError::Usage(format!("cannot map {} MiB of memory: {error}", bytes >> 20))
        })?;
        let mut memory = Memory { arena };
        for (index, word) in memory.words_mut().iter_mut().enumerate() {
            *word = index as u64;
        }
        Ok(memory)
    }

    /// The memory.
    pub fn words(&self) -> &[u64] {
        let start = self.arena.as_ptr().cast::<u64>().as_ptr();
        // SAFETY: the arena is mapped, aligned, zeroed or written, and this value's alone.
        unsafe { std::slice::from_raw_parts(start, self.arena.len() / 8) }
    }

    /// The memory, to be written.
    pub fn words_mut(&mut self) -> &mut [u64] {
        let start = self.arena.as_ptr().cast::<u64>().as_ptr();
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, self.arena.len() / 8) }
    }
}

/// What memory gives to a number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Reading in order, 10^9 bytes per second in all.
    pub sequential_gb_per_s: f64,
    /// Reading whole cache lines at random, 10^9 bytes per second in all.
    pub random_gb_per_s: f64,
    /// One dependent random access, nanoseconds.
    pub latency_ns: f64,
}

/// Measures memory with `threads` threads, the median of `repeat` runs each.
///
/// # Errors
/// [`BenchError::Usage`] if there is too little memory.
pub fn measure(threads: u32, repeat: u32) -> Result<Bandwidth, BenchError> {
    let share = resident::available_bytes().unwrap_or(u64::MAX) / 2 / u64::from(threads);
    let bytes = BYTES_PER_THREAD.min(share as usize).max(BYTES_PER_THREAD_MIN);
    resident::require(
        (bytes * threads as usize) as u64,
        "the measurement of memory",
        "use fewer --threads",
    )?;
    let memories: Vec<Memory> =
        (0..threads).map(|_| Memory::new(bytes)).collect::<Result<_, _>>()?;
    let run = |read: fn(&[u64]) -> u64, bytes: f64| {
        median((0..repeat).map(|_| bytes * f64::from(threads) / on_all(&memories, read) / 1e9))
    };
    let bytes = memories[0].words().len() * 8;
    let lines = bytes / 64 / RANDOM_SHARE;
    let steps = CHASE_STEPS as f64;
    Ok(Bandwidth {
        sequential_gb_per_s: run(sum, bytes as f64),
        random_gb_per_s: run(random_lines, (lines * 64) as f64),
        latency_ns: median((0..repeat).map(|_| on_all(&memories[..1], chase) * 1e9 / steps)),
    })
}

/// Runs `read` on each memory with a thread of its own; seconds until the last one ended.
fn on_all(memories: &[Memory], read: fn(&[u64]) -> u64) -> f64 {
    let barrier = Barrier::new(memories.len() + 1);
    thread::scope(|scope| {
        for memory in memories {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                black_box(read(memory.words()));
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        start.elapsed().as_secs_f64()
    })
}

/// Words that the sum asks for ahead of itself: hardware prefetchers stop at every 4 KiB, so that
/// without it one core does not reach what its memory gives.
const AHEAD_WORDS: usize = 512;

fn sum(words: &[u64]) -> u64 {
    // Independent sums, so that the additions never wait for each other.
    let mut sums = [0u64; 32];
    for chunk in words.chunks_exact(32) {
        for line in chunk.chunks_exact(8) {
            prefetch_line(line.as_ptr().wrapping_add(AHEAD_WORDS));
        }
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// One line in this many is read at random, so that a run stays short.
const RANDOM_SHARE: usize = 4;

fn random_lines(words: &[u64]) -> u64 {
    let lines = words.len() / 8;
    let mut state = 1u64;
    let mut sum = 0u64;
    for _ in 0..lines / RANDOM_SHARE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        sum = sum.wrapping_add(words[scaled(state, lines) * 8]);
    }
    sum
}

const CHASE_STEPS: usize = 1 << 20;

fn chase(words: &[u64]) -> u64 {
    let lines = words.len() / 8;
    let mut value = 0u64;
    let mut state = 1u64;
    for _ in 0..CHASE_STEPS {
        // The next address depends on the word just read, which is known to be its own index.
        state = (state ^ value).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        value = words[scaled(state, lines) * 8];
    }
    value
}

/// A random word as a number below `bound`.
pub fn scaled(random: u64, bound: usize) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}

/// The median of a few values; the upper one of two in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
