//! How tuples compare: by 64 bits that lie in their headers, made of the first keys, and by the keys themselves where
//! those bits are the same and do not say all.
//!
//! The bits compare as unsigned numbers do, whatever lanes, directions and places of nulls there are (normalized keys).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::for_lane;
use crate::lane::{Bool, Lane, Value, for_short_integer};
use crate::program::Register;
use crate::registers::Registers;
use crate::text::Str;
use crate::tuple::{Field, Layout};
use crate::vector::Vector;

/// What tuples are ordered by: a field, and the register that it is stored from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SortKey {
    /// Number of the field.
    pub field: usize,
    /// The largest first.
    pub descending: bool,
    /// Nulls before anything else, else behind.
    pub nulls_first: bool,
    /// Integers that no value is below, and above, if they are known: the closer, the more keys are compared at once.
    pub bounds: Option<(i128, i128)>,
}

/// What a key's values are in the bits of tuples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranks {
    /// The rank that counts as 0.
    pub(super) least: u64,
    /// Bits of the ranks from there on.
    pub(super) bits: u32,
    /// The bits say all of a value.
    pub(super) are_exact: bool,
}

impl Ranks {
    fn of(key: &SortKey, lane: Lane) -> Ranks {
        let bits = for_lane!(lane, T => <T as Ranked>::BITS);
        let whole = Ranks { least: 0, bits: bits.min(u64::BITS), are_exact: bits <= u64::BITS };
        let bounded = key.bounds.and_then(|(low, high)| {
            let (least, greatest) = for_short_integer!(lane, T => {
                (T::try_from(low).ok()?.rank(), T::try_from(high).ok()?.rank())
            }, else return None);
            let range = greatest.checked_sub(least)?;
            Some(Ranks { least, bits: u64::BITS - range.leading_zeros(), are_exact: true })
        });
        bounded.unwrap_or(whole)
    }
}

/// An order of tuples of a layout. Floats compare as everywhere: NaN is larger than all numbers, -0.0 is 0.0.
#[derive(Clone, Debug)]
pub struct Order {
    layout: Arc<Layout>,
    pub(super) keys: Vec<SortKey>,
    pub(super) ranks: Vec<Ranks>,
    /// Whether the bits of a tuple say all about its place.
    is_exact: bool,
}

/// Values of up to 64 bits that have an order, as numbers that have the same.
pub(crate) trait Ranked: Value {
    /// Bits of the rank, or of its upper part.
    const BITS: u32;
    /// The rank; of a longer value its first bits.
    fn rank(self) -> u64;
    /// The rank without its last bits; of what is left, the last 64.
    #[inline(always)]
    fn rank_above(self, down: u32) -> u64 {
        self.rank() >> down
    }
    /// Compares whole values that lie in tuples.
    fn compare(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

macro_rules! ranked_integers {
    ($($signed:ty, $unsigned:ty);*) => {
        $(impl Ranked for $unsigned {
            const BITS: u32 = <$unsigned>::BITS;
            fn rank(self) -> u64 {
                self.into()
            }
        }
        impl Ranked for $signed {
            const BITS: u32 = <$signed>::BITS;
            fn rank(self) -> u64 {
                (self as $unsigned ^ 1 << (<$signed>::BITS - 1)).into()
            }
        })*
    };
}

ranked_integers!(i8, u8; i16, u16; i32, u32; i64, u64);

impl Ranked for Bool {
    const BITS: u32 = 1;
    fn rank(self) -> u64 {
        self.get().into()
    }
}

impl Ranked for f32 {
    const BITS: u32 = 32;
    fn rank(self) -> u64 {
        let value = if self.is_nan() { f32::NAN.abs() } else { self + 0.0 };
        let bits = value.to_bits();
        (if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }).into()
    }
}

impl Ranked for f64 {
    const BITS: u32 = 64;
    fn rank(self) -> u64 {
        let value = if self.is_nan() { f64::NAN.abs() } else { self + 0.0 };
        let bits = value.to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }
}

impl Ranked for i128 {
    const BITS: u32 = 128;
    fn rank(self) -> u64 {
        ((self >> 64) as i64).rank()
    }
    fn rank_above(self, down: u32) -> u64 {
        ((self as u128 ^ 1 << 127) >> down) as u64
    }
    fn compare(&self, other: &i128) -> Ordering {
        self.cmp(other)
    }
}

impl Ranked for Str {
    const BITS: u32 = u32::MAX;
    fn rank(self) -> u64 {
        // SAFETY: of a register, or of a tuple that is alive.
        unsafe { self.eight_from(0) }
    }
    fn compare(&self, other: &Str) -> Ordering {
        // SAFETY: both of tuples that are alive.
        unsafe { Str::compare(self, other) }
    }
}

impl Order {
    /// The order of tuples by the first key, among equal ones by the second, and so on.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn new(layout: Arc<Layout>, keys: Vec<SortKey>) -> Order {
        let ranks_of = |key: &SortKey| Ranks::of(key, layout.field(key.field).lane);
        let ranks: Vec<Ranks> = keys.iter().map(ranks_of).collect();
        let with_null = |(key, ranks): (&SortKey, &Ranks)| {
            ranks.bits + u32::from(layout.field(key.field).null_bit.is_some())
        };
        let bits: u32 = keys.iter().zip(&ranks).map(with_null).sum();
        let is_exact = bits <= u64::BITS && ranks.iter().all(|ranks| ranks.are_exact);
        Order { layout, keys, ranks, is_exact }
    }

