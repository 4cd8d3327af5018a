//! Names before what they name: `SELECT a: 1 FROM b: t` is `SELECT 1 AS a FROM t AS b`.

use std::collections::HashMap;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{begins_clause, closes_within, closing, outside_brackets, word};
use crate::grammar::is;

/// Which list the tokens between two brackets are in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Items,
    Tables,
    /// The condition of a join.
    Condition,
    None,
}

/// Puts names behind what they name.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.iter().any(|token| token.token == Token::Colon) {
        return;
    }
    // Names by the places that they go to.
    let mut names: HashMap<usize, Vec<TokenWithSpan>> = HashMap::new();
    let mut taken = Vec::new();
    let mut lists = vec![List::None];
    let mut starts = false;
    for place in 0..tokens.len() {
        let list = *lists.last().unwrap_or(&List::None);
        if starts && let Some(end) = named_until(tokens, place, list) {
            let name = tokens[place].clone();
            let keyword = word("AS", name.span);
            // An outer name goes behind an inner one.
            names.entry(end).or_default().splice(0..0, [keyword, name]);
            taken.extend([place, place + 1]);
        }
        (starts, *lists.last_mut().unwrap_or(&mut List::None)) = step(tokens, place, list);
        match tokens[place].token {
            Token::LParen | Token::LBracket | Token::LBrace => lists.push(List::None),
            Token::RParen | Token::RBracket | Token::RBrace if lists.len() > 1 => {
                lists.pop();
            }
            _ => {}
        }
    }
    if taken.is_empty() {
        return;
    }
    let mut renamed = Vec::with_capacity(tokens.len());
    for (place, token) in tokens.drain(..).enumerate() {
        renamed.extend(names.remove(&place).unwrap_or_default());
        if taken.binary_search(&place).is_err() {
            renamed.push(token);
        }
    }
    let mut rest: Vec<_> = names.into_iter().collect();
    rest.sort_unstable_by_key(|(place, _)| *place);
    renamed.extend(rest.into_iter().flat_map(|(_, names)| names));
    *tokens = renamed;
}

/// Whether an element of a list starts behind a token, and which list it is in.
fn step(tokens: &[TokenWithSpan], place: usize, list: List) -> (bool, List) {
    let token = &tokens[place];
    match token.token {
        Token::Comma if list == List::Items => (true, list),
        Token::Comma if matches!(list, List::Tables | List::Condition) => (true, List::Tables),
        Token::Word(_) if is(token, "select") => (true, List::Items),
        Token::Word(_) if is(token, "from") => {
            let is_comparison =
                place > 0 && is(&tokens[place - 1], "distinct") && list != List::None;
            if is_comparison { (false, list) } else { (true, List::Tables) }
        }
        Token::Word(_) if is(token, "join") && list != List::None => (true, List::Tables),
        Token::Word(_) if list == List::Items => {
            let goes_on = ["distinct", "all"].iter().any(|word| is(token, word))
                && is(&tokens[place - 1], "select");
            match begins_clause(token, tokens.get(place + 1)) {
                true => (false, List::None),
                false => (goes_on, list),
            }
        }
        Token::Word(_) if list == List::Tables => {
            if ["on", "using"].iter().any(|word| is(token, word)) {
                return (false, List::Condition);
            }
            match begins_clause(token, tokens.get(place + 1)) {
                true => (false, List::None),
                false => (is(token, "lateral"), list),
            }
        }
        Token::Word(_)
            if list == List::Condition && begins_clause(token, tokens.get(place + 1)) =>
        {
            (false, List::None)
        }
        _ => (false, list),
    }
}

/// Where what a name and a colon at a place stand before ends, if there are such.
fn named_until(tokens: &[TokenWithSpan], place: usize, list: List) -> Option<usize> {
    let (Token::Word(_), Token::Colon) = (&tokens[place].token, &tokens.get(place + 1)?.token)
    else {
        return None;
    };
    let start = place + 2;
    let rest = tokens.get(start..)?;
    if list == List::Items {
        let end = outside_brackets(rest, |at, token| {
            matches!(token.token, Token::Comma | Token::SemiColon | Token::EOF)
                || begins_clause(token, rest.get(at + 1))
                    && !(at > 0 && is(&rest[at - 1], "distinct"))
        });
        let closes = closes_within(rest);
        return Some(start + end.unwrap_or(rest.len()).min(closes));
    }
    // A name with its parts, a file, a call or something in parentheses.
    let mut end = start;
    if tokens[end].token != Token::LParen {
        end += 1;
        while tokens.get(end).is_some_and(|token| token.token == Token::Period) {
            end += 2;
        }
    }
    if tokens.get(end).is_some_and(|token| token.token == Token::LParen) {
        end = closing(tokens, end)? + 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn names_go_behind_what_they_name() {
        for (sql, plain) in [
            (
                "SELECT a: 1, b, \"C\": f(x, y) + 1 FROM t",
                "SELECT 1 AS a , b , f ( x , y ) + 1 AS \"C\" FROM t",
            ),
            ("SELECT DISTINCT a: x", "SELECT DISTINCT x AS a"),
            (
                "SELECT * FROM a: s.t JOIN b: range(3) ON TRUE, c: (SELECT d: 1)",
                "SELECT * FROM s . t AS a JOIN range ( 3 ) AS b ON TRUE , ( SELECT 1 AS d ) AS c",
            ),
            (
                "SELECT (SELECT a: 1), b: (SELECT c: 2)",
                "SELECT ( SELECT 1 AS a ) , ( SELECT 2 AS c ) AS b",
            ),
            ("SELECT a: x IS DISTINCT FROM y, b: 1", "SELECT x IS DISTINCT FROM y AS a , 1 AS b"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }

    #[test]
    fn other_colons_stay() {
        for (sql, plain) in [
            ("SELECT l[a:2], {a: 1}", "SELECT l [ a : 2 ] , { a : 1 }"),
            (
                "SELECT f(l, lambda x: x), MAP {a: 1}",
                "SELECT f ( l , lambda x : x ) , MAP { a : 1 }",
            ),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
