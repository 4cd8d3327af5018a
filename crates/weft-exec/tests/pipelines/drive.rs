//! The driver: every tuple once, whatever waits; and ends of all kinds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_exec::pipeline::Pipeline;
use weft_exec::profile::{PartDone, PartName, Parts, Profile};
use weft_exec::program::{Comparison, Constant, Operand, Register, Step};
use weft_exec::query::{Context, Query};
use weft_exec::{ExecError, Lane};
use weft_rt::JoinError;
use weft_rt::memory::Ledger;

use crate::support::{
    Collect, Mishap, Numbers, PHASES, Phase, Trouble, Waits, cancel_after, contexts, numbers,
    random, run, runtime,
};

#[test]
fn every_tuple_comes_once() {
    for context in contexts() {
        for (rows, morsel_rows) in [(0, 1), (1, 1), (10_000, 3_333), (999, 50)] {
            for (waits, depth) in
                [(Waits::No, 1), (Waits::No, 4), (Waits::Yields, 16), (Waits::Sleeps, 3)]
            {
                let sink = Collect::new();
                let collected = sink.collected.clone();
                let source = Numbers::new(rows, morsel_rows).waits(waits, depth);
                run(&context, vec![numbers(source, sink)]).unwrap();
                let mut seen = collected.numbers.lock().unwrap().clone();
                seen.sort_unstable();
                assert_eq!(seen, (0..rows).collect::<Vec<_>>(), "{waits:?}");
                assert_eq!(collected.ends.load(Ordering::Relaxed), context.runtime.workers());
                assert_eq!(collected.finishes.load(Ordering::Relaxed), 1);
            }
        }
    }
}

#[test]
fn groups_of_steps_are_measured() {
    for mut context in contexts() {
        let profile = Arc::new(Profile::new(Parts::new(vec![0, 2], 4)));
        context.profiles = [profile.clone()].into();
        let sink = Collect::new();
        let mut pipeline = numbers(Numbers::new(10_000, 3_333).waits(Waits::Yields, 4), sink);
        for limit in [6_000, 2_500] {
            let condition = pipeline.program.register(Lane::Bool);
            let (op, b) = (Comparison::Less, Operand::Constant(Constant::U64(limit)));
            let a = Operand::Register(Register(0));
            pipeline.program.steps.push(Step::Compare { op, a, b, out: condition });
            pipeline.program.steps.push(Step::Filter { condition });
        }
        run(&context, vec![pipeline]).unwrap();
        let rows = |name| {
            let PartDone { rows_in, rows_out, .. } = profile.part(name);
            (rows_in, rows_out)
        };
        assert_eq!(rows(PartName::Source), (0, 10_000));
        assert_eq!(rows(PartName::Step(0)), (10_000, 6_000));
        assert_eq!(rows(PartName::Step(1)), (6_000, 2_500));
        assert_eq!(rows(PartName::Sink), (2_500, 0));
        let done = profile.done();
        assert!(done.began < done.ended && !done.cpu.is_zero(), "{done:?}");
        assert!(!profile.part(PartName::Step(1)).cpu.is_zero());
    }
}

#[test]
fn pipelines_wait_for_those_they_depend_on() {
    let context = Context::new(runtime(2), Ledger::new(1 << 20));
    for _ in 0..20 {
        let sinks: Vec<Collect> = (0..4).map(|_| Collect::new()).collect();
        let seen: Vec<_> = sinks.iter().map(|sink| sink.collected.clone()).collect();
        let mut pipelines: Vec<_> = sinks
            .into_iter()
            .map(|sink| numbers(Numbers::new(5000, 1000).waits(Waits::Sleeps, 2), sink))
            .collect();
        pipelines[2].after = vec![0, 1];
        pipelines[3].after = vec![2];
        let before = seen.clone();
        let check = Trouble::default();
        assert!(check.at.is_none());
        // The last one's source opens when all others have ended.
        pipelines[3].source = Box::new(Opens(Box::new(move || {
            before[..3].iter().all(|collected| collected.finishes.load(Ordering::Relaxed) == 1)
        })));
        run(&context, pipelines).unwrap();
        assert!(seen.iter().all(|collected| collected.finishes.load(Ordering::Relaxed) == 1));
    }
}

/// A source without tuples that checks something when it is opened.
struct Opens(Box<dyn Fn() -> bool + Send + Sync>);

impl std::fmt::Debug for Opens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opens")
    }
}

