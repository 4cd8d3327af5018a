//! Numbers as JSON writes them.

/// Digits whose number a `u64` holds, whatever they are.
const DIGITS_MAX: usize = 19;

/// Whole numbers up to this one are exact as `f64`.
const EXACT_MAX: u64 = 1 << 53;

/// Powers of ten that are exact as `f64`.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// A number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number<'a> {
    /// As it is written.
    pub(crate) text: &'a str,
    /// The number that its digits are without sign, point and exponent, where it has at most 19 of them.
    digits: Option<u64>,
    /// Digits after the point.
    fraction_digits: usize,
    /// It has a point or an exponent.
    is_whole: bool,
    has_exponent: bool,
}

impl<'a> Number<'a> {
    /// The number at the start of a text, which begins with a digit or `-`.
    ///
    /// # Errors
    /// The place where there is no digit but should be one, or of a digit after a zero that the number begins with.
    #[inline]
    pub(crate) fn parse(text: &'a str) -> Result<Number<'a>, BadNumber> {
        let bytes = text.as_bytes();
        let mut digits = 0_u64;
        let mut count = 0;
        let run = |mut at: usize, digits: &mut u64| {
            let start = at;
            while let Some(byte) = bytes.get(at)
                && byte.is_ascii_digit()
            {
                *digits = digits.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                at += 1;
            }
            match at == start {
                true => Err(BadNumber::NoDigit(at)),
                false => Ok(at),
            }
        };
        let start = usize::from(bytes.first() == Some(&b'-'));
        let mut at = run(start, &mut digits)?;
        count += at - start;
        if bytes[start] == b'0' && count > 1 {
            return Err(BadNumber::LeadingZero);
        }
        let mut fraction_digits = 0;
        let has_point = bytes.get(at) == Some(&b'.');
        if has_point {
            let point = at;
            at = run(point + 1, &mut digits)?;
            fraction_digits = at - point - 1;
            count += fraction_digits;
        }
        let has_exponent = matches!(bytes.get(at), Some(b'e' | b'E'));
        if has_exponent {
            at += 1;
            at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
            at = run(at, &mut 0)?;
        }
        Ok(Number {
            text: &text[..at],
            digits: (count <= DIGITS_MAX).then_some(digits),
            fraction_digits,
            is_whole: !has_point && !has_exponent,
            has_exponent,
        })
    }

    fn is_negative(&self) -> bool {
        self.text.starts_with('-')
    }

    /// The whole number that it is.
    #[inline]
    pub(crate) fn to_i64(self) -> Option<i64> {
        match self.digits.and_then(|digits| i64::try_from(digits).ok()) {
            Some(digits) if self.is_whole => {
                Some(if self.is_negative() { -digits } else { digits })
            }
            _ => self.text.parse().ok(),
        }
    }

    /// The nearest number with fraction.
    #[inline]
    pub(crate) fn to_f64(self) -> Option<f64> {
        // Of two numbers that are exact the quotient is the nearest one.
        let power = POWERS.get(self.fraction_digits).filter(|_| !self.has_exponent);
        match (self.digits.filter(|digits| *digits <= EXACT_MAX), power) {
            (Some(digits), Some(power)) => {
                let absolute = digits as f64 / power;
                Some(if self.is_negative() { -absolute } else { absolute })
            }
            _ => self.text.parse().ok(),
        }
    }
}

/// What is wrong with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadNumber {
    /// A digit is missing at this byte.
    NoDigit(usize),
    /// It begins with a zero that more digits follow.
    LeadingZero,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_the_standard_library_makes_of_their_texts() {
        let texts = [
            "0",
            "-0",
            "7",
            "-12",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "99999999999999999999",
            "0.04",
            "-0.0",
            "21168.23",
            "9007199254740993.0",
            "9007199254740992.5",
            "0.1",
            "123456789012345678901234567890.5",
            "1e3",
            "1E-7",
            "-1.5e+300",
            "1e999",
            "0.000000000000000000000001",
            "5e-324",
            "1.7976931348623157e308",
        ];
        for text in texts {
            for after in ["", ",", "}", " "] {
                let all = format!("{text}{after}");
                let number = Number::parse(&all).unwrap();
                assert_eq!(number.text, text);
                assert_eq!(number.to_i64(), text.parse().ok(), "{text}");
                let expected = text.parse::<f64>().unwrap();
                assert_eq!(number.to_f64().map(f64::to_bits), Some(expected.to_bits()), "{text}");
            }
        }
    }

    #[test]
    fn what_json_does_not_allow_is_told() {
        for (text, at) in [("-", 1), ("1.", 2), ("1.x", 2), ("1e", 2), ("1e+", 3), ("-x", 1)] {
            assert_eq!(Number::parse(text).unwrap_err(), BadNumber::NoDigit(at), "{text}");
        }
        for text in ["00", "-01", "01.5"] {
            assert_eq!(Number::parse(text).unwrap_err(), BadNumber::LeadingZero, "{text}");
        }
    }
}
