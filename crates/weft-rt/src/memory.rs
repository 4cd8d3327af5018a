//! The memory budget: one ledger for everything in the process that may grow.
//!
//! Whoever wants memory reserves the bytes first and holds a [`Reservation`] while it has them. If they
//! are not free it waits, first come, first served: while somebody waits nobody overtakes, so a big
//! request is not starved by small ones. An operator that could write some of its memory to the SSD
//! instead asks with [`Holder::reserve_or_spill`], and is told to spill when waiting would be in
//! vain: every other holder waits too (or [`Ledger::ask_to_spill`] was called).
//!
//! A [`Cache`] is of use with any amount of memory and needs little: it takes what is free
//! ([`Reservation::try_grow_from_free`]) and is asked to give back what others lack before they wait.
//!
//! What is used, and whether somebody waits, lie in one word: reserving and releasing are one atomic
//! exchange as long as there is enough.
//!
//! A ledger may watch a [`Gauge`] of the heap ([`heap`] has one). What the heap has beyond what was reserved
//! for it is nobody's to give: less is free then, caches give back, and whoever can spill is told so the
//! sooner. So the process stays within its limit although some of its code reserves nothing. But half of a limit, 16 MiB at
//! most, is there for those who reserve in any case: what is there without them leaves them nothing of a small limit. Free blocks
//! of the [`slab`] are no part of that, from a limit of 2 GiB on: they are given back when what is taken leaves no place for them.

mod account;
#[cfg(not(loom))]
pub mod code;
#[cfg(not(loom))]
pub mod heap;
mod held_back;
#[cfg(not(loom))]
pub mod huge;
#[cfg(not(loom))]
pub mod kept;
#[cfg(not(loom))]
pub mod slab;
mod tally;

use std::sync::{Arc, Weak};

use account::{Account, Outcome, Wait, Want};
pub use held_back::HeldBack;
pub use tally::Tally;

/// Why memory was refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// More than the whole budget.
    #[error(
        "{requested_bytes} bytes of memory are needed at once, but the setting memory_limit allows \
         {limit_bytes} bytes in all: raise memory_limit"
    )]
    TooLarge {
        /// What the caller would hold in one piece.
        requested_bytes: u64,
        /// The budget.
        limit_bytes: u64,
    },
}

/// The answer to [`Ledger::reserve_or_spill`].
#[derive(Debug)]
pub enum Grant {
    /// The memory is the caller's.
    Memory(Reservation),
    /// The caller should write some of what it holds to the SSD and reuse that memory. One that holds
    /// nothing asks again with a plain `reserve`.
    Spill,
}

/// Someone who can do with less memory than it has.
pub trait Cache: Send + Sync {
    /// Gives back `bytes` of what it has in the ledger if it can do so at once, more if that is
    /// simpler. What it cannot give at once it gives as soon as it can, while
    /// [`Ledger::shortage`] says that somebody lacks memory.
    ///
    /// Called on the thread of whoever needs memory, with none of the ledger's locks held: it must
    /// neither wait nor reserve, except by [`Reservation::try_grow_from_free`].
    fn give_back(&self, bytes: u64);
}

/// Says how many bytes of the heap are allocated now. It is called whenever memory is reserved.
pub type Gauge = fn() -> u64;

/// The part of the budget that may lie idle in the heap's gaps.
#[cfg(not(loom))]
const HEAP_GAPS: u64 = 32;
/// The same, of what must have come to lie there since gaps went back the last time.
#[cfg(not(loom))]
const HEAP_GAPS_MORE: u64 = 128;

/// From this budget on, what lies idle beyond that and does not go back is nobody's to give, up to a part of the budget: a smaller
/// one would be taken by what every process has.
#[cfg(not(loom))]
const GAPS_COUNT_FROM: u64 = 256 << 20;
#[cfg(not(loom))]
const GAPS_COUNTED: u64 = 16;

/// Of the budget, the part that free blocks may have beyond it for a moment.
#[cfg(not(loom))]
const SPARE_BEYOND: u64 = 64;

/// Steps in which free blocks go back that are done at once otherwise.
#[cfg(not(loom))]
const STEPS_PER_TURN: u64 = 4;

