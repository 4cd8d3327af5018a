//! Joins of which each partition is joined by itself: every kind, in memory and beyond it, probed by several pipelines, stopped
//! on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use weft_exec::ExecError;
use weft_exec::join::{Kind, Nulls, Which};
use weft_exec::pipeline::Flow;
use weft_exec::program::Register;
use weft_exec::query::{Context, PartitionMode};
use weft_rt::io::sim::SimFaults;

use crate::case::{Case, Row, large};
use crate::drive::{Found, remainder_pipeline, run, sorted, take_rows, taken};
use crate::spill_context::{assert_nothing_is_left, context, settled, stats};
use crate::tables::hash_join;

const MIB: u64 = 1 << 20;

fn always(workers: usize, bytes: u64) -> Context {
    let mut context = context(workers, bytes, SimFaults::none());
    context.partition = PartitionMode::Always;
    context
}

/// Compares with a nested loop.
fn check(case: &Case, context: &Context) {
    let join = case.join(Vec::new());
    let rows: Found<Row> = Found::default();
    let [matched, rest] = [Found::default(), Found::default()];
    let mut pipelines =
        vec![case.build_pipeline(&join), case.probe_pipeline(&join, take_rows(case.kind, &rows))];
    if case.marks_build {
        pipelines.push(remainder_pipeline(&join, Which::Matched, &matched));
        pipelines.push(remainder_pipeline(&join, Which::Unmatched, &rest));
    }
    run(pipelines, context).unwrap_or_else(|error| panic!("{error}: {}", case.describe()));
    assert_eq!(join.is_partitioned(), !case.nulls.contains(&Nulls::Unknown));
    assert!(join.tuples().is_some_and(|tuples| tuples <= case.build.rows()));
    let (expected, has_matched) = case.expected();
    assert!(taken(&rows) == sorted(expected), "{}", case.describe());
    if case.marks_build {
        for (is_wanted, found) in [(true, &matched), (false, &rest)] {
            let numbers = case.build.numbers.iter().zip(&has_matched);
            let numbers = numbers.filter(|(_, matched)| **matched == is_wanted);
            let expected = numbers.map(|(number, _)| (*number, None)).collect();
            assert!(taken(found) == sorted(expected), "{is_wanted}, {}", case.describe());
        }
    }
    drop(join);
    assert_nothing_is_left(context);
}

#[test]
fn every_kind_is_joined_partition_by_partition() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mark = Kind::Mark { out: Register(0) };
    for kind in [Kind::Inner, Kind::Outer, Kind::Semi, Kind::Anti, mark, Kind::Nothing] {
        for nulls in [Nulls::Never, Nulls::Equal, Nulls::Unknown] {
            // Some partitions are empty, on either side; some keys have many tuples.
            for (build, probe, domain) in [(700, 900, 400), (90, 600, 20), (0, 50, 9), (50, 0, 9)] {
                for has_more in [false, true] {
                    let mut case = large(seed, build, probe, domain);
                    (case.kind, case.nulls, case.has_residual) = (kind, vec![nulls], has_more);
                    case.marks_build = has_more || kind == Kind::Nothing;
                    case.vector_rows = if has_more { 7 } else { 2048 };
                    let mut context = always(1 + build % 3, 1 << 30);
                    context.vector_rows = case.vector_rows;
                    check(&case, &context);
                    assert_eq!(stats(&context).written_bytes, 0, "spilled without need");
                }
            }
        }
    }
}

