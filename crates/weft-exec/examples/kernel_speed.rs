//! How fast kernels are: rows per second of one step, with all rows selected and with one in ten, without nulls and
//! with some, beside the loop that one would write by hand for the dense case.
//!
//! `cargo run --release -p weft-exec --example kernel_speed [FILTER]` runs those whose name contains FILTER. Figures
//! are the best of several rounds, in millions of rows of the vector per second (selected or not), on one core.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_exec::interpret::Interpreter;
use weft_exec::kernels::in_set::Set;
use weft_exec::kernels::like::Pattern;
use weft_exec::program::{
    Arithmetic, CastFailure, Comparison, Constant, DatePart, DateUnit, Operand, Overflow, Program,
    Register, Step,
};
use weft_exec::query::Context;
use weft_exec::{Lane, Str, VECTOR_ROWS_MAX};
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

const ROWS: usize = VECTOR_ROWS_MAX;

/// Columns that steps read.
struct Data {
    i32: Vec<i32>,
    i64: Vec<i64>,
    i128: Vec<i128>,
    f64: Vec<f64>,
    bool: Vec<bool>,
    short: Vec<String>,
    /// Those of `short`, as they are in a vector.
    short_views: Vec<Str>,
    long: Vec<String>,
}

/// A step to be measured.
struct Case {
    name: &'static str,
    inputs: &'static [Lane],
    out: Lane,
    step: fn(&[Register], Register) -> Step,
    /// The same by hand, for all rows.
    by_hand: Option<fn(&Data)>,
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let options =
        RuntimeOptions { workers: 1, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
    let runtime = Arc::new(Runtime::new(&options).expect("a runtime"));
    let context = Context::new(runtime, Ledger::new(1 << 20));
    let data = data();
    println!(
        "{:28} {:>9} {:>9} {:>9} {:>9} {:>9}  (million rows/s)",
        "step", "dense", "nulls", "1 in 10", "1 in 10+n", "by hand"
    );
    for case in cases().iter().filter(|case| case.name.contains(&filter)) {
        print!("{:28}", case.name);
        for (one_in, nulls) in [(1, false), (1, true), (10, false), (10, true)] {
            print!(" {:9.0}", measure(case, &data, &context, one_in, nulls));
        }
        match case.by_hand {
            Some(by_hand) => println!(" {:9.0}", best(|| by_hand(black_box(&data)))),
            None => println!(" {:>9}", "-"),
        }
    }
}

fn measure(case: &Case, data: &Data, context: &Context, one_in: usize, nulls: bool) -> f64 {
    let mut program = Program::default();
    let inputs: Vec<Register> = case.inputs.iter().map(|lane| program.input(*lane)).collect();
    let out = program.register(case.out);
    program.steps.push((case.step)(&inputs, out));
    let mut interpreter = Interpreter::new(Arc::new(program), context);
    interpreter.begin(ROWS);
    for (number, (lane, input)) in case.inputs.iter().zip(&inputs).enumerate() {
        let vector = interpreter.registers_mut().vector_mut(*input);
        load(vector, *lane, data, number);
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

/// Puts the column of a lane into a register; the second string column has long ones.
fn load(vector: &mut weft_exec::Vector, lane: Lane, data: &Data, number: usize) {
    // Two inputs of a step are not the same column.
    let shift = number * 13;
    let at = |row: usize| (row + shift) % ROWS;
    match lane {
        Lane::Bool => fill(vector, |row| weft_exec::lane::Bool::from(data.bool[at(row)])),
        Lane::I32 => fill(vector, |row| data.i32[at(row)]),
        Lane::I64 => fill(vector, |row| data.i64[at(row)]),
        Lane::I128 => fill(vector, |row| data.i128[at(row)]),
        Lane::F64 => fill(vector, |row| data.f64[at(row)]),
        Lane::Str if number == 0 => fill(vector, |row| Str::new(data.long[row].as_bytes())),
        Lane::Str => fill(vector, |row| Str::new(data.short[row].as_bytes())),
        lane => unreachable!("no column of {lane}"),
    }
}

fn fill<T: weft_exec::Value>(vector: &mut weft_exec::Vector, value: impl Fn(usize) -> T) {
    for (row, out) in vector.values_mut::<T>().iter_mut().enumerate() {
        *out = value(row);
    }
}

/// Millions of rows per second, in the best of several rounds.
fn best(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let (start, mut times) = (Instant::now(), 0u32);
        while start.elapsed() < Duration::from_millis(12) {
            (0..16).for_each(|_| work());
            times += 16;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(times));
    }
    ROWS as f64 / best / 1e6
}

fn data() -> Data {
    let mut random = fastrand::Rng::with_seed(1);
    let words = ["green", "almond", "MEDIUM POLISHED BRASS", "special", "requests", "ship"];
    let long = (0..ROWS).map(|row| {
        let word = words[random.usize(..words.len())];
        format!("{word} and some more words of line {row}, {}", words[random.usize(..words.len())])
    });
    let long = long.collect();
    let short: Vec<String> =
        (0..ROWS).map(|_| ["MAIL", "SHIP", "AIR", "RAIL"][random.usize(..4)].into()).collect();
    Data {
        i32: (0..ROWS).map(|_| random.i32(-10_000..10_000)).collect(),
        i64: (0..ROWS).map(|_| random.i64(1..1_000_000)).collect(),
        i128: (0..ROWS).map(|_| random.i128(1..1_000_000_000_000)).collect(),
        f64: (0..ROWS).map(|_| random.f64() * 1000.0).collect(),
        bool: (0..ROWS).map(|_| random.bool()).collect(),
        short_views: short.iter().map(|text| Str::new(text.as_bytes())).collect(),
        short,
        long,
    }
}

fn arithmetic(op: Arithmetic, inputs: &[Register], out: Register, overflow: Overflow) -> Step {
    let (a, b) = (Operand::Register(inputs[0]), Operand::Register(inputs[1]));
    Step::Arithmetic { op, a, b, out, overflow }
}

fn compare(op: Comparison, a: Register, b: Constant, out: Register) -> Step {
    Step::Compare { op, a: Operand::Register(a), b: Operand::Constant(b), out }
}

fn like(a: Register, pattern: &str, out: Register) -> Step {
    Step::Like { a, pattern: Arc::new(Pattern::new(pattern, None)), negated: false, out }
}

fn is_in(a: Register, lane: Lane, values: Vec<Constant>, out: Register) -> Step {
    Step::In { a, values: Arc::new(Set::new(lane, &values)), has_null: false, negated: false, out }
}

/// Two columns into a third, as one would write it.
fn zip<T: Copy, U: Copy + Default>(a: &[T], b: &[T], work: impl Fn(T, T) -> U) {
    let mut out = [U::default(); ROWS];
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = work(*a, *b);
    }
    black_box(&out);
}

fn cases() -> Vec<Case> {
    use Lane::{Bool, F64, I32, I64, I128, U64};
    vec![
        Case {
            name: "i64 + i64, checked",
            inputs: &[I64, I64],
            out: I64,
            step: |inputs, out| arithmetic(Arithmetic::Add, inputs, out, Overflow::Error),
            by_hand: Some(|data| zip(&data.i64, &data.i64, i64::wrapping_add)),
        },
        Case {
            name: "i64 * i64, checked",
            inputs: &[I64, I64],
            out: I64,
            step: |inputs, out| arithmetic(Arithmetic::Multiply, inputs, out, Overflow::Error),
            by_hand: Some(|data| zip(&data.i64, &data.i64, i64::wrapping_mul)),
        },
        Case {
            name: "i64 / i64",
            inputs: &[I64, I64],
            out: I64,
            step: |inputs, out| arithmetic(Arithmetic::Divide, inputs, out, Overflow::Error),
            by_hand: Some(|data| zip(&data.i64, &data.i64, |a, b| a / b.max(1))),
        },
        Case {
            name: "i128 * i128, checked",
            inputs: &[I128, I128],
            out: I128,
            step: |inputs, out| arithmetic(Arithmetic::Multiply, inputs, out, Overflow::Error),
            by_hand: Some(|data| zip(&data.i128, &data.i128, i128::wrapping_mul)),
        },
        Case {
            name: "f64 * f64",
            inputs: &[F64, F64],
            out: F64,
            step: |inputs, out| arithmetic(Arithmetic::Multiply, inputs, out, Overflow::Error),
            by_hand: Some(|data| zip(&data.f64, &data.f64, |a, b| a * b)),
        },
        Case {
            name: "i64 rescaled by 2 digits",
            inputs: &[I64],
            out: I64,
            step: |inputs, out| Step::Rescale {
                a: inputs[0],
                digits: 2,
                out,
                overflow: Overflow::Error,
            },
            by_hand: Some(|data| zip(&data.i64, &data.i64, |a, _| a.wrapping_mul(100))),
        },
        Case {
            name: "i64 rescaled by -2 digits",
            inputs: &[I64],
            out: I64,
            step: |inputs, out| Step::Rescale {
                a: inputs[0],
                digits: -2,
                out,
                overflow: Overflow::Error,
            },
            by_hand: Some(|data| zip(&data.i64, &data.i64, |a, _| (a + a.signum() * 50) / 100)),
        },
        Case {
            name: "i64 as i32, checked",
            inputs: &[I64],
            out: I32,
            step: |inputs, out| Step::Cast { a: inputs[0], out, failure: CastFailure::Error },
            by_hand: Some(|data| zip(&data.i64, &data.i64, |a, _| a as i32)),
        },
        Case {
            name: "i32 < constant",
            inputs: &[I32],
            out: Bool,
            step: |inputs, out| compare(Comparison::Less, inputs[0], Constant::I32(500), out),
            by_hand: Some(|data| zip(&data.i32, &data.i32, |a, _| a < 500)),
        },
        Case {
            name: "i64 < constant",
            inputs: &[I64],
            out: Bool,
            step: |inputs, out| compare(Comparison::Less, inputs[0], Constant::I64(500_000), out),
            by_hand: Some(|data| zip(&data.i64, &data.i64, |a, _| a < 500_000)),
        },
        Case {
            name: "f64 > constant",
            inputs: &[F64],
            out: Bool,
            step: |inputs, out| compare(Comparison::Greater, inputs[0], Constant::F64(500.0), out),
            by_hand: Some(|data| zip(&data.f64, &data.f64, |a, _| a > 500.0)),
        },
        Case {
            name: "filter",
            inputs: &[Bool],
            out: Bool,
            step: |inputs, _| Step::Filter { condition: inputs[0] },
            by_hand: Some(|data| {
                let mut rows = [0u16; ROWS + 1];
                let mut kept = 0;
                for (row, keep) in data.bool.iter().enumerate() {
                    rows[kept] = row as u16;
                    kept += usize::from(*keep);
                }
                black_box(&rows);
            }),
        },
        Case {
            name: "bool AND bool",
            inputs: &[Bool, Bool],
            out: Bool,
            step: |inputs, out| Step::And { a: inputs[0], b: inputs[1], out },
            by_hand: Some(|data| zip(&data.bool, &data.bool, |a, b| a & b)),
        },
        Case {
            name: "short text = constant",
            inputs: &[Lane::Str, Lane::Str],
            out: Bool,
            step: |inputs, out| {
                compare(Comparison::Equal, inputs[1], Constant::Str(Arc::from(*b"SHIP")), out)
            },
            by_hand: Some(|data| {
                zip(&data.short_views, &data.short_views, |a, _| a == data.short_views[0])
            }),
        },
        Case {
            name: "long text < constant",
            inputs: &[Lane::Str],
            out: Bool,
            step: |inputs, out| {
                compare(
                    Comparison::Less,
                    inputs[0],
                    Constant::Str(Arc::from(*b"special and some")),
                    out,
                )
            },
            by_hand: Some(|data| zip_text(&data.long, |text| text < "special and some")),
        },
        Case {
            name: "text LIKE 'prefix%'",
            inputs: &[Lane::Str],
            out: Bool,
            step: |inputs, out| like(inputs[0], "MEDIUM%", out),
            by_hand: Some(|data| zip_text(&data.long, |text| text.starts_with("MEDIUM"))),
        },
        Case {
            name: "text LIKE '%suffix'",
            inputs: &[Lane::Str],
            out: Bool,
            step: |inputs, out| like(inputs[0], "%BRASS", out),
            by_hand: Some(|data| zip_text(&data.long, |text| text.ends_with("BRASS"))),
        },
        Case {
            name: "text LIKE '%word%'",
            inputs: &[Lane::Str],
            out: Bool,
            step: |inputs, out| like(inputs[0], "%green%", out),
            by_hand: Some(|data| zip_text(&data.long, |text| text.contains("green"))),
        },
        Case {
            name: "text LIKE '%a%b%'",
            inputs: &[Lane::Str],
            out: Bool,
            step: |inputs, out| like(inputs[0], "%special%requests%", out),
            by_hand: Some(|data| {
                zip_text(&data.long, |text| {
                    text.find("special").is_some_and(|at| text[at + 7..].contains("requests"))
                });
            }),
        },
        Case {
            name: "substring(text, 1, 2)",
            inputs: &[Lane::Str],
            out: Lane::Str,
            step: |inputs, out| Step::Substring { a: inputs[0], start: 1, length: Some(2), out },
            by_hand: None,
        },
        Case {
            name: "substring(text, 3, 20)",
            inputs: &[Lane::Str],
            out: Lane::Str,
            step: |inputs, out| Step::Substring { a: inputs[0], start: 3, length: Some(20), out },
            by_hand: None,
        },
        Case {
            name: "short text IN (2 values)",
            inputs: &[Lane::Str, Lane::Str],
            out: Bool,
            step: |inputs, out| {
                let values =
                    vec![Constant::Str(Arc::from(*b"MAIL")), Constant::Str(Arc::from(*b"SHIP"))];
                is_in(inputs[1], Lane::Str, values, out)
            },
            by_hand: None,
        },
        Case {
            name: "i32 IN (8 values)",
            inputs: &[I32],
            out: Bool,
            step: |inputs, out| {
                is_in(inputs[0], I32, (0..8).map(|n| Constant::I32(n * 7)).collect(), out)
            },
            by_hand: Some(|data| {
                zip(&data.i32, &data.i32, |a, _| [0, 7, 14, 21, 28, 35, 42, 49].contains(&a));
            }),
        },
        Case {
            name: "i32 IN (500 values)",
            inputs: &[I32],
            out: Bool,
            step: |inputs, out| {
                is_in(inputs[0], I32, (0..500).map(|n| Constant::I32(n * 7)).collect(), out)
            },
            by_hand: None,
        },
        Case {
            name: "year of a date",
            inputs: &[I32],
            out: I32,
            step: |inputs, out| Step::Extract {
                a: inputs[0],
                unit: DateUnit::Days,
                part: DatePart::Year,
                out,
            },
            by_hand: None,
        },
        Case {
            name: "hash of i64",
            inputs: &[I64],
            out: U64,
            step: |inputs, out| Step::Hash { keys: inputs.to_vec(), out },
            by_hand: Some(|data| {
                zip(&data.i64, &data.i64, |a, _| {
                    let a = (a as u64 ^ a as u64 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
                    let a = (a ^ a >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
                    a ^ a >> 32
                });
            }),
        },
        Case {
            name: "hash of i32, i64",
            inputs: &[I32, I64],
            out: U64,
            step: |inputs, out| Step::Hash { keys: inputs.to_vec(), out },
            by_hand: None,
        },
        Case {
            name: "hash of short text",
            inputs: &[Lane::Str, Lane::Str],
            out: U64,
            step: |inputs, out| Step::Hash { keys: vec![inputs[1]], out },
            by_hand: None,
        },
        Case {
            name: "hash of long text",
            inputs: &[Lane::Str],
            out: U64,
            step: |inputs, out| Step::Hash { keys: inputs.to_vec(), out },
            by_hand: None,
        },
    ]
}

fn zip_text(texts: &[String], work: impl Fn(&str) -> bool) {
    let mut out = [false; ROWS];
    for (out, text) in out.iter_mut().zip(texts) {
        *out = work(text);
    }
    black_box(&out);
}
