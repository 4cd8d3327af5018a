//! `WITH t AS MATERIALIZED (…)` and `AS NOT MATERIALIZED`, which the grammar lacks. They advise how to execute a query, which the
//! planner finds out by itself: the words are left out.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::grammar::is;

/// Words that a query begins with.
const QUERIES: [&str; 5] = ["from", "select", "table", "values", "with"];

/// Leaves out the words.
pub(crate) fn rewrite(tokens: &mut [TokenWithSpan]) {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    for start in 0..places.len() {
        let token = |offset: usize| places.get(start + offset).map(|at| &tokens[*at]);
        let is_word = |offset: usize, word| token(offset).is_some_and(|token| is(token, word));
        let opens = |offset: usize| token(offset).is_some_and(|t| t.token == Token::LParen);
        let words = if is_word(1, "materialized") {
            1
        } else if is_word(1, "not") && is_word(2, "materialized") {
            2
        } else {
            continue;
        };
        // A table may have that name, with names of columns in parentheses.
        let is_query = opens(words + 2) || QUERIES.iter().any(|word| is_word(words + 2, word));
        if is_word(0, "as") && opens(words + 1) && is_query {
            for at in &places[start + 1..=start + words] {
                tokens[*at].token = Token::Whitespace(Whitespace::Space);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        crate::text::rewritten(sql, |tokens| rewrite(tokens))
    }

    #[test]
    fn the_words_are_left_out() {
        assert_eq!(
            rewritten(
                "WITH a AS MATERIALIZED (SELECT 1), b AS not materialized ((SELECT 2)) FROM a"
            ),
            "WITH a AS (SELECT 1), b AS ((SELECT 2)) FROM a"
        );
    }

    #[test]
    fn names_stay() {
        for sql in [
            "SELECT a FROM t AS materialized (a, b)",
            "SELECT 1 AS materialized",
            "SELECT 1 AS \"materialized\" (SELECT",
            "SELECT as not materialized",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
