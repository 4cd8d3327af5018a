//! What the tests of this crate share: wakers that count, seeds and random numbers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often its wakers were called.
#[derive(Debug, Default)]
pub(crate) struct WakeCount(AtomicUsize);

impl WakeCount {
    /// A counter at zero.
    pub(crate) fn new() -> Arc<WakeCount> {
        Arc::default()
    }

    /// A waker that counts here.
    pub(crate) fn waker(self: &Arc<WakeCount>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// The count so far.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls once with a waker that does nothing.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once with `count`'s waker.
pub(crate) fn poll_counted<F: Future>(
    future: Pin<&mut F>,
    count: &Arc<WakeCount>,
) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&count.waker()))
}

/// The seeds of a randomized test: fixed ones and a fresh one, each printed as it is used.
pub(crate) fn seeds(test: &'static str) -> impl Iterator<Item = u64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let fresh = now.map_or(7, |since| since.as_nanos() as u64);
    [1, 2, 0xC0FFEE, fresh].into_iter().inspect(move |seed| println!("{test}: seed {seed}"))
}

/// A small generator of random numbers (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}
