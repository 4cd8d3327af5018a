//! Which worker takes what: what it has written itself, as long as there is any, for its caches may have that; then what others
//! have left (Spilly, section 4.2: locality as a hint to the scheduler, not a rule).

use weft_rt::MorselQueue;

/// Morsels, each of which one worker would rather take than others.
#[derive(Debug)]
pub(crate) struct Preferred<M> {
    /// For each worker that has some, and for nobody in particular last.
    queues: Vec<Queue<M>>,
}

#[derive(Debug)]
struct Queue<M> {
    home: Option<usize>,
    morsels: Vec<M>,
    queue: MorselQueue,
}

impl<M: Clone> Preferred<M> {
    /// Morsels, and who has written each.
    pub(crate) fn new(morsels: Vec<(Option<usize>, M)>) -> Preferred<M> {
        let mut homes: Vec<Option<usize>> = morsels.iter().map(|(home, _)| *home).collect();
        homes.sort_unstable_by_key(|home| home.unwrap_or(usize::MAX));
        homes.dedup();
        let queue = |home: Option<usize>| {
            let of_home = morsels.iter().filter(|(of, _)| *of == home);
            let morsels: Vec<M> = of_home.map(|(_, morsel)| morsel.clone()).collect();
            let queue = MorselQueue::new(morsels.len() as u64, 1);
            Queue { home, morsels, queue }
        };
        Preferred { queues: homes.into_iter().map(queue).collect() }
    }

    /// The next one for a worker: of its own, else of those after it, so that not all go for the same.
    pub(crate) fn take(&self, worker: usize) -> Option<M> {
        let first = self.queues.iter().position(|queue| queue.home >= Some(worker)).unwrap_or(0);
        let (before, from) = self.queues.split_at(first);
        from.iter().chain(before).find_map(|of| {
            let taken = of.queue.next()?;
            Some(of.morsels[taken.start as usize].clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_take_their_own_first_and_then_what_is_left() {
        let homes = [Some(2), Some(0), Some(2), None, Some(0), Some(2)];
        let morsels = homes.iter().enumerate().map(|(at, home)| (*home, at)).collect();
        let preferred = Preferred::new(morsels);
        let take = |worker| preferred.take(worker);
        assert_eq!([take(2), take(0), take(2)], [Some(0), Some(1), Some(2)]);
        // Worker 1 has nothing of its own.
        assert_eq!([take(1), take(1)], [Some(5), Some(3)]);
        assert_eq!([take(2), take(2), take(0)], [Some(4), None, None]);
        assert_eq!(Preferred::<usize>::new(Vec::new()).take(0), None);
    }
}
