//! Hashes of keys.
//!
//! Values of fixed width go through the finalizer of SplitMix64 (Stafford's mix 13): two multiplications, every bit of
//! the result depends on every bit of the value, and it is vectorized. High bits (partitions, places in directories)
//! are as good as low ones (sketches). Further keys are mixed with the hash of those before. Strings of up to twelve
//! bytes are hashed as the bits of their views, longer ones by foldhash with a fixed seed: the same in all of a
//! process.

use std::hash::{BuildHasher, Hasher};

use weft_codec::dispatch::{Kernel, dispatch};

use crate::lane::{Bool, Lane};
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::tuple::{Field, Page};
use crate::validity::Validity;
use crate::vector::Vector;

/// What the first key is mixed with: any number will do that no key is likely to be.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The hash of a null, before it is mixed.
const NULL: u64 = 0x6a09_e667_f3bc_c909;
/// Rows that are computed in the time of one that is picked out.
const VECTORIZED: usize = 4;

/// Spreads every bit over all bits; no two numbers give the same.
#[inline(always)]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A value that can be hashed without looking elsewhere.
trait Key: crate::Value {
    /// The hash of `self`, after keys with the hash `before`.
    fn hash(self, before: u64) -> u64;
}

macro_rules! keys {
    ($($value:ty: $self:ident => $bits:expr),*) => {$(
        impl Key for $value {
            #[inline(always)]
            fn hash($self, before: u64) -> u64 {
                let bits: u64 = $bits;
                mix(before ^ bits)
            }
        }
    )*};
}

keys!(Bool: self => u64::from(self.0), i8: self => self as u64, i16: self => self as u64, i32: self => self as u64,
    i64: self => self as u64, u8: self => self.into(), u16: self => self.into(), u32: self => self.into(),
    u64: self => self, f32: self => canonical_32(self).into(), f64: self => canonical_64(self));

impl Key for i128 {
    #[inline(always)]
    fn hash(self, before: u64) -> u64 {
        mix(mix(before ^ self as u64) ^ (self >> 64) as u64)
    }
}

/// The bits of a float, one way for all that are equal.
#[inline(always)]
pub(crate) fn canonical_64(value: f64) -> u64 {
    // -0.0 + 0.0 is 0.0.
    if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() }
}

/// The bits of a float, one way for all that are equal.
#[inline(always)]
pub(crate) fn canonical_32(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { (value + 0.0).to_bits() }
}

/// Hashes `keys` into `out`.
pub(crate) fn run(registers: &mut Registers, keys: &[Register], out: Register) {
    registers.write(out, |registers, out| {
        out.validity.set_all();
        let hashes = out.values_mut::<u64>();
        hashes[..registers.rows()].fill(SEED);
        for key in keys {
            mix_in(registers, registers.vector(*key), hashes);
        }
    });
}

fn mix_in(registers: &Registers, key: &Vector, hashes: &mut [u64]) {
    match key.lane() {
        Lane::Bool => fixed::<Bool>(registers, key, hashes),
        Lane::I8 => fixed::<i8>(registers, key, hashes),
        Lane::I16 => fixed::<i16>(registers, key, hashes),
        Lane::I32 => fixed::<i32>(registers, key, hashes),
        Lane::I64 => fixed::<i64>(registers, key, hashes),
        Lane::U8 => fixed::<u8>(registers, key, hashes),
        Lane::U16 => fixed::<u16>(registers, key, hashes),
        Lane::U32 => fixed::<u32>(registers, key, hashes),
        Lane::U64 => fixed::<u64>(registers, key, hashes),
        Lane::I128 => fixed::<i128>(registers, key, hashes),
        Lane::F32 => fixed::<f32>(registers, key, hashes),
        Lane::F64 => fixed::<f64>(registers, key, hashes),
        Lane::Str => strings(registers, key, hashes),
    }
}

fn fixed<T: Key>(registers: &Registers, key: &Vector, hashes: &mut [u64]) {
    let selected = registers.selected();
    let rows = if selected.count() * VECTORIZED >= registers.rows() {
        Selected::All(registers.rows())
    } else {
        selected
    };
    dispatch(Fixed { keys: key.values::<T>(), validity: &key.validity, rows, hashes });
}

struct Fixed<'a, T> {
    keys: &'a [T],
    validity: &'a Validity,
    rows: Selected<'a>,
    hashes: &'a mut [u64],
}

