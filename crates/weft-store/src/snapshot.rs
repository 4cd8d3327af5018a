//! Snapshots: a database as one commit left it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use weft_rt::Runtime;
use weft_rt::memory::Ledger;

use crate::device::DatabaseId;
use crate::index::version::IndexVersion;
use crate::manifest::{Manifest, TableEntry};
use crate::page_io::PageSource;
use crate::segment::Segment;
use crate::space::{Pin, Space};
use crate::table::{Table, TableVersion};

/// What tables need to be read.
pub(crate) struct Access {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) source: PageSource,
    pub(crate) ledger: Ledger,
    pub(crate) space: Arc<Space>,
}

impl fmt::Debug for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Access")
    }
}

/// The names and tables of a database at one moment: immutable, and readable as long as somebody has it,
/// whatever is dropped or replaced meanwhile.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) generation: u64,
    pub(crate) database: DatabaseId,
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) views: BTreeMap<String, String>,
    pub(crate) next_table_id: u64,
    pub(crate) tables: BTreeMap<String, Arc<TableVersion>>,
    pub(crate) access: Arc<Access>,
    pub(crate) pin: Pin,
}

impl Snapshot {
    /// Counts the commits.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The names of the tables, in order.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<Arc<Table>> {
        let version = self.tables.get(name)?.clone();
        Some(Arc::new(Table { version, access: self.access.clone(), _pin: self.pin.clone() }))
    }

    /// The name of the table that has an index of this name.
    pub fn table_of_index(&self, index: &str) -> Option<&str> {
        let has =
            |version: &TableVersion| version.indexes.iter().any(|of| of.definition().name == index);
        self.tables.iter().find(|(_, version)| has(version)).map(|(name, _)| name.as_str())
    }

    /// The name of the table of this identity.
    pub fn table_name(&self, id: u64) -> Option<&str> {
        let found = self.tables.iter().find(|(_, version)| version.id == id);
        found.map(|(name, _)| name.as_str())
    }

    /// The names of the views and their SQL texts, in order.
    pub fn views(&self) -> impl Iterator<Item = (&str, &str)> {
        self.views.iter().map(|(name, sql)| (name.as_str(), sql.as_str()))
    }

    /// The SQL text of the view of this name.
    pub fn view(&self, name: &str) -> Option<&str> {
        self.views.get(name).map(String::as_str)
    }

    /// The options that were set for good, by name.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of an option that was set for good.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The snapshot that a manifest describes.
    pub(crate) fn from_manifest(manifest: Manifest, access: Arc<Access>, pin: Pin) -> Snapshot {
        let table = |entry: TableEntry| {
            let segments = entry.segments.into_iter().map(|entry| Arc::new(Segment::new(entry)));
            let segments = segments.collect();
            let statistics = entry.statistics;
            let indexes = entry.indexes.into_iter().map(IndexVersion::stored).collect();
            TableVersion::new(entry.id, entry.schema, entry.next_row_id, segments, statistics)
                .with_keys(indexes, entry.constraints)
        };
        let tables = manifest.tables.into_iter();
        Snapshot {
            generation: manifest.generation,
            database: manifest.database,
            devices: manifest.devices,
            options: manifest.options,
            views: manifest.views,
            next_table_id: manifest.next_table_id,
            tables: tables.map(|(name, entry)| (name, Arc::new(table(entry)))).collect(),
            access,
            pin,
        }
    }
}
