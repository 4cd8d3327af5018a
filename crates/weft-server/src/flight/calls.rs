//! The calls of Flight: those of Flight SQL go on to `sql.rs`, the others are answered here.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty,
    FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, PollInfo,
    SchemaResult, Ticket,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::stream;
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status, Streaming};

use super::access::Caller;
use super::batches::schema_bytes;
use super::error::with_sqlstate;
use super::session::FlightSession;
use super::sql::{self, Sql};
use super::statements;
use super::tokens::{Peer, Tokens};

/// The service of Flight.
pub(super) struct Calls {
    tokens: Arc<Tokens>,
    sql: Sql,
}

impl Calls {
    pub(super) fn new(tokens: Arc<Tokens>) -> Calls {
        Calls { tokens, sql: Sql }
    }
}

/// The session of a call.
pub(super) fn caller<T>(request: &Request<T>) -> Result<Arc<FlightSession>, Status> {
    let found = request.extensions().get::<Caller>();
    found
        .map(|caller| Arc::clone(&caller.0))
        .ok_or_else(|| Status::unauthenticated("a call without a session"))
}

type Answer<T> = Result<Response<T>, Status>;

/// The command in a descriptor, or in a ticket.
///
/// # Errors
/// `InvalidArgument` for a malformed one, and `Unimplemented` for an unknown one: what `arrow-flight` says of these reads as a fault of
/// the server, or has the whole message in it.
pub(super) fn command(bytes: &[u8]) -> Result<Command, Status> {
    let any = Any::decode(bytes).map_err(sql::malformed)?;
    match Command::try_from(any).map_err(sql::malformed)? {
        Command::Unknown(any) => {
            let message = format!("this is no command of Flight SQL: {}", any.type_url);
            Err(with_sqlstate(Code::Unimplemented, "0A000", &message))
        }
        command => Ok(command),
    }
}

#[tonic::async_trait]
impl FlightService for Calls {
    type HandshakeStream = <Sql as FlightService>::HandshakeStream;
    type ListFlightsStream = <Sql as FlightService>::ListFlightsStream;
    type DoGetStream = <Sql as FlightService>::DoGetStream;
    type DoPutStream = <Sql as FlightService>::DoPutStream;
    type DoActionStream = <Sql as FlightService>::DoActionStream;
    type ListActionsStream = <Sql as FlightService>::ListActionsStream;
    type DoExchangeStream = <Sql as FlightService>::DoExchangeStream;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("a call of no connection"))?;
        let header = request.metadata().get("authorization").map(|header| header.to_str());
        let header = header.transpose();
        let header = header.map_err(|_| Status::unauthenticated("the authorization is no text"))?;
        let header = match header {
            Some(header) => header.to_owned(),
            // Older clients say it in the message itself.
            None => {
                let first = request.into_inner().message().await?.unwrap_or_default();
                let said = arrow_flight::BasicAuth::decode(first.payload);
                let said = said.map_err(|error| Status::unauthenticated(error.to_string()))?;
                match said.username.is_empty() {
                    true => String::new(),
                    false => {
                        let words = format!("{}:{}", said.username, said.password);
                        format!("Basic {}", STANDARD.encode(words))
                    }
                }
            }
        };
        let token = self.tokens.new_token(&header, &peer).await?;
        let answer = HandshakeResponse { protocol_version: 0, payload: token.clone().into() };
        let answers: Self::HandshakeStream = Box::pin(stream::iter([Ok(answer)]));
        let mut response = Response::new(answers);
        let bearer = MetadataValue::try_from(format!("Bearer {token}"))
            .map_err(|error| Status::internal(error.to_string()))?;
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        // There are as many as statements of SQL.
        Ok(Response::new(Box::pin(stream::empty())))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        command(&request.get_ref().cmd)?;
        self.sql.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        self.sql.poll_flight_info(request).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let session = caller(&request)?;
        let schema = match command(&request.get_ref().cmd)? {
            Command::CommandStatementQuery(query) => {
                let transaction = query.transaction_id.as_deref();
                statements::described(&session, &query.query, transaction, Vec::new()).await?
            }
            Command::CommandPreparedStatementQuery(query) => {
                session.prepared(&query.prepared_statement_handle)?.columns
            }
            _ => {
                let schema = self.sql.get_flight_info(request).await?.into_inner().schema;
                return Ok(Response::new(SchemaResult { schema }));
            }
        };
        let schema = schema_bytes(&sql::columns_or_none(schema))?;
        Ok(Response::new(SchemaResult { schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        command(&request.get_ref().ticket)?;
        self.sql.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        self.sql.do_put(request).await
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        let body = match request.get_ref().r#type.as_str() {
            "CancelFlightInfo" => {
                let wanted = CancelFlightInfoRequest::decode(&*request.get_ref().body);
                let info = wanted.map_err(sql::malformed)?.info.unwrap_or_default();
                let session = caller(&request)?;
                let status = match sql::cancel(&session, &info)? {
                    true => CancelStatus::Cancelled,
                    false => CancelStatus::NotCancellable,
                };
                CancelFlightInfoResult { status: status.into() }.encode_to_vec()
            }
            "CloseSession" => {
                let session = caller(&request)?;
                self.tokens.forget(&session);
                // The field 1, an enum, is 1: closed.
                vec![0x08, 0x01]
            }
            _ => return self.sql.do_action(request).await,
        };
        let result = arrow_flight::Result { body: body.into() };
        Ok(Response::new(Box::pin(stream::iter([Ok(result)]))))
    }

    async fn list_actions(&self, request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        self.sql.list_actions(request).await
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        self.sql.do_exchange(request).await
    }
}
