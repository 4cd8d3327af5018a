//! Predicates on blocks: a bit per row, without decoding what need not be.

use arrow_buffer::BooleanBuffer;

use crate::block::Block;
use crate::condition::{self, Condition, Numbers};
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::physical::Physical;
use crate::predicate::Predicate;
use crate::scalar::{Scalar, one_zero32, one_zero64};
use crate::text::Text;
use crate::{bools, floats, ints, strings, wide};

impl Block<'_> {
    /// A bit per row that says whether it satisfies `predicate`; nulls satisfy none but
    /// [`Predicate::IsNull`]. Constants, dictionaries and runs are tested once per distinct value or run,
    /// packed integers not at all where the bounds of 1,024 of them tell; the rest is decoded.
    ///
    /// # Errors
    /// [`Error::WrongPredicate`] if the predicate is not one on values of this type (intervals, lists and
    /// structs have none but those on nulls); [`Error::Truncated`]
    /// or [`Error::Damaged`] if the bytes are not what an encoder wrote.
    pub fn filter(&self, predicate: &Predicate) -> Result<BooleanBuffer> {
        let rows = self.rows();
        let validity = self.validity().map(|node| bools::decode(node, rows)).transpose()?;
        let satisfied = match predicate {
            Predicate::IsNull if self.physical() == Physical::Null => {
                return Ok(condition::all(true, rows));
            }
            Predicate::IsNull => {
                return Ok(validity.map_or_else(|| condition::all(false, rows), |valid| !&valid));
            }
            _ if self.physical() == Physical::Null => condition::all(false, rows),
            Predicate::IsNotNull => condition::all(true, rows),
            Predicate::Compare(_, Scalar::Null) => condition::all(false, rows),
            _ => self.satisfied(predicate)?,
        };
        Ok(match validity {
            Some(valid) => &valid & &satisfied,
            None => satisfied,
        })
    }

    /// A bit per row that says whether it satisfies all of `predicates`, as [`Block::filter`] does for one. Bounds of integers
    /// are one range: values are unpacked and compared once for all of them.
    ///
    /// # Errors
    /// As [`Block::filter`].
    pub fn filter_all(&self, predicates: &[&Predicate]) -> Result<BooleanBuffer> {
        let Some((first, others)) = predicates.split_first() else {
            return Ok(condition::all(true, self.rows()));
        };
        let range = numbers(first).and_then(|first| {
            others.iter().try_fold(first, |range, predicate| range.and(&numbers(predicate)?))
        });
        if let Some(range) = range.filter(|_| !others.is_empty())
            && let Some(satisfied) = self.integers(&range)?
        {
            let Some(node) = self.validity() else { return Ok(satisfied) };
            return Ok(&bools::decode(node, self.rows())? & &satisfied);
        }
        let mut satisfied = self.filter(first)?;
        for predicate in others {
            if !satisfied.has_true() {
                break;
            }
            satisfied = &satisfied & &self.filter(predicate)?;
        }
        Ok(satisfied)
    }

    /// A bit per row, of any value for nulls; nothing if the values are no integers.
    fn integers(&self, numbers: &Numbers) -> Result<Option<BooleanBuffer>> {
        let (node, rows) = (self.node(), self.rows());
        Ok(Some(match self.physical() {
            Physical::Int8 => ints::filter::<u8>(node, rows, &numbers.lanes(true), 0)?,
            Physical::Int16 => ints::filter::<u16>(node, rows, &numbers.lanes(true), 0)?,
            Physical::Int32 => ints::filter::<u32>(node, rows, &numbers.lanes(true), 0)?,
            Physical::Int64 => ints::filter::<u64>(node, rows, &numbers.lanes(true), 0)?,
            Physical::UInt8 => ints::filter::<u8>(node, rows, &numbers.lanes(false), 0)?,
            Physical::UInt16 => ints::filter::<u16>(node, rows, &numbers.lanes(false), 0)?,
            Physical::UInt32 => ints::filter::<u32>(node, rows, &numbers.lanes(false), 0)?,
            Physical::UInt64 => ints::filter::<u64>(node, rows, &numbers.lanes(false), 0)?,
            Physical::Int128 => wide::filter(node, rows, numbers)?,
            _ => return Ok(None),
        }))
    }

    /// A bit per row, of any value for nulls.
    fn satisfied(&self, predicate: &Predicate) -> Result<BooleanBuffer> {
        let physical = self.physical();
        let (node, rows) = (self.node(), self.rows());
        let wrong = || Error::WrongPredicate { physical, predicate: format!("{predicate:?}") };
        match physical {
            Physical::Boolean => {
                booleans(node, rows, booleans_wanted(predicate).ok_or_else(wrong)?)
            }
            Physical::Float32 => {
                let bits = |value: &Scalar| match value {
                    Scalar::Float32(value) => Some(one_zero32(*value).to_bits()),
                    _ => None,
                };
                floats::filter::<f32>(node, rows, &reals(predicate, bits).ok_or_else(wrong)?)
            }
            Physical::Float64 => {
                let bits = |value: &Scalar| match value {
                    Scalar::Float64(value) => Some(one_zero64(*value).to_bits()),
                    _ => None,
                };
                floats::filter::<f64>(node, rows, &reals(predicate, bits).ok_or_else(wrong)?)
            }
            Physical::Utf8 | Physical::Binary => {
                strings::filter(node, rows, &text(predicate).ok_or_else(wrong)?, 0)
            }
            Physical::Interval | Physical::List | Physical::Struct | Physical::Null => Err(wrong()),
            _ => self.integers(&numbers(predicate).ok_or_else(wrong)?)?.ok_or_else(wrong),
        }
    }
}

