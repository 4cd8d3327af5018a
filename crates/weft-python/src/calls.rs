//! Calls of Python's functions when the interpreter ends: a thread that wants its lock afterwards is ended by Python in a way that
//! Rust's code does not survive. So the interpreter waits for calls that run, and no others begin.
//!
//! There is no lock here, which a child that is forked might find taken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pyo3::prelude::*;

/// How often the end of calls is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The number of calls that run, above 32 bits for the process that they run in: a child that was forked has none of them.
static RUNNING: AtomicU64 = AtomicU64::new(0);
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// What [`RUNNING`] is in this process without any call.
fn none_running() -> u64 {
    u64::from(std::process::id()) << 32
}

/// The number of calls of this process in what [`RUNNING`] is.
fn count(running: u64) -> u64 {
    let none = none_running();
    if running >> 32 == none >> 32 { running - none } else { 0 }
}

fn change(by: impl Fn(u64) -> u64) {
    let changed = |running| Some(none_running() + by(count(running)));
    RUNNING
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed)
        .expect("each number has a successor");
}

/// A call of a function that runs.
#[derive(Debug)]
pub(crate) struct Call(());

impl Call {
    /// Begins a call; `None` if the interpreter is about to end.
    pub(crate) fn begin() -> Option<Call> {
        change(|calls| calls + 1);
        let call = Call(());
        (!call.is_to_end()).then_some(call)
    }

    /// Whether the interpreter is about to end, and waits for this call.
    pub(crate) fn is_to_end(&self) -> bool {
        HAS_ENDED.load(Ordering::SeqCst)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        change(|calls| calls.saturating_sub(1));
    }
}

/// Refuses further calls of functions, and waits for the running calls, each of which ends after the row that it is at.
#[pyfunction]
pub(crate) fn end_calls(py: Python<'_>) {
    HAS_ENDED.store(true, Ordering::SeqCst);
    py.detach(|| {
        while count(RUNNING.load(Ordering::SeqCst)) > 0 {
            std::thread::sleep(LOOK_INTERVAL);
        }
    });
}
