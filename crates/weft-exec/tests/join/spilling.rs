//! Joins that outgrow memory: the answer is that of unlimited memory, and nothing is left.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_exec::join::{Kind, Nulls, Which};
use weft_exec::pipeline::{Morsel, Source};
use weft_exec::program::Register;
use weft_exec::query::Context;
use weft_exec::{ExecError, Lane, Result};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults};
use weft_rt::memory::{Ledger, Reservation};

use crate::case::{Case, Row, large};
use crate::drive::{Found, remainder_pipeline, run, take_rows, taken};
use crate::spill_context::{assert_nothing_is_left, context, settled, stats};
use crate::tables::{Rows, Side, Texts};

const MIB: u64 = 1 << 20;
const AMPLE: u64 = 1 << 30;

/// What a join gives, and what is left of its build side.
type Answer = (Vec<Row>, Vec<Vec<(i64, Option<bool>)>>);

fn answer(case: &Case, context: &Context) -> Result<Answer> {
    let join = case.join(Vec::new());
    let rows: Found<Row> = Found::default();
    let probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
    let mut pipelines = vec![case.build_pipeline(&join), probe];
    let mut remainders: Vec<Found<_>> = Vec::new();
    if case.marks_build {
        for which in [Which::Matched, Which::Unmatched, Which::All] {
            remainders.push(Found::default());
            pipelines.push(remainder_pipeline(&join, which, &remainders[remainders.len() - 1]));
        }
    }
    run(pipelines, context)?;
    assert!(join.tuples().is_some_and(|tuples| tuples <= case.build.rows()));
    Ok((taken(&rows), remainders.iter().map(taken).collect()))
}

/// Compares with unlimited memory; returns the bytes that were spilled.
fn check(case: &mut Case, workers: usize, bytes: u64) -> u64 {
    let about = format!("{}, {workers} workers, {bytes} bytes", case.describe());
    println!("{about}");
    let vector_rows = std::mem::replace(&mut case.vector_rows, 2048);
    let ample = context(2, AMPLE, SimFaults::none());
    let expected = answer(case, &ample).expect("memory suffices");
    assert_eq!(stats(&ample).written_bytes, 0, "spilled without need");
    case.vector_rows = vector_rows;
    let mut little = context(workers, bytes, SimFaults::none());
    (little.vector_rows, little.partition) = (vector_rows, case.mode);
    let found = answer(case, &little).unwrap_or_else(|error| panic!("{error}: {about}"));
    assert_eq!(found.0.len(), expected.0.len(), "rows of {about}");
    assert!(found.0 == expected.0, "other rows: {about}");
    assert!(found.1 == expected.1, "other rows of the build side: {about}");
    assert!(little.ledger.peak() <= bytes);
    assert_nothing_is_left(&little);
    stats(&little).written_bytes
}

const KINDS: [Kind; 6] = [
    Kind::Inner,
    Kind::Outer,
    Kind::Semi,
    Kind::Anti,
    Kind::Mark { out: Register(0) },
    Kind::Nothing,
];

/// A join by keys of these lanes and by wide texts, of which there are few.
fn sides(seed: u64, rows: (usize, usize), lanes: &[Lane], domain: u32, mask: u64) -> Case {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut case = large(seed, 0, 0, 1);
    let lanes: Vec<Lane> = lanes.iter().copied().chain([Lane::Str]).collect();
    let mut side = |rows| Arc::new(Side::random(&mut random, rows, &lanes, domain, mask));
    (case.build, case.probe) = (side(rows.0), side(rows.1));
    case.nulls = vec![Nulls::Never; lanes.len()];
    case.texts = Arc::new(Texts::wide(domain));
    case
}

/// For so many workers.
fn little(workers: usize) -> u64 {
    2 * MIB * workers as u64
}

#[test]
fn what_outgrows_memory_is_spilled() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for (workers, mebibytes) in [(1, 1), (1, 2), (1, 4), (1, 8), (2, 3), (2, 4)] {
        let mut case = sides(seed, (15_000, 20_000), &[], 15_000, u64::MAX);
        (case.marks_build, case.has_residual) = (true, mebibytes == 2);
        let spilled = check(&mut case, workers, mebibytes * MIB);
        assert!(spilled > 0 || mebibytes == 8, "{mebibytes} MiB");
    }
    let mut case = sides(seed, (60_000, 20_000), &[], 50_000, u64::MAX);
    assert!(check(&mut case, 8, 16 * MIB) > 0);
}

