//! Tests of the ledger: order, spilling, cancellation, threads.

use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use super::*;
use crate::sync::block_on;
use crate::sync::testing::{Random, WakeCount, poll_counted, poll_once, seeds};

fn memory<E: std::fmt::Debug>(poll: Poll<Result<Reservation, E>>) -> Reservation {
    match poll {
        Poll::Ready(Ok(reservation)) => reservation,
        other => panic!("not granted: {other:?}"),
    }
}

fn is_spill(poll: &Poll<Result<Grant, MemoryError>>) -> bool {
    matches!(poll, Poll::Ready(Ok(Grant::Spill)))
}

#[test]
fn counts_what_is_held() {
    let ledger = Ledger::new(100);
    let mut one = ledger.try_reserve(60).unwrap();
    assert!(ledger.try_reserve(41).is_none());
    assert!(one.try_grow(40) && !one.try_grow(1));
    assert_eq!((ledger.used(), ledger.peak(), ledger.limit()), (100, 100, 100));
    one.shrink(30);
    let two = one.split(20);
    assert_eq!((one.bytes(), two.bytes(), ledger.used()), (50, 20, 70));
    one.merge(two);
    assert_eq!((one.bytes(), ledger.used()), (70, 70));
    block_on(one.grow(5)).unwrap();
    drop(one);
    assert_eq!((ledger.used(), ledger.peak()), (0, 100));
    assert_eq!(ledger.try_reserve(0).unwrap().bytes(), 0);
    assert!(ledger.try_reserve(u64::MAX).is_none());
    drop(Ledger::new(u64::MAX).try_reserve(u64::MAX / 2).unwrap());
}

