//! Parameters of statements: by position, written `?` or `$1`, or by name, written `$name` or `:name`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Visit, Visitor};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::{self, Parsed, fold};
use crate::text::{self, number_placeholders, significant, tokenize};
use crate::value::Value;

/// The values of a statement's parameters.
#[derive(Clone, Debug)]
pub enum Parameters {
    /// One for each, in their order.
    Positional(Vec<Value>),
    /// One for each name.
    Named(Vec<(String, Value)>),
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters::Positional(Vec::new())
    }
}

/// The values as expressions of SQL.
#[derive(Clone, Debug)]
pub(crate) enum Bindings {
    Positional(Vec<String>),
    Named(HashMap<String, String>),
}

impl From<&Parameters> for Bindings {
    fn from(parameters: &Parameters) -> Bindings {
        match parameters {
            Parameters::Positional(values) => {
                Bindings::Positional(values.iter().map(Value::sql).collect())
            }
            Parameters::Named(values) => Bindings::Named(
                values.iter().map(|(name, value)| (name.clone(), value.sql())).collect(),
            ),
        }
    }
}

/// The tokens with the values in place of the parameters.
///
/// # Errors
/// [`ErrorKind::Semantic`] if there are more or fewer values than parameters, or none of a parameter's name.
pub(crate) fn bound(
    mut tokens: Vec<TokenWithSpan>,
    bindings: &Bindings,
) -> Result<Vec<TokenWithSpan>> {
    match bindings {
        Bindings::Positional(values) => {
            if !values.is_empty() {
                join_colons(&mut tokens, |name| name.bytes().all(|byte| byte.is_ascii_digit()));
            }
            number_placeholders(&mut tokens);
            text::bind(tokens, values)
        }
        Bindings::Named(values) => {
            join_colons(&mut tokens, |_| true);
            bind_names(tokens, values)
        }
    }
}

/// Makes `:name` a placeholder, where no operand comes before it: a slice of a list has its colon behind one.
fn join_colons(tokens: &mut Vec<TokenWithSpan>, is_name: impl Fn(&str) -> bool) {
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = std::mem::take(tokens).into_iter().peekable();
    while let Some(token) = rest.next() {
        let before = significant(&joined).last().is_some_and(|before| ends_operand(&before.token));
        let name = match (&token.token, rest.peek().map(|next| &next.token)) {
            (Token::Colon, Some(Token::Word(word))) if !before => Some(word.value.clone()),
            (Token::Colon, Some(Token::Number(digits, false))) if !before => Some(digits.clone()),
            _ => None,
        };
        match name.filter(|name| is_name(name)) {
            Some(name) => {
                rest.next();
                let token = TokenWithSpan {
                    token: Token::Placeholder(format!("${name}")),
                    span: token.span,
                };
                joined.push(token);
            }
            None => joined.push(token),
        }
    }
    *tokens = joined;
}

fn ends_operand(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword == Keyword::NoKeyword,
        Token::RParen | Token::RBracket | Token::RBrace | Token::Number(..) => true,
        Token::SingleQuotedString(_) | Token::Placeholder(_) => true,
        _ => false,
    }
}

fn bind_names(
    tokens: Vec<TokenWithSpan>,
    values: &HashMap<String, String>,
) -> Result<Vec<TokenWithSpan>> {
    let mut bound = Vec::with_capacity(tokens.len());
    for token in tokens {
        let Token::Placeholder(placeholder) = &token.token else {
            bound.push(token);
            continue;
        };
        let Some(name) = placeholder.strip_prefix('$') else {
            let message = "a statement whose parameters have names cannot have ? as well";
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("give the values as a list, or write $name in place of ?"));
        };
        let Some(value) = values.get(name) else {
            let mut names: Vec<&str> = values.keys().map(String::as_str).collect();
            names.sort_unstable();
            let message = format!("there is no value for the parameter {name}");
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint(format!("values were given for: {}", names.join(", "))));
        };
        // Errors are to point at the parameter.
        let parts = tokenize(value)?.into_iter();
        bound.extend(parts.map(|part| TokenWithSpan { token: part.token, span: token.span }));
    }
    Ok(bound)
}

/// The relations that a statement names which have no schema in front of them: each as it was written, and as the catalog
/// has it. Among them are those that the statement itself defines.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub fn relation_names(sql: &str) -> Result<Vec<(String, String)>> {
    let mut tokens = tokenize(sql)?;
    join_colons(&mut tokens, |_| true);
    let names = tokens.iter_mut().filter(|token| matches!(token.token, Token::Placeholder(_)));
    // Whatever the parameters are, they name no relations.
    names.for_each(|token| token.token = Token::make_word("NULL", None));
    number_placeholders(&mut tokens);
    let mut names = Names::default();
    // The visitor never breaks.
    let _ = match statement::parse_checked(sql, tokens)? {
        Parsed::Sql(statement) => match *statement {
            DfStatement::Statement(statement) => statement.visit(&mut names),
            DfStatement::Explain(explain) => match *explain.statement {
                DfStatement::Statement(statement) => statement.visit(&mut names),
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        },
        Parsed::CopyTo { query, .. }
        | Parsed::DescribeQuery { query }
        | Parsed::Summarize { query } => query.visit(&mut names),
        Parsed::DescribeTable { table } => names.pre_visit_relation(&table),
        _ => ControlFlow::Continue(()),
    };
    Ok(names.found)
}

