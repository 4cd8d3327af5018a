//! Terms: what is known of an expression's value for each tuple, and where it is.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use weft_exec::Lane;
use weft_exec::program::{CastFailure, Constant, Operand, Program, Register, Step};
use weft_exec::tuple::Storage;

use super::bounds::Bounds;

/// The value of an expression: of a column, or of something computed.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) place: Place,
    /// Its type in SQL. A decimal may lie in fewer bits than its digits ask for.
    pub(super) data_type: DataType,
    pub(super) lane: Lane,
    pub(super) is_nullable: bool,
    /// Of whole numbers, decimals included.
    pub(super) bounds: Option<Bounds>,
    /// Of strings: few of them are different, as statistics say.
    pub(super) has_few: bool,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    Register(Register),
    /// The same value for all tuples.
    Constant(Constant),
    /// Null for all tuples.
    Null,
}

impl Term {
    /// A value in a register of `lane`, of which no more is known than its type.
    pub(super) fn new(
        register: Register,
        lane: Lane,
        data_type: &DataType,
        is_nullable: bool,
    ) -> Term {
        Term {
            place: Place::Register(register),
            data_type: data_type.clone(),
            lane,
            is_nullable,
            bounds: Bounds::of_type(data_type).filter(|bounds| bounds.fit(lane)),
            has_few: false,
        }
    }

    /// Null.
    pub(super) fn null(data_type: &DataType) -> Term {
        Term {
            place: Place::Null,
            data_type: data_type.clone(),
            lane: Lane::of(data_type),
            is_nullable: true,
            bounds: None,
            has_few: false,
        }
    }

    /// A truth value that is the same for all tuples.
    pub(super) fn truth(value: bool) -> Term {
        Term {
            place: Place::Constant(Constant::Bool(value)),
            data_type: DataType::Boolean,
            lane: Lane::Bool,
            is_nullable: false,
            bounds: None,
            has_few: false,
        }
    }

    /// A literal; `None` if values of its type cannot be constants of a program.
    pub(super) fn literal(value: &ScalarValue) -> Option<Term> {
        let data_type = value.data_type();
        if value.is_null() {
            return Some(Term::null(&data_type));
        }
        let constant = constant(value)?;
        Some(Term {
            lane: constant.lane(),
            bounds: constant.integer().map(Bounds::of),
            place: Place::Constant(constant),
            data_type,
            is_nullable: false,
            has_few: false,
        })
    }

    /// How values of the term, in its register, may lie in tuples.
    pub(super) fn storage(&self) -> Storage {
        let narrower = |bounds: Bounds| {
            let lanes = Lane::ALL.into_iter().filter(|narrow| narrow.widens_to(self.lane));
            lanes.filter(|narrow| bounds.fit(*narrow)).min_by_key(|narrow| narrow.width())
        };
        match self.bounds.and_then(narrower) {
            Some(narrow) => Storage::Narrow(narrow),
            None if self.has_few && self.lane == Lane::Str => Storage::Coded,
            None => Storage::Whole,
        }
    }

    /// The same value somewhere else.
    pub(super) fn moved(&self, register: Register) -> Term {
        Term { place: Place::Register(register), ..self.clone() }
    }
}

