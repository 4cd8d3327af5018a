//! Swips: references to pages that are an address while the page is in memory.
//!
//! | bits | state |
//! | --- | --- |
//! | top bit 1, 63 bits of page id | cold: on the device |
//! | top bit 0, lowest bit 0: an address | hot: in memory, directly addressable |
//! | top bit 0, lowest bit 1: an address + 1 | loading: being read into the frame at that address |
//!
//! The encoding of hot and cold is the one of the ADMS paper (section 3.1); the loading state is
//! what the paper lacks, so that it retries where Weft waits (section 5).

use std::ptr::NonNull;

use crate::page::PageId;
use crate::primitives::{AtomicU64, Ordering};

const COLD: u64 = 1 << 63;
const LOADING: u64 = 1;

/// Where a page is, as a swip says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwipState {
    /// In memory at this address.
    Hot(NonNull<u8>),
    /// On the device.
    Cold(PageId),
    /// Being read into the frame at this address.
    Loading(NonNull<u8>),
}

impl SwipState {
    fn to_bits(self) -> u64 {
        match self {
            SwipState::Hot(page) => {
                let address = page.as_ptr() as u64;
                debug_assert!(address & (COLD | LOADING) == 0, "address {address:#x} has tag bits");
                address
            }
            SwipState::Cold(id) => COLD | id.to_bits(),
            SwipState::Loading(page) => page.as_ptr() as u64 | LOADING,
        }
    }

    fn from_bits(bits: u64) -> SwipState {
        if bits & COLD != 0 {
            let id = PageId::from_bits(bits & !COLD).expect("a cold swip holds a page id");
            return SwipState::Cold(id);
        }
        let page = NonNull::new((bits & !LOADING) as *mut u8).expect("a swip holds an address");
        if bits & LOADING == 0 { SwipState::Hot(page) } else { SwipState::Loading(page) }
    }
}

/// A reference to a page, 8 bytes.
///
/// It belongs to one buffer pool, which alone changes its state; others look at the page through
/// [`BufferPool::fix`](crate::pool::BufferPool::fix).
#[repr(transparent)]
pub struct Swip(AtomicU64);

impl Swip {
    /// A reference to a page that is on the device.
    pub(crate) fn cold(id: PageId) -> Swip {
        Swip(AtomicU64::new(SwipState::Cold(id).to_bits()))
    }

    /// Where the page is now. What a hot swip's page holds was written before.
    #[inline]
    pub fn state(&self) -> SwipState {
        SwipState::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Sets the state unconditionally: the right of whoever loads or evicts the page.
    pub(crate) fn set(&self, state: SwipState) {
        self.0.store(state.to_bits(), Ordering::Release);
    }

    /// Changes the state if it is still `from`.
    pub(crate) fn change(&self, from: SwipState, to: SwipState) -> bool {
        self.0
            .compare_exchange(from.to_bits(), to.to_bits(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl std::fmt::Debug for Swip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip() {
        let id = PageId::new(255, (1 << 47) * 4096 - 4096, 1 << 20);
        let page = NonNull::new(0x7fff_ffff_f000 as *mut u8).unwrap();
        for state in [SwipState::Cold(id), SwipState::Hot(page), SwipState::Loading(page)] {
            assert_eq!(SwipState::from_bits(state.to_bits()), state);
        }
    }

    #[test]
    fn change_succeeds_from_the_expected_state_only() {
        let id = PageId::new(0, 4096, 4096);
        let page = NonNull::new(0x1000 as *mut u8).unwrap();
        let swip = Swip::cold(id);
        assert!(!swip.change(SwipState::Hot(page), SwipState::Cold(id)));
        assert!(swip.change(SwipState::Cold(id), SwipState::Loading(page)));
        assert_eq!(swip.state(), SwipState::Loading(page));
    }
}
