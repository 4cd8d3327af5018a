//! Sources that wait and fail when they are told to, sinks that remember, and contexts to run them in.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_exec::pipeline::{Flow, LocalSink, Morsel, Pipeline, Sink, Source, Tuples};
use weft_exec::program::{Program, Register};
use weft_exec::query::{Context, Query};
use weft_exec::registers::Registers;
use weft_exec::{ExecError, Lane, Result};
use weft_rt::io::DriverKind;
use weft_rt::memory::{Ledger, Reservation};
use weft_rt::{MorselQueue, Runtime, RuntimeOptions, sleep, yield_now};

/// A runtime without devices.
pub(crate) fn runtime(workers: usize) -> Arc<Runtime> {
    let driver = DriverKind::Blocking;
    let options = RuntimeOptions { workers, driver, ..RuntimeOptions::default() };
    Arc::new(Runtime::new(&options).unwrap())
}

/// Random numbers from a seed that a test shows when it fails.
pub(crate) fn random() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// Cancels a query after a while, on a thread of its own.
pub(crate) fn cancel_after(context: &Context, wait: Duration) -> JoinHandle<()> {
    let cancel = context.cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        cancel.cancel();
    })
}

/// Vector sizes and workers that everything is tried with.
pub(crate) fn contexts() -> Vec<Context> {
    let mut contexts = Vec::new();
    for workers in [1, 2, 8] {
        let runtime = runtime(workers);
        for vector_rows in [1, 7, 2048] {
            let mut context = Context::new(runtime.clone(), Ledger::new(64 << 20));
            context.vector_rows = vector_rows;
            contexts.push(context);
        }
    }
    contexts
}

/// Where and how something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    Error,
    Panic,
}

/// The phases of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Next,
    Load,
    Local,
    Push,
    End,
    Finish,
}

pub(crate) const PHASES: [Phase; 7] =
    [Phase::Open, Phase::Next, Phase::Load, Phase::Local, Phase::Push, Phase::End, Phase::Finish];

/// Something that goes wrong in a phase, when it was gone through so often.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) at: Option<(Phase, Mishap, usize)>,
    seen: AtomicUsize,
}

impl Trouble {
    pub(crate) fn new(phase: Phase, mishap: Mishap, after: usize) -> Arc<Trouble> {
        Arc::new(Trouble { at: Some((phase, mishap, after)), seen: AtomicUsize::new(0) })
    }

    fn pass(&self, phase: Phase) -> Result<()> {
        let Some((at, mishap, after)) = self.at.filter(|at| at.0 == phase) else { return Ok(()) };
        if self.seen.fetch_add(1, Ordering::Relaxed) < after {
            return Ok(());
        }
        assert!(mishap != Mishap::Panic, "trouble in {at:?}");
        Err(ExecError::Function(format!("trouble in {at:?}").into()))
    }
}

/// How a morsel waits for its tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    No,
    Yields,
    Sleeps,
    Forever,
}

/// The numbers `0..rows`, some to a morsel, each morsel in pieces of 1,000.
#[derive(Debug)]
pub(crate) struct Numbers {
    queue: MorselQueue,
    waits: Waits,
    depth: usize,
    trouble: Arc<Trouble>,
}

impl Numbers {
    pub(crate) fn new(rows: u64, morsel_rows: u64) -> Numbers {
        let queue = MorselQueue::new(rows, morsel_rows);
        Numbers { queue, waits: Waits::No, depth: 1, trouble: Arc::default() }
    }

    pub(crate) fn waits(self, waits: Waits, depth: usize) -> Numbers {
        Numbers { waits, depth, ..self }
    }

    pub(crate) fn trouble(self, trouble: &Arc<Trouble>) -> Numbers {
        Numbers { trouble: trouble.clone(), ..self }
    }
}

impl Source for Numbers {
    fn open<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<()>> {
        async { self.trouble.pass(Phase::Open) }.boxed()
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let range = self.queue.next()?;
        let (at, end, waits, trouble) = (range.start, range.end, self.waits, self.trouble.clone());
        Some(Box::new(NumberMorsel { at, end, waits, trouble }))
    }

    fn depth(&self, _: &Context) -> usize {
        self.depth
    }
}

struct NumberMorsel {
    at: u64,
    end: u64,
    waits: Waits,
    trouble: Arc<Trouble>,
}

