//! Sizes in bytes, and numbers, as people write and read them.

pub(crate) use weft_store::human_bytes;

use crate::error::{ErrorKind, Result, SqlError};

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Reads `4GiB`, `512 MB`, `1000000` or, as a part of `whole`, `75%`.
///
/// # Errors
/// [`ErrorKind::Setting`] for anything else.
pub(crate) fn parse_bytes(setting: &str, text: &str, whole: Option<u64>) -> Result<u64> {
    let bad = || {
        let percent = if whole.is_some() { " or '75%'" } else { "" };
        SqlError::new(
            ErrorKind::Setting,
            format!("{setting} cannot be '{text}': give a size such as '4GiB' or '512MB'{percent}"),
        )
    };
    let text_trimmed = text.trim();
    let end = text_trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(end);
    let number: f64 = number.replace('_', "").parse().map_err(|_| bad())?;
    let unit = unit.trim();
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1024.0 * 1024.0,
        "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "ti" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "%" => whole.ok_or_else(bad)? as f64 / 100.0,
        _ => return Err(bad()),
    };
    if unit == "%" && number > 100.0 {
        return Err(bad());
    }
    let bytes = number * factor;
    if !bytes.is_finite() || bytes < 1.0 || bytes > 2f64.powi(62) {
        return Err(bad());
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let parse = |text| parse_bytes("memory_limit", text, Some(1_000)).ok();
        assert_eq!(parse("4GiB"), Some(4 << 30));
        assert_eq!(parse("1.5 kb"), Some(1_500));
        assert_eq!(parse("75%"), Some(750));
        assert_eq!(parse("1_000"), Some(1_000));
        for bad in ["", "GiB", "-1", "4 parsecs", "0", "1e9", "101%"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
