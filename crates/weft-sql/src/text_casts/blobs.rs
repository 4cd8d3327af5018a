//! BLOBs in text: printable ASCII stands for itself, any other byte is written `\xAB`.
//!
//! PostgreSQL writes one `\x` before the hexadecimal digits of all bytes. Such a text is read so, too: `\xDEADBEEF` has 4 bytes.
//! What is written here never looks like it.

use std::borrow::Cow;

/// The bytes of a text; characters beyond ASCII stand for their bytes in UTF-8.
///
/// # Errors
/// If a backslash is not followed by `x` and two hexadecimal digits.
pub(super) fn bytes_of(text: &str) -> Result<Cow<'_, [u8]>, String> {
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text.as_bytes()));
    }
    if let Some(digits) = text.strip_prefix("\\x")
        && digits.len().is_multiple_of(2)
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        let pairs = digits.as_bytes().chunks_exact(2);
        return Ok(pairs.map(|pair| byte_of(pair).unwrap_or_default()).collect());
    }
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = behind;
            continue;
        }
        let escaped = behind.strip_prefix(b"x").and_then(|behind| behind.split_at_checked(2));
        let Some((byte, behind)) =
            escaped.and_then(|(pair, behind)| Some((byte_of(pair)?, behind)))
        else {
            return Err("a backslash in it is not followed by x and two hexadecimal digits".into());
        };
        bytes.push(byte);
        rest = behind;
    }
    Ok(Cow::Owned(bytes))
}

fn byte_of(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use weft_json::binary_text;

    use super::*;

    #[test]
    fn each_blob_is_read_as_it_was_written() {
        let all: Vec<u8> = (0..=255).collect();
        let cases: [&[u8]; 8] =
            [b"", b"abc", &all, b"\xDEADBEEF", b"\xDEADBEE", b"\\xAB", b"\xDE\xAD", b"\xABAB\xAB"];
        for bytes in cases {
            let text = binary_text(bytes);
            assert_eq!(bytes_of(&text).as_deref(), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn one_prefix_may_stand_before_all_digits() {
        assert_eq!(bytes_of("\\xDEADbeef").as_deref(), Ok(&b"\xDE\xAD\xBE\xEF"[..]));
        assert_eq!(bytes_of("\\x").as_deref(), Ok(&b""[..]));
        assert_eq!(bytes_of("\\xDE\\xADa").as_deref(), Ok(&b"\xDE\xADa"[..]));
    }

    #[test]
    fn other_backslashes_are_errors() {
        for text in ["\\", "a\\b", "\\xZZ", "\\xA", "\\xAB\\", "\\XAB"] {
            assert!(bytes_of(text).is_err(), "{text}");
        }
    }
}
