//! Windows over rows that outgrow memory give what they give in memory, or say that they have too little.

use std::sync::Arc;
use std::time::Duration;

use weft_exec::ExecError;
use weft_exec::program::Constant;
use weft_exec::query::Context;
use weft_exec::window::{
    Aggregate, Bound, Distance, Exclusion, Frame, Given, Kind, RangeKey, Shift,
};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimClock, SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::Directory;
use weft_store::spill::SpillArea;

use crate::case::{KEY, run};
use crate::oracle::{Argument, KeyOrder};
use crate::random::{counted, function, random, rows, runtime};
use crate::spill_compression::spilling;

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
    context.spilling = Some(spilling(area));
    (context, disk)
}

fn assert_nothing_is_left(context: &Context) {
    assert_eq!(context.ledger.used(), 0, "memory");
    let stats = context.spilling.as_ref().unwrap().area().stats();
    assert_eq!((stats.used_bytes, stats.file_bytes), (0, 0), "space");
}

/// The argument of another row.
fn shift(back: Given<i64>, ignores_nulls: bool) -> Kind {
    Kind::Shift(Shift { back, is_ahead: false, ignores_nulls, default: None })
}

/// Functions that look no farther than some rows around each.
fn near(order: KeyOrder) -> Vec<(Kind, Argument)> {
    let running = Frame::Rows(Bound::Unbounded, Bound::CurrentRow);
    let KeyOrder { descending, nulls_first } = order;
    let key = RangeKey { field: KEY, descending, nulls_first };
    let to_peers = Frame::Range { key, start: Bound::Unbounded, end: Bound::CurrentRow };
    let sliding = Frame::Rows(Bound::Preceding(3), Bound::Following(20));
    let lagging = Frame::Rows(Bound::Unbounded, Bound::Preceding(7));
    let leading = Frame::Rows(Bound::Unbounded, Bound::Following(5));
    let shift = |back| shift(Given::Constant(back), false);
    let nth = |row, frame: &Frame| Kind::Nth {
        row: Given::Constant(row),
        ignores_nulls: false,
        frame: frame.clone(),
    };
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

/// Functions that look at rows far away, or at all of the partition.
fn far(order: KeyOrder) -> Vec<(Kind, Argument)> {
    let KeyOrder { descending, nulls_first } = order;
    let key = RangeKey { field: KEY, descending, nulls_first };
    let far = |keys| Distance::Constant(Constant::I64(keys));
    let range = |start, end| Frame::Range { key, start, end };
    let all = Frame::Rows(Bound::Unbounded, Bound::Unbounded);
    let rest = Frame::Rows(Bound::CurrentRow, Bound::Unbounded);
    let behind = Frame::Rows(Bound::Following(3), Bound::Unbounded);
    let wide = Frame::Rows(Bound::Preceding(9_000), Bound::Following(12_000));
    let late = Frame::Rows(Bound::Preceding(30_000), Bound::Preceding(20_000));
    let running = Frame::Rows(Bound::Unbounded, Bound::CurrentRow);
    let near_keys = range(Bound::Preceding(far(3)), Bound::Following(far(50)));
    let keys_before = range(Bound::Preceding(far(90)), Bound::Preceding(far(1)));
    let keys_behind = range(Bound::Following(far(2)), Bound::Unbounded);
    let groups = Frame::Groups(Bound::Preceding(2), Bound::Following(700));
    let groups_behind = Frame::Groups(Bound::Following(1), Bound::Following(400));
    let peers = Frame::Groups(Bound::CurrentRow, Bound::Unbounded);
    let given = |ignores_nulls| shift(Given::Field(3), ignores_nulls);
    let shift = |back, ignores_nulls| shift(Given::Constant(back), ignores_nulls);
    let nth = |row, ignores_nulls, frame: &Frame| Kind::Nth {
        row: Given::Constant(row),
        ignores_nulls,
        frame: frame.clone(),
    };
    let excluding = |exclusion, frame: &Frame| Frame::Excluding(exclusion, Box::new(frame.clone()));
    let others = excluding(Exclusion::CurrentRow, &all);
    let without_ties = excluding(Exclusion::Ties, &wide);
    let other_groups = excluding(Exclusion::Group, &near_keys);
    let before = excluding(Exclusion::Group, &running);
    let of = |aggregate, frame: &Frame| Kind::Aggregate(aggregate, frame.clone());
    let counted = |removes, frame: &Frame| (counted(removes, frame.clone()), Argument::Number);
    vec![
        (Kind::Ntile(Given::Constant(7)), Argument::Nothing),
        (Kind::PercentRank, Argument::Nothing),
        (Kind::CumeDist, Argument::Nothing),
        (shift(20_000, false), Argument::Text),
        (shift(-20_000, false), Argument::Text),
        (shift(30, true), Argument::Text),
        (shift(-3, true), Argument::Number),
        (given(false), Argument::Text),
        (given(true), Argument::Number),
        (nth(1, false, &all), Argument::Text),
        (nth(-1, false, &all), Argument::Text),
        (nth(-1, true, &all), Argument::Number),
        (nth(1, true, &running), Argument::Text),
        (nth(-1, true, &running), Argument::Number),
        (nth(2, true, &wide), Argument::Text),
        (nth(-2, false, &near_keys), Argument::Text),
        (nth(1, false, &groups_behind), Argument::Number),
        (of(Aggregate::Sum, &all), Argument::Number),
        (of(Aggregate::Max, &all), Argument::Text),
        (of(Aggregate::Sum, &rest), Argument::Float),
        (of(Aggregate::Min, &behind), Argument::Text),
        (of(Aggregate::Count, &peers), Argument::Text),
        (of(Aggregate::Sum, &wide), Argument::Number),
        (of(Aggregate::Max, &late), Argument::Number),
        (of(Aggregate::Average { digits: 0 }, &near_keys), Argument::Float),
        (of(Aggregate::Min, &keys_before), Argument::Text),
        (of(Aggregate::Sum, &keys_behind), Argument::Number),
        (of(Aggregate::Any, &groups), Argument::Truth),
        (of(Aggregate::Max, &groups_behind), Argument::Float),
        (of(Aggregate::Sum, &others), Argument::Number),
        (of(Aggregate::Max, &others), Argument::Text),
        (of(Aggregate::Count, &others), Argument::Text),
        (of(Aggregate::Sum, &without_ties), Argument::Float),
        (of(Aggregate::Min, &without_ties), Argument::Text),
        (of(Aggregate::Any, &without_ties), Argument::Truth),
        (of(Aggregate::Average { digits: 0 }, &other_groups), Argument::Float),
        (of(Aggregate::Max, &other_groups), Argument::Number),
        (of(Aggregate::Sum, &before), Argument::Number),
        (nth(3, false, &others), Argument::Text),
        (nth(-2, true, &without_ties), Argument::Text),
        (nth(1, true, &other_groups), Argument::Number),
        (nth(-1, false, &before), Argument::Text),
        counted(true, &others),
        counted(true, &without_ties),
        counted(true, &other_groups),
        counted(false, &before),
        counted(false, &all),
        counted(false, &running),
        counted(true, &wide),
        counted(true, &keys_before),
    ]
}

#[test]
fn a_large_partition_is_evaluated_as_its_rows_come() {
    check_large(1, 5, 60_000, 1);
}

#[test]
fn large_partitions_are_evaluated_as_their_rows_come() {
    check_large(2, 5, 60_000, 3);
}

#[test]
fn a_large_partition_is_evaluated_by_many_workers() {
    check_large(8, 8, 90_000, 1);
}

#[test]
fn many_partitions_are_evaluated_as_their_rows_come() {
    check_large(2, 5, 60_000, 9_000);
}

/// So many rows, of which far fewer fit into memory: a partition that just does is not spilled, and leaves no room for results.
fn check_large(workers: usize, megabytes: u64, count: usize, groups: i32) {
    let mut random = random();
    let order = KeyOrder { descending: random.bool(), nulls_first: random.bool() };
    let mut rows = rows(count, groups, &mut random);
    if random.bool() {
        // Or else peers may be so many that they are not at hand at once.
        rows.iter_mut()
            .for_each(|row| row.key = row.key.map(|key| key % 40 + row.id as i64 % 1000));
    }
    let (near, far) = (near(order), far(order));
    let ample = Context::new(runtime(2), Ledger::new(256 * MIB));
    // Each function has some rows in memory that it looks at.
    for some in near.chunks(4).chain(far.chunks(3)) {
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
        assert!(context.progress.snapshot().spilled_bytes > 0);
        assert_nothing_is_left(&context);
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
        let mut functions: Vec<_> =
            (0..random.usize(1..4)).map(|_| function(order, &mut random)).collect();
        // These differ in the last digits.
        functions.retain(|(kind, _)| !matches!(kind, Kind::Aggregate(Aggregate::Moment(_), _)));
        let ample = Context::new(runtime(2), Ledger::new(256 * MIB));
        let expected = run(&ample, &rows, true, order, &functions).unwrap();
        let (context, _) = context([1, 2, 8][round % 3], [1536, 2048, 4096][round % 3] << 10);
        match run(&context, &rows, true, order, &functions) {
            Ok(got) => {
                assert!(got == expected, "{groups} groups, {functions:?}, {order:?}");
                succeeded += 1;
            }
            Err(error) => {
                let is_known =
                    matches!(error, ExecError::Memory { .. } | ExecError::TooLarge { .. });
                assert!(is_known, "{error:?}");
            }
        }
        assert_nothing_is_left(&context);
    }
    assert!(succeeded > 10, "only {succeeded} had enough memory");
}

#[test]
fn windows_that_spill_can_be_cancelled_and_can_fail() {
    let mut random = random();
    let order = KeyOrder { descending: true, nulls_first: true };
    let all = near(order);
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
