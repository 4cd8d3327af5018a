//! PostgreSQL's patterns of numbers, with the signs and separators of its locale C.

use datafusion::common::{Result as DfResult, exec_err};

use super::times::ordinal;

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// A digit, and whether it is there although it is a zero in front or at the end.
    Digit {
        is_kept: bool,
    },
    Comma,
    Point,
    /// The sign in a place of its own.
    Sign(Sign),
    /// The ending of an ordinal, and whether it is in capitals.
    Ordinal(bool),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// `S` before the digits: it stands in front of the first one.
    Anchored,
    /// `S` behind the digits, `SG`: plus or minus.
    Either,
    /// `MI`: a minus or a space.
    Minus,
    /// `PL`: a plus or a space.
    Plus,
    /// `PR`: a negative number stands in angle brackets.
    Brackets,
}

/// The number of a decimal text by a pattern.
///
/// # Errors
/// For patterns that are unknown.
pub(super) fn formatted(number: &str, pattern: &str) -> DfResult<String> {
    let (parts, is_plain) = parsed(pattern)?;
    let point = parts.iter().position(|part| *part == Part::Point);
    let digits =
        |parts: &[Part]| parts.iter().filter(|part| matches!(part, Part::Digit { .. })).count();
    let (before, after) = match point {
        Some(point) => (digits(&parts[..point]), digits(&parts[point..])),
        None => (digits(&parts), 0),
    };
    let is_negative = number.starts_with('-');
    let unsigned = number.trim_start_matches(['-', '+']);
    let (whole, fraction, fits) = match rounded(unsigned, after) {
        Some((whole, fraction)) => {
            let fits = whole.len() <= before || whole.is_empty();
            (whole, fraction, fits)
        }
        None => (String::new(), String::new(), false),
    };
    let is_zero = whole.is_empty() && fraction.bytes().all(|digit| digit == b'0');
    let is_negative = is_negative && !(is_zero && fits);
    let mut writer = Writer {
        text: String::new(),
        signs: parts
            .iter()
            .filter_map(|part| match part {
                Part::Sign(sign) => Some(*sign),
                _ => None,
            })
            .collect(),
        is_negative,
        is_plain,
        has_begun: false,
    };
    // The last digit before the point is there if there are none behind it.
    let whole = if whole.is_empty() && after == 0 && fits { "0".to_owned() } else { whole };
    let kept_from = parts[..point.unwrap_or(parts.len())]
        .iter()
        .filter(|part| matches!(part, Part::Digit { .. }))
        .position(|part| *part == Part::Digit { is_kept: true })
        .unwrap_or(before);
    let kept_after = parts[point.unwrap_or(parts.len())..]
        .iter()
        .filter(|part| matches!(part, Part::Digit { .. }))
        .zip(1..)
        .filter(|(part, _)| **part == Part::Digit { is_kept: true })
        .last()
        .map_or(0, |(_, number)| number);
    let shown_after = match is_plain && fits {
        true => fraction.trim_end_matches('0').len().max(kept_after),
        false => after,
    };
    let (mut place, mut is_behind) = (0, false);
    for part in &parts {
        match part {
            Part::Digit { .. } if is_behind => {
                if place < shown_after {
                    let digit = fraction.chars().nth(place).filter(|_| fits).unwrap_or('#');
                    writer.digit(digit);
                }
                place += 1;
            }
            Part::Digit { .. } => {
                let missing = before.saturating_sub(whole.len());
                match () {
                    () if !fits => writer.digit('#'),
                    () if place >= missing => {
                        writer.digit(whole.chars().nth(place - missing).unwrap_or('0'));
                    }
                    () if place >= kept_from => writer.digit('0'),
                    () => writer.blank(),
                }
                place += 1;
            }
            Part::Comma if writer.has_begun => writer.text.push(','),
            Part::Comma => writer.blank(),
            Part::Point => {
                writer.begin();
                writer.text.push('.');
                (place, is_behind) = (0, true);
            }
            Part::Sign(sign) => writer.sign(*sign),
            Part::Ordinal(is_large) => {
                let ending = ordinal(whole.parse().unwrap_or(0));
                match (is_negative || after > 0, is_large) {
                    (true, _) => {}
                    (false, true) => writer.text.push_str(&ending.to_uppercase()),
                    (false, false) => writer.text.push_str(ending),
                }
            }
            Part::Text(text) => writer.text.push_str(text),
        }
    }
    Ok(writer.text)
}

/// A text that is being written.
struct Writer {
    text: String,
    signs: Vec<Sign>,
    is_negative: bool,
    /// FM: without what fills up.
    is_plain: bool,
    /// The first digit, or the point, is there.
    has_begun: bool,
}

impl Writer {
    fn blank(&mut self) {
        if !self.is_plain {
            self.text.push(' ');
        }
    }

    fn digit(&mut self, digit: char) {
        self.begin();
        self.text.push(digit);
    }