#[test]
fn refuses_at_once_what_can_never_fit() {
    let ledger = Ledger::new(100);
    let error = MemoryError::TooLarge { requested_bytes: 101, limit_bytes: 100 };
    assert_eq!(block_on(ledger.reserve(101)).unwrap_err(), error);
    assert_eq!(block_on(ledger.reserve_or_spill(101)).unwrap_err(), error);
    let mut held = ledger.try_reserve(60).unwrap();
    assert_eq!(block_on(held.grow(41)).unwrap_err(), error);
    let text = error.to_string();
    assert!(["101", "100", "memory_limit"].iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn serves_in_order_and_lets_nobody_overtake() {
    let ledger = Ledger::new(100);
    let (first, second) = (ledger.try_reserve(50).unwrap(), ledger.try_reserve(40).unwrap());
    let wakes = WakeCount::new();
    let (mut big, mut small) = (pin!(ledger.reserve(80)), pin!(ledger.reserve(10)));
    assert!(poll_counted(big.as_mut(), &wakes).is_pending());
    assert!(ledger.try_reserve(10).is_none(), "somebody waits");
    assert!(poll_once(small.as_mut()).is_pending());
    drop(second);
    assert!(poll_once(small.as_mut()).is_pending());
    assert_eq!(wakes.get(), 0);
    drop(first);
    assert_eq!(wakes.get(), 1);
    let big = memory(poll_once(big));
    let small = memory(poll_once(small));
    assert_eq!(ledger.used(), big.bytes() + small.bytes());
    assert!(ledger.try_reserve(10).is_some());
}

#[test]
fn a_dropped_wait_passes_the_turn_on() {
    let ledger = Ledger::new(100);
    let held = ledger.try_reserve(50).unwrap();
    let mut last = pin!(ledger.reserve(50));
    {
        let mut big = pin!(ledger.reserve(80));
        assert!(poll_once(big.as_mut()).is_pending());
        assert!(poll_once(last.as_mut()).is_pending());
    }
    let last = memory(poll_once(last));
    let mut after = pin!(ledger.reserve(60));
    {
        let mut granted = pin!(ledger.reserve(60));
        assert!(poll_once(granted.as_mut()).is_pending());
        assert!(poll_once(after.as_mut()).is_pending());
        drop((held, last));
        assert_eq!(ledger.used(), 60);
        assert!(poll_once(after.as_mut()).is_pending());
    }
    drop(memory(poll_once(after)));
    assert_eq!(ledger.used(), 0);
    assert!(ledger.try_reserve(100).is_some());
}

#[test]
fn the_limit_changes_while_in_use() {
    let ledger = Ledger::new(100);
    let held = ledger.try_reserve(80).unwrap();
    ledger.set_limit(50);
    assert_eq!((ledger.used(), ledger.limit()), (80, 50));
    assert!(ledger.try_reserve(1).is_none());
    let (mut fits, mut too_large) = (pin!(ledger.reserve(30)), pin!(ledger.reserve(40)));
    assert!(poll_once(fits.as_mut()).is_pending());
    assert!(poll_once(too_large.as_mut()).is_pending());
    ledger.set_limit(35);
    let error = MemoryError::TooLarge { requested_bytes: 40, limit_bytes: 35 };
    assert!(matches!(poll_once(too_large), Poll::Ready(Err(refused)) if refused == error));
    assert_eq!(ledger.times_lowered(), 2);
    ledger.set_limit(110);
    assert_eq!(ledger.times_lowered(), 2);
    drop(memory(poll_once(fits)));
    drop(held);
}

#[test]
fn what_was_promised_is_there_although_the_limit_was_lowered() {
    let ledger = Ledger::new(100);
    let (counted, _tally) = ledger.tallied();
    let held = ledger.try_reserve(80).unwrap();
    assert!(counted.try_reserve_promised(10).is_none(), "the limit is as it was");
    ledger.set_limit(50);
    let (later, _tally) = ledger.tallied();
    assert!(ledger.try_reserve_promised(10).is_none() && later.try_reserve_promised(10).is_none());
    assert!(counted.try_reserve_promised(21).is_none());
    let mut waiting = pin!(ledger.reserve(10));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let promised = counted.try_reserve_promised(20).unwrap();
    assert_eq!((ledger.used(), promised.bytes()), (100, 20));
    drop((promised, held));
    drop(memory(poll_once(waiting)));
    assert_eq!(ledger.used(), 0);
}

#[test]
fn a_holder_spills_when_all_others_wait() {
    let ledger = Ledger::new(100);
    let buffer_pool = ledger.try_reserve(60).unwrap();
    let (mut one, mut two, three) = (ledger.holder(), ledger.holder(), ledger.holder());
    let held = one.try_reserve(40).unwrap();
    {
        let wakes = WakeCount::new();
        let mut first = pin!(one.reserve_or_spill(10));
        let mut second = pin!(two.reserve_or_spill(10));
        assert!(poll_counted(first.as_mut(), &wakes).is_pending());
        assert!(poll_once(second.as_mut()).is_pending());
        drop(three);
        assert_eq!(wakes.get(), 1);
        assert!(is_spill(&poll_once(first)));
        assert!(is_spill(&poll_once(second)));
    }

    // One waits in line with nothing to spill, the other spills for it.
    let mut plain = pin!(two.reserve(10));
    assert!(poll_once(plain.as_mut()).is_pending());
    assert!(is_spill(&poll_once(pin!(one.reserve_or_spill(10)))));
    drop(held);
    drop(memory(poll_once(plain)));
    drop(buffer_pool);
}

#[test]
fn spills_when_asked_or_when_nobody_holds() {
    let ledger = Ledger::new(100);
    let held = ledger.try_reserve(100).unwrap();
    assert!(is_spill(&poll_once(pin!(ledger.reserve_or_spill(1)))));
    let running = ledger.holder();
    let mut waiting = pin!(ledger.reserve_or_spill(1));
    let mut plain = pin!(ledger.reserve(1));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(poll_once(plain.as_mut()).is_pending());
    assert_eq!(ledger.ask_to_spill(), 1);
    assert_eq!(ledger.ask_to_spill(), 0);
    assert!(is_spill(&poll_once(waiting)));
    assert!(poll_once(plain.as_mut()).is_pending());
    drop(held);
    drop(memory(poll_once(plain)));
    let granted = block_on(ledger.reserve_or_spill(100)).unwrap();
    assert!(matches!(granted, Grant::Memory(reservation) if reservation.bytes() == 100));
    drop(running);
}

#[test]
fn a_holder_that_gives_up_its_wait_runs_again() {
    let ledger = Ledger::new(10);
    let held = ledger.try_reserve(10).unwrap();
    let (mut one, mut two) = (ledger.holder(), ledger.holder());
    assert!(poll_once(pin!(one.reserve_or_spill(1))).is_pending());
    let mut waiting = pin!(two.reserve_or_spill(1));
    assert!(poll_once(waiting.as_mut()).is_pending(), "the first does not wait any more");
    drop(one);
    assert!(is_spill(&poll_once(waiting)));
    drop(held);
}

/// Threads that hold, grow, shrink, give up and spill: the budget is never exceeded, nobody hangs, and
/// in the end everything is free.
#[test]
fn is_obeyed_among_threads() {
    const LIMIT: u64 = 1_000;
    let spilled = AtomicU64::new(0);
    for seed in seeds("ledger threads") {
        let ledger = Ledger::new(LIMIT);
        let in_use = AtomicU64::new(0);
        let start = Barrier::new(4);
        let claim = |bytes: u64| {
            let used = in_use.fetch_add(bytes, Ordering::SeqCst) + bytes;
            assert!(used <= LIMIT, "{used} bytes");
        };
        let give = |bytes: u64| {
            in_use.fetch_sub(bytes, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (ledger, claim, give) = (&ledger, &claim, &give);
                let (spilled, start) = (&spilled, &start);
                scope.spawn(move || {
                    let mut random = Random(seed + thread);
                    let mut holder = ledger.holder();
                    let mut held = ledger.try_reserve(0).unwrap();
                    start.wait();
                    for _ in 0..1_000 {
                        if random.below(8) == 0 {
                            std::thread::yield_now();
                        }
                        let bytes = random.below(400);
                        if random.below(4) == 0 {
                            let given_up = poll_once(pin!(holder.reserve_or_spill(bytes)));
                            drop(given_up);
                        }
                        let part = random.below(held.bytes() + 1);
                        if random.below(3) == 0 || held.bytes() + bytes > LIMIT {
                            give(part);
                            held.shrink(part);
                            continue;
                        }
                        match block_on(holder.reserve_or_spill(bytes)).unwrap() {
                            Grant::Memory(more) => {
                                claim(bytes);
                                held.merge(more);
                            }
                            Grant::Spill => {
                                spilled.fetch_add(1, Ordering::Relaxed);
                                give(part);
                                held.shrink(part);
                            }
                        }
                    }
                    give(held.bytes());
                });
            }
        });
        assert_eq!((ledger.used(), in_use.into_inner()), (0, 0));
        assert!(ledger.peak() <= LIMIT);
        assert!(ledger.try_reserve(LIMIT).is_some());
    }
    assert!(spilled.into_inner() > 0, "memory was never short");
}

/// A cache that has some of the budget and gives back what it may.
struct Hoard {
    memory: std::sync::Mutex<Option<Reservation>>,
    pinned: AtomicU64,
    asked: AtomicU64,
}

impl Hoard {
    fn new(ledger: &Ledger, bytes: u64) -> Arc<Hoard> {
        let mut memory = ledger.try_reserve(0).unwrap();
        assert!(memory.try_grow_from_free(bytes));
        let memory = std::sync::Mutex::new(Some(memory));
        let hoard = Hoard { memory, pinned: AtomicU64::new(0), asked: AtomicU64::new(0) };
        let hoard = Arc::new(hoard);
        let weak: std::sync::Weak<Hoard> = Arc::downgrade(&hoard);
        ledger.add_cache(weak);
        hoard
    }

    fn bytes(&self) -> u64 {
        self.memory.lock().unwrap().as_ref().map_or(0, Reservation::bytes)
    }
}

impl Cache for Hoard {
    fn give_back(&self, bytes: u64) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut memory = self.memory.lock().unwrap();
        let memory_left = memory.as_mut().unwrap();
        let idle = memory_left.bytes() - self.pinned.load(Ordering::Relaxed);
        let part = memory_left.split(bytes.min(idle));
        drop(memory);
        drop(part);
    }
}

