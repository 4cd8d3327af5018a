//! Statements: DataFusion's, and those that its grammar lacks.

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::copy_options::CopyOptions;
use crate::error::{ErrorKind, Position, Result, SqlError, translate};
use crate::rewrite;
use crate::text::{self, DIALECT, Offsets};

/// How deep expressions and queries may nest.
const RECURSION_MAX: usize = 200;

/// A parsed statement.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// One that DataFusion knows.
    Sql(Box<DfStatement>),
    /// `COPY table [(columns)] FROM 'file' …`
    CopyFrom {
        table: ast::ObjectName,
        columns: Vec<ast::Ident>,
        path: String,
        options: CopyOptions,
    },
    /// `COPY table | (query) TO 'file' …`
    CopyTo { query: Box<ast::Query>, path: String, options: CopyOptions },
    /// `ALTER DATABASE ADD DEVICE 'path'`
    AddDevice { path: String },
    /// `SHOW TABLES`
    ShowTables,
    /// `SHOW ALL` or `SHOW setting`
    ShowSetting { name: Option<String> },
    /// `SET setting = value`
    Set { name: String, value: String },
    /// `RESET ALL` or `RESET setting`
    Reset { name: Option<String> },
    /// `DESCRIBE table`
    DescribeTable { table: ast::ObjectName },
    /// `DESCRIBE query`
    DescribeQuery { query: Box<ast::Query> },
    /// `PREPARE name AS statement`, with the statement's text
    Prepare { name: String, text: String },
    /// `EXECUTE name (values)`
    Execute { name: String, values: Vec<ast::Expr> },
    /// `DEALLOCATE name`
    Deallocate { name: String },
}

/// Parses one statement.
///
/// # Errors
/// [`ErrorKind::Syntax`], with a position, if the text is not exactly one statement.
pub(crate) fn parse(sql: &str) -> Result<Parsed> {
    let mut tokens = text::tokenize(sql)?;
    text::number_placeholders(&mut tokens);
    parse_checked(sql, tokens)
}

/// Parses one statement whose parameters have these values, given as expressions of SQL.
///
/// # Errors
/// As [`parse`], and [`ErrorKind::Semantic`] if there are more or fewer values than parameters.
pub(crate) fn parse_with(sql: &str, values: &[String]) -> Result<Parsed> {
    let mut tokens = text::tokenize(sql)?;
    text::number_placeholders(&mut tokens);
    parse_checked(sql, text::bind(tokens, values)?)
}

fn parse_checked(sql: &str, tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    check_is_one(&tokens)?;
    let result = parse_tokens(sql, tokens).and_then(|mut parsed| {
        match &mut parsed {
            Parsed::Sql(statement) => rewrite::statement(statement)?,
            Parsed::CopyTo { query, .. } | Parsed::DescribeQuery { query } => {
                rewrite::query(query)?
            }
            _ => {}
        }
        Ok(parsed)
    });
    result.map_err(|error| match (error.kind(), error.position()) {
        (ErrorKind::Syntax, None) => error.with_position(end_of(sql)),
        _ => error,
    })
}

fn check_is_one(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut ended = false;
    let mut any = false;
    for token in text::significant(tokens) {
        match token.token {
            Token::SemiColon => ended = any,
            _ if ended => {
                let start = token.span.start;
                return Err(SqlError::new(
                    ErrorKind::Syntax,
                    "there is more than one statement in the text",
                )
                .with_position(Position { line: start.line, column: start.column }));
            }
            _ => any = true,
        }
    }
    match any {
        true => Ok(()),
        false => Err(SqlError::new(ErrorKind::Syntax, "there is no statement in the text")),
    }
}

fn parse_tokens(sql: &str, mut tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    // Without what follows the last semicolon, and without it.
    if let Some(end) = tokens.iter().rposition(|token| token.token == Token::SemiColon) {
        let only_space = text::significant(&tokens[end + 1..]).is_empty();
        if only_space {
            tokens.truncate(end);
        }
    }
    let words: Vec<String> = text::significant(&tokens)
        .iter()
        .take(3)
        .map(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
            _ => String::new(),
        })
        .collect();
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    match (word(0), word(1), word(2)) {
        ("COPY", ..) => parse_copy(tokens),
        ("ALTER", "DATABASE", "ADD") => parse_add_device(tokens),
        ("SHOW", "TABLES", "") => expect_end(&tokens, 2).map(|()| Parsed::ShowTables),
        ("SHOW", "COLUMNS", "FROM" | "IN") => parse_describe(tokens, 3),
        ("SHOW", "COLUMNS" | "FUNCTIONS" | "CREATE", _) => parse_datafusion(tokens),
        ("SHOW", ..) => Ok(Parsed::ShowSetting { name: setting_name(&tokens)? }),
        ("SET", "TIME", "ZONE") => {
            let value = rest_as_value(sql, &tokens, 3)?;
            Ok(Parsed::Set { name: "timezone".to_owned(), value })
        }
        ("SET", "TRANSACTION" | "SESSION", _) => parse_datafusion(tokens),
        ("SET", ..) => parse_set(sql, &tokens),
        ("RESET", ..) => Ok(Parsed::Reset { name: setting_name(&tokens)? }),
        ("DESCRIBE" | "DESC", ..) => parse_describe(tokens, 1),
        ("PREPARE", ..) => parse_prepare(sql, tokens),
        ("EXECUTE" | "DEALLOCATE", ..) => parse_execute(tokens),
        _ => parse_datafusion(tokens),
    }
}

