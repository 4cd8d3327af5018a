//! `TABLESAMPLE` and `USING SAMPLE` as people write them: `10%`, `10 PERCENT (bernoulli, 42)`, `reservoir(20 ROWS) REPEATABLE (42)`.
//!
//! Behind a table, they become the grammar's `TABLESAMPLE METHOD (n UNIT) REPEATABLE (seed)`. USING SAMPLE, which stands at the end of a
//! SELECT and means all rows of FROM, becomes a condition of WHERE, a call of [`SAMPLE`].

use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::{at, closing, outside_brackets, word};
use crate::forms::samples::SAMPLE;
use crate::grammar::is;

/// Methods, by the words that the grammar has for them.
const METHODS: [(&str, &str); 3] =
    [("bernoulli", "BERNOULLI"), ("system", "SYSTEM"), ("reservoir", "ROW")];

/// Writes samples as the grammar has them.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut place = 0;
    while place < tokens.len() {
        let is_using = is(&tokens[place], "using")
            && tokens.get(place + 1).is_some_and(|token| is(token, "sample"));
        if is(&tokens[place], "tablesample") {
            if let Some(found) = Written::of(tokens, place + 1) {
                let plain = found.behind_table(tokens[place].span);
                tokens.splice(place + 1..found.end, plain);
            }
        } else if is_using && let Some(found) = Written::of(tokens, place + 2) {
            write_condition(tokens, place, &found);
        }
        place += 1;
    }
}

/// A sample as it was written.
struct Written {
    method: Option<&'static str>,
    amount: Vec<TokenWithSpan>,
    is_percent: bool,
    seed: Option<Vec<TokenWithSpan>>,
    /// Behind its last token.
    end: usize,
}

impl Written {
    fn of(tokens: &[TokenWithSpan], start: usize) -> Option<Written> {
        let named = |place: usize| {
            METHODS.iter().find(|(name, _)| tokens.get(place).is_some_and(|token| is(token, name)))
        };
        let opens =
            |place: usize| tokens.get(place).is_some_and(|token| token.token == Token::LParen);
        let mut method = named(start).map(|(_, word)| *word);
        let mut place = start + usize::from(method.is_some());
        let mut seed = None;
        let (amount, is_percent) = if opens(place) {
            let close = closing(tokens, place)?;
            let found = amount(&tokens[place + 1..close])?;
            place = close + 1;
            // `(10) PERCENT`
            match unit(tokens.get(place)) {
                Some(is_percent) if !found.2 => {
                    place += 1;
                    (found.0, is_percent)
                }
                _ => (found.0, found.1),
            }
        } else {
            let length = usize::from(unit(tokens.get(place + 1)).is_some()) + 1;
            let found = amount(tokens.get(place..place + length)?)?;
            place += length;
            (found.0, found.1)
        };
        if method.is_none()
            && opens(place)
            && let Some((_, word)) = named(place + 1)
        {
            let close = closing(tokens, place)?;
            method = Some(*word);
            if tokens[place + 2].token == Token::Comma {
                seed = Some(tokens[place + 3..close].to_vec());
            }
            place = close + 1;
        }
        if tokens.get(place).is_some_and(|token| is(token, "repeatable")) && opens(place + 1) {
            let close = closing(tokens, place + 1)?;
            seed = Some(tokens[place + 2..close].to_vec());
            place = close + 1;
        }
        Some(Written { method, amount, is_percent, seed, end: place })
    }

    fn behind_table(&self, span: Span) -> Vec<TokenWithSpan> {
        let mut plain = vec![word(self.method.unwrap_or(self.default_method()), span)];
        plain.push(at(Token::LParen, span));
        plain.extend(self.amount.clone());
        plain.push(word(if self.is_percent { "PERCENT" } else { "ROWS" }, span));
        plain.push(at(Token::RParen, span));
        if let Some(seed) = &self.seed {
            plain.extend([word("REPEATABLE", span), at(Token::LParen, span)]);
            plain.extend(seed.clone());
            plain.push(at(Token::RParen, span));
        }
        plain
    }

    fn default_method(&self) -> &'static str {
        if self.is_percent { "SYSTEM" } else { "ROW" }
    }

    /// The call that says the same.
    fn condition(&self, span: Span) -> Vec<TokenWithSpan> {
        let text = |text: &str| at(Token::SingleQuotedString(text.to_owned()), span);
        let comma = || at(Token::Comma, span);
        let method = self.method.unwrap_or(self.default_method());
        let unit = if self.is_percent { "PERCENT" } else { "ROWS" };
        let mut call = vec![word(SAMPLE, span), at(Token::LParen, span), text(method), comma()];
        call.extend(self.amount.clone());
        call.extend([comma(), text(unit), comma()]);
        match &self.seed {
            Some(seed) => call.extend(seed.clone()),
            None => call.push(word("NULL", span)),
        }
        call.push(at(Token::RParen, span));
        call
    }
}

