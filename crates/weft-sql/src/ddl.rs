//! CREATE and DROP.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use futures::FutureExt;
use weft_store::{Change, Column, Snapshot, Table, TableSchema};

use crate::access::{Need, acl};
use crate::assign::Assignment;
use crate::catalog::{StatementCatalog, relation_name};
use crate::char_length::column_limit;
use crate::comments;
use crate::constraints;
use crate::definitions::Kind;
use crate::dependents::dependents;
use crate::enums::{adopt_kinds, has_enum_within};
use crate::error::{ErrorKind, Result, SqlError, internal, occurs_twice};
use crate::file_places::Load;
use crate::keys::{self, Checks};
use crate::postgres::Surroundings;
use crate::result_types::result_schema;
use crate::returning::Kept;
use crate::run::{Run, Started};
use crate::schemas::check_place;
use crate::sequences::{self, OwnedSequences, drop_owned};
use crate::spill_files::task_context;
use crate::statement_option::StatementOption;
use crate::storage_parameters;
use crate::text_kinds::{TextKind, column_of};
use crate::types::stored_type;
use crate::uuids::{has_uuid, is_uuid};
use crate::write::write_rows;

/// What happens to the views that need what is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// They stay, and do not work until there is something of the name again.
    Leave,
    /// CASCADE: they are dropped as well.
    Drop,
    /// RESTRICT: nothing is dropped if there are any.
    Refuse,
}

impl Dependents {
    /// What is to be done with the views that need what is dropped.
    fn changes(self, snapshot: &Snapshot, dropped: &[String]) -> Result<Vec<Change>> {
        if self == Dependents::Leave {
            return Ok(Vec::new());
        }
        let mut views: Vec<String> =
            dropped.iter().flat_map(|name| dependents(snapshot, name)).collect();
        views.retain(|view| !dropped.contains(view));
        views.sort_unstable();
        views.dedup();
        match (self, views.first()) {
            (Dependents::Refuse, Some(_)) => {
                let message = format!("needed by these views: {}", views.join(", "));
                Err(SqlError::new(ErrorKind::Semantic, message)
                    .with_hint("drop them first, or write CASCADE"))
            }
            _ => Ok(views
                .into_iter()
                .flat_map(|name| {
                    let mut changes = comments::dropped(snapshot, &name);
                    changes.extend(acl::dropped(snapshot, Kind::Access, &name));
                    changes.push(Change::DropView { name });
                    changes
                })
                .collect()),
        }
    }
}

