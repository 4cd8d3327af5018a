//! Pipelines: a source, a program, a sink; and what the three ask of each other.
//!
//! Everything here is called once per vector or less often, so trait objects and boxed futures cost nothing that could
//! be measured. Whatever runs per tuple is behind them.

use std::fmt;

use futures::future::{BoxFuture, LocalBoxFuture};

use crate::compile::ProbeShape;
use crate::error::Result;
use crate::profile::Facts;
use crate::program::{Program, Register};
use crate::query::Context;
use crate::registers::Registers;

/// Where tuples come from.
pub trait Source: fmt::Debug + Send + Sync {
    /// Makes ready whatever morsels need: nothing, unless the source says otherwise. Called once, on a worker, before
    /// any morsel is asked for, when the pipelines that this one depends on have ended.
    ///
    /// # Errors
    /// Whatever keeps the source from being read.
    fn open<'a>(&'a self, _context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Tuples that its morsels have, if that is known when it is open, about; 0 if it counts by itself how much is done.
    fn tuples(&self) -> u64 {
        0
    }

    /// What it will announce when it is opened, in units of the statement's progress, as far as that is known before.
    fn units(&self) -> u64 {
        0
    }

    /// What it has done, when the pipeline has ended.
    fn facts(&self) -> Facts {
        Facts::new()
    }

    /// What the code depends on that looks its tuples up in an index, if it does so.
    fn probe(&self) -> Option<ProbeShape> {
        None
    }

    /// Gives back what it has when the pipeline has ended well: for what takes long to drop, bit by bit. On a worker.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(()))
    }

    /// The next morsel for a worker; `None` when none is left for it.
    fn morsel(&self, worker: usize) -> Option<Box<dyn Morsel>>;

    /// Morsel coroutines that a worker should keep going: 1 if morsels do not wait for devices.
    fn depth(&self, _context: &Context) -> usize {
        1
    }

    /// How many morsels a worker may have now, so that others get theirs. Looked at before each is asked for, but the first.
    fn share(&self, _context: &Context) -> usize {
        usize::MAX
    }
}

/// A morsel being read. Lives and dies on one worker.
pub trait Morsel {
    /// The next tuples, any number of them; `None` after the last. Many morsels of a worker may wait here at once.
    ///
    /// # Errors
    /// What went wrong with reading them.
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>>;
}

/// Tuples in memory that a pipeline can take vector by vector.
pub trait Tuples {
    /// How many.
    fn rows(&self) -> usize;

    /// What takes long of loading `rows` of them from `start` on, if anything does: to be done just before, in turns.
    fn prepare(&self, _start: usize, _rows: usize) -> Option<LocalBoxFuture<'_, Result<()>>> {
        None
    }

    /// Puts `rows` of them from `start` on into `registers`, a column each into `inputs`. [`Registers::begin`] was
    /// called; the tuples outlive what is loaded. Some may be there only to keep their place: they are not selected then.
    ///
    /// # Errors
    /// If they are not what the registers hold.
    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()>;

    /// Gives back what they lie in, when all have been loaded: in turns, if it takes long.
    fn close(self: Box<Self>) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }
}

/// Whether a sink wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    More,
    /// The rest is not needed: the pipeline ends, successfully.
    Enough,
}

/// Where tuples go: a pipeline breaker, or the query's result.
pub trait Sink: fmt::Debug + Send + Sync {
    /// A worker's own part, made on that worker.
    ///
    /// # Errors
    /// If there is no memory for it.
    fn local(&self, context: &Context, worker: usize) -> Result<Box<dyn LocalSink>>;

    /// The registers that it reads; `None` if that may be any.
    fn reads(&self) -> Option<Vec<Register>> {
        None
    }

    /// True if it keeps tuples until it has all of them: it needs memory, and may spill.
    fn keeps_tuples(&self) -> bool {
        false
    }

    /// What it has done, when the pipeline has ended.
    fn facts(&self) -> Facts {
        Facts::new()
    }

    /// Called once, on a worker, when all workers' parts have ended: what the operator does between its two phases,
    /// in parallel by pipelines of its own ([`Context::run_morsels`]). Nothing, unless the sink says otherwise.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn finish<'a>(&'a self, _context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// A worker's part of a sink. One morsel coroutine at a time uses it.
pub trait LocalSink: Send {
    /// Takes the tuples that are selected. May wait, for memory or for whoever takes results.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>>;

    /// The worker has no more tuples: hands over what it has gathered.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>>;
}

/// A pipeline of a query.
#[derive(Debug)]
pub struct Pipeline {
    /// Where tuples come from.
    pub source: Box<dyn Source>,
    /// What is done to them.
    pub program: Program,
    /// Where they go.
    pub sink: Box<dyn Sink>,
    /// Pipelines, by their number in the query, that must have ended before this one begins.
    pub after: Vec<usize>,
}
