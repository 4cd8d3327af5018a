//! Errors of Weft as those of gRPC: a code, the message with its place and advice, and the SQLSTATE beside it.

use arrow_flight::error::FlightError;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use weft::{Error, ErrorKind};

/// Bytes of a message that are sent, at most: clients take trailers of a few kilobytes only.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The key of the metadata that has the SQLSTATE.
const SQLSTATE: &str = "sqlstate";

/// The code of gRPC for a kind of Weft's errors.
fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Syntax
        | ErrorKind::Semantic
        | ErrorKind::Setting
        | ErrorKind::Data
        | ErrorKind::CardinalityViolation => Code::InvalidArgument,
        ErrorKind::AlreadyExists | ErrorKind::UniqueViolation => Code::AlreadyExists,
        ErrorKind::NotSupported => Code::Unimplemented,
        ErrorKind::CheckViolation
        | ErrorKind::ForeignKeyViolation
        | ErrorKind::TransactionAborted
        | ErrorKind::NoActiveTransaction
        | ErrorKind::ActiveTransaction
        | ErrorKind::ReadOnlyTransaction
        | ErrorKind::NoSavepoint => Code::FailedPrecondition,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::OutOfMemory => Code::ResourceExhausted,
        ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::LockNotAvailable => Code::Aborted,
        ErrorKind::Cancelled => Code::Cancelled,
        ErrorKind::Io | ErrorKind::Storage | ErrorKind::Internal => Code::Internal,
    }
}

/// An error of the database.
pub(super) fn from_weft(error: &Error) -> Status {
    let mut message = error.message().to_owned();
    if let Some(position) = error.position() {
        message.push_str(&format!(" ({position})"));
    }
    if let Some(hint) = error.hint() {
        message.push_str(&format!("\nhint: {hint}"));
    }
    with_sqlstate(code(error.kind()), error.sqlstate(), &message)
}

/// An error with an SQLSTATE, whose message is cut where clients would not take it.
pub(super) fn with_sqlstate(code: Code, sqlstate: &'static str, message: &str) -> Status {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let mut status = Status::new(code, &message[..end]);
    status.metadata_mut().insert(SQLSTATE, MetadataValue::from_static(sqlstate));
    status
}

/// A result of Weft as one of gRPC.
pub(super) trait OrStatus<T> {
    /// The value, or the error as gRPC has it.
    fn or_status(self) -> Result<T, Status>;
}

impl<T> OrStatus<T> for weft::Result<T> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(|error| from_weft(&error))
    }
}

impl<T> OrStatus<T> for Result<T, arrow::error::ArrowError> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(|error| from_weft(&Error::from(error)))
    }
}

impl<T> OrStatus<T> for Result<T, FlightError> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(Status::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_code_and_its_sqlstate() {
        let error = Error::new(ErrorKind::Conflict, "another one was first").with_hint("try again");
        let status = from_weft(&error);
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(status.message(), "another one was first\nhint: try again");
        assert_eq!(status.metadata().get(SQLSTATE).and_then(|at| at.to_str().ok()), Some("40001"));
        let long = with_sqlstate(Code::Internal, "XX000", &"ä".repeat(MESSAGE_BYTES_MAX));
        assert!(long.message().len() <= MESSAGE_BYTES_MAX);
    }
}