/// Of the budget, the part that free blocks may have while nobody needs them.
#[cfg(not(loom))]
const BLOCKS_KEPT: u64 = 16;

/// What the process may have beyond the budget, in bytes and as a part of the budget, until the program's code is forgotten
/// that is resident: half of what the promise of the limit allows for it and for what nobody counts.
#[cfg(not(loom))]
const BEYOND_BYTES: u64 = 32 << 20;
#[cfg(not(loom))]
const BEYOND_PART: u64 = 40;

/// Bytes of code that stay: what a statement needs while it runs is about as much.
#[cfg(not(loom))]
const CODE_BYTES: u64 = 16 << 20;

/// More bytes than the code of a process and what is not counted beside it ever take: as long as a budget has so much room, the
/// system is not asked how much is resident.
#[cfg(not(loom))]
const CODE_BYTES_MAX: u64 = 1 << 30;

/// A memory budget in bytes. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Ledger {
    account: Arc<Account>,
    /// What is reserved through this handle counts there, too.
    tally: Option<Arc<Tally>>,
}

impl Ledger {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Ledger {
        Ledger { account: Arc::new(Account::new(limit_bytes, None)), tally: None }
    }

    /// A budget of `limit_bytes` for all that the process has: the heap, and what is
    /// [`mapped`](Reservation::mapped).
    pub fn watching(limit_bytes: u64, heap: Gauge) -> Ledger {
        Ledger { account: Arc::new(Account::new(limit_bytes, Some(heap))), tally: None }
    }

    /// The same budget through a handle that counts what is reserved by it and its clones.
    pub fn tallied(&self) -> (Ledger, Arc<Tally>) {
        let tally = Arc::new(Tally::new(self.limit()));
        (Ledger { account: self.account.clone(), tally: Some(tally.clone()) }, tally)
    }

    /// Bytes that are reserved. May be above the limit after the limit was lowered.
    pub fn used(&self) -> u64 {
        self.account.used_bytes()
    }

    /// True if the budget is for all that the process has.
    pub fn is_watching(&self) -> bool {
        self.account.is_watching()
    }

    /// Bytes of the heap that nobody has reserved; 0 if the ledger does not watch the heap.
    pub fn unreserved(&self) -> u64 {
        self.account.unreserved_bytes()
    }

    /// Has caches give back what the heap has taken of the budget without a reservation. To be called now
    /// and then by code that allocates much and reserves little.
    pub fn relieve(&self) {
        self.account.relieve();
    }

    /// Counts memory of the heap that is freed without having been reserved. Whatever was reserved counts by itself: now and then what lies
    /// idle in the heap's gaps goes back to the system ([`Ledger::trim`]), as pages of all sizes come and go: if it has become
    /// noticeably more, as all gaps are visited for that, those that were given back before too.
    #[cfg(not(loom))]
    pub fn note_freed(&self, bytes: u64) {
        if self.is_watching() && self.account.is_much_freed(bytes) {
            self.trim_if_noticeable();
        }
    }

    /// Counts memory that was taken. The last part of a budget is in use soon: what the process has beside it goes back meanwhile, as when
    /// much is freed.
    fn note_taken(&self, bytes: u64) {
        #[cfg(not(loom))]
        if bytes > 0 && self.is_watching() {
            // Most take it for blocks, of those that are free. Else as much goes back as was taken: some at once, and the rest when memory
            // is taken the next time, unless that is so much that the process might have too much until then.
            if let Some((most, beyond)) = self.account.spare_beyond() {
                let steps = |bytes: u64| bytes.div_ceil(slab::RETURNED_BYTES as u64);
                let urgent = steps(beyond.saturating_sub(self.limit() / SPARE_BEYOND));
                let count = steps(bytes).min(STEPS_PER_TURN).max(urgent);
                (0..count).take_while(|_| slab::give_back(most as usize)).for_each(drop);
            }
            if self.account.is_much_taken_of_last(bytes) {
                self.trim_if_noticeable();
            }
        }
        #[cfg(loom)]
        let _ = bytes;
    }

    /// Gives back some of the [blocks](slab) that are free, when nobody is going to take them soon: as long as they are more
    /// than a part of the budget. For a ledger that watches the heap; nothing otherwise.
    #[cfg(not(loom))]
    pub fn trim_blocks(&self) {
        if self.is_watching() {
            slab::give_back((self.limit() / BLOCKS_KEPT) as usize);
        }
    }

