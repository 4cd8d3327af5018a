//! Macros: `CREATE MACRO f(a, b := 1) AS a + b` and `CREATE MACRO f(a) AS TABLE SELECT a`. Calls are replaced by what they stand for
//! before a statement is planned (`expand.rs`).

mod expand;

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, MacroArg, MacroDefinition, ObjectName, Query, SelectItem, SetExpr, Statement,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use weft_store::{Change, Snapshot};

use crate::catalog::{StatementCatalog, relation_name};
use crate::definitions::{self, Kind, stored_name};
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::grammar::{expect_eof, expected, is, parser, skip_word, syntax};
use crate::identifiers::quoted;
use crate::run::{Run, Started};
use crate::statement::{Parsed, fold, parse, parse_query};
use crate::suggest;
use crate::text;

pub(crate) use self::expand::expand;

/// A macro.
struct Macro {
    parameters: Vec<Parameter>,
    body: Body,
}

struct Parameter {
    name: String,
    default: Option<Expr>,
}

enum Body {
    Value(Box<Expr>),
    Table(Box<Query>),
}

impl Macro {
    /// The macro of this name.
    ///
    /// # Errors
    /// If its text does not parse any more.
    fn find(snapshot: &Snapshot, name: &str) -> Result<Option<Macro>> {
        let Some(sql) = definitions::text(snapshot, Kind::Macro, name) else { return Ok(None) };
        let Parsed::Sql(statement) = parse(sql)? else {
            return Err(internal("the text of a macro is no statement"));
        };
        let datafusion::sql::parser::Statement::Statement(statement) = *statement else {
            return Err(internal("the text of a macro is another statement"));
        };
        let Statement::CreateMacro { args, definition, .. } = *statement else {
            return Err(internal("the text of a macro makes something else"));
        };
        Macro::of(args, definition).map(Some)
    }

    fn of(args: Option<Vec<MacroArg>>, definition: MacroDefinition) -> Result<Macro> {
        let parameters = args.into_iter().flatten().map(|parameter| Parameter {
            name: fold(parameter.name.value, parameter.name.quote_style),
            default: parameter.default_expr,
        });
        let body = match definition {
            MacroDefinition::Table(query) => {
                Body::Table(Box::new(parse_query(&query.to_string())?))
            }
            MacroDefinition::Expr(expr) => Body::Value(Box::new(prepared(&expr)?)),
        };
        Ok(Macro { parameters: parameters.collect(), body })
    }
}

/// What the catalog says of a macro.
#[derive(Clone, Debug, Default)]
pub(crate) struct Described {
    /// It gives rows.
    pub(crate) is_table: bool,
    /// Its parameters, with their defaults.
    pub(crate) parameters: Vec<(String, Option<String>)>,
}

/// What a macro is; `None` if there is none of the name.
///
/// # Errors
/// If its text does not parse any more.
pub(crate) fn described(snapshot: &Snapshot, name: &str) -> Result<Option<Described>> {
    let Some(found) = Macro::find(snapshot, name)? else { return Ok(None) };
    let parameter = |parameter: Parameter| {
        (parameter.name, parameter.default.map(|default| default.to_string()))
    };
    Ok(Some(Described {
        is_table: matches!(found.body, Body::Table(_)),
        parameters: found.parameters.into_iter().map(parameter).collect(),
    }))
}

/// Checks that no function has a name: its calls are planned as such before those of macros are looked for.
fn check_is_free(catalog: &StatementCatalog, name: &str) -> Result<()> {
    let state = catalog.planning_state();
    let call = format!("{}(1)", quoted(name));
    let is_kept = matches!(prepared_text(&call), Ok(Expr::Function(function)) if relation_name(&function.name).is_ok_and(|kept| kept == name));
    let is_known = state.scalar_functions().contains_key(name)
        || state.aggregate_functions().contains_key(name)
        || state.window_functions().contains_key(name)
        || catalog.table_functions().contains_key(name);
    match is_known || !is_kept {
        true => {
            let message = format!("there is a function {name} already");
            Err(SqlError::new(ErrorKind::AlreadyExists, message)
                .about(name)
                .with_hint("give the macro another name"))
        }
        false => Ok(()),
    }
}

/// An expression as the planner takes it.
fn prepared(expr: &Expr) -> Result<Expr> {
    prepared_text(&expr.to_string())
}