#[test]
fn every_kind_of_join_spills() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for kind in KINDS {
        for (number, nulls) in [Nulls::Never, Nulls::Equal, Nulls::Unknown].into_iter().enumerate()
        {
            for marks_build in [false, true] {
                let mut case = sides(seed, (13_000, 4_000), &[], 13_000, u64::MAX);
                (case.kind, case.nulls) = (kind, vec![nulls]);
                case.marks_build = marks_build || kind == Kind::Nothing;
                case.has_residual = marks_build && nulls != Nulls::Unknown;
                let workers = 1 + number % 2;
                assert!(check(&mut case, workers, little(workers)) > 0);
            }
        }
    }
}

/// Hashes that lead to one partition, all of them or many of their bits: tuples are partitioned anew, or joined block by
/// block.
#[test]
fn partitions_that_outgrow_memory_are_divided() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for mask in [u64::MAX >> 8, u64::MAX >> 20, 0] {
        for (number, kind) in KINDS.into_iter().enumerate() {
            let mut case = sides(seed, (13_000, 4_000), &[], 13_000, mask);
            (case.kind, case.marks_build) = (kind, number % 2 == 1);
            if mask == 0 {
                case.probe = sides(seed, (0, 60), &[], 13_000, mask).probe;
            }
            let workers = 1 + number % 2;
            assert!(check(&mut case, workers, little(workers)) > 0);
        }
    }
}

/// Few keys, so that each has more duplicates than there is memory for.
#[test]
fn duplicates_outgrow_memory() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for (number, kind) in KINDS.into_iter().enumerate() {
        for domain in [1, 3] {
            let mut case = sides(seed, (9_000, 40), &[], domain, u64::MAX);
            (case.kind, case.marks_build, case.has_residual) = (kind, number % 2 == 0, true);
            case.nulls = vec![Nulls::Equal];
            assert!(check(&mut case, 1, little(1)) > 0);
        }
    }
}

/// NOT IN with several keys, or with a condition: any tuple may make it unknown.
#[test]
fn unknown_matches_are_known_of_spilled_tuples() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for (number, kind) in KINDS.into_iter().enumerate() {
        let mut case = sides(seed, (9_000, 100), &[Lane::I32], 60, u64::MAX);
        (case.kind, case.marks_build) = (kind, number % 2 == 0);
        case.nulls = vec![Nulls::Unknown, [Nulls::Unknown, Nulls::Never][number % 2]];
        let workers = 1 + number % 2;
        assert!(check(&mut case, workers, little(1)) > 0);
        let mut case = sides(seed, (9_000, 100), &[], 3_000, u64::MAX);
        (case.kind, case.has_residual, case.nulls) = (kind, true, vec![Nulls::Unknown]);
        assert!(check(&mut case, 1, little(1)) > 0);
    }
}

#[test]
fn random_joins_spill() {
    // The first ones ran out of memory: for writes that had ended, and for what is known of tuples between blocks.
    for seed in [14102615237234524482, 77, fastrand::u64(..)] {
        println!("seed {seed}");
        random_joins(seed);
    }
}

fn random_joins(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..15 {
        let mut case = Case::random(&mut random);
        let lanes = case.build.lanes.clone();
        let mask = [u64::MAX, u64::MAX >> 8, 0xf000_0000_0000_0fff][random.usize(..3)];
        let domain = [50, 2_000, 100_000][random.usize(..3)];
        let is_unknown = case.nulls.contains(&Nulls::Unknown);
        let rows = if domain == 50 || is_unknown { (8_000, 100) } else { (12_000, 6_000) };
        let workers = 1 + random.usize(..2);
        let other = sides(random.u64(..), rows, &lanes, domain, mask);
        (case.build, case.probe, case.texts) = (other.build, other.probe, other.texts);
        case.nulls.push(Nulls::Equal);
        if case.vector_rows == 1 {
            case.vector_rows = 33;
        }
        check(&mut case, workers, little(workers) / 4 * random.u64(3..8));
    }
}

#[test]
fn failing_devices_are_an_error_that_says_so() {
    let mut case = sides(1, (20_000, 15_000), &[], 20_000, u64::MAX);
    case.marks_build = true;
    for number in [0, 1, 7, 40, 120] {
        for operation in [Operation::Write, Operation::Read] {
            for (fault, words) in [(Fault::IO, "spill"), (Fault::Error(28), "temp_directory")] {
                if operation == Operation::Read && fault != Fault::IO {
                    continue;
                }
                let faults = SimFaults::none().with(FaultRule::from(operation, number, fault));
                let context = context(2, little(2), faults);
                let error = answer(&case, &context).expect_err("the device failed");
                assert!(matches!(error, ExecError::Store(_)), "{error}");
                assert!(error.to_string().contains(words), "{error}");
                settled(&context);
            }
        }
    }
}

