//! A first-in-first-out line of waiters, for state that lies under one mutex.
//!
//! Plain data: whoever holds the mutex settles waiters from the front and gets their wakers, to call
//! once the mutex is released. A future holds a ticket: it asks with it how it was settled, or leaves
//! the line with it when it is dropped. Wakers are cloned before the mutex is taken and dropped after
//! it is released, since both run the executor's code: so they are handed in and out here.

use std::collections::BTreeMap;
use std::task::Waker;

/// A waiter's number: those who came earlier have smaller ones.
pub(crate) type Ticket = u64;

/// Waiters, each with what it wants (`W`), and how those who need not wait any more fared (`O`).
#[derive(Debug)]
pub(crate) struct Turnstile<W, O> {
    next: Ticket,
    waiting: BTreeMap<Ticket, (W, Waker)>,
    settled: BTreeMap<Ticket, O>,
}

/// What a waiter that leaves had.
#[derive(Debug)]
pub(crate) enum Left<W, O> {
    /// It still waited. The waker is dropped once the mutex is released.
    Waiting(W, Waker),
    /// It had been settled, and did not know yet.
    Settled(O),
}

impl<W, O> Turnstile<W, O> {
    /// Nobody waits.
    pub(crate) const fn new() -> Turnstile<W, O> {
        Turnstile { next: 0, waiting: BTreeMap::new(), settled: BTreeMap::new() }
    }

    /// True if nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of those who wait.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts a waiter at the end of the line.
    pub(crate) fn enter(&mut self, want: W, waker: Waker) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, (want, waker));
        ticket
    }

    /// How the waiter was settled, if it was. If not, its waker is exchanged for `waker`.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &mut Waker) -> Option<O> {
        if let Some((_, old)) = self.waiting.get_mut(&ticket) {
            std::mem::swap(old, waker);
            return None;
        }
        self.settled.remove(&ticket)
    }

    /// What the first in line wants.
    pub(crate) fn first(&self) -> Option<&W> {
        self.waiting.first_key_value().map(|(_, (want, _))| want)
    }

    /// Settles the first in line; gives back its waker.
    pub(crate) fn settle_first(&mut self, outcome: O) -> Option<Waker> {
        let (ticket, (_, waker)) = self.waiting.pop_first()?;
        self.settled.insert(ticket, outcome);
        Some(waker)
    }

    /// Settles everybody for whom `decide` has an outcome, in their order; `each` gets their wakers.
    pub(crate) fn settle_where(
        &mut self,
        mut decide: impl FnMut(&W) -> Option<O>,
        mut each: impl FnMut(Option<Waker>),
    ) {
        let settled = &mut self.settled;
        let out = self.waiting.extract_if(.., |ticket, (want, _)| match decide(want) {
            Some(outcome) => {
                settled.insert(*ticket, outcome);
                true
            }
            None => false,
        });
        for (_, (_, waker)) in out {
            each(Some(waker));
        }
    }

    /// Takes a waiter out that does not come back.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Left<W, O>> {
        match self.waiting.remove(&ticket) {
            Some((want, waker)) => Some(Left::Waiting(want, waker)),
            None => self.settled.remove(&ticket).map(Left::Settled),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::testing::WakeCount;

    #[test]
    fn settles_in_order_and_forgets_who_left() {
        let wakes = WakeCount::new();
        let mut line = Turnstile::new();
        let tickets: Vec<_> = (0..5).map(|want| line.enter(want, wakes.waker())).collect();
        assert_eq!(line.first(), Some(&0));
        assert!(matches!(line.leave(tickets[0]), Some(Left::Waiting(0, _))));
        assert!(line.settle_first("first").is_some());
        assert_eq!(line.poll(tickets[1], &mut wakes.waker()), Some("first"));
        assert_eq!(line.poll(tickets[2], &mut wakes.waker()), None);
        line.settle_where(|want| (want % 2 == 1).then_some("odd"), drop);
        assert!(matches!(line.leave(tickets[3]), Some(Left::Settled("odd"))));
        assert!(line.leave(tickets[3]).is_none());
        assert_eq!(line.len(), 2);
        assert!(line.settled.is_empty());
    }
}
