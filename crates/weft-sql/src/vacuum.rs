//! VACUUM, which writes row groups anew without their deleted rows, and CHECKPOINT, which writes what the journal has into a manifest.
//! The database does both by itself, when they are worth their time.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use futures::FutureExt;

use crate::access::Need;
use crate::catalog::{StatementCatalog, relation_name};
use crate::error::{Result, from_store};
use crate::grammar::{expect_eof, parser, syntax, take_word};
use crate::run::{Run, Started};
use crate::statement::Parsed;

/// Words before the tables of a VACUUM: it does the same with each of them.
const WORDS: [&str; 4] = ["FULL", "FREEZE", "VERBOSE", "ANALYZE"];

/// `VACUUM [(option, …)] [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table [(column, …)], …]`, after PostgreSQL.
pub(crate) fn parse_vacuum(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    skip_parentheses(&mut parser)?;
    while WORDS.iter().any(|word| take_word(&mut parser, word)) {}
    let mut tables = Vec::new();
    while !is_end(&parser) {
        tables.push(parser.parse_object_name(false).map_err(syntax)?);
        skip_parentheses(&mut parser)?;
        if !is_end(&parser) {
            parser.expect_token(&Token::Comma).map_err(syntax)?;
        }
    }
    expect_eof(&mut parser)?;
    Ok(Parsed::Vacuum { tables })
}

fn is_end(parser: &Parser<'_>) -> bool {
    matches!(parser.peek_token().token, Token::EOF | Token::SemiColon)
}

/// Passes over words in parentheses, if they come next.
fn skip_parentheses(parser: &mut Parser<'_>) -> Result<()> {
    if parser.peek_token().token != Token::LParen {
        return Ok(());
    }
    while !matches!(parser.peek_token().token, Token::RParen | Token::EOF) {
        parser.next_token();
    }
    parser.expect_token(&Token::RParen).map_err(syntax)?;
    Ok(())
}

impl Run {
    /// VACUUM of tables, or of all of which the role is an owner.
    pub(crate) fn vacuum(
        &self,
        catalog: &StatementCatalog,
        tables: &[ast::ObjectName],
    ) -> Result<Started> {
        let snapshot = catalog.snapshot();
        let mut names = Vec::with_capacity(tables.len());
        for table in tables {
            let table = catalog.stored(&relation_name(table)?, Need::Owner)?;
            names.push(table.schema().name.clone());
        }
        if tables.is_empty() {
            let is_own = |name: &&str| catalog.access().check(snapshot, name, Need::Owner).is_ok();
            names.extend(snapshot.tables().filter(is_own).map(str::to_owned));
        }
        let store = Arc::clone(self.session.engine().store());
        let work = async move {
            for name in names {
                store.tidy(Some(&name)).await.map_err(|error| from_store(&error))?;
            }
            Ok(None)
        };
        Ok(Started::Command { tag: "VACUUM", work: work.boxed() })
    }

    /// CHECKPOINT.
    pub(crate) fn checkpoint(&self) -> Started {
        let store = Arc::clone(self.session.engine().store());
        let work = async move {
            store.checkpoint().await.map_err(|error| from_store(&error))?;
            Ok(None)
        };
        Started::Command { tag: "CHECKPOINT", work: work.boxed() }
    }
}
