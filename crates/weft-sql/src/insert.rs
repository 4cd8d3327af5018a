//! INSERT: its clauses, the values of DEFAULT, and which column gets what. What becomes of rows whose keys the table has is in
//! `insert_conflict.rs`.
//!
//! The rows of a VALUES list are planned with the table's types. A query is planned as it stands, and its
//! rows are assigned to the columns as they are written (`assign.rs`).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::{Column as ColumnName, DFSchema, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use weft_store::{Change, Table};

use crate::access::{Need, Rights};
use crate::catalog::{StatementCatalog, relation_name};
use crate::conflict_target::Resolution;
use crate::copy_from::target_columns;
use crate::error::{ErrorKind, Position, Result, SqlError, internal};
use crate::file_places::Load;
use crate::insert_conflict::Proposal;
use crate::insert_diagnosis;
use crate::keys::Checks;
use crate::returning::{Kept, Returning};
use crate::run::{Run, Started};
use crate::sequences::is_always;
use crate::statement::query_of;
use crate::text::DIALECT;

impl Run {
    /// INSERT.
    pub(crate) async fn insert(
        &self,
        catalog: &StatementCatalog,
        insert: ast::Insert,
    ) -> Result<Started> {
        let Opened { name, table, alias, resolution, returning, insert } =
            Opened::of(catalog, insert)?;
        let state = catalog.planning_state();
        let planned = plan(catalog, &state, &table, &insert).await;
        let checks = Checks::of(catalog, table.schema(), &table.constraints().checks).await?;
        if let Some(resolution) = &resolution {
            resolution.arbiters(&table)?;
        }
        let (run, catalog) = (self.clone(), catalog.clone());
        let work = move |kept: Arc<Kept>| async move {
            if let Some(resolution) = resolution {
                let proposal = Proposal {
                    catalog: &catalog,
                    table: &table,
                    alias: &alias,
                    resolution: &resolution,
                };
                return run.insert_resolved(proposal, (&state, planned), &insert, &kept).await;
            }
            let written = match &planned {
                Ok(plan) => {
                    let rows = (table.schema(), checks.clone());
                    run.write_kept(&state, plan, rows, &kept).await
                }
                Err(error) => Err(error.clone()),
            };
            let plan = planned.as_ref().ok().filter(|_| !insert.is_values);
            let (state, schema, checks) = (&state, table.schema(), &checks);
            let load = plan.map(|plan| Load { state, plan, schema, checks });
            let groups = match (written, &load) {
                (Err(error), _) if error.kind() == ErrorKind::Data && insert.is_values => {
                    let found = insert_diagnosis::explain(&catalog, state, &insert.ast).await;
                    return Err(found.unwrap_or(error));
                }
                (Err(error), Some(load)) => return Err(load.explain(error).await),
                (written, _) => written?,
            };
            let rows = groups.rows();
            if rows > 0 {
                let expected = Some(table.id());
                let change = Change::Append { table: name, expected, groups };
                match (run.commit(vec![change]).await, &load) {
                    (Err(error), Some(load)) => return Err(load.explain(error).await),
                    (committed, _) => committed?,
                }
            }
            Ok(rows)
        };
        self.returning("INSERT", returning, work).await
    }

    /// INSERT of rows whose keys the table may have.
    async fn insert_resolved(
        &self,
        proposal: Proposal<'_>,
        (state, planned): (&SessionState, Result<LogicalPlan>),
        insert: &Prepared,
        kept: &Arc<Kept>,
    ) -> Result<u64> {
        let source = planned.as_ref().ok().cloned();
        let inserted = async {
            let planned = (state, planned?);
            let planned = self.plan_resolved(&proposal, planned, insert.is_values).await?;
            self.carry_out(planned, kept).await
        };
        let error = match inserted.await {
            Ok(rows) => return Ok(rows),
            Err(error) => error,
        };
        match (error.kind(), source) {
            (ErrorKind::Data, _) if insert.is_values => {
                let found = insert_diagnosis::explain(proposal.catalog, state, &insert.ast).await;
                Err(found.unwrap_or(error))
            }
            (ErrorKind::Data, Some(plan)) => {
                let found = self.first_misfit((state, &plan), proposal.table).await;
                Err(found.unwrap_or(error))
            }
            // A row that another statement has inserted meanwhile may have the key.
            (ErrorKind::UniqueViolation, _) => {
                let name = &proposal.table.schema().name;
                let now = self.session.engine().store().snapshot().table(name);
                match now.is_some_and(|now| now.is_as(proposal.table)) {
                    true => Err(error),
                    false => Err(SqlError::new(ErrorKind::Conflict, error.message())),
                }
            }
            _ => Err(error),
        }
    }
}

