//! Loading TPC-H into a database, table by table, each all or nothing: a load that was stopped goes on
//! with the next table that is missing or empty.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use weft::arrow::array::{Array, Int64Array};
use weft::{Database, Session};

use super::tpch_rows::TpchTable;
use super::{WorkloadError, run_with_progress, tpch_parquet, tpch_queries};
use crate::data::progress_bar;

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Tables loaded now; the others were there.
    pub tables: Vec<TpchTable>,
    /// Time that the database took, without making the files.
    pub time: Duration,
    /// Rows loaded now.
    pub rows: u64,
}

/// Loads the tables that a database lacks from Parquet files in `directory`, which are made if they
/// are not there. `threads` make them.
///
/// # Errors
/// [`WorkloadError`], also if the database has the tables at another scale.
pub fn load(
    database: &Database,
    directory: &Path,
    scale: f64,
    threads: usize,
) -> Result<Loaded, WorkloadError> {
    let missing = missing(database, scale)?;
    let session = database.session().map_err(WorkloadError::statement("opening a session"))?;
    if missing.is_empty() {
        return Ok(Loaded::default());
    }
    generate(directory, scale, threads)?;
    let bar = progress_bar("rows");
    bar.set_length(missing.iter().map(|table| table.rows(scale)).sum());
    let mut loaded = Loaded::default();
    for table in missing {
        bar.set_message(format!("loading {}", table.name()));
        let start = Instant::now();
        copy(&session, table, directory, &bar, loaded.rows)?;
        loaded.time += start.elapsed();
        let rows = count(&session, table)?;
        check_scale(database, table, scale, rows)?;
        loaded.rows += rows;
        bar.set_position(loaded.rows);
        loaded.tables.push(table);
    }
    bar.finish_and_clear();
    Ok(loaded)
}

/// The tables without rows. Those that are not there are made.
///
/// # Errors
/// [`WorkloadError`], also if the database has tables at another scale.
pub fn missing(database: &Database, scale: f64) -> Result<Vec<TpchTable>, WorkloadError> {
    let session = database.session().map_err(WorkloadError::statement("opening a session"))?;
    create_missing(&session)?;
    let mut missing = Vec::new();
    for table in TpchTable::ALL {
        match count(&session, table)? {
            0 => missing.push(table),
            found => check_scale(database, table, scale, found)?,
        }
    }
    Ok(missing)
}

/// Makes the Parquet files that are missing, with a progress bar.
///
/// # Errors
/// [`WorkloadError`] if one cannot be written.
pub fn generate(directory: &Path, scale: f64, threads: usize) -> Result<(), WorkloadError> {
    let bar = progress_bar("rows");
    let result = tpch_parquet::generate(directory, scale, threads, &mut |progress| {
        bar.set_message(format!("generating {} at scale {scale}", progress.table.name()));
        bar.set_length(progress.rows_expected.max(progress.rows_done));
        bar.set_position(progress.rows_done);
    });
    bar.finish_and_clear();
    result
}

/// The directory of the Parquet files of a scale factor.
pub fn parquet_directory(data: &Path, scale: f64) -> PathBuf {
    data.join(format!("tpch-sf{scale}"))
}

fn create_missing(session: &Session) -> Result<(), WorkloadError> {
    let existing = session.tables();
    let statements = session
        .statements(tpch_queries::SCHEMA)
        .map_err(WorkloadError::statement("reading the schema of TPC-H"))?;
    for statement in statements {
        let creates = |name: &&String| {
            statement.text.contains(&format!("TABLE {name} (")) && !name.is_empty()
        };
        if existing.iter().any(|name| creates(&name)) {
            continue;
        }
        session
            .execute(&statement.text)
            .map_err(WorkloadError::statement("creating the tables of TPC-H"))?;
    }
    Ok(())
}

fn copy(
    session: &Session,
    table: TpchTable,
    directory: &Path,
    bar: &ProgressBar,
    rows_before: u64,
) -> Result<(), WorkloadError> {
    let name = table.name();
    let path = tpch_parquet::path_of(directory, table).display().to_string().replace('\'', "''");
    let command = format!("COPY {name} FROM '{path}' (FORMAT parquet)");
    let failed = || WorkloadError::statement(format!("loading {name}"));
    let result = session.query(&command).map_err(failed())?;
    run_with_progress(result, &mut |progress| bar.set_position(rows_before + progress.rows))
        .map_err(failed())
}

/// The rows of a table.
///
/// # Errors
/// [`WorkloadError::Statement`].
pub fn count(session: &Session, table: TpchTable) -> Result<u64, WorkloadError> {
    let what = format!("counting the rows of {}", table.name());
    let batches = session
        .query(&format!("SELECT count(*) FROM {}", table.name()))
        .and_then(weft::QueryResult::collect)
        .map_err(WorkloadError::statement(what))?;
    let column = batches.first().map(|batch| batch.column(0).clone());
    let counts = column.as_ref().and_then(|column| column.as_any().downcast_ref::<Int64Array>());
    Ok(counts.map_or(0, |counts| if counts.is_empty() { 0 } else { counts.value(0) as u64 }))
}

fn check_scale(
    database: &Database,
    table: TpchTable,
    scale: f64,
    found: u64,
) -> Result<(), WorkloadError> {
    let expected = table.rows(scale);
    let is_right = match table {
        // Between one and seven per order.
        TpchTable::Lineitem => found.abs_diff(expected) < expected / 10 + 100,
        _ => found == expected,
    };
    if is_right {
        return Ok(());
    }
    let path = database.path().map(Path::to_owned).unwrap_or_default();
    Err(WorkloadError::Scale { path, table: table.name(), scale, found, expected })
}
