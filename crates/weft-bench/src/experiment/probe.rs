//! Index probing of CoroBase (figure 5.1): requests of ten random keys of eight bytes each are looked up in a B+tree in memory, by every
//! variant of the same code and by a state machine written by hand.
//!
//! *Naive* neither prefetches nor suspends, *ermia* prefetches, *coro-mk* prefetches and suspends, *coro-fn-mk* does so with each
//! level of calls in a box of its own, and *amac-mk* is the state machine. Variants take turns, so that what else the machine does
//! meets all of them. Every row that is found is checked.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft_buffer::{BufferPool, Devices, PageId, PoolOptions};
use weft_index::{
    Boxed, BulkLoad, IndexError, Interleaved, Naive, Prefetching, Space, Tree, TreeForm,
};
use weft_rt::io::{Access, DriverKind, File};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

use crate::args::{ProbeArgs, distinct};
use crate::data;
use crate::dram;
use crate::error::BenchError;
use crate::report::{Machine, Point};
use crate::resident;

/// Keys of a request.
const KEYS: usize = 10;
/// Requests of a batch that are made up at once.
const REQUESTS_PER_BATCH: usize = 8;
/// Bytes of memory for a key, its row and what is beside them in a node.
const BYTES_PER_KEY: u64 = 32;
/// Bytes of memory beside those of the tree.
const BYTES_BESIDE: u64 = 256 << 20;

/// One variant with its batch, in lookups that are in flight.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    variant: String,
    batch: u32,
}

/// Places for nodes that never leave memory.
#[derive(Default)]
struct Places(Mutex<u64>);

impl Space for Places {
    fn allocate(&self, bytes: usize) -> Result<PageId, IndexError> {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end += bytes as u64;
        Ok(PageId::new(0, *end - bytes as u64, bytes))
    }

    fn release(&self, _: PageId) {}
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if there is too little memory, or a lookup fails or finds another row.
pub fn run(args: &ProbeArgs, _machine: &Machine) -> Result<Vec<Point>, BenchError> {
    let cases = cases(args);
    let threads = args.common.threads();
    let mut points = Vec::new();
    for rows in distinct(&args.rows) {
        let bytes = BYTES_BESIDE + rows * BYTES_PER_KEY;
        resident::require(bytes, "the index", "use fewer --rows")?;
        let workers = threads.iter().copied().max().unwrap_or(1) as usize;
        let options =
            RuntimeOptions { workers, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
        let runtime = Runtime::new(&options)?;
        let tree = Arc::new(load(&runtime, rows, bytes)?);
        let bar = data::measuring("probe", cases.len() * threads.len(), &args.common);
        for threads in &threads {
            let mut runs: Vec<Vec<(f64, u64)>> = cases.iter().map(|_| Vec::new()).collect();
            for _ in 0..args.common.repeat {
                for (case, runs) in cases.iter().zip(&mut runs) {
                    runs.push(measure(&runtime, &tree, rows, case, *threads, args)?);
                    bar.inc(1);
                }
            }
            for (case, runs) in cases.iter().zip(runs) {
                points.push(point(case, *threads, rows, &runs));
            }
        }
        bar.finish_and_clear();
    }
    compare_with_naive(&mut points);
    Ok(points)
}

/// Each variant with each batch that it can have.
fn cases(args: &ProbeArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for variant in args.variants() {
        let is_sequential = matches!(variant.as_str(), "naive" | "ermia");
        let batches = if is_sequential { vec![1] } else { distinct(&args.batch) };
        cases.extend(batches.into_iter().map(|batch| Case { variant: variant.clone(), batch }));
    }
    cases
}

/// Loads an index that leads from the numbers below `rows` to themselves.
fn load(runtime: &Runtime, rows: u64, bytes: u64) -> Result<Tree, BenchError> {
    // Nodes never leave memory, so that nothing is read from the device or written to it.
    let devices = Devices::new(vec![empty_file()?]);
    let pool = BufferPool::dynamic(devices, Ledger::new(bytes), PoolOptions::default())?;
    let work = move || async move {
        let mut load = BulkLoad::new(pool, Arc::new(Places::default()), TreeForm::new(true));
        for row in 0..rows {
            load.push(&row.to_be_bytes(), row, &[]).await?;
        }
        load.finish().await
    };
    Ok(runtime.block_on(work)??)
}

/// An empty file that has no name any more.
fn empty_file() -> Result<File, BenchError> {
    let path = std::env::temp_dir().join(format!("weft-probe-{}", std::process::id()));
    let failed = |action| {
        let path = path.clone();
        move |source| BenchError::Io { action, path, source }
    };
    std::fs::write(&path, []).map_err(failed("write"))?;
    let file = File::open(&path, Access::ReadWrite);
    std::fs::remove_file(&path).map_err(failed("remove"))?;
    Ok(file?)
}

/// Runs a case for some time; gives the seconds and how many keys were looked up, by all threads.
fn measure(
    runtime: &Runtime,
    tree: &Arc<Tree>,
    rows: u64,
    case: &Case,
    threads: u32,
    args: &ProbeArgs,
) -> Result<(f64, u64), BenchError> {
    let time = Duration::from_secs_f64(args.seconds);
    let start = Instant::now();
    let handles: Vec<_> = (0..threads as usize)
        .map(|worker| {
            let (tree, case, seed) = (tree.clone(), case.clone(), args.common.seed + worker as u64);
            runtime.spawn_on(
                worker,
                move || async move { probes(&tree, rows, &case, seed, time).await },
            )
        })
        .collect();
    let mut probes = 0;
    for handle in handles {
        probes += handle.wait()??;
    }
    Ok((start.elapsed().as_secs_f64(), probes))
}

/// Looks random keys up for some time; gives how many.
async fn probes(
    tree: &Tree,
    rows: u64,
    case: &Case,
    seed: u64,
    time: Duration,
) -> Result<u64, IndexError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let batch = case.batch as usize;
    let keys_at_once = batch.div_ceil(KEYS).max(1) * REQUESTS_PER_BATCH * KEYS;
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < time {
        let numbers: Vec<u64> = (0..keys_at_once).map(|_| random.u64(..rows)).collect();
        let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_be_bytes()).collect();
        let paused = Cell::new(false);
        let found = match case.variant.as_str() {
            "naive" => tree.multi_get_in(&keys, 1, &paused, Naive).await?,
            "ermia" => tree.multi_get_in(&keys, 1, &paused, Prefetching).await?,
            "coro-mk" => tree.multi_get(&keys, batch).await?,
            "coro-fn-mk" => {
                let mode = Boxed(Interleaved::new(&paused));
                tree.multi_get_in(&keys, batch, &paused, mode).await?
            }
            _ => tree.multi_get_amac(&keys, batch).await?,
        };
        assert!(
            found.iter().zip(&numbers).all(|(row, number)| *row == Some(*number)),
            "a wrong row"
        );
        done += black_box(found).len() as u64;
    }
    Ok(done)
}

