//! The errors of the crates that a statement runs through, as errors of the statement.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Diagnostic};
use weft_exec::ExecError;
use weft_remote::RemoteError;
use weft_store::{IndexError, Scalar, StoreError, scan_type};

use super::planning::{
    translate_call, translate_plan, translate_schema, translate_syntax, unknown_table,
};
use super::words::{plain_types, sentence, strip_prefixes};
use super::{ErrorKind, Position, SqlError};
use crate::describe::value_in_words;
use crate::sizes::human_bytes;

/// The error that matters among those that DataFusion has nested, in plain words.
pub(crate) fn translate(error: &DataFusionError) -> SqlError {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => {
            with_diagnostic(translate(inner), diagnostic)
        }
        DataFusionError::Context(_, inner) => translate(inner),
        DataFusionError::Shared(inner) => translate(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => translate(first),
            None => internal("an empty list of errors"),
        },
        DataFusionError::External(inner) => translate_external(inner.as_ref()),
        DataFusionError::ParquetError(inner) if RemoteError::within(inner.as_ref()).is_some() => {
            translate_remote(inner.as_ref())
        }
        DataFusionError::ArrowError(inner, _) => translate_arrow(inner),
        DataFusionError::ParquetError(inner) => SqlError::new(
            ErrorKind::Data,
            format!("Parquet file: {}", strip_prefixes(&inner.to_string())),
        ),
        DataFusionError::ObjectStore(inner) => translate_object_store(inner),
        DataFusionError::IoError(inner) => translate_io(inner),
        DataFusionError::SQL(inner, _) => translate_syntax(&inner.to_string()),
        DataFusionError::NotImplemented(message) => not_implemented(message),
        DataFusionError::Plan(message) => translate_plan(message),
        DataFusionError::Configuration(message) => {
            SqlError::new(ErrorKind::Setting, sentence(message))
        }
        DataFusionError::SchemaError(inner, _) => translate_schema(inner),
        DataFusionError::Execution(message) => {
            SqlError::new(ErrorKind::Data, plain_types(&sentence(&strip_prefixes(message))))
        }
        DataFusionError::ExecutionJoin(inner) => internal(&inner.to_string()),
        DataFusionError::ResourcesExhausted(message) => out_of_memory(message),
        DataFusionError::Internal(message)
        | DataFusionError::Substrait(message)
        | DataFusionError::Ffi(message) => {
            known_limit(message).unwrap_or_else(|| internal(message))
        }
    }
}

/// What DataFusion takes for a bug of its own, and is an argument that a function does not take.
fn known_limit(message: &str) -> Option<SqlError> {
    let (told, hint) = if message.starts_with("array_resize: failed to convert size") {
        ("array_resize takes a size that is not negative", "use greatest(size, 0)")
    } else if message.starts_with("array_slice got invalid stride") {
        ("the step of array_slice is too large", "a list has fewer elements: use a smaller step")
    } else {
        return None;
    };
    Some(SqlError::new(ErrorKind::Data, told).with_hint(hint))
}

fn translate_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlError {
    if let Some(found) = RemoteError::within(error) {
        return SqlError::from(found.clone());
    }
    if let Some(error) = error.downcast_ref::<SqlError>() {
        return error.clone();
    }
    if let Some(error) = error.downcast_ref::<DataFusionError>() {
        return translate(error);
    }
    if let Some(error) = error.downcast_ref::<ArrowError>() {
        return translate_arrow(error);
    }
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return from_store(error);
    }
    if let Some(error) = error.downcast_ref::<ExecError>() {
        return translate_exec(error);
    }
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return translate_io(error);
    }
    SqlError::new(ErrorKind::Data, strip_prefixes(&error.to_string()))
}

pub(super) fn translate_arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::ExternalError(inner) => translate_external(inner.as_ref()),
        ArrowError::DivideByZero => SqlError::new(ErrorKind::Data, "division by zero"),
        ArrowError::NotYetImplemented(message) => not_implemented(message),
        ArrowError::IoError(_, inner) => translate_io(inner),
        ArrowError::MemoryError(message) => SqlError::new(ErrorKind::OutOfMemory, message.clone()),
        other => {
            let message = sentence(&strip_prefixes(&other.to_string()));
            SqlError::new(ErrorKind::Data, plain_types(&message))
        }
    }
}

fn translate_io(error: &std::io::Error) -> SqlError {
    if let Some(inner) = error.get_ref() {
        let nested = translate_external(inner);
        if nested.kind() != ErrorKind::Data {
            return nested;
        }
    }
    SqlError::new(ErrorKind::Io, error.to_string())
}

