//! The commit of a transaction: what it has changed, on top of what others have committed since it began.
//!
//! What was changed is found by comparing what the transaction sees in the end with what it began with: names, definitions, and the
//! rows that were deleted and added. A conflict is what the transaction cannot have meant: rows that it has deleted are gone
//! already, a table is another one, a key was taken. Rows that others have added to a table are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::change::Change;
use crate::delete::truncate;
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::group_writer::WrittenGroup;
use crate::index::version::IndexVersion;
use crate::index::{Constraints, ForeignKey};
use crate::schema::TableSchema;
use crate::snapshot::{Access, Snapshot};
use crate::space::{Allocation, Space};
use crate::table::TableVersion;
use crate::transaction::own::{OwnChanges, OwnTable};
use crate::writer::WrittenGroups;

/// A transaction that is about to be committed.
#[derive(Debug)]
pub(crate) struct Finished {
    /// What it sees in the end.
    pub(crate) view: Arc<Snapshot>,
    pub(crate) own: OwnChanges,
    /// Identities of the tables that have to be what they were.
    pub(crate) reads: BTreeSet<u64>,
    /// What it comes to, if that is little, to be committed together with others.
    pub(crate) few: Option<Vec<Change>>,
    /// What it sees has all that it comes to.
    pub(crate) is_whole: bool,
}

impl Finished {
    /// True if it has changed anything.
    pub(crate) fn has_changes(&self) -> bool {
        let (begin, view) = (&self.own.begin, &self.view);
        let is_same = |(name, version): (&String, &Arc<TableVersion>)| {
            begin.tables.get(name).is_some_and(|before| Arc::ptr_eq(before, version))
        };
        begin.views != view.views
            || begin.options != view.options
            || begin.tables.len() != view.tables.len()
            || !view.tables.iter().all(is_same)
    }
}

fn conflict(what: String, change: &'static str) -> StoreError {
    StoreError::Serialization { what, change }
}

/// What others have done that a transaction does not go together with, if an error of its commit tells of that.
pub(crate) fn as_conflict(error: StoreError) -> StoreError {
    let table = |name: &str| format!("table {name}");
    match error {
        StoreError::At { source, place } => match as_conflict(*source) {
            source @ StoreError::Serialization { .. } => source,
            source => StoreError::At { source: Box::new(source), place },
        },
        StoreError::Conflict { table: name, change } => conflict(table(&name), change),
        StoreError::NoSuchTable { name } => conflict(table(&name), "dropped"),
        StoreError::NoSuchView { name } => conflict(format!("view {name}"), "dropped"),
        StoreError::NoSuchIndex { name } => conflict(format!("index {name}"), "dropped"),
        StoreError::Exists { kind, name } => conflict(format!("{kind} {name}"), "created"),
        StoreError::Duplicate { table: name, constraint, .. } => {
            conflict(format!("a key of {constraint} in table {name}"), "taken")
        }
        StoreError::Unreferenced { parent, constraint, .. } => {
            conflict(format!("a row of table {parent} that {constraint} needs"), "deleted")
        }
        StoreError::Referenced { what, .. } => conflict(what, "referred to or dropped"),
        error => error,
    }
}

/// Puts what a transaction has changed on top of a draft, on a worker. Indexes of tables that have lost rows, and what refers to
/// other tables, are seen to afterwards.
///
/// # Errors
/// [`StoreError::Serialization`], and those that [`as_conflict`] makes one of; those of reading and writing.
pub(crate) async fn rebase(
    draft: &mut Draft,
    finished: &Finished,
    space: &Arc<Space>,
    access: &Access,
) -> Result<()> {
    let mut rebase = Rebase { finished, ids: BTreeMap::new() };
    rebase.check_reads(draft)?;
    rebase.options(draft)?;
    rebase.drop(draft)?;
    rebase.views(draft)?;
    rebase.rename(draft)?;
    rebase.create(draft)?;
    let changed = rebase.changed();
    for after in &changed {
        rebase.constraints(draft, after)?;
    }
    for after in &changed {
        rebase.rows(draft, after, (space, access)).await?;
    }
    for after in &changed {
        rebase.make_indexes(draft, after, access).await?;
    }
    Ok(())
}

/// A rebase on its way.
struct Rebase<'a> {
    finished: &'a Finished,
    /// Identities that tables which the transaction has made get, by those that they have in it.
    ids: BTreeMap<u64, u64>,
}

fn by_id(snapshot: &Snapshot, id: u64) -> Option<&Arc<TableVersion>> {
    snapshot.tables.values().find(|version| version.id == id)
}

/// Whether two versions of a table have one definition, apart from the table's name.
pub(super) fn is_alike(left: &TableVersion, right: &TableVersion) -> bool {
    let definitions = |version: &TableVersion| -> Vec<_> {
        version.indexes.iter().map(|index| index.definition().clone()).collect()
    };
    left.schema.columns == right.schema.columns
        && left.constraints == right.constraints
        && definitions(left) == definitions(right)
}

