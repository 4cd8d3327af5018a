//! Comparing the keys of candidate pairs, a key of all pairs after the other.
//!
//! Pairs are few when this is reached: their hashes, or tags of hashes, are equal. So the loops copy every pair to where
//! the next one that is equal goes, and have no branch.

use super::lookup::Pairs;
use super::{Key, Nulls};
use crate::lane::{Bool, Lane, Value};
use crate::selection::Selected;
use crate::text::Str;
use crate::tuple::Field;
use crate::vector::Vector;

/// A value that may be a key.
pub(crate) trait KeyValue: Value {
    /// True if both are the same key: as [`Comparison`](crate::program::Comparison) has it.
    fn same(self, other: Self) -> bool;
}

macro_rules! exact {
    ($($value:ty),*) => {
        $(impl KeyValue for $value {
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                self == other
            }
        })*
    };
}

exact!(Bool, i8, i16, i32, i64, u8, u16, u32, u64, i128);

macro_rules! float {
    ($($value:ty),*) => {
        $(impl KeyValue for $value {
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                // -0.0 is 0.0, and NaN itself.
                self == other || self.is_nan() & other.is_nan()
            }
        })*
    };
}

float!(f32, f64);

/// Of the views' heads only.
impl KeyValue for Str {
    #[inline(always)]
    fn same(self, other: Self) -> bool {
        self.head() == other.head()
    }
}

/// Evaluates an expression with a type name bound to the type that a key has in registers, and another name to a function that reads it
/// from the tuple at an address. That of a string is not unpacked.
macro_rules! for_key {
    ($field:expr, $value:ident, $read:ident => $body:expr) => {
        if $field.lane == $field.register_lane {
            $crate::for_lane!($field.lane, $value => {
                let $read = |tuple: u64| $crate::join::keys::value::<$value>(tuple, $field);
                $body
            })
        } else {
            $crate::lane::for_narrow!($field.register_lane, $field.lane, $value, Stored => {
                let $read = |tuple: u64| $value::from($crate::join::keys::value::<Stored>(tuple, $field));
                $body
            })
        }
    };
}

pub(super) use for_key;

/// The value of a field as it lies in the tuple. That of a string is not unpacked.
///
/// # Safety
/// A tuple with that field lies at `tuple`.
#[inline(always)]
pub(crate) unsafe fn value<T: Value>(tuple: u64, field: &Field) -> T {
    // SAFETY: as the caller promises.
    unsafe { (tuple as *const u8).add(field.offset).cast::<T>().read_unaligned() }
}

/// True if a field is null.
///
/// # Safety
/// A tuple with that field lies at `tuple`.
#[inline(always)]
pub(crate) unsafe fn is_null(tuple: u64, field: &Field) -> bool {
    // SAFETY: as the caller promises.
    field
        .null_place()
        .is_some_and(|(byte, bit)| unsafe { (tuple as *const u8).add(byte).read() } & bit != 0)
}

/// Keeps the pairs whose key is the same: that of the row in `vector`, that of the tuple in `field`.
///
/// # Safety
/// All tuples of `pairs` have that field, strings of the vector are alive, and but for keys whose nulls are equal, neither
/// side is null.
pub(crate) unsafe fn retain_same(pairs: &mut Pairs, vector: &Vector, field: &Field, nulls: Nulls) {
    let may_be_null =
        nulls == Nulls::Equal && (vector.validity.has_nulls() || field.null_bit.is_some());
    // SAFETY: as the caller promises.
    unsafe {
        for_key!(field, T, key_of => {
            let values = vector.values::<T>();
            if may_be_null {
                pairs.retain(|row, tuple| {
                    match (vector.validity.is_valid(row), is_null(tuple, field)) {
                        (true, false) => values[row].same(key_of(tuple)),
                        (is_valid, is_null) => is_valid != is_null,
                    }
                });
            } else {
                pairs.retain(|row, tuple| values[row].same(key_of(tuple)));
            }
        });
        if field.lane == Lane::Str {
            let texts = vector.values::<Str>();
            pairs.retain(|row, tuple| {
                let is_compared = !may_be_null || vector.validity.is_valid(row);
                !is_compared || same_text(texts[row], tuple, field)
            });
        }
    }
}

/// # Safety
/// As [`retain_same`], for one pair.
#[inline(always)]
unsafe fn same_text(text: Str, tuple: u64, field: &Field) -> bool {
    // SAFETY: as the caller promises; a tuple's strings are alive as the tuple is.
    unsafe { text.equals(&value::<Str>(tuple, field).unpacked(tuple as *const u8)) }
}

/// What comparing a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    Same,
    Different,
    Unknown,
}

/// Compares a key of one row and one tuple, with nulls as SQL has them.
///
/// # Safety
/// The tuple has the key's field, and strings of the vector are alive.
pub(crate) unsafe fn compare(
    vector: &Vector,
    row: usize,
    tuple: u64,
    field: &Field,
    key: &Key,
) -> Truth {
    // SAFETY: as the caller promises.
    unsafe {
        let is_same = match (vector.validity.is_valid(row), is_null(tuple, field), key.nulls) {
            (true, false, _) => {
                for_key!(field, T, key_of => {
                    vector.values::<T>()[row].same(key_of(tuple))
                }) && (field.lane != Lane::Str
                    || same_text(vector.values::<Str>()[row], tuple, field))
            }
            (is_valid, is_null, Nulls::Equal) => is_valid != is_null,
            (_, _, Nulls::Unknown) => return Truth::Unknown,
            (_, _, Nulls::Never) => false,
        };
        if is_same { Truth::Same } else { Truth::Different }
    }
}

/// Adds up for which rows a key is null, so that it matches nothing.
pub(crate) fn has_null(vectors: &[&Vector], keys: &[Key]) -> bool {
    keys.iter()
        .zip(vectors)
        .any(|(key, vector)| key.nulls != Nulls::Equal && vector.validity.has_nulls())
}

/// True if the row can match: none of its keys is null where that matches nothing.
pub(crate) fn can_match(vectors: &[&Vector], keys: &[Key], row: usize) -> bool {
    keys.iter()
        .zip(vectors)
        .all(|(key, vector)| key.nulls == Nulls::Equal || vector.validity.is_valid(row))
}

/// The rows that count, as they were.
pub(crate) fn rows(selected: Selected<'_>) -> impl Iterator<Item = usize> {
    let (all, some) = match selected {
        Selected::All(rows) => (0..rows, &[][..]),
        Selected::Some(rows) => (0..0, rows),
    };
    all.chain(some.iter().map(|row| usize::from(*row)))
}
