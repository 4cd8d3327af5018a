//! ATTACH and DETACH: other databases whose tables and views queries of all sessions read, as `name.table` or `name.schema.table`.
//!
//! An attached database is opened for reading, so no process changes it meanwhile: all statements see the same state of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::common::runtime::SpawnedTask;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use futures::FutureExt;
use weft_store::{Snapshot, Store};

use crate::catalog::{CATALOG, StatementCatalog};
use crate::engine::{Engine, EngineOptions};
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::grammar::{expect_eof, expected, parser, syntax, take_string, take_word};
use crate::identifiers::quoted;
use crate::open::open_store;
use crate::run::{Run, Started, text_rows};
use crate::schemas;
use crate::statement::{Parsed, fold};

/// A statement about other databases.
#[derive(Clone, Debug)]
pub(crate) enum AttachStatement {
    /// ATTACH
    Attach { path: String, name: String, if_not_exists: bool },
    /// DETACH
    Detach { name: String, if_exists: bool },
}

/// An attached database.
struct Database {
    path: PathBuf,
    store: Arc<Store>,
}

/// The attached databases by their names.
type Databases = BTreeMap<String, Arc<Database>>;

/// The databases that are attached to an open one.
#[derive(Default)]
pub(crate) struct Attached(RwLock<Arc<Databases>>);

/// The databases that a statement sees.
#[derive(Clone, Default)]
pub(crate) struct AttachedDatabases(Arc<Databases>);

impl Attached {
    /// Those of this moment.
    pub(crate) fn databases(&self) -> AttachedDatabases {
        AttachedDatabases(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Databases) -> R) -> R {
        let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut list))
    }
}

impl AttachedDatabases {
    /// The state of the database with this name.
    pub(crate) fn snapshot(&self, name: &str) -> Option<Arc<Snapshot>> {
        self.0.get(name).map(|database| database.store.snapshot())
    }

    /// The names of all.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Why a table or view of this name, with what is before its first dot, cannot be changed, if it is one of an attached database.
    pub(crate) fn refusal(&self, name: &str) -> Option<SqlError> {
        let (database, _) = name.split_once('.')?;
        self.0.contains_key(database).then(|| {
            let message =
                format!("{name} is in the attached database {database}, which can only be read");
            SqlError::new(ErrorKind::NotSupported, message)
                .about(name)
                .with_hint("open that database itself to change it")
        })
    }
}

impl fmt::Debug for AttachedDatabases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Parses `ATTACH [DATABASE] [IF NOT EXISTS] 'directory' [AS name] [(READ_ONLY)]` and `DETACH [DATABASE] [IF EXISTS] name`; `None` for
/// another statement.
///
/// # Errors
/// [`ErrorKind::Syntax`]; [`ErrorKind::NotSupported`] for databases that are to be written, and those of other systems.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Parsed>> {
    let mut parser = parser(tokens.to_vec());
    let is_attach = take_word(&mut parser, "ATTACH");
    if !is_attach && !take_word(&mut parser, "DETACH") {
        return Ok(None);
    }
    take_word(&mut parser, "DATABASE");
    let has_condition = take_word(&mut parser, "IF");
    let negated = has_condition && is_attach;
    if (negated && !take_word(&mut parser, "NOT"))
        || (has_condition && !take_word(&mut parser, "EXISTS"))
    {
        let wanted = if is_attach { "IF NOT EXISTS" } else { "IF EXISTS" };
        return expected(wanted, &parser.peek_token());
    }
    let statement = match is_attach {
        false => AttachStatement::Detach { name: name(&mut parser)?, if_exists: has_condition },
        true => {
            let path = take_string(&mut parser, "the directory of a database in single quotes")?;
            let name = match take_word(&mut parser, "AS") {
                true => name(&mut parser)?,
                false => name_of(&path)?,
            };
            options(&mut parser)?;
            AttachStatement::Attach { path, name, if_not_exists: has_condition }
        }
    };
    expect_eof(&mut parser)?;
    Ok(Some(Parsed::Attach(statement)))
}

fn name(parser: &mut Parser<'_>) -> Result<String> {
    let name = parser.parse_identifier().map_err(syntax)?;
    Ok(fold(name.value, name.quote_style))
}

/// The name of a database that is given none: that of its directory, without what follows a dot.
fn name_of(path: &str) -> Result<String> {
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str());
    stem.map(|stem| fold(stem.to_owned(), None)).ok_or_else(|| {
        let message = format!("'{path}' is no name of a directory");
        SqlError::new(ErrorKind::Semantic, message).with_hint("write ATTACH '…' AS name")
    })
}

/// The options in parentheses, of which there is one that has an effect elsewhere: READ_ONLY.
fn options(parser: &mut Parser<'_>) -> Result<()> {
    if parser.peek_token().token != Token::LParen {
        return Ok(());
    }
    parser.next_token();
    loop {
        if take_word(parser, "READ_ONLY") {
            if take_word(parser, "FALSE") {
                return Err(SqlError::not_supported("ATTACH of a database that is to be written")
                    .with_hint(
                        "attached databases are read; open that database itself to change it",
                    ));
            }
            take_word(parser, "TRUE");
        } else if take_word(parser, "TYPE") {
            if !take_word(parser, CATALOG) {
                let found = parser.peek_token();
                return Err(SqlError::not_supported(format!(
                    "ATTACH of a database of the type {found}"
                ))
                .with_hint(
                    "databases of Weft can be attached; others export files that Weft reads",
                ));
            }
        } else {
            return expected("READ_ONLY or TYPE", &parser.peek_token());
        }
        let next = parser.next_token();
        match next.token {
            Token::Comma => {}
            Token::RParen => return Ok(()),
            _ => return expected("',' or ')'", &next),
        }
    }
}

