//! What random rows do not reach: overflow, memory that runs out, groups that are there without rows, grouping sets,
//! functions of somebody else.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use arrow_schema::DataType;
use weft_exec::aggregate::{Aggregate, Aggregation, External, Function, Keys, Output};
use weft_exec::program::{Constant, Program, Register};
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
                    Function::DiscreteQuantile { fraction: 0.5 },
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

    fn call(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let values = values.as_any().downcast_ref::<Int64Array>().expect("the type asked for");
        let list = format!("{}: {:?}", values.len(), values.iter().collect::<Vec<_>>());
        Ok(Arc::new(StringArray::from(vec![(!values.is_empty()).then_some(list)])))
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
