//! Memory that is held back from everybody, for who frees some by what it does and cannot go on with less, and for who has next to
//! nothing.

use super::{Ledger, Reservation};

impl Ledger {
    /// Holds `bytes` of the budget back, though no more than a quarter of it for all who ask, for one that frees memory by what it does,
    /// and has to go on when others have taken all the rest: only [`HeldBack::try_reserve`] gives them, and a little of them
    /// [`Ledger::try_reserve_little`]. Who waits for memory gets none of them, either, as long as anything is reserved.
    pub fn hold_back(&self, bytes: u64) -> HeldBack {
        self.account.hold_back(bytes);
        HeldBack { ledger: self.clone(), bytes }
    }

    /// As [`Ledger::try_reserve`], of what is held back for others if nothing else is free, whoever waits and whatever the heap has. For one
    /// that has next to nothing, wants no more than that, and whose owner may hold what others wait for.
    pub fn try_reserve_little(&self, bytes: u64) -> Option<Reservation> {
        self.account.try_take_held_back(bytes).then(|| self.reservation(bytes))
    }
}

/// Bytes of the budget that are held back as long as this is; see [`Ledger::hold_back`].
#[derive(Debug)]
pub struct HeldBack {
    ledger: Ledger,
    bytes: u64,
}

impl HeldBack {
    /// A reservation of nothing, to grow.
    pub fn empty(&self) -> Reservation {
        self.ledger.empty()
    }

    /// As [`Ledger::try_reserve`], of what is held back if nothing else is free, whoever waits and whatever the heap has. Nobody checks that it is no more than
    /// was held back: that is the owner's part.
    pub fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        self.ledger.try_reserve_little(bytes)
    }

    /// True if more is reserved than everybody may take, so that some of it is of what is held back, here or elsewhere.
    pub fn is_in_use(&self) -> bool {
        self.ledger.account.uses_held_back()
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.ledger.account.let_go(self.bytes);
    }
}