#[derive(Default)]
struct Names {
    found: Vec<(String, String)>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        if let [part] = relation.0.as_slice()
            && let Some(Ident { value, quote_style, .. }) = part.as_ident()
        {
            let names = (value.clone(), fold(value.clone(), *quote_style));
            if !self.found.contains(&names) {
                self.found.push(names);
            }
        }
        ControlFlow::Continue(())
    }
}

/// An `INSERT … VALUES` of one row with parameters as an INSERT of the rows of `source`, whose columns are named by the
/// numbers of the parameters; `None` for any other statement.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub fn insert_of_rows(sql: &str, source: &str) -> Result<Option<String>> {
    statement::parse(sql)?;
    let mut tokens = tokenize(sql)?;
    join_colons(&mut tokens, |name| name.bytes().all(|byte| byte.is_ascii_digit()));
    number_placeholders(&mut tokens);
    let is = |token: &TokenWithSpan, word: &str| {
        matches!(&token.token, Token::Word(found)
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    };
    let mut tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::EOF)).collect();
    while let Some(last) = tokens.last()
        && matches!(last.token, Token::SemiColon | Token::Whitespace(_))
    {
        tokens.pop();
    }
    let words = significant(&tokens);
    if !matches!(words.as_slice(), [first, second, ..] if is(first, "insert") && is(second, "into"))
    {
        return Ok(None);
    }
    let Some(values) = tokens.iter().position(|token| is(token, "values")) else { return Ok(None) };
    let open = values
        + 1
        + tokens[values + 1..]
            .iter()
            .take_while(|t| matches!(t.token, Token::Whitespace(_)))
            .count();
    let Some(close) = matching(&tokens, open) else { return Ok(None) };
    if close + 1 != tokens.len() || tokens[open..].iter().any(|token| is(token, "default")) {
        return Ok(None);
    }
    let mut out = String::new();
    for (number, token) in tokens.iter().enumerate() {
        if number == values {
            out.push_str("SELECT");
        } else if number == open || number == close {
            out.push(' ');
        } else if let Token::Placeholder(name) = &token.token {
            out.push_str(&format!("\"{}\"", name.trim_start_matches('$')));
        } else {
            out.push_str(&token.token.to_string());
        }
    }
    Ok(Some(format!("{out} FROM {}", crate::quoted(source))))
}

/// The parenthesis that closes the one at `open`.
fn matching(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    if tokens.get(open)?.token != Token::LParen {
        return None;
    }
    let mut depth = 0;
    for (number, token) in tokens.iter().enumerate().skip(open) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => {
                depth -= 1;
                if depth == 0 {
                    return Some(number);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(sql: &str, values: &[(&str, Value)]) -> Result<String> {
        let named =
            values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let bindings = Bindings::from(&Parameters::Named(named));
        let tokens = bound(tokenize(sql)?, &bindings)?;
        Ok(tokens.iter().map(|token| token.token.to_string()).collect())
    }

    #[test]
    fn names_are_bound() {
        let values = [("a", Value::Boolean(true)), ("b", Value::Null)];
        assert_eq!(written("select :a, $b, ':a'", &values).unwrap(), "select TRUE, NULL, ':a'");
        assert_eq!(written("select x[1:a], y::int", &[]).unwrap(), "select x[1:a], y::int");
        assert!(written("select :c", &values).unwrap_err().message().contains("parameter c"));
        assert!(written("select ?", &values).is_err());
    }

    #[test]
    fn numbers_with_colons_are_parameters() {
        let bindings = Bindings::Positional(vec!["1".to_owned(), "2".to_owned()]);
        let tokens = bound(tokenize("select :2, :1, l[3:4]").unwrap(), &bindings).unwrap();
        let text: String = tokens.iter().map(|token| token.token.to_string()).collect();
        assert_eq!(text, "select 2, 1, l[3:4]");
    }

    #[test]
    fn relations_are_found() {
        let found = relation_names(
            "select * from Df, (select * from \"Other\" where x > :x) join main.t using (a)",
        );
        let names = |names: &[(&str, &str)]| -> Vec<(String, String)> {
            names.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        assert_eq!(found.unwrap(), names(&[("Df", "df"), ("Other", "Other")]));
        assert_eq!(relation_names("explain select ? from a").unwrap(), names(&[("a", "a")]));
    }

    #[test]
    fn inserts_of_one_row_become_inserts_of_many() {
        let insert = insert_of_rows("INSERT INTO t (a, b) VALUES (?, upper(?));", "rows").unwrap();
        assert_eq!(insert.unwrap(), "INSERT INTO t (a, b) SELECT  \"1\", upper(\"2\")  FROM rows");
        for other in [
            "INSERT INTO t VALUES (?), (?)",
            "INSERT INTO t VALUES (?, DEFAULT)",
            "INSERT INTO t SELECT ?",
            "SELECT ?",
        ] {
            assert_eq!(insert_of_rows(other, "rows").unwrap(), None, "{other}");
        }
    }
}
