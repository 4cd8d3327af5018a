//! Calls of functions that are not ours, in turns: a regular expression over all texts of a vector takes some milliseconds, and a
//! single value may be a list of millions.
//!
//! How long a call takes is guessed from the processor time of those before it: what any call takes (some functions compile a
//! regular expression each time), and what a row and each byte of its strings do. What fits a turn runs at once; more is cut into pieces of some rows each,
//! between which others run; and where a single row takes longer, or the pieces would take much more than the whole, the call runs
//! [apart](crate::apart).

use std::sync::Arc;
use std::time::Duration;

use crate::apart;
use crate::arrow::ArrowColumn;
use crate::error::Result;
use crate::interpret::call_clock::call_time;
use crate::kernels::call::{call, evaluate, gathered, scatter};
use crate::lane::Lane;
use crate::pace::{Pace, TURN};
use crate::program::{Function, Register};
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::Vector;

/// What a row counts as, beside the bytes of its strings.
const ROW_UNITS: usize = 64;

/// So many are at most calculated at once on another thread: arrays have 32 bits for where a string begins.
const APART_UNITS: usize = 1 << 30;
/// Calls for a single row, by which it is known what any call takes.
const PROBES: u32 = 2;
/// Units of the first call for more rows.
const FIRST_UNITS: usize = 16 << 10;
/// What a unit is assumed to take that is not known, in ns.
const UNKNOWN_UNIT_NS: f64 = 2.0;
/// What a piece may take: others have been let run before it.
const PIECE: Duration = TURN.saturating_mul(2);
/// What a call may take on a worker.
const LONG: Duration = TURN.saturating_mul(3);
/// What it takes to run apart.
const APART: Duration = Duration::from_micros(60);

/// How fast the calls of a step have been. A unit is a byte of a string; each row is some more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speed {
    calls: u32,
    /// What a call for so many units takes at most: those of the fastest, or of another that was for less.
    fastest: (Duration, usize),
    unit_ns: Option<f64>,
}

/// How so many units are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// So many of them at once.
    Piece(usize),
    Apart,
}

impl Speed {
    /// True if it is known to take no longer than this.
    pub(super) fn fits(self, units: usize, time: Duration) -> bool {
        match self.unit_ns {
            Some(unit_ns) => self.call(unit_ns) + takes(units, unit_ns) <= time,
            None => {
                let (least, of_units) = self.fastest;
                self.calls >= PROBES && units <= of_units && least <= time
            }
        }
    }

    /// What a call takes for no rows.
    fn call(self, unit_ns: f64) -> Duration {
        self.fastest.0.saturating_sub(takes(self.fastest.1, unit_ns))
    }

    /// A call has computed for so long. The last ones count most, and what was held up is noticed: a unit takes no more than a call
    /// for it and others.
    pub(super) fn note(&mut self, units: usize, took: Duration) {
        let units = units.max(1);
        let is_first = self.calls == 0;
        self.calls = self.calls.saturating_add(1);
        if is_first || took < self.fastest.0 {
            let of_units = if is_first { units } else { units.min(self.fastest.1) };
            self.fastest = (took, of_units);
        }
        let (least, of_units) = self.fastest;
        if self.calls > PROBES && units >= 2 * of_units {
            let unit_ns = (took - least).as_nanos() as f64 / (units - of_units) as f64;
            let before = self.unit_ns.unwrap_or(unit_ns);
            self.unit_ns = Some(f64::midpoint(before, unit_ns));
        }
        let most = took.as_nanos() as f64 / units as f64;
        self.unit_ns = self.unit_ns.map(|unit_ns| unit_ns.min(most));
    }

    /// True if one row takes longer than a worker has time.
    fn is_long(self, row_units: usize) -> bool {
        takes(row_units, self.unit_ns.unwrap_or(UNKNOWN_UNIT_NS)) > LONG
    }

