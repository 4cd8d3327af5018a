//! `* LIKE 'a%'`, with NOT, ILIKE or SIMILAR TO, is COLUMNS of a condition on names, and `*COLUMNS(…)` among the arguments of a call
//! its columns as that many arguments: both get a name of their own.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{at, word};
use crate::grammar::is;

/// The variable of the conditions on names.
const NAME: &str = "column_name";

/// Writes both as calls.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 0;
    while place < tokens.len() {
        if tokens[place].token == Token::Mul {
            let words = pattern_words(&tokens[place + 1..]);
            if words > 0 {
                write_pattern(tokens, place, words);
            } else if is_spread(tokens, place) {
                let span = tokens[place].span;
                tokens.splice(place..place + 2, [word("columns_spread", span)]);
            }
        }
        place += 1;
    }
}

/// How many tokens follow a `*` that say which names are like a pattern.
fn pattern_words(rest: &[TokenWithSpan]) -> usize {
    let is_word = |place: usize, word| rest.get(place).is_some_and(|token| is(token, word));
    let first = usize::from(is_word(0, "not"));
    let words = if ["like", "ilike"].into_iter().any(|word| is_word(first, word)) {
        first + 1
    } else if is_word(first, "similar") && is_word(first + 1, "to") {
        first + 2
    } else {
        return 0;
    };
    match rest.get(words).map(|token| &token.token) {
        Some(Token::SingleQuotedString(_)) => words + 1,
        _ => 0,
    }
}

/// `t.* LIKE 'a%'` becomes `t.columns(lambda name: name LIKE 'a%')`.
fn write_pattern(tokens: &mut Vec<TokenWithSpan>, star: usize, words: usize) {
    let span = tokens[star].span;
    let condition = tokens[star + 1..=star + words].to_vec();
    let mut call = vec![
        word("columns", span),
        at(Token::LParen, span),
        word("lambda", span),
        word(NAME, span),
        at(Token::Colon, span),
        word(NAME, span),
    ];
    call.extend(condition);
    call.push(at(Token::RParen, span));
    tokens.splice(star..=star + words, call);
}

/// True of `*COLUMNS(` at the start of an argument.
fn is_spread(tokens: &[TokenWithSpan], star: usize) -> bool {
    let before = star.checked_sub(1).and_then(|place| tokens.get(place));
    before.is_some_and(|token| matches!(token.token, Token::LParen | Token::Comma))
        && tokens.get(star + 1).is_some_and(|token| is(token, "columns"))
        && tokens.get(star + 2).is_some_and(|token| token.token == Token::LParen)
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn conditions_on_names_are_calls() {
        for (sql, plain) in [
            (
                "SELECT t.* NOT LIKE 'a%' FROM t",
                "SELECT t . columns ( lambda column_name : column_name NOT LIKE 'a%' ) FROM t",
            ),
            (
                "SELECT f(*COLUMNS('a'), 2 * columns('b'))",
                "SELECT f ( columns_spread ( 'a' ) , 2 * columns ( 'b' ) )",
            ),
            ("SELECT * FROM t WHERE a LIKE 'b'", "SELECT * FROM t WHERE a LIKE 'b'"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
