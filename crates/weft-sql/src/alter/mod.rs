//! ALTER TABLE, ALTER VIEW and ALTER INDEX.
//!
//! All operations of a statement are put together (`target.rs`) and committed as one change: others see the table as it was or as it is.
//! Names, defaults, and columns that go change the directory; new columns, other types and lengths have all rows written anew. What
//! is newly promised of the rows that stay (`promises.rs`) is checked by reading them. Views that need what goes keep the statement from
//! being carried out, or go as well (`views.rs`).

mod columns;
mod constraints;
mod mentions;
mod rename;
mod target;
mod views;

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::{FutureExt, StreamExt};
use weft_store::{Alteration, Change, Table, TableSchema};

use crate::access::{Need, acl};
use crate::assign::Assignment;
use crate::catalog::{StatementCatalog, relation_name};
use crate::comments;
use crate::ddl::check_defaults;
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::keys::{self, Checks};
use crate::run::{Run, Started};
use crate::sequences::released;
use crate::spill_files::task_context;
use crate::statement::parse_query;
use target::{Target, Value};

/// The name of the table's rows in the query that computes its new rows.
const ROWS: &str = "rows of the table";

/// What has to be done with the rows of a table that is altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Nothing.
    None,
    /// They have to satisfy what is promised now.
    Check,
    /// They are written anew.
    Write,
}

/// An ALTER TABLE that is planned.
struct Planned {
    table: Arc<Table>,
    schema: TableSchema,
    origins: Vec<Option<usize>>,
    pass: Pass,
    state: SessionState,
    /// The new rows.
    rows: LogicalPlan,
    checks: Checks,
    before: Vec<Change>,
    after: Vec<Change>,
    /// Columns change, or the table must still have the rows that the statement has read.
    is_altered: bool,
    /// The table must still have the rows that the statement has read.
    is_relying: bool,
}

