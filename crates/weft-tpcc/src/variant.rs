//! The variants of the paper, and the mixes of transactions.

use weft_rt::Boundary;
use weft_txn::Batching;

use crate::inputs::Kind;

/// How transactions wait for memory, and how many of them a worker runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One transaction at a time, without prefetching.
    Naive,
    /// One transaction at a time; what is about to be touched is prefetched.
    Ermia,
    /// As [`Variant::Ermia`]; New-Order, Stock-Level and Q2* look many keys up at a time.
    CoroMk,
    /// A batch of transactions; each nested coroutine is a box of its own.
    CoroBaseFn,
    /// A batch of transactions, which suspend while memory comes.
    CoroBase,
    /// As [`Variant::CoroBase`]; the next batch begins when all of one have ended (CoroBase's Algorithm 1).
    CoroBaseHard,
    /// As [`Variant::CoroBase`]; New-Order, Stock-Level and Q2* look many keys up at a time.
    Hybrid,
}

impl Variant {
    /// All of them, in the order of the paper.
    pub const ALL: [Variant; 7] = [
        Variant::Naive,
        Variant::Ermia,
        Variant::CoroMk,
        Variant::CoroBaseFn,
        Variant::CoroBase,
        Variant::CoroBaseHard,
        Variant::Hybrid,
    ];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Naive => "naive",
            Variant::Ermia => "ermia",
            Variant::CoroMk => "coro-mk",
            Variant::CoroBaseFn => "corobase-fn",
            Variant::CoroBase => "corobase",
            Variant::CoroBaseHard => "corobase-hard",
            Variant::Hybrid => "hybrid",
        }
    }

    /// The variant of a name.
    pub fn named(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// True if a worker runs one transaction at a time.
    pub fn is_sequential(self) -> bool {
        matches!(self, Variant::Naive | Variant::Ermia | Variant::CoroMk)
    }

    /// True if the transactions that the paper names look many keys up at a time.
    pub(crate) fn is_multi_key(self) -> bool {
        matches!(self, Variant::CoroMk | Variant::Hybrid)
    }

    /// How a worker runs transactions that may be `depth` at a time.
    pub(crate) fn batching(self, depth: usize) -> Batching {
        let depth = if self.is_sequential() { 1 } else { depth };
        let is_hard = self == Variant::CoroBaseHard;
        Batching { depth, boundary: if is_hard { Boundary::Hard } else { Boundary::Weak } }
    }
}

/// A mix of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The standard mix.
    Tpcc,
    /// Order-Status and Stock-Level in halves.
    Tpccr,
    /// TPC-C with a tenth of Q2*.
    Tpcch,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 3] = [Workload::Tpcc, Workload::Tpccr, Workload::Tpcch];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Tpcc => "tpcc",
            Workload::Tpccr => "tpccr",
            Workload::Tpcch => "tpcch",
        }
    }

    /// The workload of a name.
    pub fn named(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Percent of each kind of transaction.
    pub(crate) fn mix(self) -> &'static [(Kind, u32)] {
        match self {
            Workload::Tpcc => &[
                (Kind::NewOrder, 45),
                (Kind::Payment, 43),
                (Kind::OrderStatus, 4),
                (Kind::Delivery, 4),
                (Kind::StockLevel, 4),
            ],
            Workload::Tpccr => &[(Kind::OrderStatus, 50), (Kind::StockLevel, 50)],
            Workload::Tpcch => &[
                (Kind::NewOrder, 40),
                (Kind::Payment, 38),
                (Kind::OrderStatus, 4),
                (Kind::Delivery, 4),
                (Kind::StockLevel, 4),
                (Kind::Query2, 10),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_whole_and_names_are_found_again() {
        for workload in Workload::ALL {
            assert_eq!(workload.mix().iter().map(|(_, percent)| percent).sum::<u32>(), 100);
            assert_eq!(Workload::named(workload.name()), Some(workload));
        }
        for variant in Variant::ALL {
            assert_eq!(Variant::named(variant.name()), Some(variant));
        }
        assert_eq!((Variant::named("tpcc"), Workload::named("naive")), (None, None));
    }
}
