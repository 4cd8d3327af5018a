//! Ranges of packed integers, found without unpacking these to memory first: a row of FastLanes' order is shifted, compared and
//! left as a bit per value, all in registers. For processors with AVX-512 or AVX2; others unpack a chunk, then compare.

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

/// What a processor does it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vectors {
    /// Vectors of 512 bits, and masks.
    Avx512,
    /// Vectors of 256 bits.
    Avx2,
}

impl Vectors {
    /// That of this processor, if it has any.
    #[inline]
    pub(crate) fn detected() -> Option<Vectors> {
        Vectors::all().find(|vectors| vectors.is_possible())
    }

    fn all() -> impl Iterator<Item = Vectors> {
        [Vectors::Avx512, Vectors::Avx2].into_iter()
    }

    #[inline]
    fn is_possible(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            match self {
                Vectors::Avx512 => has!("avx512f") && has!("avx512bw"),
                Vectors::Avx2 => has!("avx2"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

/// A bit per value of a chunk, whose `width` is not 0: whether it lies in the range. `None` for lanes of 8 bits.
///
/// # Panics
/// If `packed` is no chunk of that width, or the processor has no such vectors.
#[inline]
pub(crate) fn chunk<T: Lane>(
    vectors: Vectors,
    packed: &[u8],
    width: usize,
    range: Range<T>,
) -> Option<[u64; CHUNK / 64]> {
    assert!(vectors.is_possible(), "a processor with {vectors:?}");
    assert!((1..=T::BITS).contains(&width), "a width of the type");
    assert!(packed.len() == width * BITS_BYTES, "a whole chunk");
    let mut bits = [0; BITS_BYTES];
    #[cfg(target_arch = "x86_64")]
    {
        let (offset, span) = (range.offset.to_u64(), range.span.to_u64());
        let (offset16, span16) = (offset as u16, span as u16);
        let (offset32, span32) = (offset as u32, span as u32);
        let bits = &mut bits;
        // SAFETY: the processor has what they are compiled for, and the chunk all words of such a width, as was just seen.
        unsafe {
            match (T::BITS, vectors) {
                (16, Vectors::Avx512) => avx512::sixteen(packed, width, offset16, span16, bits),
                (32, Vectors::Avx512) => avx512::thirty_two(packed, width, offset32, span32, bits),
                (64, Vectors::Avx512) => avx512::sixty_four(packed, width, offset, span, bits),
                (16, Vectors::Avx2) => avx2::sixteen(packed, width, offset16, span16, bits),
                (32, Vectors::Avx2) => avx2::thirty_two(packed, width, offset32, span32, bits),
                (64, Vectors::Avx2) => avx2::sixty_four(packed, width, offset, span, bits),
                _ => return None,
            }
        }
    }
    Some(std::array::from_fn(|word| {
        u64::from_le_bytes(bits[8 * word..][..8].try_into().expect("8 bytes"))
    }))
}

/// Bytes of a row.
#[cfg(target_arch = "x86_64")]
const ROW_BYTES: usize = 128;

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use fastlanes::FL_ORDER;

    use super::{BITS_BYTES, ROW_BYTES};

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

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use fastlanes::FL_ORDER;

    use super::{BITS_BYTES, ROW_BYTES};

    /// Bytes of a vector, of which a row has four.
    const VECTOR_BYTES: usize = 32;

    macro_rules! lane {
        ($name:ident, $lane:ty, $signed:ty, $set:ident, $right:ident, $left:ident, $plus:ident, $outcome:expr, $gather:ident) => {
            /// Sets a bit per value.
            ///
            /// # Safety
            /// `packed` has `width` rows, and there is one at least.
            #[target_feature(enable = "avx2")]
            pub(super) unsafe fn $name(
                packed: &[u8],
                width: usize,
                offset: $lane,
                span: $lane,
                out: &mut [u8; BITS_BYTES],
            ) {
                const BITS: usize = <$lane>::BITS as usize;
                const LANES: usize = ROW_BYTES * 8 / BITS;
                let start = packed.as_ptr();
                let greatest = $set((<$lane>::MAX >> (BITS - width)) as $signed);
                let (offset, span) = ($set(offset as $signed), $set(span as $signed));
                for (eighth, order) in FL_ORDER[..BITS / 8].iter().enumerate() {
                    for within in 0..8 {
                        let bit = (eighth * 8 + within) * width;
                        let (word, shift) = (bit / BITS, bit % BITS);
                        let right = _mm_cvtsi64_si128(shift as i64);
                        let left = _mm_cvtsi64_si128((BITS - shift) as i64);
                        let is_split = shift + width > BITS;
                        let mut outcomes = [_mm256_setzero_si256(); 4];
                        for (quarter, outcome) in outcomes.iter_mut().enumerate() {
                            // SAFETY: both words are of the chunk's, the second one if there is a part of the value in it.
                            let load = |word: usize| unsafe {
                                let at = word * ROW_BYTES + quarter * VECTOR_BYTES;
                                _mm256_loadu_si256(start.add(at).cast())
                            };
                            let mut value = $right(load(word), right);
                            if is_split {
                                value = _mm256_or_si256(value, $left(load(word + 1), left));
                            }
                            let value = _mm256_and_si256(value, greatest);
                            *outcome = $outcome($plus(value, offset), span);
                        }
                        let place = order * 2 + within * 16;
                        out[place..][..LANES / 8]
                            .copy_from_slice(&$gather(outcomes).to_le_bytes()[..LANES / 8]);
                    }
                }
            }
        };
    }

    /// The bits of 64 outcomes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn gather_sixteen(outcomes: [__m256i; 4]) -> u64 {
        let [a, b, c, d] = outcomes;
        let half = |a, b| {
            // Halves of both are side by side.
            let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(a, b));
            u64::from(_mm256_movemask_epi8(bytes) as u32)
        };
        half(a, b) | half(c, d) << 32
    }

    /// The bits of 32.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn gather_thirty_two(outcomes: [__m256i; 4]) -> u64 {
        let [a, b, c, d] = outcomes;
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        u64::from(_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(bytes, order)) as u32)
    }

    /// The bits of 16, which say what is not within the range.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn gather_sixty_four(outcomes: [__m256i; 4]) -> u64 {
        let [a, b, c, d] =
            outcomes.map(|outcome| _mm256_movemask_pd(_mm256_castsi256_pd(outcome)) as u64);
        !(a | b << 4 | c << 8 | d << 12)
    }

    lane!(
        sixteen,
        u16,
        i16,
        _mm256_set1_epi16,
        _mm256_srl_epi16,
        _mm256_sll_epi16,
        _mm256_add_epi16,
        |sum, span| _mm256_cmpeq_epi16(_mm256_min_epu16(sum, span), sum),
        gather_sixteen
    );
    lane!(
        thirty_two,
        u32,
        i32,
        _mm256_set1_epi32,
        _mm256_srl_epi32,
        _mm256_sll_epi32,
        _mm256_add_epi32,
        |sum, span| _mm256_cmpeq_epi32(_mm256_min_epu32(sum, span), sum),
        gather_thirty_two
    );

    /// Sets a bit per value. There is no comparison but one with signs: the highest bit of both sides is another one.
    ///
    /// # Safety
    /// As [`of_signed`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn sixty_four(
        packed: &[u8],
        width: usize,
        offset: u64,
        span: u64,
        out: &mut [u8; BITS_BYTES],
    ) {
        const SIGN: u64 = 1 << 63;
        // SAFETY: as promised.
        unsafe { of_signed(packed, width, offset.wrapping_add(SIGN), span ^ SIGN, out) }
    }

    lane!(
        of_signed,
        u64,
        i64,
        _mm256_set1_epi64x,
        _mm256_srl_epi64,
        _mm256_sll_epi64,
        _mm256_add_epi64,
        |sum, span| _mm256_cmpgt_epi64(sum, span),
        gather_sixty_four
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{self, pack};

    fn check<T: Lane>(vectors: Vectors) {
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
                (values[2], T::greatest(width)),
                (values[3].plus(T::ONE), T::from_u64(u64::MAX)),
                (base.minus(T::ONE), T::ONE),
                (base.plus(T::greatest(width)), T::ONE),
                (base.minus(number()), T::from_u64(u64::MAX >> 1)),
            ] {
                let range = Range { offset: base.minus(low), span };
                let bits = chunk(vectors, &packed, width, range).expect("bits");
                for (at, value) in values.iter().enumerate() {
                    let bit = bits[at / 64] >> (at % 64) & 1 == 1;
                    assert_eq!(bit, value.minus(low) <= span, "value {at} of {width} bits");
                }
            }
        }
    }

    #[test]
    fn ranges_are_those_of_unpacked_values() {
        for vectors in Vectors::all().filter(|vectors| vectors.is_possible()) {
            check::<u16>(vectors);
            check::<u32>(vectors);
            check::<u64>(vectors);
        }
    }
}
