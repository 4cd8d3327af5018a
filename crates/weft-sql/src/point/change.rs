//! Carries out changes of rows by key whose plans are kept: finds the row, computes the new one, and hands both to the store.
//!
//! What goes wrong before the store is asked to change anything is left to the usual way, which tells of it as it does of errors of
//! other statements.

use std::sync::Arc;

use chrono::Utc;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::FutureExt;
use weft_store::{Change, KeyedRow, ResidentRow, RowSet, StoreError, Table, WrittenGroups};

use super::basis::Key;
use super::change_plan::ChangePlan;
use super::given::Given;
use crate::error::{Result, SqlError};
use crate::run::{Run, Started};
use crate::sequences;

/// A change that is to be carried out.
#[derive(Clone, Debug)]
pub(crate) struct KeptChange {
    pub(super) plan: Arc<ChangePlan>,
    pub(super) given: Arc<Given>,
}

/// What a change has come to, before the store has heard of it.
struct Prepared {
    changes: Vec<Change>,
    /// Rows changed or inserted.
    affected: u64,
    returned: Option<arrow::record_batch::RecordBatch>,
}

impl Run {
    /// Carries out a change whose plan is kept; `None` if the usual way is to.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn carry_out_kept(&self, kept: &KeptChange) -> Result<Option<Started>> {
        let plan = &kept.plan;
        let Some(table) = self.table_of(kept).await else { return Ok(None) };
        let prepared = match self.prepare_kept(kept, &table).await {
            Ok(Some(prepared)) => prepared,
            Ok(None) => return Ok(None),
            Err(error) => {
                log::debug!("a change is planned in the usual way: {error}");
                return Ok(None);
            }
        };
        if !prepared.changes.is_empty() {
            self.commit(prepared.changes).await?;
            self.control.progress.add_rows(prepared.affected);
        }
        Ok(Some(match plan.returned_schema() {
            Some(schema) => {
                let rows = futures::stream::iter(prepared.returned.map(Ok));
                Started::Rows(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
            }
            None => {
                let affected = prepared.affected;
                let work = async move { Ok(Some(affected)) };
                Started::Command { tag: plan.tag, work: work.boxed() }
            }
        }))
    }

    /// The table that a change is about, if its plan is right for what the statement sees and may change. One that is not is made
    /// anew, for the next execution.
    async fn table_of(&self, kept: &KeptChange) -> Option<Arc<Table>> {
        let transaction = self.transaction.as_ref();
        let snapshot = match transaction {
            None => self.session.engine().store().snapshot(),
            // What is refused is refused in the usual way.
            Some(transaction) if !transaction.takes_changes() => return None,
            Some(transaction) => transaction.snapshot().ok()?,
        };
        let plan = &kept.plan;
        if self.session.temporary_schema().is_some_and(|schema| plan.is_hidden(&snapshot, schema)) {
            return None;
        }
        let session = self.session.version();
        let Some(table) = plan.table(&snapshot, transaction.is_none(), session) else {
            self.plan_kept(&self.sql, Some(&kept.given)).await;
            return None;
        };
        self.control.note_changes();
        if let Some(transaction) = transaction {
            transaction.note_statement();
            if plan.is_keyed() {
                transaction.note_read(table.number());
            }
        }
        Some(table)
    }

    /// What a change has come to; `None` if its values need a planner.
    ///
    /// # Errors
    /// Those of reading, and of values.
    async fn prepare_kept(
        &self,
        kept: &KeptChange,
        table: &Arc<Table>,
    ) -> Result<Option<Prepared>> {
        let KeptChange { plan, given } = kept;
        let Some(parameters) = given.arrays().filter(|values| plan.is_for(values)) else {
            return Ok(None);
        };
        let row = match plan.is_keyed() {
            true => {
                let Some(key) = plan.key(table, given) else { return Ok(None) };
                let Some(row) = self.keyed_row(plan, table, key).await? else {
                    let (changes, affected) = (Vec::new(), 0);
                    return Ok(Some(Prepared { changes, affected, returned: None }));
                };
                Some(row)
            }
            false => None,
        };
        let taken = self.next_values(plan)?;
        let now = Utc::now().timestamp_micros();
        let rows = plan.rows(row.as_ref(), parameters, now, &taken)?;
        let returned = rows.as_ref().map(|rows| plan.returned(rows)).transpose()?.flatten();
        let affected = rows.as_ref().map_or(1, |rows| rows.num_rows() as u64);
        let (name, expected) = (&table.schema().name, Some(table.id()));
        let mut changes = Vec::with_capacity(2);
        if let Some(row) = row {
            let mut rows = RowSet::default();
            rows.insert(row.id);
            changes.push(Change::Delete { table: name.clone(), expected, rows });
        }
        if let Some(rows) = rows.filter(|_| plan.tag != "DELETE") {
            let Some(groups) = WrittenGroups::of_few(table.schema(), &rows) else {
                return Ok(None);
            };
            changes.push(Change::Append { table: name.clone(), expected, groups });
        }
        Ok(Some(Prepared { changes, affected, returned }))
    }

    /// The row with a key; a worker waits for what is not in memory.
    ///
    /// # Errors
    /// Those of reading.
    async fn keyed_row(
        &self,
        plan: &Arc<ChangePlan>,
        table: &Arc<Table>,
        key: Key,
    ) -> Result<Option<KeyedRow>> {
        let Key::Bytes(key) = key else { return Ok(None) };
        let projection = plan.projection(table);
        match table.resident_row(plan.index(), &key, &projection)? {
            ResidentRow::Row(row) => return Ok(Some(row)),
            ResidentRow::NoRow => return Ok(None),
            ResidentRow::Unknown => {}
        }
        let (plan, table) = (Arc::clone(plan), Arc::clone(table));
        let find = move || async move { table.row_by_key(plan.index(), &key, &projection).await };
        let runtime = &self.session.engine().runtime;
        let worker = runtime.next_of(runtime.workers());
        let found = runtime.spawn_in(Some(self.control.share), worker, find).await;
        Ok(found.map_err(|error| SqlError::from(StoreError::from(error)))??)
    }

    /// The next values of the sequences that a change takes values of.
    ///
    /// # Errors
    /// Those of sequences.
    fn next_values(&self, plan: &ChangePlan) -> Result<Vec<i64>> {
        if plan.sequences().is_empty() {
            return Ok(Vec::new());
        }
        let settings = self.session.engine().session_defaults.clone();
        let around = self.session.surroundings(&self.control, self.transaction.as_ref(), settings);
        plan.sequences().iter().map(|name| sequences::next(&around, name)).collect()
    }
}
