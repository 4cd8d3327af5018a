//! Random tables and aggregates, on all kinds of engines.

use std::collections::HashMap;
use std::sync::Arc;

use weft_exec::Lane;
use weft_exec::aggregate::{Aggregate, Aggregation, Function, Keys, Moment, Output, Quantile};
use weft_exec::program::{Program, Register};
use weft_exec::query::PartitionMode;

use crate::drive::{context, run};
use crate::oracle;
use crate::rows::{Cell, Scalar, Table, hash, identity};

const NUMBERS: [Lane; 11] = [
    Lane::I8,
    Lane::I16,
    Lane::I32,
    Lane::I64,
    Lane::U8,
    Lane::U16,
    Lane::U32,
    Lane::U64,
    Lane::I128,
    Lane::F32,
    Lane::F64,
];
/// A value of a lane, one of about `variety`.
fn scalar(random: &mut fastrand::Rng, lane: Lane, variety: u64) -> Scalar {
    let number = random.u64(..variety) as i128;
    match lane {
        Lane::Bool => Scalar::Bool(number % 2 == 1),
        Lane::I8 => Scalar::Integer((number as i8).into()),
        Lane::I16 => Scalar::Integer((number as i16).into()),
        Lane::U8 => Scalar::Integer((number as u8).into()),
        Lane::U16 => Scalar::Integer((number as u16).into()),
        Lane::U32 => Scalar::Integer((number as u32).into()),
        Lane::U64 => Scalar::Integer(number * 3),
        Lane::I32 => Scalar::Integer((number as i32).into()),
        Lane::I64 | Lane::I128 => {
            Scalar::Integer(if number % 3 == 0 { -number } else { number * 1000 })
        }
        Lane::F32 | Lane::F64 => Scalar::Float(match number {
            0 => 0.0,
            1 => -0.0,
            number => (number as f64 / 4.0 - 100.0) as f32 as f64,
        }),
        Lane::Str => {
            let length = number as usize * 7 % 40;
            let mut text = format!("{number}").into_bytes();
            text.resize(text.len().max(length), b'x');
            Scalar::Text(text)
        }
    }
}

struct Columns {
    table: Table,
    program: Program,
}

impl Columns {
    fn add(&mut self, lane: Lane, mut cell: impl FnMut(usize) -> Cell) -> Register {
        self.table.lanes.push(lane);
        self.table.rows.iter_mut().enumerate().for_each(|(at, row)| row.push(cell(at)));
        self.program.input(lane)
    }

    fn add_hash(&mut self, of: &[Register]) -> Register {
        let hashes: Vec<u64> = self
            .table
            .rows
            .iter()
            .map(|row| {
                let cells: Vec<Cell> =
                    of.iter().map(|column| row[column.index()].clone()).collect();
                hash(&cells)
            })
            .collect();
        self.add(Lane::U64, |row| Some(Scalar::Integer(hashes[row].into())))
    }
}

fn quantile(random: &mut fastrand::Rng) -> Quantile {
    Quantile { fraction: random.f64(), is_descending: random.bool() }
}

fn functions(random: &mut fastrand::Rng, lane: Lane) -> (Function, Lane) {
    let is_number = NUMBERS.contains(&lane);
    let is_float = matches!(lane, Lane::F32 | Lane::F64);
    let choices: Vec<(Function, Lane, bool)> = vec![
        (Function::Count, Lane::I64, true),
        (Function::Min, lane, true),
        (Function::Max, lane, true),
        (Function::First { ignores_nulls: true }, lane, true),
        (Function::First { ignores_nulls: false }, lane, true),
        (Function::Last { ignores_nulls: true }, lane, true),
        (Function::Last { ignores_nulls: false }, lane, true),
        (Function::DiscreteQuantile(quantile(random)), lane, true),
        (Function::ApproximateDistinct, Lane::I64, true),
        (Function::Sum, if is_float { Lane::F64 } else { Lane::I128 }, is_number),
        (Function::Sum, Lane::F64, is_number),
        (Function::Average { digits: 2 }, if is_float { Lane::F64 } else { Lane::I128 }, is_number),
        (Function::Average { digits: 0 }, Lane::F64, is_number),
        (Function::ContinuousQuantile(quantile(random)), Lane::F64, is_number),
        (Function::ContinuousQuantile(Quantile::ascending(0.5)), lane, is_number),
        (Function::And, lane, !is_float && lane != Lane::Str),
        (Function::Or, lane, !is_float && lane != Lane::Str),
        (Function::Xor, lane, is_number && !is_float),
        (Function::Texts { separator: Arc::from(&b", "[..]) }, Lane::Str, lane == Lane::Str),
        (Function::Texts { separator: Arc::from(&b""[..]) }, Lane::Str, lane == Lane::Str),
    ];
    let possible: Vec<_> = choices.into_iter().filter(|choice| choice.2).collect();
    let (function, result, _) = possible[random.usize(..possible.len())].clone();
    (function, result)
}