/// Parses a query of a view or a description.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub(crate) fn parse_query(sql: &str) -> Result<ast::Query> {
    let tokens = text::tokenize(sql)?;
    let mut parser = parser(tokens);
    let mut query = parser.parse_query().map_err(syntax)?;
    expect_eof(&mut parser)?;
    rewrite::query(&mut query)?;
    Ok(*query)
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    Parser::new(&DIALECT).with_tokens_with_locations(tokens).with_recursion_limit(RECURSION_MAX)
}

fn parse_datafusion(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = DFParserBuilder::new(tokens)
        .with_dialect(&DIALECT)
        .with_recursion_limit(RECURSION_MAX)
        .build()?;
    let mut statements = parser.parse_statements().map_err(|error| translate(&error))?;
    match statements.pop_front() {
        Some(statement) => Ok(Parsed::Sql(Box::new(statement))),
        None => Err(SqlError::new(ErrorKind::Syntax, "there is no statement in the text")),
    }
}

fn syntax(error: datafusion::sql::sqlparser::parser::ParserError) -> SqlError {
    SqlError::from(datafusion::common::DataFusionError::SQL(Box::new(error), None))
}

/// What was expected, and what is there instead.
fn expected<T>(what: &str, found: &TokenWithSpan) -> Result<T> {
    let there = match &found.token {
        Token::EOF => "the end of the statement".to_owned(),
        token => token.to_string(),
    };
    let message = format!("syntax error: expected {what}, found {there}");
    let start = found.span.start;
    let error = SqlError::new(ErrorKind::Syntax, message);
    Err(match start.line {
        0 => error,
        line => error.with_position(Position { line, column: start.column }),
    })
}

fn expect_eof(parser: &mut Parser<'_>) -> Result<()> {
    let next = parser.peek_token();
    match next.token {
        Token::EOF | Token::SemiColon => Ok(()),
        _ => expected("the end of the statement", &next),
    }
}

fn expect_end(tokens: &[TokenWithSpan], count: usize) -> Result<()> {
    match text::significant(tokens).get(count) {
        None => Ok(()),
        Some(token) => expected("the end of the statement", token),
    }
}

