//! Statements of other databases, which people try: what to write instead.

use crate::error::SqlError;

/// The first words of a statement, and what does the same here.
const STATEMENTS: [(&str, &str); 14] = [
    ("ANALYZE", "statistics are kept up to date by themselves"),
    ("CLUSTER", "CREATE TABLE … AS SELECT … ORDER BY makes a sorted table"),
    ("EXPORT", "write COPY table TO 'file.parquet' for each table"),
    ("IMPORT", "write COPY table FROM 'file.parquet' for each table"),
    ("INSTALL", "there are no extensions"),
    ("KILL", "Ctrl-C in the shell stops a statement"),
    ("LOAD", "there are no extensions; to load a file, write COPY table FROM 'file'"),
    ("LOCK", "each statement sees one state of the database: nothing needs to be locked"),
    (
        "OPTIMIZE",
        "VACUUM table writes what is left of changed rows anew; the database does so by itself",
    ),
    ("PIVOT", "write PIVOT table ON column USING sum(value) GROUP BY key"),
    (
        "PRAGMA",
        "SHOW ALL lists the settings, SET changes one, DESCRIBE table lists columns; there are PRAGMA table_info and integrity_check",
    ),
    ("REFRESH", "views are always up to date"),
    ("RENAME", "write ALTER TABLE old RENAME TO new"),
    ("UNPIVOT", "write UNPIVOT table ON a, b INTO NAME n VALUE v"),
];

/// Refuses a statement that begins with these words, if it is one of another database.
///
/// # Errors
/// [`crate::ErrorKind::NotSupported`], with what to write instead.
pub(crate) fn check(first: &str, second: &str) -> Result<(), SqlError> {
    let two = format!("{first} {second}");
    match STATEMENTS.iter().find(|(words, _)| *words == first || *words == two) {
        Some((words, hint)) => Err(SqlError::not_supported(words).with_hint(*hint)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_others_are_explained() {
        assert!(check("PRAGMA", "").unwrap_err().hint().is_some_and(|hint| hint.contains("SHOW")));
        assert!(check("EXPORT", "DATABASE").is_err());
        assert!(check("CREATE", "TABLE").is_ok());
        assert!(STATEMENTS.is_sorted());
    }
}
