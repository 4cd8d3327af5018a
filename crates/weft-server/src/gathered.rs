//! A stream that gathers what is written to it while it is held, and sends it at once.
//!
//! `pgwire` sends the answer to each message by itself. The answers to Parse, Bind, Describe, Execute and Close are not waited for by a
//! client before it has sent Sync or Flush: they are sent with the answer to that, as PostgreSQL does it.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are gathered, at most; more are sent although the stream is held.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// A stream that can be held.
#[derive(Debug)]
pub(crate) struct Gathered<S> {
    stream: S,
    /// Written, and not sent yet.
    waiting: BytesMut,
    is_held: bool,
}

impl<S> Gathered<S> {
    pub(crate) fn new(stream: S) -> Gathered<S> {
        Gathered { stream, waiting: BytesMut::new(), is_held: false }
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Whether a flush sends nothing from now on. What has been gathered is sent by the next flush of a stream that is not held.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    /// Sends what was gathered.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, &self.waiting))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(sent);
        }
        // An idle connection keeps no memory.
        drop(mem::take(&mut self.waiting));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let fits = self.waiting.len() + bytes.len() <= GATHERED_BYTES_MAX;
        if fits && (self.is_held || !self.waiting.is_empty()) {
            self.waiting.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_held {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// What has come to the other end of a stream.
    fn come(other_end: &mut (impl AsyncRead + Unpin)) -> usize {
        let mut bytes = [0; 2 * GATHERED_BYTES_MAX];
        let mut read = ReadBuf::new(&mut bytes);
        let waker = futures::task::noop_waker();
        let mut context = Context::from_waker(&waker);
        match Pin::new(other_end).poll_read(&mut context, &mut read) {
            Poll::Ready(result) => result.map(|()| read.filled().len()).unwrap(),
            Poll::Pending => 0,
        }
    }

    #[test]
    fn what_is_written_to_a_held_stream_is_sent_at_once() {
        let (stream, mut other_end) = duplex(4 * GATHERED_BYTES_MAX);
        let mut gathered = Gathered::new(stream);
        gathered.hold(true);
        block_on(gathered.write_all(b"one")).unwrap();
        block_on(gathered.flush()).unwrap();
        assert_eq!(come(&mut other_end), 0);
        gathered.hold(false);
        block_on(gathered.write_all(b"two")).unwrap();
        block_on(gathered.flush()).unwrap();
        let mut both = [0; 6];
        block_on(other_end.read_exact(&mut both)).unwrap();
        assert_eq!(&both, b"onetwo");
        block_on(gathered.write_all(b"three")).unwrap();
        assert_eq!(come(&mut other_end), 5, "a stream that is not held gathers nothing");
    }

    #[test]
    fn much_is_sent_although_the_stream_is_held() {
        let (stream, mut other_end) = duplex(4 * GATHERED_BYTES_MAX);
        let mut gathered = Gathered::new(stream);
        gathered.hold(true);
        let bytes = [7; GATHERED_BYTES_MAX];
        block_on(gathered.write_all(&bytes[1..])).unwrap();
        assert_eq!(come(&mut other_end), 0);
        block_on(gathered.write_all(&bytes[..2])).unwrap();
        assert_eq!(come(&mut other_end), GATHERED_BYTES_MAX + 1);
        block_on(gathered.write_all(b"rest")).unwrap();
        block_on(gathered.shutdown()).unwrap();
        assert_eq!(come(&mut other_end), 4);
    }
}