/// An INSERT taken apart.
pub(crate) struct Opened {
    name: String,
    pub(crate) table: Arc<Table>,
    /// The name by which the statement calls the table.
    pub(crate) alias: ast::Ident,
    pub(crate) resolution: Option<Resolution>,
    pub(crate) returning: Option<Returning>,
    pub(crate) insert: Prepared,
}

impl Opened {
    /// # Errors
    /// What is wrong with the clauses.
    pub(crate) fn of(catalog: &StatementCatalog, mut insert: ast::Insert) -> Result<Opened> {
        let resolution = Resolution::take(&mut insert)?;
        let returning = insert.returning.take();
        let alias = insert.table_alias.take().map(|alias| alias.alias);
        let (name, own) = table_of(&insert)?;
        let alias = alias.unwrap_or(own);
        let need = Need::Rights(rights(resolution.as_ref(), returning.is_some()));
        let table = catalog.stored(&name, need)?;
        let returning = returning.map(|items| Returning::new(catalog, &table, &alias, items));
        let returning = returning.transpose()?;
        let insert = prepare(&table, insert, &always(catalog, &table)?)?;
        // Without a unique key there are no conflicts.
        let resolution = match resolution {
            Some(Resolution::Nothing(None)) if !table.indexes().any(|of| of.is_unique) => None,
            other => other,
        };
        Ok(Opened { name, table, alias, resolution, returning, insert })
    }
}

/// The plan of the rows that an INSERT inserts, and the columns that it returns, if it returns rows.
///
/// # Errors
/// What is wrong with the statement.
pub(crate) async fn described(
    catalog: &StatementCatalog,
    insert: ast::Insert,
) -> Result<(LogicalPlan, Option<SchemaRef>)> {
    let opened = Opened::of(catalog, insert)?;
    let state = catalog.planning_state();
    let plan = plan(catalog, &state, &opened.table, &opened.insert).await?;
    let columns = match &opened.returning {
        Some(items) => Some(items.schema().await?),
        None => None,
    };
    Ok((plan, columns))
}

/// The query that feeds an INSERT, to be explained.
///
/// # Errors
/// What is wrong with the statement.
pub(crate) fn source_of(catalog: &StatementCatalog, insert: ast::Insert) -> Result<ast::Query> {
    let source = Opened::of(catalog, insert)?.insert.ast.source;
    source.map(|query| *query).ok_or_else(|| internal("an INSERT has no source"))
}

/// An INSERT whose columns are known and whose DEFAULTs have become expressions.
pub(crate) struct Prepared {
    pub(crate) ast: ast::Insert,
    /// The numbers of the columns that get values.
    pub(crate) targets: Vec<usize>,
    /// Whether the source is a list of rows, and no query.
    pub(crate) is_values: bool,
}

/// The rights on the table that an INSERT needs, by what becomes of rows whose keys the table has.
pub(crate) fn rights(resolution: Option<&Resolution>, returns_rows: bool) -> Rights {
    let of_rows = match resolution {
        None | Some(Resolution::Nothing(None)) => Rights::NONE,
        Some(Resolution::Nothing(Some(_))) => Rights::SELECT,
        Some(Resolution::Replace) => Rights::DELETE | Rights::SELECT,
        Some(Resolution::Update(..)) => Rights::UPDATE | Rights::SELECT,
    };
    let returned = if returns_rows { Rights::SELECT } else { Rights::NONE };
    Rights::INSERT | of_rows | returned
}

