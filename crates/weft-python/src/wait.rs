//! Waiting for a statement on a thread of Python: other threads run meanwhile, and signals are heard.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long a wait goes on until signals are looked for.
const SIGNALS_AFTER: Duration = Duration::from_millis(25);

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is an answer, and lets other threads of Python run meanwhile. Between looks for signals
/// `meanwhile` is called.
///
/// # Errors
/// What a handler of a signal raises, such as `KeyboardInterrupt`, and what `meanwhile` returns; `give_up` was called
/// then.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
    give_up: impl Fn(),
    mut meanwhile: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    loop {
        let polled = py.detach(|| {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut context = Context::from_waker(&waker);
            let until = Instant::now() + SIGNALS_AFTER;
            loop {
                if let Poll::Ready(answer) = poll(&mut context) {
                    return Some(answer);
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        });
        if let Some(answer) = polled {
            return Ok(answer);
        }
        if let Err(error) = py.check_signals().and_then(|()| meanwhile(py)) {
            give_up();
            return Err(error);
        }
    }
}