/// All values that are not null, if each has the type that `read` reads.
fn all_of<'a, T>(values: &'a [Scalar], read: impl Fn(&'a Scalar) -> Option<T>) -> Option<Vec<T>> {
    values.iter().filter(|value| **value != Scalar::Null).map(read).collect()
}

/// Whether false and true satisfy a predicate on booleans.
fn booleans_wanted(predicate: &Predicate) -> Option<[bool; 2]> {
    let wanted = |value| match predicate {
        Predicate::Compare(op, Scalar::Boolean(other)) => Some(op.holds(bool::cmp(&value, other))),
        Predicate::In(values) => {
            let boolean = |scalar: &Scalar| match scalar {
                Scalar::Boolean(boolean) => Some(*boolean),
                _ => None,
            };
            Some(all_of(values, boolean)?.contains(&value))
        }
        _ => None,
    };
    Some([wanted(false)?, wanted(true)?])
}

fn booleans(node: &[u8], rows: usize, wanted: [bool; 2]) -> Result<BooleanBuffer> {
    Ok(match wanted {
        [false, true] => bools::decode(node, rows)?,
        [true, false] => !&bools::decode(node, rows)?,
        [any, _] => condition::all(any, rows),
    })
}

fn numbers(predicate: &Predicate) -> Option<Numbers> {
    match predicate {
        Predicate::Compare(op, value) => Some(Numbers::compare(*op, value.integer()?)),
        Predicate::In(values) => {
            let mut values = all_of(values, Scalar::integer)?;
            values.sort_unstable();
            Some(Numbers::Set(values))
        }
        _ => None,
    }
}

fn reals<T: Lane>(
    predicate: &Predicate,
    bits: impl Fn(&Scalar) -> Option<T>,
) -> Option<Condition<T>> {
    match predicate {
        Predicate::Compare(op, value) => Some(condition::floats(*op, bits(value)?)),
        Predicate::In(values) => {
            let mut lanes = all_of(values, bits)?;
            if lanes.contains(&T::zeroed()) {
                lanes.push(T::zeroed().flip_sign());
            }
            Some(Condition::lanes(lanes))
        }
        _ => None,
    }
}

fn text(predicate: &Predicate) -> Option<Text<'_>> {
    match predicate {
        Predicate::Compare(op, Scalar::Bytes(value)) => Some(Text::Compare(*op, value)),
        Predicate::In(values) => {
            let mut values = all_of(values, bytes)?;
            values.sort_unstable();
            Some(Text::Among(values))
        }
        Predicate::StartsWith(prefix) => Some(Text::Prefix(prefix)),
        _ => None,
    }
}

fn bytes(scalar: &Scalar) -> Option<&[u8]> {
    match scalar {
        Scalar::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}
