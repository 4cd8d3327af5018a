//! Predicates on one column: what a scan may ask of a zone before it reads, and of a block without
//! decoding it. A null satisfies none but [`Predicate::IsNull`].

use std::cmp::Ordering;

use crate::scalar::Scalar;
use crate::zone::Zone;

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `=`
    Eq,
    /// `<>`
    NotEq,
    /// `<`
    Lt,
    /// `<=`
    LtEq,
    /// `>`
    Gt,
    /// `>=`
    GtEq,
}

/// A condition on the values of one column. The order of values is that of [`Scalar::compare`]; a
/// scalar has the type of the column, where any integer stands for itself in any column of integers.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// The value is so compared with the one given; no value is with [`Scalar::Null`].
    Compare(Op, Scalar),
    /// The value equals one of these; nulls among them equal nothing.
    In(Vec<Scalar>),
    /// There is no value.
    IsNull,
    /// There is a value.
    IsNotNull,
    /// The string or binary begins with these bytes.
    StartsWith(Vec<u8>),
}

impl Op {
    /// Whether a value that lies so to the other satisfies the comparison.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::NotEq => order.is_ne(),
            Self::Lt => order.is_lt(),
            Self::LtEq => order.is_le(),
            Self::Gt => order.is_gt(),
            Self::GtEq => order.is_ge(),
        }
    }
}

/// How a bound lies to a value: nothing if there is no bound, or no order.
fn order(bound: &Option<Scalar>, value: &Scalar) -> Option<Ordering> {
    bound.as_ref()?.compare(value)
}

/// Whether a value within the zone may equal `value`.
fn may_equal(zone: &Zone, value: &Scalar) -> bool {
    *value != Scalar::Null
        && order(&zone.min, value).is_none_or(Ordering::is_le)
        && order(&zone.max, value).is_none_or(Ordering::is_ge)
}

/// Whether all values of the zone equal `value`.
fn all_equal(zone: &Zone, value: &Scalar) -> bool {
    let equal = |bound| order(bound, value) == Some(Ordering::Equal);
    zone.exact && equal(&zone.min) && equal(&zone.max)
}

impl Predicate {
    /// Whether any of `rows` rows with this zone may satisfy the predicate; false only if none does.
    pub fn may_match(&self, zone: &Zone, rows: u64) -> bool {
        if let Self::IsNull = self {
            return zone.null_count > 0;
        }
        if zone.null_count >= rows {
            return false;
        }
        match self {
            Self::IsNull | Self::IsNotNull => true,
            Self::In(values) => values.iter().any(|value| may_equal(zone, value)),
            Self::StartsWith(prefix) => {
                let least = match &zone.min {
                    Some(Scalar::Bytes(min)) => min[..min.len().min(prefix.len())] <= prefix[..],
                    _ => true,
                };
                least && !matches!(&zone.max, Some(Scalar::Bytes(max)) if max < prefix)
            }
            Self::Compare(_, Scalar::Null) => false,
            Self::Compare(op, value) => match op {
                Op::Eq => may_equal(zone, value),
                Op::NotEq => !all_equal(zone, value),
                Op::Lt | Op::LtEq => order(&zone.min, value).is_none_or(|order| op.holds(order)),
                Op::Gt | Op::GtEq => order(&zone.max, value).is_none_or(|order| op.holds(order)),
            },
        }
    }

    /// Whether all of `rows` rows with this zone surely satisfy the predicate, so that it need not be
    /// evaluated.
    pub fn must_match(&self, zone: &Zone, rows: u64) -> bool {
        if let Self::IsNull = self {
            return zone.null_count >= rows;
        }
        if zone.null_count > 0 {
            return false;
        }
        match self {
            Self::IsNull => false,
            Self::IsNotNull => true,
            Self::In(values) => values.iter().any(|value| all_equal(zone, value)),
            Self::StartsWith(prefix) => [&zone.min, &zone.max].into_iter().all(
                |bound| matches!(bound, Some(Scalar::Bytes(bytes)) if bytes.starts_with(prefix)),
            ),
            Self::Compare(op, value) => {
                let min = order(&zone.min, value);
                let max = order(&zone.max, value);
                match op {
                    Op::Eq => all_equal(zone, value),
                    Op::NotEq => {
                        min.is_some_and(Ordering::is_gt) || max.is_some_and(Ordering::is_lt)
                    }
                    Op::Lt | Op::LtEq => max.is_some_and(|order| op.holds(order)),
                    Op::Gt | Op::GtEq => min.is_some_and(|order| op.holds(order)),
                }
            }
        }
    }
}
