//! `LIMIT 10%` and `LIMIT 10 PERCENT`: a call that is evaluated before the query is planned (`values.rs`).

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{at, closing, word};
use crate::forms::values::PERCENT;
use crate::grammar::is;

/// Writes percentages as calls.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 0;
    while place + 2 < tokens.len() {
        if is(&tokens[place], "limit")
            && let Some(end) = percent_behind(tokens, place + 1)
        {
            let span = tokens[end].span;
            tokens[end] = at(Token::RParen, span);
            tokens.splice(place + 1..place + 1, [word(PERCENT, span), at(Token::LParen, span)]);
        }
        place += 1;
    }
}

/// The place of a percent sign or word behind a number or something in parentheses.
fn percent_behind(tokens: &[TokenWithSpan], start: usize) -> Option<usize> {
    let end = match tokens[start].token {
        Token::Number(..) | Token::Placeholder(_) => start + 1,
        Token::LParen => closing(tokens, start)? + 1,
        _ => return None,
    };
    let token = tokens.get(end)?;
    // `10 % 3` is what is left of a division.
    let ends = tokens.get(end + 1).is_none_or(|next| {
        matches!(next.token, Token::RParen | Token::SemiColon | Token::EOF) || is(next, "offset")
    });
    (is(token, "percent") || token.token == Token::Mod && ends).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn percentages_are_calls() {
        for (sql, plain) in [
            ("SELECT 1 LIMIT 10%", "SELECT 1 LIMIT limit_percent ( 10 )"),
            (
                "SELECT 1 LIMIT (2 * 5) PERCENT OFFSET 1",
                "SELECT 1 LIMIT limit_percent ( ( 2 * 5 ) ) OFFSET 1",
            ),
            ("SELECT 1 LIMIT 10 % 3", "SELECT 1 LIMIT 10 % 3"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
