//! The way of the bytes of a `COPY … FROM STDIN`: from its client's connection, through a channel of a few messages, to the thread that
//! reads the relation.

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

/// Messages that wait to be read, at most.
const MESSAGES_MAX: usize = 4;

/// Bytes of rows that go on together: some clients send each row by a message of its own, and each message would wake the reading thread.
const GATHERED_BYTES: usize = 64 << 10;

/// What a client sends. The rows of a client that goes without saying that they are over are not taken.
enum Message {
    /// Bytes of rows.
    Data(Bytes),
    /// The client has sent all rows.
    End,
    /// The client breaks the COPY off, for this reason: the rows that came do not count.
    Failure(String),
}

/// The two ends of a new channel.
pub(crate) fn channel() -> (Sender, Incoming) {
    let (messages, receiver) = mpsc::channel(MESSAGES_MAX);
    let sender = Sender { messages, gathered: BytesMut::new() };
    (sender, Incoming { receiver, rest: Bytes::new(), is_over: false })
}

/// The connection's end. A statement that takes no more bytes has failed, or found the end of the data: its result tells, and what is
/// sent to it is dropped.
pub(crate) struct Sender {
    messages: mpsc::Sender<Message>,
    gathered: BytesMut,
}

impl Sender {
    async fn flush(&mut self) {
        if !self.gathered.is_empty() {
            let bytes = self.gathered.split().freeze();
            drop(self.messages.send(Message::Data(bytes)).await);
        }
    }

    /// Sends bytes of rows, or gathers them.
    pub(crate) async fn data(&mut self, bytes: Bytes) {
        self.gathered.extend_from_slice(&bytes);
        if self.gathered.len() >= GATHERED_BYTES {
            self.flush().await;
        }
    }

    /// Says that the client has sent all rows.
    pub(crate) async fn end(mut self) {
        self.flush().await;
        drop(self.messages.send(Message::End).await);
    }

    /// Says that the client breaks the COPY off, and why.
    pub(crate) async fn fail(self, reason: String) {
        drop(self.messages.send(Message::Failure(reason)).await);
    }
}

/// The reading thread's end: the bytes of all rows.
pub(crate) struct Incoming {
    receiver: mpsc::Receiver<Message>,
    rest: Bytes,
    is_over: bool,
}

impl Read for Incoming {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.is_over {
            match self.receiver.blocking_recv() {
                Some(Message::Data(bytes)) => self.rest = bytes,
                Some(Message::End) => self.is_over = true,
                Some(Message::Failure(reason)) => return Err(io::Error::other(reason)),
                None => return Err(io::Error::other("the client is gone")),
            }
        }
        let count = into.len().min(self.rest.len());
        into[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_many_messages_arrive_in_order_and_together() {
        let (mut sender, mut incoming) = channel();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            incoming.read_to_end(&mut bytes).map(|_| bytes)
        });
        let rows: Vec<String> = (0..50_000).map(|row| format!("{row}\n")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for row in &rows {
                sender.data(Bytes::copy_from_slice(row.as_bytes())).await;
                assert!(sender.gathered.len() < GATHERED_BYTES);
            }
            sender.end().await;
        });
        assert_eq!(reader.join().unwrap().unwrap(), rows.concat().into_bytes());
    }

    #[test]
    fn a_client_that_breaks_off_or_goes_is_an_error() {
        for is_said in [true, false] {
            let (mut sender, mut incoming) = channel();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                sender.data(Bytes::from_static(b"1\n")).await;
                match is_said {
                    true => sender.fail("no more".to_owned()).await,
                    false => drop(sender),
                }
            });
            let error = incoming.read_to_end(&mut Vec::new()).unwrap_err().to_string();
            assert_eq!(error, if is_said { "no more" } else { "the client is gone" });
        }
    }
}
