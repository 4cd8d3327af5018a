//! Sorting: tuples are materialized, and pairs of a key's first bits and a tuple's address are sorted by all workers.
//!
//! Tuples whose first bits are the same are told apart by the next bits of their keys (`digit`), which take the place of the first
//! (`groups`): as few tuples as possible are looked at, and many at once.
//!
//! [`Order`] says how tuples compare, [`Sort`] and [`TopK`] are sinks that gather tuples, [`Sorted`] is what they
//! leave: a [`SortedTuples`] source gives it in its order.
//!
//! A worker whose tuples outgrow what it may have in memory (`gathering`) writes them to disk as a sorted `run`. When all have
//! ended (`external`), a `merge` of all runs, cut into `units` for all workers, gives the `rows` bit by bit.

mod area;
mod digit;
pub(crate) mod entries;
pub(crate) mod external;
pub mod gather;
mod gathering;
mod groups;
mod merge;
pub mod order;
mod radix;
pub(crate) mod rows;
mod run;
pub mod sorted;
pub mod top_k;
mod units;

pub use gather::Sort;
pub use order::{Order, SortKey};
pub use sorted::{Sorted, SortedTuples};
pub use top_k::TopK;

#[cfg(test)]
mod tests;
