//! The catalog as DataFusion sees it, during one statement: tables and views of one snapshot, and
//! files by their names.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, SchemaProvider, TableFunction, TableProvider,
};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DFSchema, DataFusionError, Result as DfResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;
use weft_remote::Remote;
use weft_store::{Snapshot, Table};

use crate::access::{Access, Need};
use crate::attach::AttachedDatabases;
use crate::control::units_of_files;
use crate::definitions::{self, Kind, MARK};
use crate::enums::with_types;
use crate::error::{ErrorKind, Result, SqlError, internal, unknown_table};
use crate::file_functions::{self, BoundFiles};
use crate::files::{FileKind, FileSet, ReadOptions, is_name_of_file, looks_like_file};
use crate::forms;
use crate::held_locks;
use crate::information_schema::{INFORMATION_SCHEMA, InformationSchema};
use crate::kept_blocks;
use crate::letter_case;
use crate::macros;
use crate::once::{evaluated_once, mark};
use crate::postgres::{Connected, PG_CATALOG, PgCatalog, table_named};
use crate::recursive_terms;
use crate::relation::{Relation, RelationTable};
use crate::same_names::name_beside_wildcards;
use crate::schemas::{self, SchemaTables};
use crate::secret_statement;
use crate::statement::{fold, inner_statement, parse_query};
use crate::suggest;
use crate::table::{ScanContext, StoredTable};
use crate::using_joins;
use crate::whole_tables::{take_wildcard, with_all_columns};

/// The name of the only catalog.
pub(crate) const CATALOG: &str = "weft";

/// The name of the only schema.
pub(crate) const SCHEMA: &str = "main";

/// Views inside views, at most.
const VIEW_DEPTH_MAX: usize = 32;

/// The tables, views and files that one statement sees: those of one snapshot.
#[derive(Clone)]
pub(crate) struct StatementCatalog {
    /// The session's state, without a catalog.
    state: Arc<SessionState>,
    snapshot: Arc<Snapshot>,
    /// Relations that the program has handed to the session or the statement, by their names.
    relations: Arc<HashMap<String, Relation>>,
    context: ScanContext,
    /// The views that this one is inside of, from the outermost on.
    within: Vec<String>,
    /// A view that is about to be made, and its query.
    pending: Option<(String, String)>,
    /// Tables in files that the statement reads.
    bound: Arc<BoundFiles>,
    /// The client of the session.
    connected: Connected,
    /// What knows the secrets of the database.
    secrets: Option<Remote>,
    /// Other databases, which are read.
    attached: AttachedDatabases,
    /// What the statement may do: within a view, what the view's owner may.
    access: Access,
}

impl StatementCatalog {
    pub(crate) fn new(
        state: SessionState,
        snapshot: Arc<Snapshot>,
        context: ScanContext,
    ) -> StatementCatalog {
        let (relations, within, pending) = (Arc::default(), Vec::new(), None);
        let state = with_types(state, &snapshot);
        let (state, bound, connected) = (Arc::new(state), Arc::default(), Connected::default());
        let (secrets, attached) = (None, AttachedDatabases::default());
        let access = Access::default();
        StatementCatalog {
            state,
            snapshot,
            relations,
            context,
            within,
            pending,
            bound,
            connected,
            secrets,
            attached,
            access,
        }
    }

    /// The same for statements that may do this.
    pub(crate) fn with_access(self, access: Access) -> StatementCatalog {
        StatementCatalog { access, ..self }
    }

    /// What the statement may do.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Has code go that planning has brought in, where memory is little (`Ledger::trim_code_of_small`).
    pub(crate) fn trim_code(&self) {
        self.context.control.trim_code();
    }

    /// The same for a session of this client.
    pub(crate) fn with_client(self, connected: Connected) -> StatementCatalog {
        StatementCatalog { connected, ..self }
    }

    /// The same with the secrets of the database.
    pub(crate) fn with_secrets(self, secrets: &Remote) -> StatementCatalog {
        StatementCatalog { secrets: Some(secrets.clone()), ..self }
    }