    /// How often [`Ledger::trim_blocks`] has something to do.
    #[cfg(not(loom))]
    pub fn steps_to_trim_blocks(&self) -> u64 {
        let spare_bytes = if self.is_watching() { slab::free_bytes() as u64 } else { 0 };
        spare_bytes.saturating_sub(self.limit() / BLOCKS_KEPT).div_ceil(slab::RETURNED_BYTES as u64)
    }

    #[cfg(not(loom))]
    fn trim_if_noticeable(&self) {
        let (most_bytes, gaps_max) = self.heap_bounds();
        let gaps = heap::note_gaps(most_bytes, gaps_max);
        if self.account.has_more_gaps(gaps, self.limit() / HEAP_GAPS_MORE) {
            self.trim();
        } else {
            self.trim_code();
        }
    }

    /// Has what lies idle in the heap's gaps go back to the system, if that is a noticeable part of the budget, or it would be
    /// there twice when others take what was freed; and code that is resident since statements were planned. For a ledger that
    /// watches the heap; nothing otherwise.
    #[cfg(not(loom))]
    pub fn trim(&self) {
        if self.is_watching() {
            let (most_bytes, gaps_max) = self.heap_bounds();
            heap::trim(most_bytes, gaps_max);
            self.account.note_gaps(heap::note_gaps(most_bytes, gaps_max));
            self.trim_code();
        }
    }

    /// What the process may have, and up to how much of what is more counts as allocated.
    #[cfg(not(loom))]
    fn heap_bounds(&self) -> (u64, u64) {
        let (limit, real_bytes) = (self.limit(), self.account.real_bytes());
        let known_bytes = self.used().max(real_bytes.saturating_sub(heap::gap_bytes()));
        let gaps_max = if limit < GAPS_COUNT_FROM { 0 } else { limit / GAPS_COUNTED };
        (known_bytes + limit / HEAP_GAPS, gaps_max)
    }

    /// Has code go that is resident and that what runs now may not need, if the process has noticeably more than the budget, or would
    /// have with all of a small one: planning a statement brings in tens of MiB. For a ledger that watches the heap; nothing otherwise.
    #[cfg(not(loom))]
    pub fn trim_code(&self) {
        if self.is_watching() {
            let limit = self.limit();
            let resident_max = limit.saturating_add(limit / BEYOND_PART + BEYOND_BYTES);
            // Asking the system takes as long as planning a part of a small statement.
            let has_bytes = self.used().max(self.account.real_bytes());
            if has_bytes.saturating_mul(2).saturating_add(CODE_BYTES_MAX) < resident_max {
                return;
            }
            // A small budget will be used up.
            let others_min = if limit < GAPS_COUNT_FROM { limit } else { 0 };
            if let Err(error) = code::trim(resident_max, others_min, CODE_BYTES) {
                log::debug!("the program's code stays resident: {error}");
            }
        }
    }

    /// The same of a small budget; nothing of a large one. For between the steps of what brings in much code.
    #[cfg(not(loom))]
    pub fn trim_code_of_small(&self) {
        if self.limit() < GAPS_COUNT_FROM {
            self.trim_code();
        }
    }

    /// Most bytes that were in use at a time.
    pub fn peak(&self) -> u64 {
        self.account.peak_bytes()
    }

    /// Bytes that were given back while somebody waited for some, all told. As long as it grows, whoever waits comes
    /// nearer to the head of the line.
    pub fn freed_for_others(&self) -> u64 {
        self.account.freed_bytes()
    }

    /// The budget in bytes.
    pub fn limit(&self) -> u64 {
        self.account.limit_bytes()
    }

    /// How often the budget was lowered.
    pub fn times_lowered(&self) -> u64 {
        self.account.times_lowered()
    }

