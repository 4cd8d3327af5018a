//! Aggregations that outgrow memory: the answer is that of unlimited memory, and nothing is left.

use std::sync::Arc;

use weft_exec::aggregate::{Aggregate, Aggregation, Function, Keys, Output, Quantile};
use weft_exec::program::{Program, Register, Step};
use weft_exec::query::{Context, PartitionMode};
use weft_exec::{ExecError, Interpreter, Lane, Result, Str, VECTOR_ROWS_MAX};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults};

use crate::drive::run;
use crate::rows::{Cell, Scalar, Shared, Table, hash, identity};
use crate::spill_context::{assert_nothing_is_left, context, settled, stats};

const AMPLE: u64 = 1 << 30;

/// How many different keys there are, and how long texts are.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    groups: u64,
    /// One group has most of the rows.
    is_skewed: bool,
    text_bytes: usize,
    /// All groups have hashes of the same partition.
    is_one_partition: bool,
}

const SHAPE: Shape =
    Shape { rows: 0, groups: 1 << 40, is_skewed: false, text_bytes: 60, is_one_partition: false };

fn key_text(group: u64) -> Vec<u8> {
    format!("the text of key {}", group % 97).into_bytes()
}

/// So many groups whose hashes lie in the first partition.
fn in_one_partition(count: usize) -> Vec<u64> {
    let mut program = Program::default();
    let keys = vec![program.input(Lane::I64), program.input(Lane::Str)];
    let out = program.register(Lane::U64);
    program.steps.push(Step::Hash { keys, out });
    let context = context(1, MIB, SimFaults::none());
    let mut interpreter = Interpreter::new(Arc::new(program), &context);
    let mut found = Vec::new();
    let rows = VECTOR_ROWS_MAX;
    for start in (0..).step_by(rows) {
        interpreter.begin(rows);
        let groups: Vec<u64> = (start..).take(rows).collect();
        let texts: Vec<Vec<u8>> = groups.iter().map(|group| key_text(*group)).collect();
        let registers = interpreter.registers_mut();
        for (row, group) in groups.iter().enumerate() {
            registers.vector_mut(Register(0)).values_mut::<i64>()[row] = (group / 2) as i64;
            registers.vector_mut(Register(1)).values_mut::<Str>()[row] = Str::new(&texts[row]);
        }
        registers.vector_mut(Register(0)).validity.set_all();
        registers.vector_mut(Register(1)).validity.set_all();
        assert!(interpreter.advance().expect("no step fails"));
        let hashes = interpreter.registers().values::<u64>(Register(2));
        // Multiples of a thousand have a null.
        let is_one = |row: &usize| hashes[*row] >> 56 == 0 && !groups[*row].is_multiple_of(1_000);
        found.extend((0..rows).filter(is_one).map(|row| groups[row]));
        if found.len() >= count {
            break;
        }
    }
    found
}

/// Columns: a number and a text as keys, with nulls; a number, a text with nulls, and an order as arguments; hashes of number and
/// text.
fn table(shape: Shape, seed: u64) -> Shared {
    let mut random = fastrand::Rng::with_seed(seed);
    let text = |random: &mut fastrand::Rng, number: u64| {
        let mut text = format!("{number}-").into_bytes();
        text.resize(random.usize(..=shape.text_bytes).max(text.len()), b'x');
        Scalar::Text(text)
    };
    let one_partition =
        if shape.is_one_partition { in_one_partition(shape.groups as usize) } else { Vec::new() };
    let row = |_| {
        let is_heavy = shape.is_skewed && random.u8(..) < 200;
        let group = if is_heavy { 1 } else { random.u64(..shape.groups) };
        let group = one_partition.get(group as usize).copied().unwrap_or(group);
        let is_null = group.is_multiple_of(1_000);
        let key_text = key_text(group);
        let number = random.u64(..1_000);
        let has_text = random.u8(..) > 20;
        let arguments =
            [Some(Scalar::Integer(number.into())), has_text.then(|| text(&mut random, number))];
        let hashes = [0, 1].map(|at| {
            let argument = std::slice::from_ref(&arguments[at]);
            Some(Scalar::Integer(hash(argument).into()))
        });
        let mut row = vec![
            Some(Scalar::Integer((group / 2).into())),
            (!is_null).then_some(Scalar::Text(key_text)),
        ];
        row.extend(arguments);
        row.push(Some(Scalar::Text(random.u64(..).to_be_bytes().repeat(2))));
        row.extend(hashes);
        row
    };
    let rows = (0..shape.rows).map(row).collect();
    let arguments = [Lane::I64, Lane::Str, Lane::Str, Lane::U64, Lane::U64];
    Arc::new(Table::new([&[Lane::I64, Lane::Str], &arguments[..]].concat(), rows))
}

