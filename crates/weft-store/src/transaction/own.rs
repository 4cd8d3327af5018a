//! What a transaction has changed, for itself: drafts of its statements.
//!
//! Its own rows follow those that a table had when the transaction began, in row groups and segments of their own, and get the
//! ids that come next; a commit gives them others. Rows of before that it deletes are marked in copies of the segments, and
//! listed, for the commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::append::{STATISTICS_ROWS_MIN, append};
use crate::delete::{delete, truncate};
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::index::maintain::{IndexWork, Maintenance};
use crate::index::overlay::Overlay;
use crate::index::version::IndexVersion;
use crate::row_group::RowGroup;
use crate::row_set::RowSet;
use crate::snapshot::{Access, Snapshot};
use crate::space::{Allocation, Space};
use crate::statistics::Statistics;
use crate::table::TableVersion;
use crate::writer::WrittenGroups;

/// What a transaction has changed in tables.
#[derive(Clone, Debug)]
pub(crate) struct OwnChanges {
    /// What the transaction began with.
    pub(crate) begin: Arc<Snapshot>,
    /// By the tables' identities.
    tables: BTreeMap<u64, OwnTable>,
}

/// What a transaction has changed in a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnTable {
    /// The table as it was when the transaction began; none if the transaction has made it.
    pub(crate) base: Option<Arc<TableVersion>>,
    /// Rows of then that it has deleted.
    pub(crate) deleted: Arc<RowSet>,
    /// It has deleted all rows of then.
    pub(crate) is_truncated: bool,
    /// Of its own rows, as far as they were loaded in numbers.
    pub(crate) statistics: Option<Arc<Statistics>>,
    /// Rows that its row groups may have.
    pub(crate) row_group_rows: usize,
}

impl OwnTable {
    /// The id of its first own row.
    pub(crate) fn first_row(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.next_row_id)
    }

    /// Whether an index is one that the transaction began with.
    pub(crate) fn shares(&self, index: &IndexVersion) -> bool {
        let is_same = |of: &IndexVersion| Arc::ptr_eq(&of.handle, &index.handle);
        self.base.as_ref().is_some_and(|base| base.indexes.iter().any(is_same))
    }
}

impl OwnChanges {
    pub(crate) fn new(begin: Arc<Snapshot>) -> OwnChanges {
        OwnChanges { begin, tables: BTreeMap::new() }
    }

    /// Bytes that it takes in memory, apart from directories of tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.values().map(|table| table.deleted.bytes()).sum()
    }

    /// What it has changed in the table of this identity.
    pub(crate) fn table(&self, id: u64) -> Option<&OwnTable> {
        self.tables.get(&id)
    }

    fn of(&mut self, id: u64) -> &mut OwnTable {
        let begin = &self.begin;
        self.tables.entry(id).or_insert_with(|| OwnTable {
            base: begin.tables.values().find(|version| version.id == id).cloned(),
            ..OwnTable::default()
        })
    }
}

impl Draft {
    fn own(&mut self, id: u64) -> &mut OwnTable {
        self.own.as_mut().expect("a statement of a transaction").of(id)
    }

    /// Adds rows to a table.
    pub(crate) async fn append_own(
        &mut self,
        table: String,
        version: &TableVersion,
        mut groups: WrittenGroups,
        (space, access): (&Arc<Space>, &Access),
    ) -> Result<()> {
        let new_rows = groups.rows();
        let new = groups.statistics.take();
        let own = self.own(version.id);
        own.row_group_rows = own.row_group_rows.max(groups.row_group_rows);
        let first_own_row = own.first_row();
        let appended = append(version, groups, Some(first_own_row), space, access).await?;
        let mut next = owned(appended.version, appended.taken, version);
        let known = version.known_statistics();
        let statistics = match new {
            Some(new) if new_rows >= STATISTICS_ROWS_MIN.max(version.rows() / 16) => {
                let own = self.own(version.id);
                own.statistics = Some(merged(own.statistics.as_ref(), new.clone(), version)?);
                let all = version.statistics(access).await;
                Some(merged(all, new, version)?)
            }
            _ => known,
        };
        if let Some(statistics) = statistics {
            next = next.with_statistics(statistics);
        }
        self.follow_own(table, next, version.next_row_id, access).await
    }

    /// Has indexes follow the rows that a table has got from `first_row` on.
    async fn follow_own(
        &mut self,
        table: String,
        version: TableVersion,
        first_row: u64,
        access: &Access,
    ) -> Result<()> {
        let own = self.own(version.id).clone();
        let is_shrunk = self.shrunk.contains(&table);
        let work = Maintenance { version: &version, access };
        let mut indexes = Vec::with_capacity(version.indexes.len());
        for index in &version.indexes {
            if !own.shares(index) {
                let followed = match is_shrunk {
                    true => None,
                    false => work.add(index, first_row).await?,
                };
                indexes.push(self.followed(index, followed.map(|(_, work, _)| work), &version));
                continue;
            }
            let overlay = index.overlaid(own.first_row());
            if index.definition().is_unique {
                work.check_shared(index, &overlay, first_row).await?;
            }
            let own_index = match (&overlay.own, is_shrunk) {
                (_, true) => overlay.own.clone(),
                (None, false) => {
                    let made = work.make_own(index.definition().clone(), own.first_row());
                    let made = made.await?;
                    Some(Box::new(self.followed(index, Some(made), &version)))
                }
                (Some(before), false) => {
                    let added = work.add(before, first_row).await?;
                    let added = added.map(|(_, work, _)| work);
                    Some(Box::new(self.followed(before, added, &version)))
                }
            };
            indexes.push(index.with_overlay(Overlay { own: own_index, ..overlay }));
        }
        let constraints = version.constraints.clone();
        if !constraints.foreign_keys.is_empty() {
            self.grown.push((table.clone(), first_row));
        }
        self.tables.insert(table, Arc::new(version.with_keys(indexes, constraints)));
        Ok(())
    }