    /// Writes the sign that stands in front of the first digit.
    fn begin(&mut self) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        let has = |sign: Sign| self.signs.contains(&sign);
        let sign = if has(Sign::Anchored) {
            if self.is_negative { '-' } else { '+' }
        } else if has(Sign::Brackets) {
            if self.is_negative { '<' } else { ' ' }
        } else if has(Sign::Either) || has(Sign::Minus) || has(Sign::Plus) && !self.is_negative {
            return;
        } else if self.is_negative {
            '-'
        } else {
            ' '
        };
        if sign != ' ' || !self.is_plain {
            self.text.push(sign);
        }
    }

    fn sign(&mut self, sign: Sign) {
        let sign = match (sign, self.is_negative) {
            (Sign::Anchored, _) => return,
            (Sign::Either | Sign::Minus, true) => '-',
            (Sign::Either | Sign::Plus, false) => '+',
            (Sign::Brackets, true) => '>',
            (Sign::Minus | Sign::Brackets, false) | (Sign::Plus, true) => ' ',
        };
        if sign != ' ' || !self.is_plain {
            self.text.push(sign);
        }
    }
}

/// The digits before and behind the point of a number that is rounded to so many behind it, without zeros in front; `None` for what is
/// no number.
fn rounded(number: &str, after: usize) -> Option<(String, String)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(after).collect();
    let mut digits: Vec<u8> = format!("{whole}{kept}").into_bytes();
    let rounds_up = fraction.as_bytes().get(after).is_some_and(|digit| *digit >= b'5');
    let mut carries = rounds_up;
    for digit in digits.iter_mut().rev() {
        if !carries {
            break;
        }
        carries = *digit == b'9';
        *digit = if carries { b'0' } else { *digit + 1 };
    }
    if carries {
        digits.insert(0, b'1');
    }
    let fraction = digits.split_off(digits.len() - after);
    let text = |digits: Vec<u8>| String::from_utf8(digits).unwrap_or_default();
    Some((text(digits).trim_start_matches('0').to_owned(), text(fraction)))
}

/// The parts of a pattern, and whether FM leaves out what fills up.
fn parsed(pattern: &str) -> DfResult<(Vec<Part>, bool)> {
    let mut parts = Vec::new();
    let mut is_plain = false;
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let starts =
            |word: &str| rest.get(..word.len()).is_some_and(|of| of.eq_ignore_ascii_case(word));
        let has_digits = parts.iter().any(|part| matches!(part, Part::Digit { .. }));
        let is_last = |length: usize| !rest[length..].contains(['9', '0']);
        let (part, length) = if first == '"' {
            let Some(end) = rest[1..].find('"') else {
                return exec_err!(
                    "the pattern '{pattern}' of to_char has a \" without another one"
                );
            };
            (Part::Text(rest[1..=end].to_owned()), end + 2)
        } else if starts("FM") {
            is_plain = true;
            rest = &rest[2..];
            continue;
        } else if starts("MI") {
            (Part::Sign(Sign::Minus), 2)
        } else if starts("PL") {
            (Part::Sign(Sign::Plus), 2)
        } else if starts("SG") {
            (Part::Sign(Sign::Either), 2)
        } else if starts("PR") {
            (Part::Sign(Sign::Brackets), 2)
        } else if starts("TH") {
            (Part::Ordinal(rest.starts_with('T')), 2)
        } else if starts("RN") || starts("EEEE") || starts("V") {
            return exec_err!(
                "the pattern '{pattern}' of to_char has {first}…: RN, EEEE and V are not built"
            );
        } else if starts("S") {
            let sign = if has_digits && is_last(1) { Sign::Either } else { Sign::Anchored };
            (Part::Sign(sign), 1)
        } else if first == '.' || starts("D") {
            if parts.contains(&Part::Point) {
                return exec_err!("the pattern '{pattern}' of to_char has two points");
            }
            (Part::Point, 1)
        } else if first == ',' || starts("G") {
            (Part::Comma, 1)
        } else if starts("L") {
            // The locale C has no currency.
            (Part::Text(" ".to_owned()), 1)
        } else if first == '9' || first == '0' {
            (Part::Digit { is_kept: first == '0' }, 1)
        } else {
            (Part::Text(first.to_string()), first.len_utf8())
        };
        parts.push(part);
        rest = &rest[length..];
    }
    Ok((parts, is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_patterns_as_postgresql_documents_them() {
        let check = |number, pattern, expected: &str| {
            assert_eq!(formatted(number, pattern).unwrap(), expected, "{number} by {pattern}");
        };
        check("-0.1", "99.99", "  -.10");
        check("-0.1", "FM9.99", "-.1");
        check("0.1", "0.9", " 0.1");
        check("12", "9990999.9", "    0012.0");
        check("12", "FM9990999.9", "0012.");
        check("485", "999", " 485");
        check("-485", "999", "-485");
        check("485", "9 9 9", " 4 8 5");
        check("1485", "9,999", " 1,485");
        check("148.5", "999.999", " 148.500");
        check("148.5", "FM999.999", "148.5");
        check("148.5", "FM999.990", "148.500");
        check("3148.5", "9,999.999", " 3,148.500");
        check("-485", "999S", "485-");
        check("-485", "999MI", "485-");
        check("485", "999MI", "485 ");
        check("485", "FM999MI", "485");
        check("485", "PL999", "+485");
        check("485", "SG999", "+485");
        check("-485", "SG999", "-485");
        check("-485", "9SG99", "4-85");
        check("-485", "999PR", "<485>");
        check("482", "999th", " 482nd");
        check("485", "\"Good number:\"999", "Good number: 485");
        check("485.8", "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800");
        check("0", "999", "   0");
        check("1234", "99", " ##");
        check("1234.567", "FM9,999,990.00", "1,234.57");
        check("999.995", "FM9,990.00", "1,000.00");
        check("12", "S9999", "  +12");
        assert!(formatted("1", "RN").is_err());
        assert!(formatted("1", "9.9.9").is_err());
    }
}
