//! A transaction that has only deleted and added few rows, as changes that are committed together with those of others.

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::append::STATISTICS_ROWS_MIN;
use crate::change::Change;
use crate::error::Result;
use crate::index::maintain::Maintenance;
use crate::index::new_rows::NewRows;
use crate::snapshot::Access;
use crate::table::TableVersion;
use crate::transaction::rebase::{Finished, has_index, is_alike};
use crate::writer::{LOOSE_BYTES_MAX, LOOSE_ROWS_MAX, WrittenGroups};

impl Finished {
    /// What the transaction comes to, if it has only deleted and added few rows of tables that there were when it began, and none has to
    /// be what it read; on a worker. Where these changes do not succeed, its [rebase](super::rebase) says why.
    ///
    /// # Errors
    /// Those of reading its own rows.
    pub(crate) async fn few_changes(&self, access: &Access) -> Result<Option<Vec<Change>>> {
        let (begin, view) = (&self.own.begin, &self.view);
        let is_other = begin.views != view.views
            || begin.options != view.options
            || begin.tables.len() != view.tables.len();
        if is_other || !self.reads.is_empty() {
            return Ok(None);
        }
        let mut changes = Vec::new();
        for (name, after) in &view.tables {
            let Some(before) = begin.tables.get(name) else { return Ok(None) };
            if Arc::ptr_eq(before, after) {
                continue;
            }
            if before.id != after.id || !has_definition_of(after, before) {
                return Ok(None);
            }
            let Some(of_table) = self.of_table(before, after, access).await? else {
                return Ok(None);
            };
            changes.extend(of_table);
        }
        Ok(Some(changes))
    }

    async fn of_table(
        &self,
        before: &TableVersion,
        after: &TableVersion,
        access: &Access,
    ) -> Result<Option<Vec<Change>>> {
        let Some(own) = self.own.table(after.id) else { return Ok(None) };
        let added_max = after.next_row_id - own.first_row();
        let is_much = own.deleted.len() >= STATISTICS_ROWS_MIN
            || added_max > LOOSE_ROWS_MAX as u64
            || own.statistics.is_some();
        if own.is_truncated || is_much {
            return Ok(None);
        }
        let (table, expected) = (after.schema.name.clone(), Some(before.identity()));
        let mut changes = Vec::new();
        if !own.deleted.is_empty() {
            let rows = (*own.deleted).clone();
            changes.push(Change::Delete { table: table.clone(), expected, rows });
        }
        if added_max == 0 {
            return Ok(Some(changes));
        }
        let columns: Vec<usize> = (0..after.schema.columns.len()).collect();
        let work = Maintenance { version: after, access };
        let mut rows = NewRows::new(&work, own.first_row());
        let mut bytes = 0;
        while let Some((_, arrays)) = rows.next(&columns).await? {
            let batch = RecordBatch::try_new(after.arrow_schema.clone(), arrays);
            let batch = batch.expect("the columns of the table");
            if batch.num_rows() == 0 {
                continue;
            }
            let Some(groups) = WrittenGroups::of_few(&after.schema, &batch) else {
                return Ok(None);
            };
            bytes += groups.bytes();
            if bytes > LOOSE_BYTES_MAX {
                return Ok(None);
            }
            changes.push(Change::Append { table: table.clone(), expected, groups });
        }
        Ok(Some(changes))
    }
}

/// Whether a version of a table has the definition of another one, with the same indexes.
fn has_definition_of(after: &TableVersion, before: &TableVersion) -> bool {
    is_alike(before, after)
        && Arc::ptr_eq(&before.schema, &after.schema)
        && before.indexes.iter().all(|index| has_index(after, index))
}