/// The name of the table, and the last part of it as it was written.
fn table_of(insert: &ast::Insert) -> Result<(String, ast::Ident)> {
    check_clauses(insert)?;
    if let ast::TableObject::TableName(name) = &insert.table
        && let Some(last) = name.0.last().and_then(ast::ObjectNamePart::as_ident)
    {
        return Ok((relation_name(name)?, last.clone()));
    }
    Err(SqlError::not_supported("INSERT into anything but a table"))
}

/// Refuses what is not carried out.
fn check_clauses(insert: &ast::Insert) -> Result<()> {
    if insert.output.is_some() {
        return Err(SqlError::not_supported("INSERT … OUTPUT").with_hint("write RETURNING"));
    }
    if insert.overwrite {
        return Err(SqlError::not_supported("INSERT OVERWRITE")
            .with_hint("write CREATE OR REPLACE TABLE … AS"));
    }
    let others = [
        ("INSERT … SET", !insert.assignments.is_empty()),
        ("INSERT with an alias of its rows", insert.insert_alias.is_some()),
        ("INSERT … PARTITION", insert.partitioned.is_some() || !insert.after_columns.is_empty()),
        ("INSERT with a priority", insert.priority.is_some()),
        ("INSERT … SETTINGS", insert.settings.is_some()),
        ("INSERT … FORMAT", insert.format_clause.is_some()),
        (
            "INSERT into several tables",
            insert.multi_table_insert_type.is_some() || !insert.multi_table_into_clauses.is_empty(),
        ),
    ];
    match others.iter().find(|(_, is_there)| *is_there) {
        Some((what, _)) => Err(SqlError::not_supported(what)
            .with_hint("write INSERT INTO table (columns) VALUES … or SELECT …")),
        None => Ok(()),
    }
}

/// The numbers of the columns that are GENERATED ALWAYS AS IDENTITY.
pub(crate) fn always(catalog: &StatementCatalog, table: &Table) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for (number, column) in table.schema().columns.iter().enumerate() {
        if is_always(catalog.snapshot(), column)? {
            found.push(number);
        }
    }
    Ok(found)
}

/// A column that only its sequence gives values.
pub(crate) fn given_always(table: &Table, column: usize) -> SqlError {
    let name = &table.schema().columns[column].name;
    let message =
        format!("column {name} is GENERATED ALWAYS AS IDENTITY: its sequence gives its values");
    SqlError::new(ErrorKind::Semantic, message)
        .about(name)
        .with_hint("leave the column out, or write DEFAULT for its value")
}

fn prepare(table: &Table, mut insert: ast::Insert, always: &[usize]) -> Result<Prepared> {
    let mut names = Vec::with_capacity(insert.columns.len());
    for name in &insert.columns {
        match name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(ident)] => names.push(ident.clone()),
            _ => {
                let message = format!("{name} is no name of a column");
                return Err(SqlError::new(ErrorKind::Semantic, message));
            }
        }
    }
    let targets = target_columns(table, names)?;
    // As the table has them.
    for (name, target) in insert.columns.iter_mut().zip(&targets) {
        let column = &table.schema().columns[*target].name;
        *name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', column)]);
    }
    let mut source = match insert.source.take() {
        Some(source) => source,
        None => default_values(targets.len()),
    };
    let is_plain = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none()
        && source.pipe_operators.is_empty();
    let is_values = match source.body.as_mut() {
        ast::SetExpr::Values(values) if is_plain => {
            fill_defaults(table, &targets, values, always)?;
            true
        }
        _ => match targets.iter().find(|target| always.contains(target)) {
            Some(target) => return Err(given_always(table, *target)),
            None => false,
        },
    };
    insert.source = Some(source);
    Ok(Prepared { ast: insert, targets, is_values })
}

/// `VALUES (DEFAULT, …)`
fn default_values(columns: usize) -> Box<ast::Query> {
    let default = || ast::Expr::Identifier(ast::Ident::new("DEFAULT"));
    let row = ast::Parens::with_empty_span((0..columns).map(|_| default()).collect());
    let values = ast::Values { explicit_row: false, value_keyword: false, rows: vec![row] };
    Box::new(query_of(ast::SetExpr::Values(values)))
}

