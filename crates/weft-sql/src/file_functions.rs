//! Functions that read files, and names of files with options: `read_csv('f.csv', delim = ';')`, `'f.csv' (delim ';')`.
//!
//! Before a statement is planned, its calls are replaced by names of tables, which the catalog of the statement knows
//! then: DataFusion's functions have no named arguments, and cannot wait for files.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, Ident,
    ObjectName, TableAlias, TableFactor, UnaryOperator, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use weft_files::csv::Description;
use weft_files::json::Layout;
use weft_files::{Compression, Content, Input, WholeFiles};
use weft_remote::RemoteFiles;

use crate::error::{ErrorKind, Result, SqlError};
use crate::file_options::{self, OptionValue};
use crate::files::{FileKind, FileSet, ReadOptions};
use crate::grammar::is;
use crate::statement::inner_statement;
use crate::table::ScanContext;
use crate::text::significant;
use crate::types::type_name;

/// What a function does with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// It reads them as tables of this format, or of that which their names tell.
    Tables(Option<FileKind>),
    /// Each is a row with its content.
    Whole(Content),
    /// Each is a row with its name.
    Names,
    /// It shows how CSV files would be read.
    Sniffed,
}

/// The functions, by name.
const FUNCTIONS: [(&str, Reads); 16] = [
    ("read_csv", Reads::Tables(Some(FileKind::Csv))),
    ("read_csv_auto", Reads::Tables(Some(FileKind::Csv))),
    ("read_parquet", Reads::Tables(Some(FileKind::Parquet))),
    ("parquet_scan", Reads::Tables(Some(FileKind::Parquet))),
    ("read_arrow", Reads::Tables(Some(FileKind::Arrow))),
    ("read_xlsx", Reads::Tables(Some(FileKind::Xlsx))),
    ("read_json", Reads::Tables(Some(FileKind::Json))),
    ("read_json_auto", Reads::Tables(Some(FileKind::Json))),
    ("read_ndjson", Reads::Tables(Some(FileKind::Json))),
    ("read_ndjson_auto", Reads::Tables(Some(FileKind::Json))),
    ("read_json_objects", Reads::Tables(Some(FileKind::Json))),
    ("read_ndjson_objects", Reads::Tables(Some(FileKind::Json))),
    ("read_text", Reads::Whole(Content::Text)),
    ("read_blob", Reads::Whole(Content::Bytes)),
    ("glob", Reads::Names),
    ("sniff_csv", Reads::Sniffed),
];

/// The names of the functions.
pub(crate) fn names() -> impl Iterator<Item = String> {
    FUNCTIONS.iter().map(|(name, _)| (*name).to_owned())
}

/// A call, and the name of the table that stands for it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    name: String,
    function: String,
    reads: Reads,
    files: Vec<String>,
    options: Vec<(String, OptionValue)>,
}

/// Tables that stand for calls and names of files, by the names of both, and rows that a statement has given names.
#[derive(Debug, Default)]
pub(crate) struct BoundFiles {
    tables: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
    files: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl BoundFiles {
    /// The table of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Adds a table.
    pub(crate) fn insert(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), table);
    }

    /// The table in files of this name, which is that of the files or of a call.
    pub(crate) fn file(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Adds a table in files.
    pub(crate) fn insert_file(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), table);
    }
}

/// Replaces the calls in a statement by names of tables, and returns them.
///
/// # Errors
/// [`ErrorKind::Semantic`] for arguments that are no constants.
pub(crate) fn take_calls(statement: &mut DfStatement) -> Result<Vec<Call>> {
    let mut taker = Taker { calls: Vec::new(), error: None };
    if let Some(inner) = inner_statement(statement) {
        let ControlFlow::Continue(()) = inner.visit(&mut taker);
    }
    match taker.error {
        Some(error) => Err(error),
        None => Ok(taker.calls),
    }
}

struct Taker {
    calls: Vec<Call>,
    error: Option<SqlError>,
}

