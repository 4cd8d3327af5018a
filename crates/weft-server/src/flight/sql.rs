//! The calls of Flight SQL, each of which is answered by the session of its caller.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, ActionEndSavepointRequest, ActionEndTransactionRequest,
    Command, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas,
    CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo,
    CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery,
    CommandStatementUpdate, DoPutPreparedStatementResult, EndTransaction, ProstMessageExt, SqlInfo,
    TicketStatementQuery,
};
use arrow_flight::{Action, ActionType, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Request, Response, Status};

use super::batches::{DataStream, message_of, no_rows, result_schema, schema_bytes, sent_schema};
use super::calls::{caller, command};
use super::error::{OrStatus, with_sqlstate};
use super::metadata::Described;
use super::prepared::{BOUND_BYTES_MAX, Prepared, Statement};
use super::session::FlightSession;
use super::statements;
use super::tickets::check_text;
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

/// The error for a message that cannot be decoded.
pub(super) fn malformed(error: impl std::fmt::Display) -> Status {
    let message = format!("a malformed message: {error}");
    with_sqlstate(Code::InvalidArgument, "08P01", &message)
}

/// The answer of GetFlightInfo: the columns of a result, and the ticket of its rows.
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

/// Executes a statement and tells where its rows are got. One without rows has run then, and its ticket, whose handle is empty, gives none.
async fn execute(
    session: &Arc<FlightSession>,
    statement: Statement,
    columns: Option<SchemaRef>,
    descriptor: FlightDescriptor,
) -> Answer<FlightInfo> {
    let statement_handle = statements::execute(session, statement, columns.clone()).await?;
    let ticket = TicketStatementQuery { statement_handle: statement_handle.unwrap_or_default() };
    info(&columns_or_none(columns), descriptor, ticket.as_any().encode_to_vec())
}

/// The columns of a statement; none for one without rows.
pub(super) fn columns_or_none(columns: Option<SchemaRef>) -> SchemaRef {
    columns.unwrap_or_else(|| Arc::new(Schema::empty()))
}

/// Cancels what the tickets of an info have started; false if nothing of it runs.
pub(super) fn cancel(session: &FlightSession, info: &FlightInfo) -> Result<bool, Status> {
    let mut is_found = false;
    for ticket in info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref()) {
        if let Command::TicketStatementQuery(ticket) = command(&ticket.ticket)? {
            is_found |= session.cancel(&ticket.statement_handle);
        }
    }
    Ok(is_found)
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
        let transaction = query.transaction_id;
        let columns =
            statements::described(&session, &query.query, transaction.as_deref(), Vec::new())
                .await?;
        let statement = Statement { sql: query.query.into(), transaction, bound: None };
        // The client knows the text, so that the answer need not have it.
        execute(&session, statement, columns, FlightDescriptor::default()).await
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Answer<DataStream> {
        let session = caller(&request)?;
        if ticket.statement_handle.is_empty() {
            return Ok(Response::new(no_rows()));
        }
        Ok(Response::new(statements::rows(&session, ticket.statement_handle).await?))
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Answer<FlightInfo> {
        let session = caller(&request)?;
        let prepared = session.prepared(&query.prepared_statement_handle)?;
        execute(&session, prepared.statement, prepared.columns, request.into_inner()).await
    }

    async fn do_get_prepared_statement(
        &self,
        _: CommandPreparedStatementQuery,
        _: Request<Ticket>,
    ) -> Answer<DataStream> {
        Err(Status::invalid_argument(
            "a prepared statement is executed by GetFlightInfo, which gives the ticket of its rows",
        ))
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = caller(&request)?;
        check_text(&command.query)?;
        let (sql, transaction) = (command.query.into(), command.transaction_id);
        statements::update(&session, Statement { sql, transaction, bound: None }).await
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
        let Statement { sql, transaction, .. } = session.prepared(&handle)?.statement;
        let mut upload = Upload::new(request.into_inner()).await?;
        let types = weft::bound_types(upload.schema());
        let batches = collect(&mut upload, BOUND_BYTES_MAX).await?;
        let columns = statements::described(&session, &sql, transaction.as_deref(), types).await?;
        session.bind(&handle, batches, columns)?;
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
        if has_rows {
            let upload = Upload::new(stream).await?;
            // Rows without columns are no parameters: drivers send them for a statement that has none.
            if !upload.schema().fields().is_empty() {
                return statements::update_by(&session, prepared.statement, upload).await;
            }
        }
        statements::update(&session, prepared.statement).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let session = caller(&request)?;
        check_text(&query.query)?;
        let inner = session.session(query.transaction_id.as_deref())?;
        let found = inner.signature(&query.query, Vec::new()).await.or_status()?;
        // The database keeps plans of statements that it knows to be prepared.
        drop(inner.prepare(&query.query).or_status()?);
        let field = |(number, found): (usize, &Arc<Field>)| {
            Field::new(format!("${}", number + 1), found.data_type().clone(), true)
        };
        let parameters: Vec<Field> = found.parameters.iter().enumerate().map(field).collect();
        let parameter_schema = schema_bytes(&sent_schema(&Schema::new(parameters)))?;
        let columns = found.columns.map(|columns| result_schema(&columns));
        let dataset_schema = match &columns {
            Some(columns) => schema_bytes(columns)?,
            None => Bytes::new(),
        };
        let (sql, transaction) = (query.query.into(), query.transaction_id);
        let statement = Statement { sql, transaction, bound: None };
        let prepared_statement_handle = session.keep(Prepared { statement, columns })?;
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

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let custom = [
            ("CancelFlightInfo", "Cancels the statement of a FlightInfo."),
            ("CloseSession", "Ends the session of the client, and its token."),
        ];
        let action = |(name, description): (&str, &str)| {
            Ok(ActionType { r#type: name.to_owned(), description: description.to_owned() })
        };
        Some(custom.into_iter().map(action).collect())
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}