/// Puts the columns' defaults in place of DEFAULT, and checks that rows have as many values as columns
/// are filled.
fn fill_defaults(
    table: &Table,
    targets: &[usize],
    values: &mut ast::Values,
    always: &[usize],
) -> Result<()> {
    let columns = &table.schema().columns;
    for (number, row) in values.rows.iter_mut().enumerate() {
        if row.content.len() != targets.len() {
            let start = row.opening_token.0.span.start;
            let message = format!(
                "row {} has {}, but {} of table {} are to be filled",
                number + 1,
                counted(row.content.len(), "value"),
                counted(targets.len(), "column"),
                table.schema().name,
            );
            let error = SqlError::new(ErrorKind::Semantic, message);
            return Err(match start.line {
                0 => error,
                line => error.with_position(Position { line, column: start.column }),
            });
        }
        for (value, target) in row.content.iter_mut().zip(targets) {
            if is_default(value) {
                *value = match &columns[*target].default {
                    Some(sql) => ast::Expr::Nested(Box::new(parse_default(sql)?)),
                    None => ast::Expr::value(ast::Value::Null),
                };
            } else if always.contains(target) {
                return Err(given_always(table, *target));
            }
        }
    }
    Ok(())
}

fn is_default(value: &ast::Expr) -> bool {
    matches!(value, ast::Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

fn parse_default(sql: &str) -> Result<ast::Expr> {
    let parsed = Parser::new(&DIALECT).try_with_sql(sql).and_then(|mut text| text.parse_expr());
    parsed.map_err(|error| internal(&format!("the default {sql} does not parse: {error}")))
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// The plan whose rows are written: a column for each of the table's.
async fn plan(
    catalog: &StatementCatalog,
    state: &SessionState,
    table: &Table,
    insert: &Prepared,
) -> Result<LogicalPlan> {
    if insert.is_values {
        return plan_values(catalog, state, &insert.ast).await;
    }
    let Some(source) = insert.ast.source.clone() else {
        return Err(internal("an INSERT has no source"));
    };
    let statement = DfStatement::Statement(Box::new(ast::Statement::Query(source)));
    let source = catalog.plan(state, statement).await?;
    let found = source.schema().fields().len();
    if found != insert.targets.len() {
        let message = format!(
            "the query returns {}, but {} of table {} are to be filled",
            counted(found, "column"),
            counted(insert.targets.len(), "column"),
            table.schema().name,
        );
        return Err(SqlError::new(ErrorKind::Semantic, message)
            .with_hint("name the columns to fill: INSERT INTO table (a, b) SELECT …"));
    }
    let defaults = catalog.defaults(table)?;
    let schema = table.arrow_schema();
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (number, field) in schema.fields().iter().enumerate() {
        let expr = match insert.targets.iter().position(|target| *target == number) {
            Some(at) => Expr::Column(ColumnName::from(source.schema().qualified_field(at))),
            None => match defaults.get(field.name()) {
                Some(default) => default.clone(),
                None => lit(ScalarValue::Null),
            }
            .cast_to(field.data_type(), &DFSchema::empty())?,
        };
        exprs.push(expr.alias(field.name()));
    }
    Ok(LogicalPlanBuilder::from(source).project(exprs)?.build()?)
}

/// The plan of an INSERT of a list of rows: the values have the table's types.
///
/// # Errors
/// What is wrong with the values.
pub(crate) async fn plan_values(
    catalog: &StatementCatalog,
    state: &SessionState,
    insert: &ast::Insert,
) -> Result<LogicalPlan> {
    let statement = ast::Statement::Insert(insert.clone());
    let plan = catalog.plan(state, DfStatement::Statement(Box::new(statement))).await?;
    match plan {
        LogicalPlan::Dml(insert) => Ok(insert.input.as_ref().clone()),
        _ => Err(internal("INSERT is planned as something else")),
    }
}
