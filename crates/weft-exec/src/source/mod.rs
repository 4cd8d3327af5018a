//! Sources: where a pipeline's tuples come from.

pub mod asked;
pub mod batches;
pub mod index_join;
pub(crate) mod locality;
pub mod stream;
pub mod table;
pub mod tuples;

pub use asked::{AskedBounds, AskedColumn};
pub use batches::Batches;
pub use index_join::{IndexJoin, IndexJoinKind, OUTER_TUPLES, OuterKeys};
pub use stream::BatchStreams;
pub use table::TableScan;
pub use tuples::StoredTuples;
