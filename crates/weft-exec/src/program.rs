//! The step set: what a pipeline does to a vector of tuples between its source and its sink.
//!
//! A [`Program`] is flat: steps run in order, each on the tuples that are selected when its turn comes. It is the
//! contract between whoever translates SQL, the interpreter that runs a step over a whole vector, and a compiler that
//! fuses steps into a loop per tuple; all must agree on what this file says.
//!
//! - **Registers** are typed by a [`Lane`] and written by one step only (but for [`Step::Assign`]), so that whatever a
//!   string refers to lives until the next tuples come. Tuples keep their places: a filter narrows the selection.
//! - **Null** in gives null out, unless a step says otherwise. What lies under a null is never looked at.
//! - **Errors** happen only for tuples that are selected and not null.
//! - **Scopes** ([`Step::Begin`], [`Step::Else`], [`Step::End`]) run steps for some of the tuples: CASE, and conditions
//!   whose second half must not be evaluated where the first has decided. They nest.
//! - **Expansion** ([`Step::Expand`]): a probe may find several matches. The steps after it run once for each batch of
//!   matches.
//! - **Waits**: steps that wait are awaited by the worker's task; all others are plain calls. A step that expands may put
//!   tuples aside, which come back out of order when the source has no more.

use std::fmt;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

pub use crate::constant::Constant;
use crate::error::Result;
use crate::expand::Expand;
use crate::lane::Lane;

/// A register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u16);

impl Register {
    /// Its number.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What a step reads: a register, or the same value for every tuple.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// The values of a register.
    Register(Register),
    /// One value.
    Constant(Constant),
}

/// Two numbers to one. For the lanes of 32 bits and more, but [`Lane::Str`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// a + b
    Add,
    /// a - b
    Subtract,
    /// a · b
    Multiply,
    /// a / b, of integers toward zero. An integer divided by zero is an error.
    Divide,
    /// What is left of a / b, with the sign of a.
    Remainder,
    /// Integers only.
    BitAnd,
    /// Integers only.
    BitOr,
    /// Integers only.
    BitXor,
}

/// What an integer step does when a result has no place in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Whoever made the program knows that it does not happen; the result would wrap.
    Impossible,
    /// [`ExecError::Overflow`](crate::ExecError::Overflow)
    Error,
}

/// How two values compare. Floats compare by IEEE's total order after -0.0 became 0.0: NaN is equal to itself and
/// larger than any number. Strings compare by their bytes, `false` is less than `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// =
    Equal,
    /// <>
    NotEqual,
    /// <
    Less,
    /// <=
    LessOrEqual,
    /// >
    Greater,
    /// >=
    GreaterOrEqual,
    /// IS NOT DISTINCT FROM: never null, null equals null.
    NotDistinct,
    /// IS DISTINCT FROM: never null.
    Distinct,
}

/// What becomes of a value that has no place in the type that it is cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastFailure {
    /// An error.
    Error,
    /// Null (TRY_CAST).
    Null,
}

/// What the length of a text counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthUnit {
    /// Characters of UTF-8.
    Characters,
    /// Bytes.
    Bytes,
}

/// A part of a date or of a time since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatePart {
    /// Of the Gregorian calendar.
    Year,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// ISO 8601, 1 to 53.
    Week,
    /// 1 to 31.
    Day,
    /// 1 to 366.
    DayOfYear,
    /// 0 is Sunday.
    DayOfWeek,
    /// 0 to 23.
    Hour,
    /// 0 to 59.
    Minute,
    /// 0 to 59, whole ones.
    Second,
}

/// What a date or timestamp counts from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateUnit {
    /// In [`Lane::I32`].
    Days,
    /// In [`Lane::I64`], as the rest.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Millionths.
    Microseconds,
    /// Billionths.
    Nanoseconds,
}

