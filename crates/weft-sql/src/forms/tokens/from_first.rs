//! Queries that begin with FROM: `FROM t SELECT a WHERE b` is `SELECT a FROM t WHERE b`, and without a select list, all columns are wanted.
//! `TABLE t` is `FROM t`.

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
    // In a macro TABLE is the word before the query, and `ANALYZE TABLE t` is no query.
    let makes_macro = tokens.iter().take(5).any(|word| is(word, "macro") || is(word, "function"));
    while place < tokens.len() {
        let mut frame = frames.last().copied().unwrap_or_default();
        let token = &tokens[place];
        match token.token {
            Token::LParen => frames.push(Frame::default()),
            Token::RParen if frames.len() > 1 => {
                frames.pop();
            }
            Token::Word(_) => {
                // FROM of a change behind WITH is its own.
                if is(token, "select") || begins_change(tokens, place) {
                    frame.has_select = true;
                } else if is(token, "with") || is(token, "insert") {
                    frame.has_head = true;
                } else if ["union", "except", "intersect"].iter().any(|word| is(token, word)) {
                    frame.has_select = false;
                } else if is(token, "table")
                    && !frame.has_select
                    && !makes_macro
                    && begins_table_query(tokens, place, frame)
                {
                    frame.has_select = true;
                    let span = token.span;
                    tokens[place] = word("FROM", span);
                    tokens.splice(place..place, [word("SELECT", span), at(Token::Mul, span)]);
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

/// True if a word is DELETE or UPDATE of a change, and no name.
fn begins_change(tokens: &[TokenWithSpan], place: usize) -> bool {
    let Some(next) = tokens.get(place + 1) else { return false };
    match is(&tokens[place], "update") {
        true => matches!(next.token, Token::Word(_)) && !is(next, "as"),
        false => is(&tokens[place], "delete") && is(next, "from"),
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

/// True if TABLE is the first word of a query, and the name of a table follows.
fn begins_table_query(tokens: &[TokenWithSpan], place: usize, frame: Frame) -> bool {
    let next = tokens.get(place + 1);
    let is_named = next.is_some_and(|next| matches!(next.token, Token::Word(_)));
    // `INSERT INTO TABLE t` and `DESCRIBE TABLE t` name a table, and are no queries.
    let names_table = place.checked_sub(1).is_some_and(|before| {
        let behind = |word: &str| is(&tokens[before], word);
        ["into", "overwrite", "describe"].into_iter().any(behind)
            || before == 0 && behind("analyze")
    });
    is_named && !names_table && begins_query(tokens, place, frame)
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
            ("TABLE t ORDER BY a", "SELECT * FROM t ORDER BY a"),
            ("TABLE t UNION ALL TABLE u", "SELECT * FROM t UNION ALL SELECT * FROM u"),
            ("CREATE TABLE u AS TABLE t", "CREATE TABLE u AS SELECT * FROM t"),
            ("INSERT INTO u TABLE t", "INSERT INTO u SELECT * FROM t"),
            ("WITH c AS (TABLE t) TABLE c", "WITH c AS ( SELECT * FROM t ) SELECT * FROM c"),
            ("SELECT (FROM t SELECT max(a))", "SELECT ( SELECT max ( a ) FROM t )"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }

    #[test]
    fn other_words_stay() {
        for sql in [
            "DELETE FROM t",
            "WITH c AS ( SELECT 1 ) DELETE FROM t USING c",
            "WITH c AS ( SELECT 1 ) UPDATE t SET a = 1 FROM c",
            "INSERT INTO TABLE t VALUES ( 1 )",
            "DESCRIBE TABLE t",
            "DROP TABLE t",
            "CREATE MACRO f ( ) AS TABLE SELECT 1",
            "COPY t ( a ) FROM 'f'",
            "SELECT extract ( year FROM a ) FROM t WHERE a IS DISTINCT FROM b",
            "SELECT trim ( 'x' FROM a )",
            "SHOW COLUMNS FROM t",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
