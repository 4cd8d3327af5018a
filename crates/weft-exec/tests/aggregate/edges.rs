//! What random rows do not reach: overflow, memory that runs out, groups that are there without rows, grouping sets,
//! functions of somebody else.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use arrow_schema::DataType;
use weft_exec::aggregate::{
    Aggregate, Aggregation, External, Function, Group, Keys, Moment, Output, Product, Quantile,
    Shape,
};
use weft_exec::program::{Constant, Program, Register};
use weft_exec::query::PartitionMode;
use weft_exec::{ExecError, Lane, Result};

use crate::drive::{context, run};
use crate::rows::{Cell, Scalar, Table, hash};

fn integers(lane: Lane, values: &[i128]) -> (Program, Arc<Table>) {
    let mut program = Program::default();
    program.input(lane);
    let rows = values.iter().map(|value| vec![Some(Scalar::Integer(*value))]).collect();
    (program, Arc::new(Table::new(vec![lane], rows)))
}

fn sum_of(lane: Lane, result: Lane, values: &[i128]) -> Result<Cell> {
    let (program, table) = integers(lane, values);
    let sum = Aggregate::new(Function::Sum, vec![Register(0)], result);
    let aggregation = Aggregation::without_keys(&program, &[sum]);
    let outputs = [(Output::Aggregate(0), result)];
    let groups = run(&context(1, 1 << 20), &program, &aggregation, &table, None, &outputs)?;
    Ok(groups[0][0].clone())
}

#[test]
fn sums_are_exact_or_an_error() {
    let large = i128::from(i64::MAX);
    let total = |values: &[i128]| Some(Scalar::Integer(values.iter().sum()));
    let values = [large, large, -large, 5, i128::from(i64::MIN)];
    assert_eq!(sum_of(Lane::I64, Lane::I64, &values).expect("fits"), total(&values));
    let values = [large, 1];
    assert_eq!(sum_of(Lane::I64, Lane::I128, &values).expect("fits"), total(&values));
    assert!(matches!(sum_of(Lane::I64, Lane::I64, &values), Err(ExecError::Overflow { .. })));
    let values = [u64::MAX.into(), 1];
    assert!(matches!(sum_of(Lane::U64, Lane::U64, &values), Err(ExecError::Overflow { .. })));
    let values = [i128::MAX, 1];
    assert!(matches!(sum_of(Lane::I128, Lane::I128, &values), Err(ExecError::Overflow { .. })));
    let values = vec![large; 5000];
    assert_eq!(sum_of(Lane::I64, Lane::I128, &values).expect("fits"), total(&values));
    assert_eq!(sum_of(Lane::I64, Lane::I64, &[]).expect("no rows"), None);
}

/// A column with hashes of the first one.
fn hash_of_first(program: &mut Program, table: &mut Table) -> Register {
    let hashed = program.input(Lane::U64);
    table.lanes.push(Lane::U64);
    for row in &mut table.rows {
        let value = hash(&row[..1]);
        row.push(Some(Scalar::Integer(value.into())));
    }
    hashed
}

#[test]
fn what_does_not_fit_into_memory_is_an_error() {
    let values: Vec<i128> = (0..200_000).collect();
    for workers in [1, 2] {
        for kind in 0..3 {
            let (mut program, table) = integers(Lane::I64, &values);
            let mut table = Arc::into_inner(table).expect("nobody else has it");
            let hash = hash_of_first(&mut program, &mut table);
            let keys = vec![Keys::new(&mut program, vec![Register(0)])];
            let aggregate = match kind {
                0 => Aggregate::new(Function::Sum, vec![Register(0)], Lane::I64),
                1 => Aggregate {
                    hash: Some(hash),
                    is_distinct: true,
                    ..Aggregate::new(Function::Count, vec![Register(0)], Lane::I64)
                },
                _ => Aggregate::new(
                    Function::DiscreteQuantile(Quantile::ascending(0.5)),
                    vec![Register(0)],
                    Lane::I64,
                ),
            };
            let aggregation = if kind == 0 {
                Aggregation::by_keys(&program, &[(Lane::I64, false)], keys, &[aggregate], vec![])
            } else {
                Aggregation::without_keys(&program, &[aggregate])
            };
            let context = context(workers, 1 << 20);
            let outputs = [(Output::Aggregate(0), Lane::I64)];
            let result = run(&context, &program, &aggregation, &Arc::new(table), None, &outputs);
            assert!(matches!(result, Err(ExecError::Memory { .. })), "{kind}: {result:?}");
            drop(aggregation);
            assert_eq!(context.ledger.used(), 0, "{kind}");
        }
    }
}

