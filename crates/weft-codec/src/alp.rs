//! The arithmetic of ALP (Afroozeh et al., SIGMOD 2024, §3.1): a decimal float is an integer times a power
//! of ten, found by multiplying with a large power and dividing by a smaller one.
//!
//! Rounding adds a number so large that no bits are left for a fraction; the integer is then the
//! difference of the bits, which needs no conversion and vectorizes.

use bytemuck::{Pod, Zeroable};

use crate::lane::Lane;

/// Powers of ten: a value is multiplied by that of `exponent` and divided by that of `factor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exponents {
    pub(crate) exponent: u8,
    pub(crate) factor: u8,
}

/// A float with the integer that holds its bits.
pub(crate) trait Real: Pod {
    /// The unsigned integer of the same width.
    type Bits: Lane + Pod;
    /// Powers of ten that are exact.
    const POWERS: usize;
    /// The bits.
    fn bits(self) -> Self::Bits;
    /// The nearest integer to the value in powers of ten, if that is not too large; else anything.
    fn shrink(self, exponents: Exponents) -> Self::Bits;
    /// The value of such an integer.
    fn grow(integer: Self::Bits, exponents: Exponents) -> Self;
}

macro_rules! real {
    ($real:ty, $bits:ty, $round:expr, [$($power:literal),*]) => {
        impl Real for $real {
            type Bits = $bits;
            const POWERS: usize = [$($power),*].len();

            #[inline(always)]
            fn bits(self) -> $bits {
                self.to_bits()
            }

            #[inline(always)]
            fn shrink(self, exponents: Exponents) -> $bits {
                const TENS: [$real; <$real>::POWERS] = [$($power),*];
                const ROUND: $real = $round;
                let up = TENS[usize::from(exponents.exponent)];
                let down = 1.0 / TENS[usize::from(exponents.factor)];
                (self * up * down + ROUND).to_bits().wrapping_sub(ROUND.to_bits())
            }

            #[inline(always)]
            fn grow(integer: $bits, exponents: Exponents) -> $real {
                const TENS: [$real; <$real>::POWERS] = [$($power),*];
                const ROUND: $real = $round;
                let up = TENS[usize::from(exponents.factor)];
                let down = 1.0 / TENS[usize::from(exponents.exponent)];
                (<$real>::from_bits(integer.wrapping_add(ROUND.to_bits())) - ROUND) * up * down
            }
        }
    };
}

real!(
    f64,
    u64,
    6_755_399_441_055_744.0, // 1.5 · 2^52
    [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18
    ]
);
real!(
    f32,
    u32,
    12_582_912.0, // 1.5 · 2^23
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10]
);

/// Values of the sample that exponents are chosen by.
const SAMPLE: usize = 64;

/// The exponents that make a sample smallest.
pub(crate) fn choose<F: Real>(values: &[F]) -> Exponents {
    let step = values.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<F> = values.iter().step_by(step).copied().collect();
    let exponents = (0..F::POWERS as u8).rev().flat_map(|exponent| {
        (0..=exponent).rev().map(move |factor| Exponents { exponent, factor })
    });
    let least = exponents.min_by_key(|&exponents| bits_of(&sample, exponents));
    least.unwrap_or(Exponents { exponent: 0, factor: 0 })
}

/// Bits that a sample takes: those of the range of the integers, each, and more for exceptions.
fn bits_of<F: Real>(sample: &[F], exponents: Exponents) -> usize {
    let (mut least, mut greatest, mut exceptions) = (None, None, 0);
    for &value in sample {
        let integer = value.shrink(exponents);
        if F::grow(integer, exponents).bits() == value.bits() {
            let ordered = integer.flip_sign();
            least = Some(least.map_or(ordered, |least: F::Bits| least.min(ordered)));
            greatest = Some(greatest.map_or(ordered, |greatest: F::Bits| greatest.max(ordered)));
        } else {
            exceptions += 1;
        }
    }
    let range = match (least, greatest) {
        (Some(least), Some(greatest)) => greatest.minus(least).width(),
        _ => 0,
    };
    sample.len() * range + exceptions * (16 + F::Bits::BITS)
}

/// The integers of all values, and the rows of those that do not come back, whose integer is that of the
/// value before (of the first ones, after).
pub(crate) fn shrink<F: Real>(values: &[F], exponents: Exponents) -> (Vec<F::Bits>, Vec<u16>) {
    let mut integers: Vec<F::Bits> = values.iter().map(|value| value.shrink(exponents)).collect();
    let comes_back = |integer, value: &F| F::grow(integer, exponents).bits() == value.bits();
    let first = integers.iter().zip(values).find(|(integer, value)| comes_back(**integer, value));
    let mut last = first.map_or(F::Bits::zeroed(), |(integer, _)| *integer);
    let mut exceptions = Vec::new();
    for (row, (integer, value)) in integers.iter_mut().zip(values).enumerate() {
        if comes_back(*integer, value) {
            last = *integer;
        } else {
            exceptions.push(row as u16);
            *integer = last;
        }
    }
    (integers, exceptions)
}
