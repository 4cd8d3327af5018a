//! A bounded channel from many producers to one consumer, each on any executor or thread.
//!
//! Results stream through it to whoever asked for them. A full channel makes senders wait in the order
//! they came: room that becomes free is granted to the first of them, and passed on if that one has
//! gone away meanwhile. A send that is dropped before it ended has not sent anything.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::primitives::Mutex;
use super::turnstile::{Left, Ticket, Turnstile};
use super::wake_list::WakeList;
use super::{block_on, lock};

/// The receiver has gone or closed the channel; here is the value back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why a value could not be sent at once; here it is back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full, or others wait for room.
    Full(T),
    /// The receiver has gone or closed the channel.
    Closed(T),
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is none at the moment.
    Empty,
    /// There will be none: all senders have gone, or the channel was closed, and it is empty.
    Closed,
}

const CLOSED: &str = "the receiver of the channel has gone away";

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(CLOSED)
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TrySendError::Full(_) => "the channel is full",
            TrySendError::Closed(_) => CLOSED,
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}

impl fmt::Display for TryRecvError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TryRecvError::Empty => "the channel is empty",
            TryRecvError::Closed => "the channel is empty and closed",
        })
    }
}

impl std::error::Error for TryRecvError {}

/// A channel that holds up to `capacity` values.
///
/// # Panics
/// If `capacity` is 0.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a channel must hold at least one value");
    let state = State {
        values: VecDeque::new(),
        capacity,
        granted: 0,
        line: Turnstile::new(),
        receiver: None,
        senders: 1,
        closed: false,
    };
    let state = Arc::new(Mutex::new(state));
    (Sender { state: Arc::clone(&state) }, Receiver { state })
}

#[derive(Debug)]
struct State<T> {
    values: VecDeque<T>,
    capacity: usize,
    /// Room granted to senders that have not used it yet.
    granted: usize,
    line: Turnstile<(), ()>,
    receiver: Option<Waker>,
    senders: usize,
    closed: bool,
}

impl<T> State<T> {
    fn has_room(&self) -> bool {
        self.values.len() + self.granted < self.capacity
    }

    /// Grants room to those first in line.
    fn grant(&mut self, wakers: &mut WakeList) {
        while self.has_room() && !self.line.is_empty() {
            self.granted += 1;
            wakers.push(self.line.settle_first(()));
        }
    }

    /// Appends a value; gives back the receiver's waker.
    fn push(&mut self, value: T) -> Option<Waker> {
        self.values.push_back(value);
        self.receiver.take()
    }

    fn pop(&mut self, wakers: &mut WakeList) -> Result<T, TryRecvError> {
        match self.values.pop_front() {
            Some(value) => {
                self.grant(wakers);
                Ok(value)
            }
            None if self.senders == 0 || self.closed => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Lets nothing more in; everybody in line finds that out.
    fn close(&mut self, wakers: &mut WakeList) {
        self.closed = true;
        while !self.line.is_empty() {
            self.granted += 1;
            wakers.push(self.line.settle_first(()));
        }
    }
}

/// An end that sends; clones send to the same receiver.
#[derive(Debug)]
pub struct Sender<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> Sender<T> {
    /// Sends `value`, waiting for room. Fails if the receiver has gone.
    pub fn send(&self, value: T) -> Send<'_, T> {
        Send { sender: self, value: Some(value), ticket: None }
    }

    /// Sends `value` if there is room and nobody waits for it.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let waker = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(TrySendError::Closed(value));
            }
            if !state.has_room() {
                return Err(TrySendError::Full(value));
            }
            state.push(value)
        };
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Sends `value` from a plain thread (never from a worker), which sleeps until there is room.
    pub fn blocking_send(&self, value: T) -> Result<(), SendError<T>> {
        block_on(self.send(value))
    }

    /// True once the receiver has gone or closed the channel.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        lock(&self.state).senders += 1;
        Sender { state: Arc::clone(&self.state) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.state);
            state.senders -= 1;
            if state.senders == 0 { state.receiver.take() } else { None }
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The future of [`Sender::send`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Send<'a, T> {
    sender: &'a Sender<T>,
    /// Taken out at the end.
    value: Option<T>,
    ticket: Option<Ticket>,
}

/// The value is never pinned.
impl<T> Unpin for Send<'_, T> {}

impl<T> Future for Send<'_, T> {
    type Output = Result<(), SendError<T>>;

    /// # Panics
    /// If it is polled again after it has ended.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waker = context.waker().clone();
        let mut state = lock(&self.sender.state);
        match self.ticket {
            Some(ticket) => {
                if state.line.poll(ticket, &mut waker).is_none() {
                    return Poll::Pending;
                }
                self.ticket = None;
                state.granted -= 1;
            }
            None if state.has_room() || state.closed => {}
            None => {
                self.ticket = Some(state.line.enter((), waker));
                return Poll::Pending;
            }
        }
        let value = self.value.take().expect("a send was polled after it had ended");
        if state.closed {
            return Poll::Ready(Err(SendError(value)));
        }
        let waker = state.push(value);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl<T> Drop for Send<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut wakers = WakeList::new();
        let mut state = lock(&self.sender.state);
        let left = state.line.leave(ticket);
        if let Some(Left::Settled(())) = left {
            state.granted -= 1;
            state.grant(&mut wakers);
        }
        drop(state);
        drop(left);
        wakers.wake_all();
    }
}

/// The end that receives.
#[derive(Debug)]
pub struct Receiver<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> Receiver<T> {
    /// Waits for the next value; `None` once all senders have gone (or [`Receiver::close`] was called)
    /// and every value has been received. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// [`Receiver::recv`] as a poll, to make a stream of it. The waker of the latest call is woken.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut old = Some(context.waker().clone());
        let mut wakers = WakeList::new();
        let mut state = lock(&self.state);
        let polled = match state.pop(&mut wakers) {
            Ok(value) => Poll::Ready(Some(value)),
            Err(TryRecvError::Closed) => Poll::Ready(None),
            Err(TryRecvError::Empty) => {
                std::mem::swap(&mut state.receiver, &mut old);
                Poll::Pending
            }
        };
        drop(state);
        wakers.wake_all();
        polled
    }

    /// The next value if there is one already.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let mut wakers = WakeList::new();
        let received = lock(&self.state).pop(&mut wakers);
        wakers.wake_all();
        received
    }

    /// [`Receiver::recv`] on a plain thread (never on a worker), which sleeps meanwhile.
    pub fn blocking_recv(&mut self) -> Option<T> {
        block_on(self.recv())
    }

    /// Lets nothing more in: senders fail. What is in the channel can still be received.
    pub fn close(&mut self) {
        let mut wakers = WakeList::new();
        lock(&self.state).close(&mut wakers);
        wakers.wake_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut wakers = WakeList::new();
        let mut state = lock(&self.state);
        state.close(&mut wakers);
        let left = (std::mem::take(&mut state.values), state.receiver.take());
        drop(state);
        drop(left);
        wakers.wake_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
