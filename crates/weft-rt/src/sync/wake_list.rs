//! Wakers taken out under a lock, to be called once it is released.
//!
//! A waker may run a whole executor's code, which may come back for the same lock.

use std::task::Waker;

/// Wakers held without allocating.
const INLINE: usize = 8;

/// Wakers to be called later, in the order they came.
#[derive(Debug)]
pub(crate) struct WakeList {
    inline: [Option<Waker>; INLINE],
    inline_len: usize,
    rest: Vec<Waker>,
}

impl WakeList {
    /// No wakers.
    pub(crate) const fn new() -> WakeList {
        WakeList { inline: [const { None }; INLINE], inline_len: 0, rest: Vec::new() }
    }

    /// Adds a waker, if there is one.
    pub(crate) fn push(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        if self.inline_len < INLINE {
            self.inline[self.inline_len] = Some(waker);
            self.inline_len += 1;
        } else {
            self.rest.push(waker);
        }
    }

    /// Wakes everybody. No lock may be held.
    pub(crate) fn wake_all(self) {
        self.inline.into_iter().flatten().chain(self.rest).for_each(Waker::wake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::testing::WakeCount;

    #[test]
    fn wakes_each_once() {
        let counts: Vec<_> = (0..20).map(|_| WakeCount::new()).collect();
        let mut list = WakeList::new();
        counts.iter().for_each(|count| list.push(Some(count.waker())));
        list.push(None);
        list.wake_all();
        assert!(counts.iter().all(|count| count.get() == 1));
    }
}