const MOMENTS: [Moment; 10] = [
    Moment::VarianceSample,
    Moment::VariancePopulation,
    Moment::DeviationSample,
    Moment::DeviationPopulation,
    Moment::CovarianceSample,
    Moment::CovariancePopulation,
    Moment::Correlation,
    Moment::Skewness,
    Moment::KurtosisSample,
    Moment::KurtosisPopulation,
];

fn aggregates(random: &mut fastrand::Rng, columns: &mut Columns, has_keys: bool) -> Vec<Aggregate> {
    let rows = columns.table.rows.len();
    let order = columns.add(Lane::Str, |row| {
        let shuffled = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        Some(Scalar::Text([&shuffled[..], &[0; 6]].concat()))
    });
    let mut all = vec![Aggregate::new(Function::Count, Vec::new(), Lane::U64)];
    all[0].is_nullable = !has_keys;
    for _ in 0..random.usize(1..7) {
        let lane = Lane::ALL[random.usize(..Lane::ALL.len())];
        let nulls = if random.bool() { 0.0 } else { random.f64() };
        let variety = [2, 10, 500, 1 << 20][random.usize(..4)];
        let cells: Vec<Cell> = (0..rows)
            .map(|_| (random.f64() >= nulls).then(|| scalar(random, lane, variety)))
            .collect();
        let argument = columns.add(lane, |row| cells[row].clone());
        let filter = random.bool().then(|| {
            let share = random.f64() * 1.2;
            let truths: Vec<Cell> = (0..rows)
                .map(|_| (random.u8(..) > 10).then(|| Scalar::Bool(random.f64() < share)))
                .collect();
            columns.add(Lane::Bool, |row| truths[row].clone())
        });
        if lane == Lane::F64 && random.bool() {
            let moment = MOMENTS[random.usize(..MOMENTS.len())];
            let other: Vec<Cell> = (0..rows).map(|_| Some(scalar(random, lane, 50))).collect();
            let other = columns.add(lane, |row| other[row].clone());
            let mut arguments = vec![argument];
            let is_of_one = matches!(
                moment,
                Moment::Skewness | Moment::KurtosisSample | Moment::KurtosisPopulation
            );
            arguments.extend((!is_of_one && random.bool()).then_some(other));
            all.push(Aggregate {
                filter,
                ..Aggregate::new(Function::Moment(moment), arguments, lane)
            });
            continue;
        }
        let hash = columns.add_hash(&[argument]);
        for _ in 0..random.usize(1..4) {
            let (function, result) = functions(random, lane);
            let needs_order = matches!(
                function,
                Function::First { .. } | Function::Last { .. } | Function::Texts { .. }
            );
            let is_distinct = !needs_order && random.u8(..4) == 0;
            all.push(Aggregate {
                filter,
                is_distinct,
                hash: Some(hash),
                order: needs_order.then_some(order),
                is_nullable: !has_keys || filter.is_some() || nulls > 0.0,
                ..Aggregate::new(function, vec![argument], result)
            });
        }
    }
    all
}

fn agrees(found: &Cell, expected: &Cell, aggregate: &Aggregate) -> bool {
    match (found, expected) {
        (Some(Scalar::Float(a)), Some(Scalar::Float(b))) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * (1.0 + b.abs())
        }
        (Some(Scalar::Integer(a)), Some(Scalar::Integer(b)))
            if matches!(aggregate.function, Function::ApproximateDistinct) =>
        {
            (a - b).abs() as f64 <= 0.1 * *b as f64
        }
        (Some(a), Some(b)) => a.identity() == b.identity(),
        _ => found == expected,
    }
}

