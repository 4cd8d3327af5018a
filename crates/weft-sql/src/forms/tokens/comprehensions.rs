//! List comprehensions: `[x * 2 FOR x IN l IF x > 1]` is `list_transform(list_filter(l, lambda x: x > 1), lambda x: x * 2)`.

use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{at, closing, outside_brackets, word};
use crate::grammar::{RECURSION_MAX, is};

/// Writes comprehensions as calls.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    if tokens.iter().any(|token| is(token, "for"))
        && tokens.iter().any(|t| t.token == Token::LBracket)
    {
        *tokens = rewritten(tokens, 0);
    }
}

fn rewritten(tokens: &[TokenWithSpan], depth: usize) -> Vec<TokenWithSpan> {
    let mut written = Vec::with_capacity(tokens.len());
    let mut place = 0;
    while place < tokens.len() {
        let close = match tokens[place].token {
            // The parser refuses what is deeper.
            Token::LBracket if depth <= RECURSION_MAX => closing(tokens, place),
            _ => None,
        };
        let Some(close) = close else {
            written.push(tokens[place].clone());
            place += 1;
            continue;
        };
        let inner = &tokens[place + 1..close];
        match Comprehension::of(inner) {
            Some(found) => found.write(tokens[place].span, depth + 1, &mut written),
            None => {
                written.push(tokens[place].clone());
                written.extend(rewritten(inner, depth + 1));
                written.push(tokens[close].clone());
            }
        }
        place = close + 1;
    }
    written
}

/// The parts of a comprehension.
struct Comprehension<'a> {
    element: &'a [TokenWithSpan],
    variables: &'a [TokenWithSpan],
    list: &'a [TokenWithSpan],
    condition: Option<&'a [TokenWithSpan]>,
}

impl<'a> Comprehension<'a> {
    fn of(inner: &'a [TokenWithSpan]) -> Option<Comprehension<'a>> {
        let starts = outside_brackets(inner, |_, token| is(token, "for"))?;
        let (element, rest) = (&inner[..starts], &inner[starts + 1..]);
        let within = outside_brackets(rest, |_, token| is(token, "in"))?;
        let variables = &rest[..within];
        let are_names = variables.iter().enumerate().all(|(at, token)| match at % 2 {
            0 => matches!(token.token, Token::Word(_)),
            _ => token.token == Token::Comma,
        });
        if element.is_empty() || !are_names || variables.len().is_multiple_of(2) {
            return None;
        }
        let rest = &rest[within + 1..];
        let (list, condition) = match outside_brackets(rest, |_, token| is(token, "if")) {
            Some(place) => (&rest[..place], Some(&rest[place + 1..])),
            None => (rest, None),
        };
        Some(Comprehension { element, variables, list, condition })
    }

    fn write(&self, span: Span, depth: usize, written: &mut Vec<TokenWithSpan>) {
        let call = |written: &mut Vec<TokenWithSpan>, name: &str| {
            written.extend([word(name, span), at(Token::LParen, span)]);
        };
        call(written, "list_transform");
        if self.condition.is_some() {
            call(written, "list_filter");
        }
        written.extend(rewritten(self.list, depth));
        for body in self.condition.into_iter().chain([self.element]) {
            written.extend([at(Token::Comma, span), word("lambda", span)]);
            written.extend_from_slice(self.variables);
            written.push(at(Token::Colon, span));
            written.extend(rewritten(body, depth));
            written.push(at(Token::RParen, span));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn comprehensions_are_calls() {
        for (sql, plain) in [
            ("SELECT [x * 2 FOR x IN l]", "SELECT list_transform ( l , lambda x : x * 2 )"),
            (
                "SELECT [x FOR x IN [1, 2] IF x > 1][1]",
                "SELECT list_transform ( list_filter ( [ 1 , 2 ] , lambda x : x > 1 ) , lambda x : x ) [ 1 ]",
            ),
            (
                "SELECT [[y FOR y IN x] FOR x, i IN l]",
                "SELECT list_transform ( l , lambda x , i : list_transform ( x , lambda y : y ) )",
            ),
            ("SELECT [substring(x FOR 2)]", "SELECT [ substring ( x FOR 2 ) ]"),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
