//! Aggregate states: fixed places of a group's tuple, and how a vector's rows are added to them.
//!
//! A [`State`] is called once per vector for all of its rows and groups, so that what it dispatches on costs nothing per
//! row. It never sees rows that its aggregate does not count: [`Fed`] has taken them out, and does nothing at all where
//! there are no nulls and no FILTER.

use std::fmt;
use std::marker::PhantomData;

use futures::future::LocalBoxFuture;

use super::masked::Masked;
use super::memory::Memory;
use crate::error::Result;
use crate::lane::{Bool, Lane, Value};
use crate::pace::Pace;
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::tuple::Layout;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// The tuple of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuple(*mut u8);

// SAFETY: an address; whoever makes a `Tuple` answers for its use.
unsafe impl Send for Tuple {}
// SAFETY: as above.
unsafe impl Sync for Tuple {}

impl Tuple {
    /// None, to be replaced before it is used.
    pub(super) const NONE: Tuple = Tuple(std::ptr::null_mut());

    /// The tuple at an address.
    ///
    /// # Safety
    /// As long as a copy of it is used, there must lie an initialized tuple of the layout that its places are of, and
    /// nobody else may touch it.
    pub(super) unsafe fn at(address: *mut u8) -> Tuple {
        Tuple(address)
    }

    /// Where it lies.
    pub(super) fn address(self) -> *mut u8 {
        self.0
    }
}

/// A field of a tuple, with the type of its values.
#[derive(Debug)]
pub(super) struct Place<T> {
    offset: usize,
    null: Option<(usize, u8)>,
    value: PhantomData<T>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Place<T> {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T: Value> Place<T> {
    /// A field of `layout`.
    ///
    /// # Panics
    /// If it is of another lane.
    pub(super) fn of(layout: &Layout, field: usize) -> Place<T> {
        let field = layout.field(field);
        assert_eq!(field.lane, T::LANE, "a field of another lane");
        Place { offset: field.offset, null: field.null_place(), value: PhantomData }
    }

    #[inline(always)]
    pub(super) fn get(self, tuple: Tuple) -> T {
        // SAFETY: the field lies in the tuple, which is there and is ours (`Tuple::at`).
        unsafe { tuple.0.add(self.offset).cast::<T>().read_unaligned() }
    }

    #[inline(always)]
    pub(super) fn set(self, tuple: Tuple, value: T) {
        // SAFETY: as in `get`.
        unsafe { tuple.0.add(self.offset).cast::<T>().write_unaligned(value) }
    }

    /// True if the field has no value.
    #[inline(always)]
    pub(super) fn is_null(self, tuple: Tuple) -> bool {
        // SAFETY: null bits lie in the tuple, which is there and is ours.
        self.null.is_some_and(|(byte, bit)| unsafe { tuple.0.add(byte).read() } & bit != 0)
    }

    /// The field has a value from now on.
    #[inline(always)]
    pub(super) fn clear_null(self, tuple: Tuple) {
        if let Some((byte, bit)) = self.null {
            // SAFETY: null bits lie in the tuple, which is there and is ours.
            unsafe { *tuple.0.add(byte) &= !bit }
        }
    }

    /// Each of these fields has a value from now on.
    pub(super) fn clear_nulls(self, tuples: &[Tuple]) {
        if self.null.is_some() {
            tuples.iter().for_each(|tuple| self.clear_null(*tuple));
        }
    }

    /// The field has no value from now on.
    #[inline(always)]
    pub(super) fn set_null(self, tuple: Tuple) {
        if let Some((byte, bit)) = self.null {
            // SAFETY: null bits lie in the tuple, which is there and is ours.
            unsafe { *tuple.0.add(byte) |= bit }
        }
    }
}

/// What rows are added from, and where what outgrows a tuple goes.
pub(super) struct Feed<'a> {
    pub(super) registers: &'a Registers,
    pub(super) memory: &'a mut Memory,
}

/// The state of an aggregate, or a part of it that several aggregates share.
pub(super) trait State: fmt::Debug + Send + Sync {
    /// Makes a tuple's fields those of a group without rows. All of its null bits are set.
    fn begin(&self, tuple: Tuple);

