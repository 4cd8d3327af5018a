//! `SELECT … FOR UPDATE` and `FOR SHARE`, of a whole statement or in subqueries: the rows are locked before the statement runs.
//!
//! Each locking read is found in the statement, the innermost first (`find.rs`, `names.rs`), and run for the rows of its tables with their ids, as many
//! as its LIMIT lets through. What can be locked of them, by its NOWAIT or SKIP LOCKED, stands in place of the tables when the statement
//! runs. So what is locked is what is returned. A transaction holds the locks until it ends, whatever its isolation; a statement
//! outside of transactions while it runs. In sessions whose statements do not wait for rows, a plain FOR UPDATE waits for no transaction: within a
//! transaction the rows are written anew as they are, so that another transaction which changes them does not go together with it.

mod find;
mod names;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, LimitClause, SelectItem, SetExpr};
use futures::StreamExt;
use weft_rt::memory::Reservation;
use weft_store::{Change, FoundRows, RowSet, Table, WhenLocked, WriterOptions, WrittenGroups};

use self::find::{LockingRead, has_locks, is_explained, many_rows, next_read, take_locks};
use crate::access::{Need, Rights};
use crate::assign::{Assignment, marked_schema};
use crate::catalog::StatementCatalog;
use crate::change_statement::template;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::relation::Relation;
use crate::run::Run;
use crate::spill_files::task_context;
use crate::statement::Parsed;

pub(crate) use words::rewrite;

/// A query that passes over locked rows is run for more rows than it wants: so many more, at least.
const SPARE_ROWS: usize = 16;

/// The rows that a locking read has found.
struct Found {
    /// After the items of the query, for each table its columns and the ids of its rows.
    rows: RecordBatch,
    /// The numbers of the columns of ids.
    ids: Vec<usize>,
    /// The rows that are locked.
    locked: Vec<usize>,
    memory: Option<Reservation>,
}

impl Run {
    /// Locks the rows that the locking reads of a statement find, and has these read what is locked. Returns how the statement is run then;
    /// `None` if it has no locking reads.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for queries whose rows are none of tables; [`ErrorKind::LockNotAvailable`];
    /// [`ErrorKind::ReadOnlyTransaction`]; [`ErrorKind::Deadlock`], [`ErrorKind::Conflict`]; those of queries.
    pub(crate) async fn lock_read_rows(&self, parsed: &mut Parsed) -> Result<Option<Run>> {
        if !has_locks(parsed) {
            return Ok(None);
        }
        if is_explained(parsed) {
            take_locks(parsed);
            return Ok(None);
        }
        if self.transaction.as_ref().is_some_and(|within| within.is_read_only()) {
            let message = "the transaction is READ ONLY: it cannot lock rows FOR UPDATE";
            return Err(SqlError::new(ErrorKind::ReadOnlyTransaction, message)
                .with_hint("end it, and write BEGIN or START TRANSACTION READ WRITE"));
        }
        let waits = self.transaction.is_some() || self.waits_for_rows();
        let (mut run, mut number) = (self.clone(), 1);
        run.kept = None;
        while let Some(read) = next_read(parsed, number, waits)? {
            let locked = run.locked_rows(read).await?;
            Arc::make_mut(&mut run.relations).extend(locked);
            number += 1;
        }
        Ok(Some(run))
    }

