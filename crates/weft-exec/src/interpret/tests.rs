//! Programs run as their steps say: scopes, filters, expansion, sinks.

use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

use super::*;
use crate::expand::Expand;
use crate::lane::Lane;
use crate::program::{Comparison, Constant, Operand};
use crate::vector::VECTOR_ROWS_MAX;

fn context() -> Context {
    let options =
        RuntimeOptions { workers: 1, driver: DriverKind::Blocking, ..RuntimeOptions::default() };
    Context::new(Arc::new(Runtime::new(&options).expect("a runtime")), Ledger::new(1 << 20))
}

fn compare(op: Comparison, a: Register, constant: i64, out: Register) -> Step {
    Step::Compare {
        op,
        a: Operand::Register(a),
        b: Operand::Constant(Constant::I64(constant)),
        out,
    }
}

fn assign(value: i64, out: Register) -> Step {
    Step::Assign { a: Operand::Constant(Constant::I64(value)), out }
}

/// Runs a program over a column; gives the rows of `out` of every batch.
fn run(program: Program, column: &[Option<i64>], out: Register) -> Vec<Vec<Option<i64>>> {
    let mut interpreter = Interpreter::new(Arc::new(program), &context());
    let mut batches = Vec::new();
    for _ in 0..2 {
        batches.clear();
        interpreter.begin(column.len());
        let input = interpreter.program().inputs[0];
        let vector = interpreter.registers_mut().vector_mut(input);
        vector.validity.set_all();
        for (row, value) in column.iter().enumerate() {
            vector.values_mut::<i64>()[row] = value.unwrap_or(3);
            vector.validity.set(row, value.is_some());
        }
        while interpreter.advance().expect("no step fails") {
            let registers = interpreter.registers();
            let mut batch = Vec::new();
            registers.selected().for_each(|row| batch.push(registers.vector(out).value(row)));
            batches.push(batch);
        }
    }
    batches
}

#[test]
fn scopes_nest() {
    // CASE WHEN a < 10 THEN (CASE WHEN a < 5 THEN 1 ELSE 2 END) WHEN a < 20 THEN 3 END, and a filter in a branch.
    let mut program = Program::default();
    let a = program.input(Lane::I64);
    let [below_10, below_5, below_20, is_7] = [(); 4].map(|()| program.register(Lane::Bool));
    let out = program.register(Lane::I64);
    program.steps = vec![
        Step::Fill { value: None, out },
        compare(Comparison::Less, a, 10, below_10),
        Step::Begin { condition: below_10, when: true },
        compare(Comparison::NotEqual, a, 7, is_7),
        Step::Filter { condition: is_7 },
        compare(Comparison::Less, a, 5, below_5),
        Step::Begin { condition: below_5, when: true },
        assign(1, out),
        Step::Else,
        assign(2, out),
        Step::End,
        Step::Else,
        compare(Comparison::Less, a, 20, below_20),
        Step::Begin { condition: below_20, when: true },
        assign(3, out),
        Step::End,
        Step::End,
    ];
    let expected = |a: &Option<i64>| match (*a)? {
        7 => None,
        ..5 => Some(1),
        5..10 => Some(2),
        10..20 => Some(3),
        _ => None,
    };
    let mut random = fastrand::Rng::with_seed(21);
    for range in [0..30, 5..10, 0..5, 20..30, 10..40] {
        for rows in [1, 7, 100, VECTOR_ROWS_MAX] {
            let column: Vec<Option<i64>> = (0..rows)
                .map(|_| Some(random.i64(range.clone())).filter(|_| random.u8(..) < 200))
                .collect();
            let batches = run(program.clone(), &column, out);
            assert_eq!(batches, [column.iter().map(expected).collect::<Vec<_>>()], "{range:?}");
        }
    }
}

