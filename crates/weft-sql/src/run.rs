//! Runs one statement: parse, plan, execute, and tell the one who waits.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::{ExplainStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::catalog::StatementCatalog;
use crate::control::Control;
use crate::ddl::Dependents;
use crate::economy::{self, Economy, Tried};
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::explain;
use crate::insert;
use crate::locate::locate;
use crate::optimize::optimized;
use crate::parameters::Bindings;
use crate::point::KeptText;
use crate::relation::Relation;
use crate::running::{Header, Message, ResultKind};
use crate::session::Session;
use crate::spill_files::task_context;
use crate::statement::Parsed;
use crate::transactions::SessionTransaction;
use crate::unsupported;
use crate::uuids::shown_rows;
use crate::zoned_times;

/// How often a statement begins anew because another one was faster to change the rows that it changes.
const CONFLICTS_MAX: usize = 100;

/// How many EXECUTEs may lie in each other.
const EXECUTE_DEPTH_MAX: usize = 1;

/// One statement on its way.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) session: Arc<Session>,
    pub(crate) control: Arc<Control>,
    pub(crate) sql: Arc<str>,
    /// The values of the parameters.
    pub(crate) parameters: Bindings,
    /// Relations of this statement alone, by their names.
    pub(crate) relations: Arc<HashMap<String, Relation>>,
    pub(crate) economy: Economy,
    /// Its text by which its plan is kept, or may be.
    pub(crate) kept: Option<KeptText>,
    /// The transaction that it is a statement of.
    pub(crate) transaction: Option<Arc<SessionTransaction>>,
}

/// What a planned statement is.
pub(crate) enum Started {
    /// One that returns rows.
    Rows(SendableRecordBatchStream),
    /// One that does something, and tells how many rows it affected.
    Command { tag: &'static str, work: BoxFuture<'static, Result<Option<u64>>> },
}

/// Runs a statement to its end, or until it is cancelled or nobody wants its result any more.
pub(crate) async fn drive(
    run: Run,
    header: oneshot::Sender<Result<Header>>,
    messages: mpsc::Sender<Message>,
) {
    let control = Arc::clone(&run.control);
    let token = control.token.clone();
    let work = drive_uncancelled(run, header, messages.clone());
    tokio::select! {
        // First, so that a statement that could not be cancelled any more tells how it ended.
        biased;
        () = work => {}
        // The reader hears of it from the token itself.
        () = token.cancelled() => {}
    }
    // Whoever holds the statement does not hold the plan, and what operators have in it.
    control.finish();
}

async fn drive_uncancelled(
    mut run: Run,
    header: oneshot::Sender<Result<Header>>,
    messages: mpsc::Sender<Message>,
) {
    let sql = Arc::clone(&run.sql);
    let mut reader = Reader::of(header, messages);
    let ledger = run.session.engine().ledger().clone();
    let (mut lowered, mut surprises) = (ledger.times_lowered(), 0);
    let mut result = attempt_with_types(&run, &mut reader).await;
    // Whether workers come to wait for each other's memory depends on who is first: once more may do.
    let mut again = run.control.has_pipelines().then_some(run.economy);
    while let Err(error) = &result
        && economy::may_help(error)
        && !reader.has_rows
        && !run.control.is_final()
    {
        let before = std::mem::replace(&mut lowered, ledger.times_lowered());
        if lowered > before && surprises < economy::SURPRISES_MAX {
            // What it had would have done for the limit that it began with.
            surprises += 1;
        } else if let Some(next) = run.economy.next(&Tried::of(&run.control)) {
            run.economy = next;
        } else if let Some(first) = again.take() {
            run.economy = first;
        } else {
            break;
        }
        log::info!("{error}; the statement is planned again for the memory there is");
        ledger.trim();
        result = attempt_with_types(&run, &mut reader).await;
    }
    drop(ledger);
    // Before the reader hears of the end: the database may be closed then.
    run.control.finish();
    run.control.end(result.is_err());
    drop(run);
    reader.end(result.map_err(|error| locate(error, &sql))).await;
}

