//! Statements: DataFusion's, and those that its grammar lacks.

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::access::{self, AccessStatement};
use crate::attach::{self, AttachStatement};
use crate::change_statement::{self, ChangeStatement};
use crate::char_length;
use crate::copy_options::CopyOptions;
use crate::copy_statement::{parse_copy, parse_explain_copy};
use crate::enums::{self, AlterType, CreateType};
use crate::error::{ErrorKind, Position, Result, SqlError, translate};
use crate::exclusions;
use crate::file_functions;
use crate::foreign;
use crate::forms;
use crate::functions::lambda_syntax;
use crate::grammar::{
    RECURSION_MAX, expect_end, expect_eof, expected, is, is_word, parser, skip_word, slice, syntax,
    take_string, take_word,
};
use crate::insert_syntax;
use crate::interval_units;
use crate::keys;
use crate::locking_reads;
use crate::macros;
use crate::materialized;
use crate::parameters::{Bindings, bound};
use crate::rewrite;
use crate::secret_statement::{self, SecretStatement};
use crate::sequences::{self, AlterSequence, CreateSequence};
use crate::set_statement::{parse_set, rest_as_value, setting_name};
use crate::struct_types;
use crate::table_info;
use crate::temporary::TemporaryNames;
use crate::text::{self, DIALECT};
use crate::transaction_statement::{self, TransactionStatement};
use crate::vacuum;
use crate::variables;

/// A parsed statement.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// One that DataFusion knows.
    Sql(Box<DfStatement>),
    /// UPDATE, DELETE or MERGE
    Change(Box<ChangeStatement>),
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
    /// `REINDEX [INDEX] index` or `REINDEX TABLE table`
    Reindex { name: ast::ObjectName, is_table: bool },
    /// `VACUUM [table, …]`
    Vacuum { tables: Vec<ast::ObjectName> },
    /// `CHECKPOINT`
    Checkpoint,
    /// `CHECK TABLE table`, or all tables: `PRAGMA integrity_check`
    CheckTables { table: Option<ast::ObjectName> },
    /// `SHOW INDEXES [FROM table]`
    ShowIndexes { table: Option<ast::ObjectName> },
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
    /// `SUMMARIZE table` or `SUMMARIZE query`
    Summarize { query: Box<ast::Query> },
    /// `PREPARE name AS statement`, with the statement's text
    Prepare { name: String, text: String },
    /// `EXECUTE name (values)`
    Execute { name: String, values: Vec<ast::Expr> },
    /// `DEALLOCATE name`
    Deallocate { name: String },
    /// `ALTER VIEW [IF EXISTS] view RENAME TO name`
    RenameView { name: ast::ObjectName, to: ast::ObjectName, if_exists: bool },
    /// `DROP MACRO [IF EXISTS] name, …`
    DropMacro { names: Vec<ast::ObjectName>, if_exists: bool },
    /// `CREATE SEQUENCE name …`
    CreateSequence(Box<CreateSequence>),
    /// `ALTER SEQUENCE name …`
    AlterSequence(Box<AlterSequence>),
    /// `CREATE TYPE name AS ENUM (…)`
    CreateType(Box<CreateType>),
    /// `ALTER TYPE name …`
    AlterType(Box<AlterType>),
    /// `SET VARIABLE name = expression`, as a query
    SetVariable { name: String, query: Box<ast::Query> },
    /// `RESET VARIABLE name`
    ResetVariable { name: String },
    /// `PRAGMA table_info('table')`
    TableInfo { table: ast::ObjectName },
    /// `CREATE SECRET`, `DROP SECRET`
    Secret(Box<SecretStatement>),
    /// `ATTACH`, `DETACH`
    Attach(AttachStatement),
    /// `SHOW DATABASES`
    ShowDatabases,
    /// Statements about roles and rights
    Access(Box<AccessStatement>),
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, and the like
    Transaction(TransactionStatement),
}