/// A step.
#[derive(Clone, Debug)]
pub enum Step {
    /// `out = a op b`, both and the result of the lane of `out`.
    Arithmetic {
        /// Which.
        op: Arithmetic,
        /// On the left.
        a: Operand,
        /// On the right.
        b: Operand,
        /// Where the result goes.
        out: Register,
        /// For integers; floats follow IEEE 754.
        overflow: Overflow,
    },
    /// `out = -a`, of the lane of `out`.
    Negate {
        /// A number.
        a: Register,
        /// Where the result goes.
        out: Register,
        /// For integers.
        overflow: Overflow,
    },
    /// `out = a`, a float, with one zero and one NaN: functions may tell others apart.
    Canonical {
        /// A float.
        a: Register,
        /// Where the result goes.
        out: Register,
    },
    /// `out = a · 10^digits`, in [`Lane::I64`] or [`Lane::I128`]; for negative `digits` divided, half away from zero.
    Rescale {
        /// A decimal.
        a: Register,
        /// Digits to be added behind the point, or taken away.
        digits: i8,
        /// Where the result goes.
        out: Register,
        /// If digits are added.
        overflow: Overflow,
    },
    /// An error if the decimal `a` ([`Lane::I64`] or [`Lane::I128`]) has more than `digits` digits.
    Digits {
        /// A decimal.
        a: Register,
        /// Most digits that it may have.
        digits: u8,
    },
    /// `out = a op b`, both of one lane, `out` of [`Lane::Bool`].
    Compare {
        /// Which.
        op: Comparison,
        /// On the left.
        a: Operand,
        /// On the right.
        b: Operand,
        /// Where the truth goes.
        out: Register,
    },
    /// `out = a AND b`: false if either is, else null if either is.
    And {
        /// A truth value.
        a: Register,
        /// Another.
        b: Register,
        /// Where the result goes.
        out: Register,
    },
    /// `out = a OR b`: true if either is, else null if either is.
    Or {
        /// A truth value.
        a: Register,
        /// Another.
        b: Register,
        /// Where the result goes.
        out: Register,
    },
    /// `out = NOT a`
    Not {
        /// A truth value.
        a: Register,
        /// Where the result goes.
        out: Register,
    },
    /// `out` is whether `a` is null, and never null itself.
    IsNull {
        /// Of any lane.
        a: Register,
        /// IS NOT NULL.
        negated: bool,
        /// Where the truth goes.
        out: Register,
    },
    /// `out` is `a` in the lane of `out`. Numbers, and [`Lane::Bool`] to and from them; floats lose what is behind the
    /// point toward zero, integers become the nearest float.
    Cast {
        /// What is cast.
        a: Register,
        /// Where the result goes.
        out: Register,
        /// If it has no place there, NaN in an integer included.
        failure: CastFailure,
    },
    /// `out = a LIKE pattern`
    Like {
        /// Text.
        a: Register,
        /// Prepared once.
        pattern: Arc<crate::kernels::like::Pattern>,
        /// NOT LIKE.
        negated: bool,
        /// Where the truth goes.
        out: Register,
    },
    /// `out = a IN (values)`; null where `a` is null, or `has_null` and it is none of the values.
    In {
        /// Of any lane.
        a: Register,
        /// Prepared once, of the same lane.
        values: Arc<crate::kernels::in_set::Set>,
        /// NULL is among the values.
        has_null: bool,
        /// NOT IN.
        negated: bool,
        /// Where the truth goes.
        out: Register,
    },
    /// `out` is the piece of the text `a` from character `start`, counted from 1, of at most `length` characters. As
    /// SQL's SUBSTRING: positions before the first one count, and hold nothing.
    Substring {
        /// Text in UTF-8.
        a: Register,
        /// The first character.
        start: i64,
        /// How many; to the end if not given.
        length: Option<u64>,
        /// Where the piece goes.
        out: Register,
    },
    /// `out` is the length of the text `a`: of [`Lane::I32`] in characters, of [`Lane::I64`] in bytes.
    Length {
        /// Text in UTF-8; any bytes, if those are counted.
        a: Register,
        /// What is counted.
        unit: LengthUnit,
        /// Where the length goes.
        out: Register,
    },
    /// `out`, of [`Lane::I32`], is a part of a date or timestamp.
    Extract {
        /// A date or timestamp.
        a: Register,
        /// What it counts.
        unit: DateUnit,
        /// Which part.
        part: DatePart,
        /// Where the part goes.
        out: Register,
    },
    /// `out` is the same value for every tuple, null if there is none.
    Fill {
        /// Of the lane of `out`.
        value: Option<Constant>,
        /// Where it goes.
        out: Register,
    },
    /// `out = a` for the tuples that are selected; for others `out` keeps what it has. The only step that writes what
    /// another one has written.
    Assign {
        /// What is copied, of the lane of `out`.
        a: Operand,
        /// Where it goes.
        out: Register,
    },
    /// Only tuples for which `condition` is true stay selected: up to the end of the scope, or for good outside of any.
    Filter {
        /// A truth value.
        condition: Register,
    },
    /// Begins a scope, in which those tuples are selected for which `condition` is true, or is not.
    Begin {
        /// A truth value.
        condition: Register,
        /// True: those for which it is true; false: those for which it is false or null.
        when: bool,
    },
    /// Goes on with the tuples that were selected before the scope and were not at its beginning.
    Else,
    /// Ends the scope: the tuples that were selected before it are again.
    End,
    /// `out = function(inputs)`: whatever has no step of its own.
    Call {
        /// Which.
        function: Arc<dyn Function>,
        /// What it is given.
        inputs: Vec<Register>,
        /// Where the result goes.
        out: Register,
    },
    /// `out`, of [`Lane::U64`], is a hash of the keys. Nulls are hashed as a value of their own, -0.0 as 0.0, every NaN
    /// as one; values that compare equal hash equal if they are of one lane.
    Hash {
        /// Of any lanes.
        keys: Vec<Register>,
        /// Where the hash goes.
        out: Register,
    },
    /// Only tuples stay selected that may have a match on the build side of a join, as far as its filter knows: fewer
    /// rows have to be looked up. It may let all through, and does so while there is no filter.
    MayMatch {
        /// The filter's keys, in its order and of the lanes that the join hashes.
        keys: Vec<Register>,
        /// Where their hash goes, of [`Lane::U64`]; nothing can be said of it afterwards.
        hash: Register,
        /// What is asked.
        filter: Arc<crate::join::Asked>,
    },
    /// Makes any number of tuples of each: the probe of a join. The steps after it run once for each batch of them.
    /// Outside of any scope.
    Expand(Arc<dyn Expand>),
    /// `out` is a field of the materialized tuples at the addresses in `tuples`; null where the address is 0.
    Load {
        /// Addresses, of [`Lane::U64`], valid as long as the tuples at hand are.
        tuples: Register,
        /// How tuples lie there.
        layout: Arc<crate::tuple::Layout>,
        /// Which field.
        field: usize,
        /// Where the values go.
        out: Register,
    },
}

