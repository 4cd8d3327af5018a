//! Large partitions in memory: one worker evaluates the functions, then all workers take pieces of the rows.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::source::{Evaluated, MORSEL_ROWS, Results};
use crate::error::Result;
use crate::pipeline::{Morsel, Tuples};

/// Rows from which on a morsel is a large one, of which others take pieces.
pub(super) const LARGE_ROWS: usize = 4 * MORSEL_ROWS;

/// The large morsels of all workers.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many are being evaluated.
    evaluating: usize,
    /// Those that are evaluated, each with the row that comes next.
    evaluated: Vec<(Arc<Results>, usize)>,
    /// Of workers that have nothing else to do.
    wakers: Vec<Waker>,
}

impl Pieces {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of what is evaluated.
    pub(super) fn take(&self) -> Option<Evaluated> {
        self.lock().take()
    }

    /// True if there are pieces, or there will be.
    pub(super) fn has_some(&self) -> bool {
        let state = self.lock();
        state.evaluating > 0 || !state.evaluated.is_empty()
    }

    /// Somebody begins to evaluate a large morsel.
    pub(super) fn begin(self: &Arc<Pieces>) -> Evaluating {
        self.lock().evaluating += 1;
        Evaluating { pieces: self.clone() }
    }

    /// The next piece, of what is evaluated or will be; `None` if there is none any more.
    async fn next(&self) -> Option<Evaluated> {
        poll_fn(|context| {
            let mut state = self.lock();
            if let Some(piece) = state.take() {
                return Poll::Ready(Some(piece));
            }
            if state.evaluating == 0 {
                return Poll::Ready(None);
            }
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl State {
    fn take(&mut self) -> Option<Evaluated> {
        let (results, at) = self.evaluated.last_mut()?;
        let (results, range) = (results.clone(), *at..results.range.end.min(*at + MORSEL_ROWS));
        *at = range.end;
        if range.end == results.range.end {
            self.evaluated.pop();
        }
        Some(Evaluated { results, range })
    }
}

/// A large morsel that is being evaluated: others wait for its pieces, until it is dropped.
pub(super) struct Evaluating {
    pieces: Arc<Pieces>,
}

impl Evaluating {
    /// It is evaluated.
    pub(super) fn done(self, results: Results) {
        let first = results.range.start;
        self.pieces.lock().evaluated.push((Arc::new(results), first));
    }
}

impl Drop for Evaluating {
    fn drop(&mut self) {
        let mut state = self.pieces.lock();
        state.evaluating -= 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Pieces, as long as there will be any.
pub(super) struct PieceMorsel {
    pub(super) pieces: Arc<Pieces>,
}

impl Morsel for PieceMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            let piece = self.pieces.next().await;
            Ok(piece.map(|piece| Box::new(piece) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}
