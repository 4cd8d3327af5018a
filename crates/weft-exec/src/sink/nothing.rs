//! The end of a pipeline whose steps have done all there is to do, such as marking what a join has matched.

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::error::Result;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::query::Context;
use crate::registers::Registers;

/// Forgets all tuples.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Sink for Nothing {
    fn local(&self, _: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        Ok(Box::new(Nothing))
    }
}

impl LocalSink for Nothing {
    fn push<'a>(&'a mut self, _: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async { Ok(Flow::More) }.boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        async { Ok(()) }.boxed_local()
    }
}
