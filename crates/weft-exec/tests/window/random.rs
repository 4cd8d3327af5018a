//! Random functions over random rows against the oracle; large partitions; cancellation; memory.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::DataType;
use weft_exec::ExecError;
use weft_exec::aggregate::Moment;
use weft_exec::program::Constant;
use weft_exec::query::Context;
use weft_exec::window::{
    Accumulator, Aggregate, Bound, Distance, Exclusion, Foreign, Frame, Given, Kind, Partitionwise,
    RangeKey, Shift,
};
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

use crate::case::{KEY, run};
use crate::oracle::{Argument, KeyOrder, Row, added, followed, in_short, results};

pub(crate) fn runtime(workers: usize) -> Arc<Runtime> {
    let driver = DriverKind::Blocking;
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    Arc::new(Runtime::new(&options).unwrap())
}

pub(crate) fn random() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// Gives the number of rows of each partition, if its argument is there.
#[derive(Debug)]
struct Rows {
    input_types: [DataType; 1],
}

impl Partitionwise for Rows {
    fn name(&self) -> &str {
        "rows"
    }

    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn evaluate(&self, inputs: &[ArrayRef], rows: usize) -> weft_exec::Result<ArrayRef> {
        assert_eq!(inputs.len(), 1);
        Ok(Arc::new(Int64Array::from_value(inputs[0].len() as i64, rows)))
    }
}

/// Adds up rows; or puts them behind each other and forgets none one by one, unless it `removes`.
#[derive(Debug)]
struct Counted {
    removes: bool,
    input_types: [DataType; 1],
}

impl Foreign for Counted {
    fn input_types(&self) -> &[DataType] {
        &self.input_types
    }

    fn accumulator(&self, inputs: Vec<ArrayRef>) -> weft_exec::Result<Box<dyn Accumulator>> {
        assert_eq!(inputs.len(), 1);
        Ok(Box::new(Rolling { removes: self.removes, inputs, value: 0 }))
    }
}

/// The same as a function over a frame.
pub(crate) fn counted(removes: bool, frame: Frame) -> Kind {
    Kind::Foreign(Arc::new(Counted { removes, input_types: [DataType::Int64] }), frame)
}

struct Rolling {
    removes: bool,
    inputs: Vec<ArrayRef>,
    value: i64,
}

impl Rolling {
    fn values(&self, rows: std::ops::Range<usize>) -> Vec<Option<i64>> {
        let values = self.inputs[0].as_primitive::<Int64Type>();
        rows.map(|row| values.is_valid(row).then(|| values.value(row))).collect()
    }
}

impl Accumulator for Rolling {
    fn removes(&self) -> bool {
        self.removes
    }

    fn removes_any(&self) -> bool {
        self.removes
    }

    fn go_on(&mut self, inputs: Vec<ArrayRef>) {
        self.inputs = inputs;
    }

    fn bytes(&self) -> usize {
        size_of::<Rolling>()
    }

    fn clear(&mut self) -> weft_exec::Result<()> {
        self.value = 0;
        Ok(())
    }

    fn add(&mut self, rows: std::ops::Range<usize>) -> weft_exec::Result<()> {
        for value in self.values(rows) {
            self.value = match self.removes {
                true => self.value + added(value),
                false => followed(self.value, value),
            };
        }
        Ok(())
    }

    fn remove(&mut self, rows: std::ops::Range<usize>) -> weft_exec::Result<()> {
        assert!(self.removes);
        self.value -= self.values(rows).into_iter().map(added).sum::<i64>();
        Ok(())
    }

    fn value(&mut self) -> weft_exec::Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from_value(self.value, 1)))
    }
}

pub(crate) fn rows(count: usize, groups: i32, random: &mut fastrand::Rng) -> Vec<Row> {
    let nulls = if random.bool() { 40 } else { 0 };
    let keys = [2, 50, 1 << 40][random.usize(..3)];
    (0..count as u64)
        .map(|id| {
            let mut some = |is_null: u8| random.u8(..) >= is_null;
            let known: [bool; 6] = std::array::from_fn(|_| some(nulls));
            let number = random.i64(-1000..1000);
            let text = format!("{number} {}", &"a longer text"[..random.usize(..13)]);
            Row {
                id,
                group: known[0].then(|| random.i32(0..groups)),
                key: known[1].then(|| random.i64(-keys..keys)),
                number: known[2].then_some(number),
                // Sums of these are exact in any order.
                float: known[3].then(|| (random.i64(-1000..1000) / 4) as f64 / 4.0),
                text: known[4].then_some(text),
                truth: known[5].then(|| random.u8(..) < 200),
            }
        })
        .collect()
}

fn bounds<T: Clone>(random: &mut fastrand::Rng, value: impl Fn(u64) -> T) -> [Bound<T>; 2] {
    let mut bound = || {
        let distance = value([0, 1, 2, 5, 100][random.usize(..5)]);
        match random.u8(..4) {
            0 => Bound::Unbounded,
            1 => Bound::Preceding(distance),
            2 => Bound::CurrentRow,
            _ => Bound::Following(distance),
        }
    };
    [bound(), bound()]
}

