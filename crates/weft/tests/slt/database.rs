//! A session as the test runner sees it, and the databases that tests run in.

use std::time::{SystemTime, UNIX_EPOCH};

use sqllogictest::{ColumnType, DB, DBOutput};
use weft::arrow::array::RecordBatch;
use weft::arrow::datatypes::DataType;
use weft::arrow::error::ArrowError;
use weft::arrow::util::display::{ArrayFormatter, FormatOptions};
use weft::{Database, DatabaseOptions, ResultKind, Session};
use weft_rt::io::sim::{SimDisk, SimOptions};

/// The memory limit of the tests with little of it.
const TINY_MEMORY: &str = "48MB";

/// The least memory limit.
const LEAST_MEMORY: &str = "16MiB";

/// Parts of the names of topics with so many rows that they take long with few of them in a vector.
const LARGE_TOPICS: [&str; 7] =
    ["copy/", "ddl/", "large", "many_groups", "session/", "spill", "using"];

/// What a file of tests runs in.
#[derive(Clone, Copy, Debug)]
pub enum Setup {
    /// More memory than any test needs.
    Ample,
    /// So little that operators spill and the cache evicts.
    Tiny,
    /// The least that a database works with.
    Least,
    /// Ample memory, in which joins and groupings partition whatever they keep.
    Partitioned,
    /// Little memory, of which operators that spill one partition spill all of them, compressed.
    Spilled,
    /// A simulated disk whose every request suspends and whose completions come back in any order.
    Sim,
    /// Vectors of one row, one thread.
    OneRow,
    /// Vectors of seven rows, eight threads.
    SevenRows,
    /// Pipelines that are compiled before they begin.
    Compiled,
}

/// What executes the queries of a file of tests.
#[derive(Clone, Copy, Debug)]
pub enum Engine {
    /// DataFusion's operators.
    DataFusion,
    /// Weft's pipelines.
    Weft,
    /// Whichever the database chooses.
    Auto,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 3] = [Engine::DataFusion, Engine::Weft, Engine::Auto];

    /// Its name in the setting, in the names of tests, and its label in `skipif` and `onlyif`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::DataFusion => "datafusion",
            Engine::Weft => "weft",
            Engine::Auto => "auto",
        }
    }
}

impl Setup {
    /// All of them.
    pub const ALL: [Setup; 9] = [
        Setup::Ample,
        Setup::Tiny,
        Setup::Least,
        Setup::Partitioned,
        Setup::Spilled,
        Setup::Sim,
        Setup::OneRow,
        Setup::SevenRows,
        Setup::Compiled,
    ];

    /// Whether it runs the tests of this topic. Those of many rows take too long with few of them in a vector.
    pub fn takes(self, topic: &str) -> bool {
        match self {
            Setup::OneRow | Setup::SevenRows => {
                !LARGE_TOPICS.iter().any(|large| topic.contains(large))
            }
            _ => true,
        }
    }

    /// What executes queries in it. With the least memory that is Weft's pipelines alone: what differs between the others
    /// shows with a little more. Only they partition, compress, and have vectors.
    pub fn engines(self) -> &'static [Engine] {
        match self {
            Setup::Least
            | Setup::Partitioned
            | Setup::Spilled
            | Setup::OneRow
            | Setup::SevenRows
            | Setup::Compiled => &[Engine::Weft],
            Setup::Ample | Setup::Tiny | Setup::Sim => &Engine::ALL,
        }
    }

    /// Its name in the names of tests, and its label in `skipif` and `onlyif`.
    pub fn name(self) -> &'static str {
        match self {
            Setup::Ample => "ample",
            Setup::Tiny => "tiny",
            Setup::Least => "least",
            Setup::Partitioned => "partitioned",
            Setup::Spilled => "spilled",
            Setup::Sim => "sim",
            Setup::OneRow => "one_row",
            Setup::SevenRows => "seven_rows",
            Setup::Compiled => "compiled",
        }
    }

    /// A new database whose queries this engine executes, and the seed of what is random in it: that of `WEFT_SEED`, or
    /// a fresh one.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(self, engine: Engine) -> weft::Result<(Database, u64)> {
        let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let given = std::env::var("WEFT_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or(fresh as u64);
        let threads = match self {
            Setup::OneRow => 1,
            Setup::SevenRows => 8,
            _ => 2,
        };
        let options = DatabaseOptions::default().with("threads", threads).with("timezone", "UTC");
        let options = options.with("engine", engine.name());
        let database = match self {
            Setup::Ample => Database::in_memory(&options.with("memory_limit", "1GB"))?,
            Setup::Tiny => Database::in_memory(&options.with("memory_limit", TINY_MEMORY))?,
            Setup::Least => Database::in_memory(&options.with("memory_limit", LEAST_MEMORY))?,
            Setup::Partitioned => {
                let options = options.with("memory_limit", "1GB").with("partition", "always");
                Database::in_memory(&options)?
            }
            Setup::OneRow | Setup::SevenRows => {
                let rows = if matches!(self, Setup::OneRow) { 1 } else { 7 };
                let options = options.with("memory_limit", "1GB").with("batch_size", rows);
                Database::in_memory(&options)?
            }
            Setup::Compiled => {
                let options = options.with("memory_limit", "1GB").with("compile", "always");
                Database::in_memory(&options)?
            }
            Setup::Spilled => {
                let options = options.with("memory_limit", LEAST_MEMORY);
                let options = options.with("spill_mode", "all");
                Database::in_memory(&options.with("spill_compression", "lz4"))?
            }
            Setup::Sim => {
                let disk = SimDisk::new(SimOptions::testing(seed));
                let options = DatabaseOptions { sim: Some(disk), ..options };
                Database::open("slt.weft", &options.with("memory_limit", "1GB"))?
            }
        };
        Ok((database, seed))
    }
}