/// A value that is not null, of a type that has constants.
fn constant(value: &ScalarValue) -> Option<Constant> {
    let text = |value: &[u8]| Constant::Str(value.into());
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Constant::Bool(*value),
        ScalarValue::Int8(Some(value)) => Constant::I8(*value),
        ScalarValue::Int16(Some(value)) => Constant::I16(*value),
        ScalarValue::Int32(Some(value))
        | ScalarValue::Date32(Some(value))
        | ScalarValue::Time32Second(Some(value))
        | ScalarValue::Time32Millisecond(Some(value)) => Constant::I32(*value),
        ScalarValue::Int64(Some(value))
        | ScalarValue::Date64(Some(value))
        | ScalarValue::Time64Microsecond(Some(value))
        | ScalarValue::Time64Nanosecond(Some(value))
        | ScalarValue::TimestampSecond(Some(value), _)
        | ScalarValue::TimestampMillisecond(Some(value), _)
        | ScalarValue::TimestampMicrosecond(Some(value), _)
        | ScalarValue::TimestampNanosecond(Some(value), _)
        | ScalarValue::DurationSecond(Some(value))
        | ScalarValue::DurationMillisecond(Some(value))
        | ScalarValue::DurationMicrosecond(Some(value))
        | ScalarValue::DurationNanosecond(Some(value)) => Constant::I64(*value),
        ScalarValue::UInt8(Some(value)) => Constant::U8(*value),
        ScalarValue::UInt16(Some(value)) => Constant::U16(*value),
        ScalarValue::UInt32(Some(value)) => Constant::U32(*value),
        ScalarValue::UInt64(Some(value)) => Constant::U64(*value),
        ScalarValue::Decimal128(Some(value), ..) => match i64::try_from(*value) {
            Ok(value) => Constant::I64(value),
            Err(_) => Constant::I128(*value),
        },
        ScalarValue::Float32(Some(value)) => Constant::F32(*value),
        ScalarValue::Float64(Some(value)) => Constant::F64(*value),
        ScalarValue::Utf8(Some(value))
        | ScalarValue::LargeUtf8(Some(value))
        | ScalarValue::Utf8View(Some(value)) => text(value.as_bytes()),
        ScalarValue::Binary(Some(value))
        | ScalarValue::LargeBinary(Some(value))
        | ScalarValue::BinaryView(Some(value))
        | ScalarValue::FixedSizeBinary(_, Some(value)) => text(value),
        ScalarValue::Dictionary(_, value) => return constant(value),
        _ => return None,
    })
}

/// A term as what a step reads, in a register if it is null.
pub(super) fn operand(program: &mut Program, term: &Term) -> Operand {
    match &term.place {
        Place::Constant(constant) => Operand::Constant(constant.clone()),
        _ => Operand::Register(in_register(program, term)),
    }
}

/// The register that has a term, which is filled if need be.
pub(super) fn in_register(program: &mut Program, term: &Term) -> Register {
    let value = match &term.place {
        Place::Register(register) => return *register,
        Place::Constant(constant) => Some(constant.clone()),
        Place::Null => None,
    };
    let out = program.register(term.lane);
    program.steps.push(Step::Fill { value, out });
    out
}

/// The same number in `lane`, which holds it: a decimal of 64 bits in 128, or an integer or decimal in a lane that its
/// bounds fit into.
pub(super) fn in_lane(program: &mut Program, term: Term, lane: Lane) -> Term {
    if term.lane == lane {
        return term;
    }
    let place = match &term.place {
        Place::Null => Place::Null,
        Place::Constant(constant) => {
            let number = constant.integer().and_then(|number| Constant::of_integer(number, lane));
            Place::Constant(number.expect("a number that the lane holds"))
        }
        Place::Register(a) => {
            let (a, out) = (*a, program.register(lane));
            program.steps.push(Step::Cast { a, out, failure: CastFailure::Error });
            Place::Register(out)
        }
    };
    Term { place, lane, ..term }
}

/// Two terms of one type in one lane: only decimals of one type have different ones.
pub(super) fn in_one_lane(program: &mut Program, left: Term, right: Term) -> (Term, Term) {
    if left.lane == right.lane {
        return (left, right);
    }
    let wide = Lane::I128;
    (in_lane(program, left, wide), in_lane(program, right, wide))
}

/// The one lane for terms of one type.
pub(super) fn common_lane(lanes: impl IntoIterator<Item = Lane>) -> Option<Lane> {
    let mut lanes = lanes.into_iter();
    let first = lanes.next()?;
    Some(if lanes.all(|lane| lane == first) { first } else { Lane::I128 })
}
