//! What a finished build side lets the pipelines of the probe side leave out: tuples by their hashes, and whole blocks of
//! a table by the least and the greatest of their keys. Tuples with a single key, an integer, are known by that key itself
//! if that takes not much more memory.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow_buffer::BooleanBufferBuilder;
use weft_codec::dispatch::{Kernel, dispatch};

use super::key_set::{Integer, KeySet};
use super::words::{Words, set_bits};
use crate::kernels::hash;
use crate::lane::{Bool, Lane, Value, for_short_integer};
use crate::program::{Constant, Register};
use crate::registers::Registers;
use crate::text::Str;
use crate::tuple::{Field, Page};
use crate::vector::VECTOR_ROWS_MAX;

/// Bits of the Bloom filter for a hash, at least half of them: about one of a hundred other hashes gets through.
const BITS_PER_HASH: usize = 16;
/// Fewest words of the Bloom filter: a KiB lets next to nothing through where hashes are few.
const WORDS_MIN: usize = 128;
/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// Keys of a finished build side, about: what was [wanted](super::Wanted) of them.
#[derive(Debug)]
pub struct Filter {
    rows: Option<Rows>,
    bounds: Vec<Bounds>,
}

/// What is known of single rows.
#[derive(Debug)]
pub(crate) enum Rows {
    /// Their hashes, about.
    Bloom(Bloom),
    /// Their only key.
    Keys(KeySet),
}

impl Filter {
    /// Of rows and bounds, if they are wanted; without bounds there are none.
    pub(crate) fn new(rows: Option<Rows>, bounds: Vec<Bounds>) -> Filter {
        Filter { rows, bounds }
    }

    /// Keeps the selected rows that may have a match. Their hashes are put into `out` if that takes hashes.
    pub(crate) fn keep(&self, registers: &mut Registers, keys: &[Register], out: Register) {
        match &self.rows {
            Some(Rows::Bloom(bloom)) => {
                hash::run(registers, keys, out);
                let (hashes, selection) = registers.with_selection(out);
                let hashes = hashes.values::<u64>();
                selection.retain(|row| bloom.may_have(hashes[row]));
            }
            Some(Rows::Keys(set)) => {
                let (key, selection) = registers.with_selection(keys[0]);
                for_short_integer!(key.lane(), T => {
                    let values = key.values::<T>();
                    selection.retain(|row| set.has(values[row].bits()));
                }, else unreachable!("a set is of integers"));
            }
            None => {}
        }
    }

    /// Appends a bit for each of the first `rows` rows, none of which is excluded, that says whether it may have a match;
    /// returns how many may. As [`Filter::keep`] otherwise.
    pub(crate) fn append_bits(
        &self,
        registers: &mut Registers,
        rows: usize,
        (key, out): (Register, Register),
        bits: &mut BooleanBufferBuilder,
    ) -> usize {
        match &self.rows {
            Some(Rows::Bloom(bloom)) => {
                hash::run(registers, &[key], out);
                append(
                    &registers.values::<u64>(out)[..rows],
                    bits,
                    #[inline(always)]
                    |hash| bloom.may_have(hash),
                )
            }
            Some(Rows::Keys(set)) => {
                for_short_integer!(registers.vector(key).lane(), T => {
                    append(&registers.values::<T>(key)[..rows], bits, #[inline(always)] |key| set.has(key.bits()))
                }, else unreachable!("a set is of integers"))
            }
            None => {
                bits.append_n(rows, true);
                rows
            }
        }
    }

    /// The least and the greatest value of a key that are not null; `None` if there is no such value.
    ///
    /// # Panics
    /// If bounds were not wanted.
    pub fn bounds(&self, key: usize) -> Option<(Constant, Constant)> {
        self.bounds[key].constants()
    }

    /// False if no value of the key, nulls aside, lies between `least` and `greatest`: a block with those bounds has
    /// nothing that a value which is not null matches.
    pub fn may_overlap(&self, key: usize, least: &Constant, greatest: &Constant) -> bool {
        let Bounds { lane, range } = &self.bounds[key];
        let block = (Point::of(least), Point::of(greatest));
        debug_assert_eq!(*lane, least.lane());
        range.as_ref().is_some_and(|(low, high)| *low <= block.1 && block.0 <= *high)
    }
}

/// Appends the outcome of `test` for each of a vector's values; returns how many are true.
fn append<T: Value>(
    values: &[T],
    bits: &mut BooleanBufferBuilder,
    test: impl Fn(T) -> bool,
) -> usize {
    let words = dispatch(Outcomes { values, test });
    for (values, word) in values.chunks(WORD).zip(&words) {
        bits.append_packed_range(0..values.len(), &word.to_le_bytes());
    }
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// The outcome of `test` for each of a vector's values, as bits.
struct Outcomes<'a, T, F> {
    values: &'a [T],
    test: F,
}

impl<T: Value, F: Fn(T) -> bool> Kernel for Outcomes<'_, T, F> {
    type Output = [u64; VECTOR_ROWS_MAX / WORD];