/// A session of a database.
pub struct TestDatabase {
    session: Session,
}

impl TestDatabase {
    /// A new session.
    ///
    /// # Errors
    /// Those of [`Database::session`].
    pub fn new(database: &Database) -> Result<TestDatabase, TestError> {
        Ok(TestDatabase { session: database.session()? })
    }
}

/// Why a statement has no result.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// What the database says.
    #[error(transparent)]
    Weft(#[from] weft::Error),
    /// A value without a text form.
    #[error(transparent)]
    Text(#[from] ArrowError),
}

impl DB for TestDatabase {
    type Error = TestError;
    type ColumnType = Kind;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Kind>, TestError> {
        let mut result = self.session.query(sql)?;
        if let ResultKind::Command { .. } = result.kind() {
            return Ok(DBOutput::StatementComplete(result.finish()?));
        }
        let schema = result.schema();
        let types = schema.fields().iter().map(|field| Kind::of(field.data_type())).collect();
        let batches = result.collect()?;
        let mut rows = Vec::new();
        for batch in &batches {
            append_rows(batch, &mut rows)?;
        }
        Ok(DBOutput::Rows { types, rows })
    }

    fn engine_name(&self) -> &str {
        "weft"
    }
}

fn append_rows(batch: &RecordBatch, rows: &mut Vec<Vec<String>>) -> Result<(), ArrowError> {
    let options = FormatOptions::default()
        .with_null("NULL")
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.fZ"));
    let columns: Result<Vec<_>, _> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options)).collect();
    let columns = columns?;
    for row in 0..batch.num_rows() {
        let cells: Result<Vec<String>, ArrowError> =
            columns.iter().map(|column| Ok(cell(column.value(row).try_to_string()?))).collect();
        rows.push(cells?);
    }
    Ok(())
}

fn cell(text: String) -> String {
    if text.is_empty() { "(empty)".to_owned() } else { text }
}

/// The kind of a column, a letter in the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// B: booleans.
    Boolean,
    /// D: dates, times, timestamps, intervals.
    Time,
    /// I: integers of any width.
    Integer,
    /// R: floating point numbers and decimals.
    Real,
    /// T: text.
    Text,
    /// ?: anything else, and whatever the test does not care for.
    Any,
}

impl Kind {
    fn of(data_type: &DataType) -> Kind {
        match data_type {
            DataType::Boolean => Kind::Boolean,
            data_type if data_type.is_integer() => Kind::Integer,
            data_type if data_type.is_numeric() => Kind::Real,
            data_type if data_type.is_temporal() => Kind::Time,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
            _ => Kind::Any,
        }
    }
}

impl ColumnType for Kind {
    fn from_char(letter: char) -> Option<Kind> {
        Some(match letter {
            'B' => Kind::Boolean,
            'D' => Kind::Time,
            'I' => Kind::Integer,
            'R' => Kind::Real,
            'T' => Kind::Text,
            '?' => Kind::Any,
            _ => return None,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Kind::Boolean => 'B',
            Kind::Time => 'D',
            Kind::Integer => 'I',
            Kind::Real => 'R',
            Kind::Text => 'T',
            Kind::Any => '?',
        }
    }
}

/// Whether the columns are as a test expects.
pub fn same_types(actual: &[Kind], expected: &[Kind]) -> bool {
    let is_same = |(actual, expected): (&Kind, &Kind)| {
        actual == expected || *actual == Kind::Any || *expected == Kind::Any
    };
    actual.len() == expected.len() && actual.iter().zip(expected).all(is_same)
}
