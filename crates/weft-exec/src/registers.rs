//! The registers of a program: a vector each, all for the same tuples, and which of the tuples count.

use crate::lane::{Lane, Value};
use crate::program::{Program, Register};
use crate::selection::{Selected, Selection};
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// What a program works on.
#[derive(Debug)]
pub struct Registers {
    vectors: Vec<Vector>,
    rows: usize,
    /// The rows that count now.
    pub selection: Selection,
}

impl Registers {
    /// Registers for `program`, of no rows.
    pub fn new(program: &Program) -> Registers {
        Registers::of(&program.registers)
    }

    /// A register per lane, of no rows.
    pub fn of(lanes: &[Lane]) -> Registers {
        let vectors = lanes.iter().map(|lane| Vector::new(*lane)).collect();
        let mut selection = Selection::default();
        selection.select_all(0);
        Registers { vectors, rows: 0, selection }
    }

    /// Begins with the next `rows` tuples, all of which count. What registers held means nothing any more.
    ///
    /// # Panics
    /// If they are more than [`VECTOR_ROWS_MAX`].
    pub fn begin(&mut self, rows: usize) {
        assert!(rows <= VECTOR_ROWS_MAX, "{rows} rows");
        self.rows = rows;
        self.selection.select_all(rows);
        self.vectors.iter_mut().for_each(Vector::reset);
    }

    /// Goes on with `rows` tuples, all of which count, that a step has made of the ones before. Other registers keep
    /// what they have, for the step to make more of it later.
    ///
    /// # Panics
    /// If they are more than [`VECTOR_ROWS_MAX`].
    pub fn set_rows(&mut self, rows: usize) {
        assert!(rows <= VECTOR_ROWS_MAX, "{rows} rows");
        self.rows = rows;
        self.selection.select_all(rows);
    }

    /// Number of tuples, whether they count or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The tuples that count.
    pub fn selected(&self) -> Selected<'_> {
        self.selection.selected()
    }

    /// A register.
    pub fn vector(&self, register: Register) -> &Vector {
        &self.vectors[register.index()]
    }

    /// A register to be written to.
    pub fn vector_mut(&mut self, register: Register) -> &mut Vector {
        &mut self.vectors[register.index()]
    }

    /// The values of a register, at least as many as there are rows.
    ///
    /// # Panics
    /// If they are of another lane.
    pub fn values<T: Value>(&self, register: Register) -> &[T] {
        self.vector(register).values()
    }

    /// Takes a register out, so that it can be written to while others are read. [`Registers::put`] brings it back.
    pub fn take(&mut self, register: Register) -> Vector {
        let lane = self.vector(register).lane();
        std::mem::replace(self.vector_mut(register), Vector::new(lane))
    }

    /// Puts back what was taken.
    pub fn put(&mut self, register: Register, vector: Vector) {
        debug_assert_eq!(vector.lane(), self.vector(register).lane());
        *self.vector_mut(register) = vector;
    }

    /// A register, and the selection to be changed by it.
    pub(crate) fn with_selection(&mut self, register: Register) -> (&Vector, &mut Selection) {
        (&self.vectors[register.index()], &mut self.selection)
    }

    /// Calls `work` with each row that is selected and not null in `register`.
    #[inline(always)]
    pub(crate) fn for_each_valid(&self, register: Register, mut work: impl FnMut(usize)) {
        match self.vector(register).validity.words() {
            None => self.selected().for_each(work),
            Some(words) => self.selected().for_each(|row| {
                if words[row / 64] >> (row % 64) & 1 == 1 {
                    work(row);
                }
            }),
        }
    }

    /// Calls `work` with register `out` apart from all others. Strings that were computed into it before are forgotten.
    pub(crate) fn write<R>(
        &mut self,
        out: Register,
        work: impl FnOnce(&Registers, &mut Vector) -> R,
    ) -> R {
        let mut vector = self.take(out);
        vector.reset();
        let result = work(self, &mut vector);
        self.put(out, vector);
        result
    }

    /// Exchanges two registers of one lane.
    pub fn swap(&mut self, a: Register, b: Register) {
        debug_assert_eq!(self.vector(a).lane(), self.vector(b).lane());
        self.vectors.swap(a.index(), b.index());
    }
}
