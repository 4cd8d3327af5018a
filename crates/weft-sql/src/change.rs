//! UPDATE, DELETE, MERGE and TRUNCATE: a query tells which rows of a table become what. Rows that change are deleted, and their
//! successors appended, in one commit: others see all of it or nothing. If another statement has changed one of the rows meanwhile,
//! the first one to commit wins, and this one begins anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;
use datafusion::common::{Column as ColumnName, DFSchema, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use weft_rt::memory::{Ledger, Reservation};
use weft_store::{Change, PartitionWriter, RowSet, Table, WriterOptions, WrittenGroups};

use crate::access::{Need, Rights};
use crate::assign::Assignment;
use crate::catalog::{StatementCatalog, relation_name};
use crate::change_statement::{Action, ChangeStatement, Clause, NewValue};
use crate::copy_from::target_columns;
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::first_of::FirstOf;
use crate::insert::{always, given_always};
use crate::keys::Checks;
use crate::returning::{Kept, Returning};
use crate::run::{Run, Started};
use crate::spill_files::task_context;

/// A change that is planned.
pub(crate) struct Planned {
    name: String,
    table: Arc<Table>,
    pub(crate) state: SessionState,
    /// Values for all columns of the table if rows get some, the number of an [`Action`], and the row's id, which is NULL for
    /// rows that are inserted.
    pub(crate) plan: LogicalPlan,
    /// Whether rows get values, or values are returned.
    pub(crate) has_values: bool,
    /// Of statements that may change a row only once, what they are.
    once: Option<&'static str>,
    /// The unique indexes of which the first row with a key is inserted, of INSERT.
    first_of: Vec<String>,
    /// What new rows have to satisfy.
    pub(crate) checks: Checks,
    /// Whether a row may get another key than it has.
    has_new_keys: bool,
}

impl Run {
    /// UPDATE, DELETE and MERGE.
    pub(crate) async fn change_rows(
        &self,
        catalog: &StatementCatalog,
        change: ChangeStatement,
    ) -> Result<Started> {
        let planned = plan(catalog, &change).await?;
        let items = |items| Returning::new(catalog, &planned.table, &change.alias, items);
        let returning = change.returning.map(items).transpose()?;
        let run = self.clone();
        let work = move |kept| async move { run.carry_out(planned, &kept).await };
        self.returning(change.tag, returning, work).await
    }

    /// TRUNCATE
    pub(crate) fn truncate(
        &self,
        catalog: &StatementCatalog,
        truncate: &ast::Truncate,
    ) -> Result<Started> {
        let has_others = truncate.partitions.is_some() || truncate.on_cluster.is_some();
        if has_others {
            return Err(SqlError::not_supported("TRUNCATE of partitions, or on a cluster"));
        }
        let mut changes = Vec::with_capacity(truncate.table_names.len());
        for target in &truncate.table_names {
            let name = relation_name(&target.name)?;
            match catalog.stored(&name, Need::Rights(Rights::TRUNCATE)) {
                Ok(table) => {
                    changes.push(Change::Truncate { table: name, expected: Some(table.id()) });
                }
                Err(error) if truncate.if_exists && error.kind() != ErrorKind::Forbidden => {}
                Err(error) => return Err(error),
            }
        }
        let run = self.clone();
        let work = async move { run.commit(changes).await.map(|()| None) };
        Ok(Started::Command { tag: "TRUNCATE TABLE", work: work.boxed() })
    }

    /// Runs the plan of a change and commits what it changes; returns the number of rows.
    pub(crate) async fn carry_out(&self, planned: Planned, kept: &Arc<Kept>) -> Result<u64> {
        let Planned { name, table, state, plan, has_values, once, first_of, checks, has_new_keys } =
            planned;
        let physical = self.physical(&state, &plan).await?;
        let ledger = self.session.engine().ledger().clone();
        let first_of = FirstOf::new(Arc::clone(&table), first_of, ledger.clone());
        let changed = Arc::new(Changed { rows: Mutex::default(), once, first_of, ledger });
        let groups = match has_values {
            true => {
                let planned = (&state, &physical);
                Some(self.write_changed(planned, (&table, checks), &changed, kept).await?)
            }
            false => {
                find_changed(&physical, &task_context(&state), &changed).await?;
                None
            }
        };
        let Counted { rows, affected, memory } = changed.take();
        let expected = Some(table.id());
        let mut changes = Vec::new();
        if !rows.is_empty() {
            changes.push(Change::Delete { table: name.clone(), expected, rows });
        }
        if let Some(groups) = groups.filter(|groups| groups.rows() > 0) {
            changes.push(Change::Append { table: name, expected, groups });
        }
        if !changes.is_empty() {
            self.commit_keys(changes, has_new_keys).await?;
        }
        drop(memory);
        Ok(affected)
    }

    /// Runs the plan of a change and writes the new rows.
    async fn write_changed(
        &self,
        (state, plan): (&SessionState, &Arc<dyn ExecutionPlan>),
        (table, checks): (&Arc<Table>, Checks),
        changed: &Arc<Changed>,
        kept: &Arc<Kept>,
    ) -> Result<WrittenGroups> {
        let schema = table.schema();
        let values: Vec<usize> = (0..schema.columns.len()).collect();
        let assignment = Assignment::new(state, schema, &plan.schema().project(&values)?)?;
        let assignment = Arc::new(assignment.with_checks(checks));
        let context = task_context(state);
        let options = WriterOptions {
            workers: state.config().target_partitions(),
            share: Some(self.control.share),
            cancel: self.control.token.clone(),
            progress: Arc::clone(&self.control.progress),
            ..WriterOptions::default()
        };
        let writer = self.session.engine().store().writer(schema, options)?;
        // Dropped with this future, and so aborted when the statement is cancelled.
        let mut tasks = JoinSet::new();
        for partition in 0..plan.output_partitioning().partition_count() {
            let part = Part {
                assignment: Arc::clone(&assignment),
                changed: Arc::clone(changed),
                kept: Arc::clone(kept),
                partition,
                writer: writer.partition(partition),
            };
            tasks.spawn(part.write(plan.execute(partition, Arc::clone(&context))?));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| internal(&error.to_string()))??;
        }
        Ok(writer.finish().await?)
    }
}

