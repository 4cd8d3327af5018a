//! Rows per second of aggregations: sum, count, min and avg by an integer key of 1 to 10 M different values, in random
//! order, on 1 and 2 threads; the same without keys; and what TPC-H query 1 asks for. Values and keys are in memory as
//! vectors, and are copied into registers; their hash is computed. Beside rows per second there is the processor time
//! of a row, over all threads, which tells more where others use the machine.
//!
//! `cargo run --release -p weft-exec --example aggregate_speed [rows in millions]`

use std::sync::Arc;
use std::time::Instant;

use weft_exec::aggregate::{Aggregate, Aggregation, Function, Keys, Output};
use weft_exec::interpret::Interpreter;
use weft_exec::pipeline::{Sink, Source};
use weft_exec::program::{Program, Register};
use weft_exec::query::Context;
use weft_exec::registers::Registers;
use weft_exec::{Lane, Result, Str, VECTOR_ROWS_MAX};
use weft_rt::memory::Ledger;
use weft_rt::{MorselQueue, Runtime, RuntimeOptions};

/// Runs of each, of which the fastest counts: others use the machine, too.
const RUNS: usize = 3;

/// Columns, of which each worker's registers share nothing.
enum Column {
    I64(Vec<i64>),
    I128(Vec<i128>),
    Str(Vec<Str>),
}

struct Case {
    name: String,
    rows: usize,
    columns: Vec<Column>,
    program: Program,
    /// What is grouped by.
    keys: Option<Keys>,
    aggregates: Vec<Aggregate>,
}

/// Seconds of processor time of the process so far, in hundredths; 0 if the system does not say.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have spaces: the 12th and 13th value are user and system time.
    let values = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    values.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn grouped(rows: usize, groups: u64) -> Case {
    let mut random = fastrand::Rng::with_seed(groups);
    let mut program = Program::default();
    let keys: Vec<i64> = (0..rows).map(|_| random.u64(..groups) as i64).collect();
    let values = (0..rows).map(|_| random.i64(0..100_000)).collect();
    let (key, value) = (program.input(Lane::I64), program.input(Lane::I64));
    let by = Keys::new(&mut program, vec![key]);
    let aggregate = |function, arguments, result| Aggregate {
        is_nullable: false,
        ..Aggregate::new(function, arguments, result)
    };
    Case {
        name: format!("{groups} groups"),
        rows,
        columns: vec![Column::I64(keys), Column::I64(values)],
        program,
        keys: Some(by),
        aggregates: vec![
            aggregate(Function::Sum, vec![value], Lane::I128),
            aggregate(Function::Count, Vec::new(), Lane::I64),
            aggregate(Function::Min, vec![value], Lane::I64),
            aggregate(Function::Average { digits: 0 }, vec![value], Lane::F64),
        ],
    }
}

/// Two keys of one byte, of which four pairs occur; five sums, four of them in averages, too, and a count.
fn query_1(rows: usize) -> Case {
    let mut random = fastrand::Rng::with_seed(1);
    let mut program = Program::default();
    let pairs: [(&[u8], &[u8]); 4] = [(b"A", b"F"), (b"N", b"F"), (b"N", b"O"), (b"R", b"F")];
    let picks: Vec<usize> =
        (0..rows).map(|_| [0, 0, 1, 2, 2, 2, 3, 3][random.usize(..8)]).collect();
    let flags = picks.iter().map(|pick| Str::new(pairs[*pick].0)).collect();
    let statuses = picks.iter().map(|pick| Str::new(pairs[*pick].1)).collect();
    let mut columns = vec![Column::Str(flags), Column::Str(statuses)];
    let keys = vec![program.input(Lane::Str), program.input(Lane::Str)];
    let mut decimals = |max: i64, lane: Lane, columns: &mut Vec<Column>| {
        let values = (0..rows).map(|_| random.i64(0..max));
        columns.push(match lane {
            Lane::I128 => Column::I128(values.map(i128::from).collect()),
            _ => Column::I64(values.collect()),
        });
        program.input(lane)
    };
    let quantity = decimals(5_000, Lane::I64, &mut columns);
    let price = decimals(10_000_000, Lane::I64, &mut columns);
    let discounted = decimals(1_000_000_000, Lane::I64, &mut columns);
    let charge = decimals(1_000_000_000_000, Lane::I128, &mut columns);
    let discount = decimals(10, Lane::I64, &mut columns);
    let keys = Keys::new(&mut program, keys);
    let aggregate = |function, arguments, result| Aggregate {
        is_nullable: false,
        ..Aggregate::new(function, arguments, result)
    };
    let mut aggregates: Vec<Aggregate> = [quantity, price, discounted, charge]
        .map(|argument| aggregate(Function::Sum, vec![argument], Lane::I128))
        .to_vec();
    aggregates
        .extend([quantity, price, discount].map(|argument| {
            aggregate(Function::Average { digits: 4 }, vec![argument], Lane::I128)
        }));
    aggregates.push(aggregate(Function::Count, Vec::new(), Lane::I64));
    Case { name: "query 1".into(), rows, columns, program, keys: Some(keys), aggregates }
}

fn without_keys(rows: usize) -> Case {
    let mut case = grouped(rows, 1);
    case.program.steps.clear();
    Case { name: "no keys".into(), keys: None, ..case }
}

fn fill(registers: &mut Registers, columns: &[Column], start: usize, rows: usize) {
    for (number, column) in columns.iter().enumerate() {
        let vector = registers.vector_mut(Register(number as u16));
        let range = start..start + rows;
        match column {
            Column::I64(values) => vector.values_mut()[..rows].copy_from_slice(&values[range]),
            Column::I128(values) => vector.values_mut()[..rows].copy_from_slice(&values[range]),
            Column::Str(values) => vector.values_mut()[..rows].copy_from_slice(&values[range]),
        }
    }
}