impl Rebase<'_> {
    fn base(&self, version: &TableVersion) -> Option<&Arc<TableVersion>> {
        by_id(&self.finished.own.begin, version.id)
    }

    fn check_reads(&self, draft: &Draft) -> Result<()> {
        for id in &self.finished.reads {
            let Some(before) = by_id(&self.finished.own.begin, *id) else { continue };
            let what = || format!("table {}, which this transaction has read,", before.schema.name);
            match by_id(&draft.base, *id) {
                None => return Err(conflict(what(), "dropped")),
                Some(now) if !before.has_rows_of(now) => return Err(conflict(what(), "changed")),
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn options(&self, draft: &mut Draft) -> Result<()> {
        let (begin, view) = (&self.finished.own.begin, &self.finished.view);
        let what = |name: &str| format!("the definition {name}");
        merge(&begin.options, &view.options, &mut draft.options, what)
    }

    fn views(&self, draft: &mut Draft) -> Result<()> {
        let (begin, view) = (&self.finished.own.begin, &self.finished.view);
        merge(&begin.views, &view.views, &mut draft.views, |name| format!("view {name}"))
    }

    /// Drops tables and indexes.
    fn drop(&self, draft: &mut Draft) -> Result<()> {
        let (begin, view) = (&self.finished.own.begin, &self.finished.view);
        for before in begin.tables.values() {
            match by_id(view, before.id) {
                Some(after) if Arc::ptr_eq(before, after) => {}
                Some(after) => {
                    let name = name_of(draft, before)?;
                    let is_altered = !is_alike(before, after)
                        || before.indexes.iter().any(|index| !has_index(after, index));
                    let now = draft.tables[&name].clone();
                    let is_appended = after.next_row_id > before.next_row_id;
                    let is_other = match is_altered {
                        true => !is_alike(before, &now),
                        false => {
                            now.schema.columns != before.schema.columns
                                || is_appended
                                    && now.constraints.checks != before.constraints.checks
                        }
                    };
                    if is_other {
                        return Err(conflict(format!("table {name}"), "altered"));
                    }
                    for index in &before.indexes {
                        if !has_index(after, index) {
                            draft.drop_index(&index.definition().name)?;
                        }
                    }
                }
                None => {
                    let name = name_of(draft, before)?;
                    draft.drop_table(&name)?;
                }
            }
        }
        Ok(())
    }

    /// Gives tables their other names, all at once.
    fn rename(&self, draft: &mut Draft) -> Result<()> {
        let mut renamed = Vec::new();
        for (to, after) in &self.finished.view.tables {
            let Some(before) = self.base(after) else { continue };
            if before.schema.name != *to {
                let from = name_of(draft, before)?;
                if from != before.schema.name {
                    return Err(conflict(format!("table {}", before.schema.name), "renamed"));
                }
                renamed.extend(draft.tables.remove(&from).map(|version| (to, version)));
            }
        }
        for (to, version) in renamed {
            draft.check_free(to, false, true)?;
            let schema = TableSchema { name: to.clone(), ..(*version.schema).clone() };
            let version = version.copied().with_schema(Arc::new(schema));
            draft.tables.insert(to.clone(), Arc::new(version));
        }
        Ok(())
    }

    /// Makes the tables that the transaction has made.
    fn create(&mut self, draft: &mut Draft) -> Result<()> {
        for (name, after) in &self.finished.view.tables {
            if self.base(after).is_none() {
                draft.create_table((*after.schema).clone(), false)?;
                self.ids.insert(after.id, draft.tables[name].id);
            }
        }
        match draft.views.keys().find(|name| draft.tables.contains_key(*name)) {
            Some(name) => Err(conflict(format!("table {name}"), "created")),
            None => Ok(()),
        }
    }

    /// The tables that are other ones than when the transaction began.
    fn changed(&self) -> Vec<Arc<TableVersion>> {
        let is_changed = |after: &&Arc<TableVersion>| {
            self.base(after).is_none_or(|before| !Arc::ptr_eq(before, after))
        };
        self.finished.view.tables.values().filter(is_changed).cloned().collect()
    }

    /// The name that a table of the transaction has in the draft.
    fn name(&self, draft: &Draft, after: &TableVersion) -> Result<String> {
        let id = self.ids.get(&after.id).copied().unwrap_or(after.id);
        let found = draft.tables.iter().find(|(_, version)| version.id == id);
        let dropped = || conflict(format!("table {}", after.schema.name), "dropped");
        if let (Some(before), Some(now)) = (self.base(after), by_id(&draft.base, id))
            && before.identity() != now.identity()
        {
            return Err(conflict(format!("table {}", after.schema.name), "altered"));
        }
        found.map(|(name, _)| name.clone()).ok_or_else(dropped)
    }

    fn constraints(&self, draft: &mut Draft, after: &TableVersion) -> Result<()> {
        let before = self.base(after).map(|before| before.constraints.clone());
        if before.unwrap_or_default() == after.constraints {
            return Ok(());
        }
        let name = self.name(draft, after)?;
        let now = draft.tables[&name].clone();
        let key = |key: &ForeignKey| {
            let parent = self.ids.get(&key.parent).copied().unwrap_or(key.parent);
            ForeignKey { parent, ..key.clone() }
        };
        let constraints = Constraints {
            checks: after.constraints.checks.clone(),
            foreign_keys: after.constraints.foreign_keys.iter().map(key).collect(),
            alterations: after.constraints.alterations,
        };
        let next = now.copied().with_keys(now.indexes.clone(), Arc::new(constraints));
        draft.tables.insert(name.clone(), Arc::new(next));
        draft.grown.push((name, 0));
        draft.has_dropped = true;
        Ok(())
    }

    /// Deletes and adds the rows of a table.
    async fn rows(
        &self,
        draft: &mut Draft,
        after: &TableVersion,
        (space, access): (&Arc<Space>, &Access),
    ) -> Result<()> {
        let Some(own) = self.finished.own.table(after.id) else { return Ok(()) };
        let name = self.name(draft, after)?;
        if own.is_truncated {
            let now = by_id(&draft.base, after.id);
            let is_same =
                |before: &&Arc<TableVersion>| now.is_some_and(|now| before.has_rows_of(now));
            if own.base.as_ref().filter(is_same).is_none() {
                return Err(conflict(format!("table {name}"), "changed"));
            }
            let version = draft.tables[&name].clone();
            draft.shorten(name.clone(), truncate(&version));
        } else if !own.deleted.is_empty() {
            let version = draft.tables[&name].clone();
            draft.delete(name.clone(), &version, &own.deleted, access).await?;
        }
        let groups = own_groups(after, own, access).await?;
        if !groups.groups.is_empty() {
            let version = draft.tables[&name].clone();
            draft.append(name, &version, groups, (space, access)).await?;
        }
        Ok(())
    }

    /// Makes the indexes that the transaction has made.
    async fn make_indexes(
        &self,
        draft: &mut Draft,
        after: &TableVersion,
        access: &Access,
    ) -> Result<()> {
        let before = self.base(after);
        for index in &after.indexes {
            if before.is_some_and(|before| has_index(before, index)) {
                continue;
            }
            let name = self.name(draft, after)?;
            let version = draft.tables[&name].clone();
            draft.check_index(&version, index.definition())?;
            draft.make_index(name, &version, (**index.definition()).clone(), access).await?;
        }
        Ok(())
    }
}

/// Whether a table has this index, by its tree.
pub(super) fn has_index(version: &TableVersion, index: &IndexVersion) -> bool {
    version.indexes.iter().any(|of| Arc::ptr_eq(&of.handle, &index.handle))
}

/// The name that a table has in a draft.
fn name_of(draft: &Draft, before: &TableVersion) -> Result<String> {
    let found = draft.tables.iter().find(|(_, version)| version.id == before.id);
    let dropped = || conflict(format!("table {}", before.schema.name), "dropped");
    found.map(|(name, _)| name.clone()).ok_or_else(dropped)
}

/// Brings what has changed from `before` to `after` into `now`, where it is as it was before.
fn merge(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    now: &mut BTreeMap<String, String>,
    what: impl Fn(&str) -> String,
) -> Result<()> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        if old == new {
            continue;
        }
        let is_there = now.get(name);
        if is_there != old && is_there != new {
            let change = match (old, is_there) {
                (None, _) => "created",
                (_, None) => "dropped",
                _ => "changed",
            };
            return Err(conflict(what(name), change));
        }
        match new {
            Some(new) => drop(now.insert(name.clone(), new.clone())),
            None => drop(now.remove(name)),
        }
    }
    Ok(())
}

