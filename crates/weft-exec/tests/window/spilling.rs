//! Windows over rows that outgrow memory give what they give in memory, or say that they have too little.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_exec::ExecError;
use weft_exec::query::Context;
use weft_exec::spill::Spilling;
use weft_exec::window::{Aggregate, Bound, Frame, Kind, RangeKey, Shift};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimClock, SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::Directory;
use weft_store::spill::SpillArea;

use crate::case::{KEY, run};
use crate::oracle::{Argument, KeyOrder};
use crate::random::{function, random, rows, runtime};

const MIB: u64 = 1 << 20;

/// A context on a simulated disk, on which every request suspends. Several workers go by the machine's clock: simulated time
/// would end their patience before others have had a turn.
fn context(workers: usize, bytes: u64) -> (Context, SimDisk) {
    let clock = if workers == 1 { SimClock::Virtual } else { SimClock::Real };
    let disk = SimDisk::new(SimOptions { clock, ..SimOptions::testing(bytes) });
    let driver = DriverKind::Sim(disk.clone());
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    let mut context = Context::new(Arc::new(Runtime::new(&options).unwrap()), Ledger::new(bytes));
    let area = SpillArea::new(vec![Directory::Sim(disk.clone(), "spill".into())], 1 << 40);
    context.spilling = Some(Spilling::new(area));
    (context, disk)
}

fn assert_nothing_is_left(context: &Context) {
    assert_eq!(context.ledger.used(), 0, "memory");
    let stats = context.spilling.as_ref().unwrap().area().stats();
    assert_eq!((stats.used_bytes, stats.file_bytes), (0, 0), "space");
}

/// Functions that partitions of any size can be evaluated for.
fn streamed(order: KeyOrder) -> Vec<(Kind, Argument)> {
    let running = Frame::Rows(Bound::Unbounded, Bound::CurrentRow);
    let KeyOrder { descending, nulls_first } = order;
    let key = RangeKey { field: KEY, descending, nulls_first };
    let to_peers = Frame::Range { key, start: Bound::Unbounded, end: Bound::CurrentRow };
    let sliding = Frame::Rows(Bound::Preceding(3), Bound::Following(20));
    let lagging = Frame::Rows(Bound::Unbounded, Bound::Preceding(7));
    let leading = Frame::Rows(Bound::Unbounded, Bound::Following(5));
    let shift = |back| Kind::Shift(Shift { back, ignores_nulls: false, default: None });
    let nth = |row, frame: &Frame| Kind::Nth { row, ignores_nulls: false, frame: frame.clone() };
    vec![
        (Kind::RowNumber, Argument::Nothing),
        (Kind::Rank, Argument::Nothing),
        (Kind::DenseRank, Argument::Nothing),
        (shift(1), Argument::Text),
        (shift(-30), Argument::Number),
        (nth(1, &running), Argument::Text),
        (nth(300, &lagging), Argument::Number),
        (nth(17_000, &leading), Argument::Text),
        (nth(-1, &to_peers), Argument::Number),
        (nth(2, &sliding), Argument::Text),
        (Kind::Aggregate(Aggregate::Count, running.clone()), Argument::Nothing),
        (Kind::Aggregate(Aggregate::Count, to_peers.clone()), Argument::Text),
        (Kind::Aggregate(Aggregate::Sum, running.clone()), Argument::Number),
        (Kind::Aggregate(Aggregate::Sum, leading.clone()), Argument::Float),
        (Kind::Aggregate(Aggregate::Sum, sliding.clone()), Argument::Float),
        (Kind::Aggregate(Aggregate::Average { digits: 0 }, lagging.clone()), Argument::Float),
        (Kind::Aggregate(Aggregate::Min, running), Argument::Text),
        (Kind::Aggregate(Aggregate::Max, leading), Argument::Text),
        (Kind::Aggregate(Aggregate::Max, sliding), Argument::Number),
        (Kind::Aggregate(Aggregate::Min, lagging), Argument::Number),
        (Kind::Aggregate(Aggregate::All, to_peers.clone()), Argument::Truth),
        (Kind::Aggregate(Aggregate::Any, to_peers), Argument::Truth),
    ]
}