fn frame(order: KeyOrder, random: &mut fastrand::Rng) -> Frame {
    match random.u8(..6) {
        3.. => {
            let exclusions = [Exclusion::CurrentRow, Exclusion::Group, Exclusion::Ties];
            let exclusion = exclusions[random.usize(..3)];
            Frame::Excluding(exclusion, Box::new(whole_frame(order, random)))
        }
        _ => whole_frame(order, random),
    }
}

fn whole_frame(order: KeyOrder, random: &mut fastrand::Rng) -> Frame {
    match random.u8(..3) {
        0 => {
            let [start, end] = bounds(random, |rows| rows);
            Frame::Rows(start, end)
        }
        1 => {
            let [start, end] = bounds(random, |groups| groups);
            Frame::Groups(start, end)
        }
        _ => {
            let [start, end] =
                bounds(random, |distance| Distance::Constant(Constant::I64(distance as i64)));
            let KeyOrder { descending, nulls_first } = order;
            Frame::Range { key: RangeKey { field: KEY, descending, nulls_first }, start, end }
        }
    }
}

pub(crate) fn function(order: KeyOrder, random: &mut fastrand::Rng) -> (Kind, Argument) {
    let any = [Argument::Number, Argument::Float, Argument::Text, Argument::Truth];
    let argument = any[random.usize(..4)];
    let ignores_nulls = random.bool();
    match random.u8(..13) {
        0 => (Kind::RowNumber, Argument::Nothing),
        1 => (Kind::Rank, Argument::Nothing),
        2 => (Kind::DenseRank, Argument::Nothing),
        3 => (Kind::Ntile(Given::Constant(random.i64(1..20))), Argument::Nothing),
        4 => (Kind::PercentRank, Argument::Nothing),
        5 => (Kind::CumeDist, Argument::Nothing),
        6 => {
            let back = [0, 1, -1, 2, -3, 40, i64::MIN, i64::MAX][random.usize(..8)];
            let default = match argument {
                Argument::Number => Some(Constant::I64(7)),
                Argument::Text => Some(Constant::Str(Arc::from(&b"a default, and a long one"[..]))),
                _ => None,
            };
            let default = default.filter(|_| random.bool()).map(Given::Constant);
            let (back, default) = match random.u8(..3) {
                0 => (Given::Field(3), default),
                1 if argument == Argument::Number => (Given::Field(3), Some(Given::Field(KEY))),
                _ => (Given::Constant(back), default),
            };
            let is_ahead = random.bool();
            (Kind::Shift(Shift { back, is_ahead, ignores_nulls, default }), argument)
        }
        7 => {
            let row = Given::Constant([1, -1, 2, -2, 5, 0][random.usize(..6)]);
            (Kind::Nth { row, ignores_nulls, frame: frame(order, random) }, argument)
        }
        8 => {
            let input_types = [DataType::Int64];
            (Kind::Partitionwise(Arc::new(Rows { input_types })), Argument::Number)
        }
        9 => (counted(random.bool(), frame(order, random)), Argument::Number),
        _ => {
            let of = [
                (Aggregate::Count, Argument::Nothing),
                (Aggregate::Count, argument),
                (Aggregate::Sum, Argument::Number),
                (Aggregate::Sum, Argument::Float),
                (Aggregate::Average { digits: 0 }, Argument::Float),
                (Aggregate::Min, Argument::Number),
                (Aggregate::Max, Argument::Number),
                (Aggregate::Min, Argument::Text),
                (Aggregate::Max, Argument::Text),
                (Aggregate::Moment(Moment::VarianceSample), Argument::Float),
                (Aggregate::Moment(Moment::VariancePopulation), Argument::Float),
                (Aggregate::All, Argument::Truth),
                (Aggregate::Any, Argument::Truth),
            ];
            let (aggregate, argument) = of[random.usize(..of.len())];
            (Kind::Aggregate(aggregate, frame(order, random)), argument)
        }
    }
}

/// Runs functions, and compares all that they give.
fn check(
    context: &Context,
    rows: &[Row],
    has_groups: bool,
    order: KeyOrder,
    functions: &[(Kind, Argument)],
) {
    let mut sorted = rows.to_vec();
    sorted.sort_by(|a, b| {
        let groups = if has_groups { a.group.cmp(&b.group) } else { std::cmp::Ordering::Equal };
        groups.then(order.compare(a.key, b.key)).then(a.id.cmp(&b.id))
    });
    let (ids, got) = run(context, rows, has_groups, order, functions).unwrap();
    let expected: Vec<u64> = sorted.iter().map(|row| row.id).collect();
    assert_eq!(ids, expected, "the order of rows");
    for ((kind, argument), got) in functions.iter().zip(got) {
        let partitions = sorted.chunk_by(|a, b| !has_groups || a.group == b.group);
        let expected: Vec<Option<String>> =
            partitions.flat_map(|rows| results(kind, *argument, rows, order)).collect();
        let is_moment = matches!(kind, Kind::Aggregate(Aggregate::Moment(_), _));
        let got = got.into_iter().map(|got| match got {
            Some(got) if is_moment => Some(in_short(got.parse().unwrap())),
            got => got,
        });
        for (number, (got, expected)) in got.zip(expected).enumerate() {
            assert_eq!(got, expected, "row {number}: {kind:?} of {argument:?}, {order:?}");
        }
    }
}

