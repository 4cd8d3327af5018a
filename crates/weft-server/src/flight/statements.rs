//! Statements: queries, whose rows are sent as they are computed; commands; and rows that tables take.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::time::Instant;
use tonic::{Code, Status};
use weft::{BoundRows, CATALOG, Ingest, IngestMode, QueryResult, Relation, ResultKind, Session};

use super::batches::{DataStream, check_columns, messages, result_schema, sent};
use super::error::{OrStatus, with_sqlstate};
use super::prepared::Statement;
use super::running::RunningGuard;
use super::session::FlightSession;
use super::tickets::{Query, check_text};
use super::upload::Upload;

/// The relation that an INSERT of bound rows reads.
const PARAMETERS: &str = "weft parameters";

/// A planned statement, which is among the running statements of its session.
struct Started {
    result: QueryResult,
    deadline: Option<Instant>,
    _running: RunningGuard,
}

impl Started {
    async fn new(
        session: &Arc<FlightSession>,
        sql: &str,
        ticket: &Bytes,
        result: QueryResult,
    ) -> Result<Started, Status> {
        let running = session.note(sql, ticket, &result);
        let limit = session.state().with_settings(|settings| settings.statement_timeout());
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut started = Started { result, deadline, _running: running };
        before(deadline, started.result.ready()).await?.or_status()?;
        Ok(started)
    }

    async fn next(&mut self) -> Option<Result<RecordBatch, Status>> {
        match before(self.deadline, self.result.next()).await {
            Ok(batch) => batch.map(OrStatus::or_status),
            Err(status) => Some(Err(status)),
        }
    }

    /// Runs it to its end. Returns the rows that it affected, or returned; -1 if it does not say.
    async fn finish(mut self) -> Result<i64, Status> {
        let mut returned = 0_u64;
        while let Some(batch) = self.next().await {
            returned += batch?.num_rows() as u64;
        }
        let rows = match self.result.kind() {
            ResultKind::Command { rows_affected, .. } => rows_affected,
            ResultKind::Rows => Some(returned),
        };
        Ok(rows.map_or(-1, |rows| i64::try_from(rows).unwrap_or(i64::MAX)))
    }
}

/// What a future gives, if it does so before the deadline.
///
/// # Errors
/// `Cancelled` after the deadline.
async fn before<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Status> {
    match deadline {
        None => Ok(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline, work).await.map_err(|_| {
            let message = "canceling statement due to statement timeout";
            with_sqlstate(Code::Cancelled, "57014", message)
        }),
    }
}

/// Executions of a statement, one after the other: one for each row that is bound to it, or a single one.
struct Executions {
    session: Arc<FlightSession>,
    inner: Session,
    sql: Arc<str>,
    ticket: Bytes,
    rows: Option<Rows>,
    is_over: bool,
}

impl Executions {
    fn new(
        session: &Arc<FlightSession>,
        statement: Statement,
        ticket: Bytes,
    ) -> Result<Executions, Status> {
        let inner = session.session(statement.transaction.as_deref())?;
        let rows = statement.bound.map(|bound| Rows {
            batches: bound.iter().cloned().collect(),
            rows: None,
            next: 0,
        });
        let session = Arc::clone(session);
        Ok(Executions { session, inner, sql: statement.sql, ticket, rows, is_over: false })
    }

    /// Starts the next execution; `None` after the last.
    async fn next(&mut self) -> Result<Option<Started>, Status> {
        let result = match &mut self.rows {
            None if self.is_over => return Ok(None),
            None => self.inner.start(&self.sql, &[]),
            Some(rows) => match rows.next()? {
                Some((values, types)) => self.inner.start_cast(&self.sql, &values, &types),
                None => return Ok(None),
            },
        };
        self.is_over = true;
        Started::new(&self.session, &self.sql, &self.ticket, result).await.map(Some)
    }

    /// Runs all of them to their ends, and returns the rows that they affected; -1 if a single one does not say.
    async fn finish(mut self) -> Result<i64, Status> {
        let Some(first) = self.next().await? else { return Ok(0) };
        let mut affected = first.finish().await?;
        while let Some(next) = self.next().await? {
            affected = affected.max(0).saturating_add(next.finish().await?.max(0));
        }
        Ok(affected)
    }
}

/// The values of a row of parameters, and what SQL calls their types.
type Row = (Vec<weft::Value>, Vec<Option<String>>);

/// Rows of parameters, one by one.
struct Rows {
    batches: VecDeque<RecordBatch>,
    rows: Option<BoundRows>,
    next: usize,
}

impl Rows {
    fn next(&mut self) -> Result<Option<Row>, Status> {
        loop {
            if let Some(rows) = self.rows.as_ref().filter(|rows| self.next < rows.rows()) {
                self.next += 1;
                return Ok(Some((rows.values(self.next - 1), rows.types().to_vec())));
            }
            let Some(batch) = self.batches.pop_front() else { return Ok(None) };
            (self.rows, self.next) = (Some(BoundRows::new(&batch).or_status()?), 0);
        }
    }
}

/// The columns of a statement's rows as they are sent; `None` for a statement without rows. `types` has the types of parameters, as SQL
/// writes them, as far as the client has bound some.
pub(super) async fn described(
    session: &FlightSession,
    sql: &str,
    transaction: Option<&[u8]>,
    types: Vec<Option<String>>,
) -> Result<Option<SchemaRef>, Status> {
    check_text(sql)?;
    let inner = session.session(transaction)?;
    let found = inner.signature(sql, types).await.or_status()?;
    Ok(found.columns.map(|columns| result_schema(&columns)))
}