#[test]
fn a_scope_for_what_is_not_true() {
    let mut program = Program::default();
    let a = program.input(Lane::I64);
    let condition = program.register(Lane::Bool);
    let out = program.register(Lane::I64);
    program.steps = vec![
        compare(Comparison::Equal, a, 1, condition),
        Step::Begin { condition, when: false },
        assign(0, out),
        Step::Else,
        assign(1, out),
        Step::End,
    ];
    let batches = run(program, &[Some(1), None, Some(2)], out);
    assert_eq!(batches, [[Some(1), Some(0), Some(0)]]);
}

#[test]
fn filters_leave_nothing_or_something() {
    let mut program = Program::default();
    let a = program.input(Lane::I64);
    let [first, second] = [(); 2].map(|()| program.register(Lane::Bool));
    program.steps = vec![
        compare(Comparison::Greater, a, 2, first),
        Step::Filter { condition: first },
        compare(Comparison::LessOrEqual, a, 4, second),
        Step::Filter { condition: second },
    ];
    let column = [Some(4), None, Some(2), Some(3), Some(5)];
    assert_eq!(run(program.clone(), &column, a), [[Some(4), Some(3)]]);
    assert!(run(program.clone(), &[Some(0), None], a).is_empty());
    assert!(run(program, &[], a).is_empty());
}

/// Makes as many tuples of each as its value says, two at a time.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    a: Register,
    out: Register,
}

struct Repetition {
    step: Repeat,
    values: Vec<i64>,
    given: usize,
}

impl Expand for Repeat {
    fn expansion(&self, _: &Context) -> Box<dyn Expansion> {
        Box::new(Repetition { step: *self, values: Vec::new(), given: 0 })
    }
}

impl Expansion for Repetition {
    fn begin(&mut self, registers: &mut Registers) -> Result<bool> {
        (self.values, self.given) = (Vec::new(), 0);
        registers.selected().for_each(|row| {
            let value = registers.values::<i64>(self.step.a)[row];
            self.values.extend((0..value).map(|_| value));
        });
        self.next(registers)
    }

    fn next(&mut self, registers: &mut Registers) -> Result<bool> {
        let values = &self.values[self.given..];
        let values = &values[..values.len().min(2)];
        self.given += values.len();
        registers.set_rows(values.len());
        let out = registers.vector_mut(self.step.out).values_mut();
        out[..values.len()].copy_from_slice(values);
        Ok(self.given < self.values.len())
    }
}

#[test]
fn expansions_are_taken_up_again() {
    let mut program = Program::default();
    let a = program.input(Lane::I64);
    let [b, c] = [(); 2].map(|()| program.register(Lane::I64));
    let condition = program.register(Lane::Bool);
    program.steps = vec![
        Step::Expand(Arc::new(Repeat { a, out: b })),
        compare(Comparison::NotEqual, b, 2, condition),
        Step::Filter { condition },
        Step::Expand(Arc::new(Repeat { a: b, out: c })),
    ];
    let batches = run(program, &[Some(2), Some(3), Some(0), Some(1)], c);
    // 2 2 | 3 3 | 3 1, of which the first are filtered out: 3 3 3 3 3 3 | 3 3 3 1.
    let of = |values: [i64; 2]| values.map(Some).to_vec();
    assert_eq!(batches, [of([3, 3]), of([3, 3]), of([3, 3]), of([3, 3]), of([3, 1])]);
}

#[test]
#[should_panic(expected = "ELSE in a scope")]
fn an_else_needs_a_scope() {
    skips(&[Step::Else]);
}

#[test]
fn assigned_values_stay_where_nothing_is_selected() {
    let mut program = Program::default();
    let a = program.input(Lane::I64);
    let condition = program.register(Lane::Bool);
    let out = program.register(Lane::Bool);
    let value = |value| Step::Fill { value: Some(Constant::Bool(value)), out };
    program.steps = vec![
        value(true),
        compare(Comparison::Less, a, 0, condition),
        Step::Begin { condition, when: true },
        Step::Assign { a: Operand::Constant(Constant::Bool(false)), out },
        Step::End,
        Step::Filter { condition: out },
    ];
    assert_eq!(run(program, &[Some(-1), Some(1)], a), [[Some(1)]]);
}
