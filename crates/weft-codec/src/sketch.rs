//! How many different values there are, about: HyperLogLog (Flajolet et al., 2007), a byte per register.
//!
//! Of hashes that somebody has anyway, or of the values of Arrow arrays, whose hashes are the same for good, so that
//! sketches can be stored and merged with later ones.

use arrow_array::{Array, cast::AsArray};
use arrow_schema::DataType;
use twox_hash::XxHash64;

use crate::encode::slices;
use crate::physical::Physical;

/// Binary logarithm of the registers, by default.
const INDEX_BITS: u32 = 12;

/// A sketch of a set of hashes, whose low bits must be as random as the others. With 2^n registers the standard error
/// is 1.04 / √2^n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    ranks: Box<[u8]>,
}

impl Default for Sketch {
    /// One with 4096 registers: 1.6 %.
    fn default() -> Sketch {
        Sketch::new(INDEX_BITS)
    }
}

impl Sketch {
    /// One with 2^`index_bits` registers.
    ///
    /// # Panics
    /// If `index_bits` are not 4 to 16.
    pub fn new(index_bits: u32) -> Sketch {
        assert!((4..=16).contains(&index_bits), "2^{index_bits} registers");
        Sketch { ranks: vec![0; 1 << index_bits].into() }
    }

    /// The sketch that gave these [`Sketch::ranks`]; `None` for bytes that no sketch gives.
    pub fn from_ranks(ranks: &[u8]) -> Option<Sketch> {
        let registers = ranks.len();
        let is_size = registers.is_power_of_two() && (1 << 4..=1 << 16).contains(&registers);
        let rank_max = u64::BITS as u8 - registers.trailing_zeros() as u8 + 1;
        let is_one = is_size && ranks.iter().all(|rank| *rank <= rank_max);
        is_one.then(|| Sketch { ranks: ranks.into() })
    }

    /// The registers.
    pub fn ranks(&self) -> &[u8] {
        &self.ranks
    }

    /// Adds a hash.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        add(&mut self.ranks, hash);
    }

    /// Adds the values of an array that are not null. False if its type is one whose values are not counted: lists,
    /// structs, and what no block holds.
    pub fn add_values(&mut self, array: &dyn Array) -> bool {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
        let Ok(physical) = Physical::of(array.data_type()) else { return false };
        let data = array.to_data();
        macro_rules! fixed {
            ($native:ty) => {{
                let values = &data.buffer::<$native>(0)[..array.len()];
                for (_, value) in values.iter().enumerate().filter(|(row, _)| is_valid(*row)) {
                    self.add(mix(u64::from(*value)));
                }
            }};
        }
        match physical {
            Physical::Boolean => {
                let values = array.as_boolean().values();
                (0..array.len())
                    .filter(|row| is_valid(*row))
                    .for_each(|row| self.add(mix(values.value(row).into())));
            }
            Physical::Int8 | Physical::UInt8 => fixed!(u8),
            Physical::Int16 | Physical::UInt16 => fixed!(u16),
            Physical::Int32 | Physical::UInt32 | Physical::Float32 => fixed!(u32),
            Physical::Int64 | Physical::UInt64 | Physical::Float64 => fixed!(u64),
            Physical::Int128 => {
                let values = &data.buffer::<i128>(0)[..array.len()];
                for (_, value) in values.iter().enumerate().filter(|(row, _)| is_valid(*row)) {
                    self.add(mix(*value as u64 ^ mix((*value >> 64) as u64)));
                }
            }
            Physical::Utf8 | Physical::Binary => {
                let strings = slices(array, None);
                for (_, bytes) in strings.iter().enumerate().filter(|(row, _)| is_valid(*row)) {
                    self.add(XxHash64::oneshot(0, bytes));
                }
            }
            Physical::Null => return matches!(array.data_type(), DataType::Null),
            Physical::Interval | Physical::List | Physical::Struct => return false,
        }
        true
    }

    /// Adds what another of the same size has seen.
    ///
    /// # Panics
    /// If it has another number of registers.
    pub fn merge(&mut self, other: &Sketch) {
        assert_eq!(self.ranks.len(), other.ranks.len(), "registers");
        for (rank, other) in self.ranks.iter_mut().zip(&other.ranks) {
            *rank = (*rank).max(*other);
        }
    }

    /// About how many different hashes were added.
    pub fn estimate(&self) -> u64 {
        estimate(&self.ranks)
    }
}

