//! One value, handed once from any thread or executor to any other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::primitives::Mutex;
use super::{block_on, lock};

/// The sender was dropped without sending, or the value has been taken already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the other side went away without sending a value")
    }
}

impl std::error::Error for Closed {}

/// A fresh pair of ends.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let cell = Arc::new(Mutex::new(Cell::Waiting(None)));
    (Sender { cell: Some(Arc::clone(&cell)) }, Receiver { cell })
}

#[derive(Debug)]
enum Cell<T> {
    /// Nothing sent yet; whom to wake.
    Waiting(Option<Waker>),
    Sent(T),
    /// Either side has gone, or the value has been taken.
    Closed,
}

/// The end that sends.
#[derive(Debug)]
pub struct Sender<T> {
    /// Taken out by sending.
    cell: Option<Arc<Mutex<Cell<T>>>>,
}

impl<T> Sender<T> {
    /// Sends `value`, and gives it back if the receiver has gone.
    pub fn send(mut self, value: T) -> Result<(), T> {
        let Some(cell) = self.cell.take() else { return Err(value) };
        let waker = {
            let mut cell = lock(&cell);
            match &mut *cell {
                Cell::Waiting(waker) => {
                    let waker = waker.take();
                    *cell = Cell::Sent(value);
                    waker
                }
                Cell::Sent(_) | Cell::Closed => return Err(value),
            }
        };
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// True once the receiver has gone: nobody wants the value any more.
    pub fn is_closed(&self) -> bool {
        self.cell.as_ref().is_none_or(|cell| matches!(*lock(cell), Cell::Closed))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        let waker = {
            let mut cell = lock(&cell);
            match &mut *cell {
                Cell::Waiting(waker) => {
                    let waker = waker.take();
                    *cell = Cell::Closed;
                    waker
                }
                Cell::Sent(_) | Cell::Closed => None,
            }
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The end that receives: a future of the value.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Receiver<T> {
    cell: Arc<Mutex<Cell<T>>>,
}

impl<T> Receiver<T> {
    /// Waits for the value on a plain thread (never on a worker).
    pub fn blocking_recv(self) -> Result<T, Closed> {
        block_on(self)
    }

    /// The value if it is there already, `None` if it may still come.
    pub fn try_recv(&mut self) -> Result<Option<T>, Closed> {
        let mut cell = lock(&self.cell);
        if let Cell::Waiting(_) = *cell {
            return Ok(None);
        }
        match std::mem::replace(&mut *cell, Cell::Closed) {
            Cell::Sent(value) => Ok(Some(value)),
            Cell::Waiting(_) | Cell::Closed => Err(Closed),
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock is taken; what it replaces is dropped after the lock is released.
        let mut waker = Some(context.waker().clone());
        let mut cell = lock(&self.cell);
        if let Cell::Waiting(old) = &mut *cell {
            std::mem::swap(old, &mut waker);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *cell, Cell::Closed) {
            Cell::Sent(value) => Poll::Ready(Ok(value)),
            Cell::Waiting(_) | Cell::Closed => Poll::Ready(Err(Closed)),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // The value and the waker are dropped after the lock is released.
        let left = std::mem::replace(&mut *lock(&self.cell), Cell::Closed);
        drop(left);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::sync::testing::{WakeCount, poll_counted, poll_once};

    #[test]
    fn hands_over_one_value() {
        let (sender, receiver) = channel();
        let (old, new) = (WakeCount::new(), WakeCount::new());
        let mut receiver = pin!(receiver);
        assert!(poll_counted(receiver.as_mut(), &old).is_pending());
        assert!(poll_counted(receiver.as_mut(), &new).is_pending());
        assert_eq!(sender.send(5), Ok(()));
        assert_eq!((old.get(), new.get()), (0, 1));
        assert_eq!(poll_once(receiver.as_mut()), Poll::Ready(Ok(5)));
        assert_eq!(poll_once(receiver), Poll::Ready(Err(Closed)));
    }

    #[test]
    fn says_when_a_side_has_gone() {
        let (sender, receiver) = channel::<String>();
        let wakes = WakeCount::new();
        let mut receiver = pin!(receiver);
        assert!(poll_counted(receiver.as_mut(), &wakes).is_pending());
        drop(sender);
        assert_eq!(wakes.get(), 1);
        assert_eq!(poll_once(receiver), Poll::Ready(Err(Closed)));

        let (sender, receiver) = channel();
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(sender.send("back".to_string()), Err("back".to_string()));
    }

    #[test]
    fn a_value_nobody_takes_is_dropped() {
        let value = Arc::new(());
        let (sender, receiver) = channel();
        assert!(sender.send(Arc::clone(&value)).is_ok());
        drop(receiver);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn try_recv_tells_later_from_never() {
        let (sender, mut receiver) = channel();
        assert_eq!(receiver.try_recv(), Ok(None));
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(receiver.try_recv(), Ok(Some(1)));
        assert_eq!(receiver.try_recv(), Err(Closed));
    }

    #[test]
    fn crosses_threads() {
        for number in 0..500 {
            let (sender, receiver) = channel();
            let thread = std::thread::spawn(move || sender.send(number));
            assert_eq!(receiver.blocking_recv(), Ok(number));
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    }
}