/// Keys of few values are found by their places. So many groups do not fit into the hash table behind these: it forgets groups while a
/// vector is looked up, in one range of the table or in all.
#[test]
fn groups_by_places_are_forgotten_in_the_middle_of_a_vector() {
    const GROUPS: i128 = 60_000;
    let keys: Vec<i128> = (0..4 * GROUPS).map(|row| row * 7_919 % GROUPS).collect();
    for partition in [PartitionMode::Adaptive, PartitionMode::Always, PartitionMode::Never] {
        let (mut program, table) = integers(Lane::I64, &keys);
        let of_keys = vec![Keys::new(&mut program, vec![Register(0)])];
        let sum = Aggregate::new(Function::Sum, vec![Register(0)], Lane::I64);
        let key = [(Lane::I64, false)];
        let aggregation = Aggregation::by_keys(&program, &key, of_keys, &[sum], vec![]);
        let outputs = [(Output::Key(0), Lane::I64), (Output::Aggregate(0), Lane::I64)];
        let mut context = context(1, 1 << 30);
        context.partition = partition;
        let mut groups =
            run(&context, &program, &aggregation, &table, None, &outputs).expect("there is memory");
        let number = |cell: &Cell| cell.as_ref().expect("no nulls").integer();
        groups.sort_by_key(|group| number(&group[0]));
        let sums = groups.iter().map(|group| (number(&group[0]), number(&group[1])));
        assert!(sums.eq((0..GROUPS).map(|key| (key, 4 * key))), "{partition:?}");
    }
}

/// Products and moments are numbers of a group, however many values it has.
#[test]
fn moments_of_many_values_take_no_memory() {
    let values: Vec<f64> = (0..200_000).map(|row| 1.0 + f64::from(row % 7) * 1e-6).collect();
    let row = |value: &f64| vec![Some(Scalar::Float(*value))];
    let table = Arc::new(Table::new(vec![Lane::F64], values.iter().map(row).collect()));
    let shape = |values: &[f64]| {
        let mut shape = Shape::default();
        values.iter().for_each(|value| shape.add(*value));
        shape
    };
    let whole = shape(&values);
    let mut parts = shape(&values[..70_001]);
    parts.merge(&shape(&values[70_001..]));
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    let near = |a: Option<f64>, b: Option<f64>| a.zip(b).is_some_and(|(a, b)| is_near(a, b));
    assert!(near(parts.skewness(), whole.skewness()), "{parts:?} {whole:?}");
    assert!(near(parts.kurtosis(), whole.kurtosis()), "{parts:?} {whole:?}");
    let expected = [
        (Function::Product, Some(values.iter().product())),
        (Function::Moment(Moment::Skewness), whole.skewness()),
        (Function::Moment(Moment::KurtosisSample), whole.kurtosis()),
        (Function::Moment(Moment::KurtosisPopulation), whole.kurtosis_of_population()),
    ];
    for workers in [1, 2] {
        let mut program = Program::default();
        program.input(Lane::F64);
        let aggregates = expected
            .each_ref()
            .map(|(function, _)| Aggregate::new(function.clone(), vec![Register(0)], Lane::F64));
        let aggregation = Aggregation::without_keys(&program, &aggregates);
        let outputs: Vec<_> =
            (0..aggregates.len()).map(|at| (Output::Aggregate(at), Lane::F64)).collect();
        let context = context(workers, 1 << 20);
        let groups = run(&context, &program, &aggregation, &table, None, &outputs);
        for (found, (function, value)) in groups.expect("memory suffices")[0].iter().zip(&expected)
        {
            let found = found.as_ref().map(Scalar::float);
            assert!(near(found, *value), "{function:?}: {found:?}, not {value:?}");
        }
    }
}

#[test]
fn factors_may_come_in_any_order() {
    let product = |factors: &[f64]| {
        let (left, right) = factors.split_at(factors.len() / 2);
        let [mut left, right] = [left, right].map(|factors| {
            let mut product = Product::default();
            factors.iter().for_each(|factor| product.add(*factor));
            product
        });
        left.merge(&right);
        left.value()
    };
    assert_eq!(product(&[]), None);
    assert_eq!(product(&[f64::MAX, f64::MAX, 0.0]), Some(0.0));
    assert_eq!(product(&[f64::MAX, 2.0, 2.0, 0.25]), Some(f64::MAX));
    assert_eq!(product(&[1e300, 1e300, 1e-300, 1e-300, 3.0]).map(f64::round), Some(3.0));
    assert_eq!(product(&[1e-300, -1e-300, 5.0]), Some(-0.0));
    assert_eq!(product(&[f64::MAX, -2.0]), Some(f64::NEG_INFINITY));
    assert_eq!(product(&[f64::from_bits(1), 4.0]), Some(f64::from_bits(4)));
    assert!(product(&[f64::INFINITY, 0.0]).is_some_and(f64::is_nan));
}

