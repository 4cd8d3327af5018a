//! The grammar of COPY.

use datafusion::common::format::ExplainStatementOptions;
use datafusion::sql::parser::{ExplainStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::copy_options::CopyOptions;
use crate::error::{Position, Result, SqlError};
use crate::grammar::{expect_eof, expected, is, parser, skip_word, syntax, take_string, take_word};
use crate::statement::{Parsed, parse_query};

/// COPY in both directions.
///
/// # Errors
/// [`crate::ErrorKind::Syntax`], and what is wrong with the options.
pub(crate) fn parse_copy(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    if parser.peek_token().token == Token::LParen {
        parser.next_token();
        let query = parser.parse_query().map_err(syntax)?;
        parser.expect_token(&Token::RParen).map_err(syntax)?;
        return parse_copy_to(parser, query);
    }
    let table = parser.parse_object_name(false).map_err(syntax)?;
    let columns = match parser.peek_token().token {
        Token::LParen => {
            parser.next_token();
            let columns = parser.parse_comma_separated(Parser::parse_identifier).map_err(syntax)?;
            parser.expect_token(&Token::RParen).map_err(syntax)?;
            columns
        }
        _ => Vec::new(),
    };
    if take_word(&mut parser, "FROM") {
        let path = take_string(&mut parser, "a file's name in single quotes")?;
        let options = parse_copy_options(&mut parser)?;
        return Ok(Parsed::CopyFrom { table, columns, path, options });
    }
    let list = match columns.is_empty() {
        true => "*".to_owned(),
        false => columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let query = parse_query(&format!("SELECT {list} FROM {table}"))?;
    parse_copy_to(parser, Box::new(query))
}

/// `EXPLAIN COPY … TO …` explains the query that is written.
pub(crate) fn parse_explain_copy(mut tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    if let Some(start) = tokens.iter().position(|token| is(token, "EXPLAIN")) {
        tokens.drain(..=start);
    }
    let Parsed::CopyTo { query, .. } = parse_copy(tokens)? else {
        return Err(SqlError::not_supported("EXPLAIN COPY … FROM")
            .with_hint("explain the query of its file: EXPLAIN SELECT * FROM 'file'"));
    };
    let statement = Box::new(DfStatement::Statement(Box::new(ast::Statement::Query(query))));
    let options = ExplainStatementOptions::default();
    Ok(Parsed::Sql(Box::new(DfStatement::Explain(ExplainStatement { options, statement }))))
}

fn parse_copy_to(mut parser: Parser<'_>, query: Box<ast::Query>) -> Result<Parsed> {
    if !take_word(&mut parser, "TO") {
        return expected("FROM or TO", &parser.peek_token());
    }
    let path = take_string(&mut parser, "a file's name in single quotes")?;
    let options = parse_copy_options(&mut parser)?;
    Ok(Parsed::CopyTo { query, path, options })
}

/// `[WITH] (name value, …)`, or the same without parentheses and commas.
fn parse_copy_options(parser: &mut Parser<'_>) -> Result<CopyOptions> {
    let mut options = CopyOptions::default();
    if take_word(parser, "STORED") {
        if !take_word(parser, "AS") {
            return expected("AS", &parser.peek_token());
        }
        let token = parser.next_token();
        options.set("format", Some(&option_text(&token)?))?;
    }
    if !take_word(parser, "WITH") {
        skip_word(parser, "OPTIONS");
    }
    if parser.peek_token().token != Token::LParen {
        while !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
            parse_copy_option(parser, &mut options)?;
        }
        return Ok(options);
    }
    parser.next_token();
    loop {
        parse_copy_option(parser, &mut options)?;
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => break,
            _ => return expected("',' or ')'", &next),
        }
    }
    expect_eof(parser)?;
    Ok(options)
}

fn parse_copy_option(parser: &mut Parser<'_>, options: &mut CopyOptions) -> Result<()> {
    let name = parser.next_token();
    let start = name.span.start;
    let name = match name.token {
        Token::Word(word) => word.value,
        Token::SingleQuotedString(text) => text,
        _ => return expected("an option such as FORMAT or HEADER", &name),
    };
    let next = parser.peek_token();
    let value = match &next.token {
        Token::Eq => {
            parser.next_token();
            Some(option_text(&parser.next_token())?)
        }
        Token::Comma | Token::RParen | Token::EOF | Token::SemiColon => None,
        Token::LParen => {
            parser.next_token();
            let names = parser.parse_comma_separated(Parser::parse_identifier).map_err(syntax)?;
            parser.expect_token(&Token::RParen).map_err(syntax)?;
            Some(names.into_iter().map(|name| name.value).collect::<Vec<_>>().join(","))
        }
        Token::Word(word) if CopyOptions::is_name(&word.value) => None,
        _ => Some(option_text(&parser.next_token())?),
    };
    options
        .set(&name, value.as_deref())
        .map_err(|error| error.with_position(Position { line: start.line, column: start.column }))
}

fn option_text(token: &TokenWithSpan) -> Result<String> {
    match &token.token {
        Token::Word(word) => Ok(word.value.clone()),
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text.clone()),
        Token::Number(number, _) => Ok(number.clone()),
        _ => expected("the option's value", token),
    }
}
