//! Running a command while somebody watches.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use futures::Stream;
use weft::{ProgressSnapshot, QueryResult};

/// Time between two calls of a watcher.
const TICK: Duration = Duration::from_millis(100);

/// Runs a command to its end, and calls `watch` with its progress from time to time.
///
/// # Errors
/// What the command says.
pub fn run_with_progress(
    result: QueryResult,
    watch: &mut dyn FnMut(ProgressSnapshot),
) -> weft::Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut result = pin!(result);
    loop {
        match result.as_mut().poll_next(&mut context) {
            Poll::Ready(None) => return Ok(()),
            Poll::Ready(Some(batch)) => drop(batch?),
            Poll::Pending => {
                watch(result.progress());
                thread::park_timeout(TICK);
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