impl Run {
    /// Starts ATTACH or DETACH.
    pub(crate) fn start_attach_statement(&self, statement: AttachStatement) -> Started {
        let engine = Arc::clone(self.session.engine());
        let tag = match &statement {
            AttachStatement::Attach { .. } => "ATTACH",
            AttachStatement::Detach { .. } => "DETACH",
        };
        let work = async move {
            match statement {
                AttachStatement::Attach { path, name, if_not_exists } => {
                    let attaching = SpawnedTask::spawn_blocking(move || {
                        attach(&engine, path, name, if_not_exists)
                    });
                    attaching.await.map_err(|error| internal(&error.to_string()))??;
                }
                AttachStatement::Detach { name, if_exists } => {
                    let detached = engine.attached.change(|list| list.remove(&name));
                    if detached.is_none() && !if_exists {
                        let message = format!("there is no attached database {name}");
                        return Err(SqlError::new(ErrorKind::Semantic, message)
                            .with_hint("SHOW DATABASES lists them"));
                    }
                    // The last statement that reads it closes it.
                    let closing = SpawnedTask::spawn_blocking(move || drop(detached));
                    closing.await.map_err(|error| internal(&error.to_string()))?;
                }
            }
            Ok(None)
        };
        Started::Command { tag, work: work.boxed() }
    }

    /// SHOW DATABASES: their directories are shown to superusers.
    ///
    /// # Errors
    /// None that are known.
    pub(crate) fn show_databases(&self, catalog: &StatementCatalog) -> Result<Started> {
        let engine = self.session.engine();
        let own = [(CATALOG.to_owned(), engine.path().map(Path::to_path_buf))];
        let attached = engine.attached.databases();
        let others = attached.0.iter().map(|(name, of)| (name.clone(), Some(of.path.clone())));
        let rows: Vec<_> = own.into_iter().chain(others).collect();
        let names = rows.iter().map(|(name, _)| Some(name.clone())).collect();
        let shows_paths = catalog.access().is_unrestricted();
        let shown = |path: &Option<PathBuf>| {
            path.as_ref().filter(|_| shows_paths).map(|path| path.display().to_string())
        };
        let paths = rows.iter().map(|(_, path)| shown(path));
        text_rows(&["name", "path"], vec![names, paths.collect()])
    }
}

/// Opens a database and gives it a name.
fn attach(engine: &Engine, path: String, name: String, if_not_exists: bool) -> Result<()> {
    let exists = |what: &str| {
        let message = format!("there is {what} {name} already");
        let hint = format!("give the database another name: ATTACH '…' AS {}", quoted("other"));
        SqlError::new(ErrorKind::AlreadyExists, message).with_hint(hint)
    };
    if engine.attached.databases().0.contains_key(&name) {
        return if if_not_exists { Ok(()) } else { Err(exists("an attached database")) };
    }
    if name == CATALOG || name.is_empty() {
        return Err(exists("the open database"));
    }
    if schemas::is_schema(&engine.store().snapshot(), &name) {
        return Err(exists("a schema"));
    }
    let options =
        EngineOptions { path: Some(path.into()), read_only: true, ..EngineOptions::default() };
    let settings = engine.settings().clone();
    let (runtime, ledger) = (Arc::clone(&engine.runtime), engine.ledger.clone());
    let store = open_store(&options, &settings, runtime, ledger)?;
    let path = options.path.unwrap_or_default();
    let path = std::path::absolute(&path).unwrap_or(path);
    engine.attached.change(|list| match list.contains_key(&name) {
        true => Err(exists("an attached database")),
        false => {
            list.insert(name.clone(), Arc::new(Database { path, store }));
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenize;

    fn parsed(sql: &str) -> Result<Option<AttachStatement>> {
        Ok(parse(&tokenize(sql)?)?.map(|parsed| match parsed {
            Parsed::Attach(statement) => statement,
            other => panic!("{other:?}"),
        }))
    }

    #[test]
    fn databases_are_attached_by_the_names_of_their_directories() {
        let attached = |sql: &str| match parsed(sql).unwrap() {
            Some(AttachStatement::Attach { path, name, if_not_exists }) => {
                (path, name, if_not_exists)
            }
            other => panic!("{other:?}"),
        };
        let full = "ATTACH DATABASE IF NOT EXISTS '/d/a' AS \"B\" (READ_ONLY, TYPE weft)";
        assert_eq!(attached(full), ("/d/a".to_owned(), "B".to_owned(), true));
        assert_eq!(
            attached("attach 'x/Sales.db'"),
            ("x/Sales.db".to_owned(), "sales".to_owned(), false)
        );
        assert!(matches!(
            parsed("DETACH DATABASE IF EXISTS b").unwrap(),
            Some(AttachStatement::Detach { if_exists: true, .. })
        ));
        assert!(parsed("SELECT 1").unwrap().is_none());
    }

    #[test]
    fn other_forms_are_refused() {
        for sql in [
            "ATTACH",
            "ATTACH x",
            "ATTACH IF EXISTS 'x'",
            "ATTACH 'x' AS",
            "ATTACH 'x' (READ_ONLY FALSE)",
            "ATTACH 'x' (TYPE sqlite)",
            "ATTACH 'x' (READ_ONLY",
            "ATTACH '/'",
            "DETACH",
            "DETACH a b",
        ] {
            assert!(parsed(sql).is_err(), "{sql}");
        }
    }
}
