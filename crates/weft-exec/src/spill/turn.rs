//! Who may have memory for tuples: as many statements at a time as have enough of it to go on, the others in turn. More of them
//! would only spill each other's pages.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::{Either, select};
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::sleep;

use super::Spilling;
use super::share::WORKER_BYTES;
use crate::profile::{Wait, waiting};

/// What a worker may have of tuples without its statement's turn.
pub(crate) const WITHOUT_BYTES: u64 = 16 << 10;

/// How often who waits looks whether another worker has got the statement's turn.
const LOOK: Duration = Duration::from_millis(10);

/// How often it looks until it goes on without, if nobody reserves, frees or spills anything: those who have a turn may wait for
/// this statement.
const LOOKS_MAX: usize = 500;

/// A statement's turn, which all of its operators share. It ends with this.
#[derive(Debug, Default)]
pub struct Turn {
    /// What it has of the turns; nothing if it goes on without.
    taken: OnceLock<Option<Reservation>>,
}

/// The turns of all statements.
#[derive(Debug)]
pub(super) struct Turns {
    /// Of bytes that statements with a turn need.
    needed: Ledger,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { needed: Ledger::new(0) }
    }

    /// What a statement with so many workers needs, at a budget that may have changed.
    fn need(&self, spilling: &Spilling, budget: &Ledger, workers: usize) -> u64 {
        let limit = spilling.shared_bytes(budget.limit(), budget.limit());
        if self.needed.limit() != limit {
            self.needed.set_limit(limit);
        }
        (workers as u64 * WORKER_BYTES).min(limit)
    }
}

impl Turn {
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.get().is_some()
    }

    fn set(&self, taken: Option<Reservation>) {
        // If another worker was faster, this is not needed.
        drop(self.taken.set(taken));
    }

    /// Takes the turn if it is there.
    pub(crate) fn try_take(&self, spilling: &Spilling, budget: &Ledger, workers: usize) -> bool {
        if !self.is_taken() {
            let bytes = spilling.turns().need(spilling, budget, workers);
            if let Some(taken) = spilling.turns().needed.try_reserve(bytes) {
                self.set(Some(taken));
            }
        }
        self.is_taken()
    }

    /// Waits for the turn. On a worker.
    pub(crate) async fn take(&self, spilling: &Spilling, budget: &Ledger, workers: usize) {
        let turns = spilling.turns();
        let mut turn = pin!(turns.needed.reserve(turns.need(spilling, budget, workers)));
        let doings = || (budget.used(), spilling.area().stats().written_bytes);
        let (mut done, mut looks) = (doings(), 0);
        while !self.is_taken() {
            match waiting(Wait::Memory, select(turn.as_mut(), pin!(sleep(LOOK)))).await {
                // More than there is: the budget was lowered.
                Either::Left((taken, _)) => self.set(taken.ok()),
                Either::Right(_) => {
                    looks += 1;
                    if doings() != done {
                        (done, looks) = (doings(), 0);
                    }
                    if looks == LOOKS_MAX {
                        self.set(None);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_rt::{Runtime, RuntimeOptions};
    use weft_store::Directory;
    use weft_store::spill::SpillArea;

    use super::*;

    #[test]
    fn statements_have_their_turns() {
        let spilling = Spilling::new(SpillArea::new(vec![Directory::Os("none".into())], 0));
        let budget = Ledger::new(8 << 20);
        let [first, second] = [(); 2].map(|()| Arc::new(Turn::default()));
        assert!(first.try_take(&spilling, &budget, 2) && first.try_take(&spilling, &budget, 2));
        assert!(!second.try_take(&spilling, &budget, 2));
        let options = RuntimeOptions { workers: 1, ..RuntimeOptions::default() };
        let runtime = Runtime::new(&options).unwrap();
        let take = {
            let (turn, spilling, budget) = (second.clone(), spilling.clone(), budget.clone());
            runtime.spawn(move || async move { turn.take(&spilling, &budget, 2).await })
        };
        std::thread::sleep(LOOK * 2);
        assert!(!second.is_taken());
        drop(first);
        runtime.block_on(move || take).unwrap().unwrap();
        assert!(second.taken.get().unwrap().is_some());
        // At a larger limit there are more.
        budget.set_limit(16 << 20);
        assert!(Turn::default().try_take(&spilling, &budget, 2));
    }
}