/// The plan of a change, and the columns that it returns, if it returns rows.
///
/// # Errors
/// What is wrong with the statement.
pub(crate) async fn described(
    catalog: &StatementCatalog,
    change: &ChangeStatement,
) -> Result<(LogicalPlan, Option<SchemaRef>)> {
    let planned = plan(catalog, change).await?;
    let returned = match &change.returning {
        Some(items) => {
            let items = Returning::new(catalog, &planned.table, &change.alias, items.clone())?;
            Some(items.schema().await?)
        }
        None => None,
    };
    Ok((planned.plan, returned))
}

/// The plan of a change.
async fn plan(catalog: &StatementCatalog, change: &ChangeStatement) -> Result<Planned> {
    let table = catalog.stored(&relation_name(&change.table)?, Need::Rights(change.rights()))?;
    catalog.bind_with_row_ids(&change.with_ids, &table).await?;
    plan_bound(catalog, change, table).await
}

/// The plan of a change of a table whose rows with their ids have their name in the statement.
///
/// # Errors
/// What is wrong with the statement.
pub(crate) async fn plan_bound(
    catalog: &StatementCatalog,
    change: &ChangeStatement,
    table: Arc<Table>,
) -> Result<Planned> {
    let name = table.schema().name.clone();
    let state = catalog.planning_state();
    let query = ast::Statement::Query(change.query.clone());
    let source = catalog.plan(&state, DfStatement::Statement(Box::new(query))).await?;
    let columns = table.schema().columns.len();
    let Some(items) = source.schema().fields().len().checked_sub(columns + 1) else {
        return Err(internal("a change is planned without the columns of its table"));
    };
    let is_merge = change.has_clause_numbers();
    let is_writing = change.clauses.iter().any(|clause| clause.action != Action::Delete);
    let has_values = is_writing || change.returning.is_some();
    let defaults = catalog.defaults(&table)?;
    // An INSERT has looked at its values itself.
    let always = if change.tag == "UPDATE" { always(catalog, &table)? } else { Vec::new() };
    let values = Values { source: &source, table: &table, defaults, items, always };
    let mut of_clauses = Vec::with_capacity(change.clauses.len());
    for clause in &change.clauses {
        of_clauses.push(values.of_clause(clause)?);
    }
    let mut actions = change.clauses.iter().map(|clause| lit(clause.action as i64));
    let mut exprs = Vec::with_capacity(columns + 2);
    let schema = table.arrow_schema();
    for (number, field) in schema.fields().iter().enumerate().filter(|_| has_values) {
        let mut of_column = of_clauses.iter().map(|values| values[number].clone());
        let value = match is_merge {
            true => {
                let cast = |value: Expr| value.cast_to(field.data_type(), source.schema());
                choice(values.item(0), of_column.map(cast).collect::<Result<_, _>>()?)
            }
            false => of_column.next_back().ok_or_else(|| internal("a change without a clause"))?,
        };
        exprs.push(value.alias(field.name()));
    }
    let action = match is_merge {
        true => choice(values.item(0), actions.collect()),
        false => actions.next_back().ok_or_else(|| internal("a change without a clause"))?,
    };
    // A name that no column can have, as it has a line break.
    exprs.push(action.alias("action\n"));
    let row = values.item(change.place.unwrap_or(items + columns));
    exprs.push(row.alias("row\n"));
    let mut builder = LogicalPlanBuilder::from(source.clone());
    if is_merge {
        builder = builder.filter(values.item(0).is_not_null())?;
    }
    builder = builder.project(exprs)?;
    if change.place.is_some() {
        let place = Expr::Column(ColumnName::new_unqualified("row\n"));
        builder = builder.sort([place.sort(true, false)])?;
    }
    let plan = builder.build()?;
    let checks = match is_writing {
        true => Checks::of(catalog, table.schema(), &table.constraints().checks).await?,
        false => Checks::default(),
    };
    let (once, first_of) = (is_merge.then_some(change.tag), change.first_of.clone());
    let has_new_keys = has_new_keys(&table, change)?;
    Ok(Planned { name, table, state, plan, has_values, once, first_of, checks, has_new_keys })
}

