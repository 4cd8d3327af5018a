//! The account behind a ledger: what is used, and the line of those who wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};

use super::{Cache, Gauge, MemoryError};
use crate::sync::lock;
use crate::sync::primitives::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::sync::turnstile::{Left, Ticket, Turnstile};
use crate::sync::wake_list::WakeList;

/// The bit of the word that says: somebody waits. It is set and cleared only under the lock of the
/// line, and is set whenever the line is not empty.
const WAITING: u64 = 1 << 63;

/// The part of a small limit that is there for those who reserve, however much the heap has that nobody has reserved, and its
/// most bytes: without, next to nothing would be left of a limit of 16 MiB, and whoever spills would go on with pages of a few tuples.
/// (Who waits gets more than that, as nobody says when the heap shrinks.)
const ASSURED_PART: u64 = 2;
const ASSURED_BYTES: u64 = 16 << 20;

/// The part of a limit that is held back at most, however much is asked for.
const HELD_BACK: u64 = 4;

/// Bytes that are freed until the heap's gaps are looked at; and that are taken of the last part of a limit.
#[cfg(not(loom))]
const FREED_BYTES: u64 = 16 << 20;

/// The last part of a limit, when what is beside it has to go back.
#[cfg(not(loom))]
const LAST_PART: u64 = 8;

/// Free bytes beyond the limit that are not worth being given back: a part of it.
#[cfg(not(loom))]
const SPARE_PART: u64 = 128;

pub(super) struct Account {
    /// The bytes in use, and [`WAITING`].
    state: AtomicU64,
    limit_bytes: AtomicU64,
    /// Of the limit, what is held back from those who do not ask for that.
    held_back: AtomicU64,
    /// How often the limit was lowered.
    times_lowered: AtomicU64,
    peak_bytes: AtomicU64,
    /// Of the bytes in use, those that do not lie in the heap.
    mapped_bytes: AtomicU64,
    /// Bytes given back while somebody waited.
    freed_bytes: AtomicU64,
    heap: Option<Gauge>,
    /// Bytes that were freed since the heap's gaps were looked at.
    #[cfg(not(loom))]
    freed_since: AtomicU64,
    /// Bytes that were taken of the last part of the limit since then.
    #[cfg(not(loom))]
    taken_since: AtomicU64,
    /// Bytes that lay in gaps when these had gone back, or at the least since then.
    #[cfg(not(loom))]
    gaps_left: AtomicU64,
    line: Mutex<Line>,
    /// Who is asked for memory before somebody waits. Never locked together with the line.
    caches: Mutex<Vec<Weak<dyn Cache>>>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes used", self.used_bytes(), self.limit_bytes())
    }
}

#[derive(Debug)]
struct Line {
    turnstile: Turnstile<Want, Outcome>,
    /// What those in line want together.
    wanted_bytes: u64,
    holders: usize,
    /// Of those, the ones that wait for memory.
    holders_waiting: usize,
}

#[derive(Clone, Copy, Debug)]
/// What somebody waits for.
pub(super) struct Want {
    pub(super) bytes: u64,
    /// What has to fit into the limit: the bytes and what the caller already holds in the same piece.
    pub(super) whole_bytes: u64,
    pub(super) spillable: bool,
    pub(super) is_holder: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Memory,
    Spill,
    TooLarge(MemoryError),
}

