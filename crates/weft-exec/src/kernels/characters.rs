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
    if x86::masks_bytes() {
        // SAFETY: the processor has what it is compiled for.
        return unsafe { x86::count(texts) };
    } else if x86::counts_bits() {
        // SAFETY: as above.
        return unsafe { x86::count_halves(texts) };
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
    /// Loops here, and no closures that are called: those would not be compiled for what the caller is.
    #[inline(always)]
    fn count(mut self, characters: impl Fn(&[u8]) -> usize) {
        match self.rows {
            Selected::All(rows) => {
                for row in 0..rows {
                    self.count_one(row, &characters);
                }
            }
            Selected::Some(rows) => {
                for row in rows {
                    self.count_one((*row).into(), &characters);
                }
            }
        }
    }

    #[inline(always)]
    fn count_one(&mut self, row: usize, characters: &impl Fn(&[u8]) -> usize) {
        if let Some(next) = self.strings.get(row + AHEAD) {
            prefetch(next);
        }
        let words = self.validity.words();
        if words.is_none_or(|words| words[row / 64] >> (row % 64) & 1 == 1) {
            // SAFETY: the string is selected and not null, so that it is alive.
            self.values[row] = characters(unsafe { self.strings[row].bytes() }) as i32;
        }
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

    /// Bytes of a smaller one.
    const HALF: usize = 16;

    /// True if the processor can load some bytes of a vector.
    #[inline]
    pub(super) fn masks_bytes() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f") && has!("avx512bw") && counts_bits()
    }

    /// True if it can count bits.
    #[inline]
    pub(super) fn counts_bits() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt") && has!("lzcnt")
    }

    /// Counts all of them, by smaller vectors, the last of which may overlap the one before.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn count_halves(texts: Texts<'_>) {
        texts.count(|text| {
            let Some(last) = text.last_chunk::<HALF>() else { return super::characters(text) };
            let beginning = |bytes: &[u8; HALF]| {
                // SAFETY: there are so many bytes.
                let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
                let begins = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(CONTINUING_MAX));
                _mm_movemask_epi8(begins) as u32
            };
            let vectors = text.as_chunks::<HALF>().0;
            let found =
                vectors.iter().fold(0, |found, vector| found + beginning(vector).count_ones());
            // Of the last one, what was in none of them.
            let rest = beginning(last) >> (HALF - text.len() % HALF);
            (found + rest.count_ones()) as usize
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_count_the_same() {
        let text: String = "aä€😀 xyz".chars().cycle().take(300).collect();
        let ends: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for start in ends.iter().take(9) {
            let texts: Vec<&str> =
                ends.iter().filter(|end| *end >= start).map(|end| &text[*start..*end]).collect();
            let strings: Vec<Str> = texts.iter().map(|text| Str::new(text.as_bytes())).collect();
            let expected: Vec<i32> = texts.iter().map(|text| text.chars().count() as i32).collect();
            let counted = |count: fn(Texts<'_>)| {
                let (mut values, validity) = (vec![0; strings.len()], Validity::default());
                let rows = Selected::All(strings.len());
                count(Texts { rows, strings: &strings, validity: &validity, values: &mut values });
                values
            };
            assert_eq!(counted(|texts| dispatch(texts)), expected);
            assert_eq!(counted(|texts| texts.count(characters)), expected);
            #[cfg(target_arch = "x86_64")]
            if x86::counts_bits() {
                // SAFETY: the processor has what it is compiled for.
                assert_eq!(counted(|texts| unsafe { x86::count_halves(texts) }), expected);
            }
            #[cfg(target_arch = "x86_64")]
            if x86::masks_bytes() {
                // SAFETY: as above.
                assert_eq!(counted(|texts| unsafe { x86::count(texts) }), expected);
            }
        }
    }
}
