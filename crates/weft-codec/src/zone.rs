//! Zones: the least and greatest value of some rows, by which a scan passes over them unread.

use std::cmp::Ordering;

use arrow_array::{Array, ArrowPrimitiveType, BooleanArray, cast::AsArray, types::*};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use crate::encode::{native, slices};
use crate::error::{Result, damaged};
use crate::physical::Physical;
use crate::reader::{Reader, put};
use crate::scalar::{Scalar, WHERE, one_zero32, one_zero64};
use crate::strings::head;

/// Longer strings are bounded by this many bytes of them.
const PREFIX_BYTES: usize = 32;

/// Bounds of the values of some rows, in the order of [`Scalar::compare`].
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// No value is less; nothing if there is no value, or none is known.
    pub min: Option<Scalar>,
    /// No value is greater; nothing if there is no value, or none is known.
    pub max: Option<Scalar>,
    /// Rows without a value.
    pub null_count: u64,
    /// Whether both bounds are values of the rows, and not bounds of long strings.
    pub exact: bool,
}

/// The zone of all rows of `array`: without bounds if its type has no order here (lists, structs,
/// intervals, and whatever [`Physical::of`] refuses).
pub fn zone(array: &dyn Array) -> Zone {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let bounds = match Physical::of(array.data_type()) {
        Ok(physical) if nulls.is_none_or(|nulls| nulls.null_count() < nulls.len()) => {
            bounds(array, physical, nulls)
        }
        _ => None,
    };
    let null_count = match array.data_type() {
        DataType::Null => array.len() as u64,
        _ => nulls.map_or(0, |nulls| nulls.null_count() as u64),
    };
    let Some((min, max)) = bounds else {
        return Zone { min: None, max: None, null_count, exact: false };
    };
    let long = |bound: &Scalar| matches!(bound, Scalar::Bytes(b) if b.len() > PREFIX_BYTES);
    let exact = !long(&min) && !long(&max);
    Zone { min: Some(lower(min)), max: upper(max), null_count, exact }
}

/// A long string's prefix, which is not greater.
fn lower(mut bound: Scalar) -> Scalar {
    if let Scalar::Bytes(bytes) = &mut bound {
        bytes.truncate(PREFIX_BYTES);
    }
    bound
}

/// A long string's prefix with its last byte counted up, which is greater; nothing is if all are 255.
fn upper(mut bound: Scalar) -> Option<Scalar> {
    if let Scalar::Bytes(bytes) = &mut bound
        && bytes.len() > PREFIX_BYTES
    {
        bytes.truncate(PREFIX_BYTES);
        while bytes.pop_if(|last| *last == u8::MAX).is_some() {}
        *bytes.last_mut()? += 1;
    }
    Some(bound)
}

fn bounds(
    array: &dyn Array,
    physical: Physical,
    nulls: Option<&NullBuffer>,
) -> Option<(Scalar, Scalar)> {
    macro_rules! integers {
        ($arrow:ty, $scalar:ident) => {{
            let (min, max) = extremes::<$arrow, _>(array, nulls, |value| value)?;
            (Scalar::$scalar(min.into()), Scalar::$scalar(max.into()))
        }};
    }
    Some(match physical {
        Physical::Boolean => {
            let array: &BooleanArray = array.as_boolean();
            let valid = array.len() - array.null_count();
            let set = array.true_count();
            (valid > 0).then_some((Scalar::Boolean(set == valid), Scalar::Boolean(set > 0)))?
        }
        Physical::Int8 => integers!(Int8Type, Int),
        Physical::Int16 => integers!(Int16Type, Int),
        Physical::Int32 => integers!(Int32Type, Int),
        Physical::Int64 => integers!(Int64Type, Int),
        Physical::UInt8 => integers!(UInt8Type, UInt),
        Physical::UInt16 => integers!(UInt16Type, UInt),
        Physical::UInt32 => integers!(UInt32Type, UInt),
        Physical::UInt64 => integers!(UInt64Type, UInt),
        Physical::Int128 => integers!(Decimal128Type, Int128),
        Physical::Float32 => {
            let key = |bits: i32| bits ^ ((bits >> 31) as u32 >> 1) as i32;
            let order = |value: f32| key(one_zero32(value).to_bits() as i32);
            let value = |order| Scalar::Float32(f32::from_bits(key(order) as u32));
            let (min, max) = extremes::<Float32Type, _>(array, nulls, order)?;
            (value(min), value(max))
        }
        Physical::Float64 => {
            let key = |bits: i64| bits ^ ((bits >> 63) as u64 >> 1) as i64;
            let order = |value: f64| key(one_zero64(value).to_bits() as i64);
            let value = |order| Scalar::Float64(f64::from_bits(key(order) as u64));
            let (min, max) = extremes::<Float64Type, _>(array, nulls, order)?;
            (value(min), value(max))
        }
        Physical::Utf8 | Physical::Binary => string_bounds(&slices(array, None), nulls)?,
        Physical::Interval | Physical::List | Physical::Struct | Physical::Null => return None,
    })
}