impl weft_exec::pipeline::Source for Opens {
    fn open<'a>(&'a self, _: &'a Context) -> futures::future::BoxFuture<'a, weft_exec::Result<()>> {
        assert!(self.0(), "opened too early");
        Box::pin(async { Ok(()) })
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn weft_exec::pipeline::Morsel>> {
        None
    }
}

#[test]
fn enough_ends_the_pipeline_well() {
    for context in contexts() {
        for (waits, depth) in [(Waits::No, 1), (Waits::Yields, 8), (Waits::Sleeps, 8)] {
            let sink = Collect::new().enough(100).waits();
            let collected = sink.collected.clone();
            let source = Numbers::new(u64::MAX, 10_000).waits(waits, depth);
            run(&context, vec![numbers(source, sink)]).unwrap();
            assert!(collected.numbers.lock().unwrap().len() >= 100);
            assert_eq!(collected.ends.load(Ordering::Relaxed), context.runtime.workers());
            assert_eq!(collected.finishes.load(Ordering::Relaxed), 1);
        }
    }
}

#[test]
fn enough_reaches_workers_that_wait_for_tuples() {
    for depth in [1, 4] {
        let context = Context::new(runtime(4), Ledger::new(1 << 20));
        // Worker 0 has tuples, the others wait for some that never come.
        let sink = Collect::new().enough(10);
        let collected = sink.collected.clone();
        let source = OneWorker { first: Numbers::new(u64::MAX, 10_000), depth };
        run(&context, vec![numbers(source, sink)]).unwrap();
        assert_eq!(collected.ends.load(Ordering::Relaxed), 4);
    }
}

#[derive(Debug)]
struct OneWorker {
    first: Numbers,
    depth: usize,
}

impl weft_exec::pipeline::Source for OneWorker {
    fn open<'a>(
        &'a self,
        context: &'a Context,
    ) -> futures::future::BoxFuture<'a, weft_exec::Result<()>> {
        self.first.open(context)
    }

    fn morsel(&self, worker: usize) -> Option<Box<dyn weft_exec::pipeline::Morsel>> {
        if worker == 0 {
            return self.first.morsel(0);
        }
        Numbers::new(u64::MAX, 1).waits(Waits::Forever, 1).morsel(worker)
    }

    fn depth(&self, _: &Context) -> usize {
        self.depth
    }
}

#[test]
fn trouble_in_any_phase_ends_the_query() {
    // The panics that are wanted are not shown; those of other tests are.
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(|message| message.starts_with("trouble in")) {
            shown(info);
        }
    }));
    for context in contexts() {
        for phase in PHASES {
            for mishap in [Mishap::Error, Mishap::Panic] {
                for depth in [1, 5] {
                    let once = matches!(phase, Phase::Open | Phase::Finish);
                    let after = if once { 0 } else { fastrand::usize(..context.runtime.workers()) };
                    let trouble = Trouble::new(phase, mishap, after);
                    let waits = if depth == 1 { Waits::No } else { Waits::Sleeps };
                    let source = Numbers::new(100_000, 500).waits(waits, depth).trouble(&trouble);
                    let sink = Collect::new().trouble(&trouble);
                    let collected = sink.collected.clone();
                    let mut dependent = numbers(Numbers::new(10, 1), Collect::new());
                    dependent.after = vec![0];
                    let beside =
                        numbers(Numbers::new(u64::MAX, 1).waits(Waits::Forever, 3), Collect::new());
                    let pipelines = vec![numbers(source, sink), dependent, beside];
                    let error = run(&context, pipelines).unwrap_err();
                    match (mishap, error) {
                        (Mishap::Error, ExecError::Function(error)) => {
                            assert_eq!(error.to_string(), format!("trouble in {phase:?}"));
                        }
                        (Mishap::Panic, ExecError::Join(JoinError::Panicked(message))) => {
                            assert_eq!(message, format!("trouble in {phase:?}"));
                        }
                        (_, error) => panic!("{phase:?} {mishap:?}: {error:?}"),
                    }
                    assert_eq!(Arc::strong_count(&collected), 1, "something is left");
                }
            }
        }
    }
}

