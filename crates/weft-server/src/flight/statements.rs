//! Statements: queries whose rows are sent as they come, commands, and rows that tables take.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tonic::Status;
use weft::{BoundRows, CATALOG, Ingest, IngestMode, QueryResult, Relation, ResultKind, Session};

use super::batches::{DataStream, messages, sent, sent_schema};
use super::error::OrStatus;
use super::session::{FlightSession, Prepared, Running};
use super::upload::Upload;

/// The relation that an INSERT of bound rows reads.
const PARAMETERS: &str = "weft parameters";

/// A statement that is planned, with what keeps it among those that run.
struct Started {
    result: QueryResult,
    _running: Running,
}

impl Started {
    async fn new(
        session: &Arc<FlightSession>,
        sql: &str,
        ticket: Option<Bytes>,
        mut result: QueryResult,
    ) -> Result<Started, Status> {
        let running = session.note(sql, ticket, &result);
        result.ready().await.or_status()?;
        Ok(Started { result, _running: running })
    }

    /// Runs it to its end. Returns the rows that it affected, or returned; -1 if it does not say.
    async fn finish(mut self) -> Result<i64, Status> {
        let mut returned = 0_u64;
        while let Some(batch) = self.result.next().await {
            returned += batch.or_status()?.num_rows() as u64;
        }
        let rows = match self.result.kind() {
            ResultKind::Command { rows_affected, .. } => rows_affected,
            ResultKind::Rows => Some(returned),
        };
        Ok(rows.map_or(-1, |rows| i64::try_from(rows).unwrap_or(i64::MAX)))
    }

    /// Its batches, as they are sent.
    fn batches(self, schema: SchemaRef) -> impl Stream<Item = Result<RecordBatch, Status>> + Send {
        stream::unfold(Some((self, schema)), |state| async move {
            let (mut started, schema) = state?;
            match started.result.next().await?.or_status().and_then(|batch| sent(&batch, &schema)) {
                Ok(batch) => Some((Ok(batch), Some((started, schema)))),
                Err(status) => Some((Err(status), None)),
            }
        })
    }
}

/// The rows of a statement; a command is run to its end, and has none.
pub(super) async fn query(
    session: &Arc<FlightSession>,
    sql: &str,
    transaction: Option<&[u8]>,
    ticket: Bytes,
) -> Result<DataStream, Status> {
    let result = session.session(transaction)?.start(sql, &[]);
    rows_of(Started::new(session, sql, Some(ticket), result).await?).await
}

async fn rows_of(started: Started) -> Result<DataStream, Status> {
    if started.result.kind() != ResultKind::Rows {
        started.finish().await?;
        return Ok(messages(Arc::new(Schema::empty()), stream::empty()));
    }
    let schema = sent_schema(&started.result.schema());
    Ok(messages(Arc::clone(&schema), started.batches(schema)))
}

/// Runs a statement, and returns the rows that it affected.
pub(super) async fn update(
    session: &Arc<FlightSession>,
    sql: &str,
    transaction: Option<&[u8]>,
) -> Result<i64, Status> {
    let result = session.session(transaction)?.start(sql, &[]);
    Started::new(session, sql, None, result).await?.finish().await
}

