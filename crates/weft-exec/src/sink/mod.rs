//! Sinks of all kinds of queries: the result, what limits it, what several pipelines share or read again.

pub mod limit;
pub mod nothing;
pub mod output;
pub mod shared;
pub mod store;

pub use limit::Limit;
pub use nothing::Nothing;
pub use output::{Output, ResultStream, Results};
pub use shared::Shared;
pub use store::{Store, Stored};
