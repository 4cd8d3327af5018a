//! What can go wrong with a statement, in the words of the person who wrote it.
//!
//! DataFusion's errors are nested, name their own crates and dump plans. [`translate`] digs out the
//! one that matters, says it plainly, and keeps where in the text it is.

use std::fmt;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Diagnostic, SchemaError};

use weft_exec::ExecError;
use weft_store::StoreError;

use crate::same_names::TWICE;
use crate::suggest;

/// Result of this crate.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// What kind of failure it is, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not SQL.
    Syntax,
    /// The statement names what does not exist, or its types do not fit.
    Semantic,
    /// What is to be created exists already.
    AlreadyExists,
    /// Correct SQL that this version does not run.
    NotSupported,
    /// A value cannot be computed or stored: a cast, a division by zero, a constraint, a bad file.
    Data,
    /// A setting does not exist or cannot have this value.
    Setting,
    /// `memory_limit` or `max_temp_size` does not suffice.
    OutOfMemory,
    /// The operating system refused a file.
    Io,
    /// The database directory: locked, read-only, damaged, full.
    Storage,
    /// The statement was cancelled.
    Cancelled,
    /// A bug.
    Internal,
}

/// A place in a statement's text, both counted from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a statement failed. Its message says what happened, to what; its hint what to do about it.
/// Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.details.message)]
pub struct SqlError {
    details: Arc<Details>,
}

#[derive(Clone, Debug)]
struct Details {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    position: Option<Position>,
    /// The name that the error is about, to find its place in the text by.
    subject: Option<String>,
}

impl SqlError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> SqlError {
        let details =
            Details { kind, message: message.into(), hint: None, position: None, subject: None };
        SqlError { details: Arc::new(details) }
    }

    pub(crate) fn cancelled() -> SqlError {
        SqlError::new(ErrorKind::Cancelled, "the statement was cancelled")
    }

    pub(crate) fn not_supported(what: impl fmt::Display) -> SqlError {
        SqlError::new(ErrorKind::NotSupported, format!("{what} is not supported yet"))
    }

    /// The same with advice.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> SqlError {
        self.change(|details| details.hint = Some(hint.into()))
    }

    /// The same with a place in the statement's text.
    #[must_use]
    pub fn with_position(self, position: Position) -> SqlError {
        self.change(|details| details.position = Some(position))
    }

    /// The same, about this name.
    pub(crate) fn about(self, subject: impl Into<String>) -> SqlError {
        self.change(|details| details.subject = Some(subject.into()))
    }

    pub(crate) fn subject(&self) -> Option<&str> {
        self.details.subject.as_deref()
    }

    fn change(self, change: impl FnOnce(&mut Details)) -> SqlError {
        let mut details = Arc::unwrap_or_clone(self.details);
        change(&mut details);
        SqlError { details: Arc::new(details) }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.details.kind
    }

    /// What happened, to what.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// What the user can do.
    pub fn hint(&self) -> Option<&str> {
        self.details.hint.as_deref()
    }

    /// Where in the statement's text.
    pub fn position(&self) -> Option<Position> {
        self.details.position
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> SqlError {
        translate(&error)
    }
}

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> SqlError {
        from_store(&error)
    }
}

impl From<ExecError> for SqlError {
    fn from(error: ExecError) -> SqlError {
        translate_exec(&error)
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> SqlError {
        translate_arrow(&error)
    }
}

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
        | DataFusionError::Ffi(message) => internal(message),
    }
}

