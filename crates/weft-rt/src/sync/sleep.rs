//! The protocol by which a worker goes to sleep without missing the last thing that was handed to it.
//!
//! The owner announces that it will sleep, looks for work once more, and only then sleeps. Whoever
//! adds work asks afterwards whether the owner must be notified. Each side writes, then reads what the
//! other wrote, with a sequentially consistent fence between: at least one of them sees the other.
//! (The flag is only ever exchanged, never stored to: loom does not order a plain store after the
//! exchanges that came before it.)

use super::primitives::{AtomicBool, Ordering, fence};

/// Says whether the owner of a set of work sleeps, or is about to.
#[derive(Debug)]
pub struct SleepFlag {
    sleeping: AtomicBool,
}

impl Default for SleepFlag {
    fn default() -> SleepFlag {
        SleepFlag::new()
    }
}

impl SleepFlag {
    /// An owner that is awake.
    pub fn new() -> SleepFlag {
        SleepFlag { sleeping: AtomicBool::new(false) }
    }

    /// Owner: announces that it will sleep. It then looks for work once more, and sleeps only if there
    /// is none; either way it calls [`SleepFlag::woke`] afterwards.
    pub fn announce_sleep(&self) {
        self.sleeping.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Owner: it does not sleep (any more).
    pub fn woke(&self) {
        self.sleeping.swap(false, Ordering::Relaxed);
    }

    /// Anyone who has just added work: true if the caller must notify the owner. Of several callers
    /// one is told so; a notification may come when the owner has just woken up by itself.
    pub fn must_notify(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_notifies() {
        let flag = SleepFlag::new();
        assert!(!flag.must_notify());
        flag.announce_sleep();
        assert!(flag.must_notify());
        assert!(!flag.must_notify());
        flag.woke();
        flag.announce_sleep();
        flag.woke();
        assert!(!flag.must_notify());
    }
}