    /// How tuples lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// True if tuples with the same bits are equal.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Puts the bits of the selected tuples into `out`. `fields` are the registers that fields are stored from.
    pub fn prepare(&self, registers: &mut Registers, fields: &[Register], out: Register) {
        let mut bits = registers.take(out);
        let rows = registers.rows();
        bits.validity.set_all();
        bits.values_mut::<u64>()[..rows].fill(0);
        let mut room = u64::BITS;
        for (key, ranks) in self.keys.iter().zip(&self.ranks) {
            let field = self.layout.field(key.field);
            let vector = registers.vector(fields[key.field]);
            let selected = registers.selected();
            let out = bits.values_mut::<u64>();
            if field.null_bit.is_some() {
                room -= 1;
                let valid_is = u64::from(key.nulls_first);
                selected.for_each(|row| {
                    let valid = u64::from(vector.validity.is_valid(row));
                    out[row] |= (valid ^ 1 ^ valid_is) << room;
                });
            }
            if room == 0 {
                break;
            }
            for_lane!(field.lane, T => {
                room = append::<T>(vector, selected, (*ranks, key.descending), room, out);
            });
            if room == 0 {
                break;
            }
        }
        registers.put(out, bits);
    }

    /// Compares tuples by their keys.
    ///
    /// # Safety
    /// Both are tuples of the layout that nobody writes to, but for their headers.
    pub unsafe fn compare(&self, a: *const u8, b: *const u8) -> Ordering {
        for key in &self.keys {
            let field = self.layout.field(key.field);
            // SAFETY: as the caller promises.
            let ordering = unsafe { compare_field(a, b, field, key) };
            if ordering != Ordering::Equal {
                return ordering;
            }
        }
        Ordering::Equal
    }
}

/// Puts a key's rank, or as much of it as there is room for, below the bits that are there already; returns the room
/// left.
fn append<T: Ranked>(
    vector: &Vector,
    selected: crate::selection::Selected<'_>,
    (ranks, descending): (Ranks, bool),
    room: u32,
    out: &mut [u64],
) -> u32 {
    let Ranks { least, bits, are_exact } = ranks;
    if bits == 0 {
        return room;
    }
    let values = vector.values::<T>();
    let mask = if descending { u64::MAX >> (u64::BITS - bits) } else { 0 };
    let (down, up) = (bits.saturating_sub(room), room.saturating_sub(bits));
    let mut write = |row: usize| {
        let rank = values[row].rank().wrapping_sub(least);
        debug_assert!(rank.checked_shr(bits).unwrap_or(0) == 0, "a value within the bounds");
        out[row] |= (rank ^ mask) >> down << up;
    };
    if vector.validity.has_nulls() {
        selected.for_each(|row| {
            if vector.validity.is_valid(row) {
                write(row);
            }
        });
    } else {
        selected.for_each(write);
    }
    // What follows a key of which something is missing may not decide.
    if are_exact && bits <= room { up } else { 0 }
}

/// # Safety
/// As [`Order::compare`].
unsafe fn compare_field(a: *const u8, b: *const u8, field: &Field, key: &SortKey) -> Ordering {
    if let Some((byte, bit)) = field.null_place() {
        // SAFETY: a byte of each tuple.
        let nulls = unsafe { (a.add(byte).read() & bit != 0, b.add(byte).read() & bit != 0) };
        match nulls {
            (false, false) => {}
            (true, true) => return Ordering::Equal,
            (a_is_null, _) if a_is_null == key.nulls_first => return Ordering::Less,
            _ => return Ordering::Greater,
        }
    }
    let ordering = if field.lane == Lane::Str {
        // SAFETY: the field of each tuple, whose long strings lie behind it.
        unsafe {
            let a_string = a.add(field.offset).cast::<Str>().read_unaligned().unpacked(a);
            let b_string = b.add(field.offset).cast::<Str>().read_unaligned().unpacked(b);
            Ranked::compare(&a_string, &b_string)
        }
    } else {
        for_lane!(field.lane, T => {
            // SAFETY: the field of each tuple.
            unsafe {
                let a_value = a.add(field.offset).cast::<T>().read_unaligned();
                let b_value = b.add(field.offset).cast::<T>().read_unaligned();
                Ranked::compare(&a_value, &b_value)
            }
        })
    };
    if key.descending { ordering.reverse() } else { ordering }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_the_order_of_values() {
        let floats = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        for (number, a) in floats.iter().enumerate() {
            for (other, b) in floats.iter().enumerate() {
                assert_eq!(a.rank().cmp(&b.rank()), number.cmp(&other), "{a} {b}");
            }
        }
        assert_eq!((-0.0f64).rank(), 0.0f64.rank());
        assert_eq!((-f64::NAN).rank(), f64::NAN.rank());
        assert_eq!((-0.0f32).rank(), 0.0f32.rank());
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1000 {
            let (a, b) = (f32::from_bits(random.u32(..)), f32::from_bits(random.u32(..)));
            assert!(a.rank() <= u64::from(u32::MAX));
            assert_eq!(a.rank().cmp(&b.rank()), f64::from(a).rank().cmp(&f64::from(b).rank()));
            let (a, b) = (random.i64(..), random.i64(..));
            assert_eq!(a.rank().cmp(&b.rank()), a.cmp(&b));
            assert_eq!((a as i16).rank().cmp(&(b as i16).rank()), (a as i16).cmp(&(b as i16)));
        }
    }
}
