//! A batch of same-typed coroutines that lie inline in one array.
//!
//! The batch keeps up to `depth` coroutines going: as one ends, the next is started in its slot
//! (weakened morsel boundaries: Spilly, section 5.2). With [`Boundary::Hard`] it takes `depth` at
//! once and the next ones only when all have ended: the scheme of the ADMS paper's section 3.1,
//! kept to be measured against.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::current::{Polled, poll_coroutine, stay_runnable};
use super::waker::{Owner, ReadyCore};
use crate::sync::ready_set::{READY_SET_CAPACITY_MAX, ReadySet};

/// Polls after which a batch lets its worker look at the device and at other tasks, and the time after which it does.
const POLLS_PER_TURN: usize = 64;
const TURN: Duration = Duration::from_micros(250);

/// Polls after which it looks at the clock at the latest, if they take less time than [`SHORT`] each; else it does so after each.
const POLLS_PER_LOOK_MAX: usize = 16;
const SHORT: Duration = Duration::from_micros(1);

/// Most coroutines in one batch.
pub const BATCH_DEPTH_MAX: usize = READY_SET_CAPACITY_MAX;

/// When a batch starts the next coroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// As soon as one has ended.
    #[default]
    Weak,
    /// When all of the batch have ended; exists to be measured against.
    Hard,
}

/// Runs the coroutines that `next` yields, up to `depth` at a time, until `next` has no more or one
/// fails. A future: its output is `Ok` when all have ended, or the first error, on which the others
/// are dropped where they are.
pub struct Batch<F, N, M = fn() -> usize> {
    slots: Box<[Option<F>]>,
    wakers: Vec<Waker>,
    core: Arc<ReadyCore>,
    /// Slots to be polled, a bit each: the part of the ready-set that needs no atomics.
    runnable: Box<[u64]>,
    /// The word of `runnable` at which the last turn ended, and the bits taken from it that had not
    /// been polled: the next turn goes on there, so that everybody runs once in each round.
    cursor: usize,
    unpolled: u64,
    /// Polls between two looks at the clock.
    polls_per_look: usize,
    next: N,
    /// Coroutines beyond which none is started, when asked.
    most: M,
    boundary: Boundary,
    live: usize,
    exhausted: bool,
}

// A batch hands out no pinned references to `next` or to the bookkeeping, and the coroutines lie
// behind a box that is never reallocated: moving the batch moves none of them.
impl<F, N, M> Unpin for Batch<F, N, M> {}

impl<F, N, E> Batch<F, N>
where
    F: Future<Output = Result<(), E>>,
    N: FnMut() -> Option<F>,
{
    /// A batch of up to `depth` coroutines, made by `next`.
    ///
    /// # Panics
    /// If `depth` is 0 or above [`BATCH_DEPTH_MAX`].
    pub fn new(depth: usize, boundary: Boundary, next: N) -> Batch<F, N> {
        assert!((1..=BATCH_DEPTH_MAX).contains(&depth), "batch of {depth} coroutines");
        let core =
            Arc::new(ReadyCore { set: ReadySet::new(depth), owner: Owner::Task(Mutex::new(None)) });
        Batch {
            slots: (0..depth).map(|_| None).collect(),
            wakers: core.wakers(0..depth),
            runnable: vec![0; core.set.word_count()].into_boxed_slice(),
            cursor: 0,
            unpolled: 0,
            polls_per_look: 1,
            core,
            next,
            most: || usize::MAX,
            boundary,
            live: 0,
            exhausted: false,
        }
    }

    /// The same batch, which starts no coroutine while it runs as many as `most` says then: for those who share what is
    /// to be done with others, and would take more than their share at once. One always may run.
    pub fn at_most<M: FnMut() -> usize>(self, most: M) -> Batch<F, N, M> {
        let Batch { slots, wakers, core, runnable, cursor, unpolled, polls_per_look, .. } = self;
        let Batch { next, boundary, live, exhausted, .. } = self;
        Batch {
            slots,
            wakers,
            core,
            runnable,
            cursor,
            unpolled,
            polls_per_look,
            next,
            most,
            boundary,
            live,
            exhausted,
        }
    }
}