#[test]
fn caches_give_back_what_others_lack() {
    let ledger = Ledger::new(100);
    let hoard = Hoard::new(&ledger, 90);
    let one = ledger.try_reserve(10).unwrap();
    assert_eq!((hoard.bytes(), hoard.asked.load(Ordering::Relaxed)), (90, 0), "10 were free");
    let mut two = ledger.try_reserve(5).unwrap();
    assert!(two.try_grow(5));
    let three = block_on(ledger.reserve(20)).unwrap();
    assert_eq!((hoard.bytes(), ledger.used()), (60, 100));
    // Nobody is told to spill as long as a cache has memory.
    assert!(matches!(block_on(ledger.reserve_or_spill(30)).unwrap(), Grant::Memory(_)));
    assert_eq!((hoard.bytes(), ledger.used(), ledger.shortage()), (30, 70, 0));
    hoard.pinned.store(30, Ordering::Relaxed);
    let mut waiting = pin!(ledger.reserve(40));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert_eq!(ledger.shortage(), 10);
    hoard.pinned.store(0, Ordering::Relaxed);
    hoard.give_back(ledger.shortage());
    drop(memory(poll_once(waiting)));
    ledger.set_limit(45);
    assert_eq!((hoard.bytes(), ledger.used()), (5, 45));
    drop((one, two, three));
    drop(hoard);
    assert_eq!(ledger.used(), 0);
    assert!(ledger.try_reserve(46).is_none(), "there is nobody to ask any more");
}