/// The rows of a prepared statement: those of one execution for each row that is bound, or of one without any.
pub(super) async fn query_prepared(
    session: &Arc<FlightSession>,
    prepared: Prepared,
    ticket: Bytes,
) -> Result<DataStream, Status> {
    let inner = session.session(prepared.transaction.as_deref())?;
    let Some(bound) = prepared.bound else {
        let result = inner.start(&prepared.sql, &[]);
        return rows_of(Started::new(session, &prepared.sql, Some(ticket), result).await?).await;
    };
    let mut rows = Rows { batches: bound.iter().cloned().collect(), rows: None, next: 0 };
    let mut executions =
        Executions { session: Arc::clone(session), inner, sql: prepared.sql, ticket };
    let Some(first) = executions.next(&mut rows).await? else {
        let schema = super::sql::sent_columns(prepared.columns);
        return Ok(messages(schema, stream::empty()));
    };
    if first.result.kind() != ResultKind::Rows {
        first.finish().await?;
        while let Some(next) = executions.next(&mut rows).await? {
            next.finish().await?;
        }
        return Ok(messages(Arc::new(Schema::empty()), stream::empty()));
    }
    let schema = sent_schema(&first.result.schema());
    let state = Some((first, executions, rows, Arc::clone(&schema)));
    let batches = stream::unfold(state, |state| async move {
        let (mut started, mut executions, mut rows, schema) = state?;
        loop {
            if let Some(batch) = started.result.next().await {
                return match batch.or_status().and_then(|batch| sent(&batch, &schema)) {
                    Ok(batch) => Some((Ok(batch), Some((started, executions, rows, schema)))),
                    Err(status) => Some((Err(status), None)),
                };
            }
            match executions.next(&mut rows).await {
                Ok(Some(next)) => started = next,
                Ok(None) => return None,
                Err(status) => return Some((Err(status), None)),
            }
        }
    });
    Ok(messages(schema, batches))
}

/// Executions of a prepared statement.
struct Executions {
    session: Arc<FlightSession>,
    inner: Session,
    sql: Arc<str>,
    ticket: Bytes,
}

impl Executions {
    async fn next(&mut self, rows: &mut Rows) -> Result<Option<Started>, Status> {
        let Some((values, types)) = rows.next()? else { return Ok(None) };
        let result = self.inner.start_cast(&self.sql, &values, &types);
        let ticket = Some(self.ticket.clone());
        Started::new(&self.session, &self.sql, ticket, result).await.map(Some)
    }
}

/// Rows of parameters, one by one.
struct Rows {
    batches: VecDeque<RecordBatch>,
    rows: Option<BoundRows>,
    next: usize,
}

impl Rows {
    fn next(&mut self) -> Result<Option<(Vec<weft::Value>, Vec<Option<String>>)>, Status> {
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

/// Runs a prepared statement for each row that a client sends, and returns the rows that it affected.
pub(super) async fn update_prepared(
    session: &Arc<FlightSession>,
    prepared: Prepared,
    upload: Option<Upload>,
) -> Result<i64, Status> {
    let inner = session.session(prepared.transaction.as_deref())?;
    let sql = prepared.sql;
    // Rows without columns are no parameters: drivers send them for a statement that has none.
    let upload = upload.filter(|upload| !upload.schema().fields().is_empty());
    if let Some(upload) = upload {
        if let Some(insert) = weft::insert_of_rows(&sql, PARAMETERS).or_status()? {
            return insert_rows(session, &inner, &insert, upload).await;
        }
        let mut upload = upload;
        let mut affected = 0_i64;
        while let Some(batch) = upload.next().await? {
            let rows = BoundRows::new(&batch).or_status()?;
            for row in 0..rows.rows() {
                let result = inner.start_cast(&sql, &rows.values(row), rows.types());
                let started = Started::new(session, &sql, None, result).await?;
                affected = affected.saturating_add(started.finish().await?.max(0));
            }
        }
        return Ok(affected);
    }
    let bound = prepared.bound.unwrap_or_default();
    if bound.is_empty() {
        let result = inner.start(&sql, &[]);
        return Started::new(session, &sql, None, result).await?.finish().await;
    }
    let mut rows = Rows { batches: bound.iter().cloned().collect(), rows: None, next: 0 };
    let mut affected = 0_i64;
    let ticket = Bytes::new();
    let mut executions = Executions { session: Arc::clone(session), inner, sql, ticket };
    while let Some(started) = executions.next(&mut rows).await? {
        affected = affected.saturating_add(started.finish().await?.max(0));
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
            Started::new(session, insert, None, result).await?.finish().await
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
            let noted = |result: &QueryResult| running = Some(session.note(&shown, None, result));
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