/// Runs a case; gives the number of groups, the seconds of phases one and two, and those of processor time.
fn run(context: &Context, case: &Arc<Case>) -> Result<(usize, f64, f64, f64)> {
    let used = processor_seconds();
    let aggregation = match &case.keys {
        None => Aggregation::without_keys(&case.program, &case.aggregates),
        Some(keys) => {
            let lanes: Vec<_> = keys
                .registers()
                .iter()
                .map(|key| (case.program.registers[key.index()], false))
                .collect();
            let sets = vec![keys.clone()];
            Aggregation::by_keys(&case.program, &lanes, sets, &case.aggregates, Vec::new())
        }
    };
    let mut outputs: Vec<Output> =
        (0..case.keys.as_ref().map_or(0, |keys| keys.registers().len())).map(Output::Key).collect();
    outputs.extend((0..case.aggregates.len()).map(Output::Aggregate));
    let mut lanes: Vec<Lane> = Vec::new();
    if let Some(keys) = &case.keys {
        lanes.extend(keys.registers().iter().map(|key| case.program.registers[key.index()]));
    }
    lanes.extend(case.aggregates.iter().map(|aggregate| aggregate.result));
    let sink: Arc<dyn Sink> = Arc::from(aggregation.sink());
    let source: Arc<dyn Source> = Arc::from(aggregation.source(outputs));
    let queue = Arc::new(MorselQueue::new(case.rows as u64, 64 * VECTOR_ROWS_MAX as u64));
    let begin = Instant::now();
    let handles: Vec<_> = (0..context.runtime.workers())
        .map(|worker| {
            let (sink, case, queue, context) =
                (sink.clone(), case.clone(), queue.clone(), context.clone());
            context.runtime.clone().spawn_on(worker, move || async move {
                let mut local = sink.local(&context, worker)?;
                let program = Arc::new(case.program.clone());
                let mut interpreter = Interpreter::new(program, &context);
                while let Some(morsel) = queue.next() {
                    for start in (morsel.start..morsel.end).step_by(VECTOR_ROWS_MAX) {
                        let rows = (morsel.end - start).min(VECTOR_ROWS_MAX as u64) as usize;
                        interpreter.begin(rows);
                        let registers = interpreter.registers_mut();
                        fill(registers, &case.columns, start as usize, rows);
                        while interpreter.advance()? {
                            local.push(interpreter.registers_mut()).await?;
                        }
                    }
                }
                local.end().await
            })
        })
        .collect();
    handles.into_iter().try_for_each(|handle| handle.wait().map_err(Into::into).flatten())?;
    let first = begin.elapsed().as_secs_f64();
    let (between, opened) = (context.clone(), source.clone());
    let ready = context.runtime.block_on(move || async move {
        sink.finish(&between).await?;
        opened.open(&between).await
    });
    ready.map_err(Into::into).flatten()?;
    let handles: Vec<_> = (0..context.runtime.workers())
        .map(|worker| {
            let (source, lanes) = (source.clone(), lanes.clone());
            context.runtime.spawn_on(worker, move || async move {
                let inputs: Vec<Register> = (0..lanes.len() as u16).map(Register).collect();
                let mut registers = Registers::of(&lanes);
                let mut groups = 0;
                while let Some(mut morsel) = source.morsel(worker) {
                    while let Some(tuples) = morsel.next().await? {
                        for start in (0..tuples.rows()).step_by(VECTOR_ROWS_MAX) {
                            let rows = VECTOR_ROWS_MAX.min(tuples.rows() - start);
                            registers.begin(rows);
                            tuples.load(start, rows, &inputs, &mut registers)?;
                            groups += rows;
                        }
                    }
                }
                Ok(groups)
            })
        })
        .collect();
    let mut groups = 0;
    for handle in handles {
        let some: Result<usize> = handle.wait().map_err(Into::into).flatten();
        groups += some?;
    }
    Ok((groups, first, begin.elapsed().as_secs_f64() - first, processor_seconds() - used))
}

fn main() -> Result<()> {
    let millions: usize =
        std::env::args().nth(1).map_or(20, |rows| rows.parse().expect("rows in millions"));
    let rows = millions * 1_000_000;
    println!(
        "            case  threads     groups       rows/s     phase 1    phase 2     per row"
    );
    let mut cases: Vec<Box<dyn Fn() -> Case>> =
        vec![Box::new(move || without_keys(rows)), Box::new(move || query_1(rows))];
    for groups in [1, 4, 10, 40, 100, 10_000, 100_000, 10_000_000] {
        cases.push(Box::new(move || grouped(rows, groups)));
    }
    for case in cases {
        let case = Arc::new(case());
        for workers in [1, 2] {
            let options = RuntimeOptions { workers, ..RuntimeOptions::default() };
            let runtime = Runtime::new(&options).expect("workers");
            let context = Context::new(Arc::new(runtime), Ledger::new(16 << 30));
            let mut best = (0, f64::INFINITY, f64::INFINITY, f64::INFINITY);
            for _ in 0..RUNS {
                let run = run(&context, &case)?;
                if run.1 + run.2 < best.1 + best.2 {
                    best = run;
                }
            }
            let (groups, first, second, used) = best;
            let rate = rows as f64 / (first + second) / 1e6;
            println!(
                "{:>16} {workers:>8} {groups:>10} {rate:>10.1} M {:>8.1} ms {:>7.1} ms {:>8.1} ns",
                case.name,
                first * 1e3,
                second * 1e3,
                used / rows as f64 * 1e9
            );
        }
    }
    Ok(())
}