    /// An index after work on it, if there was some, which is noted.
    fn followed(
        &mut self,
        index: &IndexVersion,
        work: Option<IndexWork>,
        version: &TableVersion,
    ) -> IndexVersion {
        let Some(work) = work else { return index.clone() };
        let next = work.version().clone();
        self.index_work.push((version.schema.clone(), work));
        next
    }

    /// Deletes rows of a table.
    pub(crate) async fn delete_own(
        &mut self,
        table: String,
        version: &TableVersion,
        rows: &RowSet,
        access: &Access,
    ) -> Result<()> {
        let left = delete(version, rows, access).await?;
        let mut next = owned(left.version, Vec::new(), version);
        if let Some(statistics) = version.known_statistics() {
            next = next.with_statistics(statistics);
        }
        let own = self.own(version.id);
        let first_own_row = own.first_row();
        let mut has_own = false;
        let deleted = Arc::make_mut(&mut own.deleted);
        for row in rows.iter() {
            match row < first_own_row {
                true => drop(deleted.insert(row)),
                false => has_own = true,
            }
        }
        let own = own.clone();
        let mut indexes = Vec::with_capacity(version.indexes.len());
        for index in &version.indexes {
            if !own.shares(index) {
                has_own = true;
                indexes.push(index.clone());
                continue;
            }
            let overlay = index.overlaid(first_own_row);
            let hidden = own.deleted.clone();
            indexes.push(index.with_overlay(Overlay { hidden, ..overlay }));
        }
        if has_own {
            self.shrunk.insert(table.clone());
        }
        self.note_lost(version, rows);
        self.tables.insert(table, Arc::new(next.with_keys(indexes, version.constraints.clone())));
        Ok(())
    }

    /// Deletes all rows of a table.
    pub(crate) fn truncate_own(&mut self, table: String, version: &TableVersion) {
        let own = self.own(version.id);
        own.is_truncated = own.base.is_some();
        own.deleted = Arc::default();
        own.statistics = None;
        let own = own.clone();
        let index = |index: &IndexVersion| match own.shares(index) {
            true => index.with_overlay(Overlay::default()),
            false => index.clone(),
        };
        let indexes = version.indexes.iter().map(index).collect();
        let next = truncate(version).version.with_keys(indexes, version.constraints.clone());
        self.check_children(version.id);
        self.tables.insert(table.clone(), Arc::new(next));
        self.shrunk.insert(table);
    }

    /// Makes the indexes of its own rows anew in tables that have lost some of these, on a worker, after all changes.
    pub(crate) async fn remake_own_indexes(&mut self, access: &Access) -> Result<()> {
        for table in std::mem::take(&mut self.shrunk) {
            let Some(version) = self.tables.get(&table).cloned() else { continue };
            let own = self.own(version.id).clone();
            let work = Maintenance { version: &version, access };
            let mut indexes = Vec::with_capacity(version.indexes.len());
            for index in &version.indexes {
                let definition = index.definition().clone();
                if !own.shares(index) {
                    let made = work.make_own(definition, 0).await?;
                    indexes.push(self.followed(index, Some(made), &version));
                    continue;
                }
                let overlay = index.overlaid(own.first_row());
                let own_index = match version.next_row_id > own.first_row() {
                    true => {
                        let made = work.make_own(definition, own.first_row()).await?;
                        Some(Box::new(self.followed(index, Some(made), &version)))
                    }
                    false => None,
                };
                indexes.push(index.with_overlay(Overlay { own: own_index, ..overlay }));
            }
            if !indexes.is_empty() {
                let next = version.copied().with_keys(indexes, version.constraints.clone());
                self.tables.insert(table, Arc::new(next));
            }
        }
        Ok(())
    }

    /// Notes tables that are others in `later`, whose indexes of own rows are so to be made anew.
    pub(crate) fn note_changed_since(&mut self, later: &Snapshot) {
        for (name, version) in &self.tables {
            let is_same = |of: &Arc<TableVersion>| Arc::ptr_eq(of, version);
            if !version.indexes.is_empty() && !later.tables.get(name).is_some_and(is_same) {
                self.shrunk.insert(name.clone());
            }
        }
    }
}

/// Statistics of old rows and of new ones.
fn merged(
    old: Option<&Arc<Statistics>>,
    new: Statistics,
    version: &TableVersion,
) -> Result<Arc<Statistics>> {
    let mut all = match old {
        Some(old) => (**old).clone(),
        None => Statistics::none(&version.schema),
    };
    let settled = all.merge(new).and_then(|()| all.settle());
    settled.map_err(|source| StoreError::Encode {
        place: format!("statistics of table {}", version.schema.name),
        source,
    })?;
    Ok(Arc::new(all))
}

/// A table with the space that it has taken and no commit names: what it has of `before`, and what was taken since.
fn owned(
    mut version: TableVersion,
    taken: Vec<Arc<Allocation>>,
    before: &TableVersion,
) -> TableVersion {
    let there = before.segments.iter().flat_map(|segment| segment.owned.iter().cloned());
    let known: BTreeMap<Extent, Arc<Allocation>> =
        there.chain(taken).map(|allocation| (allocation.extent(), allocation)).collect();
    for segment in &mut version.segments {
        // Those that others have as well are as they were.
        let Some(segment) = Arc::get_mut(segment) else { continue };
        let groups: &[RowGroup] = segment.known().map_or(&[], |loaded| &loaded.groups);
        let extents = groups.iter().map(|group| group.extent);
        segment.owned = extents.filter_map(|extent| known.get(&extent).cloned()).collect();
    }
    version
}
