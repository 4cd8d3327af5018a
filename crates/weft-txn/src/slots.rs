//! Slots of transactions: where each one says that it runs, since when, and what became of it.
//!
//! A transaction has a slot while it runs. The slot is its registration in three protocols: the *epoch*, which
//! keeps versions from being freed that the transaction may still look at (a transaction enters, not a thread
//! and not a batch: CoroBase, section 4.4, does it by batch, which one slow member holds up); the *horizon*, below
//! which no snapshot looks; and the *state*, by which others learn whether the versions that carry
//! the transaction's id count (ERMIA's and Hekaton's transaction contexts).
//!
//! The clock gives begin and commit timestamps. It also stands for the epoch: garbage is tagged with a tick of
//! the clock, and is freed when every transaction that runs began at that tick or later.

use crate::primitives::{AtomicBool, AtomicU64, Mutex, Ordering, fence, lock};

/// `begin` of a slot whose transaction is about to read the clock.
const STARTING: u64 = 0;
/// `begin` of a slot without a transaction.
const IDLE: u64 = u64::MAX;
/// The first timestamp: of what was there before every transaction.
pub(crate) const FIRST: u64 = 1;

/// The bit of a stamp that says that it is a transaction's id.
const ID_BIT: u64 = 1 << 63;
const GENERATION_BITS: u32 = 47;
/// Most slots: what an id has room for.
pub(crate) const SLOTS_MAX: usize = 1 << 16;

const STATE_BITS: u32 = 3;
const ACTIVE: u64 = 0;
/// About to draw a commit timestamp.
const DRAWING: u64 = 1;
/// Has drawn it, and has not published yet what it read.
const DRAWN: u64 = 2;
/// Has published what it read; whether it commits is not decided.
const PUBLISHED: u64 = 3;
const COMMITTED: u64 = 4;
const ABORTED: u64 = 5;

/// The id of a transaction, as versions carry it until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionId(u64);

impl TransactionId {
    /// The id that a stamp is; `None` if it is a commit timestamp.
    #[inline]
    pub(crate) fn of_stamp(stamp: u64) -> Option<TransactionId> {
        (stamp & ID_BIT != 0).then_some(TransactionId(stamp))
    }

    pub(crate) fn stamp(self) -> u64 {
        self.0
    }

    fn slot(self) -> usize {
        (self.0 >> GENERATION_BITS) as usize & (SLOTS_MAX - 1)
    }

    fn generation(self) -> u64 {
        self.0 & ((1 << GENERATION_BITS) - 1)
    }
}

/// What is known of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It runs; if it commits, its timestamp will be above all that the clock has given so far.
    Active,
    /// It is about to commit or to abort, at this timestamp once that is known.
    Deciding(Option<u64>),
    Committed(u64),
    Aborted,
}

/// One slot, on cache lines of its own.
#[repr(align(128))]
struct Slot {
    /// When the transaction began: it sees what was committed by then.
    begin: AtomicU64,
    generation: AtomicU64,
    /// The state in the low bits, the commit timestamp above.
    state: AtomicU64,
    /// SSN's low watermark of the transaction, valid once it has committed.
    sstamp: AtomicU64,
    /// Stamp of the transaction that this one waits for; 0 if there is none.
    waits_for: AtomicU64,
    /// Whether a coroutine may be parked until the transaction ends.
    is_awaited: AtomicBool,
}

