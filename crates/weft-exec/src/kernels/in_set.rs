//! IN: whether a value is one of many.
//!
//! The values are prepared once, by how many there are and how they lie: few are compared with a whole register one
//! after the other, integers that lie close together are bits of a map, others are hashed.

use std::collections::HashSet;
use std::sync::Arc;

use weft_codec::dispatch::{Kernel, dispatch};

use super::hash::{canonical_32, canonical_64};
use super::map::cheapest;
use crate::lane::{Bool, Lane, Value};
use crate::program::{Constant, Register};
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::Vector;

/// Most values that are compared one after the other.
const FEW: usize = 8;
/// Most bits of a map.
const MAP_BITS: u64 = 1 << 16;

type Hashed<T> = HashSet<T, foldhash::fast::FixedState>;

/// Prepared values of one lane.
#[derive(Clone, Debug)]
pub struct Set {
    lane: Lane,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    /// Keys of up to 64 bits.
    Few(Vec<u64>),
    /// Keys from the first on, as bits.
    Map(u64, Vec<u64>),
    Many(Hashed<u64>),
    Wide(Hashed<i128>),
    /// Of twelve bytes at most, all in their views.
    FewShort(Vec<Str>),
    FewStrings(Vec<Arc<[u8]>>),
    Strings(Hashed<Arc<[u8]>>),
}

impl Set {
    /// A set of values.
    ///
    /// # Panics
    /// If some are of another lane.
    pub fn new(lane: Lane, values: &[Constant]) -> Set {
        assert!(values.iter().all(|value| value.lane() == lane), "values of one lane");
        let values = match lane {
            Lane::I128 => Values::Wide(values.iter().map(Constant::value::<i128>).collect()),
            Lane::Str => Values::strings(values),
            _ => Values::keys(values.iter().map(key_of).collect()),
        };
        Set { lane, values }
    }

    /// The lane of the values.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

impl Values {
    fn keys(mut keys: Vec<u64>) -> Values {
        keys.sort_unstable_by_key(|key| *key as i64);
        keys.dedup();
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Values::Few(Vec::new());
        };
        let span = last.wrapping_sub(*first);
        if keys.len() <= FEW {
            Values::Few(keys)
        } else if span < MAP_BITS {
            let mut bits = vec![0u64; (span / 64 + 1) as usize];
            for key in &keys {
                let place = key.wrapping_sub(*first);
                bits[(place / 64) as usize] |= 1 << (place % 64);
            }
            Values::Map(*first, bits)
        } else {
            Values::Many(keys.into_iter().collect())
        }
    }

    fn strings(values: &[Constant]) -> Values {
        let texts = values.iter().filter_map(|value| match value {
            Constant::Str(text) => Some(text.clone()),
            _ => None,
        });
        let texts: Hashed<Arc<[u8]>> = texts.collect();
        if texts.len() > FEW {
            Values::Strings(texts)
        } else if texts.iter().all(|text| Str::new(text).is_inline()) {
            Values::FewShort(texts.iter().map(|text| Str::new(text)).collect())
        } else {
            Values::FewStrings(texts.into_iter().collect())
        }
    }
}

/// A value of up to 64 bits as the key by which it is found.
trait Key: Value {
    fn key(self) -> u64;
}

macro_rules! keys {
    ($($value:ty: $self:ident => $key:expr),*) => {$(
        impl Key for $value {
            #[inline(always)]
            fn key($self) -> u64 {
                $key
            }
        }
    )*};
}
keys!(Bool: self => self.0.into(), i8: self => self as u64, i16: self => self as u64, i32: self => self as u64,
    i64: self => self as u64, u8: self => self.into(), u16: self => self.into(), u32: self => self.into(),
    u64: self => self, f32: self => canonical_32(self).into(), f64: self => canonical_64(self));

fn key_of(value: &Constant) -> u64 {
    match value {
        Constant::Bool(value) => Bool::from(*value).key(),
        Constant::I8(value) => value.key(),
        Constant::I16(value) => value.key(),
        Constant::I32(value) => value.key(),
        Constant::I64(value) => value.key(),
        Constant::U8(value) => value.key(),
        Constant::U16(value) => value.key(),
        Constant::U32(value) => value.key(),
        Constant::U64(value) => value.key(),
        Constant::F32(value) => value.key(),
        Constant::F64(value) => value.key(),
        Constant::I128(_) | Constant::Str(_) => unreachable!("a value of up to 64 bits"),
    }
}

