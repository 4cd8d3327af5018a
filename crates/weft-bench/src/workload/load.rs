//! Loading a benchmark into a database, table by table, each all or nothing: a load that was stopped goes on
//! with the next table that is missing or empty.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weft::arrow::array::{Array, Int64Array};
use weft::{Database, Session};

use super::suite::{Suite, TableSize};
use super::{WorkloadError, run_with_progress};
use crate::data::progress_bar;

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Tables loaded now; the others were there.
    pub tables: Vec<&'static str>,
    /// Time that the database took, without making the files.
    pub time: Duration,
    /// Rows loaded now.
    pub rows: u64,
}

impl Suite {
    /// Loads the tables that a database lacks from files in `directory`, which are made if they
    /// are not there. `threads` make them.
    ///
    /// # Errors
    /// [`WorkloadError`], also if the database has the tables at another scale.
    pub fn load(
        &self,
        database: &Database,
        directory: &Path,
        scale: f64,
        threads: usize,
    ) -> Result<Loaded, WorkloadError> {
        let missing = self.missing(database, scale)?;
        let session = database.session().map_err(WorkloadError::statement("opening a session"))?;
        if missing.is_empty() {
            return Ok(Loaded::default());
        }
        self.generate(directory, scale, threads)?;
        let bar = progress_bar("rows");
        bar.set_length(missing.iter().map(|table| table.rows).sum());
        let mut loaded = Loaded::default();
        for table in missing {
            bar.set_message(format!("loading {}", table.name));
            let start = Instant::now();
            self.copy(&session, table.name, directory, &bar, loaded.rows)?;
            loaded.time += start.elapsed();
            let rows = count(&session, table.name)?;
            check_scale(database, &table, scale, rows)?;
            loaded.rows += rows;
            bar.set_position(loaded.rows);
            loaded.tables.push(table.name);
        }
        bar.finish_and_clear();
        Ok(loaded)
    }

    /// The tables without rows. Those that are not there are made.
    ///
    /// # Errors
    /// [`WorkloadError`], also if the database has tables at another scale.
    pub fn missing(
        &self,
        database: &Database,
        scale: f64,
    ) -> Result<Vec<TableSize>, WorkloadError> {
        let session = database.session().map_err(WorkloadError::statement("opening a session"))?;
        self.create_missing(&session)?;
        let mut missing = Vec::new();
        for table in (self.tables)(scale) {
            match count(&session, table.name)? {
                0 => missing.push(table),
                found => check_scale(database, &table, scale, found)?,
            }
        }
        Ok(missing)
    }

    /// Makes the files that are missing, with a progress bar.
    ///
    /// # Errors
    /// [`WorkloadError`] if one cannot be written.
    pub fn generate(
        &self,
        directory: &Path,
        scale: f64,
        threads: usize,
    ) -> Result<(), WorkloadError> {
        let bar = progress_bar("rows");
        let result = (self.make)(directory, scale, threads, &mut |progress| {
            bar.set_message(format!("generating {} at scale {scale}", progress.table));
            bar.set_length(progress.rows_expected.max(progress.rows_done));
            bar.set_position(progress.rows_done);
        });
        bar.finish_and_clear();
        result
    }

    fn create_missing(&self, session: &Session) -> Result<(), WorkloadError> {
        let existing = session.tables();
        let statements = session
            .statements(self.schema)
            .map_err(WorkloadError::statement(format!("reading the schema of {}", self.title)))?;
        for statement in statements {
            let creates = |name: &&String| {
                statement.text.contains(&format!("TABLE {name} (")) && !name.is_empty()
            };
            if existing.iter().any(|name| creates(&name)) {
                continue;
            }
            let what = format!("creating the tables of {}", self.title);
            session.execute(&statement.text).map_err(WorkloadError::statement(what))?;
        }
        Ok(())
    }

    fn copy(
        &self,
        session: &Session,
        table: &str,
        directory: &Path,
        bar: &ProgressBar,
        rows_before: u64,
    ) -> Result<(), WorkloadError> {
        let path = (self.path_of)(directory, table).display().to_string().replace('\'', "''");
        let command = format!("COPY {table} FROM '{path}' ({})", self.copy_options);
        let failed = || WorkloadError::statement(format!("loading {table}"));
        let result = session.query(&command).map_err(failed())?;
        run_with_progress(result, &mut |progress| bar.set_position(rows_before + progress.rows))
            .map_err(failed())
    }
}

/// The rows of a table.
///
/// # Errors
/// [`WorkloadError::Statement`].
pub fn count(session: &Session, table: &str) -> Result<u64, WorkloadError> {
    let what = format!("counting the rows of {table}");
    let batches = session
        .query(&format!("SELECT count(*) FROM {table}"))
        .and_then(weft::QueryResult::collect)
        .map_err(WorkloadError::statement(what))?;
    let column = batches.first().map(|batch| batch.column(0).clone());
    let counts = column.as_ref().and_then(|column| column.as_any().downcast_ref::<Int64Array>());
    Ok(counts.map_or(0, |counts| if counts.is_empty() { 0 } else { counts.value(0) as u64 }))
}

fn check_scale(
    database: &Database,
    table: &TableSize,
    scale: f64,
    found: u64,
) -> Result<(), WorkloadError> {
    if table.fits(found) {
        return Ok(());
    }
    let path = database.path().map(Path::to_owned).unwrap_or_default();
    Err(WorkloadError::Scale { path, table: table.name, scale, found, expected: table.rows })
}
