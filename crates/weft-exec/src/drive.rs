//! One pipeline being run: by a task on each worker, which has an interpreter and a part of the sink.
//!
//! Where morsels wait for devices, many of them read ahead, a coroutine each, and hand their tuples to the worker's
//! interpreter, which takes them one after the other; else the interpreter asks for the tuples itself. A sink that has
//! enough stops the reading on all workers: their morsels are dropped where they wait, what is in an interpreter is
//! still finished. Cancellation, errors and panics drop everything.
//!
//! Steps may put tuples aside, for which they lack memory. When all workers have no more from the source, they serve those,
//! a step after the other in the program's order: what a step serves may be put aside again by later ones.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use weft_rt::cancel::CancelToken;
use weft_rt::sync::channel::{Receiver, bounded};
use weft_rt::{BATCH_DEPTH_MAX, Batch, Boundary};

use crate::barrier::Barrier;
use crate::compile::Tier;
use crate::error::{ExecError, Result};
use crate::interpret::{Advance, Interpreter};
use crate::pace::{Pace, TURN};
use crate::parallel::unless_cancelled;
use crate::pipeline::{Flow, LocalSink, Pipeline, Tuples};
use crate::profile::{PartName, Wait, note_wait, timed_in};
use crate::program::{Program, Step};
use crate::query::Context;
use crate::work::{Expected, Work};

/// Runs a pipeline, on a worker.
///
/// # Errors
/// The first that something in it has.
pub(crate) async fn drive(
    pipeline: Arc<Pipeline>,
    expected: Expected,
    context: &Context,
) -> Result<()> {
    if let Some(profile) = context.profile() {
        profile.begin();
    }
    let opening = context.of_part(PartName::Source);
    let open = of_part(PartName::Source, context, pipeline.source.open(&opening));
    unless_cancelled(open, &context.cancel).await?;
    let to_do = Work::new(&context.progress);
    to_do.announce(pipeline.source.tuples());
    context.progress.remove_total(expected.units);
    let enough = context.cancel.child();
    let mut program = pipeline.program.clone();
    let hybrids = make_hybrid(&mut program, context);
    let program = Arc::new(program);
    let handed_over = Barrier::new(context.workers);
    let reads = || pipeline.sink.reads();
    let tier = context.compiling.as_ref();
    let tier = tier.and_then(|compiling| Tier::new(compiling, &program, reads()));
    let run = Arc::new(Run {
        pipeline,
        program,
        hybrids,
        tier,
        handed_over,
        context: context.clone(),
        enough,
        to_do,
    });
    let for_workers = run.clone();
    let work = move |worker| {
        let run = for_workers.clone();
        async move { run.work(worker).await }
    };
    context.on_all_workers(work).await?;
    let finishing = context.of_part(PartName::Sink);
    let finish = of_part(PartName::Sink, context, run.pipeline.sink.finish(&finishing));
    unless_cancelled(finish, &context.cancel).await?;
    context.progress.add_done(expected.units_at_end);
    if let Some(profile) = context.profile() {
        if let Some(tier) = &run.tier {
            profile.note_compilation(tier.compilation());
        }
        profile.end(&run.pipeline, &run.program.steps);
    }
    if let Some(pipeline) = Arc::into_inner(run).and_then(|run| Arc::into_inner(run.pipeline)) {
        pipeline.source.close().await;
    }
    Ok(())
}

/// Waits for `future`, whose time is that of a part.
async fn of_part<T>(part: PartName, context: &Context, future: impl Future<Output = T>) -> T {
    match context.profile() {
        Some(profile) => profile.timing(part, future).await,
        None => future.await,
    }
}

