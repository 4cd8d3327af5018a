//! The driver and its databases. A process has each directory open once, however many databases of ADBC name it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use adbc_core::error::{Result, Status};
use adbc_core::options::{OptionConnection, OptionDatabase, OptionValue};
use adbc_core::{Database, Driver, Optionable};
use weft::DatabaseOptions;

use crate::connection::WeftConnection;
use crate::error::{OrAdbc, bad_option, not_implemented, of_status};
use crate::options::{
    PATH, READ_ONLY, SETTING_PREFIX, directory_of, number_of, switch_of, switch_text, text_of,
    unknown,
};

/// The driver.
#[derive(Debug, Default)]
pub struct WeftDriver(());

impl Driver for WeftDriver {
    type DatabaseType = WeftDatabase;

    fn new_database(&mut self) -> Result<WeftDatabase> {
        self.new_database_with_opts([])
    }

    fn new_database_with_opts(
        &mut self,
        opts: impl IntoIterator<Item = (OptionDatabase, OptionValue)>,
    ) -> Result<WeftDatabase> {
        let mut given = Given::default();
        for (key, value) in opts {
            given.take(&key, &value)?;
        }
        Ok(WeftDatabase { open: opened(given)? })
    }
}

/// What a database is opened with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    directory: Option<PathBuf>,
    is_read_only: bool,
    settings: Vec<(String, String)>,
}

impl Given {
    fn take(&mut self, key: &OptionDatabase, value: &OptionValue) -> Result<()> {
        match key {
            OptionDatabase::Uri => {
                self.directory = directory_of(&text_of("uri", value)?)?.map(PathBuf::from);
            }
            OptionDatabase::Username | OptionDatabase::Password => {
                return not_implemented("a user of a database in a directory");
            }
            other => match other.as_ref() {
                PATH => self.directory = directory_of(&text_of(PATH, value)?)?.map(PathBuf::from),
                READ_ONLY => self.is_read_only = switch_of(READ_ONLY, value)?,
                // Others are settings, which are checked when the database is opened.
                name => {
                    let setting = name.strip_prefix(SETTING_PREFIX).unwrap_or(name);
                    self.settings.push((setting.to_owned(), text_of(name, value)?));
                }
            },
        }
        Ok(())
    }
}

/// A database that is open in this process.
pub(crate) struct OpenDatabase {
    database: weft::Database,
    given: Given,
}

impl OpenDatabase {
    pub(crate) fn database(&self) -> &weft::Database {
        &self.database
    }
}

/// The databases that are open, by their directories.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<OpenDatabase>>>> = LazyLock::new(Mutex::default);

/// Opens a database, or finds it among the databases that are open.
fn opened(mut given: Given) -> Result<Arc<OpenDatabase>> {
    given.settings.sort_unstable();
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|_, database| database.strong_count() > 0);
    let key = given.directory.as_deref().map(real_path);
    if let Some(found) = key.as_ref().and_then(|key| open.get(key)).and_then(Weak::upgrade) {
        let is_same = found.given.is_read_only == given.is_read_only
            && (given.settings.is_empty() || given.settings == found.given.settings);
        if !is_same {
            let message = "the database is open in this process with other options: close it first, or give the \
                           options that it was opened with";
            return Err(of_status(Status::InvalidState, "55006", message));
        }
        return Ok(found);
    }
    let options = DatabaseOptions {
        read_only: given.is_read_only,
        create: !given.is_read_only,
        settings: given.settings.clone(),
        ..DatabaseOptions::default()
    };
    options.check_settings().or_adbc()?;
    let database = match &given.directory {
        Some(directory) => weft::Database::open(directory, &options),
        None => weft::Database::in_memory(&options),
    };
    let database = Arc::new(OpenDatabase { database: database.or_adbc()?, given });
    if let Some(directory) = &database.given.directory {
        // It is there now, whatever it was before.
        open.insert(real_path(directory), Arc::downgrade(&database));
    }
    Ok(database)
}

fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// An open database.
pub struct WeftDatabase {
    open: Arc<OpenDatabase>,
}

impl Database for WeftDatabase {
    type ConnectionType = WeftConnection;

    fn new_connection(&self) -> Result<WeftConnection> {
        self.new_connection_with_opts([])
    }

    fn new_connection_with_opts(
        &self,
        opts: impl IntoIterator<Item = (OptionConnection, OptionValue)>,
    ) -> Result<WeftConnection> {
        let mut connection = WeftConnection::new(Arc::clone(&self.open))?;
        for (key, value) in opts {
            connection.set_option(key, value)?;
        }
        Ok(connection)
    }
}

impl Optionable for WeftDatabase {
    type Option = OptionDatabase;

    fn set_option(&mut self, key: OptionDatabase, _: OptionValue) -> Result<()> {
        let name = key.as_ref();
        let message =
            format!("the option {name} cannot be set once the database is open: use SET in SQL");
        Err(of_status(Status::InvalidState, "55P02", message))
    }

    fn get_option_string(&self, key: OptionDatabase) -> Result<String> {
        let given = &self.open.given;
        let directory =
            || given.directory.as_ref().map_or_else(String::new, |path| path.display().to_string());
        match key.as_ref() {
            "uri" | PATH => Ok(directory()),
            READ_ONLY => Ok(switch_text(given.is_read_only)),
            name => {
                let setting = name.strip_prefix(SETTING_PREFIX).unwrap_or(name);
                let settings = self.open.database.settings();
                match settings.into_iter().find(|known| known.name == setting) {
                    Some(found) => Ok(found.value),
                    None => unknown("the database", name),
                }
            }
        }
    }

    fn get_option_bytes(&self, key: OptionDatabase) -> Result<Vec<u8>> {
        bad_option(key.as_ref(), "an option that is bytes")
    }

    fn get_option_int(&self, key: OptionDatabase) -> Result<i64> {
        let text = self.get_option_string(key.clone())?;
        number_of(key.as_ref(), &text)
    }

    fn get_option_double(&self, key: OptionDatabase) -> Result<f64> {
        let text = self.get_option_string(key.clone())?;
        number_of(key.as_ref(), &text)
    }
}