/// Bytes of the heap that the ledgers of one test see.
static HEAP: AtomicU64 = AtomicU64::new(0);

fn heap() -> u64 {
    HEAP.load(Ordering::SeqCst)
}

/// A cache that gives back what it is asked for.
struct Giving(std::sync::Mutex<Reservation>);

impl Cache for Giving {
    fn give_back(&self, bytes: u64) {
        let mut held = self.0.lock().unwrap();
        let given = bytes.min(held.bytes());
        held.shrink(given);
    }
}

#[test]
fn what_the_heap_has_is_not_free() {
    let ledger = Ledger::watching(100, heap);
    let cached = ledger.try_reserve(0).unwrap().mapped();
    let cache = std::sync::Arc::new(Giving(std::sync::Mutex::new(cached)));
    let known: std::sync::Arc<dyn Cache> = cache.clone();
    ledger.add_cache(std::sync::Arc::downgrade(&known));
    assert!(cache.0.lock().unwrap().try_grow_from_free(60));

    // What is reserved and what it is used for count once.
    let mut held = ledger.try_reserve(20).unwrap();
    HEAP.store(20, Ordering::SeqCst);
    assert_eq!((ledger.used(), ledger.unreserved(), ledger.shortage()), (80, 0, 0));
    assert!(!held.try_grow_from_free(21));
    // What nobody reserved is not free.
    HEAP.store(35, Ordering::SeqCst);
    assert_eq!((ledger.used(), ledger.unreserved()), (80, 15));
    assert!(!held.try_grow_from_free(6) && held.try_grow_from_free(5));
    assert_eq!(ledger.unreserved(), 10);
    // The cache makes room for it, when somebody wants to reserve, or says so.
    assert!(held.try_grow(25));
    assert_eq!((cache.0.lock().unwrap().bytes(), held.bytes()), (40, 50));
    HEAP.store(75, Ordering::SeqCst);
    assert_eq!(ledger.shortage(), 15);
    ledger.relieve();
    assert_eq!((cache.0.lock().unwrap().bytes(), ledger.shortage()), (25, 0));
    // Where there is nothing to give, it is refused; who waits is served by what is reserved.
    HEAP.store(101, Ordering::SeqCst);
    assert!(ledger.try_reserve(1).is_none());
    let waited = block_on(ledger.reserve(10)).unwrap();
    assert_eq!((waited.bytes(), cache.0.lock().unwrap().bytes()), (10, 0));
    drop((waited, held));
    // Half of it is there for those who reserve, caches aside.
    assert!(ledger.try_reserve(51).is_none());
    let mut half = ledger.try_reserve(50).unwrap();
    assert!(!half.try_grow(1) && !ledger.empty().try_grow_from_free(1));
    half.shrink(10);
    assert!(!half.try_grow_from_free(1) && half.try_grow(10));
    drop(half);
    HEAP.store(0, Ordering::SeqCst);
    assert_eq!((ledger.used(), ledger.unreserved()), (0, 0));
}