    /// The same with databases that are attached.
    pub(crate) fn with_attached(self, attached: AttachedDatabases) -> StatementCatalog {
        StatementCatalog { attached, ..self }
    }

    /// Checks that what is to have a name is in the database that is open, and in none that is attached.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] that says so.
    pub(crate) fn check_own(&self, name: &str) -> Result<()> {
        self.attached.refusal(name).map_or(Ok(()), Err)
    }

    /// The catalog of an attached database. Nothing of the statement's own is seen in it.
    fn of_attached(&self, name: &str) -> Option<StatementCatalog> {
        let snapshot = self.attached.snapshot(name)?;
        let (relations, within, pending) = (Arc::default(), Vec::new(), None);
        let (bound, secrets, attached) = (Arc::default(), None, AttachedDatabases::default());
        let state = Arc::new(with_types((*self.state).clone(), &snapshot));
        Some(StatementCatalog {
            state,
            snapshot,
            relations,
            within,
            pending,
            bound,
            secrets,
            attached,
            ..self.clone()
        })
    }

    /// The client of the session.
    pub(crate) fn connected(&self) -> &Connected {
        &self.connected
    }

    /// The same with more relations that the program has handed over.
    pub(crate) fn with_relations(self, more: &Arc<HashMap<String, Relation>>) -> StatementCatalog {
        let relations = match (self.relations.is_empty(), more.is_empty()) {
            (_, true) => Arc::clone(&self.relations),
            (true, false) => Arc::clone(more),
            (false, false) => {
                let mut all = self.relations.as_ref().clone();
                all.extend(more.iter().map(|(name, relation)| (name.clone(), relation.clone())));
                Arc::new(all)
            }
        };
        StatementCatalog { relations, ..self }
    }

    /// The relation of this name that the program has handed over. Views do not see it.
    fn relation(&self, name: &str) -> Option<&Relation> {
        self.relations.get(name).filter(|_| self.within.is_empty())
    }

    /// Whether the program has handed over a relation of this name.
    pub(crate) fn has_relation(&self, name: &str) -> bool {
        self.relation(name).is_some()
    }

    /// The same with a view that is about to be made.
    pub(crate) fn with_view(&self, name: &str, sql: &str) -> StatementCatalog {
        StatementCatalog { pending: Some((name.to_owned(), sql.to_owned())), ..self.clone() }
    }

    /// The session's state with this catalog.
    pub(crate) fn planning_state(&self) -> SessionState {
        let mut state = (*self.state).clone();
        state.register_catalog_list(Arc::new(self.clone()));
        state
    }

    /// Plans a statement, in a state that [`StatementCatalog::planning_state`] made.
    ///
    /// # Errors
    /// What is wrong with it, with hints from the catalog.
    pub(crate) async fn plan(
        &self,
        state: &SessionState,
        statement: DfStatement,
    ) -> Result<LogicalPlan> {
        planned(self, state, statement).await.map_err(|error| match error.subject() {
            Some(name) if error.message() == unknown_table(name).message() => self.unknown(name),
            _ => error,
        })
    }

    /// The snapshot that the statement sees.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What the scans of the statement share.
    pub(crate) fn context(&self) -> &ScanContext {
        &self.context
    }

    /// The table of this name, for a statement that needs a right on it.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] if there is none; [`ErrorKind::Forbidden`] without the right.
    pub(crate) fn stored(&self, name: &str, need: Need) -> Result<Arc<Table>> {
        let table = self.snapshot.table(name).ok_or_else(|| match self.snapshot.view(name) {
            Some(_) => SqlError::new(ErrorKind::Semantic, format!("{name} is a view, not a table"))
                .about(name),
            None => self.unknown(name),
        })?;
        self.access.check(&self.snapshot, name, need)?;
        Ok(table)
    }

