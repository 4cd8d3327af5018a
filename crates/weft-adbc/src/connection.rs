//! Connections: sessions, with transactions as ADBC has them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adbc_core::error::{Error, Result, Status};
use adbc_core::options::{InfoCode, ObjectDepth, OptionConnection, OptionValue};
use adbc_core::{CancelHandle, Connection, Optionable, constants};
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatchReader;
use weft::{CATALOG, DEFAULT_SCHEMA, Session, TransactionStatus, block_on};

use crate::database::OpenDatabase;
use crate::error::{OrAdbc, bad_option, not_implemented, of_status};
use crate::info;
use crate::objects::{self, ObjectFilter};
use crate::options::{SETTING_PREFIX, number_of, switch_of, switch_text, text_of, unknown};
use crate::statement::WeftStatement;
use crate::statistics;

/// Levels of isolation by what ADBC and SQL call them.
const LEVELS: [(&str, &str); 6] = [
    (constants::ADBC_OPTION_ISOLATION_LEVEL_DEFAULT, "READ COMMITTED"),
    (constants::ADBC_OPTION_ISOLATION_LEVEL_READ_UNCOMMITTED, "READ UNCOMMITTED"),
    (constants::ADBC_OPTION_ISOLATION_LEVEL_READ_COMMITTED, "READ COMMITTED"),
    (constants::ADBC_OPTION_ISOLATION_LEVEL_REPEATABLE_READ, "REPEATABLE READ"),
    (constants::ADBC_OPTION_ISOLATION_LEVEL_SNAPSHOT, "REPEATABLE READ"),
    (constants::ADBC_OPTION_ISOLATION_LEVEL_SERIALIZABLE, "SERIALIZABLE"),
];

/// What a connection shares with its statements.
pub(crate) struct Shared {
    session: Session,
    commits_each: AtomicBool,
    // After the session, which is of this database.
    _open: Arc<OpenDatabase>,
}

impl Shared {
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Begins a transaction for a statement, if each is to be within one and there is none.
    pub(crate) fn ensure_begun(&self) -> Result<()> {
        let is_idle = self.session.transaction_status() == TransactionStatus::Idle;
        if is_idle && !self.commits_each.load(Ordering::Relaxed) {
            self.run("BEGIN")?;
        }
        Ok(())
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.session.execute(sql).or_adbc().map(drop)
    }

    fn commit(&self) -> Result<()> {
        match self.session.transaction_status() {
            TransactionStatus::Idle => Ok(()),
            TransactionStatus::InTransaction => self.run("COMMIT"),
            TransactionStatus::Failed => {
                self.session.roll_back();
                let message =
                    "a statement of the transaction has failed: it was rolled back instead";
                Err(of_status(Status::InvalidState, "25P02", message))
            }
        }
    }

    fn check_has_transactions(&self) -> Result<()> {
        if !self.commits_each.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message = "statements commit by themselves: set the option adbc.connection.autocommit to false first";
        Err(of_status(Status::InvalidState, "25P01", message))
    }
}

/// A connection.
pub struct WeftConnection {
    shared: Arc<Shared>,
    is_read_only: bool,
    level: &'static str,
}

impl WeftConnection {
    pub(crate) fn new(open: Arc<OpenDatabase>) -> Result<WeftConnection> {
        let session = open.database().session().or_adbc()?;
        let shared = Arc::new(Shared { session, commits_each: AtomicBool::new(true), _open: open });
        Ok(WeftConnection { shared, is_read_only: false, level: LEVELS[0].0 })
    }

    fn session(&self) -> &Session {
        &self.shared.session
    }

    /// Sets what transactions that begin from now on are like.
    fn set_modes(&self, modes: &str) -> Result<()> {
        self.shared.run(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION {modes}"))
    }
}

impl Drop for WeftConnection {
    fn drop(&mut self) {
        self.session().roll_back();
    }
}

/// Cancels the statement of a session that was started last.
struct CancelLast(Session);

impl CancelHandle for CancelLast {
    fn try_cancel(&self) -> Result<()> {
        self.0.cancel();
        Ok(())
    }
}

type Reader = Box<dyn RecordBatchReader + Send + 'static>;

impl Connection for WeftConnection {
    type StatementType = WeftStatement;

    fn new_statement(&mut self) -> Result<WeftStatement> {
        Ok(WeftStatement::new(Arc::clone(&self.shared)))
    }

    fn get_cancel_handle(&self) -> Box<dyn CancelHandle> {
        Box::new(CancelLast(self.session().clone()))
    }

    fn get_info(&self, codes: Option<HashSet<InfoCode>>) -> Result<Reader> {
        info::info(codes.as_ref())
    }

    fn get_objects(
        &self,
        depth: ObjectDepth,
        catalog: Option<&str>,
        db_schema: Option<&str>,
        table_name: Option<&str>,
        table_type: Option<Vec<&str>>,
        column_name: Option<&str>,
    ) -> Result<Reader> {
        let filter = ObjectFilter { catalog, db_schema, table_name, table_type, column_name };
        objects::objects(self.session(), depth, &filter)
    }

