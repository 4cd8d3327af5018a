//! `UNIQUE (a) INCLUDE (b)` and `PRIMARY KEY (a) INCLUDE (b)`, which the grammar lacks for constraints. The names go through the parser as
//! an option that it knows: `COMMENT` with a text that begins with a mark that no text of a statement's has.

use datafusion::sql::sqlparser::ast::IndexOption;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::declared::Name;
use crate::error::{Result, SqlError};
use crate::grammar::{expect_eof, is, parser, syntax};
use crate::text::tokenize;

/// What the text begins with.
const MARK: &str = "\u{1}include\u{1}";

/// Puts the option in the place of INCLUDE behind the columns of a key.
pub(crate) fn rewrite(tokens: &mut [TokenWithSpan]) {
    let places: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    for start in 0..places.len() {
        let Some((include, end)) = found(tokens, &places, start) else { continue };
        let names = &tokens[places[include + 1] + 1..places[end]];
        let names: Vec<String> = names.iter().map(|token| token.token.to_string()).collect();
        let text = format!("{MARK}{}", names.concat());
        tokens[places[include]].token = Token::make_keyword("COMMENT");
        tokens[places[include + 1]].token = Token::SingleQuotedString(text);
        for token in &mut tokens[places[include + 1] + 1..=places[end]] {
            token.token = Token::Whitespace(Whitespace::Space);
        }
    }
}

/// The places of INCLUDE and of the end of its names, where a key begins at `start`.
fn found(tokens: &[TokenWithSpan], places: &[usize], start: usize) -> Option<(usize, usize)> {
    let is_word = |at: usize, word| places.get(at).is_some_and(|at| is(&tokens[*at], word));
    let closing = |open: usize| {
        if tokens[*places.get(open)?].token != Token::LParen {
            return None;
        }
        (open + 1..places.len()).find(|at| tokens[places[*at]].token == Token::RParen)
    };
    let mut at = match (is_word(start, "unique"), is_word(start, "primary")) {
        (true, _) => start + 1,
        (_, true) if is_word(start + 1, "key") => start + 2,
        _ => return None,
    };
    if is_word(at, "nulls") {
        at += 1 + usize::from(is_word(at + 1, "not")) + 1;
    }
    let include = closing(at)? + 1;
    is_word(include, "include").then_some(())?;
    Some((include, closing(include + 1)?))
}

/// The columns that a key includes, by the options of its constraint.
///
/// # Errors
/// [`ErrorKind::NotSupported`](crate::ErrorKind::NotSupported) for other options, and what is wrong with the names.
pub(super) fn included(options: &[IndexOption]) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for option in options {
        let marked = match option {
            IndexOption::Comment(text) => text.strip_prefix(MARK),
            IndexOption::Using(_) => None,
        };
        let Some(text) = marked else {
            return Err(SqlError::not_supported(format!("{option} of a constraint")));
        };
        let mut parser = parser(tokenize(text)?);
        let idents = parser.parse_comma_separated(|parser| parser.parse_identifier());
        let idents = idents.map_err(syntax)?;
        expect_eof(&mut parser)?;
        names.extend(idents.iter().map(Name::of));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        crate::text::rewritten(sql, |tokens| rewrite(tokens)).replace('\u{1}', "|")
    }

    #[test]
    fn included_columns_become_an_option() {
        assert_eq!(
            rewritten("CREATE TABLE t (a INT, UNIQUE (a, b) INCLUDE (c, \"D\"), CHECK (a > 0))"),
            "CREATE TABLE t (a INT, UNIQUE (a, b) COMMENT '|include|c, \"D\"' , CHECK (a > 0))"
        );
        assert_eq!(
            rewritten("ALTER TABLE t ADD PRIMARY KEY (a) include (b)"),
            "ALTER TABLE t ADD PRIMARY KEY (a) COMMENT '|include|b'"
        );
        let text = "CREATE UNIQUE INDEX i ON t (a) INCLUDE (b)";
        assert_eq!(rewritten(text), text);
    }

    #[test]
    fn names_are_read_back() {
        let names = |text: &str| included(&[IndexOption::Comment(format!("{MARK}{text}"))]);
        let found = names("c, \"D\"").unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].text == "c" && found[1].text == "D" && found[1].is_quoted);
        assert!(names("a b").is_err() && names("").is_err() && names("a +").is_err());
        assert!(included(&[IndexOption::Comment("mine".to_owned())]).is_err());
    }
}
