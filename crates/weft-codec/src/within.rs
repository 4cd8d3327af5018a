//! Ranges of packed integers, found without unpacking these to memory first: a row of FastLanes' order is shifted, compared and
//! left as a bit per value, all in registers. For processors with AVX-512; others unpack a chunk, then compare.

use crate::lane::{CHUNK, Lane};

/// Bytes of the bits of a chunk.
const BITS_BYTES: usize = CHUNK / 8;

/// A range that packed values are put to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<T> {
    /// What is added to a packed value before it is compared: it wraps around.
    pub(crate) offset: T,
    /// The greatest sum within the range.
    pub(crate) span: T,
}

/// True if the processor can do it.
#[inline]
pub(crate) fn is_possible() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f") && has!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A bit per value of a chunk, whose `width` is not 0: whether it lies in the range. `None` for lanes of 8 bits.
///
/// # Panics
/// If `packed` is no chunk of that width, or this is not possible ([`is_possible`]).
#[inline]
pub(crate) fn chunk<T: Lane>(
    packed: &[u8],
    width: usize,
    range: Range<T>,
) -> Option<[u64; CHUNK / 64]> {
    assert!(is_possible(), "a processor with AVX-512");
    assert!((1..=T::BITS).contains(&width), "a width of the type");
    assert!(packed.len() == width * BITS_BYTES, "a whole chunk");
    let mut bits = [0; BITS_BYTES];
    #[cfg(target_arch = "x86_64")]
    {
        let (offset, span) = (range.offset.to_u64(), range.span.to_u64());
        // SAFETY: the processor has what they are compiled for, and the chunk all words of such a width, as was just seen.
        unsafe {
            match T::BITS {
                16 => x86::sixteen(packed, width, offset as u16, span as u16, &mut bits),
                32 => x86::thirty_two(packed, width, offset as u32, span as u32, &mut bits),
                64 => x86::sixty_four(packed, width, offset, span, &mut bits),
                _ => return None,
            }
        }
    }
    Some(std::array::from_fn(|word| {
        u64::from_le_bytes(bits[8 * word..][..8].try_into().expect("8 bytes"))
    }))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use fastlanes::FL_ORDER;

    use super::BITS_BYTES;

    /// Bytes of a row.
    const ROW_BYTES: usize = 128;
    /// Bytes of a vector, of which a row has two.
    const VECTOR_BYTES: usize = 64;

    macro_rules! lane {
        ($name:ident, $lane:ty, $signed:ty, $mask:ty, $set:ident, $right:ident, $left:ident, $plus:ident, $at_most:ident) => {
            /// Sets a bit per value.
            ///
            /// # Safety
            /// `packed` has `width` rows, and there is one at least.
            #[target_feature(enable = "avx512f,avx512bw")]
            pub(super) unsafe fn $name(
                packed: &[u8],
                width: usize,
                offset: $lane,
                span: $lane,
                out: &mut [u8; BITS_BYTES],
            ) {
                const BITS: usize = <$lane>::BITS as usize;
                const MASK_BYTES: usize = size_of::<$mask>();
                let start = packed.as_ptr();
                let greatest = $set((<$lane>::MAX >> (BITS - width)) as $signed);
                let (offset, span) = ($set(offset as $signed), $set(span as $signed));
                for (eighth, order) in FL_ORDER[..BITS / 8].iter().enumerate() {
                    for within in 0..8 {
                        let bit = (eighth * 8 + within) * width;
                        let (word, shift) = (bit / BITS, bit % BITS);
                        // Of a value that lies in two words, the second; what comes of another one is cut off.
                        let next = (word + 1).min(width - 1);
                        let right = _mm_cvtsi64_si128(shift as i64);
                        let left = _mm_cvtsi64_si128((BITS - shift) as i64);
                        let place = order * 2 + within * 16;
                        for half in 0..2 {
                            let at = half * VECTOR_BYTES;
                            // SAFETY: both words are of the chunk's.
                            let (low, high) = unsafe {
                                let low = start.add(word * ROW_BYTES + at);
                                let high = start.add(next * ROW_BYTES + at);
                                (_mm512_loadu_si512(low.cast()), _mm512_loadu_si512(high.cast()))
                            };
                            let value = _mm512_or_si512($right(low, right), $left(high, left));
                            let value = _mm512_and_si512(value, greatest);
                            let bits: $mask = $at_most($plus(value, offset), span);
                            out[place + half * MASK_BYTES..][..MASK_BYTES]
                                .copy_from_slice(&bits.to_le_bytes());
                        }
                    }
                }
            }
        };
    }

    lane!(
        sixteen,
        u16,
        i16,
        __mmask32,
        _mm512_set1_epi16,
        _mm512_srl_epi16,
        _mm512_sll_epi16,
        _mm512_add_epi16,
        _mm512_cmple_epu16_mask
    );
    lane!(
        thirty_two,
        u32,
        i32,
        __mmask16,
        _mm512_set1_epi32,
        _mm512_srl_epi32,
        _mm512_sll_epi32,
        _mm512_add_epi32,
        _mm512_cmple_epu32_mask
    );
    lane!(
        sixty_four,
        u64,
        i64,
        __mmask8,
        _mm512_set1_epi64,
        _mm512_srl_epi64,
        _mm512_sll_epi64,
        _mm512_add_epi64,
        _mm512_cmple_epu64_mask
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{self, pack};

    fn check<T: Lane>() {
        let mut random = fastrand::Rng::with_seed(T::BITS as u64);
        for width in 1..=T::BITS {
            let mut number = || T::from_u64(random.u64(..));
            let base = number();
            let values: [T; CHUNK] = std::array::from_fn(|_| {
                T::from_u64(number().to_u64() & T::greatest(width).to_u64()).plus(base)
            });
            let mut packed = Vec::new();
            pack(&values, base, width, &mut packed);
            let unpacked = *lane::unpack(&packed, width, base, &mut lane::room());
            assert!(unpacked == values, "{width} bits");
            for (low, span) in [
                (values[0], T::zeroed()),
                (base, T::greatest(width)),
                (values[1], T::from_u64(T::greatest(width).to_u64() / 3)),
                (number(), number()),
                (base, T::from_u64(u64::MAX)),
            ] {
                let range = Range { offset: base.minus(low), span };
                let Some(bits) = chunk(&packed, width, range) else { panic!("no bits") };
                for (at, value) in values.iter().enumerate() {
                    let bit = bits[at / 64] >> (at % 64) & 1 == 1;
                    assert_eq!(bit, value.minus(low) <= span, "value {at} of {width} bits");
                }
            }
        }
    }

    #[test]
    fn ranges_are_those_of_unpacked_values() {
        if is_possible() {
            check::<u16>();
            check::<u32>();
            check::<u64>();
        }
    }
}