/// Aggregates of which each group keeps something in its tuple alone, or a list or set behind it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Values,
    Lists,
    Sets,
}

fn aggregate(context: &Context, table: &Shared, kept: Kept) -> Result<Vec<Vec<Cell>>> {
    let mut program = Program::default();
    table.lanes.iter().for_each(|lane| {
        program.input(*lane);
    });
    let register = |column: u16| Register(column);
    let of = |function, column, lane| Aggregate {
        is_nullable: true,
        ..Aggregate::new(function, vec![register(column)], lane)
    };
    let mut aggregates = vec![
        Aggregate { is_nullable: false, ..Aggregate::new(Function::Count, Vec::new(), Lane::I64) },
        of(Function::Sum, 2, Lane::I128),
        of(Function::Average { digits: 2 }, 2, Lane::F64),
        of(Function::Min, 3, Lane::Str),
        of(Function::Max, 3, Lane::Str),
        of(Function::First { ignores_nulls: true }, 3, Lane::Str),
        of(Function::Last { ignores_nulls: false }, 2, Lane::I64),
    ];
    aggregates[5].order = Some(register(4));
    aggregates[6].order = Some(register(4));
    let texts = || Function::Texts { separator: b", ".as_slice().into() };
    if kept == Kept::Lists {
        aggregates.extend([
            of(Function::ContinuousQuantile(Quantile::ascending(0.5)), 2, Lane::I64),
            of(Function::DiscreteQuantile(Quantile::ascending(0.25)), 3, Lane::Str),
            Aggregate { order: Some(register(4)), ..of(texts(), 3, Lane::Str) },
        ]);
    }
    if kept != Kept::Values {
        let distinct = |function, column: u16, lane| Aggregate {
            is_distinct: true,
            hash: Some(register(column + 3)),
            ..of(function, column, lane)
        };
        aggregates.extend([
            distinct(Function::Count, 3, Lane::I64),
            distinct(Function::Sum, 2, Lane::I128),
            Aggregate {
                is_distinct: false,
                ..distinct(Function::ApproximateDistinct, 3, Lane::I64)
            },
        ]);
        if kept == Kept::Lists {
            let order = Some(register(3));
            aggregates.push(Aggregate { order, ..distinct(texts(), 3, Lane::Str) });
        }
    }
    let keys = [(Lane::I64, false), (Lane::Str, true)];
    let set = Keys::new(&mut program, vec![register(0), register(1)]);
    let aggregation = Aggregation::by_keys(&program, &keys, vec![set], &aggregates, Vec::new());
    let mut outputs: Vec<(Output, Lane)> =
        keys.iter().enumerate().map(|(at, (lane, _))| (Output::Key(at), *lane)).collect();
    let results = aggregates.iter().enumerate();
    outputs.extend(results.map(|(at, aggregate)| (Output::Aggregate(at), aggregate.result)));
    let mut groups = run(context, &program, &aggregation, table, None, &outputs)?;
    groups.sort_by_key(|row| identity(&row[..2]));
    Ok(groups)
}

/// Compares with unlimited memory; returns the bytes that were spilled.
fn check(shape: Shape, workers: usize, vector_rows: usize, bytes: u64) -> u64 {
    check_kept(Kept::Values, shape, workers, vector_rows, bytes)
}