impl<T: Key> Kernel for Fixed<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match (self.rows, self.validity.words()) {
            (Selected::All(rows), None) => {
                for (hash, key) in self.hashes[..rows].iter_mut().zip(&self.keys[..rows]) {
                    *hash = key.hash(*hash);
                }
            }
            (Selected::All(rows), Some(words)) => {
                let chunks = self.hashes[..rows].chunks_mut(64).zip(self.keys[..rows].chunks(64));
                for ((hashes, keys), word) in chunks.zip(words) {
                    for (bit, (hash, key)) in hashes.iter_mut().zip(keys).enumerate() {
                        let null = mix(*hash ^ NULL);
                        *hash = if word >> bit & 1 == 1 { key.hash(*hash) } else { null };
                    }
                }
            }
            (Selected::Some(rows), None) => {
                for row in rows {
                    let row = usize::from(*row);
                    self.hashes[row] = self.keys[row].hash(self.hashes[row]);
                }
            }
            (Selected::Some(rows), Some(words)) => {
                for row in rows {
                    let row = usize::from(*row);
                    let hash = self.hashes[row];
                    let null = mix(hash ^ NULL);
                    let is_valid = words[row / 64] >> (row % 64) & 1 == 1;
                    self.hashes[row] = if is_valid { self.keys[row].hash(hash) } else { null };
                }
            }
        }
    }
}

fn strings(registers: &Registers, key: &Vector, hashes: &mut [u64]) {
    let strings = key.values::<Str>();
    let hasher = foldhash::quality::FixedState::default();
    match key.validity.words() {
        None => registers.selected().for_each(|row| {
            // SAFETY: the string is selected and not null, so that it is alive.
            hashes[row] = unsafe { hash_string(&strings[row], hashes[row], &hasher) };
        }),
        Some(words) => registers.selected().for_each(|row| {
            hashes[row] = if words[row / 64] >> (row % 64) & 1 == 1 {
                // SAFETY: the string is selected and not null, so that it is alive.
                unsafe { hash_string(&strings[row], hashes[row], &hasher) }
            } else {
                mix(hashes[row] ^ NULL)
            };
        }),
    }
}

/// The hash of some fields of each tuple of a page, as [`run`] has it of registers.
pub(crate) fn of_fields(page: &Page, fields: &[Field]) -> Vec<u64> {
    let mut hashes = vec![SEED; page.tuples()];
    for field in fields {
        match field.lane {
            Lane::Bool => of_field(page, field, &mut hashes, Bool::hash),
            Lane::I8 => of_field(page, field, &mut hashes, i8::hash),
            Lane::I16 => of_field(page, field, &mut hashes, i16::hash),
            Lane::I32 => of_field(page, field, &mut hashes, i32::hash),
            Lane::I64 => of_field(page, field, &mut hashes, i64::hash),
            Lane::U8 => of_field(page, field, &mut hashes, u8::hash),
            Lane::U16 => of_field(page, field, &mut hashes, u16::hash),
            Lane::U32 => of_field(page, field, &mut hashes, u32::hash),
            Lane::U64 => of_field(page, field, &mut hashes, u64::hash),
            Lane::I128 => of_field(page, field, &mut hashes, i128::hash),
            Lane::F32 => of_field(page, field, &mut hashes, f32::hash),
            Lane::F64 => of_field(page, field, &mut hashes, f64::hash),
            Lane::Str => {
                let hasher = foldhash::quality::FixedState::default();
                // SAFETY: the tuple's strings are on the page, or are alive as it is.
                of_field_at(page, field, &mut hashes, |tuple, string: Str, before| unsafe {
                    hash_string(&string.unpacked(tuple), before, &hasher)
                });
            }
        }
    }
    hashes
}

fn of_field<T: crate::Value>(
    page: &Page,
    field: &Field,
    hashes: &mut [u64],
    hash: impl Fn(T, u64) -> u64,
) {
    of_field_at(page, field, hashes, |_, value, before| hash(value, before));
}

/// Mixes a field of all tuples in; `hash` is given the address of a tuple, the value, and the hash of the fields
/// before.
fn of_field_at<T: crate::Value>(
    page: &Page,
    field: &Field,
    hashes: &mut [u64],
    hash: impl Fn(*const u8, T, u64) -> u64,
) {
    for (number, out) in hashes.iter_mut().enumerate() {
        let tuple = page.tuple(number).cast_const();
        // SAFETY: the tuple is initialized, and the field lies in it.
        let value = unsafe {
            let is_null =
                field.null_place().is_some_and(|(byte, bit)| tuple.add(byte).read() & bit != 0);
            (!is_null).then(|| tuple.add(field.offset).cast::<T>().read_unaligned())
        };
        *out = match value {
            Some(value) => hash(tuple, value, *out),
            None => mix(*out ^ NULL),
        };
    }
}

/// # Safety
/// The string must be alive.
#[inline]
unsafe fn hash_string(string: &Str, before: u64, hasher: &foldhash::quality::FixedState) -> u64 {
    let (low, high) = if string.is_inline() {
        (string.head(), (string.bits() >> 64) as u64)
    } else {
        let mut hasher = hasher.build_hasher();
        // SAFETY: as the caller promises.
        hasher.write(unsafe { string.bytes() });
        (hasher.finish(), 0)
    };
    mix(mix(before ^ low) ^ high)
}
