//! Between Arrow's arrays and vectors: [`ArrowColumn`] is an array that vectors are loaded from, [`ColumnBuilder`]
//! gathers vectors into an array.

pub mod builder;
pub mod column;
mod dictionary;

pub use builder::ColumnBuilder;
pub use column::{ArrowColumn, Entries};

#[cfg(test)]
mod tests;
