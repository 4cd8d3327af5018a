//! Who gets how much of a worker, and workers that are started later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_rt::io::DriverKind;
use weft_rt::{Runtime, RuntimeOptions, Share, sleep, spawn_local, worker_index, yield_now};

fn runtime(workers: usize) -> Runtime {
    let options = RuntimeOptions { workers, driver: DriverKind::Blocking, ..Default::default() };
    Runtime::new(&options).unwrap()
}

/// Computes for so long at least; gives how long it was: others may have had the processor.
fn compute(time: Duration) -> Duration {
    let start = Instant::now();
    loop {
        std::hint::spin_loop();
        let used = start.elapsed();
        if used >= time {
            return used;
        }
    }
}

/// Computes in turns until it is told to stop; counts how long.
async fn computes(turn: Duration, used_ns: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let used = compute(turn);
        used_ns.fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
        yield_now().await;
    }
}

/// One share with one task, and one whose task starts many, here and from elsewhere, get the same.
#[test]
fn many_tasks_of_a_share_get_no_more_than_one_of_another() {
    let runtime = Arc::new(runtime(1));
    let stop = Arc::new(AtomicBool::new(false));
    let used: [Arc<AtomicU64>; 2] = Default::default();
    let turn = Duration::from_micros(100);
    let alone = {
        let (used, stop) = (used[0].clone(), stop.clone());
        runtime.spawn_in(Some(Share::new()), 0, move || computes(turn, used, stop))
    };
    let many = {
        let (used, stop, runtime) = (used[1].clone(), stop.clone(), runtime.clone());
        let share = Share::new();
        runtime.clone().spawn_in(Some(share), 0, move || async move {
            let fresh = || computes(turn, used.clone(), stop.clone());
            let local: Vec<_> = (0..3).map(|_| spawn_local(fresh())).collect();
            let (used, stop) = (used.clone(), stop.clone());
            let sent = runtime.spawn_on(0, move || computes(turn, used, stop));
            for task in local {
                task.await.unwrap();
            }
            sent.await.unwrap();
        })
    };
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    alone.wait().unwrap();
    many.wait().unwrap();
    let [alone, many] = used.map(|used| used.load(Ordering::Relaxed) as f64);
    let ratio = many / alone;
    assert!((0.7..1.4).contains(&ratio), "{ratio}: {alone} ns alone, {many} ns of many tasks");
}

/// Who comes late, or waits in between, is served at once.
#[test]
fn who_has_used_little_goes_first() {
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let long = Share::new();
    let busy: Vec<_> = (0..16)
        .map(|_| {
            let stop = stop.clone();
            let turn = Duration::from_micros(250);
            runtime.spawn_in(Some(long), 0, move || computes(turn, Arc::default(), stop))
        })
        .collect();
    let short = runtime.spawn_in(Some(Share::new()), 0, || async {
        let mut late = Vec::new();
        for _ in 0..40 {
            sleep(Duration::from_micros(100)).await;
            let start = Instant::now();
            yield_now().await;
            late.push(start.elapsed());
        }
        late.sort_unstable();
        late[20]
    });
    let late = short.wait().unwrap();
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|task| task.wait().unwrap());
    // If tasks took turns it would be 16 turns, 4 ms; it should be one or two.
    assert!(late < Duration::from_millis(2), "{late:?}");
}

#[test]
fn tasks_without_a_share_go_on_beside_shares() {
    let runtime = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = [Share::new(), Share::new()]
        .into_iter()
        .map(|share| {
            let stop = stop.clone();
            let turn = Duration::from_micros(100);
            runtime.spawn_in(Some(share), 0, move || computes(turn, Arc::default(), stop))
        })
        .collect();
    let other = runtime.spawn_on(0, || async {
        for _ in 0..100 {
            yield_now().await;
        }
    });
    other.wait().unwrap();
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|task| task.wait().unwrap());
}

#[test]
fn workers_may_be_added() {
    let runtime = Arc::new(runtime(1));
    runtime.grow(3).unwrap();
    runtime.grow(2).unwrap();
    assert_eq!(runtime.workers(), 3);
    for worker in 0..6 {
        let index = runtime.spawn_on(worker, || async { worker_index() }).wait().unwrap();
        assert_eq!(index, worker % 3);
    }
    assert!(runtime.grow(100_000).is_err());
    std::thread::scope(|scope| {
        for workers in [4, 8, 6] {
            let runtime = &runtime;
            scope.spawn(move || runtime.grow(workers).unwrap());
        }
    });
    assert_eq!(runtime.workers(), 8);
    assert_eq!(runtime.io_stats().len(), 8);
    let ended = runtime.spawn_on(7, || async { sleep(Duration::from_millis(1)).await });
    ended.wait().unwrap();
}