impl VisitorMut for Taker {
    type Break = Infallible;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Infallible> {
        match replace(factor) {
            Ok(call) => self.calls.extend(call),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Puts a name in place of a call.
fn replace(factor: &mut TableFactor) -> Result<Option<Call>> {
    let TableFactor::Table { name, alias, args, .. } = factor else { return Ok(None) };
    let [part] = name.0.as_slice() else { return Ok(None) };
    let Some(ident) = part.as_ident() else { return Ok(None) };
    let Some(arguments) = args.as_ref() else { return Ok(None) };
    let span = ident.span;
    let is_file = ident.quote_style == Some('\'');
    let (function, reads) = match is_file {
        true => (ident.value.clone(), Reads::Tables(None)),
        false => match FUNCTIONS.iter().find(|(name, _)| ident.value.eq_ignore_ascii_case(name)) {
            Some((name, reads)) => ((*name).to_owned(), *reads),
            None => return Ok(None),
        },
    };
    let listed: Vec<String> = arguments.args.iter().map(ToString::to_string).collect();
    let key = format!("{function}({})", listed.join(", "));
    let mut call = Call {
        name: key.clone(),
        function: function.clone(),
        reads,
        files: Vec::new(),
        options: Vec::new(),
    };
    if is_file {
        call.files.push(function.clone());
    }
    for argument in &arguments.args {
        add_argument(&mut call, argument)?;
    }
    if call.files.is_empty() {
        let message = format!("{function} needs the name of a file");
        return Err(SqlError::new(ErrorKind::Semantic, message).with_hint(format!(
            "write {function}('file'), or a list of names: {function}(['a', 'b'])"
        )));
    }
    *args = None;
    *name = ObjectName::from(vec![Ident::with_quote_and_span('"', span, key)]);
    if alias.is_none() {
        *alias = Some(TableAlias {
            explicit: true,
            name: Ident::with_quote_and_span('"', span, function),
            columns: Vec::new(),
            at: None,
        });
    }
    Ok(Some(call))
}

fn add_argument(call: &mut Call, argument: &FunctionArg) -> Result<()> {
    let function = &call.function;
    let named = |name: &str, value: &Expr| -> Result<(String, OptionValue)> {
        Ok((name.to_owned(), value_of(name, value)?))
    };
    match argument {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
            call.options.push(named(&name.value, value)?);
        }
        FunctionArg::ExprNamed {
            name: Expr::Identifier(name),
            arg: FunctionArgExpr::Expr(value),
            operator:
                FunctionArgOperator::Equals
                | FunctionArgOperator::RightArrow
                | FunctionArgOperator::Assignment,
        } => call.options.push(named(&name.value, value)?),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: datafusion::sql::sqlparser::ast::BinaryOperator::Eq,
            right,
        })) => {
            let Expr::Identifier(name) = left.as_ref() else {
                return Err(no_option(function, &argument.to_string()));
            };
            call.options.push(named(&name.value, right)?);
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if call.files.is_empty() => {
            let names = match value_of("file", value)? {
                OptionValue::Text(name) => vec![OptionValue::Text(name)],
                OptionValue::List(names) => names,
                _ => return Err(no_option(function, &argument.to_string())),
            };
            for name in names {
                let OptionValue::Text(name) = name else {
                    return Err(no_option(function, &argument.to_string()));
                };
                call.files.push(name);
            }
        }
        other => return Err(no_option(function, &other.to_string())),
    }
    Ok(())
}

fn no_option(function: &str, argument: &str) -> SqlError {
    let message = format!("{argument} is neither the name of a file nor an option of {function}");
    SqlError::new(ErrorKind::Semantic, message)
        .with_hint("options have names: read_csv('file', delim = ';', header = true)")
}

