//! Sinks that are no pipeline breakers: the query's result, what limits it, and what several pipelines share.

pub mod limit;
pub mod nothing;
pub mod output;
pub mod shared;

pub use limit::Limit;
pub use nothing::Nothing;
pub use output::{Output, ResultStream, Results};
pub use shared::Shared;