#[test]
fn shapes_of_few_or_equal_values_are_nothing() {
    let mut shape = Shape::default();
    for count in 0..5 {
        assert_eq!(shape.skewness(), None, "{count}");
        assert_eq!(shape.kurtosis(), None, "{count}");
        assert_eq!(shape.kurtosis_of_population(), None, "{count}");
        shape.add(0.1);
    }
    let mut merged = shape;
    merged.merge(&Shape::default());
    assert_eq!(merged, shape);
    merged.merge(&shape);
    assert_eq!((merged.count, merged.sums), (10.0, [0.0; 3]));
}

/// Two keys and the number of the set: (a, b), (a), ().
fn grouping_sets(rows: Vec<(i128, i128)>) -> Vec<Vec<Cell>> {
    let mut program = Program::default();
    let lanes = [Lane::I32, Lane::I32, Lane::I32, Lane::I32, Lane::I32, Lane::I32];
    let registers: Vec<Register> = lanes.iter().map(|lane| program.input(*lane)).collect();
    let some = |value| Some(Scalar::Integer(value));
    // a, b, null, 0, 1, 2
    let sets = [[0, 1, 3], [0, 2, 4], [2, 2, 5]];
    let rows = rows
        .into_iter()
        .map(|(a, b)| vec![some(a), some(b), None, some(0), some(1), some(2)])
        .collect();
    let table = Table::new(lanes.to_vec(), rows);
    let mut keys = |set: [usize; 3]| Keys::new(&mut program, set.map(|at| registers[at]).to_vec());
    let keys = sets.map(&mut keys).to_vec();
    let aggregates = [
        Aggregate::new(Function::Count, Vec::new(), Lane::I64),
        Aggregate::new(Function::Sum, vec![registers[1]], Lane::I64),
    ];
    let lanes = [(Lane::I32, true), (Lane::I32, true), (Lane::I32, false)];
    let always = vec![vec![None, None, Some(Constant::I32(2))]];
    let aggregation = Aggregation::by_keys(&program, &lanes, keys, &aggregates, always);
    let outputs = [
        (Output::Key(2), Lane::I32),
        (Output::Key(0), Lane::I32),
        (Output::Key(1), Lane::I32),
        (Output::Aggregate(0), Lane::I64),
        (Output::Aggregate(1), Lane::I64),
    ];
    let context = context(2, 1 << 24);
    let mut found =
        run(&context, &program, &aggregation, &Arc::new(table), None, &outputs).expect("no error");
    found.sort_by_key(|row| format!("{row:?}"));
    found
}

#[test]
fn grouping_sets_have_a_total_even_over_no_rows() {
    let row = |cells: [Option<i128>; 5]| cells.map(|cell| cell.map(Scalar::Integer)).to_vec();
    assert_eq!(grouping_sets(Vec::new()), [row([Some(2), None, None, Some(0), None])]);
    assert_eq!(
        grouping_sets(vec![(1, 10), (1, 20), (2, 10), (1, 10)]),
        [
            row([Some(0), Some(1), Some(10), Some(2), Some(20)]),
            row([Some(0), Some(1), Some(20), Some(1), Some(20)]),
            row([Some(0), Some(2), Some(10), Some(1), Some(10)]),
            row([Some(1), Some(1), None, Some(3), Some(40)]),
            row([Some(1), Some(2), None, Some(1), Some(10)]),
            row([Some(2), None, None, Some(4), Some(50)]),
        ]
    );
}

/// The number of values, nulls included, and the values, as text.
#[derive(Debug)]
struct Listed;

impl External for Listed {
    fn name(&self) -> &str {
        "listed"
    }

    fn input_type(&self) -> &DataType {
        &DataType::Int64
    }

    fn begin(&self) -> Result<Box<dyn Group>> {
        Ok(Box::new(List(Vec::new())))
    }
}

struct List(Vec<Option<i64>>);

impl Group for List {
    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        let values = values.as_any().downcast_ref::<Int64Array>().expect("the type asked for");
        self.0.extend(values);
        Ok(())
    }

    fn value(&mut self) -> Result<ArrayRef> {
        let list = format!("{}: {:?}", self.0.len(), self.0);
        Ok(Arc::new(StringArray::from(vec![(!self.0.is_empty()).then_some(list)])))
    }
}

