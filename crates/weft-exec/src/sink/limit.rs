//! LIMIT and OFFSET: lets some of the tuples through to another sink, then ends the pipeline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use crate::error::Result;
use crate::pipeline::{Flow, LocalSink, Sink};
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;

/// A sink that gets so many tuples and no more, whichever come first: in the order of the source if that has one.
#[derive(Debug)]
pub struct Limit {
    inner: Box<dyn Sink>,
    places: Arc<Places>,
}

#[derive(Debug)]
struct Places {
    skip: u64,
    end: u64,
    /// Tuples seen.
    seen: AtomicU64,
}

impl Limit {
    /// Leaves out `skip` tuples and lets the next `fetch` through to `inner`, all of them if it is `None`.
    pub fn new(inner: Box<dyn Sink>, skip: u64, fetch: Option<u64>) -> Limit {
        let end = fetch.map_or(u64::MAX, |fetch| skip.saturating_add(fetch));
        Limit { inner, places: Arc::new(Places { skip, end, seen: AtomicU64::new(0) }) }
    }
}

impl Sink for Limit {
    fn reads(&self) -> Option<Vec<Register>> {
        self.inner.reads()
    }

    fn keeps_tuples(&self) -> bool {
        self.inner.keeps_tuples()
    }

    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn local(&self, context: &Context, worker: usize) -> Result<Box<dyn LocalSink>> {
        let inner = self.inner.local(context, worker)?;
        Ok(Box::new(LocalLimit { inner, places: self.places.clone() }))
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        self.inner.finish(context)
    }
}

struct LocalLimit {
    inner: Box<dyn LocalSink>,
    places: Arc<Places>,
}

impl LocalSink for LocalLimit {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async {
            let Places { skip, end, seen } = &*self.places;
            let count = registers.selection.count() as u64;
            let first = seen.fetch_add(count, Ordering::Relaxed);
            let mut place = first;
            registers.selection.retain(|_| {
                let keep = (*skip..*end).contains(&place);
                place += 1;
                keep
            });
            if registers.selection.count() > 0 && self.inner.push(registers).await? == Flow::Enough
            {
                return Ok(Flow::Enough);
            }
            Ok(if first.saturating_add(count) >= *end { Flow::Enough } else { Flow::More })
        }
        .boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        self.inner.end()
    }
}
