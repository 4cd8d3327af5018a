//! Statements with parameters.

use weft_sql::{ErrorKind, Result, SqlError, Value};

use crate::result::QueryResult;
use crate::session::Session;

/// A statement with parameters. It is planned for each run, on what the database holds then and for
/// the values given; but statements of the forms `SELECT … FROM table WHERE key = $1`, `UPDATE table SET … WHERE key = $1` and
/// `DELETE FROM table WHERE key = $1`, for the row with a primary or other unique key, and `INSERT INTO table VALUES …` of up to 64 rows
/// keep their plans as long as definitions and settings stay as they are.
#[derive(Clone)]
pub struct Prepared {
    session: Session,
    sql: String,
    parameters: usize,
}

impl Prepared {
    pub(crate) fn new(session: Session, sql: String, parameters: usize) -> Prepared {
        Prepared { session, sql, parameters }
    }

    /// How many parameters it has.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Its text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Starts the statement with a value for each parameter.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] if the number of values differs or their types do not fit, and
    /// whatever [`Session::query`] returns.
    pub fn query(&self, values: &[Value]) -> Result<QueryResult> {
        if values.len() != self.parameters {
            return Err(SqlError::new(
                ErrorKind::Semantic,
                format!(
                    "the statement has {} parameters, but {} values were given",
                    self.parameters,
                    values.len()
                ),
            ));
        }
        self.session.query_with(&self.sql, values.to_vec())
    }

    /// Runs the statement to its end and returns how many rows it affected.
    ///
    /// # Errors
    /// As for [`Prepared::query`].
    pub fn execute(&self, values: &[Value]) -> Result<u64> {
        self.query(values)?.finish()
    }
}
