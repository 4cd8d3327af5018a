//! DataFusion's memory pool over the process's one ledger.
//!
//! What operators hold is reserved in the ledger, where the buffer pool and the loads reserve too; the ledger
//! has the buffer pool give back pages before an operator is refused. The policy is to refuse only those who
//! can go on without ([`consumer`] tells them apart):
//!
//! - Operators that spill share equally what the others leave. One that holds nothing yet gets what it asks
//!   for, as there is nothing that it could spill.
//! - Exchanges get what is passed on between partitions, up to a part beyond which they write to disk, or, where they had
//!   better not, fail (`exchanges.rs`).
//! - A part is kept free for operators that need little and fail without it. They get what they ask for.
//! - Merges of sorted runs take the rest, and merge fewer runs at a time where they are refused.
//! - What cannot spill and needs a whole input, such as the build side of a hash join, gets what there is. The
//!   statement is planned again without such operators if that does not suffice (`run.rs`).

mod consumer;
mod exchanges;
mod held_rows;
mod owned_rows;
mod passing;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use weft_rt::memory::{Ledger, Reservation};

use crate::sizes::human_bytes;
use consumer::{Temper, spoken_name, temper};
pub(crate) use exchanges::Exchanges;
pub(crate) use held_rows::HELD_ROWS;
pub(crate) use owned_rows::OWNED_ROWS;

/// Of the budget, the part that is kept free for operators that need little and fail without it.
const KEPT_FREE: u64 = 8;

/// Of the budget, the part that operators share which must not be refused so little.
const NEVER_REFUSED: u64 = 8;

/// Of the budget, the part that operators may have however much of it is taken by what reserves nothing.
const OPERATORS_MIN: u64 = 2;

/// Of the budget, the part that exchanges may hold while they are fed: so much less than what they are given that they
/// are never refused.
const FED_MAX: u64 = 16;

/// Of the budget, the part that an operator of bounded needs gets without a question.
const BOUNDED_MAX: u64 = 4;

/// Of what a sort holds, the part that its merge may hold beside the same again.
const MERGE_SLACK: u64 = 8;

/// The pool of one database.
pub(crate) struct LedgerPool {
    ledger: Ledger,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Operators that spill, and those that merge.
    spillers: usize,
    mergers: usize,
    /// The most that one held of those that spill, since there are any.
    spiller_max_bytes: u64,
    /// What those hold that spill, and what the others hold.
    spillable_bytes: u64,
    other_bytes: u64,
    /// What of it exchanges hold.
    exchanged_bytes: u64,
    /// What of it the ledger knows about.
    reserved: Option<Reservation>,
}

impl State {
    fn held_bytes(&self) -> u64 {
        self.spillable_bytes + self.other_bytes
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved.as_ref().map_or(0, Reservation::bytes)
    }

    /// Notes that an operator holds `bytes` more.
    fn add(&mut self, consumer: &MemoryConsumer, bytes: u64) {
        let (held, exchanged) = self.counts(consumer);
        *held += bytes;
        exchanged.into_iter().for_each(|exchanged| *exchanged += bytes);
    }

    /// Notes that an operator holds `bytes` less.
    fn subtract(&mut self, consumer: &MemoryConsumer, bytes: u64) {
        let (held, exchanged) = self.counts(consumer);
        *held -= bytes;
        exchanged.into_iter().for_each(|exchanged| *exchanged -= bytes);
    }

    fn counts(&mut self, consumer: &MemoryConsumer) -> (&mut u64, Option<&mut u64>) {
        let held = match consumer.can_spill() {
            true => &mut self.spillable_bytes,
            false => &mut self.other_bytes,
        };
        let is_exchange = temper(consumer.name(), consumer.can_spill()) == Temper::PassesOn;
        (held, is_exchange.then_some(&mut self.exchanged_bytes))
    }

    fn crowd(&mut self, consumer: &MemoryConsumer) -> Option<&mut usize> {
        match temper(consumer.name(), consumer.can_spill()) {
            Temper::Spills => Some(&mut self.spillers),
            Temper::Merges => Some(&mut self.mergers),
            Temper::PassesOn | Temper::Feeds | Temper::Bounded | Temper::Builds => None,
        }
    }

    /// Reserves in the ledger what operators hold and `bytes` more, if they are free. (What was given to
    /// operators without asking the ledger is made up for.)
    fn reserve(&mut self, ledger: &Ledger, bytes: u64) -> bool {
        let missing = (self.held_bytes() + bytes).saturating_sub(self.reserved_bytes());
        match &mut self.reserved {
            Some(reserved) => reserved.try_grow(missing),
            none => {
                *none = ledger.try_reserve(missing);
                none.is_some()
            }
        }
    }
}

/// An operator's wish for memory.
struct Wish {
    temper: Temper,
    held_bytes: u64,
    more_bytes: u64,
}

