//! Joins of many rows: partitioned, skewed, without memory, cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use weft_exec::join::{Kind, Which};
use weft_exec::pipeline::Flow;
use weft_exec::query::{Context, PartitionMode};
use weft_exec::{ExecError, Result};
use weft_rt::memory::Ledger;

use crate::case::large;
use crate::drive::{Found, remainder_pipeline, run, sorted, take_rows, taken};
use crate::tables::{hash_join, runtime};

/// Many tuples, so that they are partitioned on the way and go into the directory in parallel.
#[test]
fn large_joins() {
    for (seed, mode) in
        [(5, PartitionMode::Adaptive), (6, PartitionMode::Always), (7, PartitionMode::Never)]
    {
        for workers in [1, 2] {
            let mut case = large(seed, 120_000, 50_000, 100_000);
            (case.mode, case.marks_build) = (mode, true);
            let expected = hash_join(&case.build, &case.probe);
            let ledger = Ledger::new(1 << 30);
            let mut context = Context::new(runtime(workers), ledger.clone());
            context.partition = mode;
            let join = case.join(Vec::new());
            let pairs = Found::default();
            let [matched, rest] = [Found::default(), Found::default()];
            let pipelines = vec![
                case.build_pipeline(&join),
                case.probe_pipeline(&join, take_rows(Kind::Inner, &pairs)),
                remainder_pipeline(&join, Which::Matched, &matched),
                remainder_pipeline(&join, Which::Unmatched, &rest),
            ];
            run(pipelines, &context).unwrap();
            let pairs = taken(&pairs).into_iter().map(|(probe, build, _)| (probe, build.unwrap()));
            assert!(pairs.eq(sorted(expected)), "{mode:?}, {workers} workers");
            assert_eq!(taken(&matched).len() + taken(&rest).len(), 120_000);
            assert_eq!(join.tuples(), Some(120_000));
            drop(join);
            assert_eq!(ledger.used(), 0);
        }
    }
}

/// One key, so often on either side that there are ten billion matches: they come batch by batch, and end when asked
/// to.
#[test]
fn matches_of_a_skewed_key_come_lazily() {
    for workers in [1, 2] {
        let case = large(4, 100_000, 100_000, 1);
        let ledger = Ledger::new(1 << 30);
        let context = Context::new(runtime(workers), ledger.clone());
        let join = case.join(Vec::new());
        let left = Arc::new(AtomicI64::new(1_000_000));
        let for_sink = left.clone();
        let probe = case.probe_pipeline(&join, move |registers, _| {
            let rows = registers.selected().count() as i64;
            assert!(rows > 0 && rows <= 2048, "{rows} rows");
            match for_sink.fetch_sub(rows, Ordering::Relaxed) {
                ..0 => Flow::Enough,
                _ => Flow::More,
            }
        });
        run(vec![case.build_pipeline(&join), probe], &context).unwrap();
        let over = -left.load(Ordering::Relaxed);
        assert!((0..100_000).contains(&over), "{over} more");
        drop(join);
        assert_eq!(ledger.used(), 0);
    }
}

/// Runs the build side alone; gives the most memory that it took.
fn build_within(limit_bytes: u64, mode: PartitionMode, workers: usize) -> Result<u64> {
    let case = large(8, 100_000, 1, 100_000);
    let ledger = Ledger::new(limit_bytes);
    let mut context = Context::new(runtime(workers), ledger.clone());
    context.partition = mode;
    let join = case.join(Vec::new());
    let result = run(vec![case.build_pipeline(&join)], &context);
    assert!(result.is_err() || join.bytes() == Some(ledger.used()));
    drop(join);
    assert_eq!(ledger.used(), 0, "{limit_bytes} bytes");
    result.map(|()| ledger.peak())
}

#[test]
fn too_large_builds_say_so() {
    for mode in [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never] {
        let peak_bytes = build_within(1 << 30, mode, 1).unwrap();
        assert_eq!(build_within(peak_bytes, mode, 1).unwrap(), peak_bytes);
        // The last of them is for the directory, and has no room.
        let limits = [(0, 1), (0, 2), (10_000, 1), (10_000, 2), (1 << 20, 2), (peak_bytes - 1, 1)];
        for (limit_bytes, workers) in limits {
            let error = build_within(limit_bytes, mode, workers).expect_err("too large");
            assert!(matches!(&error, ExecError::Memory { .. }), "{error}");
            assert!(error.to_string().contains("hash join"), "{error}");
        }
    }
}

/// Cancelled after a while, wherever it is then: in the build, between, or in a probe without end.
#[test]
fn a_cancelled_join_gives_its_memory_back() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..12 {
        let case = large(9, 50_000, 50_000, if round % 2 == 0 { 1 } else { 50_000 });
        let ledger = Ledger::new(1 << 30);
        let context = Context::new(runtime(2), ledger.clone());
        let join = case.join(Vec::new());
        let probe = case.probe_pipeline(&join, |_, _| Flow::More);
        let pipelines = vec![case.build_pipeline(&join), probe];
        let cancel = context.cancel.clone();
        let after = Duration::from_micros(random.u64(..20_000));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(after);
            cancel.cancel();
        });
        let result = run(pipelines, &context);
        canceller.join().unwrap();
        assert!(matches!(result, Ok(()) | Err(ExecError::Cancelled)), "{after:?}: {result:?}");
        assert!(result.is_err() || round % 2 == 1, "there is no end to it");
        drop(join);
        assert_eq!(ledger.used(), 0, "after {after:?}");
    }
}