impl<F, N, M, E> Batch<F, N, M>
where
    F: Future<Output = Result<(), E>>,
    N: FnMut() -> Option<F>,
    M: FnMut() -> usize,
{
    /// Starts coroutines in free slots.
    fn fill(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_some() {
                continue;
            }
            if self.exhausted || self.live > 0 && self.live >= (self.most)() {
                return;
            }
            self.start(index);
        }
    }

    /// Starts the next coroutine in a free slot, if there is one.
    fn start(&mut self, index: usize) -> bool {
        debug_assert!(self.slots[index].is_none());
        if self.exhausted {
            return false;
        }
        let Some(coroutine) = (self.next)() else {
            self.exhausted = true;
            return false;
        };
        self.slots[index] = Some(coroutine);
        self.runnable[index / 64] |= 1 << (index % 64);
        self.live += 1;
        true
    }

    /// Polls the coroutine in a slot; the slot's bit in `runnable` was cleared before.
    #[inline]
    fn poll_slot(&mut self, index: usize) -> Result<(), E> {
        let Some(coroutine) = &mut self.slots[index] else {
            return Ok(()); // A late wake-up for a coroutine that has ended.
        };
        // SAFETY: the slots lie in a box that is never reallocated or moved out of while the batch
        // lives, and a coroutine is only ever dropped in place.
        let coroutine = unsafe { Pin::new_unchecked(coroutine) };
        let mut context = Context::from_waker(&self.wakers[index]);
        match poll_coroutine(coroutine, &mut context) {
            Polled::Parked => {}
            Polled::Runnable => self.runnable[index / 64] |= 1 << (index % 64),
            Polled::Ready(result) => {
                self.slots[index] = None;
                self.live -= 1;
                result?;
                match self.boundary {
                    Boundary::Weak if self.live + 1 < self.slots.len() => self.fill(),
                    Boundary::Weak => {
                        if self.live == 0 || self.live < (self.most)() {
                            self.start(index);
                        }
                    }
                    Boundary::Hard if self.live == 0 => self.fill(),
                    Boundary::Hard => {}
                }
            }
        }
        Ok(())
    }

    /// Drops the coroutines that are left.
    fn clear(&mut self) {
        for slot in &mut self.slots {
            *slot = None;
        }
        self.live = 0;
        self.exhausted = true;
    }
}

impl<F, N, M, E> Future for Batch<F, N, M>
where
    F: Future<Output = Result<(), E>>,
    N: FnMut() -> Option<F>,
    M: FnMut() -> usize,
{
    type Output = Result<(), E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), E>> {
        let batch = &mut *self;
        batch.core.set_task(context.waker());
        if batch.live == 0 && !batch.exhausted {
            batch.fill();
        }
        let (began, mut polls_left) = (Instant::now(), POLLS_PER_TURN);
        let (mut looked, mut polls_to_look) = (began, batch.polls_per_look);
        loop {
            let Batch { core, runnable, .. } = batch;
            core.set.take(|word, bits| runnable[word] |= bits);
            let mut idle = true;
            // What the last turn left of a word, then each word.
            for _ in 0..=batch.runnable.len() {
                let mut bits = batch.unpolled;
                while bits != 0 {
                    idle = false;
                    if polls_left == 0 {
                        batch.unpolled = bits;
                        stay_runnable(context);
                        return Poll::Pending;
                    }
                    polls_left -= 1;
                    let index = batch.cursor * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    if let Err(error) = batch.poll_slot(index) {
                        batch.clear();
                        return Poll::Ready(Err(error));
                    }
                    polls_to_look -= 1;
                    if polls_to_look == 0 {
                        let now = Instant::now();
                        let polls = batch.polls_per_look;
                        let are_short = now.duration_since(looked) < SHORT * polls as u32;
                        let next = if are_short { 2 * polls } else { 1 };
                        batch.polls_per_look = next.min(POLLS_PER_LOOK_MAX);
                        (looked, polls_to_look) = (now, batch.polls_per_look);
                        if now.duration_since(began) >= TURN {
                            polls_left = 0;
                        }
                    }
                }
                let next = batch.cursor + 1;
                batch.cursor = if next == batch.runnable.len() { 0 } else { next };
                batch.unpolled = mem::take(&mut batch.runnable[batch.cursor]);
            }
            if idle {
                break;
            }
        }
        if batch.live == 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