#[test]
fn progress_counts_all_pipelines_from_the_beginning() {
    for workers in [1, 2] {
        let context = Context::new(runtime(workers), Ledger::new(64 << 20));
        let sinks = [Collect::new(), Collect::new(), Collect::new()];
        let last = sinks[2].collected.clone();
        let pipelines = sinks.into_iter().enumerate().map(|(number, sink)| {
            let source = Numbers::new(200_000, 1_000).waits(Waits::Yields, 2);
            let after = (0..number).collect();
            Pipeline { after, ..numbers(source, sink) }
        });
        let pipelines = pipelines.collect();
        let progress = context.progress.clone();
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let watch = std::thread::spawn({
            let (ended, last) = (ended.clone(), last.clone());
            move || {
                let mut told = Vec::new();
                while !ended.load(Ordering::SeqCst) {
                    let fraction = progress.told(progress.snapshot()).fraction();
                    if last.finishes.load(Ordering::SeqCst) == 0 {
                        assert!(fraction < 1.0, "{fraction} before the end");
                    }
                    told.push(fraction);
                    std::thread::yield_now();
                }
                told
            }
        });
        run(&context, pipelines).unwrap();
        ended.store(true, Ordering::SeqCst);
        let told = watch.join().unwrap();
        assert!(told.is_sorted(), "it fell");
        assert_eq!(context.progress.fraction(), 1.0);
    }
}

#[test]
fn cancellation_at_any_time_leaves_nothing_behind() {
    let mut random = random();
    let runtimes = [runtime(1), runtime(2), runtime(8)];
    for round in 0..150 {
        let runtime = &runtimes[round % 3];
        let mut context = Context::new(runtime.clone(), Ledger::new(64 << 20));
        context.vector_rows = [1, 7, 2048][random.usize(..3)];
        let waits = [Waits::No, Waits::Yields, Waits::Sleeps, Waits::Forever][random.usize(..4)];
        let depth = [1, 2, 64][random.usize(..3)];
        let sinks = [Collect::new(), Collect::new().waits()];
        let collected: Vec<_> = sinks.iter().map(|sink| sink.collected.clone()).collect();
        let pipelines = sinks
            .into_iter()
            .map(|sink| numbers(Numbers::new(u64::MAX, 700).waits(waits, depth), sink))
            .collect();
        let canceller = cancel_after(&context, Duration::from_micros(random.u64(..2000)));
        let error = run(&context, pipelines).unwrap_err();
        assert!(matches!(error, ExecError::Cancelled), "{error:?}");
        assert!(collected.iter().all(|collected| Arc::strong_count(collected) == 1));
        assert_eq!(collected[0].finishes.load(Ordering::Relaxed), 0);
        canceller.join().unwrap();
    }
}

#[test]
fn a_query_that_is_dropped_ends() {
    let context = Context::new(runtime(2), Ledger::new(64 << 20));
    let sink = Collect::new();
    let collected = sink.collected.clone();
    let pipelines = vec![numbers(Numbers::new(u64::MAX, 700), sink)];
    {
        let mut run = Box::pin(Query { pipelines }.run(&context));
        let polled = futures::FutureExt::now_or_never(&mut run);
        assert!(polled.is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    let start = Instant::now();
    while Arc::strong_count(&collected) > 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(context.ledger.used(), 0);
    assert!(!context.cancel.is_cancelled(), "only the query was");
}

#[test]
fn workers_serve_others_while_a_query_computes() {
    let runtime = runtime(1);
    let context = Context::new(runtime.clone(), Ledger::new(64 << 20));
    let cancel = context.cancel.clone();
    let probe = runtime.spawn(move || async move {
        // Each sleep ends late by as long as the worker does something else.
        let mut lateness = Vec::new();
        for _ in 0..50 {
            let start = Instant::now();
            weft_rt::sleep(Duration::from_micros(100)).await;
            lateness.push(start.elapsed());
        }
        cancel.cancel();
        lateness.sort_unstable();
        lateness[25]
    });
    let pipelines = vec![numbers(Numbers::new(u64::MAX, 100_000), Collect::new().enough(1 << 40))];
    let error = run(&context, pipelines).unwrap_err();
    assert!(matches!(error, ExecError::Cancelled));
    // Far above what it should be, for a busy machine: a vector that never yields takes seconds.
    assert!(probe.wait().unwrap() < Duration::from_millis(200));
}

#[test]
fn morsels_of_an_operator_run_once_each() {
    for context in contexts() {
        let runs = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (seen, for_task) = (runs.clone(), context.clone());
        let task = context.spawn(move || async move {
            let work = move |worker, morsel| {
                let seen = seen.clone();
                async move {
                    seen.lock().unwrap().push((worker, morsel));
                    if morsel % 10 == 3 {
                        weft_rt::yield_now().await;
                    }
                    Ok(())
                }
            };
            for_task.run_morsels(1000, work).await
        });
        task.wait().unwrap().unwrap();
        let mut morsels: Vec<usize> = runs.lock().unwrap().iter().map(|run| run.1).collect();
        morsels.sort_unstable();
        assert_eq!(morsels, (0..1000).collect::<Vec<_>>());
        let workers = context.runtime.workers();
        assert!(runs.lock().unwrap().iter().all(|run| run.0 < workers));
    }
}