/// `out = a IN (values)`, or NOT IN; null where it is none of the values and NULL is among them.
pub(crate) fn run(
    registers: &mut Registers,
    a: Register,
    set: &Set,
    has_null: bool,
    negated: bool,
    out: Register,
) {
    assert_eq!(registers.vector(a).lane(), set.lane, "values of one lane");
    registers.write(out, |registers, out| {
        out.validity.copy_from(&registers.vector(a).validity);
        match set.lane {
            Lane::Bool => keys::<Bool>(registers, a, &set.values, out),
            Lane::I8 => keys::<i8>(registers, a, &set.values, out),
            Lane::I16 => keys::<i16>(registers, a, &set.values, out),
            Lane::I32 => keys::<i32>(registers, a, &set.values, out),
            Lane::I64 => keys::<i64>(registers, a, &set.values, out),
            Lane::U8 => keys::<u8>(registers, a, &set.values, out),
            Lane::U16 => keys::<u16>(registers, a, &set.values, out),
            Lane::U32 => keys::<u32>(registers, a, &set.values, out),
            Lane::U64 => keys::<u64>(registers, a, &set.values, out),
            Lane::F32 => keys::<f32>(registers, a, &set.values, out),
            Lane::F64 => keys::<f64>(registers, a, &set.values, out),
            Lane::I128 => wide(registers, a, &set.values, out),
            Lane::Str => strings(registers, a, &set.values, out),
        }
        if has_null {
            let found = super::filter::true_bits(out, registers.rows());
            for (word, found) in out.validity.words_mut().iter_mut().zip(found) {
                *word &= found;
            }
        }
        if negated {
            let values = &mut out.values_mut::<Bool>()[..registers.rows()];
            values.iter_mut().for_each(|value| value.0 ^= 1);
        }
    });
}

fn keys<T: Key>(registers: &Registers, a: Register, set: &Values, out: &mut Vector) {
    let values = registers.values::<T>(a);
    let out = out.values_mut::<Bool>();
    match set {
        Values::Few(keys) => {
            let rows = cheapest(registers, 8);
            dispatch(Few { values, keys, equal: |a: &T, key| a.key() == key, rows, out });
        }
        Values::Map(first, bits) => registers.selected().for_each(|row| {
            let place = values[row].key().wrapping_sub(*first);
            let word = bits.get((place / 64) as usize).copied().unwrap_or(0);
            out[row] = Bool((word >> (place % 64) & 1) as u8);
        }),
        Values::Many(keys) => {
            registers.selected().for_each(|row| out[row] = keys.contains(&values[row].key()).into())
        }
        _ => unreachable!("keys of up to 64 bits"),
    }
}

fn wide(registers: &Registers, a: Register, set: &Values, out: &mut Vector) {
    let Values::Wide(keys) = set else { unreachable!("keys of 128 bits") };
    let (values, out) = (registers.values::<i128>(a), out.values_mut::<Bool>());
    registers.selected().for_each(|row| out[row] = keys.contains(&values[row]).into());
}

fn strings(registers: &Registers, a: Register, set: &Values, out: &mut Vector) {
    let (values, out) = (registers.values::<Str>(a), out.values_mut::<Bool>());
    match set {
        Values::FewShort(keys) => {
            // The views of short strings are all there is to compare, and no long one's is like them.
            let rows = cheapest(registers, 4);
            dispatch(Few { values, keys, equal: |a: &Str, key| *a == key, rows, out });
        }
        Values::FewStrings(keys) => {
            let keys: Vec<Str> = keys.iter().map(|key| Str::new(key)).collect();
            registers.for_each_valid(a, |row| {
                // SAFETY: the string is selected and not null, so that it is alive, and the set has the keys.
                let is_in = keys.iter().any(|key| unsafe { values[row].equals(key) });
                out[row] = is_in.into();
            });
        }
        Values::Strings(keys) => registers.for_each_valid(a, |row| {
            // SAFETY: as above.
            out[row] = keys.contains(unsafe { values[row].bytes() }).into();
        }),
        _ => unreachable!("keys that are strings"),
    }
}

/// Whether values are equal to one of a few keys: a pass for each.
struct Few<'a, T, K, E> {
    values: &'a [T],
    keys: &'a [K],
    equal: E,
    rows: Selected<'a>,
    out: &'a mut [Bool],
}

impl<T, K: Copy, E: Fn(&T, K) -> bool> Kernel for Few<'_, T, K, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.rows {
            Selected::All(rows) => {
                let out = &mut self.out[..rows];
                out.fill(Bool(0));
                for key in self.keys {
                    for (out, value) in out.iter_mut().zip(&self.values[..rows]) {
                        out.0 |= u8::from((self.equal)(value, *key));
                    }
                }
            }
            Selected::Some(rows) => {
                for row in rows {
                    let row = usize::from(*row);
                    let is_in = self.keys.iter().any(|key| (self.equal)(&self.values[row], *key));
                    self.out[row] = is_in.into();
                }
            }
        }
    }
}