    fn way(self, units: usize) -> Way {
        let Some(unit_ns) = self.unit_ns else {
            return match self.fastest {
                _ if self.calls < PROBES => Way::Piece(1),
                (least, _) if least > PIECE => Way::Apart,
                // As much as can be, at the least, and twice as much as was, from which something is learnt.
                (least, of_units) => {
                    let times = PIECE.as_nanos() / least.as_nanos().max(1);
                    Way::Piece(FIRST_UNITS.min(of_units * times.max(2) as usize).max(2 * of_units))
                }
            };
        };
        let (call, rows_take) = (self.call(unit_ns), takes(units, unit_ns));
        if call + rows_take <= PIECE {
            return Way::Piece(units);
        }
        // Calls that take most of a piece leave no time for rows.
        let piece_takes = PIECE.saturating_sub(call).as_nanos().max(1);
        let pieces = rows_take.as_nanos().div_ceil(piece_takes).max(1);
        let more_calls = u32::try_from(pieces - 1).unwrap_or(u32::MAX);
        if call < PIECE && call.saturating_mul(more_calls) <= APART.max(rows_take / 16) {
            return Way::Piece(units / pieces as usize + 1);
        }
        if call + rows_take <= LONG { Way::Piece(units) } else { Way::Apart }
    }
}

fn takes(units: usize, unit_ns: f64) -> Duration {
    Duration::from_nanos((units as f64 * unit_ns) as u64)
}

/// The units of all rows that are selected.
pub(super) fn units(registers: &Registers, inputs: &[Register]) -> usize {
    let mut units = registers.selected().count() * ROW_UNITS;
    for input in inputs {
        if registers.vector(*input).lane() == Lane::Str {
            let strings = registers.values::<Str>(*input);
            registers.for_each_valid(*input, |row| units += strings[row].len());
        }
    }
    units
}

/// The units of one row.
fn row_units(registers: &Registers, inputs: &[Register], row: u16) -> usize {
    let bytes = |input: &Register| {
        let vector = registers.vector(*input);
        let string = (vector.lane() == Lane::Str).then(|| vector.value::<Str>(usize::from(row)));
        string.flatten().map_or(0, |string| string.len())
    };
    ROW_UNITS + inputs.iter().map(bytes).sum::<usize>()
}

/// As [`kernels::call`](crate::kernels::call), for what takes long.
pub(super) async fn run_in_turns(
    registers: &mut Registers,
    function: &Arc<dyn Function>,
    inputs: &[Register],
    out: Register,
    speed: &mut Speed,
    pace: &mut Pace,
) -> Result<()> {
    let mut rows = Vec::with_capacity(registers.selected().count());
    registers.selected().for_each(|row| rows.push(row as u16));
    let lane = registers.vector(out).lane();
    let (mut made, mut scratch) = (Vector::new(lane), Vector::new(lane));
    made.validity.set_all();
    let units: Vec<usize> = rows.iter().map(|row| row_units(registers, inputs, *row)).collect();
    let has_long = units.iter().any(|units| speed.is_long(*units));
    let (mut done, mut units_left) = (0, units.iter().sum::<usize>());
    while done < rows.len() {
        let way = if has_long { Way::Apart } else { speed.way(units_left) };
        let most = if let Way::Piece(most) = way { most } else { APART_UNITS };
        let (mut count, mut count_units) = (0, 0);
        while done + count < rows.len() && count_units < most {
            count_units += units[done + count];
            count += 1;
        }
        let piece = &rows[done..][..count];
        let (column, took) = match way {
            Way::Piece(_) => {
                let before = call_time();
                let array = evaluate(registers, &**function, inputs, Selected::Some(piece))?;
                (ArrowColumn::new(&array, lane)?, call_time().saturating_sub(before))
            }
            Way::Apart => call_apart(registers, function, inputs, lane, piece, pace).await?,
        };
        speed.note(count_units, took);
        scatter(column, piece, &mut scratch, &mut made)?;
        (done, units_left) = (done + count, units_left - count_units);
        pace.keep().await;
    }
    registers.put(out, made);
    Ok(())
}