    /// Checks that the statement may read a table or view of the database.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    pub(crate) fn check_read(&self, name: &str) -> Result<()> {
        self.access.check(&self.snapshot, name, Need::Rights(self.access.read_rights()))
    }

    /// No table or view has this name; perhaps one has a similar one.
    pub(crate) fn unknown(&self, name: &str) -> SqlError {
        if let Some(refusal) = self.attached.refusal(name) {
            return refusal;
        }
        let error = unknown_table(name);
        let names = self.names();
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        match suggest::hint("table", name, &known) {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// The names of the tables and views.
    fn names(&self) -> Vec<String> {
        let tables = definitions::lasting_tables(&self.snapshot).map(str::to_owned);
        let relations = self.relations.keys().cloned();
        tables
            .chain(definitions::lasting_views(&self.snapshot).map(|(name, _)| name.to_owned()))
            .chain(relations)
            .collect()
    }

    /// The defaults of a table's columns.
    pub(crate) fn defaults(&self, table: &Table) -> Result<HashMap<String, Expr>> {
        let columns = table.schema().columns.iter();
        columns
            .filter_map(|column| Some((&column.name, column.default.as_ref()?)))
            .map(|(name, sql)| {
                let expr = self.state.create_logical_expr(sql, &DFSchema::empty())?;
                Ok((name.clone(), expr))
            })
            .collect()
    }

    /// Gives the rows of a table with their ids a name in this statement.
    ///
    /// # Errors
    /// Those of the table.
    pub(crate) async fn bind_with_row_ids(&self, name: &str, table: &Arc<Table>) -> Result<()> {
        self.bind_rows_among(name, table, None).await
    }

    /// Gives those rows of a table, with their ids, a name in this statement that satisfy a condition on the columns of that name.
    ///
    /// # Errors
    /// Those of the table.
    pub(crate) async fn bind_rows_among(
        &self,
        name: &str,
        table: &Arc<Table>,
        condition: Option<Expr>,
    ) -> Result<()> {
        let rows = self.provider(Arc::clone(table)).await?.with_row_ids();
        let Some(condition) = condition else {
            self.bound.insert(name, Arc::new(rows));
            return Ok(());
        };
        let source = provider_as_source(Arc::new(rows));
        let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, None)?;
        let plan = plan.filter(condition)?.build()?;
        self.bound.insert(name, Arc::new(ViewTable::new(plan, None)));
        Ok(())
    }

    /// Gives the rows of a table a name in this statement, with their ids in a column of the name `ids`.
    ///
    /// # Errors
    /// Those of the table.
    pub(crate) async fn bind_with_ids_named(
        &self,
        name: &str,
        ids: &str,
        table: &Arc<Table>,
    ) -> Result<()> {
        let rows = self.provider(Arc::clone(table)).await?.with_row_ids();
        let source = provider_as_source(Arc::new(rows));
        let plan = LogicalPlanBuilder::scan(TableReference::bare(name), source, None)?;
        let mut columns: Vec<Expr> =
            plan.schema().columns().into_iter().map(Expr::Column).collect();
        if let Some(last) = columns.pop() {
            columns.push(last.alias(ids));
        }
        let plan = plan.project(columns)?.build()?;
        self.bound.insert(name, Arc::new(ViewTable::new(plan, None)));
        Ok(())
    }

    /// The same without rows that have got names in the statement, for a look at definitions, whatever the statement may do.
    pub(crate) fn unbound(&self) -> StatementCatalog {
        let (bound, access) = (Arc::default(), Access::default());
        StatementCatalog { bound, access, ..self.clone() }
    }

    /// Gives rows a name in this statement.
    pub(crate) fn bind_rows(&self, name: &str, rows: Arc<dyn TableProvider>) {
        self.bound.insert(name, rows);
    }

    async fn provider(&self, table: Arc<Table>) -> Result<StoredTable> {
        let defaults = self.defaults(&table)?;
        let learned = table.statistics().await?;
        if let Err(error) = table.load().await {
            // The scan of the table tells.
            let name = &table.schema().name;
            log::debug!("the zones of table {name} are not known to the planner: {error}");
        }
        Ok(StoredTable::new(table, defaults, self.context.clone(), learned))
    }

    pub(crate) async fn table_of(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(relation) = self.relation(name) {
            return Ok(Some(Arc::new(RelationTable::new(name, relation.clone()))));
        }
        if let Some(table) = self.bound.get(name) {
            return Ok(Some(table));
        }
        // A view may have read a file with rights that the statement does not have.
        if let Some(table) = self.bound.file(name) {
            self.access.check_reads_files()?;
            return Ok(Some(table));
        }
        if let Some(table) = self.snapshot.table(name) {
            self.check_read(name)?;
            let table = self.provider(table).await?;
            return Ok(Some(Arc::new(table)));
        }
        let pending = self.pending.as_ref().filter(|(view, _)| view == name);
        if let Some(sql) = pending.map(|(_, sql)| sql.as_str()).or_else(|| self.snapshot.view(name))
        {
            if pending.is_none() {
                self.check_read(name)?;
            }
            return self.view(name, sql).await.map(Some);
        }
        let may_read = self.access.check_reads_files();
        // Whether there is a file is not told to those who may not read it.
        if is_name_of_file(name) {
            may_read.clone()?;
        }
        if may_read.is_ok() && looks_like_file(name) {
            let options = ReadOptions::default();
            let files = match FileSet::find(name, &options, &self.context.remote).await {
                // A directory without tables may have the name of a table that is about to be made.
                Err(_) if !name.contains('/') && Path::new(name).is_dir() => return Ok(None),
                found => found.map_err(|error| error.about(name))?,
            };
            let table =
                self.files(name, files, &options).await.map_err(|error| error.about(name))?;
            self.bound.insert_file(name, Arc::clone(&table));
            return Ok(Some(table));
        }
        if name == secret_statement::RELATION {
            let Some(secrets) = &self.secrets else { return Ok(None) };
            self.access.check_all("list secrets")?;
            return secret_statement::table(secrets.secrets()).map(Some);
        }
        if name == kept_blocks::RELATION {
            return self.secrets.as_ref().map(kept_blocks::table).transpose();
        }
        if name == held_locks::RELATION {
            let locks = self.context.control.held_locks();
            return held_locks::table(&locks, &self.snapshot).map(Some);
        }
        // Behind the user's own, as on PostgreSQL's search path.
        table_named(self, name).await
    }

    /// The table in files, which `key` names.
    async fn files(
        &self,
        key: &str,
        files: FileSet,
        options: &ReadOptions,
    ) -> Result<Arc<dyn TableProvider>> {
        self.context.control.progress.add_total(units_of_files(files.bytes()));
        if files.kind == FileKind::Parquet {
            return files.table(&self.state, options).await;
        }
        let (key, options, context) = (key.to_owned(), options.clone(), self.context.clone());
        let found = SpawnedTask::spawn_blocking(move || match files.kind {
            FileKind::Json => files.json_table(&options, &key, &context, None),
            FileKind::Arrow => files.arrow_table(&options, &key, &context),
            FileKind::Xlsx => files.xlsx_table(&options, &key, &context),
            _ => files.csv_table(&options, &key, &context).map(|(table, _)| table),
        });
        found.await.map_err(|error| internal(&error.to_string()))?
    }

    /// The files as a table, without columns of their names.
    ///
    /// # Errors
    /// If they cannot be read, or are not of their format.
    pub(crate) async fn plain_files(
        &self,
        key: &str,
        files: &FileSet,
        options: &ReadOptions,
    ) -> Result<Arc<dyn TableProvider>> {
        let plain = ReadOptions { hive: Some(false), filename: None, ..options.clone() };
        self.files(key, files.clone(), &plain).await
    }

    /// Makes tables of the files that functions read.
    async fn bind(&self, statement: &mut DfStatement) -> Result<()> {
        for call in file_functions::take_calls(statement)? {
            self.access.check_reads_files()?;
            if self.bound.file(call.name()).is_some() {
                continue;
            }
            let options = call.read_options()?;
            let files = call.find(&options, &self.context.remote).await?;
            let table = match call.reads_tables() {
                true => self.files(call.name(), files, &options).await?,
                false => {
                    let (call, context) = (call.clone(), self.context.clone());
                    let rows =
                        SpawnedTask::spawn_blocking(move || call.rows(&files, &options, &context));
                    rows.await.map_err(|error| internal(&error.to_string()))??
                }
            };
            self.bound.insert_file(call.name(), table);
        }
        Ok(())
    }

    fn is_view(&self, name: &str) -> bool {
        self.snapshot.view(name).is_some() && self.relation(name).is_none()
    }

    /// The functions that return tables.
    pub(crate) fn table_functions(&self) -> HashMap<String, Arc<TableFunction>> {
        self.state.table_functions().clone()
    }

    /// A view, planned.
    ///
    /// # Errors
    /// If it does not work any more.
    pub(crate) async fn view(&self, name: &str, sql: &str) -> Result<Arc<dyn TableProvider>> {
        if self.within.iter().any(|outer| outer == name) {
            let message = format!("view {name} refers to itself");
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        if self.within.len() >= VIEW_DEPTH_MAX {
            let message = format!("view {name} lies within more than {VIEW_DEPTH_MAX} views");
            return Err(SqlError::new(ErrorKind::Semantic, message));
        }
        let mut inner = self.clone();
        inner.within.push(name.to_owned());
        // One that is about to be made belongs to the statement's role.
        let is_pending = self.pending.as_ref().is_some_and(|(view, _)| view == name);
        if !is_pending {
            inner.access = self.access.of_owner(&self.snapshot, name);
        }
        let query = parse_query(sql)?;
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
        let plan = planned(&inner, &inner.planning_state(), statement).await.map_err(|error| {
            let is_told =
                error.message().starts_with("view ") || error.kind() == ErrorKind::Forbidden;
            match is_told || self.pending.is_some() {
                true => SqlError::new(error.kind(), error.message()),
                false => {
                    let message = format!("view {name} does not work any more: {error}");
                    SqlError::new(error.kind(), message)
                }
            }
        })?;
        Ok(Arc::new(ViewTable::new(plan, Some(sql.to_owned()))))
    }
}

/// Plans a statement, with its forms that depend on columns and its joins with USING and NATURAL written out. What is written beside `*` and is
/// among its columns as well gets another name then.
pub(crate) async fn planned(
    catalog: &StatementCatalog,
    state: &SessionState,
    mut statement: DfStatement,
) -> Result<LogicalPlan> {
    macros::expand(&mut statement, catalog.snapshot())?;
    if let Some(inner) = inner_statement(&mut statement)
        && definitions::names(catalog.snapshot(), Kind::Schema).next().is_some()
    {
        schemas::check_names(inner)?;
    }
    catalog.bind(&mut statement).await?;
    if forms::values::are_needed(&mut statement) {
        forms::values::evaluate(catalog, state, &mut statement).await?;
    }
    let has_forms = forms::are_in(&mut statement);
    let with_tables = match has_forms || using_joins::are_in(&mut statement) {
        true => using_joins::with_tables(state, &statement).await,
        false => None,
    };
    if let Some(state) = with_tables.as_ref().filter(|_| has_forms) {
        forms::write_out(&mut statement, state)?;
    }
    loop {
        let mut written = statement.clone();
        if let Some(state) = &with_tables {
            using_joins::write_out(&mut written, state);
        }
        if let Some(inner) = inner_statement(&mut written) {
            mark(inner, state, &|name| catalog.is_view(name));
        }
        let state = with_tables.as_ref().unwrap_or(state);
        let is_whole = take_wildcard(&mut written);
        let error = match state.statement_to_plan(written).await {
            Ok(plan) => {
                recursive_terms::check(&plan)?;
                let plan = if is_whole { with_all_columns(plan) } else { plan };
                return Ok(evaluated_once(state, forms::planned(plan)?)?);
            }
            Err(error) if letter_case::adopt(&mut statement, &error)? => continue,
            Err(error) => SqlError::from(error),
        };
        if !name_beside_wildcards(&mut statement, &error) {
            return Err(error);
        }
    }
}

/// The name of a table or view in a statement, as the store has it: with its schema, unless that is `main`.
///
/// # Errors
/// [`ErrorKind::Semantic`] for names of other databases.
pub(crate) fn relation_name(name: &ast::ObjectName) -> Result<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| part.as_ident())
        .map(|ident| fold(ident.value.clone(), ident.quote_style))
        .collect();
    let (schema, last) = match parts.as_slice() {
        [last] => (SCHEMA, last),
        [schema, last] => (schema.as_str(), last),
        [catalog, schema, last] if catalog == CATALOG => (schema.as_str(), last),
        _ => {
            let message =
                format!("{name} is in another database than the one that is open, {CATALOG}");
            return Err(SqlError::new(ErrorKind::Semantic, message)
                .with_hint("tables of a database that ATTACH has given a name can be read"));
        }
    };
    if last.is_empty() {
        let message = "the name of a table or view cannot be empty";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    if last.starts_with(MARK) {
        let message = "the name of a table or view cannot begin with the character U+0001";
        return Err(SqlError::new(ErrorKind::Semantic, message));
    }
    Ok(match schema {
        SCHEMA => last.clone(),
        schema => format!("{schema}.{last}"),
    })
}

