//! Queries beside each other, and queries that have some of the workers only.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_exec::profile::{Parts, Profile};
use weft_exec::query::{Context, Query};
use weft_exec::{ExecError, Result};
use weft_rt::memory::Ledger;
use weft_rt::{JoinError, JoinHandle, Share};

use crate::support::{Collect, Numbers, Waits, numbers, run, runtime};

/// Numbers without end for so many pipelines of one query.
fn endless(context: &mut Context, pipelines: usize) -> JoinHandle<Result<()>> {
    let profile = || Arc::new(Profile::new(Parts::default()));
    context.profiles = (0..pipelines).map(|_| profile()).collect();
    let nothing = || weft_exec::sink::Nothing;
    let pipelines =
        (0..pipelines).map(|_| numbers(Numbers::new(u64::MAX, 10_000), nothing())).collect();
    let (query, context) = (Query { pipelines }, context.clone());
    let (runtime, share) = (context.runtime.clone(), context.share);
    runtime.spawn_in(Some(share), 0, move || async move { query.run(&context).await })
}

fn used(context: &Context) -> Duration {
    context.profiles.iter().map(|profile| profile.done().cpu).sum()
}

fn assert_cancelled(ended: std::result::Result<Result<()>, JoinError>) {
    let error = ended.unwrap().unwrap_err();
    assert!(matches!(error, ExecError::Cancelled), "{error:?}");
}

/// However many pipelines a query has that can run, it gets no more of the processors than another.
#[test]
fn queries_get_the_same() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let context = || Context::new(runtime.clone(), Ledger::new(64 << 20));
        let (mut few, mut many) = (context(), context());
        let tasks = [endless(&mut few, 1), endless(&mut many, 6)];
        // Until both have had a lot, however busy the machine is.
        let start = Instant::now();
        while used(&few).min(used(&many)) < Duration::from_millis(150)
            && start.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (of_few, of_many) = (used(&few), used(&many));
        few.cancel.cancel();
        many.cancel.cancel();
        tasks.into_iter().for_each(|task| assert_cancelled(task.wait()));
        let ratio = of_many.div_duration_f64(of_few);
        assert!((0.6..1.6).contains(&ratio), "{workers} workers: {of_few:?} and {of_many:?}");
    }
}

/// A short query ends after about as much time again as it needs, whatever runs beside it.
#[test]
fn a_short_query_ends_soon() {
    let runtime = runtime(1);
    let mut long = Context::new(runtime.clone(), Ledger::new(64 << 20));
    let task = endless(&mut long, 16);
    let mut short = Context::new(runtime, Ledger::new(64 << 20));
    short.profiles = [Arc::new(Profile::new(Parts::default()))].into();
    while used(&long) < Duration::from_millis(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = used(&long);
    run(&short, vec![numbers(Numbers::new(3_000_000, 10_000), Collect::new())]).unwrap();
    let (of_short, of_long) = (used(&short), used(&long) - before);
    long.cancel.cancel();
    assert_cancelled(task.wait());
    // If tasks took turns the long query would get sixteen times as much.
    assert!(of_long < 3 * of_short + Duration::from_millis(20), "{of_long:?} beside {of_short:?}");
}

/// What has the same share counts as one.
#[test]
fn queries_of_a_statement_share_what_it_gets() {
    let runtime = runtime(1);
    let context = || Context::new(runtime.clone(), Ledger::new(64 << 20));
    let (mut alone, mut first, mut second) = (context(), context(), context());
    let share = Share::new();
    (first.share, second.share) = (share, share);
    let tasks = [endless(&mut alone, 1), endless(&mut first, 1), endless(&mut second, 1)];
    let start = Instant::now();
    while used(&alone) < Duration::from_millis(150) && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (of_one, of_both) = (used(&alone), used(&first) + used(&second));
    [&alone, &first, &second].into_iter().for_each(|context| context.cancel.cancel());
    tasks.into_iter().for_each(|task| assert_cancelled(task.wait()));
    let ratio = of_both.div_duration_f64(of_one);
    assert!((0.6..1.6).contains(&ratio), "{of_one:?} and {of_both:?}");
}

#[test]
fn a_query_may_have_some_of_the_workers() {
    let runtime = runtime(8);
    for workers in [1, 3, 8] {
        let mut context = Context::new(runtime.clone(), Ledger::new(64 << 20));
        context.workers = workers;
        let sink = Collect::new();
        let collected = sink.collected.clone();
        let source = Numbers::new(10_000, 100).waits(Waits::Yields, 4);
        run(&context, vec![numbers(source, sink)]).unwrap();
        assert_eq!(collected.ends.load(Ordering::Relaxed), workers);
        assert_eq!(collected.numbers.lock().unwrap().len(), 10_000);
        let task = context.clone();
        let seen = context.spawn(move || async move {
            task.on_all_workers(|_| async { Ok(weft_rt::worker_index()) }).await
        });
        assert_eq!(seen.wait().unwrap().unwrap(), (0..workers).collect::<Vec<_>>());
        for _ in 0..10 {
            let index = context.spawn(|| async { weft_rt::worker_index() }).wait().unwrap();
            assert!(index < workers);
        }
    }
}