fn translate_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlError {
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

fn translate_arrow(error: &ArrowError) -> SqlError {
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

/// What went wrong in a pipeline.
fn translate_exec(error: &ExecError) -> SqlError {
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
        ExecError::Memory { operator, source } => {
            out_of_memory(&format!("out of memory: {operator} needs more: {source}"))
        }
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

fn translate_io(error: &std::io::Error) -> SqlError {
    if let Some(inner) = error.get_ref() {
        let nested = translate_external(inner);
        if nested.kind() != ErrorKind::Data {
            return nested;
        }
    }
    SqlError::new(ErrorKind::Io, error.to_string())
}

fn translate_object_store(error: &datafusion::object_store::Error) -> SqlError {
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

/// `sql parser error: Expected: …, found: … at Line: 1, Column: 8`
fn translate_syntax(message: &str) -> SqlError {
    let message = message.trim_start_matches("sql parser error: ");
    let (text, position) = split_position(message);
    let text = text.replace("Expected: ", "expected ").replace(", found: ", ", found ");
    let text = if text.ends_with("found EOF") {
        text.replace("found EOF", "found the end of the statement")
    } else {
        text
    };
    let error = SqlError::new(ErrorKind::Syntax, format!("syntax error: {}", sentence(&text)));
    match position {
        Some(position) => error.with_position(position),
        None => error,
    }
}

/// Takes ` at Line: 1, Column: 8` from the end of a message.
fn split_position(message: &str) -> (&str, Option<Position>) {
    let Some(start) = message.rfind("at Line: ") else {
        return (message, None);
    };
    let numbers = &message[start + "at Line: ".len()..];
    let Some((line, column)) = numbers.split_once(", Column: ") else {
        return (message, None);
    };
    match (line.trim().parse(), column.trim().parse()) {
        (Ok(line), Ok(column)) if line > 0 => {
            (message[..start].trim_end(), Some(Position { line, column }))
        }
        _ => (message, None),
    }
}

fn translate_plan(message: &str) -> SqlError {
    let message = strip_prefixes(message);
    if let Some(name) = between(&message, "table '", "' not found") {
        return unknown_table(name);
    }
    if let Some(error) = translate_call(&message) {
        return error;
    }
    let (what, hint) = match message.split_once("Did you mean ") {
        Some((what, hint)) => (what, Some(format!("did you mean {}", hint.trim()))),
        None => (message.as_str(), None),
    };
    let kind = if message.contains("not supported") || message.contains("not yet supported") {
        ErrorKind::NotSupported
    } else {
        ErrorKind::Semantic
    };
    let what = first_paragraph(what);
    let error = match between(what, "Invalid function '", "'") {
        Some(name) => SqlError::new(kind, format!("function {name} does not exist")).about(name),
        None => SqlError::new(kind, plain_types(&sentence(what))),
    };
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Calls with arguments of wrong types, and columns outside of GROUP BY.
fn translate_call(message: &str) -> Option<SqlError> {
    if let Some((_, rest)) = message.split_once("given name and argument types '") {
        let call = rest.split('\'').next().unwrap_or(rest);
        let name = call.split('(').next().unwrap_or(call);
        let call = plain_types(call);
        let message = format!("there is no {call}: {name} takes arguments of other types");
        return Some(
            SqlError::new(ErrorKind::Semantic, message)
                .about(name)
                .with_hint("cast the arguments, such as CAST(x AS DOUBLE)"),
        );
    }
    if let Some((_, rest)) =
        message.split_once(" require unique expression names but the expression \"")
    {
        let column = rest.split("\" at position").next().unwrap_or(rest);
        return Some(occurs_twice(column.rsplit('.').next().unwrap_or(column)));
    }
    if let Some((before, _)) = message.split_once(" must appear in the GROUP BY clause") {
        let column = before.rsplit("olumn ").next().unwrap_or(before).trim_matches('"');
        return Some(SqlError::new(
            ErrorKind::Semantic,
            format!("column {column} must be in GROUP BY or in an aggregate function"),
        ));
    }
    None
}

/// Names of types as people know them, in place of Arrow's.
fn plain_types(message: &str) -> String {
    const TYPES: [(&str, &str); 17] = [
        ("Interval(MonthDayNano)", "INTERVAL"),
        ("LargeUtf8", "VARCHAR"),
        ("Utf8View", "VARCHAR"),
        ("Utf8", "VARCHAR"),
        ("BinaryView", "BLOB"),
        ("UInt8", "TINYINT UNSIGNED"),
        ("UInt16", "SMALLINT UNSIGNED"),
        ("UInt32", "INTEGER UNSIGNED"),
        ("UInt64", "BIGINT UNSIGNED"),
        ("Int8", "TINYINT"),
        ("Int16", "SMALLINT"),
        ("Int32", "INTEGER"),
        ("Int64", "BIGINT"),
        ("Float32", "REAL"),
        ("Float64", "DOUBLE"),
        ("Date32", "DATE"),
        ("Decimal128", "DECIMAL"),
    ];
    let mut message = message.to_owned();
    for (arrow, sql) in TYPES {
        message = message.replace(arrow, sql);
    }
    message
}

/// No table, view or file of this name.
pub(crate) fn unknown_table(name: &str) -> SqlError {
    let name = name.trim_start_matches("weft.").trim_start_matches("main.");
    SqlError::new(ErrorKind::Semantic, format!("table {name} does not exist")).about(name)
}

fn translate_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error = SqlError::new(
                ErrorKind::Semantic,
                format!("column {} does not exist", field.flat_name()),
            )
            .about(field.name.as_str());
            let names: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
            match suggest::hint("column", &field.name, &names) {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            ErrorKind::Semantic,
            format!("column {} is ambiguous: more than one table has it", field.flat_name()),
        )
        .about(field.name.as_str())
        .with_hint("write table.column"),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => occurs_twice(name),
    }
}

/// Two columns have the same name.
pub(crate) fn occurs_twice(name: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("column {name} {TWICE}"))
        .about(name)
        .with_hint("name one of them differently with AS")
}

fn not_implemented(message: &str) -> SqlError {
    let message = sentence(&strip_prefixes(message));
    let message = match message.contains("support") || message.contains("implemented") {
        true => message,
        false => format!("not supported yet: {message}"),
    };
    SqlError::new(ErrorKind::NotSupported, message)
}

fn out_of_memory(message: &str) -> SqlError {
    let message = strip_prefixes(message);
    if message.contains("disk space") || message.contains("max_temp_directory_size") {
        return SqlError::new(
            ErrorKind::OutOfMemory,
            "the statement's temporary files need more than the setting max_temp_size allows",
        )
        .with_hint("raise it: SET max_temp_size = '…'");
    }
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
            return SqlError::new(ErrorKind::AlreadyExists, message).with_hint(format!(
                "write IF NOT EXISTS or CREATE OR REPLACE {}",
                kind.to_uppercase()
            ));
        }
        StoreError::NoSuchTable { name } => return unknown_table(name),
        StoreError::NoSuchView { .. }
        | StoreError::UnsupportedType { .. }
        | StoreError::Schema { .. } => ErrorKind::Semantic,
        StoreError::Encode { .. } | StoreError::Mismatch { .. } => ErrorKind::Data,
        StoreError::At { source, .. } => from_store(source).kind(),
        _ => ErrorKind::Storage,
    };
    SqlError::new(kind, error.to_string())
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

/// Takes away the names of crates and error types that nested errors put in front.
fn strip_prefixes(message: &str) -> String {
    const PREFIXES: [&str; 22] = [
        "DataFusion error: ",
        "External error: ",
        "External: ",
        "Arrow error: ",
        "Arrow: ",
        "Parquet error: ",
        "Parquet: ",
        "Parser error: ",
        "Csv error: ",
        "Json error: ",
        "Cast error: ",
        "Compute error: ",
        "Invalid argument error: ",
        "Arithmetic overflow: ",
        "Schema error: ",
        "Execution error: ",
        "Error during planning: ",
        "Optimizer rule ",
        "Object Store error: ",
        "Generic LocalFileSystem error: ",
        "IO error: ",
        "Io error: ",
    ];
    let mut message = message.trim();
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        message = rest.trim_start();
    }
    message.to_owned()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(start)?;
    rest.split_once(end).map(|(name, _)| name)
}

fn first_paragraph(text: &str) -> &str {
    text.split("\n\n").next().unwrap_or(text).trim()
}

/// A message as the others: it starts small, unless with a name, and has no full stop.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_the_syntax_is_wrong() {
        let error = translate_syntax(
            "sql parser error: Expected: an expression, found: FROM at Line: 2, Column: 8",
        );
        assert_eq!(error.to_string(), "syntax error: expected an expression, found FROM");
        assert_eq!(error.position(), Some(Position { line: 2, column: 8 }));
    }

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