#[test]
fn cancellation_while_spilling_leaves_nothing_behind() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut case = sides(seed, (20_000, 15_000), &[], 20_000, u64::MAX);
    case.marks_build = true;
    for round in 0..20 {
        let workers = 1 + round % 2;
        let context = context(workers, little(workers), SimFaults::none());
        let cancel = context.cancel.clone();
        let after = Duration::from_micros(random.u64(..2_000_000));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(after);
            cancel.cancel();
        });
        let result = answer(&case, &context);
        assert!(matches!(result, Ok(_) | Err(ExecError::Cancelled)), "{:?}", result.err());
        settled(&context);
        canceller.join().expect("it sleeps");
    }
}

/// Places on disk come free while what lay there goes on.
#[test]
fn places_of_what_was_served_come_free() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let case = sides(seed, (30_000, 30_000), &[], 30_000, u64::MAX);
    let little = context(2, little(2), SimFaults::none());
    let (rows, used): (Found<Row>, Found<u64>) = Default::default();
    let (take, watched, seen) = (take_rows(case.kind, &rows), little.clone(), used.clone());
    let join = case.join(Vec::new());
    let probe = case.probe_pipeline(&join, move |registers, at| {
        seen.lock().unwrap().push(stats(&watched).used_bytes);
        take(registers, at)
    });
    run(vec![case.build_pipeline(&join), probe], &little).unwrap();
    let used = used.lock().unwrap();
    let (most, last) = (used.iter().max().unwrap(), used.last().unwrap());
    assert!(last < &(most / 4), "{last} of {most} bytes are left");
    drop((used, join));
    assert_nothing_is_left(&little);
}

/// Rows; who gives the first ones takes all memory that is free then, for as long as the pipeline runs.
#[derive(Debug)]
struct Greedy {
    rows: Rows,
    ledger: Ledger,
    taken: Mutex<Option<Vec<Reservation>>>,
}

impl Source for Greedy {
    fn morsel(&self, worker: usize) -> Option<Box<dyn Morsel>> {
        self.taken.lock().unwrap().get_or_insert_with(|| {
            let sizes = (0..u64::BITS).rev().map(|bit| 1 << bit);
            sizes.filter_map(|bytes| self.ledger.try_reserve(bytes)).collect()
        });
        self.rows.morsel(worker)
    }
}

/// A probe side goes to disk and comes back even if others have all memory but what its workers are assured of.
#[test]
fn a_probe_side_needs_no_more_than_it_is_assured_of() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for (workers, mebibytes) in [(1, 4), (2, 8), (4, 16)] {
        let case = sides(seed, (60_000, 20_000), &[], 50_000, u64::MAX);
        let expected = answer(&case, &context(2, AMPLE, SimFaults::none())).unwrap();
        let little = context(workers, mebibytes * MIB, SimFaults::none());
        let (join, rows) = (case.join(Vec::new()), Found::<Row>::default());
        let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
        probe.source = Box::new(Greedy {
            rows: Rows::new(&case.probe, &case.texts),
            ledger: little.ledger.clone(),
            taken: Mutex::default(),
        });
        run(vec![case.build_pipeline(&join), probe], &little).unwrap();
        assert!(taken(&rows) == expected.0, "other rows");
        assert!(stats(&little).written_bytes > 0);
        drop(join);
        assert_nothing_is_left(&little);
    }
}

/// What is on disk of a build side is there for each of the pipelines that look tuples up, one after the other or, where memory
/// permits, at once.
#[test]
fn several_pipelines_probe_what_is_on_disk() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let few = (2, little(2), (15_000, 20_000));
    for (marks_build, (workers, bytes, rows)) in
        [(false, few), (true, few), (false, (1, 32 * MIB, (200_000, 30_000)))]
    {
        let mut case = sides(seed, rows, &[], rows.0 as u32, u64::MAX);
        case.marks_build = marks_build;
        let expected = answer(&case, &context(2, AMPLE, SimFaults::none())).unwrap();
        let little = context(workers, bytes, SimFaults::none());
        let join = case.join(Vec::new());
        let found: [Found<Row>; 3] = Default::default();
        let probes =
            found.iter().map(|rows| case.probe_pipeline(&join, take_rows(case.kind, rows)));
        let mut pipelines = vec![case.build_pipeline(&join)];
        pipelines.extend(probes);
        let unmatched: Found<_> = Found::default();
        if marks_build {
            pipelines.push(remainder_pipeline(&join, Which::Unmatched, &unmatched));
            pipelines.last_mut().unwrap().after = vec![1, 2, 3];
        }
        run(pipelines, &little).unwrap();
        assert!(stats(&little).written_bytes > 0);
        for rows in &found {
            let rows = taken(rows);
            let other = rows.iter().zip(&expected.0).find(|(a, b)| a != b);
            assert_eq!((rows.len(), other), (expected.0.len(), None));
        }
        if marks_build {
            assert!(taken(&unmatched) == expected.1[1], "other rows of the build side");
        }
        drop(join);
        assert_nothing_is_left(&little);
    }
}
