//! PIVOT and UNPIVOT as the grammar has them: `PIVOT t ON a IN (1, 2) USING sum(b) GROUP BY c` is `SELECT * FROM t PIVOT (…)`, and what the
//! grammar's PIVOT cannot hold (several columns, names, groups) is put in calls, which `with_columns/pivots.rs` takes apart.

use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{at, closes_within, closing, outside_brackets, word};
use crate::forms::pivots::{AGGREGATE, ANY, GROUPS, NAMED, ON, VALUES};
use crate::grammar::is;

/// Writes both forms of PIVOT and UNPIVOT.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 0;
    while place < tokens.len() {
        let is_any = |words: [&str; 2]| words.iter().any(|word| is(&tokens[place], word));
        if is_any(["pivot", "pivot_wider"]) {
            match behind_table(tokens, place) {
                Some(close) => write_table_form(tokens, place, close),
                None => write_statement(tokens, place),
            }
        } else if is_any(["unpivot", "pivot_longer"]) {
            match behind_table(tokens, place) {
                Some(close) => write_stars(tokens, place, close),
                None => write_unpivot_statement(tokens, place),
            }
        }
        place += 1;
    }
}

/// Where the parentheses of a PIVOT behind a table close; `None` for the statement.
fn behind_table(tokens: &[TokenWithSpan], pivot: usize) -> Option<usize> {
    let mut open = pivot + 1;
    if tokens.get(open + 1).is_some_and(|token| is(token, "nulls")) {
        open += 2;
    }
    if tokens.get(open)?.token != Token::LParen {
        return None;
    }
    let close = closing(tokens, open)?;
    word_at(&tokens[open + 1..close], "for").map(|_| close)
}

/// Where a word stands outside of brackets.
fn word_at(tokens: &[TokenWithSpan], wanted: &str) -> Option<usize> {
    outside_brackets(tokens, |_, token| is(token, wanted))
}

/// The parts between commas outside of brackets.
fn parts(mut tokens: &[TokenWithSpan]) -> Vec<&[TokenWithSpan]> {
    let mut found = Vec::new();
    while let Some(comma) = outside_brackets(tokens, |_, token| token.token == Token::Comma) {
        found.push(&tokens[..comma]);
        tokens = &tokens[comma + 1..];
    }
    found.push(tokens);
    found
}

/// A call of a marker.
fn call(name: &str, arguments: &[Vec<TokenWithSpan>], span: Span) -> Vec<TokenWithSpan> {
    let mut made = vec![word(name, span), at(Token::LParen, span)];
    for (number, argument) in arguments.iter().enumerate() {
        if number > 0 {
            made.push(at(Token::Comma, span));
        }
        made.extend_from_slice(argument);
    }
    made.push(at(Token::RParen, span));
    made
}

/// What is written and the name behind AS.
fn named(part: &[TokenWithSpan]) -> (&[TokenWithSpan], Option<TokenWithSpan>) {
    if let [before @ .., behind, name] = part
        && is(behind, "as")
        && !before.is_empty()
    {
        let text = match &name.token {
            Token::Word(word) => word.value.clone(),
            Token::SingleQuotedString(text) => text.clone(),
            _ => return (part, None),
        };
        return (before, Some(at(Token::SingleQuotedString(text), name.span)));
    }
    (part, None)
}

fn with_name(part: &[TokenWithSpan], marker: &str, is_always: bool) -> Vec<TokenWithSpan> {
    let span = part.first().map_or_else(Span::empty, |token| token.span);
    match named(part) {
        (value, Some(name)) => call(marker, &[value.to_vec(), vec![name]], span),
        (value, None) if is_always => call(marker, &[value.to_vec()], span),
        (value, None) => value.to_vec(),
    }
}

/// What PIVOT is told.
#[derive(Default)]
struct Pivot {
    columns: Vec<Vec<TokenWithSpan>>,
    sources: Vec<Vec<TokenWithSpan>>,
    aggregates: Vec<Vec<TokenWithSpan>>,
    groups: Vec<Vec<TokenWithSpan>>,
}

impl Pivot {
    fn add_column(&mut self, column: &[TokenWithSpan], values: Option<&[TokenWithSpan]>) {
        let span = column.first().map_or_else(Span::empty, |token| token.span);
        self.columns.push(column.to_vec());
        self.sources.push(match values {
            None => call(ANY, &[], span),
            Some([only, ..]) if is(only, "any") => call(ANY, &[], span),
            Some(values) => {
                let values: Vec<_> =
                    parts(values).into_iter().map(|part| with_name(part, NAMED, false)).collect();
                call(VALUES, &values, span)
            }
        });
    }

    fn add_aggregates(&mut self, tokens: &[TokenWithSpan]) {
        if !tokens.is_empty() {
            let made = parts(tokens).into_iter().map(|part| with_name(part, AGGREGATE, true));
            self.aggregates.extend(made);
        }
    }

