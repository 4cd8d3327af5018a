//! Runs one statement: parse, plan, execute, and tell the one who waits.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::{DdlStatement, Explain, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};

use crate::control::Control;
use crate::error::{Result, SqlError, internal};
use crate::locate::locate;
use crate::running::{Header, Message, ResultKind};
use crate::session::Session;
use crate::statement::{self, Parsed};
use crate::unsupported;

/// How many EXECUTEs may lie in each other.
const EXECUTE_DEPTH_MAX: usize = 1;

/// One statement on its way.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) session: Arc<Session>,
    pub(crate) control: Arc<Control>,
    pub(crate) sql: Arc<str>,
    /// The values of the parameters, as SQL.
    pub(crate) parameters: Vec<String>,
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
    let token = run.control.token.clone();
    let work = drive_uncancelled(run, header, messages.clone());
    tokio::select! {
        // First, so that a statement that could not be cancelled any more tells how it ended.
        biased;
        () = work => {}
        // The reader hears of it from the token itself.
        () = token.cancelled() => {}
    }
}

async fn drive_uncancelled(
    run: Run,
    header: oneshot::Sender<Result<Header>>,
    messages: mpsc::Sender<Message>,
) {
    let sql = Arc::clone(&run.sql);
    let started = match start(&run, 0).await {
        Ok(started) => started,
        Err(error) => {
            run.control.finish();
            drop(run);
            // Nobody may be listening any more.
            let _ = header.send(Err(locate(error, &sql)));
            return;
        }
    };
    let result = match started {
        Started::Rows(stream) => {
            let schema = stream.schema();
            let _ = header.send(Ok(Header { schema, kind: ResultKind::Rows }));
            send_rows(stream, &messages).await
        }
        Started::Command { tag, work } => {
            let kind = ResultKind::Command { tag, rows_affected: None };
            let _ = header.send(Ok(Header { schema: Arc::new(Schema::empty()), kind }));
            work.await
        }
    };
    let last = match result {
        Ok(rows_affected) => Message::Finished { rows_affected },
        Err(error) => Message::Failed(locate(error, &sql)),
    };
    // Before the reader hears of the end: the database may be closed then.
    run.control.finish();
    drop(run);
    let _ = messages.send(last).await;
}

async fn send_rows(
    mut stream: SendableRecordBatchStream,
    messages: &mpsc::Sender<Message>,
) -> Result<Option<u64>> {
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 && messages.send(Message::Batch(batch)).await.is_err() {
            return Err(SqlError::cancelled());
        }
    }
    Ok(None)
}

fn start(run: &Run, depth: usize) -> BoxFuture<'_, Result<Started>> {
    async move {
        let parsed = statement::parse_with(&run.sql, &run.parameters)?;
        match parsed {
            Parsed::Sql(statement) => run.start_sql(*statement).await,
            Parsed::Execute { name, values } => {
                if depth >= EXECUTE_DEPTH_MAX {
                    return Err(SqlError::not_supported("EXECUTE of an EXECUTE"));
                }
                let sql = run.session.prepared(&name)?;
                let parameters = values.iter().map(|value| format!("({value})")).collect();
                let inner = Run { sql: sql.into(), parameters, ..run.clone() };
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
        let catalog = self.session.statement_catalog(&self.control)?;
        let statement = match statement {
            DfStatement::Statement(statement) => match *statement {
                ast::Statement::CreateTable(create) => {
                    return self.create_table(&catalog, create).await;
                }
                ast::Statement::CreateView(create) => {
                    return self.create_view(&catalog, create).await;
                }
                ast::Statement::Drop { object_type, names, if_exists, .. } => {
                    return self.drop_relations(&catalog, object_type, &names, if_exists);
                }
                ast::Statement::ShowCreate { obj_name, .. } => {
                    return self.show_create(&catalog, &obj_name);
                }
                other => DfStatement::Statement(Box::new(other)),
            },
            other => other,
        };
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        match plan {
            LogicalPlan::Dml(insert) => self.insert(&catalog, state, insert),
            LogicalPlan::Ddl(_) | LogicalPlan::Copy(_) => {
                Err(SqlError::not_supported("this statement"))
            }
            LogicalPlan::Statement(other) => Err(SqlError::not_supported(other.name())),
            LogicalPlan::Explain(explain) => {
                self.rows(&state, LogicalPlan::Explain(explain_query(explain))).await
            }
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
        let catalog = self.session.statement_catalog(&self.control)?;
        match parsed {
            Parsed::CopyFrom { table, columns, path, options } => {
                self.copy_from(&catalog, table, columns, path, options).await
            }
            Parsed::CopyTo { query, path, options } => {
                self.copy_to(&catalog, *query, path, options).await
            }
            Parsed::ShowTables => self.show_tables(&catalog),
            Parsed::DescribeTable { table } => self.describe_table(&catalog, &table).await,
            Parsed::DescribeQuery { query } => self.describe_query(&catalog, *query).await,
            Parsed::AddDevice { path } => {
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
        let physical = self.physical(state, &plan).await?;
        Ok(Started::Rows(execute_stream(physical, state.task_ctx())?))
    }

    /// The physical plan, watched for its progress.
    pub(crate) async fn physical(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let physical = state.create_physical_plan(plan).await?;
        self.control.watch(&physical);
        Ok(physical)
    }
}

/// Of a command, what is explained is the query that feeds it.
fn explain_query(mut explain: Explain) -> Explain {
    match explain.plan.as_ref() {
        LogicalPlan::Dml(insert) => explain.plan = Arc::clone(&insert.input),
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
            explain.plan = Arc::clone(&create.input);
        }
        _ => {}
    }
    explain
}

/// A result of text columns that exists already.
pub(crate) fn text_rows(names: &[&str], columns: Vec<Vec<Option<String>>>) -> Result<Started> {
    let fields: Vec<Field> =
        names.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect();
    let arrays = columns
        .into_iter()
        .map(|column| Arc::new(StringViewArray::from_iter(column)) as ArrayRef)
        .collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    let stream = futures::stream::iter([Ok(batch)]);
    Ok(Started::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
}