fn point(case: &Case, threads: u32, rows: u64, runs: &[(f64, u64)]) -> Point {
    let seconds = |probes: &(f64, u64)| probes.0 / probes.1 as f64;
    let rate = 1.0 / dram::median(runs.iter().map(seconds));
    let whole = dram::median(runs.iter().map(|run| run.0));
    Point {
        experiment: "probe".to_owned(),
        pattern: Some(format!("{rows} keys")),
        variant: Some(case.variant.clone()),
        batch: Some(case.batch),
        driver: "memory".to_owned(),
        device: "DRAM".to_owned(),
        threads,
        depth: case.batch,
        repetitions: runs.len() as u32,
        seconds: whole,
        probes_per_s: Some(rate),
        ns_per_op: Some(1e9 * f64::from(threads) / rate),
        answer: Some("correct".to_owned()),
        ..Point::default()
    }
}

/// Fills in how many times the probes of *naive* each point has per second.
fn compare_with_naive(points: &mut [Point]) {
    for index in 0..points.len() {
        let point = &points[index];
        let naive = points.iter().find(|other| {
            other.variant.as_deref() == Some("naive")
                && other.pattern == point.pattern
                && other.threads == point.threads
        });
        let rates = naive.and_then(|naive| naive.probes_per_s).zip(point.probes_per_s);
        points[index].ratio_to_naive = rates.map(|(naive, own)| own / naive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_compared_with_the_naive_one_of_their_size() {
        let of = |variant: &str, keys: &str, rate| Point {
            variant: Some(variant.to_owned()),
            pattern: Some(keys.to_owned()),
            probes_per_s: Some(rate),
            ..Point::default()
        };
        let mut points = vec![
            of("naive", "10 keys", 4.0),
            of("coro-mk", "10 keys", 10.0),
            of("coro-mk", "20 keys", 9.0),
        ];
        compare_with_naive(&mut points);
        let ratios: Vec<_> = points.iter().map(|point| point.ratio_to_naive).collect();
        assert_eq!(ratios, [Some(1.0), Some(2.5), None]);
    }
}