/// Group counts: none, one, few, many, and many of which one is large.
const SHAPES: [(usize, u64); 7] =
    [(0, 1), (1, 1), (3000, 1), (5000, 5), (4000, 100), (30_000, 1 << 40), (20_000, 700)];

fn check(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (rows, variety) = SHAPES[random.usize(..SHAPES.len())];
    let vector_rows = [1, 7, 2048, 2048][random.usize(..4)];
    let rows = if vector_rows < 2048 { rows / 4 } else { rows };
    let mut columns = Columns {
        table: Table::new(Vec::new(), vec![Vec::new(); rows]),
        program: Program::default(),
    };
    let is_skewed = random.bool();
    let mut keys = Vec::new();
    let mut key_lanes = Vec::new();
    for _ in 0..random.usize(0..4) {
        let lane = Lane::ALL[random.usize(..Lane::ALL.len())];
        let has_nulls = random.bool();
        let cells: Vec<Cell> = (0..rows)
            .map(|_| {
                let variety = if is_skewed && random.bool() { 1 } else { variety };
                let is_null = has_nulls && random.u64(..variety.min(50) + 1) == 0;
                (!is_null).then(|| match scalar(&mut random, lane, variety) {
                    Scalar::Float(-99.0) => Scalar::Float(f64::NAN),
                    other => other,
                })
            })
            .collect();
        keys.push(columns.add(lane, |row| cells[row].clone()));
        key_lanes.push((lane, has_nulls));
    }
    let aggregates = aggregates(&mut random, &mut columns, !keys.is_empty());
    let selection = random.bool().then(|| {
        let truths: Vec<bool> = (0..rows).map(|_| random.u8(..) < 200).collect();
        columns.add(Lane::Bool, |row| Some(Scalar::Bool(truths[row]))).index()
    });
    let Columns { mut table, mut program } = columns;
    let set = Keys::new(&mut program, keys.clone());
    if random.bool() {
        table.make_dictionaries();
    }
    let workers = [1, 2, 8][random.usize(..3)];
    let mut context = context(workers, 1 << 30);
    context.vector_rows = vector_rows;
    context.partition =
        [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never][random.usize(..3)];
    let aggregation = if keys.is_empty() {
        Aggregation::without_keys(&program, &aggregates)
    } else {
        Aggregation::by_keys(&program, &key_lanes, vec![set], &aggregates, Vec::new())
    };
    let mut outputs: Vec<(Output, Lane)> = Vec::new();
    outputs.extend(key_lanes.iter().enumerate().map(|(at, (lane, _))| (Output::Key(at), *lane)));
    let results = aggregates.iter().enumerate();
    outputs.extend(results.map(|(at, aggregate)| (Output::Aggregate(at), aggregate.result)));
    let table = Arc::new(table);
    let found = run(&context, &program, &aggregation, &table, selection, &outputs)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));

    let key_columns: Vec<usize> = keys.iter().map(|key| key.index()).collect();
    let mut expected = oracle::groups(&table, &key_columns, selection);
    if keys.is_empty() && expected.is_empty() {
        expected.push((Vec::new(), Vec::new()));
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}: number of groups");
    let mut by_keys: HashMap<_, _> =
        found.iter().map(|row| (identity(&row[..keys.len()]), &row[keys.len()..])).collect();
    for (cells, rows) in &expected {
        let found = by_keys.remove(&identity(cells));
        let found = found.unwrap_or_else(|| panic!("seed {seed}: no group {cells:?}"));
        for (aggregate, found) in aggregates.iter().zip(found) {
            let expected = oracle::value(&table, aggregate, rows);
            assert!(
                agrees(found, &expected, aggregate),
                "seed {seed}: {aggregate:?} of {cells:?} ({} rows) is {found:?}, not {expected:?}",
                rows.len()
            );
        }
    }
    drop(aggregation);
    assert_eq!(context.ledger.used(), 0, "seed {seed}: memory that nobody has");
}

#[test]
fn random_aggregates_agree_with_the_oracle() {
    (0..30).for_each(check);
    let fresh = fastrand::u64(..);
    (fresh..fresh.saturating_add(5)).for_each(check);
}
