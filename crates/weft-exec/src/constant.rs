//! Constants: the values that steps have in themselves.

use std::sync::Arc;

use crate::lane::{Bool, Lane, Value};
use crate::text::Str;

/// A value that is not null.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// [`Lane::Bool`]
    Bool(bool),
    /// [`Lane::I8`]
    I8(i8),
    /// [`Lane::I16`]
    I16(i16),
    /// [`Lane::I32`]
    I32(i32),
    /// [`Lane::I64`]
    I64(i64),
    /// [`Lane::U8`]
    U8(u8),
    /// [`Lane::U16`]
    U16(u16),
    /// [`Lane::U32`]
    U32(u32),
    /// [`Lane::U64`]
    U64(u64),
    /// [`Lane::I128`]
    I128(i128),
    /// [`Lane::F32`]
    F32(f32),
    /// [`Lane::F64`]
    F64(f64),
    /// [`Lane::Str`]
    Str(Arc<[u8]>),
}

impl Constant {
    /// The lane of the value.
    pub fn lane(&self) -> Lane {
        match self {
            Constant::Bool(_) => Lane::Bool,
            Constant::I8(_) => Lane::I8,
            Constant::I16(_) => Lane::I16,
            Constant::I32(_) => Lane::I32,
            Constant::I64(_) => Lane::I64,
            Constant::U8(_) => Lane::U8,
            Constant::U16(_) => Lane::U16,
            Constant::U32(_) => Lane::U32,
            Constant::U64(_) => Lane::U64,
            Constant::I128(_) => Lane::I128,
            Constant::F32(_) => Lane::F32,
            Constant::F64(_) => Lane::F64,
            Constant::Str(_) => Lane::Str,
        }
    }

    /// The value.
    ///
    /// # Panics
    /// If it is of another lane.
    pub fn value<T: Value>(&self) -> T {
        assert_eq!(self.lane(), T::LANE, "a constant of another lane");
        match self {
            Constant::Bool(value) => bytemuck::cast(Bool::from(*value)),
            Constant::I8(value) => bytemuck::cast(*value),
            Constant::I16(value) => bytemuck::cast(*value),
            Constant::I32(value) => bytemuck::cast(*value),
            Constant::I64(value) => bytemuck::cast(*value),
            Constant::U8(value) => bytemuck::cast(*value),
            Constant::U16(value) => bytemuck::cast(*value),
            Constant::U32(value) => bytemuck::cast(*value),
            Constant::U64(value) => bytemuck::cast(*value),
            Constant::I128(value) => bytemuck::cast(*value),
            Constant::F32(value) => bytemuck::cast(*value),
            Constant::F64(value) => bytemuck::cast(*value),
            Constant::Str(value) => bytemuck::cast(Str::new(value)),
        }
    }

    /// The number, if it is an integer.
    pub fn integer(&self) -> Option<i128> {
        Some(match self {
            Constant::I8(value) => (*value).into(),
            Constant::I16(value) => (*value).into(),
            Constant::I32(value) => (*value).into(),
            Constant::I64(value) => (*value).into(),
            Constant::U8(value) => (*value).into(),
            Constant::U16(value) => (*value).into(),
            Constant::U32(value) => (*value).into(),
            Constant::U64(value) => (*value).into(),
            Constant::I128(value) => *value,
            Constant::Bool(_) | Constant::F32(_) | Constant::F64(_) | Constant::Str(_) => {
                return None;
            }
        })
    }

    /// An integer as a value of a lane; `None` if it does not fit, or the lane is not one of integers.
    pub fn of_integer(number: i128, lane: Lane) -> Option<Constant> {
        Some(match lane {
            Lane::I8 => Constant::I8(number.try_into().ok()?),
            Lane::I16 => Constant::I16(number.try_into().ok()?),
            Lane::I32 => Constant::I32(number.try_into().ok()?),
            Lane::I64 => Constant::I64(number.try_into().ok()?),
            Lane::U8 => Constant::U8(number.try_into().ok()?),
            Lane::U16 => Constant::U16(number.try_into().ok()?),
            Lane::U32 => Constant::U32(number.try_into().ok()?),
            Lane::U64 => Constant::U64(number.try_into().ok()?),
            Lane::I128 => Constant::I128(number),
            Lane::Bool | Lane::F32 | Lane::F64 | Lane::Str => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_fit_into_lanes_or_do_not() {
        for lane in Lane::ALL {
            let Some(one) = Constant::of_integer(1, lane) else {
                assert!(matches!(lane, Lane::Bool | Lane::F32 | Lane::F64 | Lane::Str), "{lane}");
                continue;
            };
            assert_eq!((one.lane(), one.integer()), (lane, Some(1)));
        }
        assert_eq!(Constant::of_integer(-1, Lane::U64), None);
        assert_eq!(Constant::of_integer(1 << 64, Lane::I64), None);
        assert_eq!(Constant::of_integer(-128, Lane::I8), Some(Constant::I8(-128)));
        assert_eq!(Constant::Bool(true).integer(), None);
    }
}