impl fmt::Debug for StatementCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementCatalog").finish_non_exhaustive()
    }
}

impl CatalogProviderList for StatementCatalog {
    fn register_catalog(
        &self,
        _: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        // There is one catalog: what is offered is handed back.
        Some(catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        [CATALOG].into_iter().chain(self.attached.names()).map(str::to_owned).collect()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let catalog = match name {
            CATALOG => self.clone(),
            attached => self.of_attached(attached)?,
        };
        Some(Arc::new(catalog))
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        let made = definitions::names(&self.snapshot, Kind::Schema).map(str::to_owned);
        made.chain([INFORMATION_SCHEMA, SCHEMA, PG_CATALOG].map(str::to_owned)).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::new(self.clone())),
            INFORMATION_SCHEMA => Some(Arc::new(InformationSchema::new(self.clone()))),
            PG_CATALOG => Some(Arc::new(PgCatalog::new(self.clone()))),
            made => match SchemaTables::find(self, made) {
                Some(tables) => Some(Arc::new(tables)),
                None => Some(Arc::new(self.of_attached(made)?)),
            },
        }
    }
}

impl SchemaProvider for StatementCatalog {
    fn table_names(&self) -> Vec<String> {
        self.names()
    }

    // Written out as `async_trait` would, but for the futures: see `found`.
    fn table<'a, 'b, 'f>(
        &'a self,
        name: &'b str,
    ) -> BoxFuture<'f, DfResult<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        found(self, name)
    }

    fn table_type<'a, 'b, 'f>(&'a self, name: &'b str) -> BoxFuture<'f, DfResult<Option<TableType>>>
    where
        'a: 'f,
        'b: 'f,
        Self: 'f,
    {
        Box::pin(ready(Ok(match (self.snapshot.table(name), self.snapshot.view(name)) {
            _ if self.relation(name).is_some() => Some(TableType::Temporary),
            (Some(_), _) => Some(TableType::Base),
            (None, Some(_)) => Some(TableType::View),
            (None, None) => None,
        })))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.relation(name).is_some()
            || self.snapshot.table(name).is_some()
            || self.snapshot.view(name).is_some()
    }
}

/// The table or view of this name. A function without conditions on lifetimes, so that the compiler proves
/// only once that plans may be sent to other threads: in a method of `async_trait` it takes seconds.
fn found<'a>(
    catalog: &'a StatementCatalog,
    name: &'a str,
) -> BoxFuture<'a, DfResult<Option<Arc<dyn TableProvider>>>> {
    Box::pin(async move { catalog.table_of(name).await.map_err(DataFusionError::from) })
}
