//! CREATE SECRET and DROP SECRET: credentials of object stores and web servers, as DuckDB has them, and the relation that lists them.
//!
//! Secrets belong to the database that is open, and are in memory alone. No error repeats a value that was given for one.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringViewArray};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use futures::FutureExt;
use weft_remote::{Secret, SecretKind, Secrets};

use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::{expect_eof, parser, syntax, take_word};
use crate::run::{Run, Started};
use crate::statement::{Parsed, fold};

/// The relation that lists secrets.
pub(crate) const RELATION: &str = "weft_secrets";

/// A statement about secrets.
#[derive(Clone, Debug)]
pub(crate) enum SecretStatement {
    /// CREATE SECRET
    Create { secret: Secret, or_replace: bool, if_not_exists: bool },
    /// DROP SECRET
    Drop { name: String, if_exists: bool },
}

/// What is wrong with the grammar of a statement: the text that is there is not repeated, as it may be secret.
fn wrong(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::Syntax,
        format!("syntax error in a statement about secrets: expected {what}"),
    )
    .with_hint("write CREATE SECRET name (TYPE s3, KEY_ID '…', SECRET '…', REGION '…')")
}

/// Parses `CREATE [OR REPLACE] [TEMPORARY | PERSISTENT] SECRET …` and `DROP [TEMPORARY | PERSISTENT] SECRET …`; `None` for another
/// statement.
///
/// # Errors
/// [`ErrorKind::Syntax`]; [`ErrorKind::NotSupported`] for persistent secrets; what is wrong with the options.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Parsed>> {
    let mut parser = parser(tokens.to_vec());
    let is_drop = take_word(&mut parser, "DROP");
    if !is_drop && !take_word(&mut parser, "CREATE") {
        return Ok(None);
    }
    let or_replace = take_word(&mut parser, "OR") && take_word(&mut parser, "REPLACE");
    let is_temporary = take_word(&mut parser, "TEMPORARY") || take_word(&mut parser, "TEMP");
    let is_persistent = !is_temporary && take_word(&mut parser, "PERSISTENT");
    if !take_word(&mut parser, "SECRET") {
        return Ok(None);
    }
    if is_persistent {
        return Err(SqlError::not_supported("a PERSISTENT secret").with_hint(
            "secrets are in memory alone: write CREATE SECRET after the database is opened, or use the environment or a profile \
             in ~/.aws",
        ));
    }
    let statement = match is_drop {
        true => parse_drop(&mut parser)?,
        false => parse_create(&mut parser, or_replace)?,
    };
    expect_eof(&mut parser).map_err(|_| wrong("the end of the statement"))?;
    Ok(Some(Parsed::Secret(Box::new(statement))))
}

fn parse_drop(parser: &mut Parser<'_>) -> Result<SecretStatement> {
    let if_exists = take_word(parser, "IF");
    if if_exists && !take_word(parser, "EXISTS") {
        return Err(wrong("EXISTS"));
    }
    let name = parser.parse_identifier().map_err(syntax)?;
    Ok(SecretStatement::Drop { name: fold(name.value, name.quote_style), if_exists })
}

fn parse_create(parser: &mut Parser<'_>, or_replace: bool) -> Result<SecretStatement> {
    let if_not_exists = take_word(parser, "IF");
    if if_not_exists && !(take_word(parser, "NOT") && take_word(parser, "EXISTS")) {
        return Err(wrong("NOT EXISTS"));
    }
    let name = match parser.peek_token().token {
        Token::LParen => None,
        _ => {
            let name = parser.parse_identifier().map_err(|_| wrong("a name, or '('"))?;
            Some(fold(name.value, name.quote_style))
        }
    };
    if parser.next_token().token != Token::LParen {
        return Err(wrong("'('"));
    }
    let mut kind = None;
    let mut scope = Vec::new();
    let mut options = BTreeMap::new();
    loop {
        let Token::Word(option) = parser.next_token().token else {
            return Err(wrong("an option such as TYPE or KEY_ID"));
        };
        let option = option.value.to_ascii_lowercase();
        if matches!(parser.peek_token().token, Token::Eq | Token::RArrow) {
            parser.next_token();
        }
        let mut values = values(parser)?;
        match option.as_str() {
            "scope" => scope.append(&mut values),
            _ => {
                let [value] = values.as_mut_slice() else { return Err(wrong("one value")) };
                let value = std::mem::take(value);
                match option.as_str() {
                    "type" => kind = Some(SecretKind::named(&value)?),
                    "use_ssl" | "provider" | "url_style" => {
                        options.insert(option, value.to_ascii_lowercase());
                    }
                    _ => {
                        options.insert(option, value);
                    }
                }
            }
        }
        match parser.next_token().token {
            Token::Comma => {}
            Token::RParen => break,
            _ => return Err(wrong("',' or ')'")),
        }
    }
    let kind = kind.ok_or_else(|| wrong("TYPE s3, gcs, azure or http"))?;
    let name = name.unwrap_or_else(|| format!("__default_{}", kind.name()));
    let secret = Secret::new(&name, kind, scope, options)?;
    Ok(SecretStatement::Create { secret, or_replace, if_not_exists })
}

