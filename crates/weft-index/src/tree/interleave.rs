//! Several lookups in one coroutine: while the memory of one comes, the others go on.
//!
//! [`Batch`](weft_rt::Batch) runs coroutines that live long; this runs some that take less than a
//! microsecond, so it has no wakers of its own: coroutines that wait for a device are all polled when one is woken.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use weft_rt::yield_now;

/// Polls after which the worker may look at the device and at other tasks.
const POLLS_PER_TURN: usize = 512;

/// One of them, and what `next` gave beside it.
struct Slot<T, F> {
    beside: Option<T>,
    future: F,
}

/// Runs the futures that `next` makes, up to `width` at a time, and gives their results to `done`, each
/// with what `next` gave beside it. A coroutine that pauses sets the cell.
pub(crate) struct Interleave<'c, F, T, N, D> {
    slots: Box<[Option<Slot<T, F>>]>,
    paused: &'c Cell<bool>,
    next: N,
    done: D,
    live: usize,
    is_exhausted: bool,
    rest: Option<weft_rt::YieldNow>,
}

// No pinned reference to anything but the futures is handed out, and these lie behind a box that is never reallocated.
impl<F, T, N, D> Unpin for Interleave<'_, F, T, N, D> {}

impl<'c, F, T, N, D> Interleave<'c, F, T, N, D>
where
    F: Future,
    N: FnMut() -> Option<(T, F)>,
    D: FnMut(T, F::Output),
{
    pub(crate) fn new(width: usize, paused: &'c Cell<bool>, next: N, done: D) -> Self {
        let slots = (0..width.max(1)).map(|_| None).collect();
        Interleave { slots, paused, next, done, live: 0, is_exhausted: false, rest: None }
    }
}

impl<F, T, N, D> Future for Interleave<'_, F, T, N, D>
where
    F: Future,
    N: FnMut() -> Option<(T, F)>,
    D: FnMut(T, F::Output),
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.rest = None;
        let mut polls = 0;
        loop {
            let mut goes_on = false;
            for slot in &mut this.slots {
                loop {
                    if slot.is_none() && !this.is_exhausted {
                        let made = (this.next)();
                        *slot = made.map(|(beside, future)| Slot { beside: Some(beside), future });
                        match slot {
                            Some(_) => this.live += 1,
                            None => this.is_exhausted = true,
                        }
                    }
                    let Some(Slot { future, .. }) = slot else { break };
                    this.paused.set(false);
                    polls += 1;
                    // SAFETY: the future lies behind a box that is never reallocated, and is dropped in place.
                    match unsafe { Pin::new_unchecked(future) }.poll(context) {
                        Poll::Pending => {
                            goes_on |= this.paused.get();
                            break;
                        }
                        Poll::Ready(output) => {
                            let beside = slot.as_mut().and_then(|slot| slot.beside.take());
                            // The future is dropped where it is.
                            *slot = None;
                            let beside = beside.expect("it was polled");
                            (this.done)(beside, output);
                            this.live -= 1;
                        }
                    }
                }
            }
            if this.live == 0 && this.is_exhausted {
                return Poll::Ready(());
            }
            if !goes_on {
                return Poll::Pending;
            }
            if polls >= POLLS_PER_TURN {
                let rest = this.rest.insert(yield_now());
                if Pin::new(rest).poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        }
    }
}
