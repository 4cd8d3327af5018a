//! Steps that may make several tuples of one: the probe of a join, and whatever else finds any number of matches.
//!
//! The step itself ([`Expand`]) is shared by all workers. Each worker has an [`Expansion`] of it, which remembers how
//! far it got with the tuples at hand. The interpreter keeps those that have more on a stack, and comes back to the top
//! one when the steps after it and the sink are done with a batch.
//!
//! Where it takes long to make a batch, the step lets others run meanwhile.
//!
//! A step may put tuples aside that it cannot make anything of yet, and serve them when the pipeline's source has no more.

use std::fmt;
use std::sync::Arc;

use futures::future::LocalBoxFuture;

use crate::error::Result;
use crate::lane::Lane;
use crate::pace::Pace;
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;

/// A step that expands. It stands outside of any scope.
pub trait Expand: fmt::Debug + Send + Sync {
    /// Says that a pipeline has this step. Called for each of a query's, before any of them begins.
    fn announce(&self) {}

    /// A worker's state. Called when the pipelines that this one depends on have ended.
    fn expansion(&self, context: &Context) -> Box<dyn Expansion>;

    /// A step in place of this one, for one pipeline, that puts some tuples aside; `None` if there is no need to. Registers
    /// are of these `lanes`. Called when the pipelines that this one depends on have ended.
    fn hybrid(&self, _lanes: &[Lane], _context: &Context) -> Option<Arc<dyn Expand>> {
        None
    }

    /// The registers that it, or one that takes its place, reads; `None` if that may be any.
    fn reads(&self) -> Option<Vec<Register>> {
        None
    }

    /// What it has done, when the pipeline has ended.
    fn facts(&self) -> Facts {
        Facts::new()
    }
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

    /// True if it takes long to make a batch: in a pipeline, [`Expansion::begin_in_turns`] and [`Expansion::next_in_turns`] are
    /// awaited then.
    fn takes_long(&self) -> bool {
        false
    }

    /// [`Expansion::begin`], which lets others run meanwhile.
    ///
    /// # Errors
    /// As [`Expansion::begin`].
    fn begin_in_turns<'a>(
        &'a mut self,
        registers: &'a mut Registers,
        _pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(async { self.begin(registers) })
    }

    /// [`Expansion::next`], which lets others run meanwhile.
    ///
    /// # Errors
    /// As [`Expansion::next`].
    fn next_in_turns<'a>(
        &'a mut self,
        registers: &'a mut Registers,
        _pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(async { self.next(registers) })
    }

    /// True if some of the selected tuples are to be put aside: then [`Expansion::put_aside`] is awaited before
    /// [`Expansion::begin`], or [`Expansion::begin_in_turns`].
    fn puts_aside(&mut self, _registers: &Registers) -> bool {
        false
    }

    /// Puts tuples aside, which are not selected any more then.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn put_aside<'a>(
        &'a mut self,
        _registers: &'a mut Registers,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// No more tuples will come: hands over what was put aside, to be served by all workers when all have handed over theirs.
    /// Gives how many tuples that is.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn hand_over(&mut self) -> LocalBoxFuture<'_, Result<u64>> {
        Box::pin(async { Ok(0) })
    }

    /// Puts the next tuples that were put aside into registers, as they were before this step, which is to take them next;
    /// false if there are none left. The steps after this one are done with those before.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn serve<'a>(&'a mut self, _registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(false) })
    }
}