/// Runs a statement to its end, once more for each of its files of whose types a sample told too little, and on what other
/// statements left of rows that it was about to change.
async fn attempt_with_types(run: &Run, reader: &mut Reader) -> Result<Option<u64>> {
    let mut conflicts = 0;
    loop {
        let result = attempt(run, reader).await;
        if let Err(error) = &result
            && matches!(error.kind(), ErrorKind::Semantic | ErrorKind::NotSupported)
        {
            // A column that the statement names may be in values that no sample had.
            run.control.files.note_misplanned();
        }
        match &result {
            Err(error)
                if error.kind() == ErrorKind::Conflict
                    && !reader.has_rows
                    && !run.control.is_final()
                    && run.transaction.as_ref().is_none_or(|within| within.sees_commits())
                    && conflicts < CONFLICTS_MAX =>
            {
                conflicts += 1;
                log::debug!("{error}; the statement is run again");
            }
            Err(error) if !reader.has_rows && run.control.files.begin_anew() => {
                log::info!("{error}; the statement is planned again with types of all values");
                reader.misfit = Some(error.clone());
            }
            _ => return result,
        }
    }
}

/// Runs a statement once, to its end.
async fn attempt(run: &Run, reader: &mut Reader) -> Result<Option<u64>> {
    // What the statement before needed, and whoever took its rows.
    run.session.engine().ledger().trim_code_of_small();
    // Of an attempt before this one.
    run.control.release_locks();
    match start(run, 0).await? {
        Started::Rows(stream) => {
            let stream = shown_rows(stream);
            // Types of all values may be others than those of a sample, with which the result was announced.
            if let Some(misfit) = reader.misfit.take()
                && !reader.was_announced(&stream.schema())
            {
                return Err(misfit);
            }
            reader.announce(stream.schema(), ResultKind::Rows);
            reader.send_rows(run, stream).await
        }
        Started::Command { tag, work } => {
            let kind = ResultKind::Command { tag, rows_affected: None };
            reader.announce(Arc::new(Schema::empty()), kind);
            let rows = work.await?;
            run.keep_sequences().await?;
            Ok(rows)
        }
    }
}

/// Who waits for the result, if anybody still does.
struct Reader {
    /// `None` once it was told what the result is.
    header: Option<oneshot::Sender<Result<Header>>>,
    messages: mpsc::Sender<Message>,
    /// It has rows, so that the statement cannot begin anew.
    has_rows: bool,
    /// The columns that it was told of.
    announced: Option<SchemaRef>,
    /// Why the statement begins anew with other types of files' columns.
    misfit: Option<SqlError>,
}

impl Reader {
    fn of(header: oneshot::Sender<Result<Header>>, messages: mpsc::Sender<Message>) -> Reader {
        let (has_rows, announced, misfit) = (false, None, None);
        Reader { header: Some(header), messages, has_rows, announced, misfit }
    }

    /// True if it was told of columns with these names and types, or of none yet.
    fn was_announced(&self, schema: &Schema) -> bool {
        let Some(announced) = &self.announced else { return true };
        let mut columns = announced.fields().iter().zip(schema.fields());
        announced.fields().len() == schema.fields().len()
            && columns.all(|(told, found)| {
                told.name() == found.name() && told.data_type() == found.data_type()
            })
    }

    fn announce(&mut self, schema: SchemaRef, kind: ResultKind) {
        if let Some(header) = self.header.take() {
            self.announced = Some(Arc::clone(&schema));
            note_unheard(header.send(Ok(Header { schema, kind })).is_ok());
        }
    }

    async fn send_rows(
        &mut self,
        run: &Run,
        mut stream: SendableRecordBatchStream,
    ) -> Result<Option<u64>> {
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            run.keep_sequences().await?;
            if batch.num_rows() == 0 {
                continue;
            }
            self.has_rows = true;
            if self.messages.send(Message::Batch(batch)).await.is_err() {
                return Err(SqlError::cancelled());
            }
        }
        Ok(None)
    }

    async fn end(self, result: Result<Option<u64>>) {
        note_unheard(match (result, self.header) {
            (Err(error), Some(header)) => header.send(Err(error)).is_ok(),
            (Err(error), None) => self.messages.send(Message::Failed(error)).await.is_ok(),
            (Ok(rows_affected), _) => {
                self.messages.send(Message::Finished { rows_affected }).await.is_ok()
            }
        });
    }
}

/// Nobody misses what was not heard: whoever waited has dropped the statement, which cancels it.
fn note_unheard(was_heard: bool) {
    if !was_heard {
        log::debug!("nobody waits for the result of the statement any more");
    }
}

