//! Loom models: every interleaving (up to a bound on preemptions) of the races that matter.
//!
//! A lost wake-up shows as a deadlock, unsynchronized access as a report by loom's `UnsafeCell`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-rt --lib --release --target-dir target/loom loom_`

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use super::latch::HybridLatch;
use super::parking_lot::ParkingLot;
use super::ready_set::ReadySet;
use super::sleep::SleepFlag;
use super::{block_on, channel, oneshot};
use crate::cancel::CancelToken;
use crate::memory::Ledger;

/// Checks all interleavings with up to three preemptions: loom's own advice for models of this size.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Polls once with a waker that does nothing.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Memory that one thread at a time may write.
struct Protected(UnsafeCell<u64>);

// SAFETY: loom checks each access for races, which is the point.
unsafe impl Sync for Protected {}
// SAFETY: as above.
unsafe impl Send for Protected {}

impl Protected {
    fn new() -> Protected {
        Protected(UnsafeCell::new(0))
    }

    fn increment(&self) {
        // SAFETY: loom has just checked that nobody else accesses it.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u64 {
        // SAFETY: loom has just checked that nobody writes it.
        self.0.with(|value| unsafe { *value })
    }
}

#[test]
fn loom_ready_set_hands_over_what_was_written_before() {
    check(|| {
        let set = Arc::new(ReadySet::new(128));
        let data: Arc<Vec<_>> = Arc::new((0..2).map(|_| AtomicU64::new(0)).collect());
        // The same index, and one in another word.
        let threads: Vec<_> = [3, 70]
            .into_iter()
            .enumerate()
            .map(|(thread, other)| {
                let (set, data) = (Arc::clone(&set), Arc::clone(&data));
                thread::spawn(move || {
                    data[thread].store(1, Ordering::Relaxed);
                    set.insert(other);
                    set.insert(4)
                })
            })
            .collect();
        let mut found = [0; 2];
        let mut take = || {
            set.take(|word, bits| {
                found[word] |= bits;
                if bits >> 3 & 1 == 1 {
                    assert_eq!(data[0].load(Ordering::Relaxed), 1);
                }
                if word == 1 {
                    assert_eq!(data[1].load(Ordering::Relaxed), 1);
                }
            });
        };
        take();
        threads.into_iter().for_each(|thread| drop(thread.join()));
        take();
        assert_eq!(found, [1 << 3 | 1 << 4, 1 << 6]);
        assert!(set.is_empty());
    });
}

#[test]
fn loom_sleep_misses_nothing() {
    check(|| {
        let set = Arc::new(ReadySet::new(64));
        let flag = Arc::new(SleepFlag::new());
        let bell = Arc::new(Notify::new());
        for index in 0..2 {
            let (set, flag, bell) = (Arc::clone(&set), Arc::clone(&flag), Arc::clone(&bell));
            thread::spawn(move || {
                if set.insert(index) && flag.must_notify() {
                    bell.notify();
                }
            });
        }
        let mut found = 0;
        loop {
            set.take(|_, bits| found |= bits);
            if found == 0b11 {
                break;
            }
            flag.announce_sleep();
            if set.is_empty() {
                bell.wait();
            }
            flag.woke();
        }
    });
}