impl Account {
    /// Nothing used of `limit_bytes`, which hold for the whole heap if there is a gauge of it.
    pub(super) fn new(limit_bytes: u64, heap: Option<Gauge>) -> Account {
        let line =
            Line { turnstile: Turnstile::new(), wanted_bytes: 0, holders: 0, holders_waiting: 0 };
        Account {
            state: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(limit_bytes.min(WAITING - 1)),
            held_back: AtomicU64::new(0),
            times_lowered: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            mapped_bytes: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
            heap,
            #[cfg(not(loom))]
            freed_since: AtomicU64::new(0),
            #[cfg(not(loom))]
            taken_since: AtomicU64::new(0),
            #[cfg(not(loom))]
            gaps_left: AtomicU64::new(0),
            line: Mutex::new(line),
            caches: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.state.load(Ordering::Relaxed) & !WAITING
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn freed_bytes(&self) -> u64 {
        self.freed_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Holds `bytes` of the limit back.
    pub(super) fn hold_back(&self, bytes: u64) {
        self.held_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` that were held back to whoever wants them.
    pub(super) fn let_go(&self, bytes: u64) {
        self.held_back.fetch_sub(bytes, Ordering::AcqRel);
        // Under the lock: who comes to wait now sees it, or is seen.
        self.settle(lock(&self.line));
    }

    /// What of `limit` everybody may take.
    fn open_bytes(&self, limit: u64) -> u64 {
        limit - self.held_back.load(Ordering::Relaxed).min(limit / HELD_BACK)
    }

    fn assured_bytes(&self) -> u64 {
        (self.limit_bytes() / ASSURED_PART).min(ASSURED_BYTES)
    }

    pub(super) fn times_lowered(&self) -> u64 {
        self.times_lowered.load(Ordering::Relaxed)
    }

    pub(super) fn add_mapped(&self, bytes: u64) {
        self.mapped_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove_mapped(&self, bytes: u64) {
        self.mapped_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts what was freed; true if that was much since this was true.
    #[cfg(not(loom))]
    pub(super) fn is_much_freed(&self, bytes: u64) -> bool {
        is_much(&self.freed_since, bytes)
    }

    /// Counts what was taken, if it is of the last part of the limit; true if that was much since this was true.
    #[cfg(not(loom))]
    pub(super) fn is_much_taken_of_last(&self, bytes: u64) -> bool {
        let limit = self.limit_bytes();
        self.used_bytes() > limit - limit / LAST_PART && is_much(&self.taken_since, bytes)
    }

    /// Notes what lies in gaps, now that these have gone back.
    #[cfg(not(loom))]
    pub(super) fn note_gaps(&self, bytes: u64) {
        self.gaps_left.store(bytes, Ordering::Relaxed);
    }

    /// True if so many bytes in gaps are more than were left, by `noticeable_bytes`.
    #[cfg(not(loom))]
    pub(super) fn has_more_gaps(&self, bytes: u64, noticeable_bytes: u64) -> bool {
        bytes > self.gaps_left.fetch_min(bytes, Ordering::Relaxed) + noticeable_bytes
    }

    pub(super) fn is_watching(&self) -> bool {
        self.heap.is_some()
    }

    /// What the process really has: the heap, and what lies elsewhere; 0 if nobody watches the heap.
    pub(super) fn real_bytes(&self) -> u64 {
        self.heap.map_or(0, |heap| heap() + self.mapped_bytes.load(Ordering::Relaxed))
    }

    /// Of that, what is free, and goes to whoever takes memory next. It is taken, too, where a limit is too small for that not to matter.
    #[cfg(not(loom))]
    fn spare_bytes(&self) -> u64 {
        let counts = !self.is_watching() || self.limit_bytes() < super::slab::SPARE_FROM;
        if counts { 0 } else { super::slab::free_bytes() as u64 }
    }

    #[cfg(loom)]
    fn spare_bytes(&self) -> u64 {
        0
    }

    /// What the process really has without what is free.
    fn taken_bytes(&self) -> u64 {
        self.real_bytes().saturating_sub(self.spare_bytes())
    }

    pub(super) fn unreserved_bytes(&self) -> u64 {
        self.taken_bytes().saturating_sub(self.used_bytes())
    }

    /// What has been promised or is there already, whichever is more.
    fn charged_bytes(&self) -> u64 {
        self.used_bytes().max(self.taken_bytes())
    }

    /// What may stay of free bytes beside what is taken, and how many are beyond that, if those are noticeably many.
    #[cfg(not(loom))]
    pub(super) fn spare_beyond(&self) -> Option<(u64, u64)> {
        let (limit, spare) = (self.limit_bytes(), self.spare_bytes());
        let left = limit.saturating_sub(self.charged_bytes());
        let beyond = spare.saturating_sub(left);
        (beyond > limit / SPARE_PART).then_some((left, beyond))
    }

    pub(super) fn relieve(&self) {
        let excess = self.taken_bytes().saturating_sub(self.limit_bytes());
        if excess > 0 {
            self.ask_caches(excess);
        }
    }

    pub(super) fn set_limit(&self, limit_bytes: u64) {
        let limit_bytes = limit_bytes.min(WAITING - 1);
        let mut wakers = WakeList::new();
        let mut line = lock(&self.line);
        let before = self.limit_bytes.swap(limit_bytes, Ordering::Relaxed);
        self.times_lowered.fetch_add(u64::from(limit_bytes < before), Ordering::Relaxed);
        line.refuse_too_large(limit_bytes, &mut wakers);
        self.settle_into(line, wakers);
        self.ask_caches(self.shortage());
        #[cfg(not(loom))]
        while let Some((most, _)) = self.spare_beyond()
            && super::slab::give_back(most as usize)
        {}
    }

    pub(super) fn add_cache(&self, cache: Weak<dyn Cache>) {
        let mut caches = lock(&self.caches);
        caches.retain(|known| known.strong_count() > 0);
        caches.push(cache);
    }

    pub(super) fn shortage(&self) -> u64 {
        let line = lock(&self.line);
        let wanted = self.charged_bytes().saturating_add(line.wanted_bytes);
        // If nobody waits, what was held back may be in use.
        let limit = match line.wanted_bytes {
            0 => self.limit_bytes(),
            _ => self.open_bytes(self.limit_bytes()),
        };
        wanted.saturating_sub(limit)
    }

    /// Asks the caches for `bytes`; false if there is nobody to ask. No lock may be held.
    fn ask_caches(&self, bytes: u64) -> bool {
        if bytes == 0 {
            return false;
        }
        let caches: Vec<_> = lock(&self.caches).iter().filter_map(Weak::upgrade).collect();
        for cache in &caches {
            cache.give_back(bytes);
        }
        !caches.is_empty()
    }

    /// As [`Account::take_unless`], asking the caches for what is missing.
    fn take_or_ask(&self, bytes: u64) -> bool {
        loop {
            if self.try_take_free(bytes) {
                return true;
            }
            let (used, limit) = (self.charged_bytes(), self.open_bytes(self.limit_bytes()));
            let waited_for = self.state.load(Ordering::Relaxed) & WAITING != 0;
            if waited_for || bytes > limit {
                return false;
            }
            let missing = used.saturating_add(bytes).saturating_sub(limit);
            // Another may take what they give: then there is less to ask for the next time, until
            // there is nothing.
            if missing > 0 && (!self.ask_caches(missing) || self.charged_bytes() >= used) {
                return self.try_take_free(bytes);
            }
        }
    }

    pub(super) fn ask_to_spill(&self) -> usize {
        let mut wakers = WakeList::new();
        let mut line = lock(&self.line);
        let told = line.tell_to_spill(&mut wakers);
        self.settle_into(line, wakers);
        told
    }

    pub(super) fn add_holder(&self) {
        lock(&self.line).holders += 1;
    }

    pub(super) fn remove_holder(&self) {
        let mut line = lock(&self.line);
        line.holders -= 1;
        self.settle(line);
    }

    /// Takes `bytes` if they are free, or caches have them, and nobody waits; or if they are of the part that is there for
    /// those who reserve, whatever the heap has.
    pub(super) fn try_take(&self, bytes: u64) -> bool {
        self.take_or_ask(bytes) || self.take_assured(bytes)
    }

    /// Takes `bytes` of the part that is there for those who reserve, some of which caches may have.
    fn take_assured(&self, bytes: u64) -> bool {
        loop {
            let (used, assured) = (self.used_bytes(), self.open_bytes(self.assured_bytes()));
            if self.take_unless(WAITING, 0, bytes, assured) {
                return true;
            }
            // As much is there without.
            if assured <= self.limit_bytes().saturating_sub(self.unreserved_bytes()) {
                return false;
            }
            let waited_for = self.state.load(Ordering::Relaxed) & WAITING != 0;
            if waited_for || bytes > assured {
                return false;
            }
            let missing = used.saturating_add(bytes).saturating_sub(assured);
            if missing > 0 && (!self.ask_caches(missing) || self.used_bytes() >= used) {
                return self.take_unless(WAITING, 0, bytes, assured);
            }
        }
    }

    /// The same, also of what is held back, and whoever waits.
    pub(super) fn try_take_held_back(&self, bytes: u64) -> bool {
        self.try_take(bytes) || self.take_unless(0, 0, bytes, self.limit_bytes())
    }

    /// True if more is taken than everybody may have.
    pub(super) fn uses_held_back(&self) -> bool {
        self.used_bytes() > self.open_bytes(self.limit_bytes())
    }

    /// Takes `bytes` if they are free and nobody waits.
    pub(super) fn try_take_free(&self, bytes: u64) -> bool {
        self.take_unless(WAITING, self.taken_bytes(), bytes, self.open_bytes(self.limit_bytes()))
    }

    /// Takes `bytes` if they are free where `limit` is the budget, whoever waits.
    pub(super) fn take_promised(&self, bytes: u64, limit: u64) -> bool {
        self.take_unless(0, self.taken_bytes(), bytes, limit)
    }

    /// Takes `bytes` if they are free of `limit` where the process really has `real_bytes`, and none of the bits
    /// `barred` is set.
    fn take_unless(&self, barred: u64, real_bytes: u64, bytes: u64, limit: u64) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let has_room = |had: u64| had.checked_add(bytes).is_some_and(|will| will <= limit);
            let had = state & !WAITING;
            let used = (has_room(had) && has_room(real_bytes)).then(|| had + bytes);
            let Some(used) = used.filter(|_| state & barred == 0) else {
                return bytes == 0;
            };
            let exchanged = self.state.compare_exchange_weak(
                state,
                used | state & WAITING,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => {
                    if used > self.peak_bytes.load(Ordering::Relaxed) {
                        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
                    }
                    return true;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Gives `bytes` back, to whoever is first in line.
    pub(super) fn release(&self, bytes: u64) {
        let state = self.state.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(state & !WAITING >= bytes, "released more than was reserved");
        if state & WAITING != 0 && bytes != 0 {
            self.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.settle(lock(&self.line));
        }
    }

    fn settle(&self, line: MutexGuard<'_, Line>) {
        self.settle_into(line, WakeList::new());
    }

    /// Serves the line as far as it goes, then releases its lock and wakes whom that concerns.
    fn settle_into(&self, mut line: MutexGuard<'_, Line>, mut wakers: WakeList) {
        self.serve(&mut line, &mut wakers);
        while line.is_stuck() && line.tell_to_spill(&mut wakers) > 0 {
            self.serve(&mut line, &mut wakers);
        }
        if line.turnstile.is_empty() {
            self.state.fetch_and(!WAITING, Ordering::AcqRel);
        }
        drop(line);
        wakers.wake_all();
    }

    /// Gives memory to those first in line, while there is enough.
    fn serve(&self, line: &mut Line, wakers: &mut WakeList) {
        while let Some(&want) = line.turnstile.first() {
            // Of what is reserved alone: nobody says when the heap shrinks, and who waits must be woken.
            // Nor is what is held back for them, unless nobody has anything.
            let limit = match self.used_bytes() {
                0 => self.limit_bytes(),
                _ => self.open_bytes(self.limit_bytes()),
            };
            if !self.take_unless(0, 0, want.bytes, limit) {
                return;
            }
            line.forget(want);
            wakers.push(line.turnstile.settle_first(Outcome::Memory));
        }
    }
}

/// Adds to a count of bytes; true, and none are counted, if they are many.
#[cfg(not(loom))]
fn is_much(count: &AtomicU64, bytes: u64) -> bool {
    let before = count.fetch_add(bytes, Ordering::Relaxed);
    let is_much = before + bytes >= FREED_BYTES;
    if is_much {
        count.store(0, Ordering::Relaxed);
    }
    is_much
}

impl Line {
    /// Somebody with this want no longer waits.
    fn forget(&mut self, want: Want) {
        self.holders_waiting -= usize::from(want.is_holder);
        self.wanted_bytes -= want.bytes;
    }

    /// True if every holder waits.
    fn is_stuck(&self) -> bool {
        self.holders == self.holders_waiting
    }

    fn tell_to_spill(&mut self, wakers: &mut WakeList) -> usize {
        let mut told = Vec::new();
        self.turnstile.settle_where(
            |want| {
                want.spillable.then(|| {
                    told.push(*want);
                    Outcome::Spill
                })
            },
            |waker| wakers.push(waker),
        );
        told.iter().for_each(|want| self.forget(*want));
        told.len()
    }

    fn refuse_too_large(&mut self, limit_bytes: u64, wakers: &mut WakeList) {
        let mut refused = Vec::new();
        self.turnstile.settle_where(
            |want| {
                let error = want.exceeds(limit_bytes)?;
                refused.push(*want);
                Some(Outcome::TooLarge(error))
            },
            |waker| wakers.push(waker),
        );
        refused.iter().for_each(|want| self.forget(*want));
    }
}

impl Want {
    fn exceeds(&self, limit_bytes: u64) -> Option<MemoryError> {
        let requested_bytes = self.whole_bytes;
        (requested_bytes > limit_bytes)
            .then_some(MemoryError::TooLarge { requested_bytes, limit_bytes })
    }
}

/// A wait for memory. [`Outcome::Memory`] means that the bytes have been taken.
pub(super) struct Wait<'a> {
    account: &'a Account,
    want: Want,
    ticket: Option<Ticket>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(account: &'a Account, want: Want) -> Wait<'a> {
        Wait { account, want, ticket: None }
    }
}

impl Future for Wait<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let Wait { account, want, ticket } = *self;
        // Cloned before the lock is taken; what it replaces is dropped after the lock is released.
        let mut waker;
        let waker_to_keep;
        let mut line;
        let ticket = match ticket {
            Some(ticket) => {
                waker = context.waker().clone();
                line = lock(&account.line);
                ticket
            }
            None => {
                if let Some(error) = want.exceeds(account.limit_bytes()) {
                    return Poll::Ready(Outcome::TooLarge(error));
                }
                if account.try_take(want.bytes) {
                    return Poll::Ready(Outcome::Memory);
                }
                waker = context.waker().clone();
                waker_to_keep = waker.clone();
                line = lock(&account.line);
                // Once more, now that the limit cannot be lowered under us.
                if let Some(error) = want.exceeds(account.limit_bytes()) {
                    return Poll::Ready(Outcome::TooLarge(error));
                }
                // Whoever releases from now on settles the line; what came free before, we see below.
                account.state.fetch_or(WAITING, Ordering::AcqRel);
                line.holders_waiting += usize::from(want.is_holder);
                line.wanted_bytes += want.bytes;
                let ticket = line.turnstile.enter(want, waker_to_keep);
                self.ticket = Some(ticket);
                drop(line);
                // What caches cannot give now they will give later, now that somebody waits.
                account.ask_caches(account.shortage());
                // It may be free by now; or this was the last holder that did not wait.
                account.settle(lock(&account.line));
                line = lock(&account.line);
                ticket
            }
        };
        let Some(outcome) = line.turnstile.poll(ticket, &mut waker) else { return Poll::Pending };
        self.ticket = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut line = lock(&self.account.line);
        let left = line.turnstile.leave(ticket);
        match left {
            Some(Left::Waiting(want, waker)) => {
                line.forget(want);
                // Those behind may need less.
                self.account.settle(line);
                drop(waker);
            }
            Some(Left::Settled(Outcome::Memory)) => {
                drop(line);
                self.account.release(self.want.bytes);
            }
            Some(Left::Settled(Outcome::Spill | Outcome::TooLarge(_))) | None => {}
        }
    }
}