/// Starts a statement, which EXECUTE has begun if `depth` is not 0.
///
/// # Errors
/// What is wrong with the statement.
pub(crate) fn start(run: &Run, depth: usize) -> BoxFuture<'_, Result<Started>> {
    async move {
        if let Some(kept) = &run.kept {
            run.refresh_transaction().await?;
            if let Some(started) = run.execute_kept(kept).await? {
                return Ok(started);
            }
        }
        let mut parsed = run.session.parse(&run.sql, &run.parameters)?;
        if let Parsed::Transaction(statement) = parsed {
            return run.start_transaction_statement(statement);
        }
        run.check_transaction(&parsed)?;
        run.refresh_transaction().await?;
        run.settle_transaction().await?;
        let locked = run.lock_read_rows(&mut parsed).await?;
        let run = locked.as_ref().unwrap_or(run);
        match parsed {
            Parsed::Sql(statement) => run.start_sql(*statement).await,
            Parsed::Execute { name, values } => {
                if depth >= EXECUTE_DEPTH_MAX {
                    return Err(SqlError::not_supported("EXECUTE of an EXECUTE"));
                }
                let sql = run.session.prepared(&name)?;
                if let Some(kept) = KeptText::of_constants(&sql, &values)
                    && let Some(started) = run.execute_kept(&kept).await?
                {
                    return Ok(started);
                }
                let parameters = values.iter().map(|value| format!("({value})"));
                let parameters = Bindings::Positional(parameters.collect());
                let inner = Run { sql: sql.into(), parameters, kept: None, ..run.clone() };
                start(&inner, depth + 1).await
            }
            other => run.start_own(other).await,
        }
    }
    .boxed()
}

impl Run {
    async fn start_sql(&self, statement: DfStatement) -> Result<Started> {
        unsupported::check(&statement)?;
        let catalog = self
            .session
            .statement_catalog(&self.control, self.economy)?
            .with_relations(&self.relations);
        let statement = match statement {
            DfStatement::Statement(statement) => match *statement {
                ast::Statement::CreateTable(create) => {
                    return self.create_table(&catalog, create).await;
                }
                ast::Statement::CreateView(create) => {
                    return self.create_view(&catalog, create).await;
                }
                ast::Statement::Insert(insert) => return self.insert(&catalog, insert).await,
                ast::Statement::AlterTable(alter) => {
                    return self.alter_table(&catalog, alter).await;
                }
                ast::Statement::AlterIndex { name, operation } => {
                    return self.alter_index(&catalog, &name, &operation);
                }
                ast::Statement::CreateIndex(create) => return self.create_index(&catalog, create),
                ast::Statement::Drop {
                    object_type, names, if_exists, cascade, restrict, ..
                } => {
                    let dependents = match (cascade, restrict) {
                        (true, _) => Dependents::Drop,
                        (false, true) => Dependents::Refuse,
                        (false, false) => Dependents::Leave,
                    };
                    let dropped = (object_type, names.as_slice());
                    return self.drop_relations(&catalog, dropped, if_exists, dependents);
                }
                ast::Statement::CreateSchema { schema_name, if_not_exists, .. } => {
                    return self.create_schema(&catalog, &schema_name, if_not_exists);
                }
                create @ ast::Statement::CreateMacro { .. } => {
                    return self.create_macro(&catalog, create);
                }
                ast::Statement::Comment {
                    object_type, object_name, comment, if_exists, ..
                } => {
                    let about = (object_type, &object_name);
                    return self.comment(&catalog, about, comment, if_exists).await;
                }
                ast::Statement::Truncate(truncate) => return self.truncate(&catalog, &truncate),
                ast::Statement::ShowCreate { obj_name, .. } => {
                    return self.show_create(&catalog, &obj_name);
                }
                other => DfStatement::Statement(Box::new(other)),
            },
            DfStatement::Explain(mut explain) => {
                if explain::take_code(&mut explain.options) {
                    self.control.show_code();
                }
                explain_source(&catalog, explain)?
            }
            other => other,
        };
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        match plan {
            LogicalPlan::Dml(_) | LogicalPlan::Ddl(_) | LogicalPlan::Copy(_) => {
                Err(SqlError::not_supported("this statement"))
            }
            LogicalPlan::Statement(other) => Err(SqlError::not_supported(other.name())),
            plan => self.rows(&state, plan).await,
        }
    }