    /// Adds `rows`, of which each is of the group at the same place of `tuples`. Rows of a group are in their order.
    ///
    /// # Errors
    /// If a result has no place in its lane.
    fn add(&self, tuples: &[Tuple], rows: &[u16], feed: &mut Feed<'_>) -> Result<()>;

    /// Adds rows that are all of one group.
    ///
    /// # Errors
    /// As [`State::add`].
    fn add_to_one(&self, tuple: Tuple, rows: Selected<'_>, feed: &mut Feed<'_>) -> Result<()> {
        let tuples = [tuple; STEP_ROWS];
        match rows {
            Selected::Some(rows) => rows
                .chunks(STEP_ROWS)
                .try_for_each(|rows| self.add(&tuples[..rows.len()], rows, feed)),
            Selected::All(count) => (0..count).step_by(STEP_ROWS).try_for_each(|start| {
                let rows: [u16; STEP_ROWS] = std::array::from_fn(|at| (start + at) as u16);
                let count = STEP_ROWS.min(count - start);
                self.add(&tuples[..count], &rows[..count], feed)
            }),
        }
    }

    /// Adds the rows of very few groups; false if that is better done in another way, and nothing was added.
    ///
    /// # Errors
    /// As [`State::add`].
    fn add_masked(&self, _: Masked<'_>, _: &mut Feed<'_>) -> Result<bool> {
        Ok(false)
    }

    /// True if it keeps a set behind the tuple, which is copied by being merged with one of no rows.
    fn is_set(&self) -> bool {
        false
    }

    /// Adds what each tuple of `from` has to the one at the same place of `into`. Afterwards only `into` counts; memory
    /// of either may be part of it, unless that is to be copied ([`Memory::copies`]).
    ///
    /// # Errors
    /// As [`State::add`].
    fn merge(&self, into: &[Tuple], from: &[Tuple], memory: &mut Memory) -> Result<()>;
}

const STEP_ROWS: usize = 64;

/// A state, and which rows count for it.
#[derive(Debug)]
pub(super) struct Fed {
    pub(super) state: Box<dyn State>,
    /// Only rows for which this is true.
    pub(super) filter: Option<Register>,
    /// Only rows for which none of these is null.
    pub(super) not_null: Vec<Register>,
}

/// Room for the rows that a state counts.
#[derive(Debug)]
pub(super) struct Narrowed {
    tuples: Box<[Tuple; VECTOR_ROWS_MAX]>,
    rows: Box<[u16; VECTOR_ROWS_MAX]>,
}

impl Default for Narrowed {
    fn default() -> Narrowed {
        Narrowed {
            tuples: Box::new([Tuple::NONE; VECTOR_ROWS_MAX]),
            rows: Box::new([0; VECTOR_ROWS_MAX]),
        }
    }
}

impl Fed {
    fn counts_all(&self, registers: &Registers) -> bool {
        self.filter.is_none()
            && self
                .not_null
                .iter()
                .all(|register| !registers.vector(*register).validity.has_nulls())
    }

    #[inline]
    fn counts(&self, registers: &Registers, truths: Option<&[Bool]>, row: usize) -> bool {
        let is_valid = |register: &Register| registers.vector(*register).validity.is_valid(row);
        truths.is_none_or(|truths| truths[row].get())
            && self.filter.as_ref().is_none_or(is_valid)
            && self.not_null.iter().all(is_valid)
    }

    /// As [`State::add`], with those rows that count.
    pub(super) fn add(
        &self,
        tuples: &[Tuple],
        rows: &[u16],
        feed: &mut Feed<'_>,
        room: &mut Narrowed,
    ) -> Result<()> {
        let registers = feed.registers;
        if self.counts_all(registers) {
            return self.state.add(tuples, rows, feed);
        }
        let truths = self.filter.map(|filter| registers.values::<Bool>(filter));
        let mut count = 0;
        for (tuple, row) in tuples.iter().zip(rows) {
            (room.tuples[count], room.rows[count]) = (*tuple, *row);
            count += usize::from(self.counts(registers, truths, (*row).into()));
        }
        self.state.add(&room.tuples[..count], &room.rows[..count], feed)
    }

    /// As [`State::add_masked`]; false if some rows do not count, too.
    pub(super) fn add_masked(&self, masked: Masked<'_>, feed: &mut Feed<'_>) -> Result<bool> {
        Ok(self.counts_all(feed.registers) && self.state.add_masked(masked, feed)?)
    }

    /// As [`State::add_to_one`], with those rows that count.
    pub(super) fn add_to_one(
        &self,
        tuple: Tuple,
        rows: Selected<'_>,
        feed: &mut Feed<'_>,
        room: &mut Narrowed,
    ) -> Result<()> {
        let registers = feed.registers;
        if self.counts_all(registers) {
            return self.state.add_to_one(tuple, rows, feed);
        }
        let truths = self.filter.map(|filter| registers.values::<Bool>(filter));
        let mut count = 0;
        rows.for_each(|row| {
            room.rows[count] = row as u16;
            count += usize::from(self.counts(registers, truths, row));
        });
        if count == 0 {
            return Ok(());
        }
        self.state.add_to_one(tuple, Selected::Some(&room.rows[..count]), feed)
    }
}

/// Bytes that the result of a group takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// While it is made.
    pub(super) making_bytes: u64,
    /// In the register with the result, beside what is there anyway.
    pub(super) result_bytes: u64,
    /// Behind the group, for as long as that is there.
    pub(super) kept_bytes: u64,
}

/// What an aggregate makes of its states in the end.
pub(super) trait Outcome: fmt::Debug + Send + Sync {
    /// The lane of the result.
    fn lane(&self) -> Lane;

    /// The memory that the result of a group takes; not counted where it is little.
    fn needs(&self, _: Tuple) -> Needs {
        Needs::default()
    }

    /// As [`Outcome::needs`], for a group of many [`Outcome::values`].
    fn needs_in_turns<'a>(
        &'a self,
        tuple: Tuple,
        _pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Needs> {
        Box::pin(async move { self.needs(tuple) })
    }

    /// How many values the result of a group is made of in the end.
    fn values(&self, _: Tuple) -> u64 {
        0
    }

    /// As [`Outcome::write`], for groups of many [`Outcome::values`].
    ///
    /// # Errors
    /// As [`Outcome::write`].
    fn write_in_turns<'a>(
        &'a self,
        tuples: &'a [Tuple],
        out: &'a mut Vector,
        memory: &'a mut Memory,
        _pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move { self.write(tuples, out, memory) })
    }

    /// Writes the result for each of `tuples` into the first rows of `out`.
    ///
    /// # Errors
    /// If a result has no place in its lane.
    fn write(&self, tuples: &[Tuple], out: &mut Vector, memory: &mut Memory) -> Result<()>;
}
