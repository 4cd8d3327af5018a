//! What the tests of the API share: an empty database, and statements with what they must return.

use weft::{Database, DatabaseOptions, Error, ErrorKind, Session};

/// An empty database in memory.
pub fn database() -> Database {
    Database::in_memory(&DatabaseOptions::default().with("memory_limit", "1GiB")).unwrap()
}

/// The rows of a query, each with its values separated by spaces.
pub fn rows(session: &Session, sql: &str) -> Vec<String> {
    let result = session.query(sql).and_then(weft::QueryResult::collect);
    let batches = result.unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.hint()));
    weft::to_text(&batches).unwrap().into_iter().map(|row| row.join(" ")).collect()
}

/// Runs a query and compares its rows.
pub fn check(session: &Session, sql: &str, expected: &[&str]) {
    assert_eq!(rows(session, sql), expected, "{sql}");
}

/// Runs a statement that must fail so.
pub fn check_error(session: &Session, sql: &str, kind: ErrorKind) -> Error {
    match session.execute(sql) {
        Ok(_) => panic!("{sql}: no error"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{sql}: {error}");
            error
        }
    }
}
