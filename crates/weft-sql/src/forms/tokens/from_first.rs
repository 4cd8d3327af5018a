//! Queries that begin with FROM: `FROM t SELECT a WHERE b` is `SELECT a FROM t WHERE b`, and without a select list, all columns are wanted.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{at, begins_clause, closing, word};
use crate::grammar::is;

/// Words behind which a query may begin.
const BEFORE_QUERIES: [&str; 11] = [
    "as",
    "union",
    "except",
    "intersect",
    "all",
    "name",
    "explain",
    "analyze",
    "verbose",
    "describe",
    "summarize",
];

/// What was seen between two brackets.
#[derive(Clone, Copy, Default)]
struct Frame {
    /// The SELECT of a query, to which a FROM belongs.
    has_select: bool,
    /// WITH or INSERT, behind whose lists in parentheses a query may begin.
    has_head: bool,
}

/// Begins such queries with SELECT.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut frames = vec![Frame::default()];
    let mut place = 0;
    while place < tokens.len() {
        let mut frame = frames.last().copied().unwrap_or_default();
        let token = &tokens[place];
        match token.token {
            Token::LParen => frames.push(Frame::default()),
            Token::RParen if frames.len() > 1 => {
                frames.pop();
            }
            Token::Word(_) => {
                if is(token, "select") {
                    frame.has_select = true;
                } else if is(token, "with") || is(token, "insert") {
                    frame.has_head = true;
                } else if ["union", "except", "intersect"].iter().any(|word| is(token, word)) {
                    frame.has_select = false;
                } else if is(token, "from")
                    && !frame.has_select
                    && begins_query(tokens, place, frame)
                {
                    frame.has_select = true;
                    begin_with_select(tokens, place);
                }
                if let Some(last) = frames.last_mut() {
                    *last = frame;
                }
            }
            _ => {}
        }
        place += 1;
    }
}

/// True if a FROM without SELECT is the first word of a query.
fn begins_query(tokens: &[TokenWithSpan], place: usize, frame: Frame) -> bool {
    let Some(before) = place.checked_sub(1).map(|before| &tokens[before]) else { return true };
    match before.token {
        Token::LParen => true,
        _ if frame.has_head => true,
        _ if is(before, "distinct") => place > 1 && is(&tokens[place - 2], "union"),
        _ => BEFORE_QUERIES.iter().any(|word| is(before, word)),
    }
}

/// Puts the select list of the query that begins at a place before its FROM.
fn begin_with_select(tokens: &mut Vec<TokenWithSpan>, from: usize) {
    let ends = |words: &[&str], start: usize| {
        let mut place = start;
        while let Some(token) = tokens.get(place) {
            match token.token {
                Token::LParen | Token::LBracket | Token::LBrace => {
                    place = closing(tokens, place).unwrap_or(tokens.len());
                }
                Token::RParen | Token::RBracket | Token::RBrace | Token::SemiColon | Token::EOF => {
                    return place;
                }
                _ if words.iter().any(|word| is(token, word)) => return place,
                _ if words.is_empty() && begins_clause(token, tokens.get(place + 1)) => {
                    return place;
                }
                _ => {}
            }
            place += 1;
        }
        tokens.len()
    };
    let select = ends(&["select", "union", "except", "intersect"], from + 1);
    if !tokens.get(select).is_some_and(|token| is(token, "select")) {
        let span = tokens[from].span;
        tokens.splice(from..from, [word("SELECT", span), at(Token::Mul, span)]);
        return;
    }
    let end = ends(&[], select + 1);
    let list: Vec<TokenWithSpan> = tokens.drain(select..end).collect();
    tokens.splice(from..from, list);
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn select_comes_first() {
        for (sql, plain) in [
            ("FROM t", "SELECT * FROM t"),
            ("FROM t WHERE a", "SELECT * FROM t WHERE a"),
            ("FROM t SELECT a, b WHERE c", "SELECT a , b FROM t WHERE c"),
            (
                "WITH c AS (FROM t) FROM c LIMIT 1",
                "WITH c AS ( SELECT * FROM t ) SELECT * FROM c LIMIT 1",
            ),
            (
                "FROM (FROM t SELECT DISTINCT a) UNION ALL FROM u",
                "SELECT * FROM ( SELECT DISTINCT a FROM t ) UNION ALL SELECT * FROM u",
            ),
            ("INSERT INTO t (a) FROM u", "INSERT INTO t ( a ) SELECT * FROM u"),
            ("SELECT (FROM t SELECT max(a))", "SELECT ( SELECT max ( a ) FROM t )"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }

    #[test]
    fn other_words_stay() {
        for sql in [
            "DELETE FROM t",
            "COPY t ( a ) FROM 'f'",
            "SELECT extract ( year FROM a ) FROM t WHERE a IS DISTINCT FROM b",
            "SELECT trim ( 'x' FROM a )",
            "SHOW COLUMNS FROM t",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
