//! Values of options: how each is read, and which are accepted.

use std::time::Duration;

use weft_rt::Boundary;

use crate::size_class::SizeClass;

/// A number from `MIN` thousandths to `MAX`.
pub(super) fn within<const MIN: u32, const MAX: u32>(text: &str) -> Result<f64, String> {
    let least = f64::from(MIN) / 1000.0;
    match text.parse::<f64>() {
        Ok(value) if (least..=f64::from(MAX)).contains(&value) => Ok(value),
        _ => Err(format!("expected a number from {least} to {MAX}")),
    }
}

pub(super) fn page_size(text: &str) -> Result<SizeClass, String> {
    let upper = text.to_ascii_uppercase();
    let (digits, unit) = match upper.trim_end_matches(['I', 'B']) {
        number if number.ends_with('K') => (&number[..number.len() - 1], 1 << 10),
        number if number.ends_with('M') => (&number[..number.len() - 1], 1 << 20),
        number => (number, 1),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .and_then(SizeClass::from_bytes)
        .ok_or_else(|| "expected a power of two from 4K to 1M".to_owned())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value / 100.0),
        _ => Err("expected a percentage from 0 to 100".to_owned()),
    }
}

pub(super) fn scale_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.001..=10_000.0).contains(&value) => Ok(value),
        _ => Err("expected a scale factor from 0.001 to 10000".to_owned()),
    }
}

/// Somebody else on the devices, for a part of a query's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// When it comes, from the query's begin on.
    pub from: Duration,
    /// When it leaves.
    pub to: Duration,
    /// Bytes per second that it leaves of the devices, as the setting `io_bandwidth_limit` has them.
    pub bandwidth: String,
}

pub(super) fn neighbour(text: &str) -> Result<Neighbour, String> {
    let parts = || {
        let (times, bandwidth) = text.split_once(':')?;
        let (from, to) = times.split_once("..")?;
        let (from, to) = (duration(from)?, duration(to)?);
        (from < to && !bandwidth.is_empty()).then(|| Neighbour {
            from,
            to,
            bandwidth: bandwidth.to_owned(),
        })
    };
    let wanted =
        "expected when it comes, when it leaves, and bytes per second, such as 2s..6s:100MB";
    parts().ok_or_else(|| wanted.to_owned())
}

/// A time in seconds or milliseconds: `2s`, `1.5s`, `300ms`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_s).ok()
}

pub(super) fn boundary(text: &str) -> Result<Boundary, String> {
    match text {
        "weak" => Ok(Boundary::Weak),
        "hard" => Ok(Boundary::Hard),
        _ => Err("expected weak or hard".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_the_usual_ways() {
        for (text, bytes) in [("4K", 4096), ("4096", 4096), ("64KiB", 65536), ("1m", 1 << 20)] {
            assert_eq!(page_size(text).unwrap().bytes(), bytes, "{text}");
        }
        for text in ["", "K", "3K", "2K", "2M", "-4K", "4G", "99999999999999999999"] {
            assert!(page_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(within::<1, 10>("0.001"), Ok(0.001));
        for text in ["", "0", "-1", "1e300", "1e-300", "inf", "NaN", "10.1"] {
            assert!(within::<1, 10>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn neighbours_come_and_leave() {
        let expected = |from: u64, to: u64, bandwidth: &str| {
            let [from, to] = [from, to].map(Duration::from_millis);
            Ok(Neighbour { from, to, bandwidth: bandwidth.to_owned() })
        };
        assert_eq!(neighbour("2s..6s:100MB"), expected(2_000, 6_000, "100MB"));
        assert_eq!(neighbour("300ms..1.5s:1GiB"), expected(300, 1_500, "1GiB"));
        for text in
            ["", "2s", "2s..6s", "2s..6s:", "6s..2s:1MB", "2..6:1MB", "-1s..2s:1MB", "1s..NaNs:1MB"]
        {
            assert!(neighbour(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_have_bounds() {
        assert_eq!(percent("60"), Ok(0.6));
        assert_eq!(percent("60%"), Ok(0.6));
        for text in ["", "101", "-1", "NaN", "x"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
