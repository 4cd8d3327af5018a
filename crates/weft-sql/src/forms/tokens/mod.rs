//! Forms that are other tokens of the grammar. White space and comments are left out first.

mod columns;
mod commas;
mod comprehensions;
mod from_first;
mod joins;
mod limits;
mod pivots;
mod prefix_aliases;
mod samples;

use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::grammar::is;

/// Puts the forms of a statement in terms of the grammar's.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    write_plainly(tokens);
    commas::leave_out_trailing(tokens);
    pivots::rewrite(tokens);
    from_first::rewrite(tokens);
    prefix_aliases::rewrite(tokens);
    columns::rewrite(tokens);
    joins::rewrite(tokens);
    samples::rewrite(tokens);
    limits::rewrite(tokens);
    comprehensions::rewrite(tokens);
}

/// Numbers without underscores, `^` for `**`, and `INTERVAL '2' DAY` for `INTERVAL (2) DAY`.
fn write_plainly(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 0;
    while place < tokens.len() {
        if let [interval, open, number, close, unit, ..] = &tokens[place..]
            && is(interval, "interval")
            && open.token == Token::LParen
            && close.token == Token::RParen
            && matches!(unit.token, Token::Word(_))
            && let Token::Number(digits, _) = &number.token
            && digits.bytes().all(|digit| digit.is_ascii_digit())
        {
            // Else the number is taken for the precision of the type.
            let number = at(Token::SingleQuotedString(digits.clone()), number.span);
            tokens.splice(place + 1..place + 4, [number]);
        }
        let next = tokens.get(place + 1);
        let doubled = next.is_some_and(|next| {
            next.token == Token::Mul && next.span.start == tokens[place].span.end
        });
        match &mut tokens[place].token {
            Token::Number(digits, _) if digits.contains('_') => digits.retain(|char| char != '_'),
            power @ Token::Mul if doubled => {
                *power = Token::Caret;
                tokens.remove(place + 1);
            }
            _ => {}
        }
        place += 1;
    }
}

/// The place of the bracket that closes the one at a place.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(place);
                }
            }
            _ => {}
        }
    }
    None
}

/// The first place within these tokens, outside of brackets among them, of a token that is wanted.
fn outside_brackets(
    tokens: &[TokenWithSpan],
    mut wanted: impl FnMut(usize, &TokenWithSpan) -> bool,
) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate() {
        match token.token {
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            _ if depth == 0 && wanted(place, token) => return Some(place),
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            _ => {}
        }
    }
    None
}

/// Where a bracket closes that was opened before these tokens.
fn closes_within(tokens: &[TokenWithSpan]) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => match depth {
                0 => return place,
                _ => depth -= 1,
            },
            _ => {}
        }
    }
    tokens.len()
}

/// True of a word that begins a clause behind a select list or FROM, given the token behind it.
fn begins_clause(token: &TokenWithSpan, next: Option<&TokenWithSpan>) -> bool {
    const CLAUSES: [&str; 11] = [
        "from",
        "where",
        "having",
        "qualify",
        "limit",
        "union",
        "except",
        "intersect",
        "window",
        "offset",
        "fetch",
    ];
    CLAUSES.iter().any(|word| is(token, word))
        || ["group", "order"].iter().any(|word| is(token, word))
            && next.is_some_and(|next| is(next, "by"))
}

/// A token in place of one of the text, so that errors have a place.
fn at(token: Token, span: Span) -> TokenWithSpan {
    TokenWithSpan { token, span }
}

/// A word.
fn word(text: &str, span: Span) -> TokenWithSpan {
    at(Token::make_word(text, None), span)
}

#[cfg(test)]
fn rewritten(sql: &str) -> String {
    let mut tokens = crate::text::tokenize(sql).unwrap();
    rewrite(&mut tokens);
    let texts: Vec<String> = tokens.iter().map(|token| token.token.to_string()).collect();
    texts.join(" ").trim_end_matches(" EOF").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_powers_are_written_plainly() {
        assert_eq!(rewritten("SELECT 1_000, 2 ** 3, 2 * * 3"), "SELECT 1000 , 2 ^ 3 , 2 * * 3");
    }
}