impl Morsel for NumberMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        async {
            match self.waits {
                Waits::No => {}
                Waits::Yields => yield_now().await,
                Waits::Sleeps => sleep(Duration::from_micros(fastrand::u64(1..200))).await,
                Waits::Forever => std::future::pending().await,
            }
            self.trouble.pass(Phase::Next)?;
            if self.at == self.end {
                return Ok(None);
            }
            let end = self.end.min(self.at + 1000);
            let start = std::mem::replace(&mut self.at, end);
            let trouble = self.trouble.clone();
            Ok(Some(Box::new(NumberTuples { start, end, trouble }) as Box<dyn Tuples>))
        }
        .boxed_local()
    }
}

struct NumberTuples {
    start: u64,
    end: u64,
    trouble: Arc<Trouble>,
}

impl Tuples for NumberTuples {
    fn rows(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        self.trouble.pass(Phase::Load)?;
        let values = registers.vector_mut(inputs[0]).values_mut::<u64>();
        for (row, value) in values[..rows].iter_mut().enumerate() {
            *value = self.start + (start + row) as u64;
        }
        Ok(())
    }
}

/// What a [`Collect`] has seen.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) numbers: Mutex<Vec<u64>>,
    pub(crate) locals: AtomicUsize,
    pub(crate) ends: AtomicUsize,
    pub(crate) finishes: AtomicUsize,
}

/// Remembers numbers, and says that it has enough after some.
#[derive(Debug)]
pub(crate) struct Collect {
    pub(crate) collected: Arc<Collected>,
    enough: usize,
    waits: bool,
    trouble: Arc<Trouble>,
}

impl Collect {
    pub(crate) fn new() -> Collect {
        Collect {
            collected: Arc::default(),
            enough: usize::MAX,
            waits: false,
            trouble: Arc::default(),
        }
    }

    pub(crate) fn enough(self, enough: usize) -> Collect {
        Collect { enough, ..self }
    }

    pub(crate) fn waits(self) -> Collect {
        Collect { waits: true, ..self }
    }

    pub(crate) fn trouble(self, trouble: &Arc<Trouble>) -> Collect {
        Collect { trouble: trouble.clone(), ..self }
    }
}

impl Sink for Collect {
    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        self.collected.locals.fetch_add(1, Ordering::Relaxed);
        self.trouble.pass(Phase::Local)?;
        Ok(Box::new(LocalCollect {
            collected: self.collected.clone(),
            numbers: Vec::new(),
            memory: context.ledger.try_reserve(1000).expect("memory"),
            enough: self.enough,
            waits: self.waits,
            trouble: self.trouble.clone(),
        }))
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        async {
            assert_eq!(
                self.collected.ends.load(Ordering::Relaxed),
                context.workers,
                "all have ended"
            );
            self.collected.finishes.fetch_add(1, Ordering::Relaxed);
            self.trouble.pass(Phase::Finish)
        }
        .boxed()
    }
}

struct LocalCollect {
    collected: Arc<Collected>,
    numbers: Vec<u64>,
    memory: Reservation,
    enough: usize,
    waits: bool,
    trouble: Arc<Trouble>,
}

impl LocalSink for LocalCollect {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        async {
            self.trouble.pass(Phase::Push)?;
            if self.waits {
                sleep(Duration::from_micros(10)).await;
            }
            let values = registers.values::<u64>(Register(0));
            registers.selected().for_each(|row| self.numbers.push(values[row]));
            assert!(self.memory.try_grow(1));
            Ok(if self.numbers.len() >= self.enough { Flow::Enough } else { Flow::More })
        }
        .boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        async move {
            self.trouble.pass(Phase::End)?;
            self.collected.numbers.lock().unwrap().extend(&self.numbers);
            self.collected.ends.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        .boxed_local()
    }
}

/// A pipeline over one column of numbers, without steps.
pub(crate) fn numbers(source: impl Source + 'static, sink: impl Sink + 'static) -> Pipeline {
    let mut program = Program::default();
    program.input(Lane::U64);
    Pipeline { source: Box::new(source), program, sink: Box::new(sink), after: Vec::new() }
}

/// Runs pipelines, and sees to it that they leave no memory behind.
pub(crate) fn run(context: &Context, pipelines: Vec<Pipeline>) -> Result<()> {
    let result = weft_rt::sync::block_on(Query { pipelines }.run(context));
    assert_eq!(context.ledger.used(), 0, "memory is left");
    result
}
