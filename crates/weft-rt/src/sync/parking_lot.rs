//! Where coroutines wait for something that has an address: a latch, a page being loaded.
//!
//! A table of buckets, each a short mutex and a list of waiters in the order they came. The idea is
//! WebKit's `WTF::ParkingLot` (Pizlo, "Locking in WebKit", 2016), with futures in place of threads:
//! what is waited for needs no more than a bit of its own that says whether somebody waits.
//!
//! A waiter decides under the lock of its bucket whether it still has to wait, and whoever changes that
//! condition does so *before* unparking: so no wake-up is lost. Wakers are called after the lock has
//! been released. The waiters lie inside the waiting futures: parking allocates nothing.

use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::marker::{PhantomData, PhantomPinned};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::lock;
use super::primitives::{Mutex, MutexGuard};
use super::wait_queue::{Node, NodeState, WaitQueue};
use super::wake_list::WakeList;

/// Buckets of the process-wide lot: more than coroutines that wait at a time on most machines.
#[cfg(not(loom))]
const GLOBAL_BUCKETS: usize = 4096;

#[cfg(not(loom))]
static GLOBAL: std::sync::LazyLock<ParkingLot> =
    std::sync::LazyLock::new(|| ParkingLot::new(GLOBAL_BUCKETS));

#[cfg(loom)]
loom::lazy_static! {
    static ref GLOBAL: ParkingLot = ParkingLot::new(1);
}

/// How a wait in the parking lot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// It was parked and has been unparked.
    Unparked,
    /// The validation failed: there was nothing to wait for.
    Invalid,
}

/// What an unparking found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unparked {
    /// Number of waiters that were unparked.
    pub count: usize,
    /// True if waiters of the same key remain.
    pub more: bool,
}

/// A table of queues of waiting coroutines, by key.
#[derive(Debug)]
pub struct ParkingLot {
    buckets: Box<[Bucket]>,
}

/// A queue on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket(Mutex<WaitQueue>);

impl ParkingLot {
    /// A lot of its own, of at least `buckets` buckets (rounded up to a power of two).
    pub fn new(buckets: usize) -> ParkingLot {
        let count = buckets.max(1).next_power_of_two();
        let bucket = |_| Bucket(Mutex::new(WaitQueue::default()));
        ParkingLot { buckets: (0..count).map(bucket).collect() }
    }

    /// The lot of the process, whose keys are addresses.
    pub fn global() -> &'static ParkingLot {
        &GLOBAL
    }

    /// Waits for `key` to be unparked, if `validate` still says so.
    ///
    /// `validate` is called at the first poll under the lock of the bucket: it must be short, and must
    /// neither park nor unpark. If it says false the wait ends at once with [`Parked::Invalid`].
    ///
    /// A waiter that [`ParkingLot::unpark_one`] chose and that is dropped before it has noticed passes
    /// the wake-up on to the next waiter of the key. So a waiter must expect to be unparked for no
    /// reason, and looks again at what it waits for.
    pub fn park<V: FnOnce() -> bool>(&self, key: usize, validate: V) -> Park<'_, V> {
        Park { validate: Cell::new(Some(validate)), waiter: Waiter::new(self, key, 0) }
    }

    /// Unparks the waiter of `key` that has waited longest. True if there was one.
    pub fn unpark_one(&self, key: usize) -> bool {
        self.unpark_one_then(key, |_| ()).count == 1
    }

    /// As [`ParkingLot::unpark_one`], and calls `then` with what was found while the lock of the bucket
    /// is still held, so that it can record whether somebody still waits. If the chosen waiter passes
    /// the wake-up on, `then` is not called again: the record then says too much, never too little.
    pub fn unpark_one_then(&self, key: usize, then: impl FnOnce(Unparked)) -> Unparked {
        let mut chosen = false;
        self.unpark(key, true, |_| !std::mem::replace(&mut chosen, true), then)
    }

    /// Unparks all waiters of `key` and says how many there were.
    pub fn unpark_all(&self, key: usize) -> usize {
        self.unpark(key, false, |_| true, |_| ()).count
    }

    /// Unparks the waiters of `key`, oldest first, up to the first whose tag `decide` does not accept.
    /// `decide` may hand things over: an accepted waiter finds out by [`Waiter::poll_park`] or
    /// [`Waiter::cancel`]. Both functions are called under the lock of the bucket.
    pub(crate) fn unpark_while(
        &self,
        key: usize,
        decide: impl FnMut(usize) -> bool,
        then: impl FnOnce(Unparked),
    ) -> Unparked {
        self.unpark(key, false, decide, then)
    }

    fn unpark(
        &self,
        key: usize,
        alone: bool,
        decide: impl FnMut(usize) -> bool,
        then: impl FnOnce(Unparked),
    ) -> Unparked {
        let mut wakers = WakeList::new();
        let mut count = 0;
        let mut queue = self.bucket(key);
        let more = queue.unpark_while(key, alone, decide, |waker| {
            count += 1;
            wakers.push(waker);
        });
        let found = Unparked { count, more };
        then(found);
        drop(queue);
        wakers.wake_all();
        found
    }

    fn bucket(&self, key: usize) -> MutexGuard<'_, WaitQueue> {
        // Fibonacci hashing: addresses differ in their middle bits.
        let hash = (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        lock(&self.buckets[hash as usize & (self.buckets.len() - 1)].0)
    }
}

