//! What a call of an awaited function costs: from a Rust `async fn`, from a generated coroutine (`weft_jit::coroutine`), and boxed; for calls that
//! do not suspend, and for calls that do once. Heap allocations are counted.
//!
//! A coroutine calls the function for each of its keys, one after the other. Variants take turns, so that what else the machine does
//! meets all of them. Every result is checked.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use weft_jit::coroutine::{Callee, Found, MultiGet};
use weft_rt::memory::Ledger;

use crate::allocations::allocations;
use crate::args::{CoroutineArgs, distinct};
use crate::data;
use crate::dram;
use crate::error::BenchError;
use crate::report::Point;

/// About how many calls a run has.
const CALLS: u32 = 1 << 19;
/// Values that the function looks at: they fit the first-level cache.
const VALUES: u64 = 4096;
/// Bytes of memory for the code.
const CODE_BYTES: u64 = 1 << 20;

/// How the function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// By a Rust `async fn`, which has the future that it awaits within its own.
    AsyncFn,
    /// By generated code, which has it in a frame of a pool.
    Generated,
    /// By a Rust `async fn`, which makes a box for it in each call.
    Boxed,
}

impl Variant {
    const ALL: [Variant; 3] = [Variant::AsyncFn, Variant::Generated, Variant::Boxed];

    fn name(self) -> &'static str {
        match self {
            Variant::AsyncFn => "async-fn",
            Variant::Generated => "generated",
            Variant::Boxed => "boxed",
        }
    }
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError::NoCode`] if there is none for the processor, [`BenchError::WrongCall`] if a call gives something else than it must.
pub fn run(args: &CoroutineArgs) -> Result<Vec<Point>, BenchError> {
    let code = MultiGet::new(&Ledger::new(CODE_BYTES)).ok_or(BenchError::NoCode)?;
    let sizes = distinct(&args.keys);
    let bar = data::measuring("coroutine", sizes.len() * 2 * Variant::ALL.len(), &args.common);
    let mut points = Vec::new();
    for keys in sizes {
        let calls = Calls::new(&code, keys, args.common.seed);
        for suspends in [false, true] {
            let mut runs = Variant::ALL.map(|_| Vec::new());
            for _ in 0..args.common.repeat {
                for (variant, runs) in Variant::ALL.into_iter().zip(&mut runs) {
                    runs.push(calls.measure(variant, black_box(suspends))?);
                    bar.inc(1);
                }
            }
            let of_variants = Variant::ALL.into_iter().zip(&runs);
            points.extend(of_variants.map(|(variant, runs)| point(variant, suspends, keys, runs)));
        }
    }
    bar.finish_and_clear();
    Ok(points)
}

/// What a run took.
#[derive(Clone, Copy, Debug)]
struct Run {
    seconds: f64,
    calls: u64,
    /// Blocks of the heap, if they are counted.
    allocations: Option<u64>,
}

/// What the function is called with.
struct Calls<'a> {
    code: &'a Arc<MultiGet>,
    table: Vec<u64>,
    keys: Vec<u64>,
}

impl Calls<'_> {
    fn new(code: &Arc<MultiGet>, keys: u32, seed: u64) -> Calls<'_> {
        let mut random = fastrand::Rng::with_seed(seed);
        let table = (0..VALUES).map(|number| number * 7).collect();
        Calls { code, table, keys: (0..keys).map(|_| random.u64(..)).collect() }
    }

    /// Begins one coroutine after the other, and checks what the last of them has found.
    fn measure(&self, variant: Variant, suspends: bool) -> Result<Run, BenchError> {
        let Calls { code, table, keys } = self;
        let mut results = vec![[0; 2]; keys.len()];
        let results = results.as_mut_slice();
        let run = match variant {
            Variant::AsyncFn => {
                self.repeat(|| drive(by_async_fn(table, keys, black_box(&mut *results), suspends)))
            }
            Variant::Generated => {
                let callee = Callee::new(|key| look_up(table, key, suspends));
                self.repeat(|| drive(code.call(&callee, keys, black_box(&mut *results))))
            }
            Variant::Boxed => {
                self.repeat(|| drive(boxed(table, keys, black_box(&mut *results), suspends)))
            }
        };
        for (&key, &mut found) in keys.iter().zip(results) {
            let expected = value(table, key);
            if found != expected {
                let variant = variant.name();
                return Err(BenchError::WrongCall { variant, key, found, expected });
            }
        }
        Ok(run)
    }

    /// Times the calls of so many coroutines, after one that is not counted.
    fn repeat(&self, mut coroutine: impl FnMut()) -> Run {
        coroutine();
        let rounds = (u64::from(CALLS) / self.keys.len() as u64).max(1);
        let before = allocations();
        let began = Instant::now();
        (0..rounds).for_each(|_| coroutine());
        let seconds = began.elapsed().as_secs_f64();
        let allocations = allocations().zip(before).map(|(after, before)| after - before);
        Run { seconds, calls: rounds * self.keys.len() as u64, allocations }
    }
}

/// Suspends once if `waits`.
async fn wait_once(mut waits: bool) {
    poll_fn(|_| match std::mem::take(&mut waits) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

/// What a look at a table gives, as at the last level of an index.
#[inline(never)]
fn value(table: &[u64], key: u64) -> Found {
    let value = table[key as usize % table.len()];
    [u64::from(value.is_multiple_of(2)), value]
}

/// The awaited function.
async fn look_up(table: &[u64], key: u64, waits: bool) -> Found {
    wait_once(waits).await;
    value(table, key)
}

async fn by_async_fn(table: &[u64], keys: &[u64], results: &mut [Found], waits: bool) {
    for (key, result) in keys.iter().zip(results) {
        *result = look_up(table, *key, waits).await;
    }
}

async fn boxed(table: &[u64], keys: &[u64], results: &mut [Found], waits: bool) {
    for (key, result) in keys.iter().zip(results) {
        let future: Pin<Box<dyn Future<Output = Found>>> = Box::pin(look_up(table, *key, waits));
        *result = future.await;
    }
}

/// Polls a coroutine until it has ended.
fn drive(coroutine: impl Future<Output = ()>) {
    let mut coroutine = pin!(coroutine);
    let mut context = Context::from_waker(Waker::noop());
    while coroutine.as_mut().poll(&mut context).is_pending() {}
}

fn point(variant: Variant, suspends: bool, keys: u32, runs: &[Run]) -> Point {
    let seconds = || runs.iter().map(|run| run.seconds);
    let calls: u64 = runs.iter().map(|run| run.calls).sum();
    let allocations: Option<u64> = runs.iter().map(|run| run.allocations).sum();
    Point {
        experiment: "coroutine".to_owned(),
        pattern: Some(format!("{keys} keys")),
        variant: Some(variant.name().to_owned()),
        suspends: Some(suspends),
        driver: "memory".to_owned(),
        device: "cache".to_owned(),
        threads: 1,
        depth: 1,
        repetitions: runs.len() as u32,
        seconds: dram::median(seconds()),
        seconds_min: Some(seconds().fold(f64::INFINITY, f64::min)),
        seconds_max: Some(seconds().fold(0.0, f64::max)),
        ns_per_call: Some(dram::median(
            runs.iter().map(|run| run.seconds * 1e9 / run.calls as f64),
        )),
        allocations_per_call: allocations.map(|blocks| blocks as f64 / calls as f64),
        answer: Some("correct".to_owned()),
        ..Point::default()
    }
}
