//! A commit being put together: the names and tables as they will be, and what space that takes and frees.

mod definitions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::join_all;

use crate::alter::alter;
use crate::append::append;
use crate::change::Change;
use crate::delete::{Shortened, delete, truncate};
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::index::foreign;
use crate::index::maintain::{IndexWork, Maintenance};
use crate::index::version::{IndexHandle, IndexVersion};
use crate::journal::Since;
use crate::manifest::Manifest;
use crate::row_set::RowSet;
use crate::schema::TableSchema;
use crate::segment::Segment;
use crate::snapshot::{Access, Snapshot};
use crate::space::{Allocation, Pin, Space};
use crate::table::TableVersion;
use crate::tidy::{TidiedTable, replace};
use crate::transaction::OwnChanges;
use crate::writer::WrittenGroups;

/// The next generation.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) base: Arc<Snapshot>,
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) views: BTreeMap<String, String>,
    pub(crate) next_table_id: u64,
    pub(crate) tables: BTreeMap<String, Arc<TableVersion>>,
    /// What the new tables occupy and the old ones did not.
    pub(crate) taken: Vec<Arc<Allocation>>,
    /// What the old tables occupy and the new ones do not.
    pub(crate) freed: Vec<Extent>,
    /// What has become of indexes.
    pub(crate) index_work: Vec<(Arc<TableSchema>, IndexWork)>,
    /// Tables that have got rows, and the first of these.
    pub(crate) grown: Vec<(String, u64)>,
    /// Rows that were deleted, with what their table was before: others may refer to them.
    pub(crate) lost: Vec<(Arc<TableVersion>, RowSet)>,
    /// Tables that have lost rows, whose indexes are to be made anew.
    pub(crate) shrunk: BTreeSet<String>,
    /// Indexes that have changed since they were written.
    pub(crate) unwritten: Vec<Arc<IndexHandle>>,
    /// Indexes that were written for the manifest, which is not durable yet.
    written: Vec<IndexVersion>,
    /// A table or index has gone.
    pub(crate) has_dropped: bool,
    /// Many rows of a row group are deleted.
    pub(crate) has_worn: bool,
    /// What the transaction that it is a statement of has changed; none for a commit.
    pub(crate) own: Option<OwnChanges>,
}