/// A number, whether percents are meant, and whether a unit was written.
fn amount(tokens: &[TokenWithSpan]) -> Option<(Vec<TokenWithSpan>, bool, bool)> {
    let is_number = |token: &TokenWithSpan| {
        matches!(token.token, Token::Number(..) | Token::Placeholder(_) | Token::Minus)
    };
    let (number, rest) = match tokens {
        [sign, number, rest @ ..] if sign.token == Token::Minus => {
            (vec![sign.clone(), number.clone()], rest)
        }
        [number, rest @ ..] if is_number(number) => (vec![number.clone()], rest),
        _ => return None,
    };
    match rest {
        [] => Some((number, false, false)),
        [one] => Some((number, unit(Some(one))?, true)),
        _ => None,
    }
}

/// Whether a unit is percent.
fn unit(token: Option<&TokenWithSpan>) -> Option<bool> {
    let token = token?;
    if token.token == Token::Mod || is(token, "percent") {
        return Some(true);
    }
    (is(token, "rows") || is(token, "row")).then_some(false)
}

/// Moves USING SAMPLE at a place into the WHERE of its SELECT.
fn write_condition(tokens: &mut Vec<TokenWithSpan>, using: usize, found: &Written) {
    let span = tokens[using].span;
    let start = start_of_select(tokens, using);
    tokens.drain(using..found.end);
    let select = &tokens[start..using];
    let first = |words: &[&str]| {
        outside_brackets(select, |_, token| words.iter().any(|word| is(token, word)))
            .map_or(using, |place| start + place)
    };
    let ends = first(&["group", "having", "window", "qualify"]);
    let from = first(&["where"]);
    let mut condition = found.condition(span);
    if from < using {
        condition.extend([word("AND", span), at(Token::LParen, span)]);
        tokens.insert(ends, at(Token::RParen, span));
        tokens.splice(from + 1..from + 1, condition);
    } else {
        condition.insert(0, word("WHERE", span));
        tokens.splice(ends..ends, condition);
    }
}

/// Where the SELECT begins that a place is in.
fn start_of_select(tokens: &[TokenWithSpan], place: usize) -> usize {
    let mut depth = 0_usize;
    for before in (0..place).rev() {
        match tokens[before].token {
            Token::RParen | Token::RBracket | Token::RBrace => depth += 1,
            Token::LParen | Token::LBracket | Token::LBrace => match depth {
                0 => return before + 1,
                _ => depth -= 1,
            },
            Token::Word(_) if depth == 0 => {
                let begins = ["union", "except", "intersect", "all", "name"];
                if begins.iter().any(|word| is(&tokens[before], word)) {
                    return before + 1;
                }
            }
            _ => {}
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::rewritten;

    #[test]
    fn samples_are_written_as_the_grammar_has_them() {
        for (sql, plain) in [
            ("FROM t TABLESAMPLE 10%", "SELECT * FROM t TABLESAMPLE SYSTEM ( 10 PERCENT )"),
            ("FROM t TABLESAMPLE 5", "SELECT * FROM t TABLESAMPLE ROW ( 5 ROWS )"),
            (
                "FROM t TABLESAMPLE reservoir(20 ROWS) REPEATABLE (42) AS u",
                "SELECT * FROM t TABLESAMPLE ROW ( 20 ROWS ) REPEATABLE ( 42 ) AS u",
            ),
            (
                "FROM t TABLESAMPLE 10 PERCENT (bernoulli, 42)",
                "SELECT * FROM t TABLESAMPLE BERNOULLI ( 10 PERCENT ) REPEATABLE ( 42 )",
            ),
            (
                "SELECT a FROM t WHERE a OR b GROUP BY a USING SAMPLE 5 ORDER BY a",
                "SELECT a FROM t WHERE using_sample ( 'ROW' , 5 , 'ROWS' , NULL ) AND ( a OR b ) GROUP BY a ORDER BY a",
            ),
            (
                "(FROM t USING SAMPLE 1%) UNION ALL FROM u USING SAMPLE 2",
                "( SELECT * FROM t WHERE using_sample ( 'SYSTEM' , 1 , 'PERCENT' , NULL ) ) UNION ALL SELECT * FROM u WHERE using_sample ( 'ROW' , 2 , 'ROWS' , NULL )",
            ),
        ] {
            assert_eq!(rewritten(sql), plain);
        }
    }
}
