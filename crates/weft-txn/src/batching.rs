//! Batches of transactions: what a worker runs at a time.
//!
//! A transaction is a coroutine. A worker keeps a batch of them going, round robin, and starts the next one in the
//! place of one that has ended; CoroBase (section 4.2, Algorithm 1) takes the next ones when all of a batch have ended,
//! which is here to be measured against. The variants of its section 5.1 are modes ([`weft_index::Mode`]) and batches:
//! *Naïve* is `Naive` and *ERMIA* is `Prefetching`, one transaction at a time; *CoroBase* is `Coroutines` and
//! *CoroBase-FN* is `Boxed(Coroutines)`, in batches of eight.

use std::cell::RefCell;
use std::rc::Rc;

use weft_rt::{Batch, Boundary};

use crate::context::Context;
use crate::engine::Engine;
use crate::error::Result;

/// How many transactions a worker runs at a time, and when it starts the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Transactions at a time.
    pub depth: usize,
    /// When the next is started.
    pub boundary: Boundary,
}

impl Default for Batching {
    fn default() -> Batching {
        // CoroBase's optimum for throughput.
        Batching { depth: 8, boundary: Boundary::Weak }
    }
}

/// Runs coroutines, each with a context of its own from the engine, until `next` has no more; a context comes back from the
/// coroutine that ends, and goes to the next. A future, to be awaited on a worker.
///
/// # Errors
/// That of the first coroutine that fails, on which the others are dropped, and their transactions rolled back; and
/// [`TxnError::TooManyTransactions`](crate::TxnError::TooManyTransactions).
pub async fn run_batch<F>(
    engine: &Engine,
    batching: Batching,
    mut next: impl FnMut() -> Option<F>,
) -> Result<()>
where
    F: AsyncFnOnce(&mut Context) -> Result<()>,
{
    let contexts =
        (0..batching.depth).map(|_| engine.context()).collect::<Result<Vec<Context>>>()?;
    let contexts = Rc::new(RefCell::new(contexts));
    let start = || {
        let work = next()?;
        let contexts = contexts.clone();
        Some(async move {
            let context = contexts.borrow_mut().pop();
            let mut context = context.expect("there are as many as coroutines");
            let done = work(&mut context).await;
            contexts.borrow_mut().push(context);
            done
        })
    };
    Batch::new(batching.depth, batching.boundary, start).await
}
