//! Statements that parse but that this version does not run: said clearly, never ignored.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;

use crate::error::{ErrorKind, Result, SqlError};

/// Refuses what does not run.
///
/// # Errors
/// [`ErrorKind::NotSupported`], naming the statement.
pub(crate) fn check(statement: &DfStatement) -> Result<()> {
    match statement {
        DfStatement::Statement(statement) => check_sql(statement),
        DfStatement::Explain(explain) => check(&explain.statement),
        DfStatement::CreateExternalTable(_) => {
            Err(SqlError::not_supported("CREATE EXTERNAL TABLE").with_hint(
                "query files in place: SELECT … FROM 'file.parquet', or make a table or \
                        view of it: CREATE TABLE t AS SELECT * FROM 'file.parquet'",
            ))
        }
        DfStatement::CopyTo(_) | DfStatement::Reset(_) => Ok(()),
    }
}

fn check_sql(statement: &Statement) -> Result<()> {
    let what = match statement {
        Statement::Update(_) => "UPDATE",
        Statement::Delete(_) => "DELETE",
        Statement::Merge(_) => "MERGE",
        Statement::Truncate(_) => {
            return Err(SqlError::not_supported("TRUNCATE")
                .with_hint("write CREATE OR REPLACE TABLE to empty a table"));
        }
        Statement::StartTransaction { .. } => return Err(transactions("BEGIN")),
        Statement::Commit { .. } => return Err(transactions("COMMIT")),
        Statement::Rollback { .. } => return Err(transactions("ROLLBACK")),
        Statement::Savepoint { .. } | Statement::ReleaseSavepoint { .. } => {
            return Err(transactions("SAVEPOINT"));
        }
        Statement::AlterTable(_) => "ALTER TABLE",
        Statement::AlterView { .. } => "ALTER VIEW",
        Statement::AlterIndex { .. } | Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::CreateSchema { .. } => "CREATE SCHEMA",
        Statement::CreateDatabase { .. } => "CREATE DATABASE",
        Statement::CreateFunction(_) => "CREATE FUNCTION",
        Statement::CreateSequence { .. } => "CREATE SEQUENCE",
        Statement::CreateTrigger(_) => "CREATE TRIGGER",
        Statement::CreateType { .. } => "CREATE TYPE",
        Statement::Grant(_) => "GRANT",
        Statement::Revoke(_) => "REVOKE",
        Statement::Use(_) => "USE",
        Statement::Analyze(_) => "ANALYZE",
        Statement::Vacuum(_) => "VACUUM",
        Statement::Call(_) => "CALL",
        _ => return Ok(()),
    };
    Err(SqlError::not_supported(what))
}

fn transactions(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::NotSupported,
        format!("{what} is not supported yet: each statement is a transaction of its own"),
    )
}
