//! Connections of Flight's clients: accepted up to a number, and encrypted where there is a certificate.

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
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::tokens::Peer;

/// How long a client may take until its connection is encrypted.
const TLS_MAX: Duration = Duration::from_secs(30);

/// How long accepting waits after the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait to be served, at most.
const WAITING_MAX: usize = 64;

/// A connection.
pub(super) struct Incoming {
    socket: Socket,
    peer: Peer,
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
                        match begin(socket, address, tls, place).await {
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
    socket: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    place: OwnedSemaphorePermit,
) -> io::Result<Incoming> {
    socket.set_nodelay(true)?;
    let socket = match tls {
        None => Socket::Plain(socket),
        Some(tls) => {
            let accepted = tokio::time::timeout(TLS_MAX, tls.accept(socket)).await;
            Socket::Encrypted(Box::new(accepted.map_err(io::Error::other)??))
        }
    };
    Ok(Incoming { socket, peer: Peer::new(address), _place: place })
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
        match &mut self.get_mut().socket {
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
