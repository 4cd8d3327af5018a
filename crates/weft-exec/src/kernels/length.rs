//! Lengths of texts.

use weft_codec::dispatch::{Kernel, dispatch};
use weft_rt::prefetch_line;

use crate::program::{LengthUnit, Register};
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::validity::Validity;

/// Bytes whose characters are counted at once, in as many counters of 8 bits.
const PIECE: usize = 64;

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
        match self.rows {
            Selected::All(rows) => (0..rows).for_each(|row| self.count(row)),
            Selected::Some(rows) => {
                for row in rows {
                    self.count(usize::from(*row));
                }
            }
        }
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
    let begins = |byte: &u8| u8::from((*byte as i8) >= -0x40);
    let mut pieces = text.chunks_exact(PIECE);
    let whole: usize =
        pieces.by_ref().map(|piece| usize::from(piece.iter().map(begins).sum::<u8>())).sum();
    whole + usize::from(pieces.remainder().iter().map(begins).sum::<u8>())
}