/// Whether a row may get another key than it has.
fn has_new_keys(table: &Table, change: &ChangeStatement) -> Result<bool> {
    for clause in &change.clauses {
        if !matches!(clause.action, Action::Delete | Action::Update) {
            return Ok(true);
        }
        let names = clause.targets.iter().filter_map(|(name, _)| name.clone()).collect();
        let targets = target_columns(table, names)?;
        let is_target =
            |column: usize| clause.action == Action::Update && targets.contains(&column);
        let mut unique = table.indexes().filter(|index| index.is_unique);
        if unique.any(|index| index.columns.iter().any(|of| is_target(of.column))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The value of the clause with this number, which is not NULL.
fn choice(number: Expr, values: Vec<Expr>) -> Expr {
    let numbers = values.into_iter().enumerate();
    let when = numbers.map(|(number, value)| (Box::new(lit(number as i64)), Box::new(value)));
    Expr::Case(Case::new(Some(Box::new(number)), when.collect(), None))
}

/// Where the values of the new rows come from.
struct Values<'a> {
    source: &'a LogicalPlan,
    table: &'a Table,
    defaults: HashMap<String, Expr>,
    /// Columns of the source before those of the table.
    items: usize,
    /// Columns that only their sequences give values.
    always: Vec<usize>,
}

impl Values<'_> {
    /// A column of the source.
    fn item(&self, number: usize) -> Expr {
        Expr::Column(ColumnName::from(self.source.schema().qualified_field(number)))
    }

    fn default(&self, column: usize) -> Result<Expr> {
        let schema = self.table.arrow_schema();
        let field = schema.field(column);
        let default = match self.defaults.get(field.name()) {
            Some(default) => default.clone(),
            None => lit(ScalarValue::Null),
        };
        Ok(default.cast_to(field.data_type(), &DFSchema::empty())?)
    }

    /// The values of all columns in rows of a clause.
    fn of_clause(&self, clause: &Clause) -> Result<Vec<Expr>> {
        let columns = self.table.schema().columns.len();
        let names: Vec<ast::Ident> =
            clause.targets.iter().filter_map(|(name, _)| name.clone()).collect();
        let targets = match names.is_empty() {
            true => (0..columns).take(clause.targets.len()).collect(),
            false => target_columns(self.table, names)?,
        };
        if targets.len() != clause.targets.len() {
            let (values, name) = (clause.targets.len(), &self.table.schema().name);
            let message =
                format!("there are {values} values for {columns} columns of table {name}");
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        let value = |column: usize| match targets.iter().position(|target| *target == column) {
            Some(at) => match clause.targets[at].1 {
                NewValue::Default => self.default(column),
                NewValue::Item(_) if self.always.contains(&column) => {
                    Err(given_always(self.table, column))
                }
                NewValue::Item(number) => Ok(self.item(number)),
            },
            None if clause.action == Action::Insert => self.default(column),
            None => Ok(self.item(self.items + column)),
        };
        (0..columns).map(value).collect()
    }
}

/// The rows that a statement changes, as they are found.
struct Changed {
    rows: Mutex<Counted>,
    once: Option<&'static str>,
    first_of: FirstOf,
    ledger: Ledger,
}

#[derive(Default)]
struct Counted {
    rows: RowSet,
    /// Rows changed or inserted.
    affected: u64,
    /// Of the ids.
    memory: Option<Reservation>,
}

/// Rows of a batch.
struct Noted {
    /// Those that were not found before.
    new: BooleanArray,
    /// Of these, the ones that are written.
    written: BooleanArray,
}

impl Changed {
    /// All rows that were noted.
    fn take(&self) -> Counted {
        std::mem::take(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes the rows of a batch, of which `values` gives what the table would have of them.
    fn note(
        &self,
        batch: &RecordBatch,
        values: impl FnOnce() -> Result<RecordBatch>,
    ) -> Result<Noted> {
        let columns = batch.num_columns();
        let ids = batch.column(columns - 1).as_primitive::<UInt64Type>();
        let actions = batch.column(columns - 2).as_primitive::<Int64Type>();
        let mut counted = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let before = counted.rows.bytes();
        let mut new = Vec::with_capacity(batch.num_rows());
        let mut written = Vec::with_capacity(batch.num_rows());
        let is_any = |which: Action| actions.iter().any(|action| action == Some(which as i64));
        if is_any(Action::Again) {
            return Err(twice("INSERT"));
        }
        let proposed = is_any(Action::Propose).then(values).transpose()?;
        for (row, (id, action)) in ids.iter().zip(actions).enumerate() {
            let inserts = [Action::Insert, Action::Propose].map(|action| Some(action as i64));
            let is_new = match (id, &proposed) {
                (_, Some(values)) if action == Some(Action::Propose as i64) => {
                    self.first_of.note(values, row)?
                }
                (Some(id), _) if !inserts.contains(&action) => {
                    let is_new = counted.rows.insert(id);
                    match self.once.filter(|_| !is_new) {
                        Some(what) => return Err(twice(what)),
                        None => is_new,
                    }
                }
                _ => true,
            };
            counted.affected += u64::from(is_new);
            new.push(is_new);
            written.push(is_new && action != Some(Action::Delete as i64));
        }
        let more = counted.rows.bytes() - before;
        if more > 0 {
            let grown = match &mut counted.memory {
                Some(memory) => memory.try_grow(more),
                none => {
                    *none = self.ledger.try_reserve(more);
                    none.is_some()
                }
            };
            if !grown {
                return Err(out_of_memory("the ids of the rows that it changes"));
            }
        }
        Ok(Noted { new: BooleanArray::from(new), written: BooleanArray::from(written) })
    }
}

/// A statement would change a row more than once, or one that it has inserted itself.
fn twice(what: &str) -> SqlError {
    let (message, hint) = match what {
        "INSERT" => (
            "ON CONFLICT DO UPDATE cannot affect a row a second time: two rows to be inserted have the same key",
            "let the rows to be inserted have different keys",
        ),
        _ => (
            "MERGE would change a row of the table twice",
            "let no more than one row of the source match each row of the table",
        ),
    };
    SqlError::new(ErrorKind::CardinalityViolation, message).with_hint(hint)
}

fn out_of_memory(what: &str) -> SqlError {
    let message = format!("out of memory: the statement keeps {what}, for which memory is missing");
    SqlError::new(ErrorKind::OutOfMemory, message).with_hint("raise the setting memory_limit")
}

/// A partition of the plan of a change, and where its rows go.
struct Part {
    assignment: Arc<Assignment>,
    changed: Arc<Changed>,
    kept: Arc<Kept>,
    partition: usize,
    writer: PartitionWriter,
}

impl Part {
    async fn write(mut self, mut stream: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            let values: Vec<usize> = (0..batch.num_columns() - 2).collect();
            let values = batch.project(&values)?;
            let noted = self.changed.note(&batch, || self.assignment.convert(&values))?;
            if self.kept.is_wanted() {
                let new = filter_record_batch(&values, &noted.new)?;
                self.kept.keep(self.partition, self.assignment.convert(&new)?)?;
            }
            if noted.written.true_count() > 0 {
                let written = filter_record_batch(&values, &noted.written)?;
                self.writer.append(self.assignment.convert(&written)?).await?;
            }
        }
        Ok(self.writer.finish().await?)
    }
}

/// Runs a plan that gives nothing but rows to be deleted.
async fn find_changed(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    changed: &Changed,
) -> Result<()> {
    let mut stream = execute_stream(Arc::clone(plan), Arc::clone(context))?;
    while let Some(batch) = stream.next().await {
        changed.note(&batch?, || Err(internal("rows without values are inserted")))?;
    }
    Ok(())
}
