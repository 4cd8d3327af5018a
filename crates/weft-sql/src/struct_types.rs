//! `STRUCT(x INTEGER, y VARCHAR)` as the name of a type.
//!
//! The grammar knows only `STRUCT<x INTEGER, y VARCHAR>`, and takes parentheses for a call of the function
//! of that name. So where what is in parentheses reads as fields, angle brackets are put in their place.

use datafusion::sql::sqlparser::dialect::DuckDbDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words that begin an argument of a call, though a name could stand there.
const NO_FIELDS: [&str; 7] = ["all", "case", "distinct", "exists", "interval", "not", "select"];

/// Types of fields in parentheses, nested at most.
const DEPTH_MAX: usize = 32;

/// Puts angle brackets around the fields of types.
pub(crate) fn rewrite(tokens: &mut [TokenWithSpan]) {
    let mut at = 0;
    while at < tokens.len() {
        if is_struct(&tokens[at].token)
            && let Some(open) = next_significant(tokens, at + 1)
            && tokens[open].token == Token::LParen
            && let Some(close) = closing(tokens, open)
            && is_type(&tokens[at..=close])
        {
            tokens[open].token = Token::Lt;
            tokens[close].token = Token::Gt;
        }
        at += 1;
    }
}

fn is_struct(token: &Token) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("struct"))
}

fn next_significant(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let found = tokens[from..].iter().position(|t| !matches!(t.token, Token::Whitespace(_)));
    found.map(|found| from + found)
}

/// Where the parenthesis that is opened at `open` is closed.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        if depth > DEPTH_MAX {
            return None;
        }
    }
    None
}

/// Whether `STRUCT ( … )` is a type and not a call.
fn is_type(tokens: &[TokenWithSpan]) -> bool {
    let words = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    let first = words.skip(2).map(|token| &token.token).next();
    let begins_call = match first {
        Some(Token::Word(word)) => {
            word.quote_style.is_none()
                && NO_FIELDS.iter().any(|known| word.value.eq_ignore_ascii_case(known))
        }
        _ => true,
    };
    if begins_call {
        return false;
    }
    let mut parser = Parser::new(&DuckDbDialect {})
        .with_tokens_with_locations(tokens.to_vec())
        .with_recursion_limit(DEPTH_MAX);
    parser.parse_data_type().is_ok() && parser.peek_token().token == Token::EOF
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenize;

    fn rewritten(sql: &str) -> String {
        let mut tokens = tokenize(sql).unwrap();
        rewrite(&mut tokens);
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn types_get_angle_brackets() {
        for (sql, expected) in [
            ("a STRUCT(x INT, y DECIMAL(9, 2)[])", "a STRUCT<x INT, y DECIMAL(9, 2)[]>"),
            ("a Struct (\"x y\" TEXT)[]", "a Struct <\"x y\" TEXT>[]"),
            ("STRUCT(p STRUCT(q INT), r INT)", "STRUCT<p STRUCT<q INT>, r INT>"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn calls_stay() {
        for sql in [
            "struct(1, 2)",
            "struct(a, b)",
            "struct(a + b)",
            "struct(a AS b)",
            "struct(not a)",
            "struct(case a when 1 then 2 end)",
            "struct(a is null)",
            "struct(a",
            "\"struct\"(a INT)",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
