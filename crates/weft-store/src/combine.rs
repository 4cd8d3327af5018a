//! Small changes of rows by several statements as one: so what a table consists of is written once for all of them, not once for
//! each.
//!
//! Statements that only delete and add few rows come in some order; deleting all their rows first and adding all others then
//! is the same if it succeeds, as no statement deletes what another one of them adds. If it fails, halves of them are tried.

use std::collections::BTreeMap;

use crate::append::STATISTICS_ROWS_MIN;
use crate::change::Change;
use crate::commit::Work;
use crate::row_set::RowSet;
use crate::writer::WrittenGroups;

/// What is to become of a table of this name and identity.
type Rows = BTreeMap<(String, u64), (RowSet, Option<WrittenGroups>)>;

/// Whether work only deletes and adds few rows of tables that were there before.
pub(crate) fn is_small(work: &Work) -> bool {
    let is_small = |change: &Change| match change {
        Change::Delete { expected: Some(_), rows, .. } => rows.len() < STATISTICS_ROWS_MIN,
        Change::Append { expected: Some(_), groups, .. } => groups.rows() < STATISTICS_ROWS_MIN,
        _ => false,
    };
    work.device.is_none() && work.transaction.is_none() && work.changes.iter().all(is_small)
}

/// The changes of several works as one; `None` if two of them delete a row.
pub(crate) fn combined<'a>(works: impl Iterator<Item = &'a Work>) -> Option<Vec<Change>> {
    let mut all = Rows::new();
    for change in works.flat_map(|work| &work.changes) {
        match change {
            Change::Delete { table, expected: Some(id), rows } => {
                let deleted = &mut all.entry((table.clone(), *id)).or_default().0;
                if !rows.iter().all(|row| deleted.insert(row)) {
                    return None;
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
            _ => return None,
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
    Some(changes)
}
