//! Steps that may make several tuples of one: the probe of a join, and whatever else finds any number of matches.
//!
//! The step itself ([`Expand`]) is shared by all workers. Each worker has an [`Expansion`] of it, which remembers how
//! far it got with the tuples at hand. The interpreter keeps those that have more on a stack, and comes back to the top
//! one when the steps after it and the sink are done with a batch.

use std::fmt;

use crate::error::Result;
use crate::query::Context;
use crate::registers::Registers;

/// A step that expands. It stands outside of any scope.
pub trait Expand: fmt::Debug + Send + Sync {
    /// A worker's state. Called when the pipelines that this one depends on have ended.
    fn expansion(&self, context: &Context) -> Box<dyn Expansion>;
}

/// A worker's state of a step that expands.
pub trait Expansion: Send {
    /// Takes the tuples that are selected, and makes the first batch of what becomes of them: either in their places,
    /// by narrowing the selection; or as tuples of their own, after [`Registers::set_rows`]. Registers that the later
    /// batches are made of must not be written to. Returns whether [`Expansion::next`] has more.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn begin(&mut self, registers: &mut Registers) -> Result<bool>;

    /// Makes the next batch of the tuples that [`Expansion::begin`] took, as tuples of their own. Everything that the
    /// steps after this one have written means nothing any more. Returns whether there are more.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn next(&mut self, registers: &mut Registers) -> Result<bool>;
}