/// How a waiter was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It had never been parked, or its owner knows already that it has been unparked.
    NotParked,
    /// It was waiting and has been taken out.
    Dequeued,
    /// Somebody had unparked it and its owner did not know yet; `alone` if nobody else was meant.
    Unparked {
        /// Whether it was the only one to be woken.
        alone: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Queued,
    Done,
}

/// A place in the queue of a key, to be put into a future that waits.
///
/// Its owner polls it, and when the owner is dropped early calls [`Waiter::cancel`] to learn what has
/// to be passed on. (Dropping it without doing so takes it out of the queue, no more.)
#[derive(Debug)]
pub(crate) struct Waiter<'lot> {
    lot: &'lot ParkingLot,
    key: usize,
    phase: Cell<Phase>,
    node: UnsafeCell<Node>,
    pinned: PhantomData<PhantomPinned>,
}

// SAFETY: while the node is linked it is touched only under the lock of its bucket, on whatever thread;
// before and afterwards only by the owner. The other fields may all move between threads.
unsafe impl Send for Waiter<'_> {}

impl<'lot> Waiter<'lot> {
    /// A place for `key`; `tag` says to whoever unparks what the waiter wants.
    pub(crate) fn new(lot: &'lot ParkingLot, key: usize, tag: usize) -> Waiter<'lot> {
        let node = UnsafeCell::new(Node::new(key, tag));
        Waiter { lot, key, phase: Cell::new(Phase::Fresh), node, pinned: PhantomData }
    }

    /// Waits to be unparked. The first poll calls `validate` under the lock of the bucket and ends with
    /// [`Parked::Invalid`] if it says false.
    ///
    /// # Panics
    /// If it is polled again after it has ended.
    pub(crate) fn poll_park(
        self: Pin<&Self>,
        context: &mut Context<'_>,
        validate: impl FnOnce() -> bool,
    ) -> Poll<Parked> {
        // Cloned before the lock is taken, and what it replaces is dropped after the lock is released
        // (locals are dropped last first): both run the executor's code.
        let mut waker = context.waker().clone();
        let node = self.node();
        match self.phase.get() {
            Phase::Fresh => {
                let mut queue = self.lot.bucket(self.key);
                if !validate() {
                    self.phase.set(Phase::Done);
                    return Poll::Ready(Parked::Invalid);
                }
                // SAFETY: the phase says that it is in no list yet. It is pinned, so it stays where it
                // is until it is dropped, which unlinks it; from now on it is touched only under the
                // lock of this bucket, which is that of its key.
                unsafe { queue.push_back(node, waker) };
                self.phase.set(Phase::Queued);
                Poll::Pending
            }
            Phase::Queued => {
                let mut queue = self.lot.bucket(self.key);
                // SAFETY: the phase says that it was linked in this queue.
                if unsafe { queue.state(node) } == NodeState::Waiting {
                    // SAFETY: and nobody has unparked it, so it still is.
                    unsafe { queue.replace_waker(node, &mut waker) };
                    return Poll::Pending;
                }
                self.phase.set(Phase::Done);
                Poll::Ready(Parked::Unparked)
            }
            Phase::Done => panic!("a wait in the parking lot was polled after it had ended"),
        }
    }

    /// Ends the wait, whatever its phase, and says what the owner has to make good for.
    pub(crate) fn cancel(&self) -> Cancelled {
        if self.phase.get() != Phase::Queued {
            return Cancelled::NotParked;
        }
        self.phase.set(Phase::Done);
        let node = self.node();
        let mut queue = self.lot.bucket(self.key);
        // SAFETY: the phase says that it was linked in this queue.
        match unsafe { queue.state(node) } {
            NodeState::Waiting => {
                // SAFETY: and nobody has unparked it, so it still is.
                let waker = unsafe { queue.remove(node) };
                drop(queue);
                drop(waker);
                Cancelled::Dequeued
            }
            NodeState::Unparked { alone } => Cancelled::Unparked { alone },
        }
    }

    fn node(&self) -> NonNull<Node> {
        // SAFETY: the address of a field is not null.
        unsafe { NonNull::new_unchecked(self.node.get()) }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The future of [`ParkingLot::park`].
#[must_use = "futures do nothing unless awaited"]
pub struct Park<'lot, V> {
    validate: Cell<Option<V>>,
    waiter: Waiter<'lot>,
}

impl<V: FnOnce() -> bool> Future for Park<'_, V> {
    type Output = Parked;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Parked> {
        let this = self.into_ref();
        let validate = this.validate.take();
        // SAFETY: the waiter is pinned whenever the future is: nothing moves it out.
        let waiter = unsafe { this.map_unchecked(|park| &park.waiter) };
        waiter.poll_park(context, || validate.is_some_and(|validate| validate()))
    }
}

impl<V> Drop for Park<'_, V> {
    fn drop(&mut self) {
        if self.waiter.cancel() == (Cancelled::Unparked { alone: true }) {
            self.waiter.lot.unpark_one(self.waiter.key);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sync::block_on;
    use crate::sync::testing::{Random, WakeCount, poll_counted, poll_once, seeds};

    #[test]
    fn unparks_in_order_and_by_key() {
        let lot = ParkingLot::new(1);
        let count = WakeCount::new();
        let mut first = pin!(lot.park(1, || true));
        let mut other = pin!(lot.park(2, || true));
        let mut second = pin!(lot.park(1, || true));
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_counted(first.as_mut(), &count).is_pending());
        assert!(poll_counted(other.as_mut(), &count).is_pending());
        assert!(poll_counted(second.as_mut(), &count).is_pending());
        assert_eq!(lot.unpark_one_then(1, |found| assert!(found.more)).count, 1);
        assert_eq!(count.get(), 1);
        assert_eq!(poll_once(first), Poll::Ready(Parked::Unparked));
        assert!(poll_once(second.as_mut()).is_pending());
        assert_eq!(lot.unpark_one_then(1, |_| ()), Unparked { count: 1, more: false });
        assert_eq!(poll_once(second), Poll::Ready(Parked::Unparked));
        assert!(!lot.unpark_one(1));
        assert_eq!(lot.unpark_all(2), 1);
        assert_eq!(poll_once(other), Poll::Ready(Parked::Unparked));
    }

    #[test]
    fn an_invalid_wait_ends_at_once() {
        let lot = ParkingLot::new(4);
        assert_eq!(poll_once(pin!(lot.park(9, || false))), Poll::Ready(Parked::Invalid));
        assert!(!lot.unpark_one(9));
    }

    #[test]
    fn a_dropped_waiter_leaves_or_passes_the_wake_up_on() {
        let lot = ParkingLot::new(1);
        let mut parks: Vec<_> = (0..5).map(|_| Box::pin(lot.park(7, || true))).collect();
        for park in &mut parks {
            assert!(poll_once(park.as_mut()).is_pending());
        }
        drop(parks.remove(2));
        assert!(lot.unpark_one(7));
        drop(parks.remove(0));
        assert_eq!(poll_once(parks[0].as_mut()), Poll::Ready(Parked::Unparked));
        assert!(poll_once(parks[1].as_mut()).is_pending());
        assert_eq!(lot.unpark_all(7), 2);
        drop(parks.remove(1));
        assert_eq!(poll_once(parks[1].as_mut()), Poll::Ready(Parked::Unparked));
    }

    /// Random parks, drops and unparks against a model: a queue of numbers per key.
    #[test]
    fn agrees_with_a_model() {
        for seed in seeds("parking lot model") {
            let mut random = Random(seed);
            let lot = ParkingLot::new(2);
            let mut parked: Vec<(usize, Pin<Box<Park<'_, _>>>)> = Vec::new();
            for _ in 0..2_000 {
                let key = random.below(3) as usize;
                match random.below(4) {
                    0 | 1 => {
                        let mut park = Box::pin(lot.park(key, || true));
                        assert!(poll_once(park.as_mut()).is_pending());
                        parked.push((key, park));
                    }
                    2 if !parked.is_empty() => {
                        drop(parked.remove(random.below(parked.len() as u64) as usize));
                    }
                    _ => {
                        let oldest = parked.iter().position(|(k, ..)| *k == key);
                        assert_eq!(lot.unpark_one(key), oldest.is_some());
                        if let Some(at) = oldest {
                            let (_, mut park) = parked.remove(at);
                            assert_eq!(poll_once(park.as_mut()), Poll::Ready(Parked::Unparked));
                        }
                    }
                }
            }
            for (_, park) in &mut parked {
                assert!(poll_once(park.as_mut()).is_pending());
            }
        }
    }

    /// Threads hand each other permits; some waits are given up. No permit is lost: the test ends.
    #[test]
    fn keeps_every_wake_up_among_threads() {
        const ROUNDS: usize = 3_000;
        let lot = ParkingLot::new(1);
        let permits = AtomicUsize::new(1);
        let take = || {
            permits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lot, permits, take) = (&lot, &permits, &take);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if (round + thread) % 5 == 0 {
                            let _ = poll_once(pin!(
                                lot.park(1, || permits.load(Ordering::SeqCst) == 0)
                            ));
                        }
                        while !take() {
                            block_on(lot.park(1, || permits.load(Ordering::SeqCst) == 0));
                        }
                        permits.fetch_add(1, Ordering::SeqCst);
                        lot.unpark_one(1);
                    }
                });
            }
        });
        assert_eq!(permits.load(Ordering::SeqCst), 1);
    }
}
