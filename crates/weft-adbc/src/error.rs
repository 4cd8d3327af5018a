//! Errors of Weft as errors of ADBC.

use std::os::raw::c_char;

use adbc_core::error::{Error, Result, Status};
use weft::ErrorKind;

/// What ADBC calls a kind of errors.
fn status(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::Syntax | ErrorKind::Semantic | ErrorKind::Setting => Status::InvalidArguments,
        ErrorKind::AlreadyExists => Status::AlreadyExists,
        ErrorKind::NotSupported => Status::NotImplemented,
        ErrorKind::Data | ErrorKind::CardinalityViolation => Status::InvalidData,
        ErrorKind::UniqueViolation | ErrorKind::CheckViolation | ErrorKind::ForeignKeyViolation => {
            Status::Integrity
        }
        // Of what lies beyond the statement itself; the SQLSTATE tells these apart.
        ErrorKind::OutOfMemory
        | ErrorKind::Io
        | ErrorKind::Storage
        | ErrorKind::Conflict
        | ErrorKind::Deadlock
        | ErrorKind::LockNotAvailable => Status::IO,
        ErrorKind::TransactionAborted
        | ErrorKind::NoActiveTransaction
        | ErrorKind::ActiveTransaction
        | ErrorKind::ReadOnlyTransaction
        | ErrorKind::NoSavepoint => Status::InvalidState,
        ErrorKind::Forbidden => Status::Unauthorized,
        ErrorKind::Cancelled => Status::Cancelled,
        ErrorKind::Internal => Status::Internal,
    }
}

/// An error with its place and its advice in the message.
pub(crate) fn of_weft(error: &weft::Error) -> Error {
    let mut message = error.message().to_owned();
    if let Some(position) = error.position() {
        message.push_str(&format!(" ({position})"));
    }
    if let Some(hint) = error.hint() {
        message.push_str(&format!("\nhint: {hint}"));
    }
    of_status(status(error.kind()), error.sqlstate(), message)
}

/// An error of the driver.
pub(crate) fn of_status(status: Status, sqlstate: &str, message: impl Into<String>) -> Error {
    let mut error = Error::with_message_and_status(message, status);
    for (place, letter) in error.sqlstate.iter_mut().zip(sqlstate.bytes()) {
        *place = letter as c_char;
    }
    error
}

/// What ADBC has and Weft has not.
pub(crate) fn not_implemented<T>(what: &str) -> Result<T> {
    Err(of_status(Status::NotImplemented, "0A000", format!("{what} is not supported by Weft")))
}

/// An option with a value that it cannot have.
pub(crate) fn bad_option<T>(name: &str, expected: &str) -> Result<T> {
    let message = format!("the option {name} has a bad value: expected {expected}");
    Err(of_status(Status::InvalidArguments, "22023", message))
}

/// A result of Weft as one of ADBC.
pub(crate) trait OrAdbc<T> {
    /// The value, or the error as ADBC has it.
    fn or_adbc(self) -> Result<T>;
}

impl<T> OrAdbc<T> for weft::Result<T> {
    fn or_adbc(self) -> Result<T> {
        self.map_err(|error| of_weft(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_status_and_its_code() {
        let error = weft::Error::new(ErrorKind::UniqueViolation, "the key is there")
            .with_hint("take another one");
        let error = of_weft(&error);
        assert_eq!(error.status, Status::Integrity);
        assert_eq!(error.sqlstate.map(|letter| letter as u8), *b"23505");
        assert_eq!(error.message, "the key is there\nhint: take another one");
    }
}