/// The value of a constant.
fn value_of(name: &str, expr: &Expr) -> Result<OptionValue> {
    Ok(match expr {
        Expr::Nested(inner) => value_of(name, inner)?,
        Expr::Identifier(word) => OptionValue::Text(word.value.clone()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::DoubleQuotedString(text) => OptionValue::Text(text.clone()),
            Value::DollarQuotedString(text) => OptionValue::Text(text.value.clone()),
            Value::Number(number, _) => OptionValue::Number(number.to_string()),
            Value::Boolean(flag) => OptionValue::Flag(*flag),
            Value::Null => OptionValue::Null,
            _ => return Err(no_constant(name, expr)),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => match value_of(name, inner)? {
            OptionValue::Number(number) => OptionValue::Number(format!("-{number}")),
            _ => return Err(no_constant(name, expr)),
        },
        Expr::Array(array) => {
            let values = array.elem.iter().map(|element| value_of(name, element));
            OptionValue::List(values.collect::<Result<_>>()?)
        }
        // As lists are written out by then.
        Expr::Function(call) if call.name.to_string() == "make_array" => OptionValue::List(
            arguments(call).map(|element| value_of(name, element)).collect::<Result<_>>()?,
        ),
        Expr::Dictionary(fields) => {
            let fields = fields
                .iter()
                .map(|field| Ok((field.key.value.clone(), value_of(name, &field.value)?)));
            OptionValue::Fields(fields.collect::<Result<_>>()?)
        }
        _ => return Err(no_constant(name, expr)),
    })
}

/// The arguments of a call.
fn arguments(call: &Function) -> impl Iterator<Item = &Expr> {
    let listed = match &call.args {
        FunctionArguments::List(list) => list.args.as_slice(),
        _ => &[],
    };
    listed.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

fn no_constant(name: &str, expr: &Expr) -> SqlError {
    let message = format!("{name} must be a constant, not {expr}");
    SqlError::new(ErrorKind::Semantic, message)
}

impl Call {
    /// The name of the table.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How the files are to be read.
    ///
    /// # Errors
    /// For unknown options, and values that they cannot have.
    pub(crate) fn read_options(&self) -> Result<ReadOptions> {
        let kind = match self.reads {
            Reads::Tables(kind) => kind,
            Reads::Sniffed => Some(FileKind::Csv),
            Reads::Whole(_) | Reads::Names => None,
        };
        // A name with options may tell that it is a workbook's.
        let told = crate::files::kind_of(std::path::Path::new(&self.function));
        let told = told.map(|(kind, _)| kind).filter(|_| self.reads == Reads::Tables(None));
        let kind = kind.or(told.filter(|kind| *kind == FileKind::Xlsx));
        let mut options = ReadOptions { kind, ..ReadOptions::default() };
        if kind == Some(FileKind::Json) {
            options.json.layout = self.function.contains("ndjson").then_some(Layout::Lines);
            options.json.as_values = self.function.ends_with("objects");
        }
        for (name, value) in &self.options {
            let is_format =
                name.eq_ignore_ascii_case("format") && self.reads == Reads::Tables(None);
            if let (true, OptionValue::Text(format)) = (is_format, value) {
                options.kind = Some(FileKind::named(format)?);
                continue;
            }
            let is_taken = !matches!(self.reads, Reads::Whole(_) | Reads::Names)
                && (told.is_none_or(|kind| kind == FileKind::Xlsx)
                    || !file_options::is_of_workbooks(name));
            if !is_taken || !file_options::set(&mut options, name, value)? {
                return Err(file_options::unknown(name, &self.function, kind.or(told)));
            }
        }
        if options.kind.is_none()
            && matches!(self.reads, Reads::Tables(None))
            && options.has_csv_options()
        {
            options.kind = told.is_none().then_some(FileKind::Csv);
        }
        Ok(options)
    }

    /// The files.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) async fn find(
        &self,
        options: &ReadOptions,
        remote: &RemoteFiles,
    ) -> Result<FileSet> {
        match self.reads {
            Reads::Whole(_) | Reads::Names => FileSet::find_any(&self.files, remote).await,
            Reads::Tables(_) | Reads::Sniffed => {
                FileSet::find_all(&self.files, options, remote).await
            }
        }
    }

    /// True if the rows are those of tables in files.
    pub(crate) fn reads_tables(&self) -> bool {
        matches!(self.reads, Reads::Tables(_))
    }

    /// The rows of a function that does not read tables.
    ///
    /// # Errors
    /// If files cannot be read.
    pub(crate) fn rows(
        &self,
        files: &FileSet,
        options: &ReadOptions,
        context: &ScanContext,
    ) -> Result<Arc<dyn TableProvider>> {
        match self.reads {
            Reads::Whole(content) => {
                // The bytes as they lie there.
                let plain = |input: Input| Input { compression: Compression::None, ..input };
                let inputs = files.inputs(options).into_iter().map(plain);
                let named = files.names.iter().cloned().zip(inputs).collect();
                let reader = Arc::new(WholeFiles::new(named, content));
                Ok(files.provider(reader, &self.name, context))
            }
            Reads::Names => {
                let names = files.names.iter().map(|name| Some(name.as_str()));
                let names: ArrayRef = Arc::new(names.collect::<StringViewArray>());
                in_memory(RecordBatch::try_from_iter_with_nullable([("file", names, true)])?)
            }
            Reads::Tables(_) | Reads::Sniffed => {
                let (table, found) = files.csv_table(options, &self.name, context)?;
                in_memory(described(table.as_ref(), &found)?)
            }
        }
    }
}

fn in_memory(batch: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

/// What was found in CSV files, as a row.
fn described(table: &dyn TableProvider, found: &Description) -> Result<RecordBatch> {
    let text = |value: Option<String>| -> ArrayRef { Arc::new(StringViewArray::from(vec![value])) };
    let letter = |letter: Option<char>| {
        text(Some(letter.map_or_else(String::new, |letter| letter.to_string())))
    };
    let schema = table.schema();
    let columns = schema.fields().iter().map(|field| {
        format!("'{}': '{}'", field.name().replace('\'', "''"), type_name(field.data_type()))
    });
    let columns = format!("{{{}}}", columns.collect::<Vec<_>>().join(", "));
    let skipped = i64::try_from(found.skipped_lines).unwrap_or(i64::MAX);
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("delimiter", letter(Some(found.delimiter)), true),
        ("quote", letter(found.quote), true),
        ("escape", letter(found.escape), true),
        ("newline", text(Some(found.newline.to_owned())), true),
        ("comment", letter(found.comment), true),
        ("skiprows", Arc::new(Int64Array::from(vec![skipped])), true),
        ("has_header", Arc::new(BooleanArray::from(vec![found.has_header])), true),
        ("columns", text(Some(columns)), true),
        ("dateformat", text(found.date_format.clone()), true),
        ("timestampformat", text(found.timestamp_format.clone()), true),
    ])?)
}

