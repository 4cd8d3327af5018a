//! Units of intervals that the grammar lacks: it takes the unit of `INTERVAL 3 decades` for the name of a column, which is then
//! 3 seconds. Such a number becomes one of years or months, and a text that says more than a number becomes one that Arrow reads exactly.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::text_casts::intervals;

/// Puts numbers of decades, centuries, millennia and quarters as years and months.
pub(crate) fn put_plainly(tokens: &mut [TokenWithSpan]) {
    for at in 0..tokens.len() {
        if !is_word(&tokens[at].token, "interval") {
            continue;
        }
        let Some(number_at) = next_after(tokens, at) else { continue };
        let (Token::Number(text, false) | Token::SingleQuotedString(text)) =
            &tokens[number_at].token
        else {
            continue;
        };
        let unit_at = next_after(tokens, number_at);
        let word = unit_at.and_then(|at| match &tokens[at].token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.as_str()),
            _ => None,
        });
        let unit = word.and_then(unit_of);
        let plain = match unit {
            Some(unit) => in_unit(text, unit),
            // The grammar knows this unit.
            None if word.is_some_and(intervals::is_unit) => None,
            None => intervals::plain(text),
        };
        let Some(plain) = plain else { continue };
        tokens[number_at].token = Token::SingleQuotedString(plain);
        if let (Some(unit_at), Some(_)) = (unit_at, unit) {
            tokens[unit_at].token = Token::Whitespace(Whitespace::Space);
        }
    }
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// The place of the next token that is no white space.
fn next_after(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    (at + 1..tokens.len()).find(|next| !is_space(&tokens[*next]))
}

/// How many of which unit one of this name has.
fn unit_of(name: &str) -> Option<(u32, &'static str)> {
    Some(match name.to_lowercase().as_str() {
        "decade" | "decades" => (10, "years"),
        "century" | "centuries" => (100, "years"),
        "millennium" | "millenniums" | "millennia" => (1000, "years"),
        "quarter" | "quarters" => (3, "months"),
        _ => return None,
    })
}

fn in_unit(number: &str, (factor, unit): (u32, &str)) -> Option<String> {
    let number: f64 = number.trim().parse().ok()?;
    Some(format!("{} {unit}", number * f64::from(factor)))
}