    /// Locks the rows that a query finds, and returns them by the names that the query reads them by.
    async fn locked_rows(&self, mut read: LockingRead) -> Result<HashMap<String, Relation>> {
        let catalog = self
            .session
            .statement_catalog(&self.control, self.economy)?
            .with_relations(&self.relations);
        let state = catalog.planning_state();
        let is_aggregate = |name: &str| state.udaf(name).is_ok();
        if let Some(what) = many_rows(&read.written, is_aggregate) {
            let message = format!("FOR UPDATE is not allowed with {what}");
            return Err(SqlError::new(ErrorKind::NotSupported, message));
        }
        let mut tables = Vec::with_capacity(read.tables.len());
        for (number, of) in read.tables.iter().enumerate() {
            let table = catalog.stored(&of.name, Need::Rights(Rights::UPDATE))?;
            catalog.check_read(&of.name)?;
            catalog.bind_with_ids_named(&of.with_ids, &id_name(number), &table).await?;
            tables.push(table);
        }
        add_columns(&mut read, &tables);
        let found = self.find_and_lock(&catalog, &state, &read, &tables).await?;
        let (mut relations, mut again) = (HashMap::new(), BTreeMap::new());
        for ((of, table), ids) in read.tables.iter().zip(&tables).zip(&found.ids) {
            let rows = rows_of_table(&found, table, *ids)?;
            if self.transaction.is_some() && !self.waits_for_rows() {
                let rewritten: &mut Rewritten = again.entry(of.name.clone()).or_default();
                rewritten.add(&state, table, &found, *ids)?;
            }
            let schema = rows.schema();
            relations.insert(of.locked.clone(), Relation::of_rows(schema, vec![rows])?);
        }
        if let Some(memory) = found.memory {
            self.control.keep_memory(memory);
        }
        self.write_again(again, &tables).await?;
        Ok(relations)
    }

    /// Finds rows of a locking read until as many are locked as it wants, or there are no more.
    async fn find_and_lock(
        &self,
        catalog: &StatementCatalog,
        state: &SessionState,
        read: &LockingRead,
        tables: &[Arc<Table>],
    ) -> Result<Found> {
        let wanted = match &read.count {
            Some(count) => self.count(catalog, state, count).await?,
            None => None,
        };
        // Rows that others have locked are passed over.
        let passed = match read.when_locked {
            WhenLocked::Skip => SPARE_ROWS + self.locked_rows_of(tables),
            WhenLocked::Wait | WhenLocked::Fail => 0,
        };
        let mut limit = wanted.map(|wanted| wanted.saturating_add(passed));
        loop {
            let mut query = read.query.clone();
            query.limit_clause = limit.map(limit_clause);
            let mut found = self.find(state, catalog, *query).await?;
            let (columns, mut next) = (found.rows.num_columns(), 0);
            let width: usize = tables.iter().map(|table| table.schema().columns.len() + 1).sum();
            let first =
                columns.checked_sub(width).ok_or_else(|| internal("columns are missing"))?;
            let ids = tables.iter().map(|table| {
                next += table.schema().columns.len() + 1;
                first + next - 1
            });
            found.ids = ids.collect();
            let of_rows =
                |ids: &usize| found.rows.column(*ids).as_primitive::<UInt64Type>().clone();
            let found_rows = FoundRows {
                tables: (tables.iter().zip(&read.tables))
                    .map(|(table, of)| (table.number(), of.mode))
                    .collect(),
                ids: found.ids.iter().map(of_rows).collect(),
            };
            let count = wanted.unwrap_or(usize::MAX);
            found.locked = self.lock_found(catalog, found_rows, (count, read.when_locked)).await?;
            let has_all = limit.is_none_or(|limit| found.rows.num_rows() < limit);
            if read.when_locked != WhenLocked::Skip || has_all || found.locked.len() >= count {
                return Ok(found);
            }
            limit = limit.map(|limit| limit.saturating_mul(2));
        }
    }

    /// How many rows of tables are locked.
    fn locked_rows_of(&self, tables: &[Arc<Table>]) -> usize {
        let locks = self.session.engine().store().locks();
        let of_tables = locks.iter().flat_map(|held| &held.tables);
        let rows: u64 = of_tables
            .filter(|of| tables.iter().any(|table| table.number() == of.table))
            .map(|of| of.exclusive_rows + of.shared_rows)
            .sum();
        usize::try_from(rows).unwrap_or(usize::MAX)
    }

