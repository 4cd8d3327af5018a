//! Handles: the bytes by which a client names its transactions, savepoints, prepared statements and tickets.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The handles of one session. Those of another session are not among them, whatever their numbers.
pub(super) struct Handles {
    session: u64,
    last: AtomicU64,
}

impl Handles {
    pub(super) fn new() -> Handles {
        Handles { session: RandomState::new().hash_one(0), last: AtomicU64::new(0) }
    }

    /// A number that no handle of the session has yet.
    pub(super) fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The handle of a number.
    pub(super) fn handle(&self, number: u64) -> Bytes {
        [self.session.to_be_bytes(), number.to_be_bytes()].concat().into()
    }

    /// The number of a handle; `None` if the handle is none of this session.
    pub(super) fn number(&self, handle: &[u8]) -> Option<u64> {
        let (session, number) = handle.split_first_chunk()?;
        let is_own = u64::from_be_bytes(*session) == self.session;
        is_own.then_some(u64::from_be_bytes(number.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_other_sessions_have_no_number() {
        let (own, other) = (Handles::new(), Handles::new());
        let number = own.next_number();
        let handle = own.handle(number);
        assert_eq!(own.number(&handle), Some(number));
        assert_eq!(other.number(&handle), None);
        assert_ne!(own.next_number(), number);
        for length in 0..handle.len() {
            assert_eq!(own.number(&handle[..length]), None);
        }
        assert_eq!(own.number(&[&handle[..], b"\0"].concat()), None);
    }
}
