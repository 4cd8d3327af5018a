//! Statements without parameters as statements with parameters: what stands for a value of a key, or for a value of a row, is taken
//! out of the text, so that statements that differ in such values have one plan.
//!
//! Constants are taken where nothing but a value can stand: behind `=`, and in lists of INSERT, up to a comma, a parenthesis, AND, or the
//! end of a clause. Elsewhere they stay part of the text. A text in which a parameter means something else than the constant has no shape
//! then (`shape.rs`, `change_shape.rs`), and takes the way of all statements.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::text::{Offsets, significant, tokenize};
use crate::value::Value;

/// Bytes of a text that is looked at, at most.
const TEXT_BYTES_MAX: usize = 4096;

/// Words that may come behind a value.
const BEHIND: [&str; 4] = ["AND", "ON", "RETURNING", "WHERE"];

/// A text with parameters in place of constants, and the values of these; `None` if it has none, or is no statement whose plan is kept.
pub(super) fn parameterized(sql: &str) -> Option<(String, Vec<Value>)> {
    let is_insert = may_be_kept(sql)?;
    let tokens = tokenize(sql).ok()?;
    let tokens = significant(&tokens);
    let offsets = Offsets::new(sql);
    let (mut text, mut values) = (String::with_capacity(sql.len()), Vec::new());
    let mut copied = 0;
    for (number, token) in tokens.iter().enumerate() {
        if matches!(token.token, Token::Placeholder(_) | Token::Question) {
            return None;
        }
        let Some((mut value, mut first)) = constant(&token.token).map(|value| (value, number))
        else {
            continue;
        };
        let before = |at: usize| at.checked_sub(1).map(|at| &tokens[at].token);
        if let (Value::Integer(digits), Some(Token::Minus)) = (&value, before(first)) {
            (value, first) = (Value::Integer(-digits), first - 1);
        }
        let is_value = match before(first) {
            Some(Token::Eq) => true,
            Some(Token::LParen | Token::Comma) => is_insert,
            _ => false,
        };
        if !is_value || !ends_value(tokens.get(number + 1)) {
            continue;
        }
        values.push(value);
        text.push_str(&sql[copied..offsets.byte(tokens[first].span.start)]);
        text.push_str(&format!("${}", values.len()));
        copied = offsets.byte(token.span.end);
    }
    if values.is_empty() {
        return None;
    }
    text.push_str(&sql[copied..]);
    Some((text, values))
}

/// Whether a text is an INSERT; `None` if it is no statement whose plan may be kept.
fn may_be_kept(sql: &str) -> Option<bool> {
    if sql.len() > TEXT_BYTES_MAX {
        return None;
    }
    let start = sql.trim_start();
    let is_verb =
        |verb: &str| start.get(..verb.len()).is_some_and(|found| found.eq_ignore_ascii_case(verb));
    let is_insert = is_verb("INSERT");
    let is_keyed = ["SELECT", "UPDATE", "DELETE"].into_iter().any(is_verb);
    (is_insert || is_keyed && sql.contains('=')).then_some(is_insert)
}

fn constant(token: &Token) -> Option<Value> {
    match token {
        Token::Number(digits, false) => digits.parse().ok().map(Value::Integer),
        Token::SingleQuotedString(text) => Some(Value::Text(text.clone())),
        _ => None,
    }
}

/// Whether a value is complete in front of a token.
fn ends_value(next: Option<&&TokenWithSpan>) -> bool {
    match next.map(|next| &next.token) {
        None | Some(Token::Comma | Token::RParen | Token::SemiColon) => true,
        Some(Token::Word(word)) => {
            word.quote_style.is_none()
                && BEHIND.iter().any(|behind| word.value.eq_ignore_ascii_case(behind))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> Option<(String, Vec<Value>)> {
        parameterized(sql)
    }

    #[test]
    fn values_of_keys_and_rows_are_taken_out() {
        let int = Value::Integer;
        let text = |text: &str| Value::Text(text.to_owned());
        let found = |sql: &str, values: Vec<Value>| Some((sql.to_owned(), values));
        assert_eq!(
            of("SELECT a + 1 FROM t WHERE k = 7"),
            found("SELECT a + 1 FROM t WHERE k = $1", vec![int(7)])
        );
        assert_eq!(
            of("select * from t where a = -7 and b = 'it''s' ;"),
            found("select * from t where a = $1 and b = $2 ;", vec![int(-7), text("it's")])
        );
        assert_eq!(
            of("UPDATE t SET a = 1, é = 'ü' WHERE k = 2 RETURNING 3"),
            found(
                "UPDATE t SET a = $1, é = $2 WHERE k = $3 RETURNING 3",
                vec![int(1), text("ü"), int(2)]
            )
        );
        assert_eq!(
            of("INSERT INTO t (a, b) VALUES (1, 'x'), (- 2, NULL)"),
            found(
                "INSERT INTO t (a, b) VALUES ($1, $2), ($3, NULL)",
                vec![int(1), text("x"), int(-2)]
            )
        );
    }

    #[test]
    fn other_constants_stay() {
        for sql in [
            "SELECT a FROM t WHERE k = 7 + 1",
            "SELECT a FROM t WHERE k = 7::INT",
            "SELECT a FROM t WHERE k > 7",
            "SELECT a FROM t WHERE k = 1.5",
            "SELECT a FROM t WHERE k = 12345678901234567890",
            "SELECT a FROM t WHERE k = DATE '2024-01-01'",
            "SELECT a FROM t WHERE k = 7 OR k = 8 + 1",
            "SELECT a FROM t WHERE k = $1 AND j = 7",
            "SELECT 1, 2",
            "EXPLAIN SELECT a FROM t WHERE k = 7",
            "INSERT INTO t VALUES (1 + 1, 2.5)",
            "SELECT 'open",
        ] {
            assert_eq!(of(sql), None, "{sql}");
        }
    }
}
