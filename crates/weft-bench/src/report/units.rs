//! Numbers as people read them: sizes in binary units, rates in three significant digits, ratios with
//! a multiplication sign.

/// A number in about three significant digits without an exponent: `0.123`, `4.57`, `27.7`, `1,234`.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if !value.is_finite() => "–".to_string(),
        0.0 => "0".to_string(),
        _ if magnitude >= 99.95 => grouped(value.round()),
        _ if magnitude >= 9.995 => format!("{value:.1}"),
        _ if magnitude >= 0.9995 => format!("{value:.2}"),
        _ if magnitude >= 0.00095 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A count with a decimal suffix: `950`, `12.3 k`, `1.85 M`.
pub fn count(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 999.5e6 => format!("{} G", number(value / 1e9)),
        magnitude if magnitude >= 999.5e3 => format!("{} M", number(value / 1e6)),
        magnitude if magnitude >= 9_999.5 => format!("{} k", number(value / 1e3)),
        _ => number(value),
    }
}

/// A tick label: like [`count`] but without trailing zeros, for round values.
pub fn tick(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        magnitude if magnitude >= 1e9 => (value / 1e9, " G"),
        magnitude if magnitude >= 1e6 => (value / 1e6, " M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let rounded = (scaled * 1e6).round() / 1e6;
    if rounded.abs() >= 1000.0 { grouped(rounded) } else { format!("{rounded}{suffix}") }
}

/// Bytes in the largest binary unit that keeps the value at or above one: `4 KiB`, `1.50 GiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if scaled.fract() == 0.0 {
        format!("{scaled} {}", UNITS[unit])
    } else {
        format!("{} {}", number(scaled), UNITS[unit])
    }
}

/// A ratio: `7.3x`, `0.84x`, `120x`.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "–".to_string(),
        magnitude if magnitude >= 99.5 => format!("{}x", grouped(value.round())),
        magnitude if magnitude >= 0.995 => format!("{value:.1}x"),
        _ => format!("{value:.2}x"),
    }
}

/// A fraction as a percentage: `60 %`, `97.5 %`.
pub fn percent(fraction: f64) -> String {
    let percent = (fraction * 1000.0).round() / 10.0;
    format!("{percent} %")
}

/// A run time: `12.3 s`, `45.6 ms`.
pub fn seconds(value: f64) -> String {
    if value.abs() >= 1.0 {
        format!("{} s", number(value))
    } else {
        format!("{} ms", number(value * 1e3))
    }
}

/// `1 thread`, `4 threads`.
pub fn plural(n: u32, noun: &str) -> String {
    plural_of(n, noun, &format!("{noun}s"))
}

/// `1 query`, `22 queries`.
pub fn plural_of(n: u32, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(f64::from(n))) }
}

fn grouped(value: f64) -> String {
    let text = weft::grouped(value.abs().round_ties_even() as u64);
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cases: &[(String, &str)]) {
        for (actual, expected) in cases {
            assert_eq!(actual, expected);
        }
    }

    #[test]
    fn readable_numbers() {
        check(&[
            (number(27.66), "27.7"),
            (number(9.996), "10.0"),
            (number(1_607_774.0), "1,607,774"),
            (number(0.0), "0"),
            (number(f64::NAN), "–"),
            (number(-1234.0), "-1,234"),
            (count(1_854_512.0), "1.85 M"),
            (count(115_000.0), "115 k"),
            (count(9_000.0), "9,000"),
            (tick(250_000.0), "250 k"),
            (tick(0.25), "0.25"),
            (tick(5_000.0), "5,000"),
            (bytes(4096), "4 KiB"),
            (bytes(65536), "64 KiB"),
            (bytes(1_610_612_736), "1.50 GiB"),
            (ratio(14.83), "14.8x"),
            (ratio(0.5), "0.50x"),
            (percent(0.6), "60 %"),
            (seconds(0.0123), "12.3 ms"),
            (plural(1, "thread"), "1 thread"),
            (plural(4, "thread"), "4 threads"),
        ]);
    }
}