#[test]
fn functions_give_what_they_are_defined_as() {
    let mut random = random();
    for workers in [1, 2, 8] {
        let runtime = runtime(workers);
        for vector_rows in [1, 7, 2048] {
            for _ in 0..12 {
                let mut context = Context::new(runtime.clone(), Ledger::new(64 << 20));
                context.vector_rows = vector_rows;
                let order = KeyOrder { descending: random.bool(), nulls_first: random.bool() };
                let count = [0, 1, 70, 300][random.usize(..4)];
                let groups = [1, 4, 100][random.usize(..3)];
                let rows = rows(count, groups, &mut random);
                let functions: Vec<_> =
                    (0..random.usize(1..5)).map(|_| function(order, &mut random)).collect();
                check(&context, &rows, random.bool(), order, &functions);
            }
        }
    }
}

#[test]
fn partitions_may_be_many_or_large() {
    let mut random = random();
    let order = KeyOrder { descending: false, nulls_first: false };
    let runtime = runtime(2);
    for (count, groups) in [(40_000, 9_000), (40_000, 1)] {
        let context = Context::new(runtime.clone(), Ledger::new(256 << 20));
        let rows = rows(count, groups, &mut random);
        let running = Frame::Rows(Bound::Unbounded, Bound::CurrentRow);
        let functions = [
            (Kind::RowNumber, Argument::Nothing),
            (Kind::Aggregate(Aggregate::Sum, running.clone()), Argument::Number),
            (Kind::Aggregate(Aggregate::Max, running), Argument::Text),
        ];
        let (ids, got) = run(&context, &rows, true, order, &functions).unwrap();
        let by_id: Vec<&Row> = ids.iter().map(|id| &rows[*id as usize]).collect();
        let (mut number, mut sum, mut most) = (0, None, None);
        for (at, row) in by_id.iter().enumerate() {
            if at == 0 || by_id[at - 1].group != row.group {
                (number, sum, most) = (0, None, None);
            }
            number += 1;
            sum = row.number.map_or(sum, |value| Some(sum.unwrap_or(0) + value));
            most = most.max(row.text.clone());
            assert_eq!(got[0][at], Some(number.to_string()));
            assert_eq!(got[1][at], sum.map(|sum: i64| sum.to_string()));
            assert_eq!(got[2][at], most);
        }
    }
}

#[test]
fn sums_overflow_only_where_a_frame_does() {
    let context = Context::new(runtime(1), Ledger::new(64 << 20));
    let order = KeyOrder { descending: false, nulls_first: false };
    let row = |(id, number): (u64, i64)| Row {
        id,
        group: None,
        key: Some(id as i64),
        number: Some(number),
        float: None,
        text: None,
        truth: None,
    };
    let rows: Vec<Row> = [(0, i64::MAX), (1, 1), (2, -5)].into_iter().map(row).collect();
    let own = Frame::Rows(Bound::CurrentRow, Bound::CurrentRow);
    check(
        &context,
        &rows,
        false,
        order,
        &[(Kind::Aggregate(Aggregate::Sum, own), Argument::Number)],
    );
    let running = Frame::Rows(Bound::Unbounded, Bound::CurrentRow);
    let functions = [(Kind::Aggregate(Aggregate::Sum, running), Argument::Number)];
    let result = run(&context, &rows, false, order, &functions);
    assert!(matches!(result, Err(ExecError::Overflow { .. })), "{result:?}");
}

#[test]
fn cancelled_windows_leave_nothing_behind() {
    let mut random = random();
    let rows = rows(60_000, 2, &mut random);
    let runtime = runtime(2);
    let order = KeyOrder { descending: true, nulls_first: true };
    for _ in 0..30 {
        let context = Context::new(runtime.clone(), Ledger::new(256 << 20));
        let functions: Vec<_> = (0..4).map(|_| function(order, &mut random)).collect();
        let cancel = context.cancel.clone();
        let wait = Duration::from_micros(random.u64(..200_000));
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(wait);
            cancel.cancel();
        });
        match run(&context, &rows, true, order, &functions) {
            Ok((ids, _)) => assert_eq!(ids.len(), 60_000),
            Err(error) => assert!(matches!(error, ExecError::Cancelled), "{error:?}"),
        }
        canceller.join().unwrap();
    }
}

#[test]
fn a_window_says_that_it_has_no_memory() {
    let rows = rows(60_000, 2, &mut random());
    let order = KeyOrder { descending: false, nulls_first: false };
    let functions = [(Kind::RowNumber, Argument::Nothing)];
    for limit in [100 << 10, 4 << 20, 6 << 20] {
        let context = Context::new(runtime(2), Ledger::new(limit));
        let result = run(&context, &rows, true, order, &functions);
        match result {
            Err(ExecError::Memory { operator, .. }) => assert_eq!(operator, "a window"),
            other => panic!("{limit}: {:?}", other.map(|(ids, _)| ids.len())),
        }
    }
}