fn check_kept(kept: Kept, shape: Shape, workers: usize, vector_rows: usize, bytes: u64) -> u64 {
    let seed = fastrand::u64(..);
    println!(
        "seed {seed}, {kept:?}, {shape:?}, {workers} workers, {vector_rows} rows, {bytes} bytes"
    );
    let table = table(shape, seed);
    let ample = context(2, AMPLE, SimFaults::none());
    let expected = aggregate(&ample, &table, kept).expect("memory suffices");
    assert_eq!(stats(&ample).written_bytes, 0, "spilled without need");
    let mut little = context(workers, bytes, SimFaults::none());
    little.vector_rows = vector_rows;
    if shape.is_one_partition {
        little.partition = PartitionMode::Always;
    }
    let found = aggregate(&little, &table, kept).expect("it spills");
    assert_eq!(found.len(), expected.len(), "number of groups");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert!(little.ledger.peak() <= bytes);
    assert_nothing_is_left(&little);
    stats(&little).written_bytes
}

const MIB: u64 = 1 << 20;

#[test]
fn what_outgrows_memory_is_spilled() {
    let shape = Shape { rows: 60_000, groups: 1 << 40, is_skewed: false, text_bytes: 60, ..SHAPE };
    // About 10, 5, 2 and 1 times what there is.
    for megabytes in [3, 6, 16, 32] {
        let spilled = check(shape, 1, 2048, megabytes * MIB);
        assert!(spilled > 0 || megabytes == 32, "{megabytes} MiB");
    }
    check(shape, 2, 2048, 6 * MIB);
    check(shape, 8, 2048, 24 * MIB);
}

/// Packed, groups take less memory than there is.
#[test]
fn what_is_packed_stays_in_memory() {
    // There are 256 partitions, and memory to pack each.
    let table = table(Shape { rows: 800_000, text_bytes: 30, ..SHAPE }, 1);
    let ample = context(1, AMPLE, SimFaults::none());
    let expected = aggregate(&ample, &table, Kept::Values).expect("memory suffices");
    let bytes = ample.ledger.peak() * 4 / 5;
    let little = context(1, bytes, SimFaults::none());
    let found = aggregate(&little, &table, Kept::Values).expect("it is packed");
    assert!(found == expected, "other groups");
    let written = stats(&little).raw_bytes;
    assert!(written < bytes / 16, "{written} bytes, of {bytes} that there may be");
    assert!(little.ledger.peak() <= bytes);
    assert_nothing_is_left(&little);
}

#[test]
fn short_vectors_and_few_groups() {
    let many = Shape { rows: 15_000, groups: 1 << 40, is_skewed: false, text_bytes: 300, ..SHAPE };
    check(many, 2, 7, 6 * MIB);
    check(Shape { rows: 6_000, text_bytes: 1_000, ..many }, 1, 1, 3 * MIB);
    let some = Shape { rows: 60_000, groups: 20_000, is_skewed: false, text_bytes: 100, ..SHAPE };
    check(some, 2, 2048, 5 * MIB);
    check(Shape { is_skewed: true, ..some }, 2, 2048, 5 * MIB);
    check(Shape { groups: 1 << 40, is_skewed: true, ..some }, 1, 2048, 3 * MIB);
}

/// One partition has everything: it does not fit when it is read back, its groups do or do not.
#[test]
fn partitions_that_outgrow_memory_are_partitioned_anew() {
    let shape = Shape { is_one_partition: true, groups: 12_000, ..SHAPE };
    for rows in [6_000, 12_000, 24_000] {
        check(Shape { rows, ..shape }, 1, 2048, 4 * MIB);
    }
    check(Shape { rows: 20_000, text_bytes: 200, ..shape }, 2, 2048, 6 * MIB);
    // Tuples of which many are of the same group.
    for groups in [1_000, 3_000, 6_000] {
        assert!(check(Shape { rows: 50_000, groups, ..shape }, 1, 2048, 3 * MIB) > 0);
    }
}