    #[inline(always)]
    fn run(self) -> Self::Output {
        let mut words = [0; VECTOR_ROWS_MAX / WORD];
        for (values, word) in self.values.chunks(WORD).zip(&mut words) {
            let (eights, rest) = values.as_chunks::<8>();
            for (number, eight) in eights.iter().enumerate() {
                let mut byte = 0;
                for (at, value) in eight.iter().enumerate() {
                    byte |= u64::from((self.test)(*value)) << at;
                }
                *word |= byte << (8 * number);
            }
            for (at, value) in rest.iter().enumerate() {
                *word |= u64::from((self.test)(*value)) << (8 * eights.len() + at);
            }
        }
        words
    }
}

/// A Bloom filter of hashes, four bits each in a word of 64, which the high bits of the hash choose.
#[derive(Debug)]
pub(crate) struct Bloom {
    words: Words,
    shift: u32,
}

impl Bloom {
    /// Words for so many hashes.
    pub fn words_for(distinct: usize) -> usize {
        (distinct * BITS_PER_HASH).div_ceil(64).next_power_of_two().max(WORDS_MIN)
    }

    /// One of no hashes.
    ///
    /// # Errors
    /// The system's if it has no memory.
    pub fn new(words: usize) -> std::io::Result<Bloom> {
        assert!(words.is_power_of_two() && words > 1, "{words} words");
        let shift = u64::BITS - words.trailing_zeros();
        Ok(Bloom { words: Words::new(words)?, shift })
    }

    /// Its memory.
    pub fn words(&self) -> &Words {
        &self.words
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let bit = |at: u32| 1u64 << (hash >> at & 63);
        (&self.words[(hash >> self.shift) as usize], bit(0) | bit(6) | bit(12) | bit(18))
    }

    /// Adds a hash; `ALONE` if nobody else adds any of its partition meanwhile, and the filter has [words](Bloom::divides) of it alone.
    #[inline(always)]
    pub fn add<const ALONE: bool>(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        set_bits::<ALONE>(word, bits);
    }

    /// True if hashes of different partitions never have a word in common, where the first bits of a hash are its partition.
    pub fn divides(&self, partitions: usize) -> bool {
        self.words.len() >= partitions
    }

    #[inline(always)]
    fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Ordering::Relaxed) & bits == bits
    }
}

/// A value, to be compared with others of its lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Integer(i128),
    /// Bits that compare as floats do.
    Float(i64),
    Text(Box<[u8]>),
}

impl Point {
    fn of(value: &Constant) -> Point {
        match value {
            Constant::Bool(value) => Point::Integer((*value).into()),
            Constant::I8(value) => Point::Integer((*value).into()),
            Constant::I16(value) => Point::Integer((*value).into()),
            Constant::I32(value) => Point::Integer((*value).into()),
            Constant::I64(value) => Point::Integer((*value).into()),
            Constant::U8(value) => Point::Integer((*value).into()),
            Constant::U16(value) => Point::Integer((*value).into()),
            Constant::U32(value) => Point::Integer((*value).into()),
            Constant::U64(value) => Point::Integer((*value).into()),
            Constant::I128(value) => Point::Integer(*value),
            Constant::F32(value) => Point::Float(float_bits((*value).into())),
            Constant::F64(value) => Point::Float(float_bits(*value)),
            Constant::Str(value) => Point::Text(value[..].into()),
        }
    }