impl Run {
    /// CREATE TABLE, with or without a query.
    pub(crate) async fn create_table(
        &self,
        catalog: &StatementCatalog,
        create: ast::CreateTable,
    ) -> Result<Started> {
        let mut create = create;
        let name = relation_name(&create.name)?;
        catalog.check_own(&name)?;
        check_place(catalog.snapshot(), &create.name, &name)?;
        let sequences = OwnedSequences::take(catalog.snapshot(), &mut create, &name)?;
        let promised = keys::take_constraints(&mut create)?;
        storage_parameters::take(&mut create)?;
        constraints::check_table(&create)?;
        let tag = if create.query.is_some() { "CREATE TABLE AS" } else { "CREATE TABLE" };
        if let Some(started) = exists(catalog, &name, create.or_replace, create.if_not_exists, tag)?
        {
            return Ok(started);
        }
        catalog.access().check_make(catalog.snapshot(), &name)?;
        let declared = create.columns.iter().map(Declared::of).collect::<Result<Vec<_>>>()?;
        let has_query = create.query.is_some();
        let or_replace = create.or_replace;
        let state = catalog.planning_state();
        let statement = DfStatement::Statement(Box::new(ast::Statement::CreateTable(create)));
        let plan = catalog.plan(&state, statement).await?;
        let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(plan)) = plan else {
            return Err(internal("CREATE TABLE is planned as something else"));
        };
        let mut schema = match has_query {
            true => table_schema(name, &result_schema(&state, &plan.input)?, declared)?,
            false => table_schema(name, plan.input.schema().as_arrow(), declared)?,
        };
        adopt_kinds(catalog.snapshot(), &mut schema)?;
        let promised = keys::resolve(catalog, &mut schema, promised)?;
        check_defaults(catalog, &schema, &sequences.names()).await?;
        let checks = Checks::of(catalog, &schema, &promised.checks).await?;
        let replaced = catalog.snapshot().table(&schema.name);
        let mut changes = match &replaced {
            Some(table) => drop_owned(catalog.snapshot(), &[table.as_ref()])?,
            None => Vec::new(),
        };
        changes.extend(comments::dropped(catalog.snapshot(), &schema.name));
        changes.extend(catalog.access().made(catalog.snapshot(), Kind::Access, &schema.name));
        changes.extend(sequences.changes());
        let run = self.clone();
        let work = async move {
            changes.push(Change::CreateTable { schema: schema.clone(), or_replace });
            changes.extend(promised.changes(&schema.name));
            if !has_query {
                run.commit(changes).await?;
                return Ok(None);
            }
            let load = Load { state: &state, plan: &plan.input, schema: &schema, checks: &checks };
            let loaded = async {
                let groups = run.write(&state, &plan.input, (&schema, checks.clone())).await?;
                let (table, rows) = (schema.name.clone(), groups.rows());
                changes.push(Change::Append { table, expected: None, groups });
                run.commit(changes).await.map(|()| Some(rows))
            };
            match loaded.await {
                Err(error) => Err(load.explain(error).await),
                loaded => loaded,
            }
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// CREATE VIEW: the query's text is kept.
    pub(crate) async fn create_view(
        &self,
        catalog: &StatementCatalog,
        create: ast::CreateView,
    ) -> Result<Started> {
        constraints::check_view(&create)?;
        let name = relation_name(&create.name)?;
        catalog.check_own(&name)?;
        check_place(catalog.snapshot(), &create.name, &name)?;
        let tag = "CREATE VIEW";
        if let Some(started) = exists(catalog, &name, create.or_replace, create.if_not_exists, tag)?
        {
            return Ok(started);
        }
        let access = catalog.access();
        access.check_make(catalog.snapshot(), &name)?;
        let sql = match create.columns.as_slice() {
            [] => create.query.to_string(),
            columns => {
                let columns: Vec<_> =
                    columns.iter().map(|column| column.name.to_string()).collect();
                format!("SELECT * FROM ({}) AS v({})", create.query, columns.join(", "))
            }
        };
        let or_replace = create.or_replace;
        // Planned for its errors only: as it was written, so that they have places, and as it will be
        // read, by its own name.
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(create.query)));
        catalog.plan(&catalog.planning_state(), statement).await?;
        let view = catalog.with_view(&name, &sql).view(&name, &sql).await?;
        let mut names = HashSet::new();
        let schema = view.schema();
        if let Some(twice) = schema.fields().iter().find(|field| !names.insert(field.name())) {
            return Err(occurs_twice(twice.name()));
        }
        let mut changes = comments::dropped(catalog.snapshot(), &name);
        // One that is replaced keeps its owner, with whose rights it is read, and the rights on it.
        if catalog.snapshot().view(&name).is_none() {
            changes.extend(access.made(catalog.snapshot(), Kind::Access, &name));
        }
        changes.push(Change::CreateView { name, sql, or_replace });
        Ok(self.change(tag, changes))
    }

    /// DROP TABLE and DROP VIEW.
    pub(crate) fn drop_relations(
        &self,
        catalog: &StatementCatalog,
        (object, names): (ast::ObjectType, &[ast::ObjectName]),
        if_exists: bool,
        dependents: Dependents,
    ) -> Result<Started> {
        let is_table = match object {
            ast::ObjectType::Index => return self.drop_indexes(catalog, names, if_exists),
            ast::ObjectType::Table => true,
            ast::ObjectType::View => false,
            ast::ObjectType::Schema => {
                return self.drop_schemas(catalog, names, if_exists, dependents);
            }
            ast::ObjectType::Type if dependents == Dependents::Drop => {
                return Err(SqlError::not_supported("DROP TYPE … CASCADE")
                    .with_hint("drop the columns of the type first, or give them another type"));
            }
            ast::ObjectType::Type => return self.drop_types(catalog, names, if_exists),
            ast::ObjectType::Sequence => {
                return self.drop_sequences(catalog, names, if_exists, dependents);
            }
            other => return Err(SqlError::not_supported(format!("DROP {other}"))),
        };
        let snapshot = catalog.snapshot();
        let mut changes = Vec::new();
        let mut dropped = Vec::new();
        for name in names {
            let name = relation_name(name)?;
            match (is_table, snapshot.table(&name), snapshot.view(&name)) {
                (true, Some(table), _) => {
                    let expected = Some(table.id());
                    changes.push(Change::DropTable { expected, name: name.clone() });
                }
                (false, _, Some(_)) => changes.push(Change::DropView { name: name.clone() }),
                (true, None, Some(_)) => {
                    return Err(wrong_kind(&name, "a view", "DROP VIEW"));
                }
                (false, Some(_), None) => {
                    return Err(wrong_kind(&name, "a table", "DROP TABLE"));
                }
                (_, None, None) if if_exists => continue,
                (true, None, None) => return Err(catalog.unknown(&name)),
                (false, None, None) => {
                    let message = format!("view {name} does not exist");
                    return Err(SqlError::new(ErrorKind::Semantic, message).about(name));
                }
            }
            catalog.access().check(snapshot, &name, Need::Owner)?;
            dropped.push(name);
        }
        changes.extend(dependents.changes(snapshot, &dropped)?);
        changes.extend(dropped.iter().flat_map(|name| comments::dropped(snapshot, name)));
        let lists = dropped.iter().flat_map(|name| acl::dropped(snapshot, Kind::Access, name));
        changes.extend(lists);
        if is_table {
            let tables: Vec<_> = dropped.iter().filter_map(|name| snapshot.table(name)).collect();
            let tables: Vec<&Table> = tables.iter().map(Arc::as_ref).collect();
            changes.extend(drop_owned(snapshot, &tables)?);
            keys::drop_references(
                snapshot,
                &dropped,
                dependents == Dependents::Drop,
                &mut changes,
            )?;
        }
        let tag = if is_table { "DROP TABLE" } else { "DROP VIEW" };
        let run = self.clone();
        let work = async move {
            if !changes.is_empty() {
                run.commit(changes).await?;
            }
            Ok(None)
        };
        Ok(Started::Command { tag, work: work.boxed() })
    }

    /// Runs a plan and writes its rows for a table with this schema, all of which satisfy the conditions.
    pub(crate) async fn write(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        table: (&TableSchema, Checks),
    ) -> Result<weft_store::WrittenGroups> {
        self.write_kept(state, plan, table, &Arc::new(Kept::new(None))).await
    }

    /// As [`Run::write`]; rows that are to be returned are kept as well.
    pub(crate) async fn write_kept(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        (schema, checks): (&TableSchema, Checks),
        kept: &Arc<Kept>,
    ) -> Result<weft_store::WrittenGroups> {
        let mut state = state.clone();
        // The rows are to keep their order, as far as they have one.
        state.config_mut().options_mut().optimizer.enable_round_robin_repartition = false;
        let physical = self.physical(&state, plan).await?;
        let assignment = Assignment::new(&state, schema, &physical.schema())?.with_checks(checks);
        let store = self.session.engine().store();
        let context = task_context(&state);
        write_rows(store, &self.control, schema, assignment, (&physical, &context), kept).await
    }
}

