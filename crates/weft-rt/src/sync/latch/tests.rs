//! Tests of the hybrid latch: exclusion, order, versions, cancellation, threads.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::*;
use crate::sync::block_on;
use crate::sync::testing::{Random, WakeCount, poll_counted, poll_once, seeds};

fn ready<T>(poll: Poll<T>) -> T {
    match poll {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("still waits"),
    }
}

#[test]
fn is_one_word() {
    assert_eq!(size_of::<HybridLatch>(), 8);
}

#[test]
fn modes_exclude_each_other_and_versions_count_exclusive_releases() {
    let latch = HybridLatch::new();
    let version = latch.optimistic().unwrap();
    let (one, two) = (latch.try_shared().unwrap(), latch.try_shared().unwrap());
    assert!(latch.try_exclusive().is_none());
    assert!(latch.validate(version));
    drop((one, two));
    assert_eq!(latch.optimistic(), Some(version));
    let guard = latch.try_exclusive().unwrap();
    assert!(latch.optimistic().is_none());
    assert!(!latch.validate(version));
    assert!(latch.try_shared().is_none() && latch.try_exclusive().is_none());
    drop(guard);
    assert!(!latch.validate(version));
    assert_ne!(latch.optimistic(), Some(version));
}

#[test]
fn versions_wrap_around_without_touching_the_other_bits() {
    let latch = HybridLatch { state: AtomicU64::new(u64::MAX << VERSION_SHIFT) };
    drop(latch.try_exclusive().unwrap());
    assert_eq!(latch.optimistic(), Some(Version(0)));
    assert!(latch.try_shared().is_some());
}

#[test]
fn a_full_count_of_sharers_waits() {
    let latch = HybridLatch { state: AtomicU64::new(SHARED_MASK - SHARED_ONE) };
    let last = latch.try_shared().unwrap();
    assert!(latch.try_shared().is_none());
    let mut waiting = pin!(latch.shared());
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(last);
    latch.state.fetch_sub(SHARED_MASK - 2 * SHARED_ONE, Ordering::SeqCst);
    drop(SharedGuard { latch: &latch });
    drop(ready(poll_once(waiting)));
    assert_eq!(latch.state.load(Ordering::SeqCst), 0);
}

#[test]
fn upgrades_an_optimistic_read_unless_it_is_stale() {
    let latch = HybridLatch::new();
    let version = latch.optimistic().unwrap();
    latch.try_upgrade(version).unwrap().release_unchanged();
    assert!(latch.validate(version));
    let shared = latch.try_shared().unwrap();
    assert!(latch.try_upgrade(version).is_none());
    let mut upgrade = pin!(latch.upgrade(version));
    assert!(poll_once(upgrade.as_mut()).is_pending());
    drop(shared);
    drop(ready(poll_once(upgrade)).unwrap());
    assert!(latch.try_upgrade(version).is_none());
    assert!(block_on(latch.upgrade(version)).is_none());

    let version = latch.optimistic().unwrap();
    let mut first = pin!(latch.exclusive());
    let shared = latch.try_shared().unwrap();
    assert!(poll_once(first.as_mut()).is_pending());
    let mut upgrade = pin!(latch.upgrade(version));
    assert!(poll_once(upgrade.as_mut()).is_pending());
    drop(shared);
    drop(ready(poll_once(first)));
    let before = latch.optimistic();
    assert!(before.is_none(), "handed over to the upgrade");
    assert!(ready(poll_once(upgrade)).is_none());
    assert!(latch.optimistic().is_some_and(|now| now != version));
}

#[test]
fn waiters_are_served_in_order_and_readers_together() {
    let latch = HybridLatch::new();
    let wakes: Vec<_> = (0..4).map(|_| WakeCount::new()).collect();
    let held = latch.try_shared().unwrap();
    let mut writer = pin!(latch.exclusive());
    assert!(poll_counted(writer.as_mut(), &wakes[0]).is_pending());
    assert!(latch.try_shared().is_none(), "readers do not overtake a waiting writer");
    let mut readers: Vec<_> = (0..2).map(|_| Box::pin(latch.shared())).collect();
    for (reader, wakes) in readers.iter_mut().zip(&wakes[1..]) {
        assert!(poll_counted(reader.as_mut(), wakes).is_pending());
    }
    let mut last = pin!(latch.exclusive());
    assert!(poll_counted(last.as_mut(), &wakes[3]).is_pending());
    let woken = || wakes.iter().map(|count| count.get()).collect::<Vec<_>>();

    drop(held);
    assert_eq!(woken(), [1, 0, 0, 0]);
    let held = ready(poll_once(writer));
    assert!(readers.iter_mut().all(|reader| poll_once(reader.as_mut()).is_pending()));
    drop(held);
    assert_eq!(woken()[0], 1);
    let guards: Vec<_> =
        readers.iter_mut().map(|reader| ready(poll_once(reader.as_mut()))).collect();
    assert!(poll_once(last.as_mut()).is_pending());
    drop(guards);
    drop(ready(poll_once(last)));
    assert_eq!(latch.state.load(Ordering::SeqCst), 2 * VERSION_ONE);
}

