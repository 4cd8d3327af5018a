//! Lengths of texts.

use weft_codec::dispatch::{Kernel, dispatch};
use weft_rt::prefetch_line;

use crate::program::{LengthUnit, Register};
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::validity::Validity;

/// Bytes whose characters are counted at once.
const WORD: usize = 8;

/// Of each of them, the first bit.
const FIRST_BITS: u64 = 0x8080_8080_8080_8080;

/// Of a text that is wanted soon, the lines of the cache that are asked for. The processor finds further ones itself.
const LINES: usize = 3;
const LINE_BYTES: usize = 64;

/// Rows after which the text is wanted that is on its way from memory.
const AHEAD: usize = 16;

/// `out` is the length of `a`.
pub(crate) fn run(registers: &mut Registers, a: Register, unit: LengthUnit, out: Register) {
    registers.write(out, |registers, out| {
        let vector = registers.vector(a);
        out.validity.copy_from(&vector.validity);
        let strings = vector.values::<Str>();
        match unit {
            LengthUnit::Bytes => {
                let values = out.values_mut::<i64>();
                registers.for_each_valid(a, |row| values[row] = strings[row].len() as i64);
            }
            LengthUnit::Characters => {
                let (rows, values) = (registers.selected(), out.values_mut::<i32>());
                dispatch(Characters { rows, strings, validity: &vector.validity, values });
            }
        }
    });
}

struct Characters<'a> {
    rows: Selected<'a>,
    strings: &'a [Str],
    validity: &'a Validity,
    values: &'a mut [i32],
}

impl Kernel for Characters<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let rows = self.rows;
        rows.for_each(|row| self.count(row));
    }
}

impl Characters<'_> {
    #[inline(always)]
    fn count(&mut self, row: usize) {
        if let Some(next) = self.strings.get(row + AHEAD).filter(|next| !next.is_inline()) {
            // Whatever lies there, if that row is not selected.
            for line in 0..next.len().div_ceil(LINE_BYTES).min(LINES) {
                prefetch_line(next.address().wrapping_add(line * LINE_BYTES));
            }
        }
        let words = self.validity.words();
        if words.is_none_or(|words| words[row / 64] >> (row % 64) & 1 == 1) {
            // SAFETY: the string is selected and not null, so that it is alive.
            self.values[row] = characters(unsafe { self.strings[row].bytes() }) as i32;
        }
    }
}

/// Characters of a text in UTF-8: bytes that continue none.
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
