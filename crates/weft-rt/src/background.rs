//! Threads for work that blocks: calls into the system and other libraries, which no worker has the time for.
//!
//! A `JoinHandle` that is dropped detaches its thread, and in glibc before 2.43 `pthread_detach` reads the thread's memory once
//! more after it has let the thread free it (bug 19951): a process that detaches many short threads dies of a segmentation
//! fault sooner or later. Threads of this module are therefore never detached but joined, each once it has ended, by the
//! next call of [`spawn`].

use std::io;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Threads that have not been joined yet: threads that run, and threads that ended since the last call of [`spawn`].
static THREADS: Mutex<Threads> = Mutex::new(Threads { process: 0, handles: Vec::new() });

struct Threads {
    /// The process that has them: one that was forked from it has none of its threads.
    process: u32,
    handles: Vec<JoinHandle<()>>,
}

/// Runs `work` on a new thread called `name`, and does not wait for it. The process may end before the work does.
///
/// # Errors
/// Those of the system if it gives no thread; `work` is dropped then.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let ended: Vec<_> = threads().handles.extract_if(.., |thread| thread.is_finished()).collect();
    for thread in ended {
        // A panic of the work has been printed.
        thread.join().ok();
    }
    let thread = Builder::new().name(name.into()).spawn(work)?;
    threads().handles.push(thread);
    Ok(())
}

fn threads() -> MutexGuard<'static, Threads> {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if threads.process != process::id() {
        threads.process = process::id();
        // Joining threads of another process fails, and detaching them is undefined.
        std::mem::take(&mut threads.handles).into_iter().for_each(std::mem::forget);
    }
    threads
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_that_ended_are_joined_by_the_next_call() {
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            spawn("weft-test", move || sender.send(number).expect("the test waits"))
                .expect("a thread");
            assert_eq!(receiver.recv(), Ok(number));
            while !threads().handles.iter().all(JoinHandle::is_finished) {
                std::thread::yield_now();
            }
            // Other tests may have some.
            assert!(threads().handles.len() < 50, "threads that ended long ago are kept");
        }
    }

    #[test]
    fn a_panic_of_the_work_ends_its_thread_alone() {
        let (sender, receiver) = mpsc::channel::<()>();
        spawn("weft-test", move || {
            let _sender = sender;
            panic!("of the work");
        })
        .expect("a thread");
        assert!(receiver.recv().is_err());
    }
}
