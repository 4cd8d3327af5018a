//! Bounds of integers and decimals: what lets a program compute in 64 bits without asking whether a result fits.
//!
//! They come from types and from the zones of tables, and follow the arithmetic. A decimal counts as its digits without
//! the point.

use datafusion::arrow::datatypes::DataType;
use weft_exec::Lane;
use weft_store::{Scalar, Zone};

/// Digits of a decimal that are not known to be all: sums of decimals of so many may have more.
const DIGITS_MAX: u8 = 38;

/// No value is less or greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) low: i128,
    pub(super) high: i128,
}

impl Bounds {
    /// Those of one value.
    pub(super) fn of(value: i128) -> Bounds {
        Bounds { low: value, high: value }
    }

    /// Those of all values of a type; `None` if it is no type of whole numbers, or too large.
    pub(super) fn of_type(data_type: &DataType) -> Option<Bounds> {
        let (low, high) = match data_type {
            DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
            DataType::UInt8 => (0, u8::MAX.into()),
            DataType::UInt16 => (0, u16::MAX.into()),
            DataType::UInt32 => (0, u32::MAX.into()),
            DataType::UInt64 => (0, u64::MAX.into()),
            DataType::Decimal128(digits, _) if *digits < DIGITS_MAX => {
                let end = 10i128.pow((*digits).into());
                (1 - end, end - 1)
            }
            _ => return None,
        };
        Some(Bounds { low, high })
    }

    /// Those of a column's zone.
    pub(super) fn of_zone(zone: &Zone) -> Option<Bounds> {
        let number = |value: &Scalar| match value {
            Scalar::Int(value) => Some(i128::from(*value)),
            Scalar::UInt(value) => Some(i128::from(*value)),
            Scalar::Int128(value) => Some(*value),
            _ => None,
        };
        Some(Bounds { low: number(zone.min.as_ref()?)?, high: number(zone.max.as_ref()?)? })
    }

    /// True if all values fit into a lane of integers.
    pub(super) fn fit(self, lane: Lane) -> bool {
        let (low, high): (i128, i128) = match lane {
            Lane::I8 => (i8::MIN.into(), i8::MAX.into()),
            Lane::I16 => (i16::MIN.into(), i16::MAX.into()),
            Lane::I32 => (i32::MIN.into(), i32::MAX.into()),
            Lane::I64 => (i64::MIN.into(), i64::MAX.into()),
            Lane::U8 => (0, u8::MAX.into()),
            Lane::U16 => (0, u16::MAX.into()),
            Lane::U32 => (0, u32::MAX.into()),
            Lane::U64 => (0, u64::MAX.into()),
            Lane::I128 => return true,
            _ => return false,
        };
        low <= self.low && self.high <= high
    }

    /// Those of a + b; `None` if they have no place in 128 bits.
    pub(super) fn add(self, other: Bounds) -> Option<Bounds> {
        let (low, high) = (self.low.checked_add(other.low)?, self.high.checked_add(other.high)?);
        Some(Bounds { low, high })
    }

    /// Those of a - b.
    pub(super) fn subtract(self, other: Bounds) -> Option<Bounds> {
        let (low, high) = (self.low.checked_sub(other.high)?, self.high.checked_sub(other.low)?);
        Some(Bounds { low, high })
    }

    /// Those of a · b.
    pub(super) fn multiply(self, other: Bounds) -> Option<Bounds> {
        let (mut low, mut high) = (i128::MAX, i128::MIN);
        for a in [self.low, self.high] {
            for b in [other.low, other.high] {
                let product = a.checked_mul(b)?;
                (low, high) = (low.min(product), high.max(product));
            }
        }
        Some(Bounds { low, high })
    }

    /// Those of the values with so many digits more, or fewer, rounded.
    pub(super) fn rescale(self, digits: i8) -> Option<Bounds> {
        let power = 10i128.checked_pow(digits.unsigned_abs().into())?;
        if digits >= 0 {
            return self.multiply(Bounds::of(power));
        }
        Some(Bounds { low: self.low / power - 1, high: self.high / power + 1 })
    }

    /// Those of values that have these bounds or the others.
    pub(super) fn join(self, other: Bounds) -> Bounds {
        Bounds { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Those of values that have both.
    pub(super) fn meet(self, other: Bounds) -> Bounds {
        Bounds { low: self.low.max(other.low), high: self.high.min(other.high) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_arithmetic() {
        let bounds = |low, high| Bounds { low, high };
        assert_eq!(bounds(-2, 3).add(bounds(1, 4)), Some(bounds(-1, 7)));
        assert_eq!(bounds(-2, 3).subtract(bounds(1, 4)), Some(bounds(-6, 2)));
        assert_eq!(bounds(-2, 3).multiply(bounds(-5, 4)), Some(bounds(-15, 12)));
        assert_eq!(bounds(0, i128::MAX).add(Bounds::of(1)), None);
        assert_eq!(bounds(-15, 25).rescale(1), Some(bounds(-150, 250)));
        // Half away from zero: -15 becomes -2, 25 becomes 3.
        assert_eq!(bounds(-15, 25).rescale(-1), Some(bounds(-2, 3)));
    }

    #[test]
    fn types_have_bounds() {
        let decimal = |digits| Bounds::of_type(&DataType::Decimal128(digits, 2));
        assert!(decimal(18).unwrap().fit(Lane::I64) && !decimal(19).unwrap().fit(Lane::I64));
        assert_eq!(decimal(38), None);
        assert!(Bounds::of_type(&DataType::UInt64).unwrap().fit(Lane::U64));
        assert_eq!(Bounds::of_type(&DataType::Float64), None);
    }
}
