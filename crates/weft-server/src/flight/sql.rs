//! The calls of Flight SQL.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, ActionEndSavepointRequest, ActionEndTransactionRequest,
    Any, Command, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas,
    CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo,
    CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery,
    CommandStatementUpdate, DoPutPreparedStatementResult, EndTransaction, ProstMessageExt, SqlInfo,
    TicketStatementQuery,
};
use arrow_flight::{Action, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use bytes::Bytes;
use prost::Message;
use tonic::{Request, Response, Status};

use super::batches::{DataStream, message_of, schema_bytes, sent_schema};
use super::calls::caller;
use super::error::OrStatus;
use super::metadata::Described;
use super::session::{BOUND_BYTES_MAX, FlightSession, Prepared};
use super::statements;
use super::upload::{Upload, collect};

/// `END_SAVEPOINT_RELEASE` and `END_SAVEPOINT_ROLLBACK`.
const RELEASE: i32 = 1;
const ROLLBACK: i32 = 2;

/// The results `CANCELLED` and `NOT_CANCELLABLE`, of CancelQuery.
const CANCELLED: i32 = 1;
const NOT_CANCELLABLE: i32 = 3;

/// Flight SQL in front of the sessions of callers.
pub(super) struct Sql;

type Answer<T> = Result<Response<T>, Status>;

/// A message that is not what it says.
pub(super) fn malformed(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("a malformed message: {error}"))
}

/// The columns of a statement; `None` of a command.
pub(super) async fn columns(
    session: &FlightSession,
    sql: &str,
    transaction: Option<&[u8]>,
) -> Result<Option<SchemaRef>, Status> {
    let inner = session.session(transaction)?;
    Ok(inner.signature(sql, Vec::new()).await.or_status()?.columns)
}

/// Columns as they are sent; none of a command.
pub(super) fn sent_columns(columns: Option<SchemaRef>) -> SchemaRef {
    columns.map_or_else(|| Arc::new(Schema::empty()), |columns| sent_schema(&columns))
}

/// Where the rows of a command are got: here, with a ticket.
fn info(schema: &Schema, descriptor: FlightDescriptor, ticket: Vec<u8>) -> Answer<FlightInfo> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket));
    let mut info = FlightInfo::new()
        .with_descriptor(descriptor)
        .with_endpoint(endpoint)
        .with_total_records(-1)
        .with_total_bytes(-1)
        .with_ordered(true);
    info.schema = schema_bytes(schema)?;
    Ok(Response::new(info))
}

/// Cancels what the tickets of an info have started; false if nothing of it runs.
pub(super) fn cancel(session: &FlightSession, info: &FlightInfo) -> Result<bool, Status> {
    let mut is_found = false;
    for ticket in info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref()) {
        let any = Any::decode(&*ticket.ticket).map_err(malformed)?;
        let handle = match Command::try_from(any).map_err(malformed)? {
            Command::TicketStatementQuery(ticket) => ticket.statement_handle,
            Command::CommandPreparedStatementQuery(query) => query.prepared_statement_handle,
            _ => continue,
        };
        is_found |= session.cancel(&handle);
    }
    Ok(is_found)
}

/// What a ticket of a statement has: its transaction, if it is within one, and its text.
fn ticket_of(query: &CommandStatementQuery) -> Bytes {
    let transaction = query.transaction_id.as_deref().unwrap_or_default();
    let named = CommandStatementQuery {
        query: query.query.clone(),
        transaction_id: Some(Bytes::copy_from_slice(transaction)),
    };
    named.encode_to_vec().into()
}

async fn answer(session: &Arc<FlightSession>, query: impl Described) -> Answer<DataStream> {
    Ok(Response::new(message_of(query.batch(session).await?)))
}

