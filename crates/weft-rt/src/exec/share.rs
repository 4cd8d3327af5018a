//! Who gets how much of a worker: tasks of one share together as much as those of any other.
//!
//! A statement has as many tasks on a worker as it has pipelines to run. If workers took tasks in turns, one with five
//! pipelines would get five times as much as one with a single pipeline. So tasks say whose they are, and while a worker has
//! tasks of several shares it goes round the shares (deficit round robin): each may use its threads for a quantum of time in each round, in which its
//! runnable tasks take turns, and what it uses beyond that is missing in the next rounds. Tasks without a share are
//! polled once in every round, as all tasks are while there is no other share: one statement alone pays nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::current::Polled;

/// What a share may use of a worker in a round, in ns: about what a coroutine that computes takes until it yields.
const QUANTUM_NS: i64 = 250_000;

static NEXT_SHARE: AtomicU64 = AtomicU64::new(1);

/// A share of each worker, for all tasks that are started with it, and by those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share(u64);

impl Share {
    /// A share of its own.
    pub fn new() -> Share {
        Share(NEXT_SHARE.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Share {
    fn default() -> Share {
        Share::new()
    }
}

/// The shares that have tasks on one worker.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// By place; those without tasks are free.
    users: Vec<User>,
    /// For each task, by its slot, the place of its share.
    of_slot: Vec<Option<usize>>,
    /// How many have tasks.
    alive: usize,
}

#[derive(Debug)]
struct User {
    share: Share,
    tasks: usize,
    /// Time that it may use before others are served, in ns. Below zero after it has used more.
    left_ns: i64,
    /// Slots of its runnable tasks that have been taken from the worker's bitmap, in the order of their turns.
    queue: VecDeque<usize>,
}

impl Shares {
    /// A task comes into a slot.
    pub(crate) fn enter(&mut self, slot: usize, share: Option<Share>) {
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, None);
        }
        self.of_slot[slot] = share.map(|share| {
            let place = self.place(share);
            self.users[place].tasks += 1;
            place
        });
    }

    /// The task of a slot has ended.
    pub(crate) fn leave(&mut self, slot: usize) {
        let Some(place) = self.of_slot[slot].take() else { return };
        let user = &mut self.users[place];
        user.tasks -= 1;
        if user.tasks == 0 {
            self.alive -= 1;
        }
    }

    /// The share of the task in a slot.
    pub(crate) fn of(&self, slot: usize) -> Option<Share> {
        self.of_slot[slot].map(|place| self.users[place].share)
    }

    /// True if several shares have tasks here.
    pub(crate) fn are_several(&self) -> bool {
        self.alive > 1
    }

    /// Puts a runnable task into the queue of its share; false if it has none.
    pub(crate) fn enqueue(&mut self, slot: usize) -> bool {
        let Some(place) = self.of_slot[slot] else { return false };
        let queue = &mut self.users[place].queue;
        // Somebody may have woken it while it waited for its turn.
        if !queue.contains(&slot) {
            queue.push_back(slot);
        }
        true
    }

    /// Slots that wait for their turn, when there is but one share any more.
    pub(crate) fn take_queued(&mut self) -> impl Iterator<Item = usize> {
        self.users.iter_mut().flat_map(|user| user.queue.drain(..))
    }

    /// Lets each share use its quantum: `poll` polls the task of a slot. True if somebody stays runnable.
    pub(crate) fn round(&mut self, poll: impl FnMut(&mut Shares, usize) -> Polled<()>) -> bool {
        self.round_by(Instant::now, poll)
    }

    /// As [`Shares::round`], by a clock.
    fn round_by(
        &mut self,
        clock: impl Fn() -> Instant,
        mut poll: impl FnMut(&mut Shares, usize) -> Polled<()>,
    ) -> bool {
        let mut most_left_ns = None;
        for place in 0..self.users.len() {
            let user = &mut self.users[place];
            if user.queue.is_empty() {
                // Nobody saves what it has not used.
                user.left_ns = (user.left_ns + QUANTUM_NS).min(0);
                continue;
            }
            user.left_ns = (user.left_ns + QUANTUM_NS).min(QUANTUM_NS);
            let mut began = (user.left_ns > 0).then(&clock);
            while let Some(since) = began
                && let Some(slot) = self.users[place].queue.pop_front()
            {
                let polled = poll(self, slot);
                let user = &mut self.users[place];
                if matches!(polled, Polled::Runnable) {
                    user.queue.push_back(slot);
                }
                let now = clock();
                user.left_ns -= (now - since).as_nanos() as i64;
                began = (user.left_ns > 0).then_some(now);
            }
            let user = &self.users[place];
            if !user.queue.is_empty() {
                most_left_ns = most_left_ns.max(Some(user.left_ns));
            }
        }
        // Where all have used too much, the one with the least of that is next.
        if let Some(ahead_ns) = most_left_ns
            && ahead_ns <= -QUANTUM_NS
        {
            self.users.iter_mut().for_each(|user| user.left_ns -= ahead_ns);
        }
        most_left_ns.is_some()
    }

