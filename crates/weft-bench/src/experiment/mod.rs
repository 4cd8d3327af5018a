//! The experiments, one per file.

pub mod io;
pub mod lookup;
pub mod prefetch;
pub mod scan;
