//! Small changes of rows by several statements and transactions as one: so what a table consists of is written once for all of
//! them, not once for each.
//!
//! Work that only deletes and adds few rows comes in some order; deleting all its rows first and adding all others then is the same if
//! it succeeds, as no work deletes what other work adds. If it fails, halves of it are tried. Work that deletes a row which is there no
//! more, or which work before it deletes, is told so without being tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::append::STATISTICS_ROWS_MIN;
use crate::change::Change;
use crate::commit::Work;
use crate::draft::Draft;
use crate::error::StoreError;
use crate::fetch::retain_live;
use crate::row_set::RowSet;
use crate::snapshot::Access;
use crate::table::TableVersion;
use crate::writer::WrittenGroups;

/// What is to become of a table of this name and identity.
type Rows = BTreeMap<(String, u64), (RowSet, Option<WrittenGroups>)>;

/// The changes of work that only deletes and adds few rows of tables that were there before.
pub(crate) fn small(work: &Work) -> Option<&[Change]> {
    let is_small = |change: &Change| match change {
        Change::Delete { expected: Some(_), rows, .. } => rows.len() < STATISTICS_ROWS_MIN,
        Change::Append { expected: Some(_), groups, .. } => groups.rows() < STATISTICS_ROWS_MIN,
        _ => false,
    };
    let changes = match &work.transaction {
        Some(transaction) => transaction.few.as_deref()?,
        None => &work.changes,
    };
    let is_small = changes.iter().all(is_small);
    (work.device.is_none() && work.tidied.is_none() && !work.is_checkpoint && is_small)
        .then_some(changes)
}

/// What can be said of small work before it is tried.
pub(crate) enum Prospect {
    /// Nothing speaks against it.
    Good,
    /// It deletes a row that work before it deletes, too.
    Disputed,
    /// It deletes a row that is not there any more.
    Lost(StoreError),
}

/// The rows that work deletes, by the names and identities of tables.
#[derive(Default)]
pub(crate) struct Deleted(BTreeMap<(String, u64), RowSet>);

impl Deleted {
    /// Looks at the rows that small work deletes, on a worker, and adds them if its prospect is good. What cannot be read is left to the
    /// commit to say.
    pub(crate) async fn add(
        &mut self,
        changes: &[Change],
        draft: &Draft,
        access: &Access,
    ) -> Prospect {
        let deletes = || {
            changes.iter().filter_map(|change| match change {
                Change::Delete { table, expected: Some(id), rows } => Some((table, *id, rows)),
                _ => None,
            })
        };
        for (table, id, rows) in deletes() {
            let same = |version: &&Arc<TableVersion>| version.identity() == id;
            let Some(version) = draft.tables.get(table).filter(same) else { continue };
            let mut live: Vec<u64> = rows.iter().collect();
            let read = retain_live(version, access, &mut live).await;
            if read.is_ok() && (live.len() as u64) < rows.len() {
                let table = table.clone();
                return Prospect::Lost(StoreError::Conflict { table, change: "changed" });
            }
            let before = self.0.get(&(table.clone(), id));
            if before.is_some_and(|before| rows.iter().any(|row| before.contains(row))) {
                return Prospect::Disputed;
            }
        }
        for (table, id, rows) in deletes() {
            let deleted = self.0.entry((table.clone(), id)).or_default();
            for row in rows.iter() {
                deleted.insert(row);
            }
        }
        Prospect::Good
    }
}

/// The changes of several works as one, none of which deletes a row that another one deletes.
pub(crate) fn combined<'a>(changes: impl Iterator<Item = &'a Change>) -> Vec<Change> {
    let mut all = Rows::new();
    for change in changes {
        match change {
            Change::Delete { table, expected: Some(id), rows } => {
                let deleted = &mut all.entry((table.clone(), *id)).or_default().0;
                for row in rows.iter() {
                    deleted.insert(row);
                }
            }
            Change::Append { table, expected: Some(id), groups } => {
                let added = &mut all.entry((table.clone(), *id)).or_default().1;
                let added = added.get_or_insert_with(|| WrittenGroups {
                    schema: groups.schema.clone(),
                    groups: Vec::new(),
                    loose: Vec::new(),
                    row_group_rows: groups.row_group_rows,
                    statistics: None,
                });
                added.groups.extend(groups.groups.iter().cloned());
                added.loose.extend(groups.loose.iter().cloned());
                added.row_group_rows = added.row_group_rows.max(groups.row_group_rows);
            }
            other => unreachable!("{other:?} is no small change"),
        }
    }
    let mut changes = Vec::new();
    for ((table, id), (rows, groups)) in all {
        let expected = Some(id);
        if !rows.is_empty() {
            changes.push(Change::Delete { table: table.clone(), expected, rows });
        }
        changes.extend(groups.map(|groups| Change::Append { table, expected, groups }));
    }
    changes
}
