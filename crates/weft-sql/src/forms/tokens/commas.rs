//! Commas behind the last element of a list, as in `SELECT a, b, FROM t`, which mean nothing.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::grammar::is;

/// Leaves out commas behind which a list ends.
pub(super) fn leave_out_trailing(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 1;
    while place < tokens.len() {
        if tokens[place].token == Token::Comma && is_last(&tokens[place + 1..]) {
            let before = &tokens[place - 1];
            let is_behind = !matches!(
                before.token,
                Token::Comma | Token::LParen | Token::LBracket | Token::LBrace
            ) && !is(before, "select");
            if is_behind {
                tokens.remove(place);
                continue;
            }
        }
        place += 1;
    }
}

/// True if a list ends before these tokens.
fn is_last(rest: &[TokenWithSpan]) -> bool {
    let Some(next) = rest.first() else { return true };
    match next.token {
        Token::RParen | Token::RBracket | Token::RBrace | Token::SemiColon | Token::EOF => true,
        Token::Word(_) => {
            begins_clause_behind(next, rest.get(1))
                && rest.get(1).is_some_and(|token| {
                    !matches!(
                        token.token,
                        Token::Comma
                            | Token::EOF
                            | Token::SemiColon
                            | Token::RParen
                            | Token::Period
                    ) && !["from", "as"].iter().any(|word| is(token, word))
                })
        }
        _ => false,
    }
}

/// True of a word that begins a clause and that nothing in a list is called.
fn begins_clause_behind(token: &TokenWithSpan, next: Option<&TokenWithSpan>) -> bool {
    const CLAUSES: [&str; 6] = ["from", "where", "having", "union", "except", "intersect"];
    let is_followed = |word| next.is_some_and(|next| is(next, word));
    let is_number = next.is_some_and(|next| matches!(next.token, Token::Number(..)));
    CLAUSES.iter().any(|word| is(token, word))
        || (is(token, "group") || is(token, "order")) && is_followed("by")
        || is(token, "limit") && is_number
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn commas_behind_lists_are_left_out() {
        for (sql, plain) in [
            ("SELECT a, b, FROM t,", "SELECT a , b FROM t"),
            (
                "SELECT f(a,), [1, 2,], FROM t, GROUP BY a, ORDER BY b,",
                "SELECT f ( a ) , [ 1 , 2 ] FROM t GROUP BY a ORDER BY b",
            ),
            ("SELECT a, limit, offset FROM t", "SELECT a , limit , offset FROM t"),
            (
                "CREATE TABLE t (a INT, offset INT, limit INT)",
                "CREATE TABLE t ( a INT , offset INT , limit INT )",
            ),
            ("SELECT , FROM t", "SELECT , FROM t"),
            ("SELECT a,, FROM t", "SELECT a , , FROM t"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