#[test]
fn large_partitions_are_evaluated_as_their_rows_come() {
    let mut random = random();
    for (workers, megabytes, groups) in [(1, 5, 1), (2, 5, 3), (8, 8, 1), (2, 5, 9_000)] {
        let order = KeyOrder { descending: random.bool(), nulls_first: random.bool() };
        let mut rows = rows(60_000, groups, &mut random);
        // So that peers are not too many to be at hand at once.
        rows.iter_mut()
            .for_each(|row| row.key = Some(row.key.unwrap_or(5) % 40 + row.id as i64 % 1000));
        let functions = streamed(order);
        let ample = Context::new(runtime(2), Ledger::new(256 * MIB));
        for some in [&functions[..4], &functions[..]] {
            let expected = run(&ample, &rows, true, order, some).unwrap();
            let (context, _) = context(workers, megabytes * MIB);
            let got = run(&context, &rows, true, order, some)
                .unwrap_or_else(|error| panic!("{workers} {groups} {some:?}: {error:?}"));
            assert_eq!(got.0, expected.0, "the order of rows");
            for ((function, got), expected) in some.iter().zip(&got.1).zip(&expected.1) {
                for (number, (got, expected)) in got.iter().zip(expected).enumerate() {
                    assert_eq!(got, expected, "row {number}: {function:?}, {order:?}");
                }
            }
            assert!(context.spilled_bytes.load(Ordering::Relaxed) > 0);
            assert_nothing_is_left(&context);
        }
    }
}

#[test]
fn random_functions_give_what_they_give_in_memory_or_say_that_they_cannot() {
    let mut random = random();
    let mut succeeded = 0;
    for round in 0..40 {
        let order = KeyOrder { descending: random.bool(), nulls_first: random.bool() };
        let groups = [1, 5, 60, 5_000][random.usize(..4)];
        let rows = rows(25_000, groups, &mut random);
        let functions: Vec<_> =
            (0..random.usize(1..4)).map(|_| function(order, &mut random)).collect();
        let ample = Context::new(runtime(2), Ledger::new(256 * MIB));
        let expected = run(&ample, &rows, true, order, &functions).unwrap();
        let (context, _) = context([1, 2, 8][round % 3], [1536, 2048, 4096][round % 3] << 10);
        match run(&context, &rows, true, order, &functions) {
            Ok(got) => {
                assert!(got == expected, "{groups} groups, {functions:?}, {order:?}");
                succeeded += 1;
            }
            Err(error) => assert!(matches!(error, ExecError::Memory { .. }), "{error:?}"),
        }
        assert_nothing_is_left(&context);
    }
    assert!(succeeded > 10, "only {succeeded} had enough memory");
}

#[test]
fn windows_that_spill_can_be_cancelled_and_can_fail() {
    let mut random = random();
    let order = KeyOrder { descending: true, nulls_first: true };
    let all = streamed(order);
    let rows = rows(30_000, 2, &mut random);
    for round in 0..30 {
        let (context, disk) = context([1, 2, 8][round % 3], [2, 3, 5][round % 3] * MIB);
        let fails = round % 2 == 0;
        if fails {
            let operation = [Operation::Read, Operation::Write][random.usize(..2)];
            let number = random.u64(..50);
            disk.set_faults(SimFaults::none().with(FaultRule::nth(operation, number, Fault::IO)));
        }
        let cancel = context.cancel.clone();
        let wait = Duration::from_micros(random.u64(..600_000));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(wait);
            cancel.cancel();
        });
        match run(&context, &rows, true, order, &all[..4]) {
            Ok((ids, _)) => assert_eq!(ids.len(), 30_000),
            Err(ExecError::Cancelled) => {}
            Err(error) => assert!(fails && matches!(error, ExecError::Store(_)), "{error:?}"),
        }
        canceller.join().unwrap();
        assert_nothing_is_left(&context);
    }
}