    /// The number that LIMIT and OFFSET come to; `None` for no limit.
    async fn count(
        &self,
        catalog: &StatementCatalog,
        state: &SessionState,
        count: &Expr,
    ) -> Result<Option<usize>> {
        let mut query = *template()?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            let value = Expr::Nested(Box::new(count.clone()));
            select.projection = vec![SelectItem::UnnamedExpr(value)];
        }
        let found = self.find(state, catalog, query).await?;
        let value = match found.rows.num_rows() {
            0 => ScalarValue::Null,
            _ => ScalarValue::try_from_array(found.rows.column(0), 0)?,
        };
        if value.is_null() {
            return Ok(None);
        }
        let number = value.cast_to(&DataType::Int64)?;
        match number {
            ScalarValue::Int64(Some(number)) => Ok(Some(usize::try_from(number).unwrap_or(0))),
            _ => Ok(None),
        }
    }

    /// The rows of a query, in its order.
    async fn find(
        &self,
        state: &SessionState,
        catalog: &StatementCatalog,
        query: ast::Query,
    ) -> Result<Found> {
        let statement = ast::Statement::Query(Box::new(query));
        let plan = catalog.plan(state, DfStatement::Statement(Box::new(statement))).await?;
        let physical = self.physical(state, &plan).await?;
        let schema = physical.schema();
        let mut stream = execute_stream(physical, task_context(state))?;
        let (mut batches, mut memory): (Vec<RecordBatch>, Option<Reservation>) = (Vec::new(), None);
        let ledger = self.session.engine().ledger();
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            // What is found is put together once more.
            let bytes = 2 * batch.get_array_memory_size() as u64;
            let is_granted = match &mut memory {
                Some(memory) => memory.try_grow(bytes),
                none => {
                    *none = ledger.try_reserve(bytes);
                    none.is_some()
                }
            };
            if !is_granted {
                let message = "out of memory: the statement keeps the rows that it locks, for which memory is missing";
                return Err(SqlError::new(ErrorKind::OutOfMemory, message)
                    .with_hint("raise the setting memory_limit, or lock fewer rows at a time"));
            }
            batches.push(batch);
        }
        let rows = concat_batches(&schema, &batches)?;
        Ok(Found { rows, ids: Vec::new(), locked: Vec::new(), memory })
    }

    /// Locks rows that a query has found, as far as the session's statements lock such rows; returns which can be returned.
    async fn lock_found(
        &self,
        catalog: &StatementCatalog,
        found: FoundRows,
        (count, when_locked): (usize, WhenLocked),
    ) -> Result<Vec<usize>> {
        if when_locked == WhenLocked::Wait && !self.waits_for_rows() {
            let rows = found.ids.first().map_or(0, UInt64Array::len);
            return Ok((0..rows.min(count)).collect());
        }
        let wanted = (count, when_locked);
        match &self.transaction {
            Some(transaction) => {
                self.within_lock_timeout(transaction.lock_found(found, wanted)).await
            }
            None => {
                let locks = self.statement_locks();
                let snapshot = catalog.snapshot();
                self.within_lock_timeout(locks.lock_found(snapshot, found, wanted)).await
            }
        }
    }

    /// Writes rows anew as they are, within the transaction.
    async fn write_again(
        &self,
        again: BTreeMap<String, Rewritten>,
        tables: &[Arc<Table>],
    ) -> Result<()> {
        let Some(transaction) = &self.transaction else { return Ok(()) };
        let mut changes = Vec::new();
        for (name, rewritten) in again.into_iter().filter(|(_, of)| !of.rows.is_empty()) {
            let table = tables.iter().find(|table| table.schema().name == name);
            let table = table.ok_or_else(|| internal("a locked table is not among the tables"))?;
            let expected = Some(table.id());
            let rows = concat_batches(&table.arrow_schema(), &rewritten.batches)?;
            let groups = match WrittenGroups::of_few(table.schema(), &rows) {
                Some(groups) => groups,
                None => self.write_rows(table, rows).await?,
            };
            changes.push(Change::Delete { table: name.clone(), expected, rows: rewritten.rows });
            changes.push(Change::Append { table: name, expected, groups });
        }
        match changes.is_empty() {
            true => Ok(()),
            false => transaction.apply(changes).await,
        }
    }

    async fn write_rows(&self, table: &Table, rows: RecordBatch) -> Result<WrittenGroups> {
        let options = WriterOptions {
            workers: 1,
            share: Some(self.control.share),
            cancel: self.control.token.clone(),
            progress: Arc::clone(&self.control.progress),
            ..WriterOptions::default()
        };
        let writer = self.session.engine().store().writer(table.schema(), options)?;
        let mut part = writer.partition(0);
        part.append(rows).await?;
        part.finish().await?;
        Ok(writer.finish().await?)
    }
}