impl Parsed {
    /// True if it changes the database, or may.
    pub(crate) fn changes_data(&self) -> bool {
        use ast::Statement;
        match self {
            Parsed::Change(_)
            | Parsed::CopyFrom { .. }
            | Parsed::Reindex { .. }
            | Parsed::Vacuum { .. }
            | Parsed::DropMacro { .. }
            | Parsed::CreateSequence(_)
            | Parsed::AlterSequence(_)
            | Parsed::CreateType(_)
            | Parsed::AlterType(_)
            | Parsed::AddDevice { .. } => true,
            Parsed::Access(statement) => statement.changes_data(),
            Parsed::Sql(statement) => match statement.as_ref() {
                DfStatement::Statement(statement) => matches!(
                    statement.as_ref(),
                    Statement::Insert(_)
                        | Statement::CreateTable(_)
                        | Statement::CreateView(_)
                        | Statement::CreateIndex(_)
                        | Statement::CreateSchema { .. }
                        | Statement::CreateMacro { .. }
                        | Statement::Comment { .. }
                        | Statement::Drop { .. }
                        | Statement::Truncate(_)
                ),
                _ => false,
            },
            _ => false,
        }
    }
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

/// Parses one statement whose parameters have these values, and whose names lead to a session's temporary tables first.
///
/// # Errors
/// As [`parse`], and [`ErrorKind::Semantic`] if there are more or fewer values than parameters, or none of a
/// parameter's name.
pub(crate) fn parse_with(
    sql: &str,
    values: &Bindings,
    scope: Option<&TemporaryNames<'_>>,
) -> Result<Parsed> {
    parse_within(sql, bound(text::tokenize(sql)?, values)?, scope)
}

/// Parses the tokens of one statement.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_checked(sql: &str, tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    parse_within(sql, tokens, None)
}