/// The value of an option, or those of a list in brackets.
fn values(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    let close = match parser.peek_token().token {
        Token::LBracket => Token::RBracket,
        Token::LParen => Token::RParen,
        _ => return Ok(vec![value(parser)?]),
    };
    parser.next_token();
    let mut values = vec![value(parser)?];
    loop {
        let next = parser.next_token().token;
        match next {
            Token::Comma => values.push(value(parser)?),
            end if end == close => return Ok(values),
            _ => return Err(wrong("',' or the end of the list")),
        }
    }
}

fn value(parser: &mut Parser<'_>) -> Result<String> {
    Ok(match parser.next_token().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text,
        Token::DollarQuotedString(text) => text.value,
        Token::Word(word) => word.value,
        Token::Number(number, _) => number,
        _ => return Err(wrong("a value in single quotes")),
    })
}

impl Run {
    /// Starts a statement about secrets.
    pub(crate) fn start_secret_statement(&self, statement: SecretStatement) -> Started {
        let engine = Arc::clone(self.session.engine());
        let tag = match &statement {
            SecretStatement::Create { .. } => "CREATE SECRET",
            SecretStatement::Drop { .. } => "DROP SECRET",
        };
        let work = async move {
            carry_out(engine.remote.secrets(), statement)?;
            Ok(None)
        };
        Started::Command { tag, work: work.boxed() }
    }
}

fn carry_out(secrets: &Secrets, statement: SecretStatement) -> Result<()> {
    match statement {
        SecretStatement::Create { secret, or_replace, if_not_exists } => {
            let name = secret.name().to_owned();
            if !secrets.add(secret, or_replace) && !if_not_exists {
                let message = format!("there is a secret {name} already");
                return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                    .with_hint("write CREATE OR REPLACE SECRET to replace it"));
            }
        }
        SecretStatement::Drop { name, if_exists } => {
            if !secrets.remove(&name) && !if_exists {
                let message = format!("there is no secret {name}");
                return Err(SqlError::new(ErrorKind::Semantic, message)
                    .with_hint(format!("SELECT name FROM {RELATION} lists them")));
            }
        }
    }
    Ok(())
}

/// The secrets as a table, which shows nothing that is secret.
///
/// # Errors
/// None that are known.
pub(crate) fn table(secrets: &Secrets) -> Result<Arc<dyn TableProvider>> {
    let found = secrets.list();
    let texts = |of: &dyn Fn(&Secret) -> String| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(found.iter().map(|secret| of(secret))))
    };
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("name", texts(&|secret| secret.name().to_owned()), true),
        ("type", texts(&|secret| secret.kind().name().to_owned()), true),
        ("persistent", Arc::new(BooleanArray::from(vec![false; found.len()])) as ArrayRef, true),
        ("scope", texts(&|secret| secret.scope().join(", ")), true),
        ("secret_string", texts(&|secret| secret.shown()), true),
    ])?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenize;

    fn parsed(sql: &str) -> Result<Option<Parsed>> {
        parse(&tokenize(sql).unwrap())
    }

    #[test]
    fn secrets_are_created_and_dropped() {
        let create = "CREATE OR REPLACE SECRET s (TYPE s3, KEY_ID 'k', SECRET 'hidden', USE_SSL false, \
                      SCOPE ['s3://a', 's3://b'])";
        let Ok(Some(Parsed::Secret(statement))) = parsed(create) else { panic!("{create}") };
        assert!(!format!("{statement:?}").contains("hidden"));
        let secrets = Secrets::default();
        carry_out(&secrets, *statement).unwrap();
        assert_eq!(secrets.list()[0].scope().len(), 2);
        let Ok(Some(Parsed::Secret(drop))) = parsed("DROP SECRET s") else { panic!("DROP SECRET") };
        carry_out(&secrets, (*drop).clone()).unwrap();
        assert!(carry_out(&secrets, *drop).is_err());
        assert!(matches!(parsed("CREATE TABLE t (a INT)"), Ok(None)));
    }

    #[test]
    fn errors_repeat_no_values() {
        for sql in [
            "CREATE SECRET s (TYPE s3, KEY_ID 'k', SECRET 'hidden' 'hidden')",
            "CREATE SECRET s (TYPE s3, SECRET 'hidden')",
            "CREATE SECRET s (TYPE s3, COLOUR 'hidden')",
            "CREATE PERSISTENT SECRET s (TYPE s3, KEY_ID 'k', SECRET 'hidden')",
        ] {
            let error = parsed(sql).unwrap_err();
            let text = format!("{error} {:?}", error.hint());
            assert!(!text.contains("hidden"), "{text}");
        }
    }
}