#[test]
fn loom_parking_lot_loses_no_wake_up() {
    check(|| {
        let lot = Arc::new(ParkingLot::new(1));
        let done = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (lot, done) = (Arc::clone(&lot), Arc::clone(&done));
                thread::spawn(move || {
                    block_on(lot.park(1, || !done.load(Ordering::Relaxed)));
                    assert!(done.load(Ordering::Relaxed));
                })
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        lot.unpark_all(1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn loom_parking_lot_passes_on_what_a_dropped_waiter_got() {
    check(|| {
        let lot = Arc::new(ParkingLot::new(1));
        let done = Arc::new(AtomicBool::new(false));
        let thread = {
            let (lot, done) = (Arc::clone(&lot), Arc::clone(&done));
            thread::spawn(move || {
                // Parks first or second; goes away unpolled, while it may have been chosen.
                let _ = poll_once(pin!(lot.park(1, || !done.load(Ordering::Relaxed))));
            })
        };
        let waiter = {
            let (lot, done) = (Arc::clone(&lot), Arc::clone(&done));
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    block_on(lot.park(1, || !done.load(Ordering::Relaxed)));
                }
            })
        };
        done.store(true, Ordering::Relaxed);
        lot.unpark_one(1);
        thread.join().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn loom_latch_excludes() {
    check(|| {
        let latch = Arc::new(HybridLatch::new());
        let data = Arc::new(Protected::new());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
                thread::spawn(move || {
                    let guard = block_on(latch.exclusive());
                    data.increment();
                    drop(guard);
                })
            })
            .collect();
        let guard = block_on(latch.exclusive());
        data.increment();
        drop(guard);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(data.get(), 3);
        assert!(latch.try_exclusive().is_some());
    });
}

#[test]
fn loom_latch_counts_sharers() {
    check(|| {
        let latch = Arc::new(HybridLatch::new());
        let data = Arc::new(Protected::new());
        let writer = {
            let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
            thread::spawn(move || {
                let guard = block_on(latch.exclusive());
                data.increment();
                drop(guard);
            })
        };
        let reader = {
            let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
            thread::spawn(move || {
                let guard = block_on(latch.shared());
                assert!(data.get() <= 1);
                drop(guard);
            })
        };
        let guard = block_on(latch.shared());
        assert!(data.get() <= 1);
        drop(guard);
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(latch.try_exclusive().is_some());
    });
}

#[test]
fn loom_latch_never_validates_a_torn_read() {
    check(|| {
        let latch = Arc::new(HybridLatch::new());
        let data: Arc<[_; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let writer = {
            let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
            thread::spawn(move || {
                for value in 1..=2 {
                    let guard = latch.try_exclusive().unwrap();
                    data[0].store(value, Ordering::Relaxed);
                    data[1].store(value, Ordering::Relaxed);
                    drop(guard);
                }
            })
        };
        if let Some(version) = latch.optimistic() {
            let (left, right) = (data[0].load(Ordering::Relaxed), data[1].load(Ordering::Relaxed));
            if latch.validate(version) {
                assert_eq!(left, right);
            }
        }
        writer.join().unwrap();
    });
}

/// The reader sees the exclusive bit although the latch was handed over by another thread.
#[test]
fn loom_latch_handed_over_never_validates_a_torn_read() {
    check(|| {
        let latch = Arc::new(HybridLatch::new());
        let data: Arc<[_; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let held = latch.try_shared().unwrap();
        let writer = {
            let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
            thread::spawn(move || {
                let guard = block_on(latch.exclusive());
                data[0].store(1, Ordering::Relaxed);
                data[1].store(1, Ordering::Relaxed);
                drop(guard);
            })
        };
        let reader = {
            let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
            thread::spawn(move || {
                if let Some(version) = latch.optimistic() {
                    let left = data[0].load(Ordering::Relaxed);
                    let right = data[1].load(Ordering::Relaxed);
                    if latch.validate(version) {
                        assert_eq!(left, right);
                    }
                }
            })
        };
        drop(held);
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn loom_latch_passes_on_what_a_dropped_waiter_got() {
    check(|| {
        let latch = Arc::new(HybridLatch::new());
        let data = Arc::new(Protected::new());
        let held = latch.try_exclusive().unwrap();
        let quitter = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || drop(poll_once(pin!(latch.exclusive()))))
        };
        let reader = {
            let (latch, data) = (Arc::clone(&latch), Arc::clone(&data));
            thread::spawn(move || {
                let guard = block_on(latch.shared());
                assert_eq!(data.get(), 1);
                drop(guard);
            })
        };
        data.increment();
        drop(held);
        quitter.join().unwrap();
        reader.join().unwrap();
        assert!(latch.try_exclusive().is_some());
    });
}

#[test]
fn loom_oneshot_arrives_or_closes() {
    check(|| {
        let (sender, receiver) = oneshot::channel();
        let (dropped, closed) = oneshot::channel::<u64>();
        let thread = thread::spawn(move || {
            assert_eq!(sender.send(1), Ok(()));
            drop(dropped);
        });
        assert_eq!(receiver.blocking_recv(), Ok(1));
        assert_eq!(closed.blocking_recv(), Err(oneshot::Closed));
        thread.join().unwrap();
    });
}

#[test]
fn loom_channel_wakes_both_sides() {
    check(|| {
        let (sender, mut receiver) = channel::bounded(1);
        let other = sender.clone();
        let quitter = thread::spawn(move || match poll_once(pin!(other.send(7))) {
            Poll::Ready(sent) => u64::from(sent.is_ok()),
            Poll::Pending => 0,
        });
        let thread = thread::spawn(move || {
            assert!(sender.blocking_send(1).is_ok());
            assert!(sender.blocking_send(2).is_ok());
        });
        let mut received = Vec::new();
        while let Some(value) = receiver.blocking_recv() {
            received.push(value);
        }
        let sevens = received.iter().filter(|value| **value == 7).count() as u64;
        received.retain(|value| *value != 7);
        assert_eq!(received, [1, 2]);
        assert_eq!(quitter.join().unwrap(), sevens);
        thread.join().unwrap();
    });
}

#[test]
fn loom_ledger_wakes_who_waits() {
    check(|| {
        let ledger = Ledger::new(2);
        let held = ledger.try_reserve(1).unwrap();
        let waiter = {
            let ledger = ledger.clone();
            thread::spawn(move || drop(block_on(ledger.reserve(2)).unwrap()))
        };
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || drop(ledger.try_reserve(1)))
        };
        drop(held);
        waiter.join().unwrap();
        other.join().unwrap();
        assert_eq!(ledger.used(), 0);
        assert!(ledger.try_reserve(2).is_some());
    });
}

#[test]
fn loom_ledger_wakes_who_waits_for_what_is_let_go() {
    check(|| {
        let ledger = Ledger::new(4);
        let held_back = ledger.hold_back(1);
        let some = ledger.try_reserve(1).unwrap();
        let waiter = {
            let ledger = ledger.clone();
            thread::spawn(move || drop(block_on(ledger.reserve(3)).unwrap()))
        };
        drop(held_back);
        waiter.join().unwrap();
        drop(some);
        assert_eq!(ledger.used(), 0);
    });
}

#[test]
fn loom_cancel_reaches_who_waits() {
    check(|| {
        let token = CancelToken::new();
        let waiter = {
            let token = token.clone();
            thread::spawn(move || block_on(token.child().cancelled()))
        };
        token.cancel();
        waiter.join().unwrap();
    });
}
