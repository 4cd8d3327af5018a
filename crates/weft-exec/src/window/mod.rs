//! Window functions: rows are sorted by partition and order ([`Sort`](crate::sort::Sort)), and each function is
//! evaluated partition by partition, a vector's worth after the other.
//!
//! [`WindowRows`] is the source of the sorted rows and of the functions' results. When it is opened, all workers find
//! where partitions and peers begin (`starts`); morsels are ranges of whole partitions, many small ones or a large one.
//! Of a morsel, arguments are gathered from tuples into columns (`column`), and each [`Function`] writes a column of
//! results: `ranks` says where a row is, `shifts` gives the argument of another row, `aggregates` goes through
//! frames (`frames`) with what is `held` of them, or what is `foreign`; of frames that leave rows out (`exclusion`), with what
//! is kept before those and behind them (`excluded`). What is neither gets whole partitions as arrays.
//!
//! If the sort has spilled, rows come bit by bit (`stream`): partitions may be too large for memory then (`large`), and
//! are evaluated block by block.

mod aggregates;
mod column;
mod excluded;
mod exclusion;
mod folds;
mod foreign;
mod frames;
mod functions;
mod held;
mod large;
mod morsel;
mod pieces;
mod ranks;
mod shifts;
mod sorted_rows;
mod source;
mod starts;
mod stream;

pub use exclusion::Exclusion;
pub use frames::{Bound, Distance, Frame, RangeKey};
pub use functions::{Accumulator, Aggregate, Foreign, Function, Given, Kind, Partitionwise, Shift};
pub use source::WindowRows;