/// The rows that a transaction has added to a table, as they are left.
async fn own_groups(
    version: &TableVersion,
    own: &OwnTable,
    access: &Access,
) -> Result<WrittenGroups> {
    let first_row = own.first_row();
    let mut groups = Vec::new();
    for segment in version.segments.iter().rev() {
        let loaded = segment.load(access, version.id, version.schema.columns.len()).await?;
        if loaded.groups.first().is_some_and(|group| group.first_row < first_row) {
            break;
        }
        for group in loaded.groups.iter().rev() {
            let is_its = |of: &&Arc<Allocation>| of.extent() == group.extent;
            let allocation = segment.owned.iter().find(is_its).cloned();
            let allocation = allocation.expect("rows of a transaction lie in space of its own");
            // Few rows are in memory alone.
            let pool = access.source.pool();
            pool.write_table(&group.pages).await.map_err(StoreError::Buffer)?;
            if let Some(device) = access.space.device(group.extent.device) {
                device.mark_dirty();
            }
            groups.push(WrittenGroup { group: group.clone(), allocation });
        }
    }
    groups.reverse();
    Ok(WrittenGroups {
        schema: version.schema.clone(),
        groups,
        loose: Vec::new(),
        row_group_rows: own.row_group_rows,
        statistics: own.statistics.as_deref().cloned(),
    })
}
