//! Benchmarks that consist of tables and of queries over them, and what tells one from the other.

use std::path::{Path, PathBuf};

use super::query::Query;
use super::{WorkloadError, tpcds_csv, tpcds_queries, tpch_parquet, tpch_queries};

/// Makes the files of a scale factor that are not there yet in a directory, with so many threads, and says how far it is.
pub(super) type Make =
    fn(&Path, f64, usize, &mut dyn FnMut(Generated)) -> Result<(), WorkloadError>;

/// A benchmark.
#[derive(Debug)]
pub struct Suite {
    /// As commands, files and points name it: `tpch`.
    pub name: &'static str,
    /// As people do: `TPC-H`.
    pub title: &'static str,
    /// The queries, in order.
    pub queries: &'static [Query],
    /// The statements that create the tables.
    pub(super) schema: &'static str,
    /// The tables at a scale factor.
    pub(super) tables: fn(f64) -> Vec<TableSize>,
    /// Makes the files that tables are loaded from.
    pub(super) make: Make,
    /// The file of a table in their directory.
    pub(super) path_of: fn(&Path, &str) -> PathBuf,
    /// How COPY reads them.
    pub(super) copy_options: &'static str,
}

/// TPC-H, of Parquet files.
pub static TPCH: Suite = Suite {
    name: "tpch",
    title: "TPC-H",
    queries: &tpch_queries::QUERIES,
    schema: tpch_queries::SCHEMA,
    tables: tpch_parquet::tables,
    make: tpch_parquet::generate,
    path_of: tpch_parquet::path_of,
    copy_options: "FORMAT parquet",
};

/// TPC-DS, of CSV files.
pub static TPCDS: Suite = Suite {
    name: "tpcds",
    title: "TPC-DS",
    queries: &tpcds_queries::QUERIES,
    schema: tpcds_queries::SCHEMA,
    tables: tpcds_csv::tables,
    make: tpcds_csv::generate,
    path_of: tpcds_csv::path_of,
    copy_options: "FORMAT csv, HEADER true",
};

/// A table at a scale factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Its name.
    pub name: &'static str,
    /// Its rows.
    pub rows: u64,
    /// True if it has exactly so many; otherwise as many on average.
    pub is_exact: bool,
}

impl TableSize {
    /// True if so many rows can be the table's.
    pub fn fits(&self, found: u64) -> bool {
        match self.is_exact {
            true => found == self.rows,
            false => found.abs_diff(self.rows) < self.rows / 10 + 100,
        }
    }
}

/// How far the making of files is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generated {
    /// A table being written.
    pub table: &'static str,
    /// Rows written of all tables.
    pub rows_done: u64,
    /// Rows of all tables, about.
    pub rows_expected: u64,
}

impl Suite {
    /// The directory of the files of a scale factor, in one for data.
    pub fn directory(&self, data: &Path, scale: f64) -> PathBuf {
        data.join(format!("{}-sf{scale}", self.name))
    }

    /// The database of a scale factor there.
    pub fn database(&self, data: &Path, scale: f64) -> PathBuf {
        data.join(format!("{}-sf{scale}.weft", self.name))
    }

    /// Bytes of the files at a scale factor, of those that are there.
    pub fn file_bytes(&self, directory: &Path, scale: f64) -> u64 {
        let paths =
            (self.tables)(scale).into_iter().map(|table| (self.path_of)(directory, table.name));
        paths.filter_map(|path| Some(path.metadata().ok()?.len())).sum()
    }
}
