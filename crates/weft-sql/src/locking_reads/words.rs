//! The words of locking reads that the grammar lacks: `FOR NO KEY UPDATE` and `FOR KEY SHARE`, which lock less than `FOR UPDATE` and
//! `FOR SHARE` and are taken as these, and several tables behind OF, each of which gets a clause of its own.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use crate::grammar::is;

/// Puts the words in those of the grammar.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let mut clauses = Vec::new();
    for start in 0..places.len() {
        let has = |tokens: &[TokenWithSpan], words: &[&str]| {
            let mut words = words.iter().enumerate();
            words.all(|(offset, word)| {
                places.get(start + offset).is_some_and(|at| is(&tokens[*at], word))
            })
        };
        let left_out = if has(tokens, &["for", "no", "key", "update"]) {
            2
        } else if has(tokens, &["for", "key", "share"]) {
            1
        } else {
            0
        };
        for at in places.iter().skip(start + 1).take(left_out) {
            tokens[*at].token = Token::Whitespace(Whitespace::Space);
        }
        let strength = start + left_out + 1;
        let is_clause =
            left_out > 0 || has(tokens, &["for", "update"]) || has(tokens, &["for", "share"]);
        if is_clause && places.get(strength + 1).is_some_and(|at| is(&tokens[*at], "of")) {
            clauses.push((start, strength));
        }
    }
    // From the last one on, so that places before it stay.
    for (start, strength) in clauses.into_iter().rev() {
        separate(tokens, &places, (start, strength));
    }
}

/// Writes a clause with several tables as several clauses.
fn separate(tokens: &mut Vec<TokenWithSpan>, places: &[usize], (start, strength): (usize, usize)) {
    let mut commas = Vec::new();
    let mut next = strength + 2;
    // Names with dots, and commas between them.
    while let Some(at) = places.get(next) {
        match &tokens[*at].token {
            Token::Comma => commas.push(*at),
            Token::Period => {}
            Token::Word(_) if is_between(tokens, places, next) => {}
            _ => break,
        }
        next += 1;
    }
    let word = |number: usize| places.get(number).map(|at| tokens[*at].clone());
    let is_word = |number: usize, wanted| word(number).is_some_and(|token| is(&token, wanted));
    let wait: Vec<TokenWithSpan> = if is_word(next, "nowait") {
        word(next).into_iter().collect()
    } else if is_word(next, "skip") && is_word(next + 1, "locked") {
        word(next).into_iter().chain(word(next + 1)).collect()
    } else {
        Vec::new()
    };
    let clause = [start, strength, strength + 1].into_iter().filter_map(word);
    let between: Vec<TokenWithSpan> = wait.into_iter().chain(clause).collect();
    for at in commas.into_iter().rev() {
        let space = |token: &TokenWithSpan| {
            TokenWithSpan::new(Token::Whitespace(Whitespace::Space), token.span)
        };
        let spaced = between.iter().flat_map(|token| [space(token), token.clone()]);
        let spaced: Vec<TokenWithSpan> = spaced.chain(between.last().map(space)).collect();
        tokens.splice(at..=at, spaced);
    }
}

/// Whether a word stands behind OF, a comma or a dot, and so is a name.
fn is_between(tokens: &[TokenWithSpan], places: &[usize], number: usize) -> bool {
    let before = number.checked_sub(1).and_then(|number| places.get(number));
    before.is_some_and(|at| {
        let token = &tokens[*at];
        matches!(token.token, Token::Comma | Token::Period) || is(token, "of")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        crate::text::rewritten(sql, rewrite)
    }

    #[test]
    fn weaker_locks_are_the_next_stronger_ones() {
        let written = "SELECT * FROM t FOR NO KEY UPDATE NOWAIT";
        assert_eq!(rewritten(written), "SELECT * FROM t FOR UPDATE NOWAIT");
        let written = "SELECT * FROM t FOR KEY SHARE OF t";
        assert_eq!(rewritten(written), "SELECT * FROM t FOR SHARE OF t");
        for kept in ["SELECT no, key FROM t FOR UPDATE", "SELECT substring(a FOR key) FROM t"] {
            assert_eq!(rewritten(kept), kept);
        }
    }

    #[test]
    fn each_table_gets_a_clause() {
        assert_eq!(
            rewritten("SELECT 1 FROM a, s.b, c FOR UPDATE OF a, s.b, c SKIP LOCKED"),
            "SELECT 1 FROM a, s.b, c FOR UPDATE OF a SKIP LOCKED FOR UPDATE OF s.b SKIP LOCKED FOR UPDATE OF c SKIP LOCKED"
        );
        assert_eq!(
            rewritten("SELECT 1 FROM (SELECT 1 FROM a, b FOR NO KEY UPDATE OF a, b) AS t, c"),
            "SELECT 1 FROM (SELECT 1 FROM a, b FOR UPDATE OF a FOR UPDATE OF b) AS t, c"
        );
    }
}
