//! The condition of a scan, evaluated by the worker that decodes, before the other columns are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, BooleanBufferBuilder};
use datafusion::arrow::buffer::BooleanBuffer;
use weft_exec::arrow::ArrowColumn;
use weft_exec::program::Program;
use weft_exec::query::Context;
use weft_exec::{Interpreter, VECTOR_ROWS_MAX};

/// Rows after which it is known whether the condition drops enough.
const TRIAL_ROWS: u64 = 64 << 10;
/// Of so many rows, one at least must be dropped.
const DROPPED_SHARE: u64 = 2;

/// The steps of the condition, over columns of the table.
#[derive(Debug)]
pub(crate) struct Condition {
    /// The numbers of the columns that it looks at, in the order of the program's inputs.
    columns: Vec<usize>,
    program: Arc<Program>,
    rows_in: AtomicU64,
    rows_out: AtomicU64,
    is_off: AtomicBool,
}

/// Evaluates the condition. One morsel's.
pub(super) struct Evaluation {
    condition: Arc<Condition>,
    interpreter: Interpreter,
}

impl Condition {
    /// A program whose steps narrow the selection, over these columns of the table.
    pub(crate) fn new(columns: Vec<usize>, program: Program) -> Condition {
        let (rows_in, rows_out, is_off) = Default::default();
        Condition { columns, program: Arc::new(program), rows_in, rows_out, is_off }
    }

    /// The numbers of the columns that it looks at.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// False once it is known to drop too few rows.
    pub(super) fn is_worth_it(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    /// Rows that it has looked at, and those that it has let through.
    pub(super) fn rows(&self) -> (u64, u64) {
        let rows_out = self.rows_out.load(Ordering::Relaxed);
        (self.rows_in.load(Ordering::Relaxed), rows_out)
    }

    /// To be evaluated by one morsel.
    pub(super) fn evaluation(self: &Arc<Self>, context: &Context) -> Evaluation {
        let interpreter = Interpreter::new(Arc::clone(&self.program), context);
        Evaluation { condition: Arc::clone(self), interpreter }
    }

    fn count(&self, rows_in: u64, rows_out: u64) {
        let out = self.rows_out.fetch_add(rows_out, Ordering::Relaxed) + rows_out;
        let all = self.rows_in.fetch_add(rows_in, Ordering::Relaxed) + rows_in;
        if all >= TRIAL_ROWS && all.saturating_sub(out) * DROPPED_SHARE < all {
            self.is_off.store(true, Ordering::Relaxed);
        }
    }
}

impl Evaluation {
    /// A bit for each of `rows` rows, of which the arrays have the columns; `None` if it cannot be told: it fails for a row, as it
    /// will again where the rows are filtered, unless others drop this row.
    pub(super) fn wanted(&mut self, arrays: &[ArrayRef], rows: usize) -> Option<BooleanBuffer> {
        let bits = self.bits(arrays, rows);
        match &bits {
            Some(bits) => self.condition.count(rows as u64, bits.count_set_bits() as u64),
            None => self.condition.is_off.store(true, Ordering::Relaxed),
        }
        bits
    }

    fn bits(&mut self, arrays: &[ArrayRef], rows: usize) -> Option<BooleanBuffer> {
        let program = Arc::clone(&self.condition.program);
        let lanes = program.inputs.iter().map(|input| program.registers[input.index()]);
        let columns = arrays.iter().zip(lanes);
        let columns = columns.map(|(array, lane)| ArrowColumn::new(array, lane).ok());
        let columns: Vec<ArrowColumn> = columns.collect::<Option<_>>()?;
        let mut bits = BooleanBufferBuilder::new(rows);
        for start in (0..rows).step_by(VECTOR_ROWS_MAX) {
            let count = VECTOR_ROWS_MAX.min(rows - start);
            self.interpreter.begin(count);
            let registers = self.interpreter.registers_mut();
            for (column, input) in columns.iter().zip(&program.inputs) {
                column.load(start, count, registers.vector_mut(*input)).ok()?;
            }
            bits.append_n(count, false);
            while self.interpreter.advance().ok()? {
                let selected = self.interpreter.registers().selection.selected();
                selected.for_each(|row| bits.set_bit(start + row, true));
            }
        }
        Some(bits.finish())
    }
}