/// What a function gives for some rows, which takes longer than a worker has time; and how long it took.
async fn call_apart(
    registers: &Registers,
    function: &Arc<dyn Function>,
    inputs: &[Register],
    lane: Lane,
    rows: &[u16],
    pace: &mut Pace,
) -> Result<(ArrowColumn, Duration)> {
    let mut arrays = Vec::with_capacity(inputs.len());
    for (mut builder, vector) in gathered(registers, &**function, inputs) {
        builder.append_in_turns(vector, Selected::Some(rows), pace).await;
        arrays.push(builder);
    }
    let (function, count) = (function.clone(), rows.len());
    let work = move || {
        let before = call_time();
        let array = call(&*function, arrays, count)?;
        let column = ArrowColumn::new(&array, lane)?;
        Ok((column, call_time().saturating_sub(before)))
    };
    apart::run(work).await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, StringViewArray};
    use arrow_schema::DataType;
    use futures::executor::block_on;

    use super::*;
    use crate::constant::Constant;
    use crate::expand::{Expand, Expansion};
    use crate::interpret::call_clock::advance;
    use crate::interpret::{Advance, Interpreter};
    use crate::program::{Comparison, Operand, Program, Step};
    use crate::vector::VECTOR_ROWS_MAX;

    /// Takes so long for each row by the clock of its thread, and gives what it is given twice; notes how many rows come, and where.
    #[derive(Debug)]
    struct Twice {
        types: Vec<DataType>,
        row_takes: Duration,
        calls: Mutex<Vec<(usize, ThreadId)>>,
    }

    impl Twice {
        fn of(data_type: DataType, row_takes: Duration) -> Arc<Twice> {
            Arc::new(Twice { types: vec![data_type], row_takes, calls: Mutex::default() })
        }

        fn take_calls(&self) -> Vec<(usize, ThreadId)> {
            std::mem::take(&mut self.calls.lock().expect("not poisoned"))
        }
    }

    impl Function for Twice {
        fn name(&self) -> &str {
            "twice"
        }

        fn input_types(&self) -> &[DataType] {
            &self.types
        }

        fn output_type(&self) -> &DataType {
            &self.types[0]
        }

        fn call(&self, inputs: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
            self.calls.lock().expect("not poisoned").push((rows, thread::current().id()));
            advance(self.row_takes * rows as u32);
            Ok(match &self.types[0] {
                DataType::Int64 => {
                    let values = inputs[0].as_primitive::<Int64Type>().iter();
                    let twice = values.map(|value| {
                        assert_ne!(value, Some(13), "this one does not count");
                        value.map(|value| value * 2)
                    });
                    Arc::new(twice.collect::<Int64Array>())
                }
                _ => {
                    let values = inputs[0].as_string_view().iter();
                    let twice = values.map(|value| value.map(|value| format!("{value}{value}")));
                    Arc::new(twice.collect::<StringViewArray>())
                }
            })
        }
    }

    /// An interpreter of a program over one column, as a pipeline has it.
    fn interpreter(program: Program) -> Interpreter {
        let options = weft_rt::RuntimeOptions {
            workers: 1,
            driver: weft_rt::io::DriverKind::Blocking,
            ..weft_rt::RuntimeOptions::default()
        };
        let runtime = Arc::new(weft_rt::Runtime::new(&options).expect("a runtime"));
        let context = crate::query::Context::new(runtime, weft_rt::memory::Ledger::new(1 << 20));
        Interpreter::new(Arc::new(program), &context).of_pipeline(&context)
    }

    /// Runs what was loaded; gives how often it has waited.
    fn run(interpreter: &mut Interpreter) -> usize {
        let mut waits = 0;
        loop {
            match interpreter.advance_once().expect("no step fails") {
                Advance::Tuples | Advance::Nothing => {}
                Advance::Waits => {
                    waits += 1;
                    block_on(interpreter.wait(&mut Pace::default())).expect("no step fails");
                }
                Advance::Ended => return waits,
            }
        }
    }

    #[test]
    fn a_slow_function_never_runs_for_many_rows_on_the_worker() {
        // CASE WHEN a <> 13 THEN twice(twice(a)) END
        let mut program = Program::default();
        let a = program.input(Lane::I64);
        let condition = program.register(Lane::Bool);
        let [once, twice, out] = [(); 3].map(|()| program.register(Lane::I64));
        let slow = Twice::of(DataType::Int64, Duration::from_micros(20));
        let fast = Twice::of(DataType::Int64, Duration::ZERO);
        let call = |function: &Arc<Twice>, input, out| Step::Call {
            function: function.clone(),
            inputs: vec![input],
            out,
        };
        program.steps = vec![
            Step::Fill { value: None, out },
            Step::Compare {
                op: Comparison::NotEqual,
                a: Operand::Register(a),
                b: Operand::Constant(Constant::I64(13)),
                out: condition,
            },
            Step::Begin { condition, when: true },
            call(&slow, a, once),
            call(&fast, once, twice),
            Step::Assign { a: Operand::Register(twice), out },
            Step::End,
        ];
        let mut interpreter = interpreter(program);
        let mut fast_calls = 0;
        for _ in 0..3 {
            let rows = VECTOR_ROWS_MAX;
            interpreter.begin(rows);
            let vector = interpreter.registers_mut().vector_mut(a);
            vector.validity.set_all();
            for row in 0..rows {
                vector.values_mut::<i64>()[row] = (row % 20) as i64;
                vector.validity.set(row, row % 7 != 0);
            }
            let waits = run(&mut interpreter);
            let registers = interpreter.registers();
            assert_eq!(registers.selected().count(), rows);
            for row in 0..rows {
                let value = Some((row % 20) as i64).filter(|value| row % 7 != 0 && *value != 13);
                assert_eq!(registers.vector(out).value::<i64>(row), value.map(|value| 4 * value));
            }
            // The rows take 20 ms or more, and come in pieces of half a millisecond.
            let calls = slow.take_calls();
            let here = thread::current().id();
            assert!(
                calls.iter().all(|(count, there)| *count <= 256 || *there != here),
                "{calls:?}"
            );
            assert!(waits > 0);
            fast_calls = fast.take_calls().len();
        }
        assert_eq!(fast_calls, 1, "what takes no time is called once for all rows");
    }

    #[test]
    fn calls_are_cut_where_that_costs_little() {
        let ms = Duration::from_millis;
        let us = Duration::from_micros;
        let speed = |call, unit_ns| Speed { calls: 9, fastest: (call, 0), unit_ns: Some(unit_ns) };
        assert_eq!(Speed::default().way(1 << 20), Way::Piece(1), "nothing is known");
        // What fits.
        assert_eq!(speed(us(1), 1.0).way(400_000), Way::Piece(400_000));
        // 4 ms in 8 pieces and a bit; a call takes next to nothing.
        let way = speed(us(1), 1.0).way(4_000_000);
        assert!(matches!(way, Way::Piece(440_000..500_000)), "{way:?}");
        // As long, but each call takes some time.
        assert_eq!(speed(us(100), 1.0).way(4_000_000), Way::Apart);
        assert_eq!(speed(ms(2), 0.0).way(1_000), Way::Apart);
        // Not so long that another thread would be worth it.
        assert_eq!(speed(us(300), 1.0).way(400_000), Way::Piece(400_000));
    }

    #[test]
    fn what_held_up_a_call_is_forgotten() {
        let us = Duration::from_micros;
        let mut speed = Speed::default();
        // 100 µs each time, and 1 ns for a unit; one call is held up for ten milliseconds.
        let mut call = |units: usize, held_up: Duration| {
            speed.note(units, us(100) + takes(units, 1.0) + held_up);
            speed
        };
        for units in [70, 71, 130] {
            call(units, Duration::ZERO);
        }
        let mut held_up = call(140, Duration::from_millis(10));
        let mut units_left = 10_000_000;
        for _ in 0..100 {
            let units = match held_up.way(units_left) {
                Way::Piece(units) => units,
                Way::Apart => units_left,
            };
            held_up = call(units, Duration::ZERO);
            units_left = 200_000;
        }
        assert!(held_up.fits(200_000, us(350)), "{held_up:?}");
    }

    /// Passes tuples through, and never puts any aside.
    #[derive(Debug)]
    struct Through;

    impl Expand for Through {
        fn expansion(&self, _: &crate::query::Context) -> Box<dyn Expansion> {
            Box::new(Through)
        }
    }

    impl Expansion for Through {
        fn begin(&mut self, _: &mut Registers) -> Result<bool> {
            Ok(false)
        }

        fn next(&mut self, _: &mut Registers) -> Result<bool> {
            unreachable!("there is one batch")
        }

        fn put_aside<'a>(
            &'a mut self,
            _: &'a mut Registers,
        ) -> futures::future::LocalBoxFuture<'a, Result<()>> {
            unreachable!("there is nothing to be put aside")
        }
    }

    #[test]
    fn steps_that_expand_are_asked_before_they_wait() {
        for before in 1..20 {
            let mut program = Program::default();
            let a = program.input(Lane::I64);
            let out = program.register(Lane::I64);
            let slow = Twice::of(DataType::Int64, Duration::from_micros(150));
            program.steps = vec![Step::Call { function: slow, inputs: vec![a], out }];
            let others = (1..before).map(|_| Step::Fill { value: None, out: a });
            program.steps.extend(others);
            program.steps.push(Step::Expand(Arc::new(Through)));
            let mut interpreter = interpreter(program);
            for _ in 0..5 {
                interpreter.begin(2);
                let vector = interpreter.registers_mut().vector_mut(a);
                vector.validity.set_all();
                vector.values_mut::<i64>()[..2].copy_from_slice(&[1, 2]);
                run(&mut interpreter);
                assert_eq!(interpreter.registers().values::<i64>(out)[..2], [2, 4]);
            }
        }
    }

    #[test]
    fn what_takes_long_for_one_row_runs_apart() {
        let mut program = Program::default();
        let a = program.input(Lane::Str);
        let out = program.register(Lane::Str);
        let function = Twice::of(DataType::Utf8View, Duration::ZERO);
        program.steps = vec![Step::Call { function: function.clone(), inputs: vec![a], out }];
        let mut interpreter = interpreter(program);
        let texts = ["short", &"medium".repeat(20), &"long ".repeat(1 << 20), "last one"];
        interpreter.begin(texts.len() + 2);
        let registers = interpreter.registers_mut();
        registers.selection.retain(|row| row != 1);
        let vector = registers.vector_mut(a);
        vector.validity.set_all();
        vector.validity.set(0, false);
        for (row, text) in texts.iter().enumerate() {
            vector.values_mut::<Str>()[row + 2] = Str::new(text.as_bytes());
        }
        run(&mut interpreter);
        let calls = function.take_calls();
        assert!(matches!(&calls[..], [(5, there)] if *there != thread::current().id()));
        let made = interpreter.registers().vector(out);
        assert_eq!(made.value::<Str>(0).map(Str::len), None);
        for (row, text) in texts.iter().enumerate() {
            let value = made.value::<Str>(row + 2).expect("a text");
            // SAFETY: the register keeps what it refers to.
            assert!(unsafe { value.bytes() } == text.repeat(2).as_bytes());
        }
    }
}
