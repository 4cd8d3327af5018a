//! Streams of record batches from elsewhere: another engine's operator, a file reader, a client.
//!
//! The workers poll the streams themselves, one worker a stream at a time, and take turns, so that what one stream
//! gives is worked on by all. What must run on an executor of its own feeds a channel there ([`channel`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};

use arrow_array::RecordBatch;
use futures::future::LocalBoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use weft_rt::memory::Ledger;
use weft_rt::sync::channel::{Receiver, Sender, bounded};

use crate::error::{ExecError, Result};
use crate::lane::Lane;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::source::batches::BatchTuples;

/// Streams of record batches.
#[derive(Debug)]
pub struct BatchStreams {
    shared: Arc<Shared>,
    /// All tuples go through one worker, in their order.
    is_ordered: Arc<AtomicBool>,
    handed_out: AtomicUsize,
}

struct Shared {
    streams: Vec<Turns>,
    lanes: Arc<[Lane]>,
}

/// A stream that workers take turns to poll.
struct Turns {
    turn: Ledger,
    has_ended: AtomicBool,
    /// Taken out by whoever has the turn.
    stream: std::sync::Mutex<Option<BoxStream<'static, Result<RecordBatch>>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} streams", self.streams.len())
    }
}

impl BatchStreams {
    /// The batches of `streams`, a column for each of `lanes`, in any order.
    pub fn new(
        streams: Vec<BoxStream<'static, Result<RecordBatch>>>,
        lanes: Vec<Lane>,
    ) -> BatchStreams {
        let turns = |stream| Turns {
            turn: Ledger::new(1),
            has_ended: AtomicBool::new(false),
            stream: std::sync::Mutex::new(Some(stream)),
        };
        let streams = streams.into_iter().map(turns).collect();
        let shared = Arc::new(Shared { streams, lanes: lanes.into() });
        BatchStreams { shared, is_ordered: Arc::default(), handed_out: AtomicUsize::new(0) }
    }

    /// To be set, before the query runs, if one worker is to get the rows of one stream after the other, in their order.
    pub fn is_ordered(&self) -> Arc<AtomicBool> {
        self.is_ordered.clone()
    }
}

impl Source for BatchStreams {
    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        // As many as may be of use: each goes round all streams, beginning with another one.
        let most = if self.is_ordered.load(Ordering::Relaxed) { 1 } else { MORSELS_MAX };
        let first = self.handed_out.fetch_add(1, Ordering::Relaxed);
        let all_ended = || self.shared.streams.iter().all(Turns::has_ended);
        if first >= most || all_ended() {
            return None;
        }
        Some(Box::new(StreamMorsel { shared: self.shared.clone(), first, seen: 0 }))
    }
}

/// More than there are workers.
const MORSELS_MAX: usize = 1 << 20;

impl Turns {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    async fn next(&self) -> Result<Option<RecordBatch>> {
        if self.has_ended() {
            return Ok(None);
        }
        let _turn = self.turn.reserve(1).await.expect("a turn is never too large");
        let taken = self.stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(mut stream) = taken else { return Ok(None) };
        let next = stream.next().await;
        if let Some(Ok(_)) = &next {
            let mut place = self.stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *place = Some(stream);
        } else {
            self.has_ended.store(true, Ordering::Release);
        }
        next.transpose()
    }
}

struct StreamMorsel {
    shared: Arc<Shared>,
    first: usize,
    /// Streams that it has seen the end of.
    seen: usize,
}

impl Morsel for StreamMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let Shared { streams, lanes } = &*self.shared;
            while self.seen < streams.len() {
                let stream = &streams[(self.first + self.seen) % streams.len()];
                if let Some(batch) = stream.next().await? {
                    let tuples = BatchTuples::of(batch, lanes, &mut Vec::new()).await?;
                    return Ok(Some(Box::new(tuples) as Box<dyn Tuples>));
                }
                self.seen += 1;
            }
            Ok(None)
        }
        .boxed_local()
    }
}

/// A stream that is fed from another executor, and the end that feeds it, which waits while `batches` have not been
/// taken.
pub fn channel(batches: usize) -> (BatchSender, BoxStream<'static, Result<RecordBatch>>) {
    let (sender, receiver) = bounded(batches);
    (BatchSender { sender, is_closed: false }, Received { receiver, has_ended: false }.boxed())
}

/// Feeds a stream. Dropped before [`BatchSender::close`] was called, it fails the query: whoever fed it has panicked,
/// or was cancelled.
#[derive(Debug)]
pub struct BatchSender {
    sender: Sender<Fed>,
    is_closed: bool,
}

type Fed = Option<Result<RecordBatch>>;

impl BatchSender {
    /// Sends a batch, or why there is none. False if nobody wants more.
    pub async fn send(&self, batch: Result<RecordBatch>) -> bool {
        self.sender.send(Some(batch)).await.is_ok()
    }

    /// There are no more batches.
    pub async fn close(mut self) {
        self.is_closed = true;
        // Nobody may be interested.
        self.sender.send(None).await.ok();
    }
}

struct Received {
    receiver: Receiver<Fed>,
    has_ended: bool,
}

impl Stream for Received {
    type Item = Result<RecordBatch>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.receiver.poll_recv(context).map(|fed| match fed {
            Some(Some(batch)) => Some(batch),
            Some(None) => {
                self.has_ended = true;
                None
            }
            None => {
                self.has_ended = true;
                let problem = "a source of the query ended before its rows did";
                Some(Err(ExecError::Function(problem.into())))
            }
        })
    }
}