/// Executes a statement for GetFlightInfo: one without rows is run to its end, as clients need not come for rows that there are not, and
/// `None` is returned; a query gets a ticket, with which DoGet runs it.
pub(super) async fn execute(
    session: &Arc<FlightSession>,
    statement: Statement,
    columns: Option<SchemaRef>,
) -> Result<Option<Bytes>, Status> {
    match columns {
        Some(columns) => Ok(Some(session.issue(Query { statement, columns }))),
        None => {
            Executions::new(session, statement, Bytes::new())?.finish().await?;
            Ok(None)
        }
    }
}

/// The rows of a ticket, in the columns that GetFlightInfo has told.
pub(super) async fn rows(
    session: &Arc<FlightSession>,
    ticket: Bytes,
) -> Result<DataStream, Status> {
    let Query { statement, columns } = session.redeem(&ticket)?;
    let mut executions = Executions::new(session, statement, ticket)?;
    let first = executions.next().await?;
    if let Some(first) = &first {
        check_columns(&first.result.schema(), &columns)?;
    }
    let state = first.map(|first| (first, executions, Arc::clone(&columns)));
    let batches = stream::unfold(state, |state| async move {
        let (mut started, mut executions, columns) = state?;
        loop {
            if let Some(batch) = started.next().await {
                return match batch.and_then(|batch| sent(&batch, &columns)) {
                    Ok(batch) => Some((Ok(batch), Some((started, executions, columns)))),
                    Err(status) => Some((Err(status), None)),
                };
            }
            match executions.next().await {
                Ok(Some(next)) => started = next,
                Ok(None) => return None,
                Err(status) => return Some((Err(status), None)),
            }
        }
    });
    Ok(messages(columns, batches))
}

/// Runs a statement, and returns the rows that it affected.
pub(super) async fn update(
    session: &Arc<FlightSession>,
    statement: Statement,
) -> Result<i64, Status> {
    Executions::new(session, statement, Bytes::new())?.finish().await
}

/// Runs a prepared statement for each row that a client sends, and returns the rows that it affected.
pub(super) async fn update_by(
    session: &Arc<FlightSession>,
    statement: Statement,
    mut upload: Upload,
) -> Result<i64, Status> {
    let sql = statement.sql;
    let inner = session.session(statement.transaction.as_deref())?;
    if let Some(insert) = weft::insert_of_rows(&sql, PARAMETERS).or_status()? {
        return insert_rows(session, &inner, &insert, upload).await;
    }
    let mut affected = 0_i64;
    while let Some(batch) = upload.next().await? {
        let rows = BoundRows::new(&batch).or_status()?;
        for row in 0..rows.rows() {
            let result = inner.start_cast(&sql, &rows.values(row), rows.types());
            let started = Started::new(session, &sql, &Bytes::new(), result).await?;
            affected = affected.saturating_add(started.finish().await?.max(0));
        }
    }
    Ok(affected)
}

/// Inserts all rows that a client sends by one statement.
async fn insert_rows(
    session: &Arc<FlightSession>,
    inner: &Session,
    insert: &str,
    upload: Upload,
) -> Result<i64, Status> {
    upload
        .read_by(|source| async move {
            let relation = Relation::of_source(Arc::new(source.numbered())).or_status()?;
            let relations = HashMap::from([(PARAMETERS.to_owned(), relation)]);
            let result = inner.start_with_relations(insert, relations);
            Started::new(session, insert, &Bytes::new(), result).await?.finish().await
        })
        .await
}

/// Takes rows that a client sends into a table.
pub(super) async fn ingest(
    session: &Arc<FlightSession>,
    command: CommandStatementIngest,
    upload: Upload,
) -> Result<i64, Status> {
    if command.catalog.as_deref().is_some_and(|name| !name.is_empty() && name != CATALOG) {
        let message = format!("there is no such catalog: the only one is {CATALOG}");
        return Err(Status::not_found(message));
    }
    let target = target(&command)?;
    let inner = session.session(command.transaction_id.as_deref())?;
    let rows = upload
        .read_by(|source| async {
            let relation = Relation::of_source(Arc::new(source)).or_status()?;
            let mut running = None;
            let shown = format!("INSERT INTO {}", target.target());
            let noted =
                |result: &QueryResult| running = Some(session.note(&shown, &Bytes::new(), result));
            inner.ingest_watched(&target, relation, noted).await.or_status()
        })
        .await?;
    Ok(i64::try_from(rows).unwrap_or(i64::MAX))
}

/// Which table takes rows, and how.
fn target(command: &CommandStatementIngest) -> Result<Ingest, Status> {
    let options = command.table_definition_options.unwrap_or_default();
    let creates = match TableNotExistOption::try_from(options.if_not_exist) {
        Ok(TableNotExistOption::Create) => true,
        Ok(TableNotExistOption::Fail | TableNotExistOption::Unspecified) => false,
        Err(_) => return Err(Status::invalid_argument("an unknown option of a missing table")),
    };
    let mode = match (creates, TableExistsOption::try_from(options.if_exists)) {
        (true, Ok(TableExistsOption::Fail | TableExistsOption::Unspecified)) => IngestMode::Create,
        (true, Ok(TableExistsOption::Append)) => IngestMode::CreateAppend,
        (true, Ok(TableExistsOption::Replace)) => IngestMode::Replace,
        (false, Ok(TableExistsOption::Append)) => IngestMode::Append,
        _ => {
            return Err(Status::invalid_argument(
                "rows are taken by a table that is made, appended to, or replaced: \
                 say what becomes of it if it exists, and if it does not",
            ));
        }
    };
    let schema = command.schema.clone().filter(|name| !name.is_empty());
    if command.temporary && schema.is_some() {
        return Err(Status::invalid_argument("a temporary table lies in no schema"));
    }
    let table = command.table.clone();
    Ok(Ingest { schema, table, is_temporary: command.temporary, mode })
}