    fn get_table_schema(
        &self,
        catalog: Option<&str>,
        db_schema: Option<&str>,
        table_name: &str,
    ) -> Result<Schema> {
        check_catalog(catalog)?;
        let db_schema = db_schema.filter(|name| !name.is_empty());
        let found = block_on(self.session().table_columns(db_schema, table_name));
        match found {
            Ok(schema) => Ok(schema.as_ref().clone()),
            Err(error) if error.kind() == weft::ErrorKind::Semantic => {
                Err(of_status(Status::NotFound, "42P01", error.message()))
            }
            other => other.or_adbc().map(|schema| schema.as_ref().clone()),
        }
    }

    fn get_table_types(&self) -> Result<Reader> {
        info::table_types()
    }

    fn get_statistic_names(&self) -> Result<Reader> {
        statistics::names()
    }

    fn get_statistics(
        &self,
        catalog: Option<&str>,
        db_schema: Option<&str>,
        table_name: Option<&str>,
        approximate: bool,
    ) -> Result<Reader> {
        statistics::statistics(self.session(), catalog, db_schema, table_name, approximate)
    }

    fn commit(&mut self) -> Result<()> {
        self.shared.check_has_transactions()?;
        self.shared.commit()
    }

    fn rollback(&mut self) -> Result<()> {
        self.shared.check_has_transactions()?;
        self.session().roll_back();
        Ok(())
    }

    fn read_partition(&self, _: impl AsRef<[u8]>) -> Result<Reader> {
        not_implemented("a result in partitions")
    }
}

/// Refuses catalogs that there are not.
pub(crate) fn check_catalog(catalog: Option<&str>) -> Result<()> {
    match catalog {
        None | Some("" | CATALOG) => Ok(()),
        Some(other) => {
            let message = format!("there is no catalog {other}: the only one is {CATALOG}");
            Err(of_status(Status::NotFound, "3D000", message))
        }
    }
}

impl Optionable for WeftConnection {
    type Option = OptionConnection;

    fn set_option(&mut self, key: OptionConnection, value: OptionValue) -> Result<()> {
        let name = key.as_ref().to_owned();
        match key {
            OptionConnection::AutoCommit => {
                let commits_each = switch_of(&name, &value)?;
                if commits_each && !self.shared.commits_each.load(Ordering::Relaxed) {
                    self.shared.commit()?;
                }
                self.shared.commits_each.store(commits_each, Ordering::Relaxed);
                Ok(())
            }
            OptionConnection::ReadOnly => {
                let is_read_only = switch_of(&name, &value)?;
                self.set_modes(if is_read_only { "READ ONLY" } else { "READ WRITE" })?;
                self.is_read_only = is_read_only;
                Ok(())
            }
            OptionConnection::IsolationLevel => {
                let wanted = text_of(&name, &value)?;
                let Some((level, sql)) = LEVELS.iter().find(|(level, _)| *level == wanted) else {
                    return bad_option(&name, "a level up to serializable");
                };
                self.set_modes(&format!("ISOLATION LEVEL {sql}"))?;
                self.level = level;
                Ok(())
            }
            OptionConnection::CurrentCatalog => check_catalog(Some(&text_of(&name, &value)?)),
            OptionConnection::CurrentSchema => match text_of(&name, &value)?.as_str() {
                DEFAULT_SCHEMA => Ok(()),
                _ => not_implemented("another current schema than main"),
            },
            _ => match name.strip_prefix(SETTING_PREFIX) {
                Some(setting) => {
                    let value = text_of(&name, &value)?.replace('\'', "''");
                    self.shared.run(&format!("SET {setting} = '{value}'"))
                }
                None => unknown("a connection", &name),
            },
        }
    }

    fn get_option_string(&self, key: OptionConnection) -> Result<String> {
        match key {
            OptionConnection::AutoCommit => {
                Ok(switch_text(self.shared.commits_each.load(Ordering::Relaxed)))
            }
            OptionConnection::ReadOnly => Ok(switch_text(self.is_read_only)),
            OptionConnection::IsolationLevel => Ok(self.level.to_owned()),
            OptionConnection::CurrentCatalog => Ok(CATALOG.to_owned()),
            OptionConnection::CurrentSchema => Ok(DEFAULT_SCHEMA.to_owned()),
            other => {
                let name = other.as_ref();
                let Some(setting) = name.strip_prefix(SETTING_PREFIX) else {
                    return unknown("a connection", name);
                };
                let found = self.session().settings().into_iter().find(|one| one.name == setting);
                found.map_or_else(|| unknown("a connection", name), |found| Ok(found.value))
            }
        }
    }

    fn get_option_bytes(&self, key: OptionConnection) -> Result<Vec<u8>> {
        bad_option(key.as_ref(), "an option that is bytes")
    }

    fn get_option_int(&self, key: OptionConnection) -> Result<i64> {
        let text = self.get_option_string(key.clone())?;
        number_of(key.as_ref(), &text)
    }

    fn get_option_double(&self, key: OptionConnection) -> Result<f64> {
        let text = self.get_option_string(key.clone())?;
        number_of(key.as_ref(), &text)
    }
}

/// The error of a driver as an error of Arrow, which readers return.
pub(crate) fn in_arrow(error: Error) -> arrow::error::ArrowError {
    arrow::error::ArrowError::ExternalError(Box::new(error))
}