/// All slots, and the clock.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    used: AtomicU64,
    free: Mutex<Vec<u32>>,
    clock: AtomicU64,
    horizon: AtomicU64,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Slots {
        assert!((1..=SLOTS_MAX).contains(&count), "{count} slots");
        let slot = |_| Slot {
            begin: AtomicU64::new(IDLE),
            generation: AtomicU64::new(0),
            state: AtomicU64::new(ACTIVE),
            sstamp: AtomicU64::new(0),
            waits_for: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
        };
        Slots {
            slots: (0..count).map(slot).collect(),
            used: AtomicU64::new(0),
            free: Mutex::new(Vec::new()),
            clock: AtomicU64::new(FIRST),
            horizon: AtomicU64::new(FIRST),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Takes a slot; `None` if all are in use.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = lock(&self.free);
        if let Some(slot) = free.pop() {
            return Some(slot);
        }
        let used = self.used.load(Ordering::Relaxed);
        if used as usize == self.slots.len() {
            return None;
        }
        self.used.store(used + 1, Ordering::SeqCst);
        Some(used as u32)
    }

    /// False if a transaction was begun in a slot and has not left, as it was leaked.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn is_idle(&self, slot: u32) -> bool {
        self.slots[slot as usize].begin.load(Ordering::Relaxed) == IDLE
    }

    /// The transaction that was begun in a slot and leaked.
    #[cfg(not(loom))]
    pub(crate) fn leaked(&self, index: u32) -> Entered<'_> {
        let slot = &self.slots[index as usize];
        let begin = slot.begin.load(Ordering::Relaxed);
        let generation = slot.generation.load(Ordering::Relaxed);
        let id = ID_BIT | u64::from(index) << GENERATION_BITS | generation;
        Entered { slots: self, index, begin, id: TransactionId(id) }
    }

    /// The last timestamp that was drawn.
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// The clock goes on from `now` at least: for what is recovered.
    #[cfg(not(loom))]
    pub(crate) fn advance_to(&self, now: u64) {
        self.clock.fetch_max(now, Ordering::SeqCst);
    }

    /// A timestamp above all before it.
    pub(crate) fn draw(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A transaction begins in a slot: from now on nothing is freed that it comes to.
    #[inline]
    pub(crate) fn enter(&self, index: u32) -> Entered<'_> {
        let slot = &self.slots[index as usize];
        debug_assert_eq!(slot.begin.load(Ordering::Relaxed), IDLE);
        slot.begin.store(STARTING, Ordering::Relaxed);
        // Either those who look for the horizon see that a transaction starts, or it sees the clock that they
        // have seen.
        fence(Ordering::SeqCst);
        let begin = self.clock.load(Ordering::SeqCst);
        slot.begin.store(begin, Ordering::Release);
        let generation = slot.generation.load(Ordering::Relaxed);
        let id = ID_BIT | u64::from(index) << GENERATION_BITS | generation;
        Entered { slots: self, index, begin, id: TransactionId(id) }
    }

    /// No snapshot of a transaction that runs, or will, is below this timestamp: versions that one at or
    /// below it has replaced are seen by none. Rises only.
    pub(crate) fn horizon(&self) -> u64 {
        let mut horizon = self.clock.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for slot in &self.slots[..self.used.load(Ordering::SeqCst) as usize] {
            match slot.begin.load(Ordering::SeqCst) {
                // It may have read the clock long ago.
                STARTING => return self.horizon.load(Ordering::Relaxed),
                begin => horizon = horizon.min(begin),
            }
        }
        self.horizon.fetch_max(horizon, Ordering::Relaxed).max(horizon)
    }

    /// What is known of a transaction; `None` if it has ended: the versions that carried its id have its
    /// timestamp by now, or are unlinked.
    #[inline]
    pub(crate) fn status(&self, id: TransactionId) -> Option<Status> {
        self.look(id).map(|(status, _)| status)
    }

    /// The same with the low watermark, which counts if it has committed.
    pub(crate) fn look(&self, id: TransactionId) -> Option<(Status, u64)> {
        let slot = &self.slots[id.slot()];
        if slot.generation.load(Ordering::Acquire) != id.generation() {
            return None;
        }
        let state = slot.state.load(Ordering::Acquire);
        let sstamp = slot.sstamp.load(Ordering::Acquire);
        // What was read is the transaction's only if the slot is still its own.
        if slot.generation.load(Ordering::Acquire) != id.generation() {
            return None;
        }
        let at = state >> STATE_BITS;
        let status = match state & ((1 << STATE_BITS) - 1) {
            ACTIVE => Status::Active,
            DRAWING => Status::Deciding(None),
            DRAWN | PUBLISHED => Status::Deciding(Some(at)),
            COMMITTED => Status::Committed(at),
            _ => Status::Aborted,
        };
        Some((status, sstamp))
    }

    /// True if every transaction with a commit timestamp below `at` has published what it read.
    pub(crate) fn have_published(&self, at: u64) -> bool {
        let used = self.used.load(Ordering::SeqCst) as usize;
        self.slots[..used].iter().all(|slot| {
            let state = slot.state.load(Ordering::SeqCst);
            match state & ((1 << STATE_BITS) - 1) {
                DRAWING => false,
                DRAWN => state >> STATE_BITS >= at,
                _ => true,
            }
        })
    }

    /// A timestamp up to which every transaction has committed, with its records handed to the log, or
    /// aborted; `None` if that is not known now.
    pub(crate) fn decided(&self) -> Option<u64> {
        let mut decided = self.clock.load(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst) as usize;
        for slot in &self.slots[..used] {
            let state = slot.state.load(Ordering::SeqCst);
            match state & ((1 << STATE_BITS) - 1) {
                DRAWING => return None,
                DRAWN | PUBLISHED => decided = decided.min((state >> STATE_BITS) - 1),
                _ => {}
            }
        }
        Some(decided)
    }

    /// The key that coroutines park by which wait for a transaction.
    pub(crate) fn parking_key(&self, id: TransactionId) -> usize {
        &raw const self.slots[id.slot()] as usize
    }

    /// True if the transaction runs, so that a coroutine may park until it has ended. To be called under the parking
    /// lot's lock.
    pub(crate) fn must_park(&self, id: TransactionId) -> bool {
        let slot = &self.slots[id.slot()];
        slot.is_awaited.store(true, Ordering::SeqCst);
        slot.generation.load(Ordering::SeqCst) == id.generation()
    }
}