#[test]
fn a_downgrade_lets_readers_in() {
    let latch = HybridLatch::new();
    let guard = latch.try_exclusive().unwrap();
    let version = guard.version();
    let (mut reader, mut writer) = (pin!(latch.shared()), pin!(latch.exclusive()));
    assert!(poll_once(reader.as_mut()).is_pending());
    assert!(poll_once(writer.as_mut()).is_pending());
    let shared = guard.downgrade();
    assert!(!latch.validate(version));
    drop((shared, ready(poll_once(reader))));
    drop(ready(poll_once(writer)));
    assert!(latch.try_exclusive().is_some());
}

#[test]
fn dropped_waiters_let_the_next_ones_through() {
    let latch = HybridLatch::new();
    let held = latch.try_shared().unwrap();
    let mut reader = pin!(latch.shared());
    {
        let mut writer = pin!(latch.exclusive());
        assert!(poll_once(writer.as_mut()).is_pending());
        assert!(poll_once(reader.as_mut()).is_pending());
    }
    drop(ready(poll_once(reader)));
    {
        let mut writer = pin!(latch.exclusive());
        assert!(poll_once(writer.as_mut()).is_pending());
    }
    drop(latch.try_shared().expect("nobody waits any more"));

    // Handed over to a waiter that goes away without noticing.
    let mut second = pin!(latch.exclusive());
    {
        let mut first = pin!(latch.exclusive());
        assert!(poll_once(first.as_mut()).is_pending());
        assert!(poll_once(second.as_mut()).is_pending());
        drop(held);
        assert!(poll_once(second.as_mut()).is_pending());
    }
    let version = ready(poll_once(second)).version();
    assert_eq!(version, Version(0), "the one that went away changed nothing");
}

/// Random acquisitions, releases and cancellations on one thread, against the rules of the modes.
#[test]
fn keeps_the_rules_in_random_order() {
    for seed in seeds("latch rules") {
        let mut random = Random(seed);
        let latch = HybridLatch::new();
        let (mut shared, mut exclusive) = (Vec::new(), Vec::new());
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for _ in 0..5_000 {
            match random.below(6) {
                0 => readers.push(Box::pin(latch.shared())),
                1 => writers.push(Box::pin(latch.exclusive())),
                2 if !shared.is_empty() => drop(shared.pop()),
                3 => drop(exclusive.pop()),
                4 if !readers.is_empty() => {
                    drop(readers.remove(random.below(readers.len() as u64) as usize));
                }
                5 if !writers.is_empty() => {
                    drop(writers.remove(random.below(writers.len() as u64) as usize));
                }
                _ => {}
            }
            readers.retain_mut(|reader| match poll_once(reader.as_mut()) {
                Poll::Ready(guard) => {
                    shared.push(guard);
                    false
                }
                Poll::Pending => true,
            });
            writers.retain_mut(|writer| match poll_once(writer.as_mut()) {
                Poll::Ready(guard) => {
                    exclusive.push(guard);
                    false
                }
                Poll::Pending => true,
            });
            assert!(exclusive.len() <= 1 && (exclusive.is_empty() || shared.is_empty()));
            let idle = shared.is_empty() && exclusive.is_empty();
            assert!(
                !idle || (readers.is_empty() && writers.is_empty()),
                "a free latch and waiters"
            );
        }
        drop((shared, exclusive, readers, writers));
        assert_eq!(latch.state.load(Ordering::SeqCst) & (VERSION_ONE - 1), 0);
    }
}

/// Threads of every kind against each other, with cancellations; two words that must stay equal.
#[test]
fn holds_among_threads() {
    const ROUNDS: u64 = 4_000;
    let latch = HybridLatch::new();
    let (left, right) = (AtomicU64::new(0), AtomicU64::new(0));
    let (readers, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let read = || (left.load(Ordering::Relaxed), right.load(Ordering::Relaxed));
    let write = || {
        assert_eq!(readers.load(Ordering::Relaxed), 0);
        left.store(left.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        std::hint::spin_loop();
        right.store(right.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        let writer = |thread: u64| {
            let (latch, write) = (&latch, &write);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if (round + thread).is_multiple_of(7)
                        && let Poll::Ready(_guard) = poll_once(pin!(latch.exclusive()))
                    {
                        write();
                    }
                    let guard = block_on(latch.exclusive());
                    write();
                    drop(guard);
                }
            })
        };
        let writers = [writer(0), writer(1)];
        // A stream of readers that never lets the latch become free by itself.
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let guard = block_on(latch.shared());
                    readers.fetch_add(1, Ordering::Relaxed);
                    let (left, right) = read();
                    assert_eq!(left, right);
                    readers.fetch_sub(1, Ordering::Relaxed);
                    drop(guard);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let Some(version) = latch.optimistic() else { continue };
                let (left, right) = read();
                if latch.validate(version) {
                    assert_eq!(left, right);
                    assert_eq!(Version(left), version);
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert!(read().0 >= 2 * ROUNDS);
}