/// How a wish is to be dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It is fulfilled, whatever the ledger has.
    Yes,
    /// It is fulfilled if the ledger has so much.
    IfFree,
    /// It is refused.
    No,
}

impl LedgerPool {
    pub(crate) fn new(ledger: Ledger) -> LedgerPool {
        LedgerPool { ledger, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that operators may hold: the limit without what is taken by what reserves nothing, and without
    /// what is kept free.
    fn available(&self) -> u64 {
        let limit = self.ledger.limit();
        let usable = limit.saturating_sub(self.ledger.unreserved());
        usable.max(limit / OPERATORS_MIN).saturating_sub(limit / KEPT_FREE)
    }

    fn answer(&self, state: &State, wish: &Wish) -> Answer {
        let Wish { temper, held_bytes, more_bytes } = *wish;
        let wanted = held_bytes + more_bytes;
        let limit = self.ledger.limit();
        let never_refused = |sharers: usize| limit / NEVER_REFUSED / sharers.max(1) as u64;
        match temper {
            Temper::Spills => {
                let share = self.available().saturating_sub(state.other_bytes)
                    / state.spillers.max(1) as u64;
                if held_bytes == 0 || wanted <= never_refused(state.spillers) {
                    Answer::Yes
                } else if wanted <= share {
                    Answer::IfFree
                } else {
                    Answer::No
                }
            }
            Temper::PassesOn if wanted <= limit / KEPT_FREE => Answer::Yes,
            Temper::PassesOn => Answer::No,
            Temper::Feeds if state.exchanged_bytes <= limit / FED_MAX => Answer::Yes,
            Temper::Feeds => Answer::No,
            Temper::Merges => {
                let available = self.available();
                // Half of its share: what a sort holds of unsorted rows it holds twice.
                let share = available / 2 / state.mergers.max(1) as u64;
                // A sort that had more when there were fewer merges all of it before it spills.
                let unsorted = state.spiller_max_bytes + state.spiller_max_bytes / MERGE_SLACK;
                if state.held_bytes() + more_bytes <= available
                    || wanted <= share.max(never_refused(state.mergers)).max(unsorted)
                {
                    Answer::Yes
                } else {
                    Answer::No
                }
            }
            Temper::Bounded if wanted <= limit / BOUNDED_MAX => Answer::Yes,
            Temper::Bounded | Temper::Builds => Answer::IfFree,
        }
    }

    fn refuse(&self, asked: &MemoryReservation, additional: u64) -> DataFusionError {
        let taken = self.ledger.used() + self.ledger.unreserved();
        DataFusionError::ResourcesExhausted(format!(
            "out of memory: {} needs {} more than the {} it holds, but only {} of the setting \
             memory_limit ({}) are free",
            spoken_name(asked.consumer().name()),
            human_bytes(additional),
            human_bytes(asked.size() as u64),
            human_bytes(self.ledger.limit().saturating_sub(taken)),
            human_bytes(self.ledger.limit()),
        ))
    }
}

impl MemoryPool for LedgerPool {
    fn name(&self) -> &str {
        "ledger"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if let Some(crowd) = self.lock().crowd(consumer) {
            *crowd += 1;
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.lock();
        if let Some(crowd) = state.crowd(consumer) {
            *crowd -= 1;
        }
        if state.spillers == 0 {
            state.spiller_max_bytes = 0;
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let mut state = self.lock();
        // Must succeed: what the ledger has not got is held without it.
        state.reserve(&self.ledger, additional as u64);
        state.add(reservation.consumer(), additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.lock();
        state.subtract(reservation.consumer(), shrink as u64);
        let surplus = state.reserved_bytes().saturating_sub(state.held_bytes());
        if let (Some(reserved), true) = (&mut state.reserved, surplus > 0) {
            reserved.shrink(surplus);
        }
    }

    fn try_grow(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
    ) -> Result<(), DataFusionError> {
        let consumer = reservation.consumer();
        let wish = Wish {
            temper: temper(consumer.name(), consumer.can_spill()),
            held_bytes: reservation.size() as u64,
            more_bytes: additional as u64,
        };
        let mut state = self.lock();
        let answer = self.answer(&state, &wish);
        if answer == Answer::No
            || !state.reserve(&self.ledger, wish.more_bytes) && answer == Answer::IfFree
        {
            return Err(self.refuse(reservation, wish.more_bytes));
        }
        state.add(consumer, wish.more_bytes);
        if wish.temper == Temper::Spills {
            state.spiller_max_bytes =
                state.spiller_max_bytes.max(wish.held_bytes + wish.more_bytes);
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        usize::try_from(self.lock().held_bytes()).unwrap_or(usize::MAX)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(usize::try_from(self.ledger.limit()).unwrap_or(usize::MAX))
    }
}

impl fmt::Debug for LedgerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerPool").field("state", &self.state).finish_non_exhaustive()
    }
}

impl fmt::Display for LedgerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ledger of {}", human_bytes(self.ledger.limit()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_rt::memory::Cache;

    use super::*;

    fn pool(limit: u64) -> (Ledger, Arc<dyn MemoryPool>) {
        let ledger = Ledger::new(limit);
        let pool = LedgerPool::new(ledger.clone());
        (ledger, Arc::new(pool))
    }

    #[test]
    fn reserves_in_the_ledger_and_gives_back() {
        let (ledger, pool) = pool(1_000);
        let join = MemoryConsumer::new("HashJoinInput[1]").register(&pool);
        join.try_grow(600).unwrap();
        assert_eq!(ledger.used(), 600);
        let error = join.try_grow(600).unwrap_err().to_string();
        assert!(error.contains("the hash join's build side needs 600 B"), "{error}");
        // What must succeed does, and does not break the account.
        join.grow(600);
        assert_eq!((ledger.used(), pool.reserved()), (600, 1_200));
        join.shrink(700);
        assert_eq!((ledger.used(), pool.reserved()), (500, 500));
        drop(join);
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn what_was_held_without_the_ledger_is_reserved_when_there_is_room() {
        let (ledger, pool) = pool(1_000);
        let load = ledger.try_reserve(900).unwrap();
        let join = MemoryConsumer::new("join").register(&pool);
        join.grow(300);
        assert_eq!((ledger.used(), pool.reserved()), (900, 300));
        drop(load);
        join.try_grow(100).unwrap();
        assert_eq!((ledger.used(), pool.reserved()), (400, 400));
    }

    #[test]
    fn spillers_share_what_the_others_leave() {
        let (_, pool) = pool(1_000);
        let join = MemoryConsumer::new("join").register(&pool);
        join.try_grow(275).unwrap();
        let sorts: Vec<_> = (0..2)
            .map(|_| MemoryConsumer::new("sort").with_can_spill(true).register(&pool))
            .collect();
        // An eighth is kept free.
        sorts[0].try_grow(300).unwrap();
        assert!(sorts[0].try_grow(1).is_err());
        sorts[1].try_grow(300).unwrap();
        assert!(sorts[1].try_grow(1).is_err());
    }

    #[test]
    fn those_who_cannot_go_on_without_are_not_refused() {
        let (ledger, pool) = pool(1_000);
        let load = ledger.try_reserve(1_000).unwrap();
        let sort = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(&pool);
        // It has nothing that it could spill.
        sort.try_grow(300).unwrap();
        assert!(sort.try_grow(1).is_err());
        let merge = MemoryConsumer::new("SortPreservingMergeExec[0]").register(&pool);
        merge.try_grow(250).unwrap();
        assert!(merge.try_grow(1).is_err());
        drop(load);
        sort.try_grow(1).unwrap();
        assert_eq!((ledger.used(), pool.reserved()), (551, 551));
    }

    #[test]
    fn merges_leave_room_for_what_comes_after_them() {
        let (_, pool) = pool(1_000);
        let runs = MemoryConsumer::new("ExternalSorterMerge[0]").register(&pool);
        runs.try_grow(875).unwrap();
        assert!(runs.try_grow(1).is_err());
        let exchange = MemoryConsumer::new("RepartitionExec[0]").with_can_spill(true);
        let exchange = exchange.register(&pool);
        exchange.try_grow(100).unwrap();
        assert!(exchange.try_grow(26).is_err());
        MemoryConsumer::new("SortPreservingMergeExec[0]").register(&pool).try_grow(25).unwrap();
    }

    #[test]
    fn what_a_sort_was_given_it_may_merge() {
        let (_, pool) = pool(1_000);
        let spiller =
            || MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(&pool);
        let merger = || MemoryConsumer::new("ExternalSorterMerge[0]").register(&pool);
        let (early, merge) = (spiller(), merger());
        early.try_grow(400).unwrap();
        let others: Vec<_> = (0..7).map(|_| (spiller(), merger())).collect();
        for (sort, _) in &others {
            sort.try_grow(68).unwrap();
        }
        merge.try_grow(450).unwrap();
        assert!(merge.try_grow(1).is_err());
        drop((early, others));
        assert!(merge.try_grow(425).is_ok());
        assert!(merge.try_grow(1).is_err());
    }

    struct Giving(Mutex<Option<Reservation>>);

    impl Cache for Giving {
        fn give_back(&self, _: u64) {
            drop(self.0.lock().unwrap().take());
        }
    }

    #[test]
    fn caches_give_back_first() {
        let (ledger, pool) = pool(1_000);
        let cached = Mutex::new(Some(ledger.try_reserve(900).unwrap()));
        let cache: Arc<dyn Cache> = Arc::new(Giving(cached));
        ledger.add_cache(Arc::downgrade(&cache));
        MemoryConsumer::new("join").register(&pool).try_grow(500).unwrap();
    }
}
