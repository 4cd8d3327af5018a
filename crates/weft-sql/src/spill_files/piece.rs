//! A piece of a file: on its way to disk, there, or lost. Threads wait for it by blocking, coroutines by awaiting it.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use weft_rt::JoinError;
use weft_store::StoreError;
use weft_store::spill::{Scheme, Spilled, Written};

use crate::error::{Result, SqlError};

/// A piece of a file.
#[derive(Debug)]
pub(super) struct Piece {
    /// Bytes of the file in it.
    pub(super) len: usize,
    state: Mutex<State>,
    has_ended: Condvar,
}

#[derive(Debug)]
enum State {
    /// It is written; who awaits that.
    Writing(Vec<Waker>),
    Written(OnDisk),
    Failed(SqlError),
}

/// A piece that was written.
#[derive(Clone, Debug)]
pub(super) struct OnDisk {
    pub(super) spilled: Arc<Spilled>,
    /// Processor time that it took to compress it.
    pub(super) compressing: Duration,
    /// How it was to be compressed.
    pub(super) scheme: Scheme,
}

impl Piece {
    /// One of `len` bytes of the file, which is about to be written, and who has to say how that ends.
    pub(super) fn new(len: usize) -> (Arc<Piece>, Ending) {
        let (state, has_ended) = (Mutex::new(State::Writing(Vec::new())), Condvar::new());
        let piece = Arc::new(Piece { len, state, has_ended });
        let ending = Ending { piece: Arc::clone(&piece) };
        (piece, ending)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, ended: State) {
        let mut state = self.state();
        if let State::Writing(wakers) = std::mem::replace(&mut *state, ended) {
            drop(state);
            self.has_ended.notify_all();
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// True if it is not being written any more.
    fn has_ended(&self) -> bool {
        !matches!(&*self.state(), State::Writing(_))
    }

    /// Blocks this thread, which must be no worker, until it is written.
    ///
    /// # Errors
    /// What went wrong.
    pub(super) fn wait(&self) -> Result<OnDisk> {
        let mut state = self.state();
        loop {
            match &*state {
                State::Writing(_) => {
                    let waited = self.has_ended.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
                State::Written(on_disk) => return Ok(on_disk.clone()),
                State::Failed(error) => return Err(error.clone()),
            }
        }
    }

    /// The piece when it is written.
    ///
    /// # Errors
    /// What went wrong.
    pub(super) async fn written(&self) -> Result<OnDisk> {
        poll_fn(|context| match &mut *self.state() {
            State::Writing(wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
            State::Written(on_disk) => Poll::Ready(Ok(on_disk.clone())),
            State::Failed(error) => Poll::Ready(Err(error.clone())),
        })
        .await
    }
}

/// Who says how the writing of a piece has ended; if nobody does, because the runtime is shut down, it has failed.
#[derive(Debug)]
pub(super) struct Ending {
    piece: Arc<Piece>,
}

impl Ending {
    /// It has ended like this.
    pub(super) fn say(self, written: std::result::Result<Written, JoinError>, scheme: Scheme) {
        let ended = match written {
            Ok(Written { spilled: Ok(spilled), compressing, .. }) => {
                let spilled = Arc::new(spilled);
                State::Written(OnDisk { spilled, compressing, scheme })
            }
            Ok(Written { spilled: Err(error), .. }) => State::Failed(SqlError::from(error)),
            Err(error) => State::Failed(SqlError::from(StoreError::from(error))),
        };
        self.piece.set(ended);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.piece.has_ended() {
            let error = SqlError::from(StoreError::from(JoinError::Shutdown));
            self.piece.set(State::Failed(error));
        }
    }
}