/// A transaction that has entered: versions that are reached through it stay as long as it is there.
pub(crate) struct Entered<'s> {
    slots: &'s Slots,
    index: u32,
    begin: u64,
    id: TransactionId,
}

impl<'s> Entered<'s> {
    fn slot(&self) -> &'s Slot {
        &self.slots.slots[self.index as usize]
    }

    pub(crate) fn slots(&self) -> &'s Slots {
        self.slots
    }

    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.id
    }

    fn set_state(&self, state: u64, at: u64) {
        self.slot().state.store(at << STATE_BITS | state, Ordering::SeqCst);
    }

    /// Draws the commit timestamp. From now on others may wait for what becomes of the transaction.
    pub(crate) fn draw(&self) -> u64 {
        // Before the clock moves, so that whoever draws a later timestamp sees it.
        self.set_state(DRAWING, 0);
        let at = self.slots.draw();
        self.set_state(DRAWN, at);
        at
    }

    /// All that the transaction has read carries its timestamp.
    pub(crate) fn publish(&self, at: u64) {
        self.set_state(PUBLISHED, at);
    }

    /// It has committed; its records are in the log's hands.
    pub(crate) fn commit(&self, at: u64, sstamp: u64) {
        self.slot().sstamp.store(sstamp, Ordering::Release);
        self.set_state(COMMITTED, at);
    }

    /// It will not commit: what it has written does not count from now on.
    pub(crate) fn abort(&self) {
        self.set_state(ABORTED, 0);
    }

    /// Says that it waits for another transaction; false if that would wait, by others perhaps, for this one.
    pub(crate) fn begin_wait(&self, other: TransactionId) -> bool {
        self.slot().waits_for.store(other.stamp(), Ordering::SeqCst);
        let mut at = other;
        // Chains are not longer than there are slots; of one that changes meanwhile a wrong answer is a deadlock
        // reported for nothing at worst, as those who close a circle see all of it.
        for _ in 0..self.slots.slots.len() {
            if at == self.id {
                self.end_wait();
                return false;
            }
            let slot = &self.slots.slots[at.slot()];
            let next = slot.waits_for.load(Ordering::SeqCst);
            if slot.generation.load(Ordering::SeqCst) != at.generation() {
                return true;
            }
            match TransactionId::of_stamp(next) {
                Some(next) => at = next,
                None => return true,
            }
        }
        true
    }

    pub(crate) fn end_wait(&self) {
        self.slot().waits_for.store(0, Ordering::SeqCst);
    }

    /// Ends, once no version carries the transaction's id. True if coroutines may be parked by its
    /// [key](Slots::parking_key).
    #[inline]
    pub(crate) fn leave(self) -> bool {
        let slot = self.slot();
        let generation =
            (slot.generation.load(Ordering::Relaxed) + 1) & ((1 << GENERATION_BITS) - 1);
        slot.generation.store(generation, Ordering::SeqCst);
        slot.state.store(ACTIVE, Ordering::SeqCst);
        slot.begin.store(IDLE, Ordering::Release);
        slot.is_awaited.load(Ordering::SeqCst) && slot.is_awaited.swap(false, Ordering::SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_the_oldest_begin() {
        let slots = Slots::new(3);
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        let old = slots.enter(first);
        let at = old.begin();
        slots.draw();
        let new = slots.enter(second);
        assert_eq!((slots.horizon(), new.begin()), (at, at + 1));
        old.leave();
        assert_eq!(slots.horizon(), at + 1);
        new.leave();
        slots.draw();
        assert_eq!(slots.horizon(), at + 2);
        assert!(slots.take().is_some());
        assert!(slots.take().is_none(), "all slots are in use");
    }

    #[test]
    fn states_are_seen_until_the_transaction_ends() {
        let slots = Slots::new(1);
        let slot = slots.take().unwrap();
        let entered = slots.enter(slot);
        let id = entered.id();
        assert_eq!(TransactionId::of_stamp(id.stamp()), Some(id));
        assert_eq!(slots.status(id), Some(Status::Active));
        let at = entered.draw();
        assert_eq!(slots.status(id), Some(Status::Deciding(Some(at))));
        assert!(slots.have_published(at) && !slots.have_published(at + 1));
        assert_eq!(slots.decided(), Some(at - 1));
        entered.publish(at);
        assert!(slots.have_published(at + 1));
        entered.commit(at, 7);
        assert_eq!(slots.look(id), Some((Status::Committed(at), 7)));
        assert_eq!(slots.decided(), Some(at));
        entered.leave();
        assert_eq!(slots.status(id), None);
    }

    #[test]
    fn circles_of_waits_are_seen() {
        let slots = Slots::new(3);
        let entered: Vec<_> = (0..3).map(|_| slots.enter(slots.take().unwrap())).collect();
        assert!(entered[0].begin_wait(entered[1].id()));
        assert!(entered[1].begin_wait(entered[2].id()));
        assert!(!entered[2].begin_wait(entered[0].id()));
        entered[1].end_wait();
        assert!(entered[2].begin_wait(entered[0].id()));
    }
}
