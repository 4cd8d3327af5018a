//! Random joins.

use std::sync::Arc;

use weft_exec::Lane;
use weft_exec::join::{Kind, Nulls, Wanted, Which};
use weft_exec::program::Register;
use weft_exec::query::{Context, PartitionMode};
use weft_rt::io::sim::SimFaults;
use weft_rt::memory::Ledger;

use crate::case::{Case, Row};
use crate::drive::{Found, remainder_pipeline, run, sorted, take_rows, taken};
use crate::spill_context::context;
use crate::tables::{Side, Texts, runtime};

fn check(case: &Case, workers: usize, seed: u64) {
    // Partitions are joined by themselves only where they could be spilled.
    let mut context = match case.mode {
        PartitionMode::Always => context(workers, 1 << 30, SimFaults::none()),
        _ => Context::new(runtime(workers), Ledger::new(1 << 30)),
    };
    let ledger = context.ledger.clone();
    (context.partition, context.vector_rows) = (case.mode, case.vector_rows);
    let about = format!("seed {seed}, {workers} workers: {}", case.describe());
    let whole = Arc::new(Wanted::new((0..case.nulls.len()).collect()));
    whole.want_bounds();
    let part = Arc::new(Wanted::new(case.asked.clone()));
    let join = case.join(vec![whole.clone(), part.clone()]);
    let rows: Found<Row> = Found::default();
    let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
    if matches!(case.kind, Kind::Inner | Kind::Semi | Kind::Nothing) {
        case.ask(&mut probe.program, part);
    }
    let mut pipelines = vec![case.build_pipeline(&join), probe];
    let remainders: Vec<(Which, Found<_>)> = match case.marks_build {
        true => [Which::Matched, Which::Unmatched, Which::All]
            .map(|which| (which, Found::default()))
            .into(),
        false => Vec::new(),
    };
    for (which, found) in &remainders {
        pipelines.push(remainder_pipeline(&join, *which, found));
    }
    run(pipelines, &context).expect("there is memory");
    let (expected, matched) = case.expected();
    assert_eq!(taken(&rows), sorted(expected), "{about}");
    for (which, found) in &remainders {
        let expected =
            case.build.numbers.iter().zip(&matched).filter_map(|(number, matched)| match which {
                Which::Matched => matched.then_some((*number, None)),
                Which::Unmatched => (!matched).then_some((*number, None)),
                Which::All => Some((*number, Some(*matched))),
            });
        assert_eq!(taken(found), sorted(expected.collect()), "{which:?}, {about}");
    }
    check_bounds(case, &whole, &about);
    drop(join);
    assert_eq!(ledger.used(), 0, "{about}");
}

/// Rows that match lie within the bounds.
fn check_bounds(case: &Case, wanted: &Wanted, about: &str) {
    let filter = wanted.filter().expect("asked for");
    for row in 0..case.probe.rows() {
        let matches = |build| case.compare(row, build) == Some(true);
        if !(0..case.build.rows()).any(matches) {
            continue;
        }
        for key in 0..case.nulls.len() {
            if let Some(value) = case.probe.constant(key, row, &case.texts) {
                let overlaps = filter.may_overlap(key, &value, &value);
                assert!(overlaps, "key {key} of row {row}, {about}");
            }
        }
    }
}

#[test]
fn random_joins_agree_with_a_nested_loop() {
    let fresh = fastrand::u64(..);
    for (seed, cases) in [(1, 250), (2, 250), (fresh, 100)] {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..cases {
            let workers = [1, 2, 8][random.usize(..3)];
            check(&Case::random(&mut random), workers, seed);
        }
    }
}

#[test]
fn every_kind_with_every_lane() {
    let mut random = fastrand::Rng::with_seed(99);
    for lane in [Lane::Bool, Lane::I16, Lane::I64, Lane::I128, Lane::F32, Lane::F64, Lane::Str] {
        for nulls in [Nulls::Never, Nulls::Equal, Nulls::Unknown] {
            for kind in [
                Kind::Inner,
                Kind::Outer,
                Kind::Semi,
                Kind::Anti,
                Kind::Mark { out: Register(0) },
                Kind::Nothing,
            ] {
                let mut case = Case::random(&mut random);
                let side = |random: &mut fastrand::Rng| {
                    Arc::new(Side::random(random, 100, &[lane], 30, u64::MAX))
                };
                (case.build, case.probe) = (side(&mut random), side(&mut random));
                case.texts = Arc::new(Texts::new(30));
                (case.nulls, case.kind) = (vec![nulls], kind);
                case.asked = vec![0, 0];
                case.marks_build = case.marks_build || kind == Kind::Nothing;
                check(&case, 2, 99);
            }
        }
    }
}