#[test]
fn lists_and_sets_are_spilled() {
    let shape = Shape { rows: 12_000, groups: 1_000, text_bytes: 60, ..SHAPE };
    for kept in [Kept::Lists, Kept::Sets] {
        // Many small ones, some, few that are larger than pages.
        for groups in [1 << 40, 2_000, 20] {
            for (workers, megabytes) in [(1, 3), (2, 5), (2, 24)] {
                let spilled =
                    check_kept(kept, Shape { groups, ..shape }, workers, 2048, megabytes * MIB);
                let fits = megabytes == 24 || kept == Kept::Sets;
                assert!(spilled > 0 || fits, "{kept:?}, {groups} groups, {megabytes} MiB");
            }
        }
        check_kept(kept, Shape { rows: 3_000, text_bytes: 400, ..shape }, 2, 7, 6 * MIB);
        let skewed = Shape { is_skewed: true, ..shape };
        check_kept(kept, skewed, 2, 2048, 20 * MIB);
        let one = Shape { is_one_partition: true, groups: 500, ..shape };
        check_kept(kept, one, 1, 2048, 6 * MIB);
    }
}

/// The set of a group fits, what was spilled of it before it was merged does not.
#[test]
fn sets_of_few_groups_become_smaller() {
    let shape = Shape { rows: 60_000, groups: 3, text_bytes: 0, ..SHAPE };
    check_kept(Kept::Sets, shape, 2, 2048, 2 * MIB);
}

#[test]
fn a_list_larger_than_memory_is_an_error() {
    let shape = Shape { rows: 40_000, groups: 1, text_bytes: 200, ..SHAPE };
    let table = table(shape, 5);
    let context = context(2, 4 * MIB, SimFaults::none());
    let error = aggregate(&context, &table, Kept::Lists).expect_err("one list");
    assert!(matches!(error, ExecError::Memory { .. }), "{error}");
    settled(&context);
}

#[test]
fn texts_larger_than_any_page() {
    let shape =
        Shape { rows: 600, groups: 1 << 40, is_skewed: false, text_bytes: 200_000, ..SHAPE };
    assert!(check(shape, 1, 32, 24 * MIB) > 0);
    // A tuple has up to four texts: a dozen pages are all that there is.
    for megabytes in [32, 10, 10] {
        check(Shape { groups: 50, ..shape }, 2, 32, megabytes * MIB);
    }
}

#[test]
fn failing_devices_are_an_error_that_says_so() {
    let shape = Shape { rows: 40_000, groups: 1 << 40, is_skewed: false, text_bytes: 60, ..SHAPE };
    let table = table(shape, 1);
    for number in [0, 1, 7, 40] {
        for operation in [Operation::Write, Operation::Read] {
            for (fault, words) in [(Fault::IO, "spill"), (Fault::Error(28), "temp_directory")] {
                if operation == Operation::Read && fault != Fault::IO {
                    continue;
                }
                let faults = SimFaults::none().with(FaultRule::from(operation, number, fault));
                let context = context(2, 6 * MIB, faults);
                let error =
                    aggregate(&context, &table, Kept::Values).expect_err("the device failed");
                assert!(matches!(error, ExecError::Store(_)), "{error}");
                assert!(error.to_string().contains(words), "{error}");
                settled(&context);
            }
        }
    }
}

#[test]
fn short_and_interrupted_transfers_are_not_noticed() {
    let shape = Shape { rows: 20_000, groups: 1 << 40, is_skewed: false, text_bytes: 60, ..SHAPE };
    let table = table(shape, 2);
    let expected =
        aggregate(&context(1, AMPLE, SimFaults::none()), &table, Kept::Values).expect("ample");
    let faults = SimFaults::none()
        .with(FaultRule::chance(Operation::Write, 0.3, Fault::Short))
        .with(FaultRule::chance(Operation::Read, 0.3, Fault::Short))
        .with(FaultRule::chance(Operation::Write, 0.1, Fault::INTERRUPTED));
    let context = context(1, 3 * MIB, faults);
    assert_eq!(aggregate(&context, &table, Kept::Values).expect("it spills"), expected);
    assert!(stats(&context).written_bytes > 0);
    assert_nothing_is_left(&context);
}
