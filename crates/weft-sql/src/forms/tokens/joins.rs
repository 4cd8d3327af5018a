//! `a ASOF JOIN b ON …`, `a ASOF LEFT JOIN b …` and `a POSITIONAL JOIN b`, as joins that the grammar has: Snowflake's ASOF JOIN, whose
//! condition says which of the two it is, and ClickHouse's ARRAY JOIN, which is no other join here.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{at, begins_clause, closes_within, outside_brackets, word};
use crate::forms::joins::{ASOF, ASOF_LEFT};
use crate::grammar::is;

/// Writes the joins.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 0;
    while place < tokens.len() {
        let joins = |offset: usize| tokens.get(place + offset).is_some_and(|t| is(t, "join"));
        // `a AS asof JOIN b ON …` names the table.
        if place > 0 && is(&tokens[place - 1], "as") {
            place += 1;
            continue;
        }
        if is(&tokens[place], "positional") && joins(1) && !has_condition(&tokens[place + 2..]) {
            let span = tokens[place].span;
            tokens.splice(place..=place, [word("INNER", span), word("ARRAY", span)]);
        } else if is(&tokens[place], "asof") {
            write_asof(tokens, place);
        }
        place += 1;
    }
}

/// True if a join has a condition, so that the word before JOIN is a name.
fn has_condition(behind: &[TokenWithSpan]) -> bool {
    let first = outside_brackets(behind, |place, token| {
        token.token == Token::Comma
            || ["on", "using", "join"].iter().any(|word| is(token, word))
            || begins_clause(token, behind.get(place + 1))
    });
    let of_join = &behind[..closes_within(behind)];
    first
        .and_then(|place| of_join.get(place))
        .is_some_and(|token| is(token, "on") || is(token, "using"))
}

fn write_asof(tokens: &mut Vec<TokenWithSpan>, place: usize) {
    let is_at =
        |offset: usize, word| tokens.get(place + offset).is_some_and(|token| is(token, word));
    let (words, mark) = if is_at(1, "join") {
        (1, ASOF)
    } else if is_at(1, "inner") && is_at(2, "join") {
        (2, ASOF)
    } else if is_at(1, "left") && is_at(2, "join") {
        (2, ASOF_LEFT)
    } else if is_at(1, "left") && is_at(2, "outer") && is_at(3, "join") {
        (3, ASOF_LEFT)
    } else {
        return;
    };
    let start = place + words + 1;
    let ends = outside_brackets(&tokens[start..], |_, token| {
        ["on", "using", "match_condition", "join", "where"].iter().any(|word| is(token, word))
    });
    let Some(condition) = ends.map(|ends| start + ends) else { return };
    if !["on", "using"].iter().any(|word| is(&tokens[condition], word)) {
        return;
    }
    let span = tokens[place].span;
    let parens = [Token::LParen, Token::RParen].map(|token| at(token, span));
    let [open, close] = parens;
    let marked =
        [word("MATCH_CONDITION", span), open.clone(), word(mark, span), open, close.clone(), close];
    tokens.splice(condition..condition, marked);
    tokens.drain(place + 1..place + words);
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn joins_are_those_of_the_grammar() {
        for (sql, plain) in [
            ("FROM a POSITIONAL JOIN b", "SELECT * FROM a INNER ARRAY JOIN b"),
            (
                "FROM a ASOF LEFT JOIN (SELECT 1 ON) b ON x JOIN c ON y",
                "SELECT * FROM a ASOF JOIN ( SELECT 1 ON ) b MATCH_CONDITION ( asof_left_join ( ) ) ON x JOIN c ON y",
            ),
            (
                "FROM a ASOF JOIN b USING (x)",
                "SELECT * FROM a ASOF JOIN b MATCH_CONDITION ( asof_join ( ) ) USING ( x )",
            ),
            ("SELECT 1 FROM a positional JOIN b ON x", "SELECT 1 FROM a positional JOIN b ON x"),
            ("SELECT asof FROM t asof", "SELECT asof FROM t asof"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