/// What to do if a table or view of this name exists: nothing, an error, or go on.
fn exists(
    catalog: &StatementCatalog,
    name: &str,
    or_replace: bool,
    if_not_exists: bool,
    tag: &'static str,
) -> Result<Option<Started>> {
    let snapshot = catalog.snapshot();
    let there = match (snapshot.table(name), snapshot.view(name)) {
        (Some(_), _) => "table",
        (None, Some(_)) => "view",
        (None, None) => return Ok(None),
    };
    if or_replace && if_not_exists {
        return Err(SqlError::new(
            ErrorKind::Semantic,
            "OR REPLACE and IF NOT EXISTS exclude each other",
        ));
    }
    let same_kind = (there == "view") == (tag == "CREATE VIEW");
    if or_replace && same_kind {
        return Ok(None);
    }
    if if_not_exists {
        return Ok(Some(Started::Command { tag, work: async { Ok(None) }.boxed() }));
    }
    let error = SqlError::new(ErrorKind::AlreadyExists, format!("{there} {name} exists already"));
    Err(match same_kind {
        true => error.with_hint("write CREATE OR REPLACE, or IF NOT EXISTS"),
        false => error.with_hint(format!("drop it first: DROP {} {name}", there.to_uppercase())),
    })
}

fn wrong_kind(name: &str, kind: &str, write: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("{name} is {kind}"))
        .about(name)
        .with_hint(format!("write {write} {name}"))
}

/// What a definition says of a column beside its name, its type and NOT NULL.
struct Declared {
    default: Option<String>,
    max_length: Option<u32>,
}

impl Declared {
    fn of(column: &ast::ColumnDef) -> Result<Declared> {
        let name = &column.name.value;
        let max_length = match TextKind::named(&column.data_type) {
            Some(kind) => kind.length(),
            None => column_limit(&column.data_type).map_err(|error| error.about(name))?,
        };
        Ok(Declared { default: constraints::default_of(column), max_length })
    }
}