    fn constant(&self, lane: Lane) -> Constant {
        match (self, lane) {
            (Point::Integer(value), Lane::Bool) => Constant::Bool(*value != 0),
            (Point::Integer(value), Lane::I8) => Constant::I8(*value as i8),
            (Point::Integer(value), Lane::I16) => Constant::I16(*value as i16),
            (Point::Integer(value), Lane::I32) => Constant::I32(*value as i32),
            (Point::Integer(value), Lane::I64) => Constant::I64(*value as i64),
            (Point::Integer(value), Lane::U8) => Constant::U8(*value as u8),
            (Point::Integer(value), Lane::U16) => Constant::U16(*value as u16),
            (Point::Integer(value), Lane::U32) => Constant::U32(*value as u32),
            (Point::Integer(value), Lane::U64) => Constant::U64(*value as u64),
            (Point::Integer(value), _) => Constant::I128(*value),
            (Point::Float(bits), Lane::F32) => Constant::F32(bits_float(*bits) as f32),
            (Point::Float(bits), _) => Constant::F64(bits_float(*bits)),
            (Point::Text(value), _) => Constant::Str(value[..].into()),
        }
    }
}

/// Bits that compare as [`Comparison`](crate::program::Comparison) has it: -0.0 is 0.0, NaN is above all.
fn float_bits(value: f64) -> i64 {
    let bits = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 }.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

fn bits_float(bits: i64) -> f64 {
    f64::from_bits((bits ^ ((bits >> 63) as u64 >> 1) as i64) as u64)
}

/// The least and the greatest of a field.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    lane: Lane,
    range: Option<(Point, Point)>,
}

impl Bounds {
    /// Of nothing.
    pub fn new(lane: Lane) -> Bounds {
        Bounds { lane, range: None }
    }

    /// Adds the tuples of a page.
    pub fn add(&mut self, page: &Page, field: &Field) {
        let range = match field.lane {
            Lane::F32 => range_of(page, field, |value: f32| float_bits(value.into()))
                .map(|(low, high)| (Point::Float(low), Point::Float(high))),
            Lane::F64 => range_of(page, field, float_bits)
                .map(|(low, high)| (Point::Float(low), Point::Float(high))),
            Lane::Str => texts_of(page, field),
            Lane::Bool => integers(range_of(page, field, |value: Bool| value.0)),
            Lane::I8 => integers(range_of(page, field, |value: i8| value)),
            Lane::I16 => integers(range_of(page, field, |value: i16| value)),
            Lane::I32 => integers(range_of(page, field, |value: i32| value)),
            Lane::I64 => integers(range_of(page, field, |value: i64| value)),
            Lane::U8 => integers(range_of(page, field, |value: u8| value)),
            Lane::U16 => integers(range_of(page, field, |value: u16| value)),
            Lane::U32 => integers(range_of(page, field, |value: u32| value)),
            Lane::U64 => integers(range_of(page, field, |value: u64| value)),
            Lane::I128 => integers(range_of(page, field, |value: i128| value)),
        };
        self.merge(range);
    }

    /// Adds what another has seen.
    pub fn join(&mut self, other: Bounds) {
        self.merge(other.range);
    }