/// What a draft was like before some work.
#[derive(Debug)]
pub(crate) struct Mark {
    base: Arc<Snapshot>,
    devices: Vec<PathBuf>,
    options: BTreeMap<String, String>,
    views: BTreeMap<String, String>,
    next_table_id: u64,
    tables: BTreeMap<String, Arc<TableVersion>>,
    taken: usize,
    freed: usize,
    index_work: usize,
    unwritten: Vec<Arc<IndexHandle>>,
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
            index_work: Vec::new(),
            grown: Vec::new(),
            lost: Vec::new(),
            shrunk: BTreeSet::new(),
            unwritten: Vec::new(),
            written: Vec::new(),
            has_dropped: false,
            has_worn: false,
            own: None,
            base,
        }
    }

    /// A draft of what a statement of a transaction leaves of what that sees.
    pub(crate) fn within(view: Arc<Snapshot>, own: OwnChanges) -> Draft {
        Draft { own: Some(own), ..Draft::new(view) }
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
            Change::AlterTable { .. } | Change::RenameConstraint { .. } if self.own.is_some() => {
                Err(StoreError::NotInTransaction { what: "ALTER TABLE" })
            }
            Change::AlterTable { table, expected, alteration } => {
                let version = self.check_identity(&table, expected)?;
                self.alter_references(&version, &alteration)?;
                let altered = alter(&version, alteration, space, access).await?;
                self.alter_table(table, altered);
                Ok(())
            }
            Change::RenameConstraint { table, from, to } => {
                self.rename_constraint(&table, &from, &to)
            }
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
                match self.own {
                    Some(_) => self.append_own(table, &version, groups, (space, access)).await,
                    None => self.append(table, &version, groups, (space, access)).await,
                }
            }
            Change::CreateIndex { table, expected, definition } => {
                let version = self.check_identity(&table, expected)?;
                self.check_index(&version, &definition)?;
                self.make_index(table, &version, definition, access).await
            }
            Change::DropIndex { name } => self.drop_index(&name).map(drop),
            Change::Reindex { name } => {
                let (table, definition) = self.drop_index(&name)?;
                let version = self.check_identity(&table, None)?;
                self.make_index(table, &version, (*definition).clone(), access).await
            }
            Change::AddCheck { table, check } => self.add_check(&table, check),
            Change::AddForeignKey { table, parent, key } => {
                self.add_foreign_key(table, &parent, key)
            }
            Change::DropConstraint { table, name } => self.drop_constraint(&table, &name),
            Change::Delete { table, expected, rows } => {
                let version = self.check_identity(&table, expected)?;
                match self.own {
                    Some(_) => self.delete_own(table, &version, &rows, access).await,
                    None => self.delete(table, &version, &rows, access).await,
                }
            }
            Change::Truncate { table, expected } => {
                let version = self.check_identity(&table, expected)?;
                match self.own {
                    Some(_) => self.truncate_own(table, &version),
                    None => self.shorten(table, truncate(&version)),
                }
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

    /// Adds rows to a table.
    pub(crate) async fn append(
        &mut self,
        table: String,
        version: &TableVersion,
        groups: WrittenGroups,
        (space, access): (&Arc<Space>, &Access),
    ) -> Result<()> {
        let first_row = version.next_row_id;
        let appended = append(version, groups, None, space, access).await?;
        self.freed.extend(appended.freed);
        self.taken.extend(appended.taken);
        self.follow(table, appended.version, first_row, access).await
    }

    /// Deletes rows of a table.
    pub(crate) async fn delete(
        &mut self,
        table: String,
        version: &TableVersion,
        rows: &RowSet,
        access: &Access,
    ) -> Result<()> {
        let left = delete(version, rows, access).await?;
        let work = Maintenance { version, access };
        let mut indexes = Vec::with_capacity(version.indexes.len());
        let mut is_shrunk = self.shrunk.contains(&table);
        for index in &version.indexes {
            let removed = match is_shrunk {
                true => None,
                false => work.remove(index, rows).await?,
            };
            match removed {
                Some((next, work)) => {
                    self.note_unwritten(&next.handle);
                    self.index_work.push((version.schema.clone(), work));
                    indexes.push(next);
                }
                None => {
                    is_shrunk = true;
                    indexes.push(index.clone());
                }
            }
        }
        let constraints = left.version.constraints.clone();
        let next = left.version.with_keys(indexes, constraints);
        self.note_lost(version, rows);
        self.note_shortened(table.clone(), Shortened { version: next, ..left });
        if is_shrunk {
            self.shrunk.insert(table);
        }
        Ok(())
    }

    /// What refers to deleted rows of a table is looked at, unless their keys are there again after all changes.
    pub(crate) fn note_lost(&mut self, version: &TableVersion, rows: &RowSet) {
        let is_child = |child: &Arc<TableVersion>| refers_to(child, version.id);
        if self.tables.values().any(is_child) {
            self.lost.push((Arc::new(version.copied()), rows.clone()));
        }
    }

    /// What refers to the rows of a table is looked at once more.
    pub(crate) fn check_children(&mut self, parent: u64) {
        for (name, version) in &self.tables {
            if refers_to(version, parent) {
                self.grown.push((name.clone(), 0));
            }
        }
    }

    /// A table has fewer rows; its indexes are to be made anew.
    pub(crate) fn shorten(&mut self, table: String, left: Shortened) {
        self.check_children(left.version.id);
        self.note_shortened(table.clone(), left);
        self.shrunk.insert(table);
    }

    /// Puts row groups that were written anew into their table.
    pub(crate) async fn tidy(&mut self, tidied: TidiedTable, access: &Access) -> Result<()> {
        let TidiedTable { table, expected, groups } = tidied;
        let version = self.check_identity(&table, Some(expected))?;
        let replaced = replace(&version, groups, access).await?;
        self.taken.extend(replaced.taken);
        self.freed.extend(replaced.freed);
        self.tables.insert(table, Arc::new(replaced.version));
        Ok(())
    }

    fn note_shortened(&mut self, table: String, left: Shortened) {
        self.has_worn |= left.has_worn;
        self.freed.extend(left.freed);
        self.tables.insert(table, Arc::new(left.version));
    }

    /// Makes the indexes of tables anew that have lost many rows, on a worker, after all changes.
    pub(crate) async fn remake_indexes(&mut self, access: &Access) -> Result<()> {
        if self.own.is_some() {
            return self.remake_own_indexes(access).await;
        }
        for table in std::mem::take(&mut self.shrunk) {
            let Some(version) = self.tables.get(&table).cloned() else { continue };
            let mut indexes = Vec::with_capacity(version.indexes.len());
            for index in &version.indexes {
                let work = Maintenance { version: &version, access };
                let work = work.make(index.definition().clone(), 0).await?;
                indexes.push(work.version().clone());
                self.index_work.push((version.schema.clone(), work));
                self.freed.extend(index.entry.extents.iter().copied());
            }
            if !indexes.is_empty() {
                let next = version.copied().with_keys(indexes, version.constraints.clone());
                self.tables.insert(table, Arc::new(next));
            }
        }
        Ok(())
    }

    fn note_unwritten(&mut self, handle: &Arc<IndexHandle>) {
        if !self.unwritten.iter().any(|of| Arc::ptr_eq(of, handle)) {
            self.unwritten.push(handle.clone());
        }
    }

    /// Writes indexes that have changed since they were written, on a worker, before a manifest that names them.
    pub(crate) async fn write_indexes(&mut self) -> Result<()> {
        for handle in std::mem::take(&mut self.unwritten) {
            let Some((name, version, at)) = self.index_of(&handle) else {
                // The index is gone; no page of it may be on its way to a place that another one gets.
                handle.settle_writes().await;
                continue;
            };
            let mut indexes = version.indexes.clone();
            indexes[at] = indexes[at].changed(&version.schema).await?;
            self.written.push(indexes[at].clone());
            let next = version.copied().with_keys(indexes, version.constraints.clone());
            self.tables.insert(name, Arc::new(next));
        }
        Ok(())
    }

    /// The name and version of the table that has an index, and the index's position there.
    fn index_of(&self, handle: &Arc<IndexHandle>) -> Option<(String, Arc<TableVersion>, usize)> {
        let is_it = |index: &IndexVersion| Arc::ptr_eq(&index.handle, handle);
        self.tables.iter().find_map(|(name, version)| {
            Some((name.clone(), version.clone(), version.indexes.iter().position(is_it)?))
        })
    }

    /// The table of a name, if it is the one expected.
    fn check_identity(&self, name: &str, expected: Option<u64>) -> Result<Arc<TableVersion>> {
        let conflict = |change| StoreError::Conflict { table: name.to_owned(), change };
        // What earlier changes of this commit did to it is known to the statement.
        let is_as_before = |version: &TableVersion, id: u64| {
            let base = self.base.tables.get(name);
            base.is_some_and(|base| base.id == version.id && base.identity() == id)
        };
        match (self.tables.get(name), expected) {
            (Some(version), None) => Ok(version.clone()),
            (Some(version), Some(id)) if version.identity() == id || is_as_before(version, id) => {
                Ok(version.clone())
            }
            (Some(_), Some(_)) => Err(conflict("replaced")),
            (None, Some(_)) => Err(conflict("dropped")),
            (None, None) => Err(StoreError::NoSuchTable { name: name.to_owned() }),
        }
    }

    /// Has indexes follow the rows that a table has got from `first_row` on.
    async fn follow(
        &mut self,
        table: String,
        version: TableVersion,
        first_row: u64,
        access: &Access,
    ) -> Result<()> {
        let mut indexes = Vec::with_capacity(version.indexes.len());
        let maintenance = Maintenance { version: &version, access };
        let is_shrunk = self.shrunk.contains(&table);
        for index in &version.indexes {
            if is_shrunk {
                indexes.push(index.clone());
                continue;
            }
            match maintenance.add(index, first_row).await? {
                None => indexes.push(index.clone()),
                Some((next, work, freed)) => {
                    if matches!(work, IndexWork::Added { .. }) {
                        self.note_unwritten(&next.handle);
                    }
                    indexes.push(next);
                    self.index_work.push((version.schema.clone(), work));
                    self.freed.extend(freed);
                }
            }
        }
        let constraints = version.constraints.clone();
        if !constraints.foreign_keys.is_empty() {
            self.grown.push((table.clone(), first_row));
        }
        self.tables.insert(table, Arc::new(version.with_keys(indexes, constraints)));
        Ok(())
    }

    /// Checks what is promised of several tables, after all changes.
    pub(crate) async fn check_references(&self, access: &Access) -> Result<()> {
        if self.has_dropped {
            for version in self.tables.values() {
                for key in &version.constraints.foreign_keys {
                    foreign::check_parent(version, key, &self.base, &self.tables)?;
                }
            }
        }
        for (before, rows) in &self.lost {
            for child in self.tables.values().filter(|child| refers_to(child, before.id)) {
                if !foreign::are_keys_kept((before, rows), child, &self.tables, access).await? {
                    foreign::check_rows(child, 0, &self.tables, access).await?;
                }
            }
        }
        for (table, first_row) in &self.grown {
            if let Some(version) = self.tables.get(table) {
                foreign::check_rows(version, *first_row, &self.tables, access).await?;
            }
        }
        Ok(())
    }

    /// Begins work on top of what the draft has: what is checked is checked against that.
    pub(crate) fn mark(&mut self, is_first: bool) -> Mark {
        if !is_first {
            self.base = Arc::new(self.snapshot(self.base.generation, self.base.pin.clone()));
            self.grown.clear();
            self.lost.clear();
            self.has_dropped = false;
        }
        Mark {
            base: self.base.clone(),
            devices: self.devices.clone(),
            options: self.options.clone(),
            views: self.views.clone(),
            next_table_id: self.next_table_id,
            tables: self.tables.clone(),
            taken: self.taken.len(),
            freed: self.freed.len(),
            index_work: self.index_work.len(),
            unwritten: self.unwritten.clone(),
        }
    }

    /// Takes back work that has failed.
    pub(crate) async fn return_to(&mut self, mark: Mark) {
        // What is taken back changes trees, too: earlier work needs them written as they are then.
        let changed = self.index_work[mark.index_work..].iter();
        let changed: Vec<_> = changed.map(|(_, work)| work.version().handle.clone()).collect();
        self.take_back_after(mark.index_work).await;
        self.taken.truncate(mark.taken);
        self.freed.truncate(mark.freed);
        self.grown.clear();
        self.lost.clear();
        self.shrunk.clear();
        self.unwritten = mark.unwritten.into_iter().chain(changed).collect();
        (self.base, self.devices, self.options) = (mark.base, mark.devices, mark.options);
        (self.views, self.next_table_id) = (mark.views, mark.next_table_id);
        (self.tables, self.has_dropped) = (mark.tables, false);
    }

    /// Takes back what was done to indexes, as the commit has failed.
    pub(crate) async fn take_back(&mut self) {
        self.take_back_after(0).await;
    }

    async fn take_back_after(&mut self, count: usize) {
        for (schema, work) in self.index_work.drain(count..).rev() {
            if let Err(error) = work.take_back(&schema).await {
                log::error!("table {}: {error}", schema.name);
            }
        }
    }

    /// True if pages of indexes were written, which are not durable yet.
    pub(crate) fn has_index_work(&self) -> bool {
        !self.index_work.is_empty() || !self.written.is_empty()
    }

    /// The space that indexes take is theirs: what is durable, or may be, names it.
    pub(crate) fn settle_indexes(&mut self) {
        self.index_work.drain(..).for_each(|(_, work)| work.settle());
        self.written.drain(..).for_each(|index| index.settle());
    }

    /// What the next manifest is to see to, after a commit that the journal has.
    pub(crate) fn leave_to_manifest(&mut self) -> Since {
        for (_, work) in std::mem::take(&mut self.index_work) {
            self.note_unwritten(&work.version().handle);
        }
        let indexes = std::mem::take(&mut self.unwritten);
        for handle in &indexes {
            let Some((name, version, at)) = self.index_of(handle) else { continue };
            let mut keys = version.indexes.clone();
            keys[at] = keys[at].with_chunks_kept();
            let next = version.copied().with_keys(keys, version.constraints.clone());
            self.tables.insert(name, Arc::new(next));
        }
        Since { indexes, freed: std::mem::take(&mut self.freed) }
    }

    /// Goes on from what the journal's record of a generation has made of the draft, which is not taken back any more: what that would
    /// need, as memory for keys that came into indexes, is given back.
    pub(crate) fn advance(&mut self, generation: u64) {
        let Since { indexes, freed } = self.leave_to_manifest();
        (self.unwritten, self.freed) = (indexes, freed);
        self.base = Arc::new(self.snapshot(generation, self.base.pin.clone()));
        self.grown.clear();
        self.lost.clear();
        self.has_dropped = false;
    }

    /// Writes the segments of tables that are not written yet, all at once, on a worker.
    pub(crate) async fn write_segments(&mut self, space: &Arc<Space>) -> Result<()> {
        let is_unwritten = |segment: &Arc<Segment>| segment.stored().is_none();
        let unwritten: Vec<(String, usize)> = self
            .tables
            .iter()
            .flat_map(|(name, version)| {
                let segments = version.segments.iter().enumerate();
                let numbers = segments.filter(|(_, segment)| is_unwritten(segment));
                numbers.map(|(number, _)| (name.clone(), number))
            })
            .collect();
        let writes = unwritten.iter().map(|(name, number)| {
            let version = &self.tables[name];
            version.segments[*number].write(version.id, version.schema.columns.len(), space)
        });
        // A write that goes on needs its space, so all of them are awaited.
        let written = join_all(writes).await;
        for ((name, number), written) in unwritten.into_iter().zip(written) {
            let (segment, allocation) = written?;
            self.taken.push(Arc::new(allocation));
            let mut next = self.tables[&name].copied();
            next.segments[number] = Arc::new(segment);
            self.tables.insert(name, Arc::new(next));
        }
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

    /// What a transaction sees after the statement, and what it has changed so far.
    ///
    /// # Panics
    /// If it is the draft of a commit.
    pub(crate) fn into_view(self) -> (Snapshot, OwnChanges) {
        self.index_work.iter().for_each(|(_, work)| work.recycle());
        let view = self.snapshot(self.base.generation, self.base.pin.clone());
        (view, self.own.expect("a statement of a transaction"))
    }

    /// The new generation, which is durable now.
    pub(crate) fn into_snapshot(self, pin: Pin) -> Snapshot {
        self.snapshot(self.base.generation + 1, pin)
    }

    fn snapshot(&self, generation: u64, pin: Pin) -> Snapshot {
        Snapshot {
            generation,
            database: self.base.database,
            devices: self.devices.clone(),
            options: self.options.clone(),
            views: self.views.clone(),
            next_table_id: self.next_table_id,
            tables: self.tables.clone(),
            access: self.base.access.clone(),
            pin,
        }
    }
}

/// Whether a foreign key of a table refers to the table of this identity.
fn refers_to(child: &TableVersion, parent: u64) -> bool {
    child.constraints.foreign_keys.iter().any(|key| key.parent == parent)
}
