//! The check in front of each call: its session is found before anything of the call is read.

use std::convert::Infallible;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::NamedService;

use super::calls::Calls;
use super::session::FlightSession;
use super::tokens::{Peer, Tokens};

/// The longest message of a client, in bytes; the longest ones are batches of rows.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The longest message of a handshake, in bytes.
const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// The session of a call.
#[derive(Clone)]
pub(super) struct Caller(pub(super) Arc<FlightSession>);

/// The service of Flight, behind the check.
#[derive(Clone)]
pub(super) struct Access {
    tokens: Arc<Tokens>,
    calls: FlightServiceServer<Calls>,
    handshakes: FlightServiceServer<Calls>,
}

impl Access {
    pub(super) fn new(tokens: Arc<Tokens>) -> Access {
        let calls = Arc::new(Calls::new(Arc::clone(&tokens)));
        let handshakes = FlightServiceServer::from_arc(Arc::clone(&calls))
            .max_decoding_message_size(HANDSHAKE_BYTES_MAX);
        // A row of a result may be of any length.
        let calls = FlightServiceServer::from_arc(calls)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX);
        Access { tokens, calls, handshakes }
    }
}

impl NamedService for Access {
    const NAME: &'static str = <FlightServiceServer<Calls> as NamedService>::NAME;
}

impl Service<http::Request<Body>> for Access {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if request.uri().path().ends_with("/Handshake") {
            return Service::call(&mut self.handshakes, request);
        }
        let (tokens, mut calls) = (Arc::clone(&self.tokens), self.calls.clone());
        let said = said(&request);
        Box::pin(async move {
            let session = match said {
                Ok((peer, header)) => tokens.session(header.as_deref(), &peer).await,
                Err(status) => Err(status),
            };
            match session {
                Ok(session) => {
                    request.extensions_mut().insert(Caller(session));
                    Service::call(&mut calls, request).await
                }
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

/// The connection of a call, and its `authorization`.
fn said(request: &http::Request<Body>) -> Result<(Peer, Option<String>), Status> {
    let peer = request.extensions().get::<Peer>().cloned();
    let peer = peer.ok_or_else(|| Status::internal("a call of no connection"))?;
    let header = request.headers().get(http::header::AUTHORIZATION);
    let header = header.map(|header| header.to_str()).transpose();
    let header = header.map_err(|_| Status::unauthenticated("the authorization is no text"))?;
    Ok((peer, header.map(str::to_owned)))
}
