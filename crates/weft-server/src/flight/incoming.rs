//! Connections of Flight's clients: accepted up to a number, encrypted where there is a certificate, and ended where the client stays unknown.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::tokens::Peer;

/// How long a client may take until it is known: it has sent a token that holds, or the password of a role where one is demanded.
pub(super) const UNKNOWN_MAX: Duration = Duration::from_secs(60);

/// How long accepting waits after the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait to be served, at most.
const WAITING_MAX: usize = 64;

/// A connection, with its place among the accepted connections.
pub(super) struct Incoming {
    socket: Socket,
    peer: Peer,
    /// When the connection ends unless its client is known.
    unknown_until: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

enum Socket {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// The connections of a listener, as they come.
pub(super) fn connections(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections_max: usize,
    unknown_max: Duration,
) -> impl Stream<Item = io::Result<Incoming>> {
    let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
    let places = Arc::new(Semaphore::new(connections_max));
    tokio::spawn(async move {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            match accepted {
                Ok((socket, address)) => {
                    let (tls, sender) = (tls.clone(), sender.clone());
                    tokio::spawn(async move {
                        match begin((socket, address), tls, unknown_max, place).await {
                            // Where the server ends, the connection does.
                            Ok(incoming) => drop(sender.send(Ok(incoming)).await),
                            Err(error) => log::debug!("a connection did not come about: {error}"),
                        }
                    });
                }
                Err(error) => {
                    log::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

async fn begin(
    (socket, address): (TcpStream, SocketAddr),
    tls: Option<TlsAcceptor>,
    unknown_max: Duration,
    place: OwnedSemaphorePermit,
) -> io::Result<Incoming> {
    let until = Instant::now() + unknown_max;
    socket.set_nodelay(true)?;
    let socket = match tls {
        None => Socket::Plain(socket),
        Some(tls) => {
            let accepted = tokio::time::timeout_at(until, tls.accept(socket)).await;
            Socket::Encrypted(Box::new(accepted.map_err(io::Error::other)??))
        }
    };
    let unknown_until = Box::pin(tokio::time::sleep_until(until));
    Ok(Incoming { socket, peer: Peer::new(address), unknown_until, _place: place })
}

impl Connected for Incoming {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let incoming = self.get_mut();
        if !incoming.peer.is_known() && incoming.unknown_until.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        match &mut incoming.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Socket::Encrypted(socket) => Pin::new(socket).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Incoming {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Socket::Encrypted(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(context),
            Socket::Encrypted(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Encrypted(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_silent_client_loses_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("an address");
        let limit = Duration::from_millis(50);
        let mut accepted = Box::pin(connections(listener, None, 1, limit));
        let _silent = TcpStream::connect(address).await.expect("it connects");
        let mut first = accepted.next().await.expect("a connection").expect("it is accepted");
        let _second = TcpStream::connect(address).await.expect("it waits");
        let mut byte = [0];
        let error = first.read(&mut byte).await.expect_err("nothing came");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(first);
        accepted.next().await.expect("the place is free").expect("it is accepted");
    }
}
