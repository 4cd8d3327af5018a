//! Indexes: B+trees on pages of the buffer pool, in which every wait is a suspension point.
//!
//! [`KeyEncoder`] makes byte strings of rows that sort as the rows do. A [`Tree`] keeps them with the ids of
//! their rows: it may be larger than memory, its readers take no latch, and what is written of it is never
//! changed in place ([`Tree::flush`], [`Tree::open`]). [`BulkLoad`] makes one of sorted rows.

mod error;
#[cfg(any(feature = "fuzzing", test))]
pub mod fuzzing;
pub mod key;
mod node;
mod tree;

pub use error::IndexError;
pub use key::{IncludedEncoder, KeyColumn, KeyEncoder, Keys, after_prefix};
pub use tree::directory::Flushed;
pub use tree::load::BulkLoad;
pub use tree::mode::{Boxed, Coroutines, Interleaved, Mode, Naive, Prefetching};
pub use tree::places::Space;
pub use tree::prefix_round::{NO_ROW, PrefixFound, PrefixRound, RoundFound};
pub use tree::prefixes::{EntryBytes, PrefixCursor};
pub use tree::range::{Direction, Entry, Range};
pub use tree::resident::Resident;
pub use tree::rows::RangeRows;
pub use tree::{NODE_BYTES, Tree, TreeForm};
