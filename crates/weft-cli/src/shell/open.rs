//! Opens databases, and says what is wrong with a path in the words of someone who typed it.

use std::io;
use std::path::{Path, PathBuf};

use weft::{Database, DatabaseOptions, Session};

use crate::args::ShellArgs;
use crate::editor::{Names, Source};
use crate::error::ShellError;

/// How databases are opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Without changing anything.
    pub read_only: bool,
    /// Where else a new database lies.
    pub devices: Vec<PathBuf>,
    /// Settings by name.
    pub settings: Vec<(String, String)>,
}

impl OpenOptions {
    /// As the command line says.
    pub fn of(args: &ShellArgs) -> OpenOptions {
        OpenOptions {
            read_only: args.read_only,
            devices: args.devices.clone(),
            settings: args.all_settings(),
        }
    }
}

/// An open database and the shell's session with it.
pub struct Open {
    /// The session; it keeps the database open.
    pub session: Session,
    /// The directory; none for a temporary database.
    pub directory: Option<PathBuf>,
    /// Whether it may not be changed.
    pub read_only: bool,
    /// Whether it was made just now.
    pub created: bool,
}

impl Open {
    /// Opens the database in `directory`, or makes it; without one, a temporary database.
    ///
    /// # Errors
    /// If there is something else at the path, or the database cannot be opened.
    pub fn new(directory: Option<&Path>, options: &OpenOptions) -> Result<Open, ShellError> {
        let database_options = DatabaseOptions {
            read_only: options.read_only,
            create: !options.read_only,
            devices: options.devices.clone(),
            settings: options.settings.clone(),
            ..DatabaseOptions::default()
        };
        let (database, created) = match directory {
            None if options.read_only => {
                let words = "a temporary database cannot be read-only; name a directory";
                return Err(ShellError::Command(words.to_owned()));
            }
            None => (Database::in_memory(&database_options)?, false),
            Some(path) => {
                refuse_file(path)?;
                let created = is_empty(path);
                if !created && !options.devices.is_empty() {
                    let words = format!(
                        "--device is for a new database, and {} is there already; to a database that \
                         is open, ALTER DATABASE ADD DEVICE 'path' adds one",
                        path.display()
                    );
                    return Err(ShellError::Command(words));
                }
                (Database::open(path, &database_options)?, created)
            }
        };
        weft_server::make_verifiers(&database);
        let session = database.session()?;
        let directory = directory.map(Path::to_owned);
        Ok(Open { session, directory, read_only: options.read_only, created })
    }

    /// The database in words.
    pub fn name(&self) -> String {
        match &self.directory {
            Some(path) => path.display().to_string(),
            None => "a temporary database".to_owned(),
        }
    }
}

/// Files are queried, not opened.
fn refuse_file(path: &Path) -> Result<(), ShellError> {
    if !path.is_file() {
        return Ok(());
    }
    let shown = path.display();
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let advice = match extension.to_ascii_lowercase().as_str() {
        "parquet" | "csv" | "tsv" | "json" | "ndjson" | "jsonl" | "arrow" => {
            let quoted = path.display().to_string().replace('\'', "''");
            format!("query it in any database: weft -c \"SELECT * FROM '{quoted}'\"")
        }
        "sql" => format!("run it as a script: weft -f {shown}"),
        _ => "a database is a directory; choose another path".to_owned(),
    };
    Err(ShellError::Command(format!("{shown} is a file, not a database; {advice}")))
}

/// Whether nothing is at the path yet, or an empty directory.
fn is_empty(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Tells the names that a session knows, for completion.
pub fn names_of(session: &Session) -> Source {
    let session = session.clone();
    Box::new(move || {
        let known = session.completions();
        Names {
            relations: known.tables,
            functions: known.functions,
            keywords: weft::keywords().iter().map(|word| (*word).to_owned()).collect(),
        }
    })
}
