//! The grammar of CREATE TYPE and ALTER TYPE.

use datafusion::sql::sqlparser::ast::{ObjectName, Query};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::{expect_eof, expected, is, parser, syntax, take_string, take_word};
use crate::statement::Parsed;

/// What a constant of a label is called where something else stands.
const LABEL: &str = "a label in single quotes";

/// CREATE TYPE.
#[derive(Debug)]
pub(crate) struct CreateType {
    pub(crate) name: ObjectName,
    pub(crate) or_replace: bool,
    pub(crate) if_not_exists: bool,
    pub(crate) labels: Labels,
}

impl CreateType {
    /// The query whose rows are the labels.
    pub(crate) fn query(&mut self) -> Option<&mut Query> {
        match &mut self.labels {
            Labels::Listed(_) => None,
            Labels::Of(query) => Some(query),
        }
    }
}

/// The labels of a new type.
#[derive(Debug)]
pub(crate) enum Labels {
    Listed(Vec<String>),
    /// The different texts of a query's rows, in their order.
    Of(Box<Query>),
}

/// ALTER TYPE.
#[derive(Debug)]
pub(crate) struct AlterType {
    pub(crate) name: ObjectName,
    pub(crate) operation: Operation,
}

/// What is altered of a type.
#[derive(Debug)]
pub(crate) enum Operation {
    Add { label: String, if_not_exists: bool, place: Place },
    Rename { from: String, to: String },
}

/// Where a new label comes to stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Last,
    Before(String),
    After(String),
}

/// Parses `CREATE [OR REPLACE] TYPE [IF NOT EXISTS] name AS ENUM (…)`; `None` for another statement.
///
/// # Errors
/// [`ErrorKind::Syntax`]; [`ErrorKind::NotSupported`] for a type of another kind.
pub(crate) fn parse_create(tokens: &[TokenWithSpan]) -> Result<Option<Parsed>> {
    let mut parser = parser(tokens.to_vec());
    parser.next_token();
    let or_replace = take_word(&mut parser, "OR") && take_word(&mut parser, "REPLACE");
    let is_temporary = take_word(&mut parser, "TEMP") || take_word(&mut parser, "TEMPORARY");
    if !take_word(&mut parser, "TYPE") {
        return Ok(None);
    }
    if is_temporary {
        return Err(SqlError::not_supported("CREATE TEMP TYPE")
            .with_hint("write CREATE TYPE, and DROP TYPE when it has served"));
    }
    let if_not_exists = take_word(&mut parser, "IF");
    if if_not_exists {
        expect_words(&mut parser, &["NOT", "EXISTS"])?;
    }
    if or_replace && if_not_exists {
        let message = "OR REPLACE and IF NOT EXISTS exclude each other";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    let name = parser.parse_object_name(false).map_err(syntax)?;
    let is_enum = take_word(&mut parser, "AS") && take_word(&mut parser, "ENUM");
    if !is_enum {
        return Err(SqlError::not_supported("CREATE TYPE of another type than an ENUM")
            .with_hint("write CREATE TYPE name AS ENUM ('a', 'b'); in place of a name for another type write that type"));
    }
    parser.expect_token(&Token::LParen).map_err(syntax)?;
    let next = parser.peek_token();
    let is_query = ["SELECT", "WITH", "VALUES", "FROM", "TABLE"].iter().any(|word| is(&next, word));
    let labels = match is_query || next.token == Token::LParen {
        true => Labels::Of(parser.parse_query().map_err(syntax)?),
        false => Labels::Listed(listed(&mut parser)?),
    };
    parser.expect_token(&Token::RParen).map_err(syntax)?;
    expect_eof(&mut parser)?;
    let create = CreateType { name, or_replace, if_not_exists, labels };
    Ok(Some(Parsed::CreateType(Box::new(create))))
}

fn listed(parser: &mut Parser<'_>) -> Result<Vec<String>> {
    let mut labels = Vec::new();
    while parser.peek_token().token != Token::RParen {
        if !labels.is_empty() {
            parser.expect_token(&Token::Comma).map_err(syntax)?;
        }
        labels.push(take_string(parser, LABEL)?);
    }
    Ok(labels)
}

/// Parses `ALTER TYPE name ADD VALUE …` and `ALTER TYPE name RENAME VALUE …`.
///
/// # Errors
/// [`ErrorKind::Syntax`]; [`ErrorKind::NotSupported`] for another name of the type.
pub(crate) fn parse_alter(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    parser.next_token();
    let name = parser.parse_object_name(false).map_err(syntax)?;
    let operation = if take_word(&mut parser, "ADD") {
        expect_words(&mut parser, &["VALUE"])?;
        let if_not_exists = take_word(&mut parser, "IF");
        if if_not_exists {
            expect_words(&mut parser, &["NOT", "EXISTS"])?;
        }
        let label = take_string(&mut parser, LABEL)?;
        let place = if take_word(&mut parser, "BEFORE") {
            Place::Before(take_string(&mut parser, LABEL)?)
        } else if take_word(&mut parser, "AFTER") {
            Place::After(take_string(&mut parser, LABEL)?)
        } else {
            Place::Last
        };
        Operation::Add { label, if_not_exists, place }
    } else if take_word(&mut parser, "RENAME") {
        if !take_word(&mut parser, "VALUE") {
            return Err(SqlError::not_supported("ALTER TYPE … RENAME TO"));
        }
        let from = take_string(&mut parser, LABEL)?;
        expect_words(&mut parser, &["TO"])?;
        Operation::Rename { from, to: take_string(&mut parser, LABEL)? }
    } else {
        return expected("ADD VALUE or RENAME VALUE", &parser.peek_token());
    };
    expect_eof(&mut parser)?;
    Ok(Parsed::AlterType(Box::new(AlterType { name, operation })))
}

fn expect_words(parser: &mut Parser<'_>, words: &[&str]) -> Result<()> {
    for word in words {
        if !take_word(parser, word) {
            return expected(word, &parser.peek_token());
        }
    }
    Ok(())
}