#[tonic::async_trait]
impl FlightSqlService for Sql {
    type FlightService = Sql;

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let session = caller(&request)?;
        let found = columns(&session, &query.query, query.transaction_id.as_deref()).await?;
        let ticket = TicketStatementQuery { statement_handle: ticket_of(&query) };
        // The answer need not have the text twice.
        let descriptor = FlightDescriptor::default();
        info(&sent_columns(found), descriptor, ticket.as_any().encode_to_vec())
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        let handle = ticket.statement_handle;
        let query = CommandStatementQuery::decode(&*handle).map_err(malformed)?;
        let transaction = query.transaction_id.as_deref();
        let session = caller(&request)?;
        let rows = statements::query(&session, &query.query, transaction, handle).await?;
        Ok(Response::new(rows))
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let prepared = caller(&request)?.prepared(&query.prepared_statement_handle)?;
        let schema = sent_columns(prepared.columns);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        let session = caller(&request)?;
        let handle = query.prepared_statement_handle;
        let prepared = session.prepared(&handle)?;
        Ok(Response::new(statements::query_prepared(&session, prepared, handle).await?))
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = caller(&request)?;
        statements::update(&session, &command.query, command.transaction_id.as_deref()).await
    }

    async fn do_put_statement_ingest(
        &self,
        command: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = caller(&request)?;
        let upload = Upload::new(request.into_inner()).await?;
        statements::ingest(&session, command, upload).await
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let session = caller(&request)?;
        let handle = query.prepared_statement_handle;
        session.prepared(&handle)?;
        let mut upload = Upload::new(request.into_inner()).await?;
        let batches = collect(&mut upload, BOUND_BYTES_MAX).await?;
        session.bind(&handle, batches)?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        command: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = caller(&request)?;
        let prepared = session.prepared(&command.prepared_statement_handle)?;
        let mut stream = request.into_inner();
        let has_rows = match stream.peek().await {
            Some(Ok(data)) => !data.data_header.is_empty(),
            _ => false,
        };
        let upload = if has_rows { Some(Upload::new(stream).await?) } else { None };
        statements::update_prepared(&session, prepared, upload).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let session = caller(&request)?;
        let inner = session.session(query.transaction_id.as_deref())?;
        let found = inner.signature(&query.query, Vec::new()).await.or_status()?;
        // Statements of which plans are kept are known by this.
        drop(inner.prepare(&query.query).or_status()?);
        let field = |(number, found): (usize, &Arc<Field>)| {
            Field::new(format!("${}", number + 1), found.data_type().clone(), true)
        };
        let parameters: Vec<Field> = found.parameters.iter().enumerate().map(field).collect();
        let parameter_schema = schema_bytes(&sent_schema(&Schema::new(parameters)))?;
        let dataset_schema = match &found.columns {
            Some(columns) => schema_bytes(&sent_schema(columns))?,
            None => Bytes::new(),
        };
        let (sql, transaction) = (query.query.as_str().into(), query.transaction_id);
        let prepared = Prepared { sql, transaction, columns: found.columns, bound: None };
        let prepared_statement_handle = session.keep(prepared)?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle,
            dataset_schema,
            parameter_schema,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        caller(&request)?.close(&query.prepared_statement_handle);
        Ok(())
    }

    async fn do_action_begin_transaction(
        &self,
        _: ActionBeginTransactionRequest,
        request: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        let transaction_id = caller(&request)?.begin().await?;
        Ok(ActionBeginTransactionResult { transaction_id })
    }

    async fn do_action_end_transaction(
        &self,
        query: ActionEndTransactionRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let commits = match EndTransaction::try_from(query.action) {
            Ok(EndTransaction::Commit) => true,
            Ok(EndTransaction::Rollback) => false,
            _ => return Err(Status::invalid_argument("a transaction is committed or rolled back")),
        };
        caller(&request)?.finish(&query.transaction_id, commits).await
    }

    async fn do_action_begin_savepoint(
        &self,
        query: ActionBeginSavepointRequest,
        request: Request<Action>,
    ) -> Result<ActionBeginSavepointResult, Status> {
        let savepoint_id = caller(&request)?.save(&query.transaction_id, &query.name).await?;
        Ok(ActionBeginSavepointResult { savepoint_id })
    }

    async fn do_action_end_savepoint(
        &self,
        query: ActionEndSavepointRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let releases = match query.action {
            RELEASE => true,
            ROLLBACK => false,
            _ => return Err(Status::invalid_argument("a savepoint is released or rolled back to")),
        };
        caller(&request)?.finish_savepoint(&query.savepoint_id, releases).await
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let wanted = FlightInfo::decode(&*query.info).map_err(malformed)?;
        let session = caller(&request)?;
        let is_cancelled = cancel(&session, &wanted)?;
        let result = if is_cancelled { CANCELLED } else { NOT_CANCELLABLE };
        Ok(ActionCancelQueryResult { result })
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let schema = Described::schema(&query);
        info(&schema, request.into_inner(), query.as_any().encode_to_vec())
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        answer(&caller(&request)?, query).await
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}
