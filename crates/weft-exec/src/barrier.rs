//! Where the workers of a pipeline wait for each other.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Lets nobody pass before all have come, time after time.
#[derive(Debug)]
pub(crate) struct Barrier {
    all: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often all have come.
    round: u64,
    /// How many have come since.
    here: usize,
    wakers: Vec<Waker>,
}

impl Barrier {
    /// For so many.
    pub(crate) fn new(all: usize) -> Barrier {
        Barrier { all, state: Mutex::default() }
    }

    /// Waits until all have come. Whoever has come and gives up leaves the others waiting: they are cancelled then.
    pub(crate) async fn wait(&self) {
        let mut own_round = None;
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let round = *own_round.get_or_insert_with(|| {
                state.here += 1;
                state.round
            });
            if state.here == self.all {
                state.here = 0;
                state.round += 1;
                let wakers = std::mem::take(&mut state.wakers);
                drop(state);
                wakers.into_iter().for_each(Waker::wake);
                return Poll::Ready(());
            }
            if state.round > round {
                return Poll::Ready(());
            }
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