/// Columns as they are declared, and the constraints that are declared with them.
///
/// # Errors
/// What is wrong with the definitions.
pub(crate) async fn declared_columns(
    catalog: &StatementCatalog,
    columns: Vec<ast::ColumnDef>,
) -> Result<(Vec<Column>, Vec<keys::Declared>)> {
    let name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', "new columns")]);
    let mut create = CreateTableBuilder::new(name).columns(columns).build();
    let promised = keys::take_constraints(&mut create)?;
    constraints::check_table(&create)?;
    let declared = create.columns.iter().map(Declared::of).collect::<Result<Vec<_>>>()?;
    let state = catalog.planning_state();
    let statement = DfStatement::Statement(Box::new(ast::Statement::CreateTable(create)));
    let plan = catalog.plan(&state, statement).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(plan)) = plan else {
        return Err(internal("CREATE TABLE is planned as something else"));
    };
    let schema = table_schema(String::new(), plan.input.schema().as_arrow(), declared)?;
    Ok((schema.columns, promised))
}

fn table_schema(name: String, schema: &Schema, declared: Vec<Declared>) -> Result<TableSchema> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    // A query's columns may hold NULL, whatever the optimizer knows about them.
    let is_declared = declared.len() == schema.fields().len();
    let mut declared = declared.into_iter();
    for field in schema.fields() {
        if field.name().is_empty() {
            let message = "the name of a column cannot be empty";
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        if is_declared && has_uuid(field) && !is_uuid(field) {
            let message = format!("column {}: UUID within another type", field.name());
            return Err(SqlError::not_supported(message)
                .about(field.name())
                .with_hint("write VARCHAR in its place: VARCHAR[]"));
        }
        let data_type = match stored_type(field.data_type()) {
            // A column without values may be of texts.
            DataType::Null => DataType::Utf8View,
            other => other,
        };
        if is_declared && has_enum_within(field.data_type()) {
            let message = format!("column {}: an ENUM within another type", field.name());
            return Err(SqlError::not_supported(message)
                .about(field.name())
                .with_hint("write VARCHAR in its place: VARCHAR[]"));
        }
        let like = column_of(field);
        let (default, max_length) = match declared.next() {
            Some(declared) => (declared.default, declared.max_length),
            None => (None, like.max_length),
        };
        columns.push(Column {
            name: field.name().clone(),
            data_type,
            nullable: !is_declared || field.is_nullable(),
            default,
            max_length,
            kind: like.kind,
        });
    }
    Ok(TableSchema { name, columns })
}

/// Checks that the defaults have values that fit their columns. The sequences in `made` are made with the table.
///
/// # Errors
/// The first one that does not work.
pub(crate) async fn check_defaults(
    catalog: &StatementCatalog,
    schema: &TableSchema,
    made: &[String],
) -> Result<()> {
    sequences::check_defaults(catalog.snapshot(), schema, made)?;
    let mut state = catalog.planning_state();
    let told = &mut state.config_mut().options_mut().extensions;
    if let Some(StatementOption(around)) = told.get_mut::<StatementOption<Surroundings>>() {
        around.is_trial = true;
        // Functions are told of the options that were there when the statement was marked.
        state.mark_start_execution();
    }
    for column in &schema.columns {
        let Some(sql) = &column.default else { continue };
        check_default(&state, column, sql).await.map_err(|error| {
            let name = &column.name;
            // What does not fit is told of the column already.
            let prefix = format!("column {name} of table {name}: ");
            let problem = error.message().strip_prefix(&prefix).unwrap_or(error.message());
            let message = format!("the default of column {name} does not work: {problem}");
            SqlError::new(error.kind(), message).about(name)
        })?;
    }
    Ok(())
}

async fn check_default(state: &SessionState, column: &Column, sql: &str) -> Result<()> {
    let value = state.create_logical_expr(sql, &DFSchema::empty())?;
    let plan = LogicalPlanBuilder::empty(true).project([value])?.build()?;
    let plan = state.create_physical_plan(&plan).await?;
    // A column that must have a value may still have none by default.
    let columns = vec![Column { nullable: true, ..column.clone() }];
    let schema = TableSchema { name: column.name.clone(), columns };
    let assignment = Assignment::new(state, &schema, &plan.schema())?;
    for batch in collect(plan, task_context(state)).await? {
        assignment.convert(&batch)?;
    }
    Ok(())
}
