//! One sink for several pipelines: the branches of a UNION ALL, or what a join matches and what it leaves over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Result;
use crate::pipeline::{LocalSink, Sink};
use crate::profile::Facts;
use crate::query::Context;

/// A pipeline's share of a sink, which ends when the last of the pipelines does.
#[derive(Debug)]
pub struct Shared {
    sink: Arc<dyn Sink>,
    /// Pipelines that have not ended.
    left: Arc<AtomicUsize>,
}

impl Shared {
    /// The shares of so many pipelines, all of which have what the sink needs in the same registers.
    pub fn split(sink: Box<dyn Sink>, pipelines: usize) -> Vec<Box<dyn Sink>> {
        if pipelines == 1 {
            return vec![sink];
        }
        let (sink, left) = (Arc::from(sink), Arc::new(AtomicUsize::new(pipelines)));
        let share = |_| Box::new(Shared { sink: Arc::clone(&sink), left: left.clone() }) as _;
        (0..pipelines).map(share).collect()
    }
}

impl Sink for Shared {
    fn local(&self, context: &Context, worker: usize) -> Result<Box<dyn LocalSink>> {
        self.sink.local(context, worker)
    }

    fn facts(&self) -> Facts {
        // They are of all pipelines.
        let is_last = self.left.load(Ordering::Relaxed) == 0;
        if is_last { self.sink.facts() } else { Facts::new() }
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            // What the others have gathered is seen by the last one.
            match self.left.fetch_sub(1, Ordering::AcqRel) {
                1 => self.sink.finish(context).await,
                _ => Ok(()),
            }
        }
        .boxed()
    }
}
