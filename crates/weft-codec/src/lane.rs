//! The unsigned integers that everything of fixed width is packed as, and the kernels over 1,024 of
//! them. Signed integers and floats go through their bits: all arithmetic here wraps.

use std::hash::Hash;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use fastlanes::{BitPacking, FL_ORDER, FoR};

/// How many values one bit-packed chunk holds.
pub(crate) const CHUNK: usize = 1024;

/// An unsigned integer of 8 to 64 bits.
pub(crate) trait Lane:
    FoR + BitPacking + AnyBitPattern + NoUninit + Zeroable + Copy + Ord + Hash + 'static
{
    /// Width in bits.
    const BITS: usize = size_of::<Self>() * 8;
    /// Wrapping sum.
    fn plus(self, other: Self) -> Self;
    /// Wrapping difference.
    fn minus(self, other: Self) -> Self;
    /// Bits needed to write this number.
    fn width(self) -> usize;
    /// Flips the sign bit: the order of signed integers becomes the order of unsigned ones.
    fn flip_sign(self) -> Self;
    /// One.
    const ONE: Self;
    /// Whether the sign bit is set.
    fn is_negative(self) -> bool;
    /// The greatest number of `width` bits.
    fn greatest(width: usize) -> Self;
    /// The least and the greatest number of this width.
    fn domain(signed: bool) -> (i128, i128);
    /// The lowest bits of a number.
    fn wrap(value: i128) -> Self;
    /// The number, if its highest bit is its sign.
    fn signed(self) -> i128;
    /// The number in 64 bits.
    fn to_u64(self) -> u64;
    /// The lowest bits of 64.
    fn from_u64(value: u64) -> Self;
}

macro_rules! lane {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn width(self) -> usize {
                (<$t>::BITS - self.leading_zeros()) as usize
            }
            #[inline(always)]
            fn flip_sign(self) -> Self {
                self ^ (1 << (<$t>::BITS - 1))
            }
            const ONE: Self = 1;
            #[inline(always)]
            fn is_negative(self) -> bool {
                self >> (<$t>::BITS - 1) == 1
            }
            #[inline(always)]
            fn greatest(width: usize) -> Self {
                <$t>::MAX.checked_shr(<$t>::BITS - width as u32).unwrap_or(0)
            }
            fn domain(signed: bool) -> (i128, i128) {
                let max = i128::from(<$t>::MAX);
                if signed { (-(max / 2) - 1, max / 2) } else { (0, max) }
            }
            #[inline(always)]
            fn wrap(value: i128) -> Self {
                value as $t
            }
            fn signed(self) -> i128 {
                let (min, _) = Self::domain(true);
                i128::from(self.flip_sign()) + min
            }
            #[inline(always)]
            fn to_u64(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                value as $t
            }
        }
    )*};
}
lane!(u8, u16, u32, u64);

/// Bytes of one packed chunk.
pub(crate) fn packed_bytes(width: usize) -> usize {
    CHUNK / 8 * width
}

/// Appends `values` minus `base`, `width` bits each.
pub(crate) fn pack<T: Lane>(values: &[T; CHUNK], base: T, width: usize, out: &mut Vec<u8>) {
    assert!(width <= T::BITS, "a width of the type");
    let differences: [T; CHUNK] = std::array::from_fn(|i| values[i].minus(base));
    let mut packed = [T::zeroed(); CHUNK];
    let words = packed_bytes(width) / size_of::<T>();
    // SAFETY: the input has 1,024 values, the output the 1024 · width / BITS words required.
    unsafe { T::unchecked_pack(width, &differences, &mut packed[..words]) };
    out.extend_from_slice(bytemuck::cast_slice(&packed[..words]));
}

/// Unpacks a chunk and adds `base`. `packed` must have [`packed_bytes`] of a width of at most
/// `T::BITS`.
pub(crate) fn unpack<T: Lane>(packed: &[u8], width: usize, base: T, out: &mut [T; CHUNK]) {
    with_words(packed, width, |words: &[T]| {
        // SAFETY: `with_words` checked the length of the input; the output has 1,024 values.
        unsafe { T::unchecked_unfor_pack(width, words, base, out) }
    });
}

/// Unpacks value `index` (below 1,024) of a chunk, as FastLanes orders it: of the value's two words,
/// neither of which need be aligned.
pub(crate) fn unpack_one<T: Lane>(packed: &[u8], width: usize, index: usize) -> T {
    assert!(index < CHUNK && width <= T::BITS, "an index within the chunk");
    if width == 0 {
        return T::zeroed();
    }
    let lanes = CHUNK / T::BITS;
    let (s, within) = (index / 128, index % 128);
    let row = FL_ORDER[within / lanes * lanes / 16] * 8 + s;
    let (word, shift) = (row * width / T::BITS, row * width % T::BITS);
    let word_at = |word: usize| {
        let at = (word * lanes + within % lanes) * size_of::<T>();
        bytemuck::pod_read_unaligned::<T>(&packed[at..][..size_of::<T>()]).to_u64()
    };
    let mut value = word_at(word) >> shift;
    if shift + width > T::BITS {
        value |= word_at(word + 1) << (T::BITS - shift);
    }
    T::from_u64(value & (u64::MAX >> (64 - width)))
}

/// Hands `packed` on as aligned words, copied only when it is not aligned.
fn with_words<T: Lane, R>(packed: &[u8], width: usize, then: impl FnOnce(&[T]) -> R) -> R {
    assert!(width <= T::BITS && packed.len() == packed_bytes(width), "a whole chunk");
    if let Ok(words) = bytemuck::try_cast_slice(packed) {
        return then(words);
    }
    let mut words = [T::zeroed(); CHUNK];
    let words = &mut words[..packed.len() / size_of::<T>()];
    bytemuck::cast_slice_mut::<T, u8>(words).copy_from_slice(packed);
    then(words)
}