/// A scalar function over Arrow arrays, for what has no step.
pub trait Function: fmt::Debug + Send + Sync {
    /// What EXPLAIN calls it.
    fn name(&self) -> &str;

    /// The types of the arrays that it wants.
    fn input_types(&self) -> &[DataType];

    /// The type of what it gives.
    fn output_type(&self) -> &DataType;

    /// Its value for each of `rows` rows, which may be some of a vector's, and on any thread: what takes long is called for a few
    /// rows at a time, or apart. It computes, and waits for nothing: how long it takes goes by the thread's processor time.
    ///
    /// # Errors
    /// What is wrong with a row; [`crate::ExecError::Function`] for whatever is not this crate's.
    fn call(&self, inputs: &[ArrayRef], rows: usize) -> Result<ArrayRef>;
}

/// Most registers of a program.
pub const REGISTERS_MAX: usize = 1 << 16;

/// Steps, and the registers that they need.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The lane of each register.
    pub registers: Vec<Lane>,
    /// Where the columns of the source go.
    pub inputs: Vec<Register>,
    /// What is done.
    pub steps: Vec<Step>,
}

impl Program {
    /// A new register. A program with more than [`REGISTERS_MAX`] has no numbers for all of them, and is not to be run:
    /// see [`Program::is_too_large`].
    pub fn register(&mut self, lane: Lane) -> Register {
        let number = u16::try_from(self.registers.len()).unwrap_or(u16::MAX);
        self.registers.push(lane);
        Register(number)
    }

    /// True if the program has more registers than can be told apart.
    pub fn is_too_large(&self) -> bool {
        self.registers.len() > REGISTERS_MAX
    }

    /// Says to the steps that want to know it that a pipeline has them.
    pub(crate) fn announce(&self) {
        for step in &self.steps {
            if let Step::Expand(expand) = step {
                expand.announce();
            }
        }
    }

    /// A new register for the next column of the source.
    pub fn input(&mut self, lane: Lane) -> Register {
        let register = self.register(lane);
        self.inputs.push(register);
        register
    }

    /// The lane of an operand.
    pub fn lane(&self, operand: &Operand) -> Lane {
        match operand {
            Operand::Register(register) => self.registers[register.index()],
            Operand::Constant(constant) => constant.lane(),
        }
    }
}
