//! Errors of Weft as exceptions of Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use weft::{Error, ErrorKind};

/// The name of a kind, by which the package finds the class of exceptions.
fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Syntax => "syntax",
        ErrorKind::Semantic => "semantic",
        ErrorKind::AlreadyExists => "already_exists",
        ErrorKind::NotSupported => "not_supported",
        ErrorKind::Data => "data",
        ErrorKind::UniqueViolation => "unique_violation",
        ErrorKind::CardinalityViolation => "cardinality_violation",
        ErrorKind::CheckViolation => "check_violation",
        ErrorKind::ForeignKeyViolation => "foreign_key_violation",
        ErrorKind::Setting => "setting",
        ErrorKind::OutOfMemory => "out_of_memory",
        ErrorKind::Io => "io",
        ErrorKind::Storage => "storage",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Deadlock => "deadlock",
        ErrorKind::LockNotAvailable => "lock_not_available",
        ErrorKind::TransactionAborted => "transaction_aborted",
        ErrorKind::NoActiveTransaction => "no_active_transaction",
        ErrorKind::ActiveTransaction => "active_transaction",
        ErrorKind::ReadOnlyTransaction => "read_only_transaction",
        ErrorKind::Forbidden => "forbidden",
        ErrorKind::NoSavepoint => "no_savepoint",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::Internal => "internal",
    }
}

/// The exception for an error.
pub(crate) fn exception(error: &Error) -> PyErr {
    let position = error.position().map(|position| (position.line, position.column));
    from_package(name(error.kind()), error.message(), error.hint(), position)
}

/// An exception of the class for such a kind of errors.
pub(crate) fn of_kind(kind: &str, message: &str) -> PyErr {
    from_package(kind, message, None, None)
}

fn from_package(
    kind: &str,
    message: &str,
    hint: Option<&str>,
    position: Option<(u64, u64)>,
) -> PyErr {
    let made = Python::try_attach(|py| -> PyResult<PyErr> {
        let class = py.import("weft._errors")?.getattr("exception")?;
        Ok(PyErr::from_value(class.call1((kind, message, hint, position))?))
    });
    match made {
        Some(Ok(error) | Err(error)) => error,
        None => PyRuntimeError::new_err(message.to_owned()),
    }
}

/// An error of the code of Python, in words.
pub(crate) fn in_words(py: Python<'_>, error: &PyErr) -> String {
    let class = error.get_type(py);
    let class = class.name().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
    match error.value(py).str() {
        Ok(text) if text.to_string_lossy().is_empty() => class,
        Ok(text) => format!("{class}: {}", text.to_string_lossy()),
        Err(_) => class,
    }
}

/// Turns errors of Weft into exceptions.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception for the error.
    ///
    /// # Errors
    /// The exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for weft::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| exception(&error))
    }
}
