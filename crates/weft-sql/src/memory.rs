//! DataFusion's memory pool over the process's one ledger.
//!
//! The policy is that of DataFusion's fair pool: operators that can spill share equally what those
//! that cannot have left, so that each of them spills in time. What is granted is reserved in the
//! ledger, where the buffer pool and the loads reserve too; when the ledger is full, the buffer pool
//! is asked to give back pages before an operator is refused.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use weft_rt::memory::{Ledger, Reservation};

use crate::sizes::human_bytes;

/// Gives memory back to the ledger: called with the bytes that are wanted.
pub(crate) type Reclaim = Box<dyn Fn(u64) + Send + Sync>;

/// The pool of one database.
pub(crate) struct LedgerPool {
    ledger: Ledger,
    reclaim: Reclaim,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spillers: usize,
    spillable_bytes: u64,
    unspillable_bytes: u64,
    /// What of it the ledger knows about.
    reserved: Option<Reservation>,
}

impl State {
    fn held_bytes(&self) -> u64 {
        self.spillable_bytes + self.unspillable_bytes
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved.as_ref().map_or(0, Reservation::bytes)
    }

    fn count(&mut self, can_spill: bool) -> &mut u64 {
        match can_spill {
            true => &mut self.spillable_bytes,
            false => &mut self.unspillable_bytes,
        }
    }

    /// Reserves `bytes` more in the ledger if they are free.
    fn reserve(&mut self, ledger: &Ledger, bytes: u64) -> bool {
        match &mut self.reserved {
            Some(reserved) => reserved.try_grow(bytes),
            none => {
                *none = ledger.try_reserve(bytes);
                none.is_some()
            }
        }
    }
}

impl LedgerPool {
    pub(crate) fn new(ledger: Ledger, reclaim: Reclaim) -> LedgerPool {
        LedgerPool { ledger, reclaim, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, asked: &MemoryReservation, additional: u64, free: u64) -> DataFusionError {
        let held = asked.size() as u64;
        DataFusionError::ResourcesExhausted(format!(
            "out of memory: {} needs {} more than the {} it holds, but only {} of the setting \
             memory_limit ({}) are free",
            operator_name(asked.consumer().name()),
            human_bytes(additional),
            human_bytes(held),
            human_bytes(free),
            human_bytes(self.ledger.limit()),
        ))
    }

    /// Bytes that operators may hold at all: the limit without what loads and others hold.
    fn available(&self, state: &State) -> u64 {
        self.ledger.limit().saturating_sub(state.unspillable_bytes)
    }
}

impl MemoryPool for LedgerPool {
    fn name(&self) -> &str {
        "ledger"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.lock().spillers += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.lock().spillers -= usize::from(consumer.can_spill());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let mut state = self.lock();
        *state.count(reservation.consumer().can_spill()) += additional as u64;
        // Must succeed: what the ledger has not got is held without it, and settled by `shrink`.
        state.reserve(&self.ledger, additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.lock();
        *state.count(reservation.consumer().can_spill()) -= shrink as u64;
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
        let can_spill = reservation.consumer().can_spill();
        let additional = additional as u64;
        for attempt in 0..2 {
            let mut state = self.lock();
            if can_spill {
                let share = self.available(&state) / state.spillers.max(1) as u64;
                if reservation.size() as u64 + additional > share {
                    let free = share.saturating_sub(reservation.size() as u64);
                    return Err(self.refuse(reservation, additional, free));
                }
            }
            if state.reserve(&self.ledger, additional) {
                *state.count(can_spill) += additional;
                return Ok(());
            }
            drop(state);
            if attempt == 0 {
                (self.reclaim)(additional);
            }
        }
        let free = self.ledger.limit().saturating_sub(self.ledger.used());
        Err(self.refuse(reservation, additional, free))
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

/// A consumer's name without its partition: `HashJoinInput[3]` becomes `the hash join's build side`.
fn operator_name(consumer: &str) -> String {
    let name = consumer.split(['[', '(', ' ']).next().unwrap_or(consumer);
    let known = match name {
        "HashJoinInput" => "the hash join's build side",
        "NestedLoopJoinLoad" | "NestedLoopJoinFetchRight" => "the nested-loop join's left side",
        "CrossJoinExec" | "CrossJoinLoad" => "the cross join's left side",
        "SMJStream" => "the merge join",
        "ExternalSorter" | "ExternalSorterMerge" => "the sort",
        "TopK" => "the top-k sort",
        "GroupedHashAggregateStream" => "the aggregation",
        "RepartitionExec" => "the exchange between threads",
        "WindowAggStream" | "BoundedWindowAggStream" => "the window function",
        other => return format!("the operator {other}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn pool(limit: u64) -> (Ledger, Arc<dyn MemoryPool>) {
        let ledger = Ledger::new(limit);
        let pool = LedgerPool::new(ledger.clone(), Box::new(|_| {}));
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
    fn spillers_share_what_the_others_leave() {
        let (_, pool) = pool(1_000);
        let join = MemoryConsumer::new("join").register(&pool);
        join.try_grow(200).unwrap();
        let sorts: Vec<_> = (0..2)
            .map(|_| MemoryConsumer::new("sort").with_can_spill(true).register(&pool))
            .collect();
        sorts[0].try_grow(400).unwrap();
        assert!(sorts[0].try_grow(1).is_err());
        sorts[1].try_grow(400).unwrap();
    }

    #[test]
    fn asks_others_to_give_back_first() {
        let ledger = Ledger::new(1_000);
        let cache = Mutex::new(Some(ledger.try_reserve(900).unwrap()));
        let pool = LedgerPool::new(ledger, Box::new(move |_| drop(cache.lock().unwrap().take())));
        let pool: Arc<dyn MemoryPool> = Arc::new(pool);
        MemoryConsumer::new("join").register(&pool).try_grow(500).unwrap();
    }
}
