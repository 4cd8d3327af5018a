//! A commit being put together: the names and tables as they will be, and what space that takes and frees.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::append::append;
use crate::change::Change;
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::manifest::Manifest;
use crate::schema::TableSchema;
use crate::snapshot::{Access, Snapshot};
use crate::space::{Allocation, Pin, Space};
use crate::table::TableVersion;

/// The next generation.
#[derive(Debug)]
pub(crate) struct Draft {
    base: Arc<Snapshot>,
    pub(crate) devices: Vec<PathBuf>,
    options: BTreeMap<String, String>,
    views: BTreeMap<String, String>,
    next_table_id: u64,
    tables: BTreeMap<String, Arc<TableVersion>>,
    /// What the new tables occupy and the old ones did not.
    pub(crate) taken: Vec<Allocation>,
    /// What the old tables occupy and the new ones do not.
    pub(crate) freed: Vec<Extent>,
}

impl Draft {
    pub(crate) fn new(base: Arc<Snapshot>) -> Draft {
        Draft {
            devices: base.devices.clone(),
            options: base.options.clone(),
            views: base.views.clone(),
            next_table_id: base.next_table_id,
            tables: base.tables.clone(),
            taken: Vec::new(),
            freed: Vec::new(),
            base,
        }
    }

    /// Applies a change, on a worker: what it adds to tables is written when it returns.
    pub(crate) async fn apply(
        &mut self,
        change: Change,
        space: &Arc<Space>,
        access: &Access,
    ) -> Result<()> {
        match change {
            Change::CreateTable { schema, or_replace } => self.create_table(schema, or_replace),
            Change::DropTable { name, expected } => {
                self.check_identity(&name, expected)?;
                self.drop_table(&name)
            }
            Change::RenameTable { from, to } => self.rename_table(&from, to),
            Change::CreateView { name, sql, or_replace } => {
                self.check_free(&name, or_replace, false)?;
                self.views.insert(name, sql);
                Ok(())
            }
            Change::DropView { name } => match self.views.remove(&name) {
                Some(_) => Ok(()),
                None => Err(StoreError::NoSuchView { name }),
            },
            Change::Append { table, expected, groups } => {
                let version = self.check_identity(&table, expected)?;
                let appended = append(&version, groups, space, access).await?;
                self.freed.extend(appended.freed);
                self.taken.extend(appended.taken);
                self.tables.insert(table, Arc::new(appended.version));
                Ok(())
            }
            Change::SetOption { name, value } => {
                match value {
                    Some(value) => self.options.insert(name, value),
                    None => self.options.remove(&name),
                };
                Ok(())
            }
        }
    }

    /// Checks that a name is free for a table or for a view.
    fn check_free(&self, name: &str, or_replace: bool, for_table: bool) -> Result<()> {
        let taken = |kind: &'static str| Err(StoreError::Exists { kind, name: name.to_owned() });
        if self.tables.contains_key(name) && !(for_table && or_replace) {
            return taken("table");
        }
        if self.views.contains_key(name) && (for_table || !or_replace) {
            return taken("view");
        }
        Ok(())
    }

    /// The table of a name, if it is the one expected.
    fn check_identity(&self, name: &str, expected: Option<u64>) -> Result<Arc<TableVersion>> {
        let conflict = |change| StoreError::Conflict { table: name.to_owned(), change };
        match (self.tables.get(name), expected) {
            (Some(version), None) => Ok(version.clone()),
            (Some(version), Some(id)) if version.id == id => Ok(version.clone()),
            (Some(_), Some(_)) => Err(conflict("replaced")),
            (None, Some(_)) => Err(conflict("dropped")),
            (None, None) => Err(StoreError::NoSuchTable { name: name.to_owned() }),
        }
    }

    fn create_table(&mut self, schema: TableSchema, or_replace: bool) -> Result<()> {
        schema.check()?;
        self.check_free(&schema.name, or_replace, true)?;
        let name = schema.name.clone();
        if self.tables.contains_key(&name) {
            self.drop_table(&name)?;
        }
        let id = self.next_table_id;
        let version = TableVersion::new(id, Arc::new(schema), 0, Vec::new(), None);
        self.next_table_id += 1;
        self.tables.insert(name, Arc::new(version));
        Ok(())
    }

    fn drop_table(&mut self, name: &str) -> Result<()> {
        let Some(version) = self.tables.remove(name) else {
            return Err(StoreError::NoSuchTable { name: name.to_owned() });
        };
        self.freed.extend(version.extents());
        Ok(())
    }

    fn rename_table(&mut self, from: &str, to: String) -> Result<()> {
        self.check_free(&to, false, true)?;
        let Some(version) = self.tables.remove(from) else {
            return Err(StoreError::NoSuchTable { name: from.to_owned() });
        };
        let schema = TableSchema { name: to.clone(), ..(*version.schema).clone() };
        let (segments, statistics) = (version.segments.clone(), version.stored_statistics);
        let renamed = TableVersion::new(
            version.id,
            Arc::new(schema),
            version.next_row_id,
            segments,
            statistics,
        );
        self.tables.insert(to, Arc::new(renamed));
        Ok(())
    }

    /// What is to be made durable.
    pub(crate) fn manifest(&self) -> Manifest {
        let tables = self.tables.iter();
        Manifest {
            generation: self.base.generation + 1,
            database: self.base.database,
            devices: self.devices.clone(),
            options: self.options.clone(),
            views: self.views.clone(),
            next_table_id: self.next_table_id,
            tables: tables.map(|(name, version)| (name.clone(), version.entry())).collect(),
        }
    }

    /// The new generation, which is durable now.
    pub(crate) fn into_snapshot(self, pin: Pin) -> Snapshot {
        Snapshot {
            generation: self.base.generation + 1,
            database: self.base.database,
            devices: self.devices,
            options: self.options,
            views: self.views,
            next_table_id: self.next_table_id,
            tables: self.tables,
            access: self.base.access.clone(),
            pin,
        }
    }
}