    async fn start_own(&self, parsed: Parsed) -> Result<Started> {
        let session = Arc::clone(&self.session);
        let command =
            |tag, work: BoxFuture<'static, Result<Option<u64>>>| Ok(Started::Command { tag, work });
        match parsed {
            Parsed::Set { name, value } => {
                command("SET", async move { session.set(&name, &value).map(|()| None) }.boxed())
            }
            Parsed::Reset { name } => command(
                "RESET",
                async move { session.reset(name.as_deref()).map(|()| None) }.boxed(),
            ),
            Parsed::ResetVariable { name } => command(
                "RESET",
                async move { session.set_variable(name, None).map(|()| None) }.boxed(),
            ),
            Parsed::ShowSetting { name: None } => {
                let settings = session.settings();
                let column = |of: fn(&crate::Setting) -> &str| {
                    settings.iter().map(|setting| Some(of(setting).to_owned())).collect()
                };
                Ok(text_rows(
                    &["name", "value", "description"],
                    vec![
                        column(|setting| &setting.name),
                        column(|setting| &setting.value),
                        column(|setting| &setting.description),
                    ],
                )?)
            }
            Parsed::ShowSetting { name: Some(name) } => {
                let value = session.show(&name)?;
                Ok(text_rows(&["name", "value"], vec![vec![Some(name)], vec![Some(value)]])?)
            }
            Parsed::Prepare { name, text } => command(
                "PREPARE",
                async move {
                    session.keep_prepared(name, text);
                    Ok(None)
                }
                .boxed(),
            ),
            Parsed::Deallocate { name } => command(
                "DEALLOCATE",
                async move { session.forget_prepared(&name).map(|()| None) }.boxed(),
            ),
            other => self.start_with_catalog(other).await,
        }
    }

    async fn start_with_catalog(&self, parsed: Parsed) -> Result<Started> {
        let catalog = self
            .session
            .statement_catalog(&self.control, self.economy)?
            .with_relations(&self.relations);
        match parsed {
            Parsed::Change(change) => self.change_rows(&catalog, *change).await,
            Parsed::CopyFrom { table, columns, path, options } => {
                self.copy_from(&catalog, table, columns, path, options).await
            }
            Parsed::CopyTo { query, path, options } => {
                self.copy_to(&catalog, *query, path, options).await
            }
            Parsed::RenameView { name, to, if_exists } => {
                self.rename_view(&catalog, (&name, &to), if_exists)
            }
            Parsed::DropMacro { names, if_exists } => self.drop_macros(&catalog, &names, if_exists),
            Parsed::CreateSequence(create) => self.create_sequence(&catalog, &create),
            Parsed::AlterSequence(alter) => self.alter_sequence(&catalog, &alter),
            Parsed::CreateType(create) => self.create_type(&catalog, *create).await,
            Parsed::AlterType(alter) => self.alter_type(&catalog, &alter),
            Parsed::Access(statement) => self.start_access(&catalog, *statement),
            Parsed::SetVariable { name, query } => self.set_variable(&catalog, name, *query).await,
            Parsed::TableInfo { table } => self.table_info(&catalog, &table).await,
            Parsed::ShowTables => self.show_tables(&catalog),
            Parsed::CheckTables { table } => self.check_tables(&catalog, table.as_ref()).await,
            Parsed::ShowIndexes { table } => self.show_indexes(&catalog, table.as_ref()),
            Parsed::Reindex { name, is_table } => self.reindex(&catalog, &name, is_table),
            Parsed::Vacuum { tables } => self.vacuum(&catalog, &tables),
            Parsed::Checkpoint => Ok(self.checkpoint()),
            Parsed::DescribeTable { table } => self.describe_table(&catalog, &table).await,
            Parsed::DescribeQuery { query } => self.describe_query(&catalog, *query).await,
            Parsed::Summarize { query } => self.summarize(&catalog, *query).await,
            Parsed::Secret(statement) => {
                catalog.access().check_all("make and drop secrets")?;
                Ok(self.start_secret_statement(*statement))
            }
            Parsed::Attach(statement) => {
                catalog.access().check_all("attach and detach databases")?;
                Ok(self.start_attach_statement(statement))
            }
            Parsed::ShowDatabases => self.show_databases(&catalog),
            Parsed::AddDevice { path } => {
                catalog.access().check_all("add devices")?;
                let store = Arc::clone(self.session.engine().store());
                let work = async move {
                    let added =
                        tokio::task::spawn_blocking(move || store.add_device(path.as_ref()));
                    added.await.map_err(|error| internal(&error.to_string()))??;
                    Ok(None)
                };
                Ok(Started::Command { tag: "ALTER DATABASE", work: work.boxed() })
            }
            other => Err(internal(&format!("no way to run {other:?}"))),
        }
    }