    /// Changes the budget. What is reserved stays reserved, but caches are asked to give back what is
    /// too much; who waits for more than the new budget gets an error.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.account.set_limit(limit_bytes);
    }

    /// From now on `cache` is asked for memory that others lack, until it is dropped.
    pub fn add_cache(&self, cache: Weak<dyn Cache>) {
        self.account.add_cache(cache);
    }

    /// Bytes that are missing to serve everybody who waits, and to be within the budget with all that the
    /// heap has; 0 if none are.
    pub fn shortage(&self) -> u64 {
        self.account.shortage()
    }

    /// Reserves `bytes` if they are free, or caches have them, and nobody waits; or if they are of the half of a small limit
    /// that is there whatever the heap has without a reservation.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        self.account.try_take(bytes).then(|| self.reservation(bytes))
    }

    /// Reserves `bytes` if the budget was lowered since this handle, or the one that it is a clone of, began to be counted
    /// ([`Ledger::tallied`]), and they are free of what the budget was then. For one that would have to give up without them:
    /// what it holds was chosen for that budget, and comes back when it has ended.
    pub fn try_reserve_promised(&self, bytes: u64) -> Option<Reservation> {
        let promised = self.tally.as_ref().map(|tally| tally.promised())?;
        let is_lower = self.limit() < promised;
        (is_lower && self.account.take_promised(bytes, promised)).then(|| self.reservation(bytes))
    }

    /// A reservation of nothing, to grow.
    pub fn empty(&self) -> Reservation {
        self.reservation(0)
    }

    /// Reserves `bytes`, waiting until they are free.
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`] if they are more than the budget, now or once it is lowered.
    pub async fn reserve(&self, bytes: u64) -> Result<Reservation, MemoryError> {
        self.memory(self.want(bytes)).await
    }

    /// Reserves `bytes`, waiting until they are free or it is told to spill: at once if there is no
    /// [`Holder`] that does not wait itself, or by [`Ledger::ask_to_spill`].
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`] if they are more than the budget, now or once it is lowered.
    pub async fn reserve_or_spill(&self, bytes: u64) -> Result<Grant, MemoryError> {
        self.memory_or_spill(Want { spillable: true, ..self.want(bytes) }).await
    }

    /// Tells everybody who waits and can spill to do so; returns how many there were.
    pub fn ask_to_spill(&self) -> usize {
        self.account.ask_to_spill()
    }

    /// Registers someone whose memory comes and goes with its work: one worker's share of an operator.
    ///
    /// Memory is known not to become free by itself when all holders wait for memory. So a holder is
    /// dropped before its owner waits for something else that another holder has to do.
    pub fn holder(&self) -> Holder {
        self.account.add_holder();
        Holder { ledger: self.clone() }
    }

    fn count(&self, bytes: u64) {
        if let Some(tally) = &self.tally {
            tally.add(bytes);
        }
    }

    fn discount(&self, bytes: u64) {
        if let Some(tally) = &self.tally {
            tally.remove(bytes);
        }
    }

    fn want(&self, bytes: u64) -> Want {
        Want { bytes, whole_bytes: bytes, spillable: false, is_holder: false }
    }

    async fn memory(&self, want: Want) -> Result<Reservation, MemoryError> {
        match Wait::new(&self.account, want).await {
            Outcome::Memory => Ok(self.reservation(want.bytes)),
            Outcome::TooLarge(error) => Err(error),
            Outcome::Spill => unreachable!("only those who can spill are told to"),
        }
    }

    async fn memory_or_spill(&self, want: Want) -> Result<Grant, MemoryError> {
        match Wait::new(&self.account, want).await {
            Outcome::Memory => Ok(Grant::Memory(self.reservation(want.bytes))),
            Outcome::TooLarge(error) => Err(error),
            Outcome::Spill => Ok(Grant::Spill),
        }
    }

    /// The reservation of `bytes` that have been taken already.
    fn reservation(&self, bytes: u64) -> Reservation {
        self.count(bytes);
        self.note_taken(bytes);
        Reservation { ledger: self.clone(), bytes, is_mapped: false }
    }
}

/// Someone whose memory comes and goes with its work; see [`Ledger::holder`]. It waits for one thing
/// at a time.
#[derive(Debug)]
pub struct Holder {
    ledger: Ledger,
}

