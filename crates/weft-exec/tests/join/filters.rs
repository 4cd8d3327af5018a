//! Filters of the build side, asked before the probe.

use std::sync::Arc;

use weft_exec::join::Wanted;
use weft_exec::query::Context;
use weft_rt::memory::Ledger;

use crate::case::{Row, large};
use crate::drive::{Found, run, sorted, take_rows, taken};
use crate::tables::{hash_join, runtime};

#[test]
fn filters_are_asked_as_long_as_they_drop_rows() {
    // Almost all rows of the probe side match, or almost none.
    for (domain, is_asked_on) in [(100, false), (1 << 20, true)] {
        let case = large(8, 1000, 300_000, domain);
        let context = Context::new(runtime(1), Ledger::new(1 << 30));
        let [asked_for, not_asked_for] = [vec![0, 0], vec![0]].map(Wanted::new).map(Arc::new);
        let join = case.join(vec![asked_for.clone(), not_asked_for.clone()]);
        let rows: Found<Row> = Found::default();
        let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
        let asked = case.ask(&mut probe.program, asked_for);
        run(vec![case.build_pipeline(&join), probe], &context).expect("there is memory");
        let expected = hash_join(&case.build, &case.probe);
        let expected = expected.into_iter().map(|(probe, build)| (probe, Some(build), None));
        assert_eq!(taken(&rows), sorted(expected.collect()));
        let (rows_in, rows_out) = asked.get();
        if is_asked_on {
            assert!(rows_in == 300_000 && rows_out < 10_000, "{rows_in} {rows_out}");
        } else {
            assert!((65_536..68_000).contains(&rows_in), "{rows_in}");
        }
        assert!(not_asked_for.filter().is_none());
    }
}

/// A filter that there is no memory for is not made, and lets all rows through.
#[test]
fn filters_are_done_without_for_lack_of_memory() {
    let case = large(9, 200_000, 1000, 1 << 20);
    let join = case.join(Vec::new());
    let ledger = Ledger::new(1 << 30);
    run(vec![case.build_pipeline(&join)], &Context::new(runtime(1), ledger)).expect("memory");
    // What the build side takes, and not half of what its filter takes.
    let limit = join.bytes().expect("finished") + (100 << 10);
    let wanted = Arc::new(Wanted::new(vec![0, 0]));
    let join = case.join(vec![wanted.clone()]);
    let rows: Found<Row> = Found::default();
    let mut probe = case.probe_pipeline(&join, take_rows(case.kind, &rows));
    let asked = case.ask(&mut probe.program, wanted.clone());
    let context = Context::new(runtime(1), Ledger::new(limit));
    run(vec![case.build_pipeline(&join), probe], &context).expect("as much memory as it takes");
    let expected = hash_join(&case.build, &case.probe);
    let expected = expected.into_iter().map(|(probe, build)| (probe, Some(build), None));
    assert_eq!(taken(&rows), sorted(expected.collect()));
    assert!(wanted.filter().is_none());
    assert_eq!(asked.get(), (0, 0));
}