    fn merge(&mut self, range: Option<(Point, Point)>) {
        self.range = match (self.range.take(), range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// Least and greatest of a lane of integers, as [`Integer::bits`] has them.
    pub fn integers(&self) -> Option<(u64, u64)> {
        match self.range.as_ref()? {
            (Point::Integer(low), Point::Integer(high)) => Some((*low as u64, *high as u64)),
            _ => None,
        }
    }

    fn constants(&self) -> Option<(Constant, Constant)> {
        let (low, high) = self.range.as_ref()?;
        Some((low.constant(self.lane), high.constant(self.lane)))
    }
}

fn integers<T: Into<i128>>(range: Option<(T, T)>) -> Option<(Point, Point)> {
    range.map(|(low, high)| (Point::Integer(low.into()), Point::Integer(high.into())))
}

/// Least and greatest of what `order` makes of a field's values.
fn range_of<T: Value, O: Copy + Ord>(
    page: &Page,
    field: &Field,
    order: impl Fn(T) -> O,
) -> Option<(O, O)> {
    let mut range: Option<(O, O)> = None;
    each(page, field, |_, value| {
        let value = order(value);
        range = Some(match range {
            Some((low, high)) => (low.min(value), high.max(value)),
            None => (value, value),
        });
    });
    range
}

fn texts_of(page: &Page, field: &Field) -> Option<(Point, Point)> {
    let mut range: Option<(Str, Str)> = None;
    // SAFETY: the page is borrowed, and with it what its strings refer to.
    let order = |a: Str, b: Str| unsafe { a.compare(&b) };
    each(page, field, |tuple, value: Str| {
        let value = value.unpacked(tuple);
        range = Some(match range {
            Some((low, high)) => (
                if order(value, low).is_lt() { value } else { low },
                if order(value, high).is_gt() { value } else { high },
            ),
            None => (value, value),
        });
    });
    // SAFETY: as above.
    let text = |value: Str| Point::Text(unsafe { value.bytes() }.into());
    range.map(|(low, high)| (text(low), text(high)))
}

/// Calls `work` with each tuple of a page and the value of a field, where it is not null.
pub(crate) fn each<T: Value>(page: &Page, field: &Field, mut work: impl FnMut(*const u8, T)) {
    for number in 0..page.tuples() {
        let tuple = page.tuple(number);
        // SAFETY: the tuple is initialized, and the field lies in it.
        unsafe {
            let is_null =
                field.null_place().is_some_and(|(byte, bit)| tuple.add(byte).read() & bit != 0);
            if !is_null {
                work(tuple, tuple.add(field.offset).cast::<T>().read_unaligned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_become_bits() {
        for rows in [0, 1, 63, 64, 71, 1000, VECTOR_ROWS_MAX] {
            let values: Vec<u64> = (0..rows as u64).map(|at| at * at % 7).collect();
            let mut bits = BooleanBufferBuilder::new(0);
            bits.append(true);
            let count = append(&values, &mut bits, |value| value < 3);
            let expected: Vec<bool> = values.iter().map(|value| *value < 3).collect();
            assert_eq!(bits.finish().iter().skip(1).collect::<Vec<bool>>(), expected);
            assert_eq!(count, expected.iter().filter(|holds| **holds).count());
        }
    }

    #[test]
    fn a_bloom_filter_has_what_was_added() {
        let mut random = fastrand::Rng::with_seed(11);
        for count in [0, 1, 100, 50_000] {
            let bloom = Bloom::new(Bloom::words_for(count)).unwrap();
            let hashes: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
            let (some, others) = hashes.split_at(count / 3);
            some.iter().for_each(|hash| bloom.add::<true>(*hash));
            others.iter().for_each(|hash| bloom.add::<false>(*hash));
            assert!(hashes.iter().all(|hash| bloom.may_have(*hash)));
            let others = (0..10_000).filter(|_| bloom.may_have(random.u64(..))).count();
            assert!(others < 300, "{others} of 10,000 others, {count} hashes");
        }
    }

    #[test]
    fn floats_compare_by_their_bits() {
        let values =
            [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, -0.0, 0.5, f64::INFINITY, f64::NAN];
        assert!(values.windows(2).all(|pair| float_bits(pair[0]) < float_bits(pair[1])));
        assert_eq!(float_bits(-0.0), float_bits(0.0));
        assert_eq!(float_bits(-f64::NAN), float_bits(f64::NAN));
        for value in &values[..6] {
            assert_eq!(bits_float(float_bits(*value)), *value);
        }
        assert!(bits_float(float_bits(f64::NAN)).is_nan());
    }
}
