//! Which steps pay to be compiled: rows per second of runs, interpreted and compiled, with all rows selected and with one in ten,
//! without nulls and with some; how long compiling takes, and how much code it gives.
//!
//! `cargo run --release -p weft-jit --example compile_speed [FILTER]`. Figures are the best of several rounds, in millions of rows of the
//! vector per second (selected or not), on one core.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_exec::compile::{CompileMode, Compiling, Tier};
use weft_exec::interpret::Interpreter;
use weft_exec::program::{
    Arithmetic, CastFailure, Comparison, Constant, Operand, Overflow, Program, Register, Step,
};
use weft_exec::query::Context;
use weft_exec::{Lane, VECTOR_ROWS_MAX, Value, Vector};
use weft_jit::JitCompiler;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

const ROWS: usize = VECTOR_ROWS_MAX;

/// A run to be measured: makes the steps, gives the registers that are read afterwards.
struct Case {
    name: &'static str,
    steps: fn(&mut Program) -> Vec<Register>,
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let options =
        RuntimeOptions { workers: 1, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
    let runtime = Arc::new(Runtime::new(&options).expect("a runtime"));
    let context = Context::new(runtime, Ledger::new(1 << 30));
    let compiler = JitCompiler::new(&context.ledger).expect("code for this processor");
    let compiling = Compiling { compiler, mode: CompileMode::Always };
    println!(
        "{:34} {:>17} {:>17} {:>17} {:>17} {:>9} {:>6}",
        "run (million rows/s, ratio)", "dense", "nulls", "1 in 10", "1 in 10+n", "compile", "bytes"
    );
    for case in CASES.iter().filter(|case| case.name.contains(&filter)) {
        let mut program = Program::default();
        let reads = (case.steps)(&mut program);
        let program = Arc::new(program);
        let tier = Tier::new(&compiling, &program, Some(reads)).expect("a run");
        print!("{:34}", case.name);
        for (one_in, nulls) in [(1, false), (1, true), (10, false), (10, true)] {
            let interpreted = measure(Interpreter::new(program.clone(), &context), one_in, nulls);
            let compiled =
                Interpreter::new(program.clone(), &context).with_tier(Some(tier.clone()));
            let compiled = measure(compiled, one_in, nulls);
            print!(" {interpreted:5.0} {compiled:5.0} {:5.2}", compiled / interpreted);
        }
        let compilation = tier.compilation();
        println!(" {:6.2} ms {:>6}", compilation.took.as_secs_f64() * 1e3, compilation.bytes);
    }
}

fn measure(mut interpreter: Interpreter, one_in: usize, nulls: bool) -> f64 {
    interpreter.begin(ROWS);
    let program = interpreter.program().clone();
    for (number, input) in program.inputs.iter().enumerate() {
        let vector = interpreter.registers_mut().vector_mut(*input);
        load(vector, number);
        for row in (0..ROWS).step_by(if nulls { 7 } else { ROWS + 1 }).skip(1) {
            vector.validity.set(row, false);
        }
    }
    let rows: Vec<u16> = (0..ROWS as u16).step_by(one_in).collect();
    best(|| {
        // Nothing is loaded anew: inputs are the same in each round.
        interpreter.begin(ROWS);
        if one_in > 1 {
            interpreter.registers_mut().selection.set(rows.iter().copied());
        }
        black_box(interpreter.advance().expect("no step fails"));
    })
}

fn load(vector: &mut Vector, number: usize) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    match vector.lane() {
        Lane::I32 => fill(vector, || random.i32(-10_000..10_000)),
        Lane::I64 => fill(vector, || random.i64(1..1_000_000)),
        Lane::I128 => fill(vector, || random.i128(1..1_000_000_000_000)),
        Lane::F64 => fill(vector, || random.f64() * 1000.0),
        lane => unreachable!("no column of {lane}"),
    }
}

fn fill<T: Value>(vector: &mut Vector, mut value: impl FnMut() -> T) {
    vector.values_mut::<T>().iter_mut().for_each(|out| *out = value());
}

/// Millions of rows per second, in the best of several rounds.
fn best(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let (start, mut times) = (Instant::now(), 0u32);
        while start.elapsed() < Duration::from_millis(6) {
            (0..16).for_each(|_| work());
            times += 16;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(times));
    }
    ROWS as f64 / best / 1e6
}

/// Adds `a op b`.
fn calculate(
    program: &mut Program,
    op: Arithmetic,
    a: impl Into<Side>,
    b: impl Into<Side>,
    lane: Lane,
) -> Register {
    let out = program.register(lane);
    let (Side(a), Side(b)) = (a.into(), b.into());
    program.steps.push(Step::Arithmetic { op, a, b, out, overflow: Overflow::Error });
    out
}

fn compare(program: &mut Program, op: Comparison, a: Register, b: impl Into<Side>) -> Register {
    let (out, Side(b)) = (program.register(Lane::Bool), b.into());
    program.steps.push(Step::Compare { op, a: Operand::Register(a), b, out });
    out
}

/// An operand.
struct Side(Operand);

impl From<Register> for Side {
    fn from(register: Register) -> Side {
        Side(Operand::Register(register))
    }
}

impl From<Constant> for Side {
    fn from(constant: Constant) -> Side {
        Side(Operand::Constant(constant))
    }
}

fn constant(number: i64, lane: Lane) -> Constant {
    match lane {
        Lane::F64 => Constant::F64(number as f64),
        lane => Constant::of_integer(number.into(), lane).expect("it fits"),
    }
}

