//! SUBSTRING.
//!
//! A piece of a text refers to where the text lies, and copies at most twelve bytes. Where a text begins with ASCII up
//! to the piece's end its characters need not be counted; where that is within the first four bytes, as the view has
//! them, the text is not even looked at.

use crate::program::Register;
use crate::registers::Registers;
use crate::text::Str;

/// `out` is the piece of `a` from character `start`, counted from 1, of at most `length` characters.
pub(crate) fn run(
    registers: &mut Registers,
    a: Register,
    start: i64,
    length: Option<u64>,
    out: Register,
) {
    // Characters from 0, the last one not included; those before the first hold nothing.
    let end = length.map(|length| i128::from(start) - 1 + i128::from(length));
    let index = |position: i128| usize::try_from(position.max(0)).unwrap_or(usize::MAX);
    let (start, end) = (index(i128::from(start) - 1), end.map_or(usize::MAX, index));
    registers.write(out, |registers, out| {
        let vector = registers.vector(a);
        out.validity.copy_from(&vector.validity);
        let (strings, values) = (vector.values::<Str>(), out.values_mut::<Str>());
        if start >= end {
            return values[..registers.rows()].fill(Str::EMPTY);
        }
        if end <= 4 {
            return registers.for_each_valid(a, |row| {
                // SAFETY: the string is selected and not null, so that it is alive.
                values[row] = unsafe { of_first_four(&strings[row], start, end) };
            });
        }
        registers.for_each_valid(a, |row| {
            // SAFETY: as above; whoever owns the text owns the piece.
            let text = unsafe { strings[row].bytes() };
            let (start, end) = piece(text, start, end);
            values[row] = Str::within(text, start, end);
        });
    });
}

/// # Safety
/// The text must be alive.
#[inline]
unsafe fn of_first_four(text: &Str, start: usize, end: usize) -> Str {
    let bytes = (text.head() >> 32) as u32;
    if bytes & 0x8080_8080 != 0 {
        // SAFETY: as the caller promises.
        let text = unsafe { text.bytes() };
        let (start, end) = piece(text, start, end);
        return Str::within(text, start, end);
    }
    let end = end.min(text.len());
    let length = end.saturating_sub(start);
    let piece = u64::from(bytes) >> (8 * start) & ((1 << (8 * length)) - 1);
    Str::from_inline(length as u128 | u128::from(piece) << 32)
}

/// Where characters `start` to `end` of a text in UTF-8 lie, the last one not included.
#[inline]
fn piece(text: &[u8], start: usize, end: usize) -> (usize, usize) {
    let bytes = end.min(text.len());
    if text[..bytes].is_ascii() {
        return (start.min(bytes), bytes);
    }
    let mut characters =
        text.iter().enumerate().filter(|(_, byte)| **byte & 0b1100_0000 != 0b1000_0000);
    let Some((first, _)) = characters.nth(start) else { return (0, 0) };
    // At least one character: `start` is before `end`.
    let last = characters.nth(end - start - 1);
    (first, last.map_or(text.len(), |(last, _)| last))
}
