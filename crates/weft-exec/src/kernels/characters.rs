//! How many characters texts have, without a branch that depends on the text where the processor can do that.

use weft_codec::dispatch::{Kernel, dispatch};
use weft_rt::prefetch_line;

use crate::selection::Selected;
use crate::text::Str;
use crate::validity::Validity;

/// Bytes whose characters are counted at once.
const WORD: usize = 8;

/// Of each of them, the first bit.
const FIRST_BITS: u64 = 0x8080_8080_8080_8080;

const LINE_BYTES: usize = 64;

/// Rows after which the text is wanted that is on its way from memory.
const AHEAD: usize = 16;

/// Sets the `values` of `rows` to the characters of their `strings`, in UTF-8. Those of nulls are any.
pub(crate) fn count(rows: Selected<'_>, strings: &[Str], validity: &Validity, values: &mut [i32]) {
    let texts = Texts { rows, strings, validity, values };
    #[cfg(target_arch = "x86_64")]
    if x86::is_possible() {
        // SAFETY: the processor has what it is compiled for.
        return unsafe { x86::count(texts) };
    }
    dispatch(texts);
}

struct Texts<'a> {
    rows: Selected<'a>,
    strings: &'a [Str],
    validity: &'a Validity,
    values: &'a mut [i32],
}

impl Kernel for Texts<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.count(characters);
    }
}

impl Texts<'_> {
    #[inline(always)]
    fn count(self, characters: impl Fn(&[u8]) -> usize) {
        let words = self.validity.words();
        self.rows.for_each(|row| {
            if let Some(next) = self.strings.get(row + AHEAD) {
                prefetch(next);
            }
            if words.is_none_or(|words| words[row / 64] >> (row % 64) & 1 == 1) {
                // SAFETY: the string is selected and not null, so that it is alive.
                self.values[row] = characters(unsafe { self.strings[row].bytes() }) as i32;
            }
        });
    }
}

/// Asks for the lines of the cache with a text, but for those in the middle of a very long one, which the processor finds
/// itself. Whatever lies there, if the row is not selected.
#[inline(always)]
fn prefetch(text: &Str) {
    let view = std::ptr::from_ref(text).cast::<u8>();
    // Of a short text, the view, which is in the caches: no branch tells them apart.
    let start = if text.is_inline() { view } else { text.address() };
    let last = text.len().saturating_sub(1);
    prefetch_line(start);
    prefetch_line(start.wrapping_add(last));
    if last > LINE_BYTES {
        prefetch_line(start.wrapping_add(LINE_BYTES));
        prefetch_line(start.wrapping_add(last.min(2 * LINE_BYTES)));
    }
}

/// Characters of a text: bytes that continue none.
#[inline(always)]
fn characters(text: &[u8]) -> usize {
    // Of those, the first bit is set and the second is not.
    let continuing = |word: u64| (word & !(word << 1) & FIRST_BITS).count_ones() as usize;
    let Some(last) = text.last_chunk::<WORD>() else {
        let word = text.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        return text.len() - continuing(word);
    };
    let mut found = 0;
    for word in text.as_chunks::<WORD>().0 {
        found += continuing(u64::from_le_bytes(*word));
    }
    // Of the last word, what was in none of them.
    let rest = text.len() % WORD * 8;
    let last = u64::from_le_bytes(*last).checked_shr((u64::BITS as usize - rest) as u32);
    text.len() - found - continuing(last.unwrap_or(0))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Texts;

    /// Bytes of a vector.
    const VECTOR: usize = 64;

    /// The greatest byte, as a signed number, of those that continue a character.
    const CONTINUING_MAX: i8 = 0xBF_u8 as i8;

    /// True if the processor can do it.
    #[inline]
    pub(super) fn is_possible() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f") && has!("avx512bw") && has!("bmi2") && has!("popcnt")
    }

    /// Counts all of them.
    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn count(texts: Texts<'_>) {
        // Masked loads touch no byte that is not of the text, so that a short one is one load, however long it is.
        texts.count(|text| {
            let beginning = |bytes: &[u8]| {
                let mask = u64::MAX >> (VECTOR - bytes.len());
                // SAFETY: those bytes are the slice's, and others are not touched.
                let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) };
                _mm512_mask_cmpgt_epi8_mask(mask, bytes, _mm512_set1_epi8(CONTINUING_MAX))
                    .count_ones() as usize
            };
            let (vectors, rest) = text.as_chunks::<VECTOR>();
            let found = if rest.is_empty() { 0 } else { beginning(rest) };
            vectors.iter().fold(found, |found, vector| found + beginning(vector))
        });
    }
}
