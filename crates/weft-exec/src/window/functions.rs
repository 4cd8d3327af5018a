//! What is asked of a window operator.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::frames::Frame;
use crate::aggregate::Moment;
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Constant;

/// A window function over the fields of sorted tuples.
#[derive(Clone, Debug)]
pub struct Function {
    /// Which.
    pub kind: Kind,
    /// The fields of its arguments.
    pub arguments: Vec<usize>,
    /// The fields that the rows of a partition are ordered by: those that agree in all of them are peers.
    pub order: Vec<usize>,
    /// The lane of the result.
    pub result: Lane,
}

/// What a function computes for each row.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The number of the row in its partition, from 1 on. In [`Lane::I64`] or [`Lane::U64`], as the next three.
    RowNumber,
    /// The number of its first peer.
    Rank,
    /// How many different keys there are up to its own.
    DenseRank,
    /// Which of so many parts of the partition it is in; each has as many rows as the next one, or one more. Null if the
    /// number of parts is.
    Ntile(Given<i64>),
    /// The part of the other rows that come before its first peer. In [`Lane::F64`].
    PercentRank,
    /// The part of the rows that come before it or are its peers. In [`Lane::F64`].
    CumeDist,
    /// The argument of another row of the partition. In the argument's lane.
    Shift(Shift),
    /// The argument of a row of the frame; null if it has not so many. In the argument's lane.
    Nth {
        /// Which: 1 is the first one, -1 the last. Those that rows have themselves are positive.
        row: Given<i64>,
        /// Rows whose argument is null do not count.
        ignores_nulls: bool,
        /// Of rows.
        frame: Frame,
    },
    /// An aggregate of the rows of the frame.
    Aggregate(Aggregate, Frame),
    /// An aggregate of the rows of the frame that is not ours.
    Foreign(Arc<dyn Foreign>, Frame),
    /// Whatever is none of the others.
    Partitionwise(Arc<dyn Partitionwise>),
}

/// An argument beside the value that a function is of.
#[derive(Clone, Debug, PartialEq)]
pub enum Given<T> {
    /// The same for all rows.
    Constant(T),
    /// What is in this field of each row, or null: in [`Lane::I64`] if it is a number of rows or parts.
    Field(usize),
}

impl<T> Given<T> {
    /// The field, if it is in one.
    pub(super) fn field(&self) -> Option<usize> {
        match self {
            Given::Constant(_) => None,
            Given::Field(field) => Some(*field),
        }
    }
}

/// Which other row.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// So many rows before, or behind if it is negative. If it is null, so is the result.
    pub back: Given<i64>,
    /// It is the other way round.
    pub is_ahead: bool,
    /// Rows whose argument is null do not count.
    pub ignores_nulls: bool,
    /// What there is if the partition has no such row, of the argument's lane.
    pub default: Option<Given<Constant>>,
}

impl Shift {
    /// The fields of rows that say how far away the other one is, and what there is without it.
    pub(super) fn fields(&self) -> [Option<usize>; 3] {
        [self.back.field(), self.default.as_ref().and_then(Given::field), None]
    }

    /// How many rows before, of which the row says so many.
    pub(super) fn back(&self, rows: i64) -> i64 {
        if self.is_ahead { rows.saturating_neg() } else { rows }
    }

    /// True if it matters which rows have an argument.
    pub(super) fn passes_over_nulls(&self) -> bool {
        self.ignores_nulls && self.back != Given::Constant(0)
    }
}

/// An aggregate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Rows whose argument, if there is one, is not null. In [`Lane::I64`].
    Count,
    /// As [`Function::Sum`](crate::aggregate::Function::Sum).
    Sum,
    /// As [`Function::Average`](crate::aggregate::Function::Average).
    Average {
        /// Digits behind the point that are added to those of the argument.
        digits: i8,
    },
    /// The least value, in the argument's lane.
    Min,
    /// The greatest one.
    Max,
    /// A variance or a deviation. Of [`Lane::F64`], as its result.
    Moment(Moment),
    /// Whether all values are true. Of truth values, as the next.
    All,
    /// Whether one is.
    Any,
}

/// An aggregate that is not ours: it is told of the rows that come into the frame and go out of it.
pub trait Foreign: fmt::Debug + Send + Sync {
    /// The types of the arrays that it wants, one for each argument.
    fn input_types(&self) -> &[DataType];

    /// Begins to aggregate rows whose arguments these are.
    ///
    /// # Errors
    /// [`crate::ExecError::Function`], as the others.
    fn accumulator(&self, inputs: Vec<ArrayRef>) -> Result<Box<dyn Accumulator>>;
}

/// What is aggregated of some rows.
pub trait Accumulator: Send {
    /// True if rows may go out.
    fn removes(&self) -> bool;

    /// True if rows may go out that are not the first ones, and others may come in in any order.
    fn removes_any(&self) -> bool;

    /// The rows that are named from now on have these arguments.
    fn go_on(&mut self, inputs: Vec<ArrayRef>);

    /// Bytes that it takes, about.
    fn bytes(&self) -> usize;

    /// Forgets all rows.
    ///
    /// # Errors
    /// [`crate::ExecError::Function`]
    fn clear(&mut self) -> Result<()>;

    /// These rows come in, behind those that did before: some of a frame's, as many at once as have few bytes.
    ///
    /// # Errors
    /// [`crate::ExecError::Function`]
    fn add(&mut self, rows: Range<usize>) -> Result<()>;

    /// These rows go out, the first ones of all.
    ///
    /// # Errors
    /// [`crate::ExecError::Function`]
    fn remove(&mut self, rows: Range<usize>) -> Result<()>;

    /// The result: an array of one value. On any thread, if it has taken long before.
    ///
    /// # Errors
    /// [`crate::ExecError::Function`]
    fn value(&mut self) -> Result<ArrayRef>;
}

/// A function that is not ours: it gets whole partitions.
pub trait Partitionwise: fmt::Debug + Send + Sync {
    /// What errors call it.
    fn name(&self) -> &str;

    /// The types of the arrays that it wants, one for each argument.
    fn input_types(&self) -> &[DataType];

    /// Its values for the `rows` rows of a partition in their order, of a type that has the lane of the result. On any thread, if it may
    /// take long.
    ///
    /// # Errors
    /// What is wrong with a row; [`crate::ExecError::Function`] for whatever is not this crate's.
    fn evaluate(&self, inputs: &[ArrayRef], rows: usize) -> Result<ArrayRef>;
}