    fn add_groups(&mut self, tokens: &[TokenWithSpan]) {
        self.groups.extend(parts(tokens).into_iter().map(<[TokenWithSpan]>::to_vec));
    }

    /// The content of PIVOT's parentheses.
    fn content(mut self, span: Span) -> Vec<TokenWithSpan> {
        if self.aggregates.is_empty() {
            let count = call("count", &[vec![at(Token::Mul, span)]], span);
            self.aggregates.push(call(AGGREGATE, &[count], span));
        }
        let mut made = Vec::new();
        for (number, aggregate) in self.aggregates.into_iter().enumerate() {
            if number > 0 {
                made.push(at(Token::Comma, span));
            }
            made.extend(aggregate);
        }
        made.push(word("FOR", span));
        made.extend(call(ON, &self.columns, span));
        made.push(word("IN", span));
        made.push(at(Token::LParen, span));
        for (number, source) in self.sources.into_iter().enumerate() {
            if number > 0 {
                made.push(at(Token::Comma, span));
            }
            made.extend(source);
        }
        made.push(at(Token::RParen, span));
        if !self.groups.is_empty() {
            made.extend(["DEFAULT", "ON", "NULL"].map(|text| word(text, span)));
            made.push(at(Token::LParen, span));
            made.extend(call(GROUPS, &self.groups, span));
            made.push(at(Token::RParen, span));
        }
        made
    }
}

/// `t PIVOT (sum(b) FOR a IN (1, 2) c IN (3) GROUP BY d)`.
fn write_table_form(tokens: &mut Vec<TokenWithSpan>, pivot: usize, close: usize) {
    let open = pivot + 1;
    let span = tokens[pivot].span;
    let content = &tokens[open + 1..close];
    let Some(behind) = word_at(content, "for") else { return };
    if content.get(behind + 1).is_some_and(|token| is(token, ON)) {
        // It is written so already.
        return;
    }
    let mut made = Pivot::default();
    made.add_aggregates(&content[..behind]);
    let mut rest = &content[behind + 1..];
    while let Some(within) = word_at(rest, "in") {
        let Some(closed) = closing(rest, within + 1) else { return };
        made.add_column(without_for(&rest[..within]), Some(&rest[within + 2..closed]));
        rest = &rest[closed + 1..];
        if rest.first().is_some_and(|token| is(token, "group")) {
            break;
        }
    }
    match rest {
        [] => {}
        [group, by, groups @ ..] if is(group, "group") && is(by, "by") => made.add_groups(groups),
        _ => return,
    }
    let content = made.content(span);
    tokens.splice(open + 1..close, content);
}

/// A column of PIVOT, before which FOR may be repeated.
fn without_for(column: &[TokenWithSpan]) -> &[TokenWithSpan] {
    match column {
        [first, rest @ ..] if is(first, "for") => rest,
        all => all,
    }
}

/// Where a statement ends that begins at a place, and where its ON stands.
fn statement_of(tokens: &[TokenWithSpan], place: usize) -> Option<(usize, usize)> {
    let rest = &tokens[place + 1..];
    let end = closes_within(rest);
    let ends = |_, token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
    let end = outside_brackets(&rest[..end], ends).unwrap_or(end);
    let on = word_at(&rest[..end], "on").filter(|on| *on > 0)?;
    Some((place + 1 + on, place + 1 + end))
}

/// Where what follows PIVOT's own clauses begins.
fn tail(tokens: &[TokenWithSpan]) -> usize {
    const TAILS: [&str; 7] = ["order", "limit", "offset", "union", "except", "intersect", "fetch"];
    let found = outside_brackets(tokens, |_, token| TAILS.iter().any(|word| is(token, word)));
    found.unwrap_or(tokens.len())
}

/// `PIVOT t ON a USING sum(b) GROUP BY c`.
fn write_statement(tokens: &mut Vec<TokenWithSpan>, place: usize) {
    let Some((on, end)) = statement_of(tokens, place) else { return };
    let span = tokens[place].span;
    let clauses = &tokens[on + 1..end];
    let clauses = &clauses[..tail(clauses)];
    let after = on + 1 + clauses.len();
    let group = word_at(clauses, "group").unwrap_or(clauses.len());
    let using = word_at(&clauses[..group], "using").unwrap_or(group);
    let mut made = Pivot::default();
    for part in parts(&clauses[..using]) {
        let within = word_at(part, "in").filter(|within| closing(part, within + 1).is_some());
        match within {
            Some(within) => {
                let closed = closing(part, within + 1).unwrap_or(part.len());
                made.add_column(&part[..within], Some(&part[within + 2..closed]));
            }
            None => made.add_column(part, None),
        }
    }
    if using < group {
        made.add_aggregates(&clauses[using + 1..group]);
    }
    if let [_, by, groups @ ..] = &clauses[group..]
        && is(by, "by")
    {
        made.add_groups(groups);
    }
    let mut written: Vec<TokenWithSpan> =
        vec![word("SELECT", span), at(Token::Mul, span), word("FROM", span)];
    written.extend_from_slice(&tokens[place + 1..on]);
    written.extend([word("PIVOT", span), at(Token::LParen, span)]);
    written.extend(made.content(span));
    written.push(at(Token::RParen, span));
    tokens.splice(place..after, written);
}