/// Rows of a table that are written anew.
#[derive(Default)]
struct Rewritten {
    rows: RowSet,
    batches: Vec<RecordBatch>,
}

impl Rewritten {
    /// Adds the locked rows of a table that are not there yet.
    fn add(
        &mut self,
        state: &SessionState,
        table: &Table,
        found: &Found,
        ids: usize,
    ) -> Result<()> {
        let mut new = Vec::new();
        let all = found.rows.column(ids).as_primitive::<UInt64Type>();
        for row in found.locked.iter().filter(|row| all.is_valid(**row)) {
            if self.rows.insert(all.value(*row)) {
                new.push(*row as u64);
            }
        }
        let rows = taken(found, table, ids, &UInt64Array::from(new))?;
        let assignment = Assignment::new(state, table.schema(), &rows.schema())?;
        self.batches.push(assignment.convert(&rows)?);
        Ok(())
    }
}

/// The column of a table's row ids in a locking read.
fn id_name(number: usize) -> String {
    format!("rowid of table {number}")
}

/// `LIMIT rows`
fn limit_clause(rows: usize) -> LimitClause {
    let limit = Expr::value(ast::Value::Number(rows.to_string(), false));
    LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by: Vec::new() }
}

/// Has a locking read give the columns of its tables, and the ids of their rows, behind its items.
fn add_columns(read: &mut LockingRead, tables: &[Arc<Table>]) {
    let SetExpr::Select(select) = read.query.body.as_mut() else { return };
    for (number, (of, table)) in read.tables.iter().zip(tables).enumerate() {
        let columns = table.schema().columns.iter().map(|column| column.name.clone());
        for (place, name) in columns.chain([id_name(number)]).enumerate() {
            let column = Ident::with_quote('"', name);
            let expr = Expr::CompoundIdentifier(vec![of.alias.clone(), column]);
            // No table has columns of such names.
            let alias = Ident::with_quote('"', format!("column {place} of table\n{number}"));
            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
        }
    }
}

/// The locked rows of a table, each once.
fn rows_of_table(found: &Found, table: &Table, ids: usize) -> Result<RecordBatch> {
    let all = found.rows.column(ids).as_primitive::<UInt64Type>();
    let mut seen = HashSet::new();
    let locked = found.locked.iter().filter(|row| {
        let is_there = all.is_valid(**row);
        is_there && seen.insert(all.value(**row))
    });
    let rows: UInt64Array = locked.map(|row| *row as u64).collect();
    taken(found, table, ids, &rows)
}

/// The columns of a table in some of the rows that were found.
fn taken(found: &Found, table: &Table, ids: usize, rows: &UInt64Array) -> Result<RecordBatch> {
    let marked = marked_schema(table.schema());
    let first = ids - marked.fields().len();
    let columns = (first..ids).map(|column| take(found.rows.column(column), rows, None));
    let columns: Vec<ArrayRef> = columns.collect::<std::result::Result<_, _>>()?;
    let fields = marked.fields().iter().zip(&columns).map(|(field, column)| {
        Field::new(field.name(), column.data_type().clone(), true)
            .with_metadata(field.metadata().clone())
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns)?)
}