/// price · (100 - discount) · (100 + tax), as decimals.
fn charge(program: &mut Program, lane: Lane) -> Vec<Register> {
    let [price, discount, tax] = [(); 3].map(|()| program.input(lane));
    let rest = calculate(program, Arithmetic::Subtract, constant(100, lane), discount, lane);
    let discounted = calculate(program, Arithmetic::Multiply, price, rest, lane);
    let more = calculate(program, Arithmetic::Add, constant(100, lane), tax, lane);
    let charged = calculate(program, Arithmetic::Multiply, discounted, more, lane);
    vec![discounted, charged]
}

/// So many operations, one on the result of another.
fn chain(program: &mut Program, op: Arithmetic, lane: Lane, count: i64) -> Vec<Register> {
    let (mut a, b) = (program.input(lane), program.input(lane));
    for number in 0..count {
        a = match number % 2 {
            0 => calculate(program, op, a, b, lane),
            _ => calculate(program, op, a, constant(number + 2, lane), lane),
        };
    }
    vec![a]
}

/// a BETWEEN … AND b < … AND c > …, as one filter.
fn conditions(program: &mut Program, filters: bool) -> Vec<Register> {
    let [a, b, c] = [Lane::I32, Lane::I64, Lane::I64].map(|lane| program.input(lane));
    let tests = [
        compare(program, Comparison::GreaterOrEqual, a, constant(-5_000, Lane::I32)),
        compare(program, Comparison::Less, a, constant(5_000, Lane::I32)),
        compare(program, Comparison::Less, b, constant(500_000, Lane::I64)),
        compare(program, Comparison::Greater, c, b),
    ];
    let mut all = tests[0];
    for test in &tests[1..] {
        let out = program.register(Lane::Bool);
        program.steps.push(Step::And { a: all, b: *test, out });
        all = out;
    }
    if filters {
        program.steps.push(Step::Filter { condition: all });
        return vec![b];
    }
    vec![all]
}

/// CASE WHEN a < b THEN a · 3 ELSE b - a END
fn case(program: &mut Program) -> Vec<Register> {
    let (a, b) = (program.input(Lane::I64), program.input(Lane::I64));
    let condition = compare(program, Comparison::Less, a, b);
    let out = program.register(Lane::I64);
    program.steps.push(Step::Fill { value: None, out });
    program.steps.push(Step::Begin { condition, when: true });
    let tripled = calculate(program, Arithmetic::Multiply, a, constant(3, Lane::I64), Lane::I64);
    program.steps.push(Step::Assign { a: Operand::Register(tripled), out });
    program.steps.push(Step::Else);
    let rest = calculate(program, Arithmetic::Subtract, b, a, Lane::I64);
    program.steps.push(Step::Assign { a: Operand::Register(rest), out });
    program.steps.push(Step::End);
    vec![out]
}

fn cast(program: &mut Program, from: Lane, into: Lane) -> Vec<Register> {
    let (a, out) = (program.input(from), program.register(into));
    program.steps.push(Step::Cast { a, out, failure: CastFailure::Error });
    vec![out]
}

fn rescale(program: &mut Program, lane: Lane, digits: i8) -> Vec<Register> {
    let (a, out) = (program.input(lane), program.register(lane));
    program.steps.push(Step::Rescale { a, digits, out, overflow: Overflow::Error });
    vec![out]
}

const CASES: &[Case] = &[
    Case { name: "i64 add", steps: |p| chain(p, Arithmetic::Add, Lane::I64, 1) },
    Case { name: "i64 add, 4 in a row", steps: |p| chain(p, Arithmetic::Add, Lane::I64, 4) },
    Case { name: "i64 add, 12 in a row", steps: |p| chain(p, Arithmetic::Add, Lane::I64, 12) },
    Case { name: "i64 divide", steps: |p| chain(p, Arithmetic::Divide, Lane::I64, 1) },
    Case { name: "i64 remainder", steps: |p| chain(p, Arithmetic::Remainder, Lane::I64, 1) },
    Case {
        name: "f64 multiply, 4 in a row",
        steps: |p| chain(p, Arithmetic::Multiply, Lane::F64, 4),
    },
    Case { name: "i128 add, 4 in a row", steps: |p| chain(p, Arithmetic::Add, Lane::I128, 4) },
    Case { name: "i128 multiply", steps: |p| chain(p, Arithmetic::Multiply, Lane::I128, 1) },
    Case { name: "i128 divide", steps: |p| chain(p, Arithmetic::Divide, Lane::I128, 1) },
    Case { name: "charge of Q1 in i64", steps: |p| charge(p, Lane::I64) },
    Case { name: "charge of Q1 in i128", steps: |p| charge(p, Lane::I128) },
    Case { name: "i64 rescale -2", steps: |p| rescale(p, Lane::I64, -2) },
    Case { name: "i128 rescale -2", steps: |p| rescale(p, Lane::I128, -2) },
    Case { name: "i128 rescale +2", steps: |p| rescale(p, Lane::I128, 2) },
    Case { name: "cast i32 to i64", steps: |p| cast(p, Lane::I32, Lane::I64) },
    Case { name: "cast i64 to f64", steps: |p| cast(p, Lane::I64, Lane::F64) },
    Case { name: "cast f64 to i32", steps: |p| cast(p, Lane::F64, Lane::I32) },
    Case { name: "four conditions", steps: |p| conditions(p, false) },
    Case { name: "four conditions and a filter", steps: |p| conditions(p, true) },
    Case { name: "case", steps: case },
];