#[test]
fn external_functions_get_all_values_in_order() {
    let mut program = Program::default();
    let lanes = vec![Lane::I64, Lane::Str, Lane::U64];
    let registers: Vec<Register> = lanes.iter().map(|lane| program.input(*lane)).collect();
    let rows = [Some(3), None, Some(1), Some(3), None, Some(2)]
        .iter()
        .enumerate()
        .map(|(at, value): (usize, &Option<i128>)| {
            let value = value.map(Scalar::Integer);
            let hashed = Scalar::Integer(hash(std::slice::from_ref(&value)).into());
            vec![value, Some(Scalar::Text(vec![9 - at as u8])), Some(hashed)]
        })
        .collect();
    let table = Arc::new(Table::new(lanes, rows));
    let ordered = Aggregate {
        order: Some(registers[1]),
        ..Aggregate::new(Function::External(Arc::new(Listed)), vec![registers[0]], Lane::Str)
    };
    let distinct = Aggregate { is_distinct: true, hash: Some(registers[2]), ..ordered.clone() };
    let aggregation = Aggregation::without_keys(&program, &[ordered, distinct]);
    let outputs = [(Output::Aggregate(0), Lane::Str), (Output::Aggregate(1), Lane::Str)];
    let found = run(&context(1, 1 << 20), &program, &aggregation, &table, None, &outputs)
        .expect("no error");
    let text = |text: &str| Some(Scalar::Text(text.as_bytes().to_vec()));
    assert_eq!(found[0][0], text("6: [Some(2), None, Some(3), Some(1), None, Some(3)]"));
    // Of equal values, any one's place counts, and null's is the first.
    assert!(
        [
            text("4: [None, Some(2), Some(1), Some(3)]"),
            text("4: [None, Some(2), Some(3), Some(1)]")
        ]
        .contains(&found[0][1]),
        "{:?}",
        found[0][1]
    );
}

/// Counts the rows of each key, in vectors of any size, and compares the counts with a map's.
fn count_by(lane: Lane, keys: &[Option<i128>]) {
    let mut program = Program::default();
    let key = program.input(lane);
    let sets = vec![Keys::new(&mut program, vec![key])];
    let count = Aggregate::new(Function::Count, Vec::new(), Lane::I64);
    let rows = keys.iter().map(|key| vec![key.map(Scalar::Integer)]).collect();
    let table = Arc::new(Table::new(vec![lane], rows));
    let aggregation = Aggregation::by_keys(&program, &[(lane, true)], sets, &[count], vec![]);
    let outputs = [(Output::Key(0), lane), (Output::Aggregate(0), Lane::I64)];
    let context = context(2, 64 << 20);
    let groups = run(&context, &program, &aggregation, &table, None, &outputs).expect("fits");
    let integer = |cell: &Cell| match cell {
        Some(Scalar::Integer(value)) => Some(*value),
        None => None,
        other => panic!("{other:?}"),
    };
    let mut found: Vec<(Option<i128>, i128)> = groups
        .iter()
        .map(|group| (integer(&group[0]), integer(&group[1]).expect("a count")))
        .collect();
    found.sort_unstable();
    let mut expected = std::collections::BTreeMap::<Option<i128>, i128>::new();
    keys.iter().for_each(|key| *expected.entry(*key).or_default() += 1);
    assert!(found.into_iter().eq(expected), "keys of {lane}, {} rows", keys.len());
    drop(aggregation);
    assert_eq!(context.ledger.used(), 0, "keys of {lane}");
}

#[test]
fn integer_keys_keep_their_groups_while_windows_grow() {
    let rows = 30_000i128;
    let some = |value: i128| Some(value);
    for (lane, least, greatest) in [
        (Lane::I8, i128::from(i8::MIN), i128::from(i8::MAX)),
        (Lane::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
        (Lane::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
        (Lane::U8, 0, i128::from(u8::MAX)),
        (Lane::U32, 0, i128::from(u32::MAX)),
        (Lane::U64, 0, i128::from(u64::MAX)),
    ] {
        let fitting = |value: i128| value.clamp(least, greatest);
        let keys: [Vec<Option<i128>>; 6] = [
            (0..rows).map(|row| some(fitting(row / 300))).collect(),
            (0..rows).map(|row| some(fitting(greatest - row / 300))).collect(),
            (0..rows).map(|row| some(fitting(least + row / 7))).collect(),
            (0..rows).map(|row| (row % 11 > 0).then(|| fitting(row * 7 % 90))).collect(),
            (0..rows).map(|row| some(if row % 9999 == 9998 { least } else { greatest })).collect(),
            (0..rows).map(|row| (row > 9000).then(|| fitting(least / 2 + row % 2 * 3))).collect(),
        ];
        keys.iter().for_each(|keys| count_by(lane, keys));
    }
}