    fn place(&mut self, share: Share) -> usize {
        let alive = self.users.iter().position(|user| user.tasks > 0 && user.share == share);
        if let Some(place) = alive {
            return place;
        }
        self.alive += 1;
        let user = User { share, tasks: 0, left_ns: 0, queue: VecDeque::new() };
        match self.users.iter().position(|user| user.tasks == 0) {
            Some(free) => {
                self.users[free] = user;
                free
            }
            None => {
                self.users.push(user);
                self.users.len() - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// Time that each slot has got in `rounds`, when tasks of `shares` take `turn` each time that they are polled.
    fn got(shares: &[u64], turn: impl Fn(usize) -> Duration, rounds: usize) -> Vec<Duration> {
        let mut users = Shares::default();
        for (slot, share) in shares.iter().enumerate() {
            users.enter(slot, Some(Share(*share)));
        }
        let mut got = vec![Duration::ZERO; shares.len()];
        for slot in 0..shares.len() {
            assert!(users.enqueue(slot));
            users.enqueue(slot);
        }
        let now = Cell::new(Instant::now());
        let clock = || now.get();
        for _ in 0..rounds {
            let busy = users.round_by(clock, |users, slot| {
                assert_eq!(users.of(slot), Some(Share(shares[slot])));
                now.set(now.get() + turn(slot));
                got[slot] += turn(slot);
                Polled::Runnable
            });
            assert!(busy);
        }
        got
    }

    #[test]
    fn shares_get_the_same_whatever_tasks_they_have() {
        let turn = Duration::from_micros(250);
        let got = got(&[7, 8, 8, 8, 8], |_| turn, 400);
        let of_many: Duration = got[1..].iter().sum();
        let ratio = of_many.div_duration_f64(got[0]);
        assert!((0.99..1.01).contains(&ratio), "{got:?}");
        // Tasks of one share take turns.
        assert!(got[1..].iter().all(|got| got.div_duration_f64(of_many) > 0.24), "{got:?}");
    }

    #[test]
    fn shares_get_the_same_however_long_their_turns_are() {
        let micros = |slot| Duration::from_micros([1000, 20][slot]);
        let got = got(&[7, 8], micros, 2000);
        let ratio = got[0].div_duration_f64(got[1]);
        assert!((0.95..1.05).contains(&ratio), "{got:?}");
    }

    #[test]
    fn who_has_used_too_much_goes_on_when_others_have_too() {
        let mut users = Shares::default();
        users.enter(0, Some(Share(7)));
        users.enter(1, Some(Share(8)));
        users.users.iter_mut().for_each(|user| user.left_ns = -1_000_000_000);
        assert!(users.enqueue(0));
        let mut polls = 0;
        for _ in 0..4 {
            users.round(|_, _| {
                polls += 1;
                Polled::Parked
            });
        }
        assert_eq!(polls, 1);
        assert!(!users.round(|_, _| panic!("nobody is runnable")));
    }

    #[test]
    fn shares_come_and_go() {
        let mut users = Shares::default();
        users.enter(0, Some(Share(7)));
        users.enter(3, None);
        assert!(!users.are_several() && !users.enqueue(3));
        users.enter(1, Some(Share(8)));
        assert!(users.are_several());
        users.enqueue(1);
        users.enqueue(0);
        users.leave(0);
        assert!(!users.are_several());
        let mut queued: Vec<usize> = users.take_queued().collect();
        queued.sort_unstable();
        assert_eq!(queued, [0, 1]);
        users.enter(2, Some(Share(9)));
        assert_eq!(
            (users.of(2), users.of(1), users.users.len()),
            (Some(Share(9)), Some(Share(8)), 2)
        );
    }
}