/// `UNPIVOT t ON a, b INTO NAME n VALUE v`.
fn write_unpivot_statement(tokens: &mut Vec<TokenWithSpan>, place: usize) {
    let Some((on, end)) = statement_of(tokens, place) else { return };
    let span = tokens[place].span;
    let clauses = &tokens[on + 1..end];
    let clauses = &clauses[..tail(clauses)];
    let after = on + 1 + clauses.len();
    let into = word_at(clauses, "into").unwrap_or(clauses.len());
    let columns = &clauses[..into];
    let (name, values) = match &clauses[into..] {
        [_, word, name, value, values @ ..]
            if is(word, "name") && is(value, "value") && !values.is_empty() =>
        {
            (name.clone(), values.to_vec())
        }
        [] => (word("name", span), vec![word("value", span)]),
        _ => return,
    };
    let is_many = values.iter().any(|token| token.token == Token::Comma);
    let mut written: Vec<TokenWithSpan> =
        vec![word("SELECT", span), at(Token::Mul, span), word("FROM", span)];
    written.extend_from_slice(&tokens[place + 1..on]);
    written.extend([word("UNPIVOT", span), at(Token::LParen, span)]);
    if is_many {
        written.push(at(Token::LParen, span));
    }
    written.extend(values);
    if is_many {
        written.push(at(Token::RParen, span));
    }
    written.extend([word("FOR", span), name, word("IN", span), at(Token::LParen, span)]);
    written.extend(starred(columns, span));
    written.extend([at(Token::RParen, span), at(Token::RParen, span)]);
    tokens.splice(place..after, written);
}

/// `*` among the columns of UNPIVOT as COLUMNS(*).
fn starred(columns: &[TokenWithSpan], span: Span) -> Vec<TokenWithSpan> {
    let mut made = Vec::new();
    for (number, part) in parts(columns).into_iter().enumerate() {
        if number > 0 {
            made.push(at(Token::Comma, span));
        }
        match part.first() {
            Some(first) if first.token == Token::Mul => {
                made.extend(call("columns", &[part.to_vec()], span));
            }
            _ => made.extend_from_slice(part),
        }
    }
    made
}

/// The columns of UNPIVOT behind a table.
fn write_stars(tokens: &mut Vec<TokenWithSpan>, place: usize, close: usize) {
    let within = tokens[place..close].iter().position(|token| is(token, "in"));
    let Some(open) = within.map(|within| place + within + 1) else { return };
    let Some(end) = closing(tokens, open) else { return };
    let made = starred(&tokens[open + 1..end], tokens[place].span);
    tokens.splice(open + 1..end, made);
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn statements_become_tables() {
        assert_eq!(
            rewritten("PIVOT t ON a IN (1 AS x, 2) USING sum(b) AS s GROUP BY c ORDER BY c"),
            "SELECT * FROM t PIVOT ( pivot_aggregate ( sum ( b ) , 's' ) FOR pivot_on ( a ) IN \
             ( pivot_values ( pivot_named ( 1 , 'x' ) , 2 ) ) DEFAULT ON NULL ( pivot_groups ( c ) ) ) ORDER BY c"
        );
        assert_eq!(
            rewritten("SELECT * FROM (PIVOT t ON a, b)"),
            "SELECT * FROM ( SELECT * FROM t PIVOT ( pivot_aggregate ( count ( * ) ) FOR pivot_on ( a , b ) IN \
             ( pivot_any ( ) , pivot_any ( ) ) ) )"
        );
        assert_eq!(
            rewritten("UNPIVOT t ON a, * EXCLUDE (c) INTO NAME n VALUE v, w LIMIT 1"),
            "SELECT * FROM t UNPIVOT ( ( v , w ) FOR n IN ( a , columns ( * EXCLUDE ( c ) ) ) ) LIMIT 1"
        );
    }

    #[test]
    fn tables_keep_their_form() {
        assert_eq!(
            rewritten("FROM t PIVOT (sum(a), max(a) FOR b IN (1) c IN ('x') GROUP BY d) AS p"),
            "SELECT * FROM t PIVOT ( pivot_aggregate ( sum ( a ) ) , pivot_aggregate ( max ( a ) ) FOR pivot_on ( b , c ) IN \
             ( pivot_values ( 1 ) , pivot_values ( 'x' ) ) DEFAULT ON NULL ( pivot_groups ( d ) ) ) AS p"
        );
        assert_eq!(
            rewritten("FROM t UNPIVOT INCLUDE NULLS (v FOR n IN (a, b))"),
            "SELECT * FROM t UNPIVOT INCLUDE NULLS ( v FOR n IN ( a , b ) )"
        );
        assert_eq!(rewritten("SELECT pivot FROM t"), "SELECT pivot FROM t");
    }
}