fn prepared_text(expr: &str) -> Result<Expr> {
    let query = parse_query(&format!("SELECT {expr}"))?;
    let SetExpr::Select(mut select) = *query.body else {
        return Err(internal("an expression is read as a query"));
    };
    match select.projection.pop() {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. })
            if select.projection.is_empty() =>
        {
            Ok(expr)
        }
        _ => Err(internal("an expression is read as something else")),
    }
}

/// Writes `CREATE FUNCTION f(a) AS …` as a macro, if it is none of PostgreSQL's.
pub(crate) fn rewrite_tokens(tokens: &mut [TokenWithSpan]) {
    let words = text::significant(tokens);
    let mut place = 1;
    for word in ["or", "replace", "temp", "temporary"] {
        place += usize::from(words.get(place).is_some_and(|token| is(token, word)));
    }
    let is_create = words.first().is_some_and(|token| is(token, "create"));
    let Some(function) = words.get(place).filter(|token| is(token, "function")) else { return };
    let is_foreign = words.iter().any(|token| is(token, "returns") || is(token, "language"));
    if !is_create || is_foreign {
        return;
    }
    let start = function.span.start;
    if let Some(token) = tokens.iter_mut().find(|token| token.span.start == start) {
        token.token = Token::make_word("MACRO", None);
    }
}

/// Parses DROP MACRO.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub(crate) fn parse_drop(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut parser = parser(tokens);
    parser.next_token();
    parser.next_token();
    skip_word(&mut parser, "TABLE");
    let if_exists = is(&parser.peek_token(), "if");
    if if_exists {
        parser.next_token();
        if !is(&parser.peek_token(), "exists") {
            return expected("EXISTS", &parser.peek_token());
        }
        parser.next_token();
    }
    let names = parser
        .parse_comma_separated(|parser: &mut Parser<'_>| parser.parse_object_name(false))
        .map_err(syntax)?;
    expect_eof(&mut parser)?;
    Ok(Parsed::DropMacro { names, if_exists })
}

impl Run {
    /// CREATE MACRO.
    pub(crate) fn create_macro(
        &self,
        catalog: &StatementCatalog,
        mut statement: Statement,
    ) -> Result<Started> {
        // Without parameters the parser leaves out the parentheses, which the text needs.
        if let Statement::CreateMacro { args, .. } = &mut statement {
            args.get_or_insert_default();
        }
        let text = statement.to_string();
        let Statement::CreateMacro { or_replace, temporary, name, args, definition } = statement
        else {
            return Err(internal("CREATE MACRO is parsed as something else"));
        };
        if temporary {
            return Err(SqlError::not_supported("CREATE TEMP MACRO").with_hint("leave TEMP out"));
        }
        // Statements and views of other roles may call it, with their rights.
        catalog.access().check_all("make macros")?;
        let name = relation_name(&name)?;
        check_is_free(catalog, &name)?;
        let mut seen = HashSet::new();
        let made = Macro::of(args, definition)?;
        for parameter in &made.parameters {
            if !seen.insert(parameter.name.as_str()) {
                let message = format!("macro {name} has two parameters {}", parameter.name);
                return Err(SqlError::new(ErrorKind::Semantic, message).about(&parameter.name));
            }
        }
        if !or_replace && definitions::text(catalog.snapshot(), Kind::Macro, &name).is_some() {
            let message = format!("macro {name} exists already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                .with_hint("write CREATE OR REPLACE MACRO"));
        }
        let change =
            Change::CreateView { name: stored_name(Kind::Macro, &name), sql: text, or_replace };
        Ok(self.change("CREATE MACRO", vec![change]))
    }

    /// DROP MACRO.
    pub(crate) fn drop_macros(
        &self,
        catalog: &StatementCatalog,
        names: &[ObjectName],
        if_exists: bool,
    ) -> Result<Started> {
        catalog.access().check_all("drop macros")?;
        let mut changes = Vec::new();
        for name in names {
            let name = relation_name(name)?;
            if definitions::text(catalog.snapshot(), Kind::Macro, &name).is_some() {
                changes.push(Change::DropView { name: stored_name(Kind::Macro, &name) });
                continue;
            }
            if !if_exists {
                let message = format!("macro {name} does not exist");
                let error = SqlError::new(ErrorKind::Semantic, message).about(&name);
                let known: Vec<&str> =
                    definitions::names(catalog.snapshot(), Kind::Macro).collect();
                return Err(match suggest::hint("macro", &name, &known) {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                });
            }
        }
        Ok(self.change("DROP MACRO", changes))
    }
}
