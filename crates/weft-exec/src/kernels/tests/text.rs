use super::*;
use crate::kernels::in_set::Set;
use crate::kernels::like::Pattern;
use crate::program::LengthUnit;

/// LIKE, tried in every possible way.
fn matches(text: &[char], pattern: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [first, next, rest @ ..] if Some(*first) == escape => {
            text.first() == Some(next) && matches(&text[1..], rest, escape)
        }
        ['%', rest @ ..] if Some('%') != escape => {
            (0..=text.len()).any(|skipped| matches(&text[skipped..], rest, escape))
        }
        ['_', rest @ ..] => !text.is_empty() && matches(&text[1..], rest, escape),
        [first, rest @ ..] => text.first() == Some(first) && matches(&text[1..], rest, escape),
    }
}

fn characters(value: &Datum) -> Option<Vec<char>> {
    match value {
        Some(Constant::Str(bytes)) => {
            Some(std::str::from_utf8(bytes).expect("text").chars().collect())
        }
        _ => None,
    }
}

#[test]
fn patterns() {
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..60_000 {
        let letters = ['a', 'b', 'ß', '€', '🦀', '%', '_', '\\'];
        let mut text = |letters: &[char], most: usize| -> Vec<char> {
            (0..random.usize(..=most)).map(|_| letters[random.usize(..letters.len())]).collect()
        };
        let (pattern, subject) = match round % 3 {
            0 => (text(&letters, 6), text(&letters, 8)),
            1 => (text(&['a', '%', '_'], 8), text(&['a', 'b'], 12)),
            _ => (text(&['a', 'ß', '%'], 7), text(&['a', 'ß'], 20)),
        };
        let escape = [None, Some('\\'), Some('ß')][round % 7 % 3];
        let prepared = Pattern::new(&pattern.iter().collect::<String>(), escape);
        let bytes = subject.iter().collect::<String>().into_bytes();
        let expected = matches(&subject, &pattern, escape);
        let context = format!("{subject:?} LIKE {pattern:?} ESCAPE {escape:?}: {prepared:?}");
        assert_eq!(prepared.matches(&bytes), expected, "{context}");
    }
}

#[test]
fn like() {
    let patterns = [
        "",
        "%",
        "a%",
        "ab%",
        "abab%",
        "ababa%",
        "%b",
        "%ab%",
        "a%b",
        "%a%b%",
        "_",
        "a_%",
        "%_b",
        "ß%",
        "%\\%%",
        "ab",
        "%ababababababab",
        "🦀_%",
    ];
    for text in patterns {
        for negated in [false, true] {
            let pattern = Arc::new(Pattern::new(text, Some('\\')));
            let step = |inputs: &[Register], out| {
                let pattern = pattern.clone();
                Step::Like { a: inputs[0], pattern, negated, out }
            };
            let text: Vec<char> = text.chars().collect();
            check(&[Lane::Str], Lane::Bool, step, |inputs| {
                let Some(subject) = characters(&inputs[0]) else { return Ok(None) };
                Ok(Some(Constant::Bool(matches(&subject, &text, Some('\\')) != negated)))
            });
        }
    }
}

#[test]
fn substrings() {
    let starts = [i64::MIN, -3, 0, 1, 2, 3, 5, 12, i64::MAX];
    let lengths = [None, Some(0), Some(1), Some(2), Some(4), Some(7), Some(u64::MAX)];
    for start in starts {
        for length in lengths {
            let step =
                |inputs: &[Register], out| Step::Substring { a: inputs[0], start, length, out };
            check(&[Lane::Str], Lane::Str, step, |inputs| {
                let Some(text) = characters(&inputs[0]) else { return Ok(None) };
                let within = |position: i128| {
                    position >= i128::from(start)
                        && length
                            .is_none_or(|length| position < i128::from(start) + i128::from(length))
                };
                let piece: String =
                    (1..).zip(text).filter(|(n, _)| within(*n)).map(|(_, c)| c).collect();
                Ok(Some(Constant::Str(Arc::from(piece.into_bytes()))))
            });
        }
    }
}

#[test]
fn lengths() {
    let units = [(LengthUnit::Characters, Lane::I32), (LengthUnit::Bytes, Lane::I64)];
    for (unit, lane) in units {
        let step = |inputs: &[Register], out| Step::Length { a: inputs[0], unit, out };
        check(&[Lane::Str], lane, step, |inputs| {
            let Some(Constant::Str(bytes)) = &inputs[0] else { return Ok(None) };
            let text = std::str::from_utf8(bytes).expect("text");
            Ok(Some(match unit {
                LengthUnit::Characters => Constant::I32(text.chars().count() as i32),
                LengthUnit::Bytes => Constant::I64(text.len() as i64),
            }))
        });
    }
}

#[test]
fn sets() {
    let lanes = [
        Lane::Bool,
        Lane::I8,
        Lane::I32,
        Lane::I64,
        Lane::U16,
        Lane::U64,
        Lane::I128,
        Lane::F32,
        Lane::F64,
        Lane::Str,
    ];
    let mut random = fastrand::Rng::with_seed(19);
    for lane in lanes {
        for (count, wild) in [(0, false), (1, true), (5, false), (5, true), (60, false), (60, true)]
        {
            for (has_null, negated) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let values: Vec<Constant> =
                    (0..count).map(|_| random_value(&mut random, lane, wild)).collect();
                let set = Arc::new(Set::new(lane, &values));
                let step = |inputs: &[Register], out| Step::In {
                    a: inputs[0],
                    values: set.clone(),
                    has_null,
                    negated,
                    out,
                };
                let equal = |a: &Constant, b: &Constant| match (a, b) {
                    (Constant::F32(a), Constant::F32(b)) => a == b || a.is_nan() && b.is_nan(),
                    (Constant::F64(a), Constant::F64(b)) => a == b || a.is_nan() && b.is_nan(),
                    (a, b) => a == b,
                };
                check(&[lane], Lane::Bool, step, |inputs| {
                    let Some(value) = &inputs[0] else { return Ok(None) };
                    let is_in = values.iter().any(|other| equal(value, other));
                    Ok((is_in || !has_null).then_some(Constant::Bool(is_in != negated)))
                });
            }
        }
    }
}
