//! Runs one future on a plain thread, which sleeps while the future waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
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
/// once; sleeping may end early.
#[cfg(not(loom))]
struct Sleeper(std::thread::Thread);

#[cfg(not(loom))]
impl Sleeper {
    fn of_this_thread() -> Sleeper {
        Sleeper(std::thread::current())
    }

    fn sleep(&self) {
        std::thread::park();
    }

    fn wake_up(&self) {
        self.0.unpark();
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
