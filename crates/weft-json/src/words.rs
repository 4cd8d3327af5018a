//! Bytes of texts, eight at a time.

/// Bytes of a word.
const WORD: usize = 8;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The first byte from `at` on that does not stand in a text of JSON as it is: a quote, a backslash or a control character; else
/// the end.
#[inline]
pub(crate) fn special_from(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<WORD>()) {
        let found = specials(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += WORD;
    }
    let rest = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    rest.map_or(bytes.len(), |found| at + found)
}

/// The high bits of the bytes that are special. Those above the lowest one of them may be wrong.
fn specials(word: u64) -> u64 {
    let is = |byte: u8| {
        let other = word ^ (ONES * u64::from(byte));
        other.wrapping_sub(ONES) & !other
    };
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is(b'"') | is(b'\\') | is_control) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_special_byte_is_found_at_each_place() {
        for length in 0..20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'x'; length];
                    bytes[at] = byte;
                    let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
                    let expected = if is_special { at } else { length };
                    assert_eq!(special_from(&bytes, 0), expected, "{byte} at {at} of {length}");
                }
            }
        }
        assert_eq!(special_from(b"\"aaaaaaaaaa\"", 1), 11);
        assert_eq!(special_from("äöü€😀äöü€😀\"".as_bytes(), 0), "äöü€😀äöü€😀".len());
    }
}