#[test]
fn mapped_memory_stays_so_when_it_is_split_and_merged() {
    fn nothing() -> u64 {
        0
    }
    let ledger = Ledger::watching(100, nothing);
    let mut mapped = ledger.try_reserve(0).unwrap().mapped();
    mapped.merge(ledger.try_reserve(40).unwrap());
    let split = mapped.split(15);
    assert!(mapped.try_grow(5));
    let mut plain = ledger.try_reserve(1).unwrap();
    plain.merge(split);
    drop(mapped);
    assert_eq!((ledger.used(), plain.bytes()), (16, 16));
    // Nothing is mapped any more: with an empty heap, nothing is there but promises.
    assert_eq!(ledger.account.real_bytes(), 0);
    block_on(plain.grow(4)).unwrap();
    drop(plain);
    assert_eq!(ledger.used(), 0);
}

#[test]
fn holds_back_what_only_its_owner_gets() {
    let ledger = Ledger::new(200);
    let held_back = ledger.hold_back(30);
    assert!(ledger.try_reserve(171).is_none());
    let rest = ledger.try_reserve(170).unwrap();
    let wakes = WakeCount::new();
    let mut waiting = pin!(ledger.reserve(20));
    assert!(poll_counted(waiting.as_mut(), &wakes).is_pending());
    assert!(!held_back.is_in_use());
    // Whoever waits.
    let own = held_back.try_reserve(30).unwrap();
    assert!(held_back.try_reserve(1).is_none() && ledger.used() == 200);
    assert!(held_back.is_in_use() && ledger.try_reserve_little(1).is_none());
    drop(own);
    let little = ledger.try_reserve_little(1).unwrap();
    assert!(held_back.is_in_use() && ledger.try_reserve_little(30).is_none());
    drop(little);
    assert!(poll_counted(waiting.as_mut(), &wakes).is_pending());
    drop(held_back);
    let granted = memory(poll_counted(waiting.as_mut(), &wakes));
    assert_eq!((granted.bytes(), ledger.used()), (20, 190));
    drop((granted, rest));
    // What nobody else could give is given to who waits for more than the rest.
    let held_back = ledger.hold_back(30);
    let some = ledger.try_reserve(10).unwrap();
    let mut waiting = pin!(ledger.reserve(190));
    assert!(poll_counted(waiting.as_mut(), &wakes).is_pending());
    drop(some);
    let granted = memory(poll_counted(waiting.as_mut(), &wakes));
    assert!(granted.bytes() == 190 && held_back.try_reserve(11).is_none());
    drop(granted);
    // A quarter at most, whoever asks.
    let more = ledger.hold_back(1 << 40);
    assert!(ledger.try_reserve(151).is_none());
    drop((ledger.try_reserve(150).unwrap(), more));
}

#[test]
fn the_last_part_of_a_budget_is_counted_as_it_is_taken() {
    const MIB: u64 = 1 << 20;
    let ledger = Ledger::new(256 * MIB);
    let most = ledger.try_reserve(224 * MIB).unwrap();
    assert!((0..100).all(|_| !ledger.account.is_much_taken_of_last(16 * MIB)));
    let more = ledger.try_reserve(1).unwrap();
    let is_much: Vec<bool> =
        (0..6).map(|_| ledger.account.is_much_taken_of_last(8 * MIB)).collect();
    assert_eq!(is_much, [false, true, false, true, false, true]);
    drop((most, more));
    assert!(!ledger.account.is_much_taken_of_last(16 * MIB));
}
