//! Runs one future on a plain thread, which sleeps while the future waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};

/// Runs `future` to its end on the calling thread, which sleeps whenever it waits.
///
/// For threads outside the runtime; a worker that called it would stop all its coroutines.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let sleeper = Arc::new(Sleeper::of_this_thread());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => sleeper.sleep(),
        }
    }
}

/// A thread that sleeps until it is woken. A wake-up that comes first makes the next sleep end at
/// once, also if the thread has slept for something else meanwhile; sleeping may end early.
#[cfg(not(loom))]
struct Sleeper {
    thread: std::thread::Thread,
    is_woken: std::sync::atomic::AtomicBool,
}

#[cfg(not(loom))]
impl Sleeper {
    fn of_this_thread() -> Sleeper {
        Sleeper { thread: std::thread::current(), is_woken: false.into() }
    }

    fn sleep(&self) {
        while !self.is_woken.swap(false, Ordering::AcqRel) {
            std::thread::park();
        }
    }

    fn wake_up(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(loom)]
struct Sleeper(loom::sync::Notify);

#[cfg(loom)]
impl Sleeper {
    fn of_this_thread() -> Sleeper {
        Sleeper(loom::sync::Notify::new())
    }

    fn sleep(&self) {
        self.0.wait();
    }

    fn wake_up(&self) {
        self.0.notify();
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_up();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_up();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::future::poll_fn;
    use std::thread;

    use super::*;

    /// Such as a future that waits for a thread within its poll.
    #[test]
    fn others_that_sleep_take_no_wake_up() {
        let mut polls = 0;
        let done = block_on(poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(true);
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake()).join().unwrap();
            thread::park();
            Poll::Pending
        }));
        assert!(done);
    }
}
