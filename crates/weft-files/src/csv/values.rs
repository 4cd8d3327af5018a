//! Values of a type as texts.

use super::kinds::NumberKind;

/// The zone of timestamps with time zone.
pub(crate) const ZONE: &str = "UTC";

/// What number a text is, as the type of a column is told from it. Digits that a number would lose say that it is
/// none: zeros in front, a plus sign.
pub(crate) fn number_kind(text: &str, decimal_separator: u8) -> Option<NumberKind> {
    let text = text.trim_matches(' ');
    let bytes = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let first = *bytes.first()?;
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if first == b'+' || (digits > 1 && first == b'0') {
        return None;
    }
    if digits == bytes.len() {
        return Some(match digits {
            0..=18 => NumberKind::Integer,
            19 if text.parse::<i64>().is_ok() => NumberKind::Integer,
            19..=38 => NumberKind::Huge,
            _ => NumberKind::Float,
        });
    }
    let is_name = digits == 0 && first.is_ascii_alphabetic();
    let is_float = match is_name {
        true => ["nan", "inf", "infinity"]
            .iter()
            .any(|name| bytes.eq_ignore_ascii_case(name.as_bytes())),
        false => float(text, decimal_separator).is_some(),
    };
    is_float.then_some(NumberKind::Float)
}

/// True if a text says true or false, as the type of a column is told from it.
pub(crate) fn is_boolean(text: &str) -> bool {
    boolean(text).is_some() && !matches!(text, "0" | "1")
}

/// True or false, in the words that SQL has for them.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    let text = text.trim_matches(' ');
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match text.len() {
        1..=5 if is(&["true", "t", "yes", "1"]) => Some(true),
        1..=5 if is(&["false", "f", "no", "0"]) => Some(false),
        _ => None,
    }
}

/// The integer that a text is.
#[inline]
pub(crate) fn integer(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (is_negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 18 {
        return text.trim_matches(' ').parse().ok();
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return text.trim_matches(' ').parse().ok();
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if is_negative { -value } else { value })
}

/// The number that a text is.
#[inline]
pub(crate) fn float(text: &str, decimal_separator: u8) -> Option<f64> {
    let text = text.trim_matches(' ');
    match decimal_separator {
        b'.' => text.parse().ok(),
        _ if text.contains('.') => None,
        separator => text.replacen(char::from(separator), ".", 1).parse().ok(),
    }
}

/// The decimal of this scale that a text is, rounded half away from zero; `None` if it is none, or has more than
/// `precision` digits.
pub(crate) fn decimal(text: &str, precision: u8, scale: i8, decimal_separator: u8) -> Option<i128> {
    let text = text.trim_matches(' ');
    let (is_negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = split_exponent(digits)?;
    let point = digits.iter().position(|byte| *byte == decimal_separator).unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or(&[]));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    // Digits in front of the end of the scale count, the next one rounds.
    let kept = i64::try_from(whole.len()).ok()? + exponent + i64::from(scale);
    let mut value = 0_i128;
    let mut rounds_up = false;
    for (number, byte) in (0_i64..).zip(whole.iter().chain(fraction)) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        if number < kept {
            value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
        } else if number == kept {
            rounds_up = digit >= 5;
        }
    }
    let known = i64::try_from(whole.len() + fraction.len()).ok()?;
    if value != 0 && kept > known {
        value = value.checked_mul(10_i128.checked_pow(u32::try_from(kept - known).ok()?)?)?;
    }
    value += i128::from(rounds_up);
    let fits = 10_i128.checked_pow(u32::from(precision)).is_none_or(|limit| value < limit);
    fits.then_some(if is_negative { -value } else { value })
}

/// A number and the power of ten behind its `e`.
fn split_exponent(digits: &[u8]) -> Option<(&[u8], i64)> {
    let Some(at) = digits.iter().position(|byte| matches!(byte, b'e' | b'E')) else {
        return Some((digits, 0));
    };
    let exponent = std::str::from_utf8(&digits[at + 1..]).ok()?.parse::<i16>().ok()?;
    Some((&digits[..at], i64::from(exponent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_round_half_away_from_zero() {
        let of = |text| decimal(text, 5, 2, b'.');
        for (text, value) in [
            ("2.675", Some(268)),
            ("-2.675", Some(-268)),
            ("2.674", Some(267)),
            ("7", Some(700)),
            (".5", Some(50)),
            ("1e2", Some(10_000)),
            ("12345e-3", Some(1235)),
            ("999.99", Some(99_999)),
            ("999.995", None),
            ("1000", None),
            ("0.0049", Some(0)),
            ("0.005", Some(1)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("x", None),
            ("1e99", None),
            ("0e99", Some(0)),
        ] {
            assert_eq!(of(text), value, "{text}");
        }
        assert_eq!(decimal("1,25", 10, 1, b','), Some(13));
        assert_eq!(decimal("12", 38, 0, b'.'), Some(12));
    }

    #[test]
    fn integers() {
        assert_eq!(integer("-12"), Some(-12));
        assert_eq!(integer("9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer(" 7 "), Some(7));
        assert_eq!(integer("007"), Some(7));
        for text in ["", "-", "1.0", "9223372036854775808", "x", "1 2"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
