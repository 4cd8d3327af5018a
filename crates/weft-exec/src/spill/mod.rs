//! What operators that spill have in common (Spilly, sections 4.2, 4.3 and 5.3).
//!
//! [`Spilling`] is one for all queries of a database: the area on disk, and how much memory each operator may have
//! (`share`), if it is their statement's `turn`. The workers of an operator agree by a bitmask on which partitions are packed for the
//! disk (`mask`). A worker writes what goes there by a `writer`, a bounded number of pages at a time, compressed if its
//! `regulator` says so, unless pages are `retained` in memory while that is ample, and reads it back, ahead of its use, by a `reader`; such a
//! page is `frozen`: no byte of it refers to an address. `any_page` is for who goes through tuples wherever they lie, `fan` says
//! how many partitions there is memory for, and some memory is `assured` whatever others have. Who decides when something is written
//! is [`Materializer`](crate::tuple::Materializer), or a sort, whose tuples go to disk as runs ([`sort`](crate::sort)). Operators of
//! another engine may spill to the same area, compressed as a [`Regulator`] of theirs says.

pub(crate) mod any_page;
mod assured;
mod counts;
pub(crate) mod fan;
pub(crate) mod frozen;
pub(crate) mod mask;
mod mode;
pub(crate) mod reader;
mod regulator;
mod retained;
mod share;
mod turn;
pub(crate) mod writer;

pub(crate) use assured::{Assured, OfAssured};
pub use counts::{SpillCounts, sum};
pub use mode::SpillMode;
pub use regulator::{PageCosts, Regulator, SpillCompression};
pub(crate) use share::{Settled, Share};
pub use share::{SpillOptions, Spilling};
pub use turn::Turn;
pub(crate) use turn::WITHOUT_BYTES;
pub use weft_store::spill::{LEVELS, Levels, level_name};