/// Puts hybrid steps in place of those that will put tuples aside; gives their numbers.
fn make_hybrid(program: &mut Program, context: &Context) -> Vec<usize> {
    let mut hybrids = Vec::new();
    for (number, step) in program.steps.iter_mut().enumerate() {
        if let Step::Expand(expand) = step
            && let Some(hybrid) = expand.hybrid(&program.registers, context)
        {
            *expand = hybrid;
            hybrids.push(number);
        }
    }
    hybrids
}

/// What the workers share.
struct Run {
    pipeline: Arc<Pipeline>,
    program: Arc<Program>,
    /// Steps that put tuples aside.
    hybrids: Vec<usize>,
    /// Decides what is compiled, if anything is.
    tier: Option<Arc<Tier>>,
    /// Where workers wait until all have handed over what they have put aside.
    handed_over: Barrier,
    context: Context,
    /// Cancelled when the sink has enough.
    enough: CancelToken,
    /// How much there is to be done.
    to_do: Work,
}

impl Run {
    /// One worker's share.
    async fn work(&self, worker: usize) -> Result<()> {
        let sink = self.pipeline.sink.local(&self.context.of_part(PartName::Sink), worker)?;
        let interpreter = Interpreter::new(self.program.clone(), &self.context);
        let interpreter = interpreter.of_pipeline(&self.context).with_tier(self.tier.clone());
        let mut machine = Machine { run: self, interpreter, sink, pace: Pace::default() };
        let depth = self.pipeline.source.depth(&self.context);
        {
            let mut enough = pin!(self.enough.cancelled());
            let mut work = pin!(async {
                if depth <= 1 {
                    machine.run_morsels(worker).await
                } else {
                    machine.run_waiting_morsels(worker, depth.min(BATCH_DEPTH_MAX)).await
                }
            });
            let mut is_armed = false;
            poll_fn(|context| {
                // Leaves the waker with the token, whose flag is looked at wherever tuples are waited for.
                is_armed = is_armed || enough.as_mut().poll(context).is_pending();
                work.as_mut().poll(context)
            })
            .await?;
        }
        for step in &self.hybrids {
            self.to_do.announce(machine.interpreter.hand_over(*step).await?);
            self.handed_over.wait().await;
            machine.serve(*step).await?;
        }
        of_part(PartName::Sink, &self.context, machine.sink.end()).await
    }

    /// Waits for `future` unless the sink has enough.
    async fn unless_enough<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.enough.is_cancelled() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }
}

/// What tuples of a worker go through.
struct Machine<'a> {
    run: &'a Run,
    interpreter: Interpreter,
    sink: Box<dyn LocalSink>,
    pace: Pace,
}