/// The error of a file elsewhere, which is among the causes of another one.
fn translate_remote(error: &(dyn std::error::Error + 'static)) -> SqlError {
    match RemoteError::within(error) {
        Some(found) => SqlError::from(found.clone()),
        None => SqlError::new(ErrorKind::Io, error.to_string()),
    }
}

fn translate_object_store(error: &datafusion::object_store::Error) -> SqlError {
    if RemoteError::within(error).is_some() {
        return translate_remote(error);
    }
    match error {
        datafusion::object_store::Error::NotFound { path, .. } => {
            SqlError::new(ErrorKind::Io, format!("file /{path} does not exist"))
        }
        other => SqlError::new(ErrorKind::Io, strip_prefixes(&other.to_string())),
    }
}

fn with_diagnostic(error: SqlError, diagnostic: &Diagnostic) -> SqlError {
    let mut error = error;
    if let (None, Some(span)) = (error.position(), diagnostic.span) {
        error = error.with_position(Position { line: span.start.line, column: span.start.column });
    }
    match (error.hint(), diagnostic.helps.first()) {
        (None, Some(help)) => error.with_hint(sentence(&help.message)),
        _ => error,
    }
}

fn not_implemented(message: &str) -> SqlError {
    if let Some((_, expression)) = message.split_once("not support logical expression ") {
        return misplaced(expression);
    }
    let message = sentence(&strip_prefixes(message));
    let message = match message.contains("support") || message.contains("implemented") {
        true => message,
        false => format!("not supported yet: {message}"),
    };
    SqlError::new(ErrorKind::NotSupported, message)
}

/// An expression that cannot be computed where it stands, as DataFusion writes it.
fn misplaced(expression: &str) -> SqlError {
    let kind = expression.split(|char: char| !char.is_alphanumeric()).next().unwrap_or_default();
    let (what, hint) = match kind {
        "WindowFunction" => (
            "a window function cannot be in WHERE, GROUP BY or HAVING: it is computed after them",
            "compute it in a subquery, or write the condition in QUALIFY",
        ),
        "AggregateFunction" => (
            "an aggregate function cannot be in WHERE: it is computed after it",
            "write the condition in HAVING",
        ),
        _ => ("an expression cannot be computed where it stands", "compute it in a subquery"),
    };
    SqlError::new(ErrorKind::Semantic, what).with_hint(hint)
}

fn out_of_memory(message: &str) -> SqlError {
    let message = strip_prefixes(message);
    // An operator may wrap the refusal in words of its own; the last part is the ledger's.
    let message = match message.rfind("out of memory: ") {
        Some(start) => message[start..].to_owned(),
        None => format!("out of memory: {message}"),
    };
    SqlError::new(ErrorKind::OutOfMemory, message)
        .with_hint("raise the setting memory_limit, or use fewer threads")
}

/// What went wrong in the database directory.
pub(crate) fn from_store(error: &StoreError) -> SqlError {
    let kind = match error {
        StoreError::Cancelled => return SqlError::cancelled(),
        StoreError::Memory(_) => ErrorKind::OutOfMemory,
        StoreError::Exists { kind, name } => {
            let message = format!("{kind} {name} exists already");
            let error = SqlError::new(ErrorKind::AlreadyExists, message);
            return match *kind {
                "constraint" => error.with_hint("give the constraint another name"),
                "index" => error.with_hint("write IF NOT EXISTS, or another name"),
                kind => error.with_hint(format!(
                    "write IF NOT EXISTS or CREATE OR REPLACE {}",
                    kind.to_uppercase()
                )),
            };
        }
        StoreError::NoSuchTable { name } => return unknown_table(name),
        StoreError::Duplicate { table, constraint, is_primary, key, types } => {
            let what = if *is_primary { "primary key" } else { "unique key" };
            let message = format!(
                "{} is there twice, which the {what} {constraint} of table {table} does not allow",
                key_in_words(key, types)
            );
            return SqlError::new(ErrorKind::UniqueViolation, message).with_key(table, key);
        }
        StoreError::Unreferenced { table, constraint, parent, key, types } => {
            let message = format!(
                "{} of table {table} is not in table {parent}, to which the foreign key {constraint} refers",
                key_in_words(key, types)
            );
            return SqlError::new(ErrorKind::ForeignKeyViolation, message).with_key(table, key);
        }
        StoreError::Referenced { what, constraint, table } => {
            let message =
                format!("{what} is needed by the foreign key {constraint} of table {table}");
            return SqlError::new(ErrorKind::ForeignKeyViolation, message)
                .with_hint(format!("drop table {table} first, or write CASCADE"));
        }
        StoreError::Index { source, .. } => match source.as_ref() {
            IndexError::TooLong { .. } => ErrorKind::Data,
            IndexError::KeyType { .. } | IndexError::KeyColumns { .. } => ErrorKind::Semantic,
            _ => ErrorKind::Storage,
        },
        StoreError::NoSuchIndex { .. }
        | StoreError::NoSuchView { .. }
        | StoreError::UnsupportedType { .. }
        | StoreError::Schema { .. } => ErrorKind::Semantic,
        StoreError::Encode { .. } | StoreError::Mismatch { .. } => ErrorKind::Data,
        StoreError::TempDirectory { .. } => ErrorKind::Setting,
        StoreError::Conflict { .. } | StoreError::Serialization { .. } => ErrorKind::Conflict,
        StoreError::Deadlock => ErrorKind::Deadlock,
        StoreError::RowLocked { .. } => ErrorKind::LockNotAvailable,
        StoreError::TransactionEnded => ErrorKind::NoActiveTransaction,
        StoreError::NotInTransaction { .. } => ErrorKind::ActiveTransaction,
        StoreError::NoSuchSavepoint { .. } => ErrorKind::NoSavepoint,
        StoreError::TransactionMemory { .. } => ErrorKind::OutOfMemory,
        StoreError::At { source, .. } => from_store(source).kind(),
        StoreError::Shared(source) => return from_store(source),
        _ => ErrorKind::Storage,
    };
    SqlError::new(kind, error.to_string())
}

/// `(a, b) = (1, 'x')`, or `a = 1`.
fn key_in_words(key: &[(String, Scalar)], types: &[DataType]) -> String {
    let names: Vec<&str> = key.iter().map(|(name, _)| name.as_str()).collect();
    let values = key.iter().zip(types);
    let values: Vec<String> = values
        .map(|((_, value), data_type)| value_in_words(value, &scan_type(data_type)))
        .collect();
    match (&names[..], &values[..]) {
        ([name], [value]) => format!("{name} = {value}"),
        _ => format!("({}) = ({})", names.join(", "), values.join(", ")),
    }
}

/// A bug, said as one.
pub(crate) fn internal(message: &str) -> SqlError {
    // Wrong arguments are reported as a bug of DataFusion by some of its functions.
    if let Some(error) = translate_call(message) {
        return error;
    }
    let message = message.split("\nThis issue was likely caused by").next().unwrap_or(message);
    let message = message.split("This issue was likely caused by").next().unwrap_or(message);
    SqlError::new(ErrorKind::Internal, format!("internal error: {}", message.trim()))
        .with_hint("this is a bug in Weft: please report the statement")
}

/// What went wrong in a pipeline.
pub(super) fn translate_exec(error: &ExecError) -> SqlError {
    match error {
        ExecError::Overflow { operation, into } => {
            let into = lane_type(into);
            let message = format!("{operation} is out of the range of {into}");
            SqlError::new(ErrorKind::Data, message).with_hint("cast the operands to a larger type")
        }
        ExecError::DivisionByZero => SqlError::new(ErrorKind::Data, "division by zero"),
        ExecError::Cast { value, into } => {
            let into = lane_type(into);
            let message = format!("cannot cast {value} to {into}: it is out of the range");
            SqlError::new(ErrorKind::Data, message).with_hint("use TRY_CAST to have NULL instead")
        }
        ExecError::NotPositive { .. } => SqlError::new(ErrorKind::Data, error.to_string()),
        ExecError::Memory { operator, source } => {
            out_of_memory(&format!("out of memory: {operator} needs more: {source}"))
        }
        ExecError::TooLarge { what, limit_bytes } => {
            let limit = human_bytes(*limit_bytes);
            let message = format!(
                "{what} has to be in memory, but outgrows what the setting memory_limit leaves, {limit}"
            );
            SqlError::new(ErrorKind::OutOfMemory, message)
                .with_hint("raise the setting memory_limit")
        }
        ExecError::TooLong { what, bytes_max } => {
            let most = human_bytes(*bytes_max);
            SqlError::new(
                ErrorKind::Data,
                format!("{what} takes more than {most}, which is the most"),
            )
            .with_hint("leave long texts out of what is sorted, joined or grouped, or shorten them")
        }
        // Planned again, it is DataFusion's operators that execute it.
        ExecError::TooManyTexts { .. } => out_of_memory(&format!("out of memory: {error}")),
        ExecError::Store(error) => from_store(error),
        ExecError::Arrow(error) => translate_arrow(error),
        ExecError::Function(error) => translate_external(error.as_ref()),
        ExecError::Cancelled => SqlError::cancelled(),
        ExecError::Join(error) => internal(&error.to_string()),
    }
}

/// The type of SQL that has the values of a lane.
fn lane_type(lane: &str) -> &str {
    match lane {
        "i8" => "TINYINT",
        "i16" => "SMALLINT",
        "i32" => "INTEGER",
        "i64" => "BIGINT",
        "u8" => "TINYINT UNSIGNED",
        "u16" => "SMALLINT UNSIGNED",
        "u32" => "INTEGER UNSIGNED",
        "u64" => "BIGINT UNSIGNED",
        "i128" => "DECIMAL",
        "f32" => "REAL",
        "f64" => "DOUBLE",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn digs_out_nested_errors() {
        let inner = DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        let error = DataFusionError::Context("while testing".into(), Box::new(inner));
        let error = ArrowError::ExternalError(Box::new(DataFusionError::Shared(Arc::new(error))));
        assert_eq!(SqlError::from(error).to_string(), "division by zero");
        let own = SqlError::cancelled();
        let nested = DataFusionError::Shared(Arc::new(own.into()));
        assert_eq!(SqlError::from(nested).kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn strips_debris() {
        let error = SqlError::from(DataFusionError::Execution(
            "Arrow error: Cast error: Cannot cast string 'x' to value of Int32 type".into(),
        ));
        assert_eq!(error.to_string(), "cannot cast string 'x' to value of INTEGER type");
        let error = SqlError::from(DataFusionError::Plan("table 'weft.main.t' not found".into()));
        assert_eq!(error.to_string(), "table t does not exist");
    }
}