fn is_word(parser: &Parser<'_>, word: &str) -> bool {
    matches!(&parser.peek_token().token,
        Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

fn take_word(parser: &mut Parser<'_>, word: &str) -> bool {
    let found = is_word(parser, word);
    if found {
        parser.next_token();
    }
    found
}

fn take_string(parser: &mut Parser<'_>, what: &str) -> Result<String> {
    let next = parser.next_token();
    match next.token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
        _ => expected(what, &next),
    }
}

fn parse_copy(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
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
    let _ = take_word(parser, "WITH") || take_word(parser, "OPTIONS");
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

fn parse_add_device(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    for _ in 0..3 {
        parser.next_token();
    }
    if !take_word(&mut parser, "DEVICE") {
        return expected("DEVICE", &parser.peek_token());
    }
    let path = take_string(&mut parser, "a path in single quotes")?;
    expect_eof(&mut parser)?;
    Ok(Parsed::AddDevice { path })
}

/// The name after SHOW or RESET; `None` for ALL.
fn setting_name(tokens: &[TokenWithSpan]) -> Result<Option<String>> {
    let tokens = text::significant(tokens);
    let mut name = String::new();
    for token in &tokens[1..] {
        match &token.token {
            Token::Word(word) => name.push_str(&word.value),
            Token::Period => name.push('.'),
            Token::SingleQuotedString(text) => name.push_str(text),
            _ => return expected("the name of a setting", token),
        }
    }
    match name.to_ascii_lowercase().as_str() {
        "" => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected the name of a setting")),
        "all" => Ok(None),
        "timezone" => Ok(Some("timezone".to_owned())),
        name => Ok(Some(name.to_owned())),
    }
}

fn parse_set(sql: &str, tokens: &[TokenWithSpan]) -> Result<Parsed> {
    let significant = text::significant(tokens);
    let is_assignment = |token: &TokenWithSpan| match &token.token {
        Token::Eq => true,
        Token::Word(word) => word.value.eq_ignore_ascii_case("to"),
        _ => false,
    };
    let Some(equals) = significant.iter().position(|token| is_assignment(token)) else {
        return match significant.last() {
            Some(last) => expected("'=' and the setting's value", last),
            None => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected a setting")),
        };
    };
    let mut name = String::new();
    for token in &significant[1..equals] {
        match &token.token {
            Token::Word(word) => name.push_str(&word.value),
            Token::Period => name.push('.'),
            _ => return expected("the name of a setting", token),
        }
    }
    let value = rest_as_value(sql, tokens, equals + 1)?;
    Ok(Parsed::Set { name: name.to_ascii_lowercase(), value })
}

/// The text from the `first` significant token on, or the string that it is.
fn rest_as_value(sql: &str, tokens: &[TokenWithSpan], first: usize) -> Result<String> {
    let significant = text::significant(tokens);
    match &significant[first.min(significant.len())..] {
        [] => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected the setting's value")),
        [one] => Ok(match &one.token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            _ => slice(sql, one, one),
        }),
        [start, .., end] => Ok(slice(sql, start, end)),
    }
}

fn slice(sql: &str, start: &TokenWithSpan, end: &TokenWithSpan) -> String {
    let offsets = Offsets::new(sql);
    sql[offsets.byte(start.span.start)..offsets.byte(end.span.end)].to_owned()
}

/// A table or query to describe, after so many words.
fn parse_describe(tokens: Vec<TokenWithSpan>, words: usize) -> Result<Parsed> {
    let is_query = text::significant(&tokens).get(words).is_some_and(|token| match &token.token {
        Token::LParen => true,
        Token::Word(word) => ["SELECT", "WITH", "VALUES", "TABLE", "FROM"]
            .iter()
            .any(|start| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(start)),
        _ => false,
    });
    let mut parser = parser(tokens);
    for _ in 0..words {
        parser.next_token();
    }
    let parsed = match is_query {
        true => Parsed::DescribeQuery { query: parser.parse_query().map_err(syntax)? },
        false => {
            let _ = take_word(&mut parser, "TABLE");
            Parsed::DescribeTable { table: parser.parse_object_name(false).map_err(syntax)? }
        }
    };
    expect_eof(&mut parser)?;
    Ok(parsed)
}

fn parse_prepare(sql: &str, tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let significant = text::significant(&tokens);
    let is_as = |token: &&TokenWithSpan| matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case("as"));
    let Some(position) = significant.iter().position(is_as) else {
        return match significant.last() {
            Some(last) => expected("AS and a statement", last),
            None => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected a name")),
        };
    };
    let (Some(Token::Word(name)), Some(first), Some(last)) = (
        significant.get(1).map(|token| &token.token),
        significant.get(position + 1),
        significant.last(),
    ) else {
        return expected("a name, AS and a statement", significant[significant.len() - 1]);
    };
    let text = slice(sql, first, last);
    parse(&text)?;
    Ok(Parsed::Prepare { name: fold(name.value.clone(), name.quote_style), text })
}

fn parse_execute(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    let deallocate = is_word(&parser, "DEALLOCATE");
    parser.next_token();
    let _ = deallocate && take_word(&mut parser, "PREPARE");
    let name = parser.parse_identifier().map_err(syntax)?;
    let name = fold(name.value, name.quote_style);
    if deallocate {
        expect_eof(&mut parser)?;
        return Ok(Parsed::Deallocate { name });
    }
    let mut values = Vec::new();
    if parser.peek_token().token == Token::LParen {
        parser.next_token();
        if parser.peek_token().token != Token::RParen {
            values = parser.parse_comma_separated(Parser::parse_expr).map_err(syntax)?;
        }
        parser.expect_token(&Token::RParen).map_err(syntax)?;
    }
    expect_eof(&mut parser)?;
    Ok(Parsed::Execute { name, values })
}

/// A name as the catalog has it: in lower case unless it is quoted.
pub(crate) fn fold(name: String, quote: Option<char>) -> String {
    match quote {
        Some(_) => name,
        None => name.to_lowercase(),
    }
}

fn end_of(sql: &str) -> Position {
    let sql = sql.trim_end().trim_end_matches(';');
    let line = sql.matches('\n').count() as u64 + 1;
    let last = sql.rsplit('\n').next().unwrap_or(sql);
    Position { line, column: last.chars().count() as u64 + 1 }
}
