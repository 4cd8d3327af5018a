//! What a definition may say that is not carried out: an error, never silence. Keys and conditions are in `keys/`.

use datafusion::sql::sqlparser::ast::{ColumnDef, ColumnOption, CreateTable, CreateView};

use crate::error::{Result, SqlError};

/// Refuses what a table cannot have.
///
/// # Errors
/// [`crate::ErrorKind::NotSupported`].
pub(crate) fn check_table(create: &CreateTable) -> Result<()> {
    if create.temporary {
        return Err(SqlError::not_supported("CREATE TEMPORARY TABLE")
            .with_hint("a database without a path is temporary as a whole"));
    }
    // `(LIKE other)` reads as a column of that name.
    let is_like = |column: &ColumnDef| {
        column.name.quote_style.is_none() && column.name.value.eq_ignore_ascii_case("like")
    };
    if create.like.is_some() || create.clone.is_some() || create.columns.iter().any(is_like) {
        return Err(SqlError::not_supported("CREATE TABLE … LIKE")
            .with_hint("write CREATE TABLE new AS SELECT * FROM old WHERE false"));
    }
    create.columns.iter().try_for_each(check_column)
}

fn check_column(column: &ColumnDef) -> Result<()> {
    for option in &column.options {
        return Err(match &option.option {
            ColumnOption::Null | ColumnOption::NotNull | ColumnOption::Default(_) => continue,
            ColumnOption::Comment(_) => SqlError::not_supported("a comment on a column"),
            ColumnOption::Generated { .. } => SqlError::not_supported("a generated column"),
            ColumnOption::Identity(_) => SqlError::not_supported("an identity column"),
            ColumnOption::Collation(_) => SqlError::not_supported("COLLATE"),
            other => SqlError::not_supported(format!("the column option {other}")),
        });
    }
    Ok(())
}

/// Refuses what a view cannot have.
///
/// # Errors
/// [`crate::ErrorKind::NotSupported`].
pub(crate) fn check_view(create: &CreateView) -> Result<()> {
    if create.materialized {
        return Err(SqlError::not_supported("CREATE MATERIALIZED VIEW")
            .with_hint("write CREATE TABLE … AS"));
    }
    if create.temporary {
        return Err(SqlError::not_supported("CREATE TEMPORARY VIEW"));
    }
    Ok(())
}

/// The text of a column's default.
pub(crate) fn default_of(column: &ColumnDef) -> Option<String> {
    column.options.iter().find_map(|option| match &option.option {
        ColumnOption::Default(expr) => Some(expr.to_string()),
        _ => None,
    })
}
