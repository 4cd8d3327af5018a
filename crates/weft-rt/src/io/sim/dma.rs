//! The thread that copies in place of a device's DMA engine.
//!
//! A real device moves data without the worker's processor; so under the real clock the copies of
//! a simulated disk run here, while the modelled latency passes.

use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::inbox::Inbox;
use super::transfer::Transfer;

/// A transfer to perform, and whom to tell.
pub(crate) struct Job {
    pub(crate) transfer: Transfer,
    pub(crate) slot: u32,
    pub(crate) inbox: Arc<Inbox>,
}

/// The copying thread of one disk; dropping it finishes what was sent.
pub(crate) struct Dma {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    idle: bool,
    closing: bool,
}

impl Queue {
    fn serve(&self) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.jobs.is_empty() {
                if state.closing {
                    return;
                }
                state.idle = true;
                state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.idle = false;
            mem::swap(&mut state.jobs, &mut batch);
            drop(state);
            for Job { transfer, slot, inbox } in batch.drain(..) {
                inbox.deliver((slot, transfer.perform()));
            }
        }
    }
}

impl Dma {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error if it has no threads left.
    pub(crate) fn start() -> io::Result<Dma> {
        let queue = Arc::new(Queue::default());
        let served = queue.clone();
        let thread = thread::Builder::new().name("weft-sim-dma".into());
        Ok(Dma { queue, thread: Some(thread.spawn(move || served.serve())?) })
    }

    /// Sends a batch, in order.
    pub(crate) fn send(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.append(jobs);
        let wake = mem::take(&mut state.idle);
        drop(state);
        if wake {
            self.queue.came.notify_one();
        }
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        self.queue.state.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.queue.came.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to finish.
            thread.join().ok();
        }
    }
}