/// Either side outgrows memory, or both.
#[test]
fn what_outgrows_memory_is_spilled() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for (build, probe) in [(400_000, 5_000), (20_000, 400_000), (300_000, 300_000)] {
        for (workers, kind) in [(1, Kind::Inner), (2, Kind::Outer)] {
            let mut case = large(seed, build, probe, 300_000);
            (case.kind, case.marks_build) = (kind, true);
            let context = always(workers, 7 * MIB * workers as u64);
            let join = case.join(Vec::new());
            let rows: Found<Row> = Found::default();
            let [matched, rest] = [Found::default(), Found::default()];
            let pipelines = vec![
                case.build_pipeline(&join),
                case.probe_pipeline(&join, take_rows(case.kind, &rows)),
                remainder_pipeline(&join, Which::Matched, &matched),
                remainder_pipeline(&join, Which::Unmatched, &rest),
            ];
            run(pipelines, &context).expect("it spills");
            assert!(join.is_partitioned() && stats(&context).written_bytes > 0);
            let pairs = hash_join(&case.build, &case.probe);
            let (rows, pairs) = (taken(&rows), sorted(pairs));
            let found = rows.iter().filter_map(|(probe, build, _)| Some((*probe, (*build)?)));
            assert!(found.eq(pairs.iter().copied()), "{build} and {probe} rows");
            let mut met: Vec<i64> = pairs.iter().map(|(_, build)| *build).collect();
            met.sort_unstable();
            met.dedup();
            let matched: Vec<i64> = taken(&matched).iter().map(|(number, _)| *number).collect();
            assert!(matched == met, "{build} and {probe} rows");
            assert_eq!(matched.len() + taken(&rest).len(), case.build.rows());
            assert!(context.ledger.peak() <= 7 * MIB * workers as u64);
            drop(join);
            assert_nothing_is_left(&context);
        }
    }
}

#[test]
fn several_pipelines_probe_at_the_same_time() {
    for workers in [1, 2, 8] {
        let mut case = large(12, 30_000, 60_000, 20_000);
        case.marks_build = true;
        let context = always(workers, 1 << 30);
        let join = case.join(Vec::new());
        let found: [Found<Row>; 3] = Default::default();
        let matched = Found::default();
        let mut pipelines = vec![case.build_pipeline(&join)];
        pipelines.extend(
            found.iter().map(|found| case.probe_pipeline(&join, take_rows(Kind::Inner, found))),
        );
        let mut last = remainder_pipeline(&join, Which::Matched, &matched);
        last.after = vec![1, 2, 3];
        pipelines.push(last);
        run(pipelines, &context).expect("there is memory");
        assert!(join.is_partitioned());
        let expected = sorted(hash_join(&case.build, &case.probe));
        for found in &found {
            let pairs = taken(found).into_iter().map(|(probe, build, _)| (probe, build.unwrap()));
            assert!(pairs.eq(expected.iter().copied()), "{workers} workers");
        }
        assert!(!taken(&matched).is_empty());
        drop(join);
        assert_nothing_is_left(&context);
    }
}

/// One key has all tuples of either side: a sink that has enough ends it, and so does whoever cancels it.
#[test]
fn joins_without_end_are_ended() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..8 {
        let case = large(13, 50_000, 50_000, 1);
        let context = always(1 + round % 2, 1 << 30);
        let join = case.join(Vec::new());
        let left = Arc::new(AtomicI64::new(if round < 2 { 100_000 } else { i64::MAX }));
        let probe = case.probe_pipeline(&join, move |registers, _| {
            let rows = registers.selected().count() as i64;
            match left.fetch_sub(rows, Ordering::Relaxed) {
                ..0 => Flow::Enough,
                _ => Flow::More,
            }
        });
        let pipelines = vec![case.build_pipeline(&join), probe];
        let cancel = context.cancel.clone();
        let after = Duration::from_micros(random.u64(..50_000));
        let canceller = std::thread::spawn(move || {
            if round >= 2 {
                std::thread::sleep(after);
                cancel.cancel();
            }
        });
        let result = run(pipelines, &context);
        canceller.join().expect("it sleeps");
        match round {
            0 | 1 => result.expect("the sink has enough"),
            _ => assert!(matches!(result, Err(ExecError::Cancelled)), "{after:?}: {result:?}"),
        }
        drop(join);
        settled(&context);
    }
}