    /// Starts a plan that returns rows.
    pub(crate) async fn rows(&self, state: &SessionState, plan: LogicalPlan) -> Result<Started> {
        match &plan {
            LogicalPlan::Explain(plan) if self.control.shows_code() => {
                return explain::code(self, state, plan).await;
            }
            LogicalPlan::Explain(plan) if explain::is_plain(plan, state) => {
                return explain::explained(self, state, plan).await;
            }
            LogicalPlan::Explain(plan) if explain::is_drawn(plan) => {
                return explain::drawn(self, state, plan).await;
            }
            LogicalPlan::Analyze(plan) if explain::is_plainly_analyzed(plan, state) => {
                return explain::analyzed(self, state, plan).await;
            }
            _ => {}
        }
        let plan = zoned_times::shown(plan, state.config_options())?;
        let physical = self.physical(state, &plan).await?;
        Ok(Started::Rows(execute_stream(physical, task_context(state))?))
    }

    /// A plan as the optimizer leaves it.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) fn optimized(&self, state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
        // Each stage of planning needs code of its own, and what lies idle in the heap since the statement before is not needed.
        let ledger = self.session.engine().ledger();
        ledger.trim();
        let optimized = optimized(state, plan, || {
            ledger.trim_code_of_small();
        })?;
        ledger.trim_code();
        Ok(optimized)
    }

    /// The physical plan, watched for its progress.
    pub(crate) async fn physical(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let in_order;
        let state = match self.control.files.are_read() {
            true => {
                // The rows of files are to keep their order.
                let mut state = state.clone();
                state.config_mut().options_mut().optimizer.enable_round_robin_repartition = false;
                in_order = state;
                &in_order
            }
            false => state,
        };
        let optimized = self.optimized(state, plan.clone())?;
        let physical = state.query_planner().create_physical_plan(&optimized, state).await?;
        self.prepare(&physical);
        Ok(physical)
    }

    /// Has a plan, which is about to be executed, watched.
    fn prepare(&self, physical: &Arc<dyn ExecutionPlan>) {
        self.control.watch(physical);
        self.session.engine().ledger().trim();
    }
}

/// Of a command, what is explained is the query that feeds it.
fn explain_source(
    catalog: &StatementCatalog,
    mut explain: ExplainStatement,
) -> Result<DfStatement> {
    if let DfStatement::Statement(inner) = explain.statement.as_mut() {
        let source = match inner.as_mut() {
            ast::Statement::Insert(insert) => {
                Some(Box::new(insert::source_of(catalog, insert.clone())?))
            }
            ast::Statement::CreateTable(create) => create.query.take(),
            ast::Statement::CreateView(create) => Some(create.query.clone()),
            _ => None,
        };
        if let Some(source) = source {
            **inner = ast::Statement::Query(source);
        }
    }
    Ok(DfStatement::Explain(explain))
}

/// A result of text columns that exists already.
pub(crate) fn text_rows(names: &[&str], columns: Vec<Vec<Option<String>>>) -> Result<Started> {
    let schema = text_schema(names);
    let batch = text_batch(&schema, columns)?;
    let stream = futures::stream::iter([Ok(batch)]);
    Ok(Started::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
}

/// Text columns of these names.
pub(crate) fn text_schema(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| Field::new(*name, DataType::Utf8View, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

/// Rows of text columns.
pub(crate) fn text_batch(
    schema: &SchemaRef,
    columns: Vec<Vec<Option<String>>>,
) -> Result<RecordBatch> {
    let column = |texts: Vec<_>| Arc::new(StringViewArray::from_iter(texts)) as ArrayRef;
    let columns = columns.into_iter().map(column).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