/// The least and the greatest key of the valid values.
fn extremes<T: ArrowPrimitiveType, K: Copy + Ord>(
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    key: impl Fn(T::Native) -> K,
) -> Option<(K, K)> {
    let values = native::<T>(array);
    let widen = |(min, max): (K, K), value| (min.min(value), max.max(value));
    match nulls {
        None => {
            let first = key(*values.first()?);
            Some(values.iter().map(|&value| key(value)).fold((first, first), widen))
        }
        Some(nulls) => {
            let mut valid = nulls.valid_indices().map(|row| key(values[row]));
            let first = valid.next()?;
            Some(valid.fold((first, first), widen))
        }
    }
}

fn string_bounds(strings: &[&[u8]], nulls: Option<&NullBuffer>) -> Option<(Scalar, Scalar)> {
    let valid = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
    let mut rows = (0..strings.len()).filter(valid);
    let first = strings[rows.next()?];
    let (mut min, mut max) = ((head(first), first), (head(first), first));
    for row in rows {
        let string = (head(strings[row]), strings[row]);
        min = min.min(string);
        max = max.max(string);
    }
    Some((Scalar::Bytes(min.1.to_vec()), Scalar::Bytes(max.1.to_vec())))
}

impl Zone {
    /// Widens the zone to the rows of `other`, too; `rows` and `other_rows` say how many each has.
    pub fn merge(&mut self, rows: u64, other: &Self, other_rows: u64) {
        let empty = |zone: &Self, rows| zone.null_count == rows;
        if empty(self, rows) {
            let null_count = self.null_count + other.null_count;
            *self = Self { null_count, ..other.clone() };
            return;
        }
        self.null_count += other.null_count;
        if empty(other, other_rows) {
            return;
        }
        self.exact &= other.exact;
        self.min = wider(self.min.take(), &other.min, Ordering::Less);
        self.max = wider(self.max.take(), &other.max, Ordering::Greater);
    }

    /// Appends the zone as bytes that [`Zone::read`] understands.
    pub fn write(&self, out: &mut Vec<u8>) {
        let flag = |flag, bit: u8| u8::from(flag) << bit;
        out.push(flag(self.min.is_some(), 0) | flag(self.max.is_some(), 1) | flag(self.exact, 2));
        put(out, self.null_count);
        self.min.iter().chain(&self.max).for_each(|bound| bound.write(out));
    }

    /// Reads a zone from the front of `bytes`, and leaves what follows.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`] or [`crate::Error::Damaged`] if no [`Zone::write`] wrote these bytes.
    pub fn read(bytes: &mut &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, WHERE);
        let flags: u8 = reader.value()?;
        if flags > 7 {
            return Err(damaged(WHERE, format!("flags {flags} of a zone")));
        }
        let null_count = reader.value()?;
        let mut bound = |bit: u8| {
            let known = flags >> bit & 1 == 1;
            known.then(|| Scalar::read_from(&mut reader, 0)).transpose()
        };
        let (min, max) = (bound(0)?, bound(1)?);
        *bytes = reader.rest();
        Ok(Self { min, max, null_count, exact: flags & 4 != 0 })
    }
}

/// The bound of two that lies further out; nothing if either is not known or they have no order.
fn wider(bound: Option<Scalar>, other: &Option<Scalar>, out: Ordering) -> Option<Scalar> {
    let (bound, other) = (bound?, other.as_ref()?);
    let order = other.compare(&bound)?;
    Some(if order == out { other.clone() } else { bound })
}
