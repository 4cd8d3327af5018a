//! Truth values between their two forms: a byte each in vectors, a bit each where many are combined at once.

use bytemuck::cast_slice;

use crate::lane::Bool;
use crate::vector::VECTOR_ROWS_MAX;

/// Words of a bit for each row of a vector.
pub(crate) const WORDS: usize = VECTOR_ROWS_MAX / 64;

/// A bit for each row.
pub(crate) type Bits = [u64; WORDS];

/// A bit for each byte, set where that is 1. Bits of further rows say nothing.
pub(crate) fn pack(bytes: &[Bool], rows: usize) -> Bits {
    let mut bits = [0; WORDS];
    let (chunks, rest) = bytes[..rows].as_chunks::<64>();
    for (word, chunk) in bits.iter_mut().zip(chunks) {
        *word = pack_64(chunk);
    }
    if !rest.is_empty() {
        let mut chunk = [Bool(0); 64];
        chunk[..rest.len()].copy_from_slice(rest);
        bits[chunks.len()] = pack_64(&chunk);
    }
    bits
}

#[inline(always)]
fn pack_64(bytes: &[Bool; 64]) -> u64 {
    // Each multiplication gathers the lowest bits of eight bytes in the highest byte.
    let (eights, _) = cast_slice::<Bool, u8>(bytes).as_chunks::<8>();
    eights.iter().rev().fold(0, |word, eight| {
        let ones = u64::from_le_bytes(*eight) & 0x0101_0101_0101_0101;
        word << 8 | ones.wrapping_mul(0x0102_0408_1020_4080) >> 56
    })
}

/// A byte for each bit.
pub(crate) fn unpack(bits: &Bits, rows: usize, bytes: &mut [Bool]) {
    let bytes = bytemuck::cast_slice_mut::<Bool, u8>(&mut bytes[..rows]);
    for (word, chunk) in bits.iter().zip(bytes.chunks_mut(64)) {
        if let Ok(chunk) = <&mut [u8; 64]>::try_from(&mut *chunk) {
            let (eights, _) = chunk.as_chunks_mut::<8>();
            for (number, eight) in eights.iter_mut().enumerate() {
                // Each bit of the byte in a byte of its own, then moved to the lowest place there.
                let spread = (word >> (8 * number) & 0xff).wrapping_mul(0x0101_0101_0101_0101)
                    & 0x8040_2010_0804_0201;
                let ones = spread + 0x7f7f_7f7f_7f7f_7f7f;
                *eight = (ones >> 7 & 0x0101_0101_0101_0101).to_le_bytes();
            }
        } else {
            for (bit, byte) in chunk.iter_mut().enumerate() {
                *byte = (word >> bit & 1) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes_say_the_same() {
        let mut random = fastrand::Rng::with_seed(11);
        for rows in [0, 1, 7, 8, 63, 64, 65, 130, 2047, VECTOR_ROWS_MAX] {
            let bytes: Vec<Bool> = (0..rows).map(|_| random.bool().into()).collect();
            let bits = pack(&bytes, rows);
            for (row, byte) in bytes.iter().enumerate() {
                assert_eq!(bits[row / 64] >> (row % 64) & 1 == 1, byte.get(), "{rows} {row}");
            }
            let mut back = vec![Bool(7); rows];
            unpack(&bits, rows, &mut back);
            assert_eq!(back, bytes);
        }
    }
}
