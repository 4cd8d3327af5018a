//! Decimals in text: with an exponent, too, and with underscores between digits, as DuckDB reads them.

use std::borrow::Cow;

/// Most digits that are written for an exponent: more than any decimal has.
const DIGITS_MAX: i64 = 200;

/// The text without exponent and underscores, for Arrow to read; as it is where it has neither or is no number.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'e' | b'E' | b'_')) {
        return Cow::Borrowed(text);
    }
    without_exponent(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn without_exponent(text: &str) -> Option<String> {
    let number = text.trim();
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let whole = digits(whole)?;
    let all = [whole.as_ref(), digits(fraction)?.as_ref()].concat();
    if all.is_empty() {
        return None;
    }
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
    if all.bytes().all(|digit| digit == b'0') {
        return Some("0".into());
    }
    if !(-DIGITS_MAX..=DIGITS_MAX).contains(&point) {
        // A number that is too small is 0, one that is too large stays for the message.
        return (point < 0).then(|| "0".into());
    }
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    let len = i64::try_from(all.len()).ok()?;
    Some(match usize::try_from(point) {
        Ok(at) if point < len => format!("{sign}{}.{}", &all[..at], &all[at..]),
        Ok(_) => format!("{sign}{all}{}", zeros(point - len)),
        Err(_) => format!("{sign}0.{}{all}", zeros(-point)),
    })
}

/// Digits without the underscores between them.
fn digits(text: &str) -> Option<Cow<'_, str>> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !text.contains('_') {
        return is_digits(text).then_some(Cow::Borrowed(text));
    }
    let parts = || text.split('_');
    parts().all(|part| !part.is_empty() && is_digits(part)).then(|| parts().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_move_the_point() {
        for (text, expected) in [
            ("1e3", "1000"),
            ("1.5e-2", "0.015"),
            ("1E+2", "100"),
            ("-1.005e1", "-10.05"),
            ("12.5e0", "12.5"),
            (".5e1", "5"),
            ("0e99999", "0"),
            ("1e-99999", "0"),
            ("1_000.5", "1000.5"),
        ] {
            assert_eq!(plain(text).trim_end_matches('.'), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_stays() {
        for text in ["e3", "1e", "1e1.5", "_1", "1__0", "1_", "1e99999", "x_y", "12", "1.5"] {
            assert_eq!(plain(text), text);
        }
    }
}