/// Adds a hash to the registers of a sketch that somebody else keeps: a power of two of them.
#[inline]
pub fn add(ranks: &mut [u8], hash: u64) {
    let index_bits = ranks.len().trailing_zeros();
    let rank = ((hash >> index_bits) | 1 << (u64::BITS - index_bits)).trailing_zeros() + 1;
    let register = &mut ranks[hash as usize & (ranks.len() - 1)];
    *register = (*register).max(rank as u8);
}

/// About how many different hashes were added to such registers.
pub fn estimate(ranks: &[u8]) -> u64 {
    let registers = ranks.len() as f64;
    // 2^-rank
    let part = |rank: &u8| f64::from_bits((1023 - u64::from(*rank)) << 52);
    let sum: f64 = ranks.iter().map(part).sum();
    let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
    let empty = ranks.iter().filter(|rank| **rank == 0).count();
    let estimate = if raw <= 2.5 * registers && empty > 0 {
        // Linear counting is better as long as registers are empty.
        registers * (registers / empty as f64).ln()
    } else {
        raw
    };
    estimate.round() as u64
}

/// Different numbers give different hashes.
fn mix(number: u64) -> u64 {
    let mut hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Decimal128Array, Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn estimates_are_close() {
        for bits in [10, 12] {
            for count in [0u64, 1, 10, 1000, 5000, 20_000, 100_000, 3_000_000] {
                let mut random = fastrand::Rng::with_seed(count);
                let (mut a, mut b) = (Sketch::new(bits), Sketch::new(bits));
                for n in 0..count {
                    let hash = random.u64(..);
                    // Some to either, some to both.
                    if n % 3 != 0 {
                        a.add(hash);
                    }
                    if n % 3 != 1 {
                        b.add(hash);
                    }
                }
                a.merge(&b);
                let error = a.estimate().abs_diff(count) as f64 / count.max(1) as f64;
                assert!(error < 0.1, "{count} in 2^{bits}: {}", a.estimate());
                assert_eq!(Sketch::from_ranks(a.ranks()).as_ref(), Some(&a));
            }
        }
    }

    #[test]
    fn equal_values_count_once_and_nulls_do_not() {
        let numbers = |range: std::ops::Range<i64>| range.map(|n| (n % 7 != 0).then_some(n / 10));
        let arrays: [ArrayRef; 3] = [
            Arc::new(Int64Array::from_iter(numbers(0..50_000))),
            Arc::new(Decimal128Array::from_iter(numbers(0..50_000).map(|n| n.map(i128::from)))),
            Arc::new(StringViewArray::from_iter(
                numbers(0..50_000).map(|n| n.map(|n| format!("the text number {n}"))),
            )),
        ];
        for array in arrays {
            let mut whole = Sketch::new(10);
            assert!(whole.add_values(&array));
            assert!(whole.estimate().abs_diff(5000) < 400, "{}", whole.estimate());
            let mut pieces = Sketch::new(10);
            for start in (0..50_000).step_by(1000) {
                pieces.add_values(&array.slice(start, 1000));
            }
            assert_eq!(whole, pieces, "the same however they come");
        }
    }

    #[test]
    fn no_bytes_make_a_wrong_sketch() {
        assert_eq!(Sketch::from_ranks(&[0; 1000]), None);
        assert_eq!(Sketch::from_ranks(&[]), None);
        assert_eq!(Sketch::from_ranks(&[200; 1024]), None);
        assert!(Sketch::from_ranks(&[55; 1024]).is_some());
    }
}