impl Run {
    /// ALTER TABLE.
    pub(crate) async fn alter_table(
        &self,
        catalog: &StatementCatalog,
        alter: ast::AlterTable,
    ) -> Result<Started> {
        let tag = "ALTER TABLE";
        if alter.location.is_some() || alter.on_cluster.is_some() || alter.table_type.is_some() {
            return Err(SqlError::not_supported("ALTER TABLE of another kind of table"));
        }
        let name = relation_name(&alter.name)?;
        let snapshot = catalog.snapshot();
        let has_none = snapshot.table(&name).is_none() && snapshot.view(&name).is_none();
        if alter.if_exists && has_none {
            return Ok(Started::Command { tag, work: async { Ok(None) }.boxed() });
        }
        let table =
            catalog.stored(&name, Need::Owner).map_err(|error| match snapshot.view(&name) {
                Some(_) => {
                    error.with_hint("of a view only the name changes: ALTER VIEW v RENAME TO w")
                }
                None => error,
            })?;
        let mut target = Target::new(catalog, &table);
        for operation in alter.operations {
            target.apply(operation).await?;
        }
        let planned = plan(target).await?;
        let run = self.clone();
        let work = async move { run.carry_out_alteration(planned).await.map(|()| None) };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    async fn carry_out_alteration(&self, planned: Planned) -> Result<()> {
        let Planned { table, schema, origins, pass, state, rows, checks, .. } = planned;
        let written = match pass {
            Pass::None => None,
            Pass::Check => {
                self.check_rows_of(&state, &rows, (&schema, checks)).await?;
                None
            }
            Pass::Write => Some(self.write(&state, &rows, (&schema, checks)).await?),
        };
        let mut changes = planned.before;
        if planned.is_altered {
            let seen = planned.is_relying.then(|| Arc::clone(&table));
            changes.push(Change::AlterTable {
                table: schema.name.clone(),
                expected: Some(table.id()),
                alteration: Alteration { columns: schema, origins, seen, rows: written },
            });
        }
        changes.extend(planned.after);
        match changes.is_empty() {
            true => Ok(()),
            false => self.commit(changes).await,
        }
    }

    /// Reads the rows of a plan, all of which have to fit a table with this schema.
    async fn check_rows_of(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        (schema, checks): (&TableSchema, Checks),
    ) -> Result<()> {
        let physical = self.physical(state, plan).await?;
        let assignment = Assignment::new(state, schema, &physical.schema())?.with_checks(checks);
        let mut stream = execute_stream(physical, task_context(state))?;
        while let Some(batch) = stream.next().await {
            assignment.convert(&batch?)?;
        }
        Ok(())
    }
}

/// Finds out what all operations together come to.
async fn plan(target: Target<'_>) -> Result<Planned> {
    let (catalog, table) = (target.catalog, Arc::clone(target.table));
    let mut schema = target.schema();
    let kept = target.kept_indexes();
    let taken = target.taken_names();
    let promised = keys::resolve_more(catalog, &mut schema, target.declared, (&kept, taken))?;
    check_columns(&schema)?;
    check_defaults(catalog, &changed_defaults(&schema, table.schema()), &[]).await?;
    let old = table.schema();
    let origins: Vec<Option<usize>> = target.columns.iter().map(|column| column.origin).collect();
    let origin = |number: usize| origins[number].map(|origin| &old.columns[origin]);
    let is_stricter =
        schema.columns.iter().enumerate().any(|(number, column)| {
            origin(number).is_some_and(|old| old.nullable && !column.nullable)
        });
    let is_written = target.columns.iter().any(|column| !matches!(column.value, Value::Kept));
    let pass = match (table.rows(), is_written) {
        (0, _) => Pass::None,
        (_, true) => Pass::Write,
        (_, false) if is_stricter || !promised.checks.is_empty() => Pass::Check,
        (_, false) => Pass::None,
    };
    // All conditions have to work with the columns as they will be; rows are put to them if their values change.
    let all = [target.checks.as_slice(), promised.checks.as_slice()].concat();
    let all = Checks::of(catalog, &schema, &all).await?;
    let checks = match pass {
        Pass::Write => all,
        _ => Checks::of(catalog, &schema, &promised.checks).await?,
    };
    let mut before = target.before;
    if target.is_losing {
        let views = views::needing(catalog, &table, &schema).await?;
        before.extend(views::changes(
            catalog.snapshot(),
            (&schema.name, views),
            target.is_cascading,
        )?);
    }
    let mut after = target.after;
    after.extend(promised.changes(&schema.name));
    after.extend(released(catalog.snapshot(), old, &schema)?);
    let comments =
        comments::altered(catalog.snapshot(), (old, &schema), &origins, target.renamed.as_deref());
    after.extend(comments);
    if let Some(to) = target.renamed {
        catalog.access().check_create(catalog.snapshot(), &to)?;
        after.extend(acl::renamed(catalog.snapshot(), &schema.name, &to));
        after.push(Change::RenameTable { from: schema.name.clone(), to });
    }
    let (state, rows) = new_rows(catalog, &table, &target.columns).await?;
    let is_moved = origins.iter().enumerate().any(|(new, old)| *old != Some(new));
    // Of a table without rows, too: it must have none when this is committed.
    let is_relying = is_stricter || is_written || !promised.checks.is_empty();
    let is_altered = is_relying || is_moved || schema.columns != old.columns;
    Ok(Planned {
        table,
        schema,
        origins,
        pass,
        state,
        rows,
        checks,
        before,
        after,
        is_altered,
        is_relying,
    })
}

fn check_columns(schema: &TableSchema) -> Result<()> {
    if schema.columns.is_empty() {
        let message = format!("table {} would have no columns left", schema.name);
        return Err(SqlError::new(ErrorKind::Semantic, message)
            .with_hint(format!("drop it as a whole: DROP TABLE {}", schema.name)));
    }
    Ok(())
}

/// The columns whose defaults are new, or have to fit another type.
fn changed_defaults(schema: &TableSchema, old: &TableSchema) -> TableSchema {
    let is_changed = |column: &&weft_store::Column| {
        !old.columns.iter().any(|old| {
            (&old.default, &old.data_type, old.max_length, &old.kind)
                == (&column.default, &column.data_type, column.max_length, &column.kind)
        })
    };
    let columns = schema.columns.iter().filter(is_changed).cloned().collect();
    TableSchema { name: schema.name.clone(), columns }
}

/// The query for the rows of a table with other columns.
async fn new_rows(
    catalog: &StatementCatalog,
    table: &Arc<Table>,
    columns: &[target::Column],
) -> Result<(SessionState, LogicalPlan)> {
    catalog.bind_with_row_ids(ROWS, table).await?;
    let old = &table.schema().columns;
    let mut items = Vec::with_capacity(columns.len());
    for column in columns {
        let value = match (&column.value, column.origin) {
            (Value::Using(expr), _) => format!("({expr})"),
            (Value::Kept | Value::Cast, Some(origin)) => quoted(&old[origin].name),
            _ => match &column.column.default {
                Some(default) => format!("({default})"),
                None => "NULL".to_owned(),
            },
        };
        items.push(format!("{value} AS \"{}\"", column.column.name.replace('"', "\"\"")));
    }
    // The name by which USING may call the table.
    let name = crate::schemas::parts(catalog.snapshot(), &table.schema().name).1;
    let items = items.join(", ");
    let query = parse_query(&format!("SELECT {items} FROM \"{ROWS}\" AS {}", quoted(name)))?;
    let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
    let state = catalog.planning_state();
    let plan = catalog.plan(&state, statement).await?;
    Ok((state, plan))
}