impl Holder {
    /// The budget it holds memory of.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// As [`Ledger::try_reserve`].
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        self.ledger.try_reserve(bytes)
    }

    /// As [`Ledger::reserve`]; the holder counts as waiting meanwhile. To be used by one that has
    /// nothing to spill: if all holders wait so, only memory that no holder has can come free.
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`] if `bytes` are more than the budget, now or once it is lowered.
    pub async fn reserve(&mut self, bytes: u64) -> Result<Reservation, MemoryError> {
        let want = Want { is_holder: true, ..self.ledger.want(bytes) };
        self.ledger.memory(want).await
    }

    /// Reserves `bytes`, waiting until they are free or it is told to spill: as soon as all other
    /// holders wait too, or by [`Ledger::ask_to_spill`].
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`] if `bytes` are more than the budget, now or once it is lowered.
    pub async fn reserve_or_spill(&mut self, bytes: u64) -> Result<Grant, MemoryError> {
        let want = Want { is_holder: true, spillable: true, ..self.ledger.want(bytes) };
        self.ledger.memory_or_spill(want).await
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.ledger.account.remove_holder();
    }
}

/// Bytes of the budget, given back when it is dropped.
#[derive(Debug)]
#[must_use = "dropping the reservation gives the memory back"]
pub struct Reservation {
    ledger: Ledger,
    bytes: u64,
    /// The bytes do not lie in the heap.
    is_mapped: bool,
}

impl Reservation {
    /// How many bytes it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget that it is a part of.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The same for memory that its owner has from the system itself, not from the heap: a ledger that
    /// watches the heap adds it to what it sees there. What it grows by and is merged with becomes so too.
    pub fn mapped(mut self) -> Reservation {
        let bytes = std::mem::take(&mut self.bytes);
        self.is_mapped = true;
        self.ledger.discount(bytes);
        self.note(bytes);
        self
    }

    /// Has `bytes` more, which have been taken.
    fn note(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.ledger.count(bytes);
        if self.is_mapped {
            self.ledger.account.add_mapped(bytes);
        }
    }

    /// The same, of those that were just taken.
    fn note_taken(&mut self, bytes: u64) {
        self.note(bytes);
        self.ledger.note_taken(bytes);
    }

    /// Adds `bytes` as [`Ledger::try_reserve`] gives them.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let taken = self.ledger.account.try_take(bytes);
        self.note_taken(if taken { bytes } else { 0 });
        taken
    }

    /// Adds `bytes` if they are free and nobody waits; takes nothing from caches. For caches.
    pub fn try_grow_from_free(&mut self, bytes: u64) -> bool {
        let taken = self.ledger.account.try_take_free(bytes);
        self.note_taken(if taken { bytes } else { 0 });
        taken
    }

    /// Adds `bytes`, waiting until they are free. (The caller must not count on memory that others
    /// free only when this reservation is given back.)
    ///
    /// # Errors
    /// [`MemoryError::TooLarge`] if the reservation would exceed the budget, now or once it is lowered.
    pub async fn grow(&mut self, bytes: u64) -> Result<(), MemoryError> {
        let whole_bytes = self.bytes.saturating_add(bytes);
        let ledger = self.ledger.clone();
        let more = ledger.memory(Want { whole_bytes, ..ledger.want(bytes) }).await?;
        self.merge(more);
        Ok(())
    }

    /// Gives `bytes` of it back.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn shrink(&mut self, bytes: u64) {
        drop(self.split(bytes));
    }

    /// Makes `bytes` of it a reservation of their own.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn split(&mut self, bytes: u64) -> Reservation {
        assert!(bytes <= self.bytes, "{bytes} bytes of a reservation of {}", self.bytes);
        self.bytes -= bytes;
        Reservation { ledger: self.ledger.clone(), bytes, is_mapped: self.is_mapped }
    }

    /// Adds what `other` has.
    ///
    /// # Panics
    /// If it is a reservation in another budget.
    pub fn merge(&mut self, mut other: Reservation) {
        assert!(Arc::ptr_eq(&self.ledger.account, &other.ledger.account), "two budgets");
        let bytes = other.forget();
        self.note(bytes);
    }

    /// Has nothing any more; what it had is still taken.
    fn forget(&mut self) -> u64 {
        if self.is_mapped {
            self.ledger.account.remove_mapped(self.bytes);
        }
        self.ledger.discount(self.bytes);
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let bytes = self.forget();
        self.ledger.account.release(bytes);
        #[cfg(not(loom))]
        if !self.is_mapped {
            self.ledger.note_freed(bytes);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