fn parse_within(
    sql: &str,
    mut tokens: Vec<TokenWithSpan>,
    scope: Option<&TemporaryNames<'_>>,
) -> Result<Parsed> {
    check_is_one(&tokens)?;
    interval_units::put_plainly(&mut tokens);
    if !is_text_kept(&tokens) {
        forms::rewrite_tokens(&mut tokens);
        macros::rewrite_tokens(&mut tokens);
    }
    struct_types::rewrite(&mut tokens);
    materialized::rewrite(&mut tokens);
    locking_reads::rewrite(&mut tokens);
    keys::rewrite_included(&mut tokens);
    exclusions::rewrite(&mut tokens);
    lambda_syntax::rewrite_tokens(&mut tokens);
    file_functions::rewrite(&mut tokens);
    sequences::order_identity_options(&mut tokens)?;
    let result = parse_tokens(sql, tokens).and_then(|mut parsed| {
        if let Some(scope) = scope {
            scope.resolve(&mut parsed)?;
        }
        if let Parsed::Sql(statement) = &parsed
            && let DfStatement::Statement(statement) = statement.as_ref()
            && let Some(change) = change_statement::of(statement)?
        {
            parsed = Parsed::Change(Box::new(change));
        }
        match &mut parsed {
            Parsed::Sql(statement) => {
                rewrite::statement(statement)?;
                if let Some(statement) = inner_statement(statement) {
                    char_length::rewrite_casts(statement)?;
                }
            }
            Parsed::CreateType(create) => {
                if let Some(query) = create.query() {
                    rewrite::query(query)?;
                    char_length::rewrite_casts(query)?;
                }
            }
            Parsed::Change(change) => {
                rewrite::query(&mut change.query)?;
                char_length::rewrite_casts(&mut change.query)?;
            }
            Parsed::CopyTo { query, .. }
            | Parsed::DescribeQuery { query }
            | Parsed::Summarize { query } => {
                rewrite::query(query)?;
                char_length::rewrite_casts(query)?;
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

/// True of statements that parts of the text are taken of as they are, and of those whose FROM is none of a query.
fn is_text_kept(tokens: &[TokenWithSpan]) -> bool {
    let first = text::significant(tokens).into_iter().next();
    first.is_some_and(|first| {
        ["prepare", "set", "reset", "show", "grant", "revoke"].iter().any(|word| is(first, word))
    })
}

/// A query that is no more than this.
pub(crate) fn query_of(body: ast::SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// The statement of standard SQL in one of DataFusion's.
pub(crate) fn inner_statement(statement: &mut DfStatement) -> Option<&mut ast::Statement> {
    match statement {
        DfStatement::Statement(statement) => Some(statement),
        DfStatement::Explain(explain) => inner_statement(&mut explain.statement),
        _ => None,
    }
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
    if let Some(statement) = transaction_statement::parse(&tokens)? {
        return Ok(Parsed::Transaction(statement));
    }
    if let Some(statement) = secret_statement::parse(&tokens)? {
        return Ok(statement);
    }
    if let Some(statement) = attach::parse(&tokens)? {
        return Ok(statement);
    }
    if let Some(statement) = access::parse(&tokens)? {
        return Ok(statement);
    }
    match (word(0), word(1), word(2)) {
        ("COPY", ..) => parse_copy(tokens),
        ("ALTER", "SEQUENCE", _) => sequences::parse_alter(tokens),
        ("ALTER", "TYPE", _) => enums::parse_alter(tokens),
        ("ALTER", "DATABASE", "ADD") => parse_add_device(tokens),
        ("ALTER", "VIEW", _)
            if text::significant(&tokens).iter().any(|token| is(token, "RENAME")) =>
        {
            parse_rename_view(tokens)
        }
        ("SHOW", "DATABASES", "") => expect_end(&tokens, 2).map(|()| Parsed::ShowDatabases),
        ("SHOW", "TABLES", "") => expect_end(&tokens, 2).map(|()| Parsed::ShowTables),
        ("PRAGMA", "INTEGRITY_CHECK", "") => {
            expect_end(&tokens, 2).map(|()| Parsed::CheckTables { table: None })
        }
        ("CHECK", "TABLE", _) => parse_check_table(tokens),
        ("SHOW", "INDEXES", _) => parse_show_indexes(tokens),
        ("SHOW", "COLUMNS", "FROM" | "IN") => parse_describe(tokens, 3),
        ("SHOW", "COLUMNS" | "FUNCTIONS" | "CREATE", _) => parse_datafusion(tokens),
        ("SHOW", ..) => Ok(Parsed::ShowSetting { name: setting_name(&tokens)? }),
        ("SET", "TIME", "ZONE") => {
            let value = rest_as_value(sql, &tokens, 3)?;
            let value = value.trim_matches('"').to_owned();
            Ok(Parsed::Set { name: "timezone".to_owned(), value })
        }
        ("SET", "VARIABLE", _) => variables::parse_set(sql, &tokens),
        ("RESET", "VARIABLE", _) => variables::parse_reset(&tokens),
        ("PRAGMA", "TABLE_INFO", _) => table_info::parse(tokens),
        ("PRAGMA", "SHOW_TABLES", "") => expect_end(&tokens, 2).map(|()| Parsed::ShowTables),
        ("SET", "SESSION", _) => parse_datafusion(tokens),
        ("SET", ..) => parse_set(sql, &tokens),
        ("RESET", ..) => Ok(Parsed::Reset { name: setting_name(&tokens)? }),
        ("DESCRIBE" | "DESC", ..) => parse_describe(tokens, 1),
        ("SUMMARIZE", ..) => parse_summarize(tokens),
        ("REINDEX", ..) => parse_reindex(tokens),
        ("VACUUM", ..) => vacuum::parse_vacuum(tokens),
        ("CHECKPOINT", "", _) => Ok(Parsed::Checkpoint),
        ("PREPARE", ..) => parse_prepare(sql, tokens),
        ("EXECUTE" | "DEALLOCATE", ..) => parse_execute(tokens),
        ("DROP", "MACRO" | "FUNCTION", _) => macros::parse_drop(tokens),
        ("CREATE", ..) => {
            if let Some(parsed) = sequences::parse_create(&tokens)? {
                return Ok(parsed);
            }
            if let Some(parsed) = enums::parse_create(&tokens)? {
                return Ok(parsed);
            }
            foreign::check("CREATE", word(1))?;
            parse_datafusion(tokens)
        }
        ("EXPLAIN", "COPY", _) => parse_explain_copy(tokens),
        ("EXPLAIN", "", "CODE") => parse_explain_code(sql, tokens),
        (first, second, _) => {
            foreign::check(first, second)?;
            parse_datafusion(tokens)
        }
    }
}

/// `EXPLAIN (CODE) …`, as EXPLAIN whose options say so.
fn parse_explain_code(sql: &str, mut tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let mut places = (0..tokens.len()).filter(|at| !is_space(&tokens[*at]));
    let (Some(open), Some(end)) = (places.nth(1), places.nth(1)) else {
        return expected("the end of EXPLAIN's options", &TokenWithSpan::new_eof());
    };
    if tokens[end].token != Token::RParen {
        return expected("nothing but CODE among EXPLAIN's options", &tokens[end]);
    }
    tokens.drain(open..=end);
    let mut parsed = parse_tokens(sql, tokens)?;
    if let Parsed::Sql(statement) = &mut parsed
        && let DfStatement::Explain(explain) = statement.as_mut()
        && !explain.options.analyze
    {
        crate::explain::ask_for_code(&mut explain.options);
        return Ok(parsed);
    }
    Err(SqlError::not_supported("EXPLAIN (CODE) of this statement")
        .with_hint("it shows the code of a query: EXPLAIN (CODE) SELECT …"))
}

/// Parses a query of a view or a description.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub(crate) fn parse_query(sql: &str) -> Result<ast::Query> {
    let mut tokens = text::tokenize(sql)?;
    forms::rewrite_tokens(&mut tokens);
    struct_types::rewrite(&mut tokens);
    materialized::rewrite(&mut tokens);
    exclusions::rewrite(&mut tokens);
    lambda_syntax::rewrite_tokens(&mut tokens);
    file_functions::rewrite(&mut tokens);
    let mut parser = parser(tokens);
    let mut query = parser.parse_query().map_err(syntax)?;
    expect_eof(&mut parser)?;
    rewrite::query(&mut query)?;
    char_length::rewrite_casts(&mut query)?;
    Ok(*query)
}

fn parse_datafusion(mut tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let alias = insert_syntax::take_alias(&mut tokens);
    let mut parser = DFParserBuilder::new(tokens)
        .with_dialect(&DIALECT)
        .with_recursion_limit(RECURSION_MAX)
        .build()?;
    let mut statements = parser.parse_statements().map_err(|error| translate(&error))?;
    match statements.pop_front() {
        Some(mut statement) => {
            if let Some(inner) = inner_statement(&mut statement) {
                insert_syntax::move_with(inner);
                if let Some(alias) = alias {
                    insert_syntax::set_alias(inner, alias);
                }
            }
            Ok(Parsed::Sql(Box::new(statement)))
        }
        None => Err(SqlError::new(ErrorKind::Syntax, "there is no statement in the text")),
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

fn parse_rename_view(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    parser.next_token();
    let if_exists = take_word(&mut parser, "IF");
    if if_exists && !take_word(&mut parser, "EXISTS") {
        return expected("EXISTS", &parser.peek_token());
    }
    let name = parser.parse_object_name(false).map_err(syntax)?;
    for word in ["RENAME", "TO"] {
        if !take_word(&mut parser, word) {
            return expected(word, &parser.peek_token());
        }
    }
    let to = parser.parse_object_name(false).map_err(syntax)?;
    expect_eof(&mut parser)?;
    Ok(Parsed::RenameView { name, to, if_exists })
}

/// A table or query to describe, after so many words.
fn parse_describe(tokens: Vec<TokenWithSpan>, words: usize) -> Result<Parsed> {
    let is_query = text::significant(&tokens).get(words).is_some_and(|token| {
        token.token == Token::LParen
            || ["SELECT", "WITH", "VALUES", "TABLE", "FROM"].iter().any(|start| is(token, start))
    });
    let mut parser = parser(tokens);
    for _ in 0..words {
        parser.next_token();
    }
    let parsed = match is_query {
        true => Parsed::DescribeQuery { query: parser.parse_query().map_err(syntax)? },
        false => {
            skip_word(&mut parser, "TABLE");
            Parsed::DescribeTable { table: parser.parse_object_name(false).map_err(syntax)? }
        }
    };
    expect_eof(&mut parser)?;
    Ok(parsed)
}

fn parse_check_table(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    parser.next_token();
    let table = Some(parser.parse_object_name(false).map_err(syntax)?);
    expect_eof(&mut parser)?;
    Ok(Parsed::CheckTables { table })
}

fn parse_show_indexes(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    parser.next_token();
    let table = match take_word(&mut parser, "FROM") || take_word(&mut parser, "IN") {
        true => Some(parser.parse_object_name(false).map_err(syntax)?),
        false => None,
    };
    expect_eof(&mut parser)?;
    Ok(Parsed::ShowIndexes { table })
}

fn parse_reindex(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    let is_table = take_word(&mut parser, "TABLE");
    if !is_table {
        skip_word(&mut parser, "INDEX");
    }
    let name = parser.parse_object_name(false).map_err(syntax)?;
    expect_eof(&mut parser)?;
    Ok(Parsed::Reindex { name, is_table })
}

fn parse_summarize(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let query = match parse_describe(tokens, 1)? {
        Parsed::DescribeQuery { query } => query,
        Parsed::DescribeTable { table } => {
            Box::new(parse_query(&format!("SELECT * FROM {table}"))?)
        }
        other => return Ok(other),
    };
    Ok(Parsed::Summarize { query })
}

fn parse_prepare(sql: &str, tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let significant = text::significant(&tokens);
    let Some(position) = significant.iter().position(|token| is(token, "AS")) else {
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
    if deallocate {
        skip_word(&mut parser, "PREPARE");
    }
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

/// A name as the catalog has it: its ASCII letters in lower case, unless it is quoted.
pub(crate) fn fold(name: String, quote: Option<char>) -> String {
    match quote {
        Some(_) => name,
        None => name.to_ascii_lowercase(),
    }
}

fn end_of(sql: &str) -> Position {
    let sql = sql.trim_end().trim_end_matches(';');
    let line = sql.matches('\n').count() as u64 + 1;
    let last = sql.rsplit('\n').next().unwrap_or(sql);
    Position { line, column: last.chars().count() as u64 + 1 }
}
