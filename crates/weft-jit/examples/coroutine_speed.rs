//! What a call of an awaited function costs: from a Rust `async fn`, from a generated coroutine, and boxed; for calls that do not suspend,
//! and for calls that do once. Heap allocations are counted.
//!
//! `cargo run --release -p weft-jit --example coroutine_speed`. Figures are medians of several rounds, on one core.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use weft_jit::coroutine::{Callee, Found, MultiGet};
use weft_rt::memory::Ledger;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all of it is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keys of a coroutine, and coroutines that are begun one after the other.
const KEYS: usize = 128;
const ROUNDS: usize = 4096;

/// Suspends once if `waits`.
async fn wait_once(mut waits: bool) {
    poll_fn(|_| match std::mem::take(&mut waits) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    })
    .await;
}

/// The awaited function: a look at a table of keys, as at the last level of an index.
#[inline(never)]
fn found(table: &[u64], key: u64) -> Found {
    let value = table[key as usize % table.len()];
    [u64::from(value.is_multiple_of(2)), value]
}

async fn look_up(table: &[u64], key: u64, waits: bool) -> Found {
    wait_once(waits).await;
    found(table, key)
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

fn run(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    while future.as_mut().poll(&mut context).is_pending() {}
}

/// Nanoseconds and allocations of a call.
fn measure(mut work: impl FnMut()) -> (f64, f64) {
    work();
    let mut times = Vec::new();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..9 {
        let began = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        times.push(began.elapsed().as_secs_f64() * 1e9 / (ROUNDS * KEYS) as f64);
    }
    let allocations = (ALLOCATIONS.load(Ordering::Relaxed) - before).saturating_sub(8);
    times.sort_by(f64::total_cmp);
    (times[4], allocations as f64 / (9 * ROUNDS * KEYS) as f64)
}

fn main() {
    let table: Vec<u64> = (0..4096).map(|key| key * 7).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let keys: Vec<u64> = (0..KEYS).map(|_| random.u64(..)).collect();
    let mut results = vec![[0; 2]; KEYS];
    let code = MultiGet::new(&Ledger::new(1 << 20)).expect("code for this processor");
    println!("{:24} {:>10} {:>8} {:>12}", "calls", "ns", "ratio", "allocations");
    for (waits, name) in [(false, "not suspending"), (true, "suspending once")] {
        let waits = black_box(waits);
        let rust = measure(|| run(by_async_fn(&table, &keys, black_box(&mut results), waits)));
        let expected = results.clone();
        let callee = Callee::new(|key| look_up(&table, key, waits));
        let generated = measure(|| run(code.call(&callee, &keys, black_box(&mut results))));
        assert_eq!(results, expected);
        let boxed = measure(|| run(boxed(&table, &keys, black_box(&mut results), waits)));
        println!("{name}");
        for (name, (ns, allocations)) in
            [("async fn", rust), ("generated", generated), ("boxed", boxed)]
        {
            println!("  {name:22} {ns:>10.2} {:>8.2} {allocations:>12.3}", ns / rust.0);
        }
    }
}
