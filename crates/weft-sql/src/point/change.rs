//! Carries out changes of rows by key whose plans are kept: finds the row, computes the new one, and hands both to the store.
//!
//! What goes wrong before the store is asked to change anything is left to the usual way, which tells of it as it does of errors of
//! other statements.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::record_batch::RecordBatch;
use chrono::Utc;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::FutureExt;
use weft_store::{Change, KeyedRow, ResidentRow, RowSet, StoreError, Table, WrittenGroups};

use super::basis::Key;
use super::change_plan::ChangePlan;
use super::given::Given;
use crate::error::{ErrorKind, Result, SqlError};
use crate::run::{Run, Started};
use crate::sequences;

/// What a change has come to, before the store has heard of it.
pub(super) struct Prepared {
    pub(super) changes: Vec<Change>,
    /// Rows changed or inserted.
    pub(super) affected: u64,
    pub(super) returned: Option<RecordBatch>,
    /// Whether a row gets another key than it has.
    pub(super) has_new_keys: bool,
}

/// A change that changes nothing.
fn nothing() -> Prepared {
    Prepared { changes: Vec::new(), affected: 0, returned: None, has_new_keys: false }
}

/// Whether a row gets another key than it has.
fn has_other_key(table: &Table, before: &KeyedRow, after: &RecordBatch) -> bool {
    let is_other = |column: usize| before.values.get(column) != Some(after.column(column));
    let mut unique = table.indexes().filter(|index| index.is_unique);
    unique.any(|index| index.columns.iter().any(|of| is_other(of.column)))
}

