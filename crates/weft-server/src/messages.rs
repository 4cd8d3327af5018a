//! The messages of one connection, from the socket to the handlers.
//!
//! `pgwire` takes messages apart in the belief that they are what they say. What comes from a client is checked first: its length,
//! whether its kind is expected, and whether its parts fill it. A message in the wrong form is answered with an error, as PostgreSQL
//! does it; where it is not clear any more where the next one begins, the connection ends.

use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::str;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::{Sink, SinkExt};
use pgwire::api::{ClientInfo, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::{DecodeContext, PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{MaybeTls, negotiate_tls, process_error, process_message};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::codec::{Framed, FramedParts};

use crate::connection::{Connection, Extended, as_fatal, fatal};
use crate::error::error;
use crate::gathered::Gathered;

/// How long a client may take until it has said who it is.
const STARTUP_MAX: Duration = Duration::from_secs(60);

/// How often a client is looked at whether it is gone, while its statement runs.
const GONE_INTERVAL: Duration = Duration::from_secs(1);

/// The message of a client that goes.
const TERMINATE: &[u8; 5] = b"X\0\0\0\x04";

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// The longest first message, in bytes, as in PostgreSQL.
const STARTUP_BYTES_MAX: usize = 10_000;

/// The longest answer to a demand for a password, in bytes, as in PostgreSQL.
const PASSWORD_BYTES_MAX: usize = 65_535;

/// The longest message with a statement or values, in bytes: what `pgwire` takes.
const MESSAGE_BYTES_MAX: usize = 0x3fff_fffe;

/// Kinds of messages whose answers are not sent before the next Sync or Flush.
const ANSWERED_LATER: &[u8] = b"PBDEC";

/// Kinds of messages that are handled without a wait for anything but the client.
const HANDLED_AT_ONCE: &[u8] = b"BDHSC";

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first message, which has no kind.
    Startup,
    /// The answer to a demand for a password.
    Password,
    /// Anything else.
    Started,
}

impl Stage {
    fn of(state: PgWireConnectionState) -> Stage {
        match state {
            PgWireConnectionState::AwaitingSslRequest | PgWireConnectionState::AwaitingStartup => {
                Stage::Startup
            }
            PgWireConnectionState::AuthenticationInProgress => Stage::Password,
            _ => Stage::Started,
        }
    }

    /// The longest message, in bytes without its kind.
    fn bytes_max(self) -> usize {
        match self {
            Stage::Startup => STARTUP_BYTES_MAX,
            Stage::Password => PASSWORD_BYTES_MAX,
            Stage::Started => MESSAGE_BYTES_MAX,
        }
    }

    /// True of the kind of a message that may come.
    fn permits(self, kind: u8) -> bool {
        match self {
            Stage::Startup => true,
            Stage::Password => kind == b'p',
            Stage::Started => b"QPBEDCHSXdcf".contains(&kind),
        }
    }
}

/// Serves one client until it goes.
///
/// # Errors
/// Those of the socket, and of encryption that does not come about.
pub(crate) async fn serve(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    connection: Arc<Connection>,
) -> PgWireResult<()> {
    let limit = Instant::now() + STARTUP_MAX;
    let Ok(negotiated) = timeout_at(limit, negotiate_tls(socket, tls)).await else { return Ok(()) };
    let Some(socket) = negotiated? else { return Ok(()) };
    let parts = socket.into_parts();
    let mut gathered = FramedParts::new(Gathered::new(parts.io), parts.codec);
    gathered.write_buf = parts.write_buf;
    let mut socket = Framed::from_parts(gathered);
    let mut incoming = BytesMut::from(&parts.read_buf[..]);
    drop(parts.read_buf);
    // What comes is read into `incoming`.
    *socket.read_buffer_mut() = BytesMut::new();
    if socket.is_secure() && !incoming.is_empty() {
        // Another than the client may have sent it.
        return Err(error("08P01", "there was unencrypted data after the request for encryption"));
    }
    let extended = Arc::new(Extended(Arc::clone(&connection)));
    let (mut said_password, mut is_new) = (false, true);
    loop {
        let stage = Stage::of(socket.state());
        if stage == Stage::Started && is_new && socket.write_buffer().is_empty() {
            // A connection that stays idle keeps no buffer.
            (*socket.write_buffer_mut(), is_new) = (BytesMut::new(), false);
        }
        let received = receive(socket.get_mut(), &mut incoming, stage);
        let received = match stage {
            Stage::Started => received.await,
            _ => match timeout_at(limit, received).await {
                Ok(received) => received,
                Err(_) => return Ok(()),
            },
        };
        let mut message = match received {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(error) => return end(&mut socket, error).await,
        };
        if matches!(socket.state(), PgWireConnectionState::AwaitingSync)
            && !b"SX".contains(&message[0])
        {
            // After an error, a client that sends ahead is not heard until the next Sync.
            continue;
        }
        let in_copy = match socket.state() {
            PgWireConnectionState::CopyInProgress(is_extended) => Some(is_extended),
            _ => None,
        };
        let kind = (stage == Stage::Started).then_some(message[0]);
        let is_one_of = |kinds: &[u8]| kind.is_some_and(|kind| kinds.contains(&kind));
        socket.get_mut().hold(is_one_of(ANSWERED_LATER));
        let is_extended = in_copy.unwrap_or_else(|| b"PBEDCHS".contains(&message[0]));
        let done = match check(stage, &message, said_password) {
            Ok(()) => {
                let mut context = DecodeContext::new(socket.protocol_version());
                context.awaiting_frontend_ssl = false;
                context.awaiting_frontend_startup = stage == Stage::Startup;
                let message = match PgWireFrontendMessage::decode(&mut message, &context) {
                    Ok(Some(PgWireFrontendMessage::Terminate(_))) => return Ok(()),
                    Ok(Some(message)) => message,
                    Ok(None) => return end(&mut socket, incomplete()).await,
                    Err(error) => return end(&mut socket, as_fatal(error)).await,
                };
                let is_cancel = matches!(message, PgWireFrontendMessage::CancelRequest(_));
                said_password |= stage == Stage::Password;
                socket.set_transaction_status(connection.transaction_status());
                let other_end = match is_one_of(HANDLED_AT_ONCE) {
                    true => None,
                    false => Some(other_end(socket.get_ref().stream())?),
                };
                let work = process_message(
                    message,
                    &mut socket,
                    Arc::clone(&connection),
                    Arc::clone(&connection),
                    Arc::clone(&extended),
                    Arc::clone(&connection),
                    Arc::clone(connection.shared()),
                );
                let done = tokio::select! {
                    biased;
                    done = work => done,
                    () = until_gone(other_end.as_ref()) => {
                        log::debug!("a client went while its statement ran");
                        return Ok(());
                    }
                };
                if is_cancel {
                    return Ok(());
                }
                done
            }
            Err(error) => Err(error),
        };
        let begins_copy = matches!(socket.state(), PgWireConnectionState::CopyInProgress(_));
        if done.is_err() || begins_copy {
            socket.get_mut().hold(false);
        }
        match done {
            // The client sends its rows once it has been told that it may.
            Ok(()) if begins_copy && in_copy.is_none() => {
                SinkExt::<PgWireBackendMessage>::flush(&mut socket).await?;
            }
            Ok(()) => {}
            Err(PgWireError::IoError(error)) => return Err(error.into()),
            Err(error) if error.is_fatal() || stage != Stage::Started => {
                return end(&mut socket, as_fatal(error)).await;
            }
            Err(error) => {
                connection.note_failure().await;
                socket.set_transaction_status(connection.transaction_status());
                process_error(&mut socket, error, is_extended).await?;
            }
        }
    }
}

/// Another handle of a socket, by which its client is looked at while a statement has the socket.
fn other_end(stream: &MaybeTls) -> io::Result<std::net::TcpStream> {
    let stream = match stream {
        MaybeTls::Plain(stream) => stream,
        MaybeTls::Tls(stream) => stream.get_ref().0,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Waits until the client has closed its end of a connection that does not block; forever without a handle of it.
async fn until_gone(other_end: Option<&std::net::TcpStream>) {
    let Some(other_end) = other_end else { return pending().await };
    let mut next = [0; 64];
    loop {
        tokio::time::sleep(GONE_INTERVAL).await;
        match other_end.peek(&mut next) {
            Ok(0) => return,
            // A client that says that it goes may have more to say before.
            Ok(count) if next[..count] == *TERMINATE => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Tells the client why the connection ends.
async fn end<C>(client: &mut C, error: PgWireError) -> PgWireResult<()>
where
    C: Sink<PgWireBackendMessage, Error = io::Error> + Unpin,
{
    if let PgWireError::IoError(error) = error {
        return Err(error.into());
    }
    let info: ErrorInfo = error.into();
    client.send(PgWireBackendMessage::ErrorResponse(info.into())).await?;
    client.close().await?;
    Ok(())
}

/// Waits for a whole message; `None` if the client is gone.
///
/// # Errors
/// Those of the socket, and FATAL ones for a message that is too long, or of a kind that may not come.
async fn receive<S>(
    stream: &mut S,
    incoming: &mut BytesMut,
    stage: Stage,
) -> PgWireResult<Option<BytesMut>>
where
    S: AsyncRead + Unpin,
{
    loop {
        if let Some(length) = message_bytes(incoming, stage)?
            && incoming.len() >= length
        {
            return Ok(Some(incoming.split_to(length)));
        }
        if incoming.is_empty() {
            // An idle connection keeps no memory.
            *incoming = BytesMut::new();
        }
        if fill(stream, incoming).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads what has come; nothing at the end.
async fn fill<S: AsyncRead + Unpin>(stream: &mut S, into: &mut BytesMut) -> io::Result<usize> {
    poll_fn(|context| {
        let mut bytes = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
        into.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
    .await
}

/// The bytes of the message that begins here, with its kind, as soon as they are known.
fn message_bytes(incoming: &[u8], stage: Stage) -> PgWireResult<Option<usize>> {
    let start = usize::from(stage != Stage::Startup);
    if let Some(kind) = incoming.first()
        && !stage.permits(*kind)
    {
        let message = match stage {
            Stage::Password => "expected a password".to_owned(),
            _ => format!("messages of the kind {kind} do not come from clients"),
        };
        return Err(fatal("08P01", &message));
    }
    let Some(length) = incoming.get(start..start + 4) else { return Ok(None) };
    let length = { length }.get_u32() as usize;
    let least = if stage == Stage::Startup { 8 } else { 4 };
    if length < least || length > stage.bytes_max() {
        return Err(fatal("08P01", &format!("a message cannot have {length} bytes")));
    }
    Ok(Some(start + length))
}

fn incomplete() -> PgWireError {
    fatal("08P01", "a message ends too early")
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Its parts do not fill it.
    Form,
    /// A text is not UTF-8.
    Text,
}

/// Checks that the parts of a message fill it, and that texts are UTF-8.
///
/// # Errors
/// SQLSTATE 08P01 for another form, 22021 for texts in another encoding.
fn check(stage: Stage, message: &[u8], said_password: bool) -> PgWireResult<()> {
    let (kind, checked) = match stage {
        // What follows the length is told from its version.
        Stage::Startup => return Ok(()),
        // Later answers are of bytes without parts.
        Stage::Password if said_password => return Ok(()),
        _ => (message[0], Parts(&message[5..]).check(message[0])),
    };
    match checked {
        Ok(()) => Ok(()),
        // It is not clear what a client wants that cannot even say that.
        Err(_) if b"HSXc".contains(&kind) => Err(incomplete()),
        Err(Flaw::Form) => {
            let kind = char::from(kind);
            Err(error("08P01", format!("the parts of a message of the kind {kind} do not fill it")))
        }
        Err(Flaw::Text) => Err(error("22021", "a text is not encoded in UTF-8")),
    }
}

/// What is left of a message.
struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    fn check(mut self, kind: u8) -> Result<(), Flaw> {
        match kind {
            b'Q' | b'f' => self.text()?,
            b'P' => {
                self.text()?;
                self.text()?;
                let types = self.count()?;
                self.skip(types * 4)?;
            }
            b'B' => {
                self.text()?;
                self.text()?;
                let formats = self.count()?;
                self.skip(formats * 2)?;
                for _ in 0..self.count()? {
                    self.value()?;
                }
                let formats = self.count()?;
                self.skip(formats * 2)?;
            }
            b'E' => {
                self.text()?;
                self.skip(4)?;
            }
            b'C' | b'D' => {
                if !matches!(self.0.first(), Some(b'S' | b'P')) {
                    return Err(Flaw::Form);
                }
                self.skip(1)?;
                self.text()?;
            }
            // The first answer names how the client proves itself.
            b'p' => {
                self.text()?;
                self.value()?;
            }
            b'd' => return Ok(()),
            _ => {}
        }
        if self.0.is_empty() { Ok(()) } else { Err(Flaw::Form) }
    }

    fn skip(&mut self, count: usize) -> Result<(), Flaw> {
        self.0 = self.0.get(count..).ok_or(Flaw::Form)?;
        Ok(())
    }

    /// A text with a zero behind it.
    fn text(&mut self) -> Result<(), Flaw> {
        let length = self.0.iter().position(|byte| *byte == 0).ok_or(Flaw::Form)?;
        str::from_utf8(&self.0[..length]).map_err(|_| Flaw::Text)?;
        self.skip(length + 1)
    }

    fn count(&mut self) -> Result<usize, Flaw> {
        let count = self.0.get(..2).ok_or(Flaw::Form)?;
        let count = { count }.get_u16();
        self.skip(2)?;
        Ok(count.into())
    }

    /// Bytes with their number in front, or -1 for none.
    fn value(&mut self) -> Result<(), Flaw> {
        let length = self.0.get(..4).ok_or(Flaw::Form)?;
        let length = { length }.get_i32();
        self.skip(4)?;
        match length {
            -1 => Ok(()),
            length => self.skip(usize::try_from(length).map_err(|_| Flaw::Form)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(kind: u8, body: &[u8]) -> Option<Flaw> {
        Parts(body).check(kind).err()
    }

    #[test]
    fn whole_messages_are_told_from_others() {
        assert_eq!(flaw(b'Q', b"SELECT 1\0"), None);
        assert_eq!(flaw(b'Q', b"SELECT 1"), Some(Flaw::Form));
        assert_eq!(flaw(b'Q', b"SELECT 1\0SELECT 2\0"), Some(Flaw::Form));
        assert_eq!(flaw(b'Q', b"SELECT '\xff'\0"), Some(Flaw::Text));
        assert_eq!(flaw(b'P', b"a\0SELECT $1\0\0\x01\0\0\0\x17"), None);
        assert_eq!(flaw(b'P', b"a\0SELECT $1\0\0\x02\0\0\0\x17"), Some(Flaw::Form));
        let bind = b"\0a\0\0\x01\0\x01\0\x02\0\0\0\x02\0\x07\xff\xff\xff\xff\0\x01\0\0";
        assert_eq!(flaw(b'B', bind), None);
        for length in 0..bind.len() {
            assert_eq!(flaw(b'B', &bind[..length]), Some(Flaw::Form), "{length} bytes");
        }
        // A value with a length below that of NULL, and one that is longer than the message.
        assert_eq!(flaw(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"), Some(Flaw::Form));
        assert_eq!(flaw(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"), Some(Flaw::Form));
        assert_eq!(flaw(b'D', b"S\0"), None);
        assert_eq!(flaw(b'D', b"X\0"), Some(Flaw::Form));
        assert_eq!(flaw(b'E', b"\0\0\0\0\x05"), None);
        assert_eq!(flaw(b'S', b"\0"), Some(Flaw::Form));
        assert_eq!(flaw(b'd', b"\xff\0\xff"), None);
        assert_eq!(flaw(b'p', b"SCRAM-SHA-256\0\0\0\0\x09n,,"), Some(Flaw::Form));
    }

    #[test]
    fn lengths_are_limited_by_what_is_waited_for() {
        let length = |bytes: &[u8], stage| message_bytes(bytes, stage);
        assert_eq!(length(b"\0\0\0", Stage::Startup).unwrap(), None);
        assert_eq!(length(b"\0\0\0\x09", Stage::Startup).unwrap(), Some(9));
        assert!(length(b"\0\0\0\x07", Stage::Startup).is_err());
        assert!(length(b"\0\0\x27\x11", Stage::Startup).is_err());
        assert!(length(b"Q\0\0\0\x09", Stage::Password).is_err());
        assert!(length(b"p\0\x01\0\0", Stage::Password).is_err());
        assert_eq!(length(b"p\0\0\0\x09", Stage::Password).unwrap(), Some(10));
        assert_eq!(length(b"Q\0\x10\0\0", Stage::Started).unwrap(), Some((1 << 20) + 1));
        for bytes in [b"Q\xff\xff\xff\xff", b"Q\0\0\0\x03", b"Z\0\0\0\x05", b"p\0\0\0\x05"] {
            assert!(length(bytes, Stage::Started).is_err(), "{bytes:?}");
        }
    }
}