/// Writes the options behind the name of a file, `'f.csv' (delim ';', header)`, as those of a call.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut places = Vec::new();
    {
        let words = significant(tokens);
        // COPY table FROM 'file' (…) has options of its own.
        if words.len() > 1 && is(words[0], "COPY") && words[1].token != Token::LParen {
            return;
        }
        for window in words.windows(4) {
            let is_relation = ["FROM", "JOIN"].iter().any(|word| is(window[0], word));
            let is_file = matches!(window[1].token, Token::SingleQuotedString(_));
            let is_option = matches!(window[3].token, Token::Word(_));
            if is_relation && is_file && window[2].token == Token::LParen && is_option {
                places.push(window[2].span.start);
            }
        }
    }
    for place in places {
        if let Some(open) = tokens
            .iter()
            .position(|token| token.span.start == place && token.token == Token::LParen)
        {
            rewrite_options(tokens, open + 1);
        }
    }
}

/// Puts `=>` between the names and values of options, up to the closing parenthesis.
fn rewrite_options(tokens: &mut Vec<TokenWithSpan>, from: usize) {
    let (mut at, mut depth, mut is_name) = (from, 0, true);
    while at < tokens.len() {
        match &tokens[at].token {
            Token::Whitespace(_) => {}
            Token::RParen | Token::RBracket | Token::RBrace if depth > 0 => depth -= 1,
            Token::RParen => return,
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::Comma if depth == 0 => is_name = true,
            Token::Word(_) if is_name && depth == 0 => {
                is_name = false;
                at += 1;
                let rest = tokens[at..]
                    .iter()
                    .position(|token| !matches!(token.token, Token::Whitespace(_)));
                let Some(next) = rest.map(|rest| at + rest) else { return };
                let span = tokens[next].span;
                match tokens[next].token {
                    Token::Eq | Token::RArrow | Token::Assignment => {
                        tokens[next].token = Token::RArrow
                    }
                    Token::Comma | Token::RParen => {
                        let flag = Token::make_word("true", None);
                        tokens.insert(next, TokenWithSpan { token: flag, span });
                        tokens.insert(next, TokenWithSpan { token: Token::RArrow, span });
                        at = next + 1;
                    }
                    _ => tokens.insert(next, TokenWithSpan { token: Token::RArrow, span }),
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenize;

    fn rewritten(sql: &str) -> String {
        let mut tokens = tokenize(sql).unwrap();
        rewrite(&mut tokens);
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn options_behind_names_become_arguments() {
        assert_eq!(
            rewritten("SELECT * FROM 'f.csv' (delim ';', header, skip=2, types {'a': 'INT'}) AS t"),
            "SELECT * FROM 'f.csv' (delim =>';', header=>true, skip=>2, types =>{'a': 'INT'}) AS t"
        );
        let untouched = "SELECT x FROM t WHERE x IN ('a') AND f('b') > (c)";
        assert_eq!(rewritten(untouched), untouched);
        let copy = "COPY t FROM 'f.csv' (HEADER true)";
        assert_eq!(rewritten(copy), copy);
    }
}
