//! Statements that parse but that this version does not run: said clearly, never ignored.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement, TableFactor, Visit, Visitor};

use crate::error::{Result, SqlError};

/// Refuses what does not run.
///
/// # Errors
/// [`ErrorKind::NotSupported`], naming the statement.
pub(crate) fn check(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => check_sql(statement),
        DfStatement::Explain(explain) => {
            check(&explain.statement)?;
            check_explained(&explain.statement, explain.options.analyze)
        }
        DfStatement::CreateExternalTable(_) => {
            Err(SqlError::not_supported("CREATE EXTERNAL TABLE").with_hint(
                "query files in place: SELECT … FROM 'file.parquet', or make a table or \
                        view of it: CREATE TABLE t AS SELECT * FROM 'file.parquet'",
            ))
        }
        DfStatement::CopyTo(_) | DfStatement::Reset(_) => Ok(()),
    }
}

/// Of commands, only the query in them can be explained, without running it.
fn check_explained(statement: &DfStatement, is_analyze: bool) -> Result<()> {
    let DfStatement::Statement(statement) = statement else {
        return Err(SqlError::not_supported("EXPLAIN of this statement")
            .with_hint("explain the query in it"));
    };
    match statement.as_ref() {
        Statement::Query(_) => Ok(()),
        _ if is_analyze => Err(SqlError::not_supported("EXPLAIN ANALYZE of a command")
            .with_hint("explain the query in it: EXPLAIN ANALYZE SELECT …")),
        Statement::Insert(_) | Statement::CreateView(_) => Ok(()),
        Statement::CreateTable(create) if create.query.is_some() => Ok(()),
        _ => Err(SqlError::not_supported("EXPLAIN of a command without a query")),
    }
}

fn check_sql(statement: &Statement) -> Result<()> {
    let what = match statement {
        Statement::AlterView { .. } => {
            return Err(SqlError::not_supported("ALTER VIEW … AS")
                .with_hint("write CREATE OR REPLACE VIEW … AS"));
        }
        Statement::CreateDatabase { .. } => "CREATE DATABASE",
        Statement::CreateFunction(_) => "CREATE FUNCTION",
        Statement::CreateTrigger(_) => "CREATE TRIGGER",
        Statement::Use(_) => "USE",
        Statement::Analyze(_) => "ANALYZE",
        Statement::Call(_) => "CALL",
        _ => return check_queries(statement),
    };
    Err(SqlError::not_supported(what))
}

/// Refuses what DataFusion's planner would pass over.
fn check_queries(statement: &Statement) -> Result<()> {
    match statement.visit(&mut Ignored) {
        ControlFlow::Break(what) => Err(SqlError::not_supported(what)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Finds parts of queries that would be ignored.
struct Ignored;

impl Visitor for Ignored {
    type Break = &'static str;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<&'static str> {
        if !query.locks.is_empty() {
            return ControlFlow::Break("SELECT … FOR UPDATE");
        }
        if query.fetch.as_ref().is_some_and(|fetch| fetch.with_ties || fetch.percent) {
            return ControlFlow::Break("FETCH … WITH TIES or PERCENT");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<&'static str> {
        match factor {
            TableFactor::Table { sample: Some(_), .. }
            | TableFactor::Derived { sample: Some(_), .. } => ControlFlow::Break("TABLESAMPLE"),
            TableFactor::Table { version: Some(_), .. } => {
                ControlFlow::Break("a table as of an earlier time")
            }
            TableFactor::Table { with_ordinality: true, .. } => {
                ControlFlow::Break("WITH ORDINALITY")
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
