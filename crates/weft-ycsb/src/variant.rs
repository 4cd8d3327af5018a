//! The variants of the paper, and the mixes of operations.

use weft_rt::Boundary;
use weft_txn::Batching;

/// How transactions wait for memory, and how many of them a worker runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One transaction at a time, without prefetching.
    Naive,
    /// One transaction at a time; what is about to be touched is prefetched.
    Ermia,
    /// One transaction at a time, whose keys are looked up together by a state machine written by hand.
    AmacMk,
    /// One transaction at a time, whose keys are looked up together by coroutines.
    CoroMk,
    /// As [`Variant::CoroMk`], with a box for each nested coroutine.
    CoroFnMk,
    /// A batch of transactions; each nested coroutine is a box of its own.
    CoroBaseFn,
    /// A batch of transactions, which suspend while memory comes.
    CoroBase,
    /// As [`Variant::CoroBase`]; the next batch begins when all of one have ended (CoroBase's Algorithm 1).
    CoroBaseHard,
}

impl Variant {
    /// All of them, in the order of the paper.
    pub const ALL: [Variant; 8] = [
        Variant::Naive,
        Variant::Ermia,
        Variant::AmacMk,
        Variant::CoroMk,
        Variant::CoroFnMk,
        Variant::CoroBaseFn,
        Variant::CoroBase,
        Variant::CoroBaseHard,
    ];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Naive => "naive",
            Variant::Ermia => "ermia",
            Variant::AmacMk => "amac-mk",
            Variant::CoroMk => "coro-mk",
            Variant::CoroFnMk => "coro-fn-mk",
            Variant::CoroBaseFn => "corobase-fn",
            Variant::CoroBase => "corobase",
            Variant::CoroBaseHard => "corobase-hard",
        }
    }

    /// The variant of a name.
    pub fn named(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// True if a worker runs one transaction at a time.
    pub fn is_sequential(self) -> bool {
        !matches!(self, Variant::CoroBaseFn | Variant::CoroBase | Variant::CoroBaseHard)
    }

    /// How the keys of a transaction are looked up.
    pub(crate) fn lookups(self) -> Lookups {
        match self {
            Variant::AmacMk => Lookups::ByStateMachine,
            Variant::CoroMk | Variant::CoroFnMk => Lookups::ByCoroutines,
            _ => Lookups::OneByOne,
        }
    }

    /// How a worker runs transactions that may be `depth` at a time.
    pub(crate) fn batching(self, depth: usize) -> Batching {
        let depth = if self.is_sequential() { 1 } else { depth };
        let is_hard = self == Variant::CoroBaseHard;
        Batching { depth, boundary: if is_hard { Boundary::Hard } else { Boundary::Weak } }
    }
}

/// How the keys of a transaction are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookups {
    OneByOne,
    ByStateMachine,
    ByCoroutines,
}

/// The operations of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Reads of rows.
    Read,
    /// Updates of rows.
    Update,
    /// Reads of rows, each followed by an update of the row.
    Rmw,
    /// Two read-modify-writes, and reads.
    Mixed,
    /// Insertions of new rows.
    Insert,
    /// A scan of as many rows as there are operations.
    Scan,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 6] = [
        Workload::Read,
        Workload::Update,
        Workload::Rmw,
        Workload::Mixed,
        Workload::Insert,
        Workload::Scan,
    ];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Read => "read",
            Workload::Update => "update",
            Workload::Rmw => "rmw",
            Workload::Mixed => "mixed",
            Workload::Insert => "insert",
            Workload::Scan => "scan",
        }
    }

    /// The workload of a name.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Rows that a transaction of so many operations updates.
    pub(crate) fn updates(self, operations: usize) -> usize {
        match self {
            Workload::Update | Workload::Rmw => operations,
            Workload::Mixed => operations.min(2),
            Workload::Read | Workload::Insert | Workload::Scan => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for variant in Variant::ALL {
            assert_eq!(Variant::named(variant.name()), Some(variant));
        }
        for workload in Workload::ALL {
            assert_eq!(Workload::named(workload.name()), Some(workload));
        }
        assert_eq!((Variant::named("read"), Workload::named("naive")), (None, None));
    }
}
