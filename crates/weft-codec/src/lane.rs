//! The unsigned integers that everything of fixed width is packed as, and the kernels over 1,024 of
//! them. Signed integers and floats go through their bits: all arithmetic here wraps.

use std::hash::Hash;
use std::mem::MaybeUninit;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use fastlanes::{BitPacking, FL_ORDER};
use weft_rt::prefetch_line;

/// How many values one bit-packed chunk holds.
pub(crate) const CHUNK: usize = 1024;

/// Bytes of a row of FastLanes' order.
const ROW_BYTES: usize = CHUNK / 8;

/// An unsigned integer of 8 to 64 bits.
pub(crate) trait Lane:
    BitPacking + AnyBitPattern + NoUninit + Zeroable + Copy + Ord + Hash + 'static
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
    /// Unpacks as many values as fit into [`ROW_BYTES`], of `width` bits from bit `shift` of the words of `packed` on, and
    /// adds `base`.
    fn unpack_row(
        packed: &[u8],
        shift: usize,
        width: usize,
        base: Self,
        out: &mut [MaybeUninit<Self>],
    );
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
            #[inline(always)]
            fn unpack_row(
                packed: &[u8],
                shift: usize,
                width: usize,
                base: Self,
                out: &mut [MaybeUninit<Self>],
            ) {
                const LANES: usize = ROW_BYTES / size_of::<$t>();
                let mask = Self::greatest(width);
                // Whole arrays, which become vectors.
                let low: [$t; LANES] = bytemuck::pod_read_unaligned(&packed[..ROW_BYTES]);
                let values = if shift + width <= <Self as Lane>::BITS {
                    low.map(|low| ((low >> shift) & mask).plus(base))
                } else {
                    let rest = <Self as Lane>::BITS - shift;
                    let high = &packed[ROW_BYTES..2 * ROW_BYTES];
                    let high: [$t; LANES] = bytemuck::pod_read_unaligned(high);
                    std::array::from_fn(|at| (((low[at] >> shift) | (high[at] << rest)) & mask).plus(base))
                };
                out.copy_from_slice(&values.map(MaybeUninit::new));
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

/// Unpacks a chunk and adds `base`. `packed` has [`packed_bytes`] of a width of at most `T::BITS`, and need not be
/// aligned. To be called within a [`Kernel`](crate::dispatch::Kernel).
///
/// A row of FastLanes' order is as many values, one after the other, as a word of theirs has bits in 1,024: all of them
/// are shifted by the same number of bits.
#[inline(always)]
pub(crate) fn unpack<'a, T: Lane>(
    packed: &[u8],
    width: usize,
    base: T,
    out: &'a mut [MaybeUninit<T>; CHUNK],
) -> &'a mut [T; CHUNK] {
    assert!(width <= T::BITS && packed.len() == packed_bytes(width), "a whole chunk");
    let lanes = CHUNK / T::BITS;
    for row in 0..T::BITS {
        let (word, shift) = (row * width / T::BITS, row * width % T::BITS);
        let values = &mut out[FL_ORDER[row / 8] * 16 + row % 8 * 128..][..lanes];
        if width == 0 {
            values.fill(MaybeUninit::new(base));
        } else {
            T::unpack_row(&packed[word * ROW_BYTES..], shift, width, base, values);
        }
    }
    // SAFETY: each row has written its values, and the rows are all of the chunk.
    unsafe { &mut *std::ptr::from_mut(out).cast::<[T; CHUNK]>() }
}

/// Room for a chunk.
pub(crate) fn room<T: Copy>() -> [MaybeUninit<T>; CHUNK] {
    [const { MaybeUninit::uninit() }; CHUNK]
}

/// Where value `index` (below 1,024) of a chunk lies, as FastLanes orders it.
struct Place {
    /// Byte offsets of the value's word, and of the one that holds its upper bits: often the same.
    words: [usize; 2],
    /// The first of its bits in the lower word.
    shift: usize,
}

impl Place {
    #[inline(always)]
    fn of<T: Lane>(width: usize, index: usize) -> Place {
        assert!(index < CHUNK && width <= T::BITS, "an index within the chunk");
        let lanes = CHUNK / T::BITS;
        let (s, within) = (index / 128, index % 128);
        let row = FL_ORDER[within / lanes * lanes / 16] * 8 + s;
        let (word, shift) = (row * width / T::BITS, row * width % T::BITS);
        let low = word * ROW_BYTES + within % lanes * size_of::<T>();
        let high = low + ROW_BYTES * usize::from(shift + width > T::BITS);
        Place { words: [low, high], shift }
    }
}

/// Asks for the cache lines that [`unpack_one`] will read.
#[inline(always)]
pub(crate) fn prefetch_one<T: Lane>(packed: &[u8], width: usize, index: usize) {
    for word in Place::of::<T>(width, index).words {
        prefetch_line(packed.as_ptr().wrapping_add(word));
    }
}

/// Unpacks value `index` (below 1,024) of a chunk: of the value's two words, neither of which need be aligned.
#[inline(always)]
pub(crate) fn unpack_one<T: Lane>(packed: &[u8], width: usize, index: usize) -> T {
    if width == 0 {
        return T::zeroed();
    }
    let Place { words, shift } = Place::of::<T>(width, index);
    let [low, high] = words
        .map(|word| bytemuck::pod_read_unaligned::<T>(&packed[word..][..size_of::<T>()]).to_u64());
    // Where all bits lie in one word, what is added lies above them. In two steps, as it may be shifted by all 64 bits.
    let value = low >> shift | high << 1 << (T::BITS - 1 - shift);
    T::from_u64(value & (u64::MAX >> (64 - width)))
}