impl Machine<'_> {
    /// Runs morsels one after the other.
    async fn run_morsels(&mut self, worker: usize) -> Result<()> {
        let run = self.run;
        while let Some(mut morsel) = run.pipeline.source.morsel(worker) {
            while let Some(tuples) = {
                let next = of_part(PartName::Source, &run.context, morsel.next());
                run.unless_enough(next).await.transpose()?.flatten()
            } {
                self.take(tuples).await?;
            }
            if run.enough.is_cancelled() {
                break;
            }
            self.pace.keep().await;
        }
        Ok(())
    }

    /// Has up to `depth` morsels read at once, and runs what they give.
    async fn run_waiting_morsels(&mut self, worker: usize, depth: usize) -> Result<()> {
        let run = self.run;
        let (sender, receiver) = bounded::<Box<dyn Tuples>>(1);
        let next = move || {
            let mut morsel = run.pipeline.source.morsel(worker)?;
            let sender = sender.clone();
            Some(async move {
                while let Some(tuples) = morsel.next().await? {
                    if sender.send(tuples).await.is_err() {
                        break;
                    }
                }
                Ok::<(), ExecError>(())
            })
        };
        let profile = run.context.profile();
        let share = || run.pipeline.source.share(&run.context);
        let mut reading = Some(Batch::new(depth, Boundary::Weak, next).at_most(share));
        let mut running = pin!(self.run_received(receiver));
        // Reading has just taken a turn of its own.
        let mut has_read = false;
        poll_fn(|context| {
            let is_read = std::mem::take(&mut has_read);
            if let Some(batch) = reading.as_mut().filter(|_| !is_read) {
                let began = Instant::now();
                let polled = Pin::new(batch).poll(context);
                let took = began.elapsed();
                if let Some(profile) = profile {
                    profile.note_part(PartName::Source, took);
                }
                match polled {
                    Poll::Ready(result) => {
                        // The last sender goes with it.
                        reading = None;
                        result?;
                    }
                    Poll::Pending => note_wait(Wait::Device, PartName::Source),
                }
                if took >= TURN {
                    has_read = true;
                    note_wait(Wait::Other, PartName::Source);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            let polled = running.as_mut().poll(context);
            if is_read && polled.is_pending() {
                // Some of those that read may be runnable.
                context.waker().wake_by_ref();
            }
            polled
        })
        .await
    }

    async fn run_received(&mut self, mut receiver: Receiver<Box<dyn Tuples>>) -> Result<()> {
        while let Some(tuples) = self.run.unless_enough(receiver.recv()).await.flatten() {
            self.take(tuples).await?;
        }
        Ok(())
    }

    /// Runs tuples through the program and into the sink, until there is enough.
    async fn take(&mut self, tuples: Box<dyn Tuples>) -> Result<()> {
        let (rows, mut start) = (tuples.rows(), 0);
        while start < rows && !self.run.enough.is_cancelled() {
            let count = self.run.context.vector_rows.min(rows - start);
            if let Some(prepared) = tuples.prepare(start, count) {
                of_part(PartName::Source, &self.run.context, prepared).await?;
            }
            let began = self.interpreter.meter().map(|_| Instant::now());
            self.interpreter.begin(count);
            let registers = self.interpreter.registers_mut();
            tuples.load(start, count, &self.run.program.inputs, registers)?;
            let loaded = registers.selection.count();
            if let (Some(meter), Some(began)) = (self.interpreter.meter(), began) {
                meter.loaded(loaded, began);
            }
            self.run_loaded().await?;
            self.run.to_do.advance(count as u64);
            if let Some(tier) = &self.run.tier {
                tier.note_left(self.run.to_do.left());
            }
            self.pace.keep().await;
            start += count;
        }
        if let Some(closing) = tuples.close() {
            closing.await;
        }
        Ok(())
    }

    /// Runs what was put aside at a step.
    async fn serve(&mut self, step: usize) -> Result<()> {
        while !self.run.enough.is_cancelled() && self.interpreter.serve(step).await? {
            let served = self.interpreter.registers().selection.count();
            self.run_loaded().await?;
            self.run.to_do.advance(served as u64);
            self.pace.keep().await;
        }
        Ok(())
    }

    /// Runs the tuples that were loaded, until there is enough.
    async fn run_loaded(&mut self) -> Result<()> {
        loop {
            match self.interpreter.advance_once()? {
                Advance::Ended => return Ok(()),
                Advance::Nothing if self.run.enough.is_cancelled() => return Ok(()),
                Advance::Nothing => {}
                Advance::Waits => self.interpreter.wait(&mut self.pace).await?,
                Advance::Tuples => {
                    if self.push().await? == Flow::Enough {
                        self.run.enough.cancel();
                        return Ok(());
                    }
                }
            }
            self.pace.keep().await;
        }
    }

    /// Hands the tuples in the registers to the sink.
    async fn push(&mut self) -> Result<Flow> {
        let Machine { interpreter, sink, .. } = self;
        let rows = interpreter.registers().selection.count();
        let part = interpreter.meter().map(|_| PartName::Sink);
        let (pushed, ran) = timed_in(part, sink.push(interpreter.registers_mut())).await;
        if let Some(meter) = interpreter.meter() {
            meter.pushed(rows, ran);
        }
        pushed
    }
}
