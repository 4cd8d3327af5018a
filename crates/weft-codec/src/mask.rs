//! Bit masks of rows: how many are set, and which, as the processor counts best (Arrow's own loops are compiled for any).

use arrow_buffer::BooleanBuffer;

use crate::dispatch::{Kernel, dispatch};

/// How many bits are set.
pub fn count(mask: &BooleanBuffer) -> usize {
    dispatch(Count(mask))
}

/// The numbers of the bits that are set, of which there are `count`.
///
/// # Panics
/// If there are 2^32 bits or more.
pub(crate) fn positions(mask: &BooleanBuffer, count: usize) -> Vec<u32> {
    assert!(u32::try_from(mask.len()).is_ok(), "few enough bits to be numbered");
    dispatch(Positions { mask, count })
}

struct Count<'a>(&'a BooleanBuffer);

impl Kernel for Count<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let mask = self.0;
        let mut bits = 0;
        if mask.offset().is_multiple_of(8) && mask.len().is_multiple_of(64) {
            let (words, _) = mask.values()[mask.offset() / 8..][..mask.len() / 8].as_chunks::<8>();
            for word in words {
                bits += u64::from_le_bytes(*word).count_ones();
            }
        } else {
            for word in mask.bit_chunks().iter_padded() {
                bits += word.count_ones();
            }
        }
        bits as usize
    }
}

struct Positions<'a> {
    mask: &'a BooleanBuffer,
    count: usize,
}

impl Kernel for Positions<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run(self) -> Vec<u32> {
        let mut positions = Vec::with_capacity(self.count);
        for (at, mut word) in self.mask.bit_chunks().iter_padded().enumerate() {
            while word != 0 {
                positions.push(at as u32 * 64 + word.trailing_zeros());
                word &= word - 1;
            }
        }
        positions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_that_arrow_finds() {
        let mut random = fastrand::Rng::with_seed(1);
        for one_of in [1, 2, 50] {
            let mask = BooleanBuffer::collect_bool(3000, |_| random.u32(..one_of) == 0);
            for offset in [0, 1, 8, 63, 64, 100] {
                for len in [0, 1, 63, 64, 65, 512, 2900] {
                    let mask = mask.slice(offset, len);
                    assert_eq!(count(&mask), mask.count_set_bits());
                    let found: Vec<u32> = mask.set_indices_u32().collect();
                    assert_eq!(positions(&mask, found.len()), found);
                }
            }
        }
    }
}