impl Run {
    /// Carries out a change whose plan is kept; `None` if the usual way is to, and within an error whether the plan is to be made anew.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn carry_out_kept(
        &self,
        plan: &Arc<ChangePlan>,
        given: &Arc<Given>,
    ) -> Result<std::result::Result<Option<Started>, bool>> {
        if let Some(transaction) = &self.transaction
            && (plan.is_keyed() || plan.resolves_conflicts())
        {
            transaction.settle_table(plan.table_name()).await?;
        }
        let table = match self.table_of(plan) {
            Ok(table) => table,
            Err(is_old) => return Ok(Err(is_old)),
        };
        let prepared = match self.prepare_kept((plan, given), &table).await {
            Ok(Some(prepared)) => prepared,
            Ok(None) => return Ok(Ok(None)),
            Err(error) => {
                log::debug!("a change is planned in the usual way: {error}");
                return Ok(Ok(None));
            }
        };
        if !prepared.changes.is_empty() {
            let Prepared { changes, has_new_keys, .. } = prepared;
            if let Err(error) = self.commit_unread(changes, has_new_keys).await {
                return Err(self.conflicting(error, plan, &table));
            }
            self.control.progress.add_rows(prepared.affected);
        }
        Ok(Ok(Some(match plan.returned_schema() {
            Some(schema) => {
                let rows = futures::stream::iter(prepared.returned.map(Ok));
                Started::Rows(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
            }
            None => {
                let affected = prepared.affected;
                let work = async move { Ok(Some(affected)) };
                Started::Command { tag: plan.tag, work: work.boxed() }
            }
        })))
    }

    /// The error of a commit: where a row that another statement has inserted meanwhile has the key, and the plan says what becomes of
    /// such rows, the statement begins anew.
    fn conflicting(&self, error: SqlError, plan: &ChangePlan, table: &Arc<Table>) -> SqlError {
        if error.kind() != ErrorKind::UniqueViolation || !plan.resolves_conflicts() {
            return error;
        }
        let now = self.session.engine().store().snapshot().table(&table.schema().name);
        match now.is_some_and(|now| now.is_as(table)) {
            true => error,
            false => SqlError::new(ErrorKind::Conflict, error.message()),
        }
    }

    /// The table that a change is about, if its plan is right for what the statement sees and may change; else whether the plan is to be
    /// made anew.
    pub(super) fn table_of(&self, plan: &ChangePlan) -> std::result::Result<Arc<Table>, bool> {
        let transaction = self.transaction.as_ref();
        let snapshot = match transaction {
            None => self.session.engine().store().snapshot(),
            // What is refused is refused in the usual way.
            Some(transaction) if !transaction.takes_changes() => return Err(false),
            Some(transaction) => transaction.snapshot().map_err(|_| false)?,
        };
        if self.session.temporary_schema().is_some_and(|schema| plan.is_hidden(&snapshot, schema)) {
            return Err(false);
        }
        let table = plan.table(&snapshot, transaction.is_none(), &self.session).ok_or(true)?;
        self.control.note_changes();
        if let Some(transaction) = transaction {
            transaction.note_statement();
            if plan.is_keyed() || plan.resolves_conflicts() {
                transaction.note_read(table.number());
            }
        }
        Ok(table)
    }

    /// What a change has come to; `None` if its values need a planner.
    ///
    /// # Errors
    /// Those of reading, and of values.
    pub(super) async fn prepare_kept(
        &self,
        (plan, given): (&Arc<ChangePlan>, &Given),
        table: &Arc<Table>,
    ) -> Result<Option<Prepared>> {
        let Some(parameters) = given.arrays().filter(|values| plan.is_for(values)) else {
            return Ok(None);
        };
        let now = Utc::now().timestamp_micros();
        let row = match plan.is_keyed() {
            true => {
                let Some(key) = plan.key(table, given) else { return Ok(None) };
                let (index, projection) = (plan.index().to_owned(), plan.projection(table));
                let Some(row) = self.keyed_row((index, projection), table, key).await? else {
                    plan.check_constants(parameters, now)?;
                    return Ok(Some(nothing()));
                };
                Some(row)
            }
            false => None,
        };
        let taken = self.next_values(plan)?;
        let mut rows = plan.rows(row.as_ref(), parameters.clone(), now, &taken)?;
        let mut row = row;
        if let (Some(new), true) = (&rows, plan.resolves_conflicts())
            && let Some(there) = self.conflicting_row(plan, table, new).await?
        {
            let Some(updated) = plan.resolved(&there, new, parameters, now)? else {
                return Ok(Some(nothing()));
            };
            (rows, row) = (Some(updated), Some(there));
        }
        let returned = rows.as_ref().map(|rows| plan.returned(rows)).transpose()?.flatten();
        let affected = rows.as_ref().map_or(1, |rows| rows.num_rows() as u64);
        let has_new_keys = match (&row, &rows) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => has_other_key(table, before, after),
        };
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
        Ok(Some(Prepared { changes, affected, returned, has_new_keys }))
    }

    /// A row of the table with a key that the new row has, of the keys that the plan looks at.
    ///
    /// # Errors
    /// Those of reading.
    async fn conflicting_row(
        &self,
        plan: &ChangePlan,
        table: &Arc<Table>,
        new: &RecordBatch,
    ) -> Result<Option<KeyedRow>> {
        for arbiter in plan.arbiters() {
            let values = arbiter.columns.iter().map(|of| Arc::clone(new.column(of.column)));
            let values: Vec<ArrayRef> = values.collect();
            if values.iter().any(|value| value.logical_null_count() > 0) {
                continue;
            }
            let key = Key::Bytes(table.key_prefix(&arbiter.name, &values)?);
            let projection = plan.projection(table);
            let found = self.keyed_row((arbiter.name.clone(), projection), table, key).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The row with a key of an index; a worker waits for what is not in memory.
    ///
    /// # Errors
    /// Those of reading.
    async fn keyed_row(
        &self,
        (index, projection): (String, Vec<usize>),
        table: &Arc<Table>,
        key: Key,
    ) -> Result<Option<KeyedRow>> {
        let Key::Bytes(key) = key else { return Ok(None) };
        match table.resident_row(&index, &key, &projection)? {
            ResidentRow::Row(row) => return Ok(Some(row)),
            ResidentRow::NoRow => return Ok(None),
            ResidentRow::Unknown => {}
        }
        let table = Arc::clone(table);
        let find = move || async move { table.row_by_key(&index, &key, &projection).await };
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
