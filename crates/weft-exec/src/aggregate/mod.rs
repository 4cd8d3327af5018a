//! Unified hash aggregation (Spilly, section 4.6), without GROUP BY and with it, for one group and for very many.
//!
//! Phase one: each worker aggregates what it gets into tuples, one per group, that lie on the pages of a
//! [`Materializer`](crate::tuple::Materializer) from the beginning, and finds them by a small hash table
//! (`preaggregate`, `table`). If a page is full, or the table is, that range of the table is forgotten; tuples stay where they
//! are, and a group may have several. Phase two, when the groups are asked for: a partition after the other, on all workers,
//! tuples of the same group are merged, each group exactly once (`merge`), and given to the next pipeline while they are in
//! the cache (`groups`). What was spilled comes back a partition at a time; one whose groups outgrow memory is partitioned
//! anew (`outgrown`). `gathered` and `unit` are what lies between the phases.
//!
//! - [`Aggregate`] and [`Function`] are what is asked for. `states` lays out a group's tuple: keys, then states, of which
//!   several aggregates may share one.
//! - States (`sum`, `count`, `fold`, `first`, `moments`, `shape`, `product`) are updated a column at a time: by a vector of groups' addresses, or,
//!   if there are few groups, group by group, with the rows of each gathered first (`clusters`), so that sums stay in
//!   processor registers.
//! - Groups of keys with few values, which come from dictionaries or are integers, are found by these values themselves (`direct`).
//! - What outgrows a tuple lies in the operator's `memory`: kept strings, all values of a group (`list`), DISTINCT values
//!   (`distinct`), sketches (`approximate`). When a group is spilled it goes along, in pieces (`list_pieces`, `set_pieces`).
//!
//! A result that is made of all values of a group may take long for one group alone: it is made before the groups are loaded then, in
//! turns (`turns`, `Outcome::write_in_turns`).
//!
//! GROUPING SETS: the sink stores each row once for each of its [`Keys`]. Whoever makes the plan fills keys that are not in a
//! set with nulls, and adds a key that is the set's number ([`Step::Fill`](crate::program::Step::Fill)).

mod approximate;
mod builder;
mod clusters;
mod collected;
mod count;
mod direct;
mod distinct;
mod external;
mod first;
mod fold;
mod found;
mod functions;
mod gathered;
mod groups;
mod kept;
mod keys;
mod list;
mod list_pieces;
mod masked;
mod memory;
mod merge;
mod moments;
mod no_groups;
mod operator;
mod outgrown;
mod preaggregate;
mod product;
mod quantile;
mod set_pieces;
mod shape;
mod state;
mod states;
mod sum;
mod table;
mod turns;
mod unit;
mod units;

pub(crate) use fold::Ordered;
pub use functions::{Aggregate, External, Function, Group, Moment};
pub use groups::Output;
pub(crate) use moments::Pairs;
pub use operator::{Aggregation, Keys};
pub use product::Product;
pub use quantile::{Quantile, between};
pub use shape::Shape;
pub(crate) use sum::{Number, Summand, average, overflow};
