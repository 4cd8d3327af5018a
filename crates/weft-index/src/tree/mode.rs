//! How a descent waits for memory: the variants of CoroBase (section 5.1) are modes of one code.
//!
//! A tree is used in [`Coroutines`]. The others exist to be measured against it: `weft-bench probe`.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use weft_rt::yield_now;

/// What a descent does before it touches memory that is perhaps in no cache.
pub trait Mode: Copy {
    /// Whether it asks for it ahead.
    const PREFETCHES: bool;
    /// Whether it lets others run meanwhile.
    const SUSPENDS: bool;
    /// Whether the way down a tree is one coroutine (CoroBase's two levels), not one for each function.
    const IS_FLAT: bool = false;
    /// What a nested coroutine lies in: the coroutine that calls it, or a box of its own.
    type Call<F: Future>: Future<Output = F::Output>;

    /// Lets others run while the memory comes.
    fn pause(self) -> impl Future<Output = ()>;

    /// A call of a nested coroutine, to be awaited.
    fn call<F: Future>(future: F) -> Self::Call<F>;
}

/// No prefetch, no suspension: CoroBase's Naïve.
#[derive(Clone, Copy, Debug)]
pub struct Naive;

/// Prefetches, and goes on at once: CoroBase's ERMIA.
#[derive(Clone, Copy, Debug)]
pub struct Prefetching;

/// Prefetches, and lets the other coroutines of the worker run: CoroBase's CORO.
#[derive(Clone, Copy, Debug)]
pub struct Coroutines;

/// As [`Coroutines`], of several lookups that one coroutine interleaves.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved<'a>(pub(crate) &'a Cell<bool>);

/// As another, with a box for each nested coroutine: CoroBase's CORO-FN.
#[derive(Clone, Copy, Debug)]
pub struct Boxed<M>(pub M);

impl<'a> Interleaved<'a> {
    /// The mode of lookups of one coroutine that say by `paused` that they are not parked.
    pub fn new(paused: &'a Cell<bool>) -> Interleaved<'a> {
        Interleaved(paused)
    }
}

impl Mode for Naive {
    const PREFETCHES: bool = false;
    const SUSPENDS: bool = false;
    type Call<F: Future> = F;

    async fn pause(self) {}

    #[inline]
    fn call<F: Future>(future: F) -> F {
        future
    }
}

impl Mode for Prefetching {
    const PREFETCHES: bool = true;
    const SUSPENDS: bool = false;
    type Call<F: Future> = F;

    async fn pause(self) {}

    #[inline]
    fn call<F: Future>(future: F) -> F {
        future
    }
}

impl Mode for Coroutines {
    const PREFETCHES: bool = true;
    const SUSPENDS: bool = true;
    const IS_FLAT: bool = true;
    type Call<F: Future> = F;

    fn pause(self) -> impl Future<Output = ()> {
        yield_now()
    }

    #[inline]
    fn call<F: Future>(future: F) -> F {
        future
    }
}

impl Mode for Interleaved<'_> {
    const PREFETCHES: bool = true;
    const SUSPENDS: bool = true;
    const IS_FLAT: bool = true;
    type Call<F: Future> = F;

    #[inline]
    fn pause(self) -> impl Future<Output = ()> {
        Pause { paused: self.0, is_over: false }
    }

    #[inline]
    fn call<F: Future>(future: F) -> F {
        future
    }
}

impl<M: Mode> Mode for Boxed<M> {
    const PREFETCHES: bool = M::PREFETCHES;
    const SUSPENDS: bool = M::SUSPENDS;
    type Call<F: Future> = Pin<Box<F>>;

    #[inline]
    fn pause(self) -> impl Future<Output = ()> {
        self.0.pause()
    }

    fn call<F: Future>(future: F) -> Pin<Box<F>> {
        Box::pin(future)
    }
}

/// Is pending once, and says that it is not parked.
struct Pause<'a> {
    paused: &'a Cell<bool>,
    is_over: bool,
}

impl Future for Pause<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        self.is_over = true;
        self.paused.set(true);
        Poll::Pending
    }
}
