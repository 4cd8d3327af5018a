//! Storage parameters behind CREATE TABLE and CREATE INDEX, such as `WITH (fillfactor = 90)`. Programs for PostgreSQL write them to say
//! how full its pages are to be and when these are to be cleaned. A database has no such pages: the parameters that PostgreSQL has are
//! passed over, and other parameters are an error.

use datafusion::sql::sqlparser::ast::{CreateTable, CreateTableOptions, Expr, SqlOption};

use crate::error::{ErrorKind, Result, SqlError};

/// Those of tables, apart from `autovacuum_…` and `toast.…`.
const OF_TABLES: [&str; 8] = [
    "fillfactor",
    "toast_tuple_target",
    "parallel_workers",
    "vacuum_index_cleanup",
    "vacuum_truncate",
    "log_autovacuum_min_duration",
    "user_catalog_table",
    "oids",
];

/// Those of B-trees.
const OF_INDEXES: [&str; 2] = ["fillfactor", "deduplicate_items"];

fn unknown(name: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("unknown storage parameter {name}"))
        .with_hint("leave it out: how tables are stored is not chosen by parameters")
}

/// Takes the storage parameters out of the definition of a table.
///
/// # Errors
/// [`ErrorKind::Semantic`] if there is no such parameter.
pub(crate) fn take(create: &mut CreateTable) -> Result<()> {
    let CreateTableOptions::With(options) = &create.table_options else { return Ok(()) };
    for option in options {
        let name = match option {
            SqlOption::KeyValue { key, .. } | SqlOption::Ident(key) => key.value.to_lowercase(),
            other => other.to_string(),
        };
        let is_known = OF_TABLES.contains(&name.as_str())
            || name.starts_with("autovacuum_")
            || name.starts_with("toast.");
        if !is_known {
            return Err(unknown(&name));
        }
    }
    create.table_options = CreateTableOptions::None;
    Ok(())
}

/// Checks the storage parameters of an index.
///
/// # Errors
/// [`ErrorKind::Semantic`] if there is no such parameter.
pub(crate) fn check_of_index(parameters: &[Expr]) -> Result<()> {
    for parameter in parameters {
        let name = match parameter {
            Expr::BinaryOp { left, .. } => left.to_string().to_lowercase(),
            other => other.to_string().to_lowercase(),
        };
        if !OF_INDEXES.contains(&name.as_str()) {
            return Err(unknown(&name));
        }
    }
    Ok(())
}
