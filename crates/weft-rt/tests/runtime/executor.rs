//! Tasks, batches and timers: who is polled, when, and that nobody is forgotten.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use weft_rt::io::DriverKind;
use weft_rt::sync::oneshot;
use weft_rt::{
    BATCH_DEPTH_MAX, Batch, Boundary, JoinError, MorselQueue, Runtime, RuntimeOptions, sleep,
    spawn_begun, spawn_local, yield_now,
};

use crate::drivers::{seeds, setups, within_limit};

fn runtime(workers: usize) -> Runtime {
    let options = RuntimeOptions { workers, driver: DriverKind::Blocking, ..Default::default() };
    Runtime::new(&options).unwrap()
}

/// A batch of `count` coroutines, made from their numbers.
fn numbered<F>(
    depth: usize,
    count: usize,
    mut make: impl FnMut(usize) -> F,
) -> impl Future<Output = ()>
where
    F: Future<Output = ()>,
{
    let mut numbers = 0..count;
    let batch = Batch::new(depth, Boundary::Weak, move || {
        let coroutine = make(numbers.next()?);
        Some(async {
            coroutine.await;
            Ok::<(), std::convert::Infallible>(())
        })
    });
    async { batch.await.unwrap_or_else(|never| match never {}) }
}

/// Threads send values at random times to coroutines of batches, whose slots are reused meanwhile.
#[test]
fn wake_ups_from_other_threads_are_not_lost() {
    within_limit(|| {
        for seed in seeds("wake-ups from threads") {
            for setup in setups(seed) {
                let runtime = setup.runtime(2, 8);
                let count = 3000;
                let (senders, receivers): (Vec<_>, Vec<_>) =
                    (0..count).map(|_| oneshot::channel()).unzip();
                let mut receivers = receivers.into_iter();
                let tasks: Vec<_> = (0..4)
                    .map(|_| {
                        let mut receivers: Vec<_> = receivers.by_ref().take(count / 4).collect();
                        runtime.spawn(move || async move {
                            let sum = Cell::new(0);
                            numbered(100, count / 4, |_| {
                                let (receiver, sum) = (receivers.pop().unwrap(), &sum);
                                async move {
                                    let number = receiver.await.unwrap();
                                    sum.set(sum.get() + number);
                                }
                            })
                            .await;
                            sum.get()
                        })
                    })
                    .collect();
                let mut numbered: Vec<_> = senders.into_iter().zip(1..).collect();
                fastrand::Rng::with_seed(seed).shuffle(&mut numbered);
                std::thread::scope(|scope| {
                    for chunk in 0..3u64 {
                        let senders = numbered.split_off(numbered.len() - count / 3);
                        scope.spawn(move || {
                            let mut random = fastrand::Rng::with_seed(seed + chunk);
                            for (sender, number) in senders {
                                match random.u8(..100) {
                                    0 => std::thread::sleep(Duration::from_micros(300)),
                                    1..20 => std::thread::yield_now(),
                                    _ => {}
                                }
                                sender.send(number).unwrap();
                            }
                        });
                    }
                });
                let sum: usize = tasks.into_iter().map(|task| task.wait().unwrap()).sum();
                assert_eq!(sum, count * (count + 1) / 2, "{}", setup.name);
            }
        }
    });
}

/// A ring of coroutines on two workers that pass a token, so that both fall asleep again and again.
#[test]
fn sleeping_workers_are_woken() {
    within_limit(|| {
        for setup in setups(1) {
            let runtime = setup.runtime(2, 1);
            let (first, mut receiver) = oneshot::channel();
            let mut tasks = Vec::new();
            for hop in 0..4000 {
                let (sender, next) = oneshot::channel();
                let before = std::mem::replace(&mut receiver, next);
                tasks.push(runtime.spawn_on(hop % 2, move || async move {
                    sender.send(before.await.unwrap() + 1).unwrap();
                }));
            }
            first.send(0).unwrap();
            assert_eq!(receiver.blocking_recv(), Ok(4000), "{}", setup.name);
            tasks.into_iter().for_each(|task| task.wait().unwrap());
        }
    });
}

/// The tasks that come first wait for those that come last.
#[test]
fn ten_thousand_tasks_on_one_worker() {
    within_limit(|| {
        let sum = runtime(1).block_on(|| async {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..10_000u64).map(|_| oneshot::channel()).unzip();
            let waiting: Vec<_> = receivers.into_iter().map(spawn_local).collect();
            for (sender, number) in senders.into_iter().zip(0..) {
                let sent = spawn_local(async move { sender.send(number).unwrap() });
                drop(sent);
            }
            let mut sum = 0;
            for task in waiting {
                sum += task.await.unwrap().unwrap();
            }
            sum
        });
        assert_eq!(sum, Ok(9_999 * 10_000 / 2));
    });
}

#[test]
fn batches_nest() {
    within_limit(|| {
        for depth in [1, 3, 64, 65] {
            let count = runtime(1).block_on(move || async move {
                let count = Rc::new(Cell::new(0));
                let innermost = |count: Rc<Cell<u32>>| {
                    numbered(depth, 5, move |number| {
                        let count = count.clone();
                        async move {
                            if number % 2 == 0 {
                                yield_now().await;
                            } else {
                                sleep(Duration::from_micros(number as u64)).await;
                            }
                            count.set(count.get() + 1);
                        }
                    })
                };
                let middle =
                    |count: Rc<Cell<u32>>| numbered(depth, 7, move |_| innermost(count.clone()));
                let outer = count.clone();
                numbered(depth, 11, move |_| middle(outer.clone())).await;
                count.get()
            });
            assert_eq!(count, Ok(5 * 7 * 11), "depth {depth}");
        }
    });
}

/// The busy coroutines fill the first words of the bitmap; the last one must come to its turn.
#[test]
fn busy_coroutines_do_not_starve_others_of_the_batch() {
    within_limit(|| {
        for depth in [2, 64, 65, 129, 1000, BATCH_DEPTH_MAX] {
            let rounds = runtime(1).block_on(move || async move {
                let (done, rounds) = (&Cell::new(false), &Cell::new(0u32));
                numbered(depth, depth, |number| async move {
                    if number == depth - 1 {
                        for _ in 0..100 {
                            yield_now().await;
                        }
                        done.set(true);
                    }
                    while !done.get() {
                        rounds.set(rounds.get() + 1);
                        yield_now().await;
                    }
                })
                .await;
                rounds.get()
            });
            let each = rounds.unwrap() as usize / (depth - 1);
            assert!((99..=102).contains(&each), "depth {depth}: others were polled {each} times");
        }
    });
}

#[test]
fn busy_tasks_do_not_starve_tasks_and_timers() {
    within_limit(|| {
        for setup in setups(2) {
            let runtime = setup.runtime(1, 1);
            let stop = Arc::new(AtomicUsize::new(0));
            let busy: Vec<_> = (0..3)
                .map(|_| {
                    let stop = stop.clone();
                    runtime.spawn(move || async move {
                        while stop.load(Ordering::Relaxed) == 0 {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            let timer = runtime.block_on(|| sleep(Duration::from_micros(200)));
            timer.expect(setup.name);
            stop.store(1, Ordering::Relaxed);
            busy.into_iter().for_each(|task| task.wait().unwrap());
        }
    });
}

/// Random sleeps, some of them given up, under the simulated clock: they end in order, on time.
#[test]
fn timers_go_off_in_order() {
    within_limit(|| {
        for seed in seeds("timers") {
            for setup in setups(seed) {
                let is_exact = setup.name == "sim";
                let clock = setup.disk.clone();
                let ended = setup.runtime(1, 1).block_on(move || async move {
                    let now = &|| match &clock {
                        Some(disk) => disk.now(),
                        None => std::time::Instant::now(),
                    };
                    let mut random = fastrand::Rng::with_seed(seed);
                    let ended = RefCell::new(Vec::new());
                    numbered(500, 500, |number| {
                        let length = Duration::from_micros(random.u64(..20_000));
                        let ended = &ended;
                        async move {
                            if number % 5 == 0 {
                                let mut given_up = Box::pin(sleep(length));
                                let poll = |context: &mut Context<'_>| {
                                    let _ = given_up.as_mut().poll(context);
                                    Poll::Ready(())
                                };
                                return poll_fn(poll).await;
                            }
                            // From here on, not from when the batch began: rounds of it take time, by this clock too.
                            let deadline = now() + length;
                            sleep(length).await;
                            let late = now().checked_duration_since(deadline);
                            ended.borrow_mut().push((deadline, late.expect("ended too early")));
                        }
                    })
                    .await;
                    ended.into_inner()
                });
                let ended = ended.unwrap();
                assert_eq!(ended.len(), 400, "{}", setup.name);
                if is_exact {
                    // A round of the worker is 100 ns of this clock: whoever is due in the same one goes on in any order.
                    let round = Duration::from_micros(1);
                    assert!(ended.iter().all(|(_, late)| *late < round));
                    assert!(ended.windows(2).all(|pair| pair[0].0 < pair[1].0 + round));
                }
            }
        }
    });
}

/// A worker that waits with nothing else to do makes the simulated clock jump to the next timer: to
/// none that was given up.
#[test]
fn a_sleep_that_was_given_up_leaves_nothing() {
    within_limit(|| {
        let setup = setups(1).into_iter().find(|setup| setup.name == "sim").unwrap();
        let disk = setup.disk.clone().unwrap();
        let start = disk.now();
        let (sender, receiver) = oneshot::channel();
        let runtime = setup.runtime(1, 1);
        let waits = runtime.spawn(move || async move {
            let mut given_up = Box::pin(sleep(Duration::from_secs(3600)));
            poll_fn(|context| {
                assert!(given_up.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(given_up);
            receiver.await
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(disk.now().duration_since(start) < Duration::from_secs(1));
        assert_eq!(sender.send(7), Ok(()));
        assert_eq!(waits.wait(), Ok(Ok(7)));
    });
}

#[test]
fn a_sleep_may_be_endless() {
    within_limit(|| {
        let runtime = runtime(1);
        let endless = runtime.spawn(|| sleep(Duration::MAX));
        assert_eq!(runtime.block_on(|| sleep(Duration::ZERO)), Ok(()));
        drop(runtime);
        endless.wait().unwrap_err();
    });
}

/// Time that this thread has spent on a processor.
fn thread_cpu_time() -> Duration {
    // SAFETY: zero is a valid time.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: writes to `time` only.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn idle_workers_use_no_processor() {
    within_limit(|| {
        for setup in setups(1).into_iter().filter(|setup| setup.name != "sim") {
            let runtime = setup.runtime(2, 64);
            let waiting = runtime.spawn_on(0, || sleep(Duration::from_secs(3600)));
            let used =
                |worker| runtime.spawn_on(worker, || async { thread_cpu_time() }).wait().unwrap();
            let before = [used(0), used(1)];
            std::thread::sleep(Duration::from_millis(200));
            for (worker, before) in before.into_iter().enumerate() {
                let used = used(worker) - before;
                assert!(used < Duration::from_millis(5), "{}: {used:?}", setup.name);
            }
            drop(runtime);
            waiting.wait().unwrap_err();
        }
    });
}

#[test]
fn options_out_of_range_are_refused() {
    for (workers, io_depth, wrong) in [(0, 1, "workers"), (1, 0, "io_depth"), (1, 5000, "io_depth")]
    {
        let options = RuntimeOptions { workers, io_depth, ..Default::default() };
        let error = Runtime::new(&options).err().expect("out of range").to_string();
        assert!(error.starts_with(wrong), "{error}");
    }
}

#[test]
fn a_morsel_queue_ends_at_the_largest_number() {
    let queue = MorselQueue::new(u64::MAX, u64::MAX / 2 + 2);
    let half = u64::MAX / 2 + 2;
    assert_eq!(queue.next(), Some(0..half));
    assert_eq!(queue.next(), Some(half..u64::MAX));
    assert_eq!((queue.next(), queue.next()), (None, None));
}

/// A batch runs no more coroutines than it may, even if others have taken what is left meanwhile, and one in any case.
#[test]
fn a_batch_keeps_to_its_share() {
    within_limit(|| {
        for boundary in [Boundary::Weak, Boundary::Hard] {
            let runtime = runtime(1);
            let done = runtime.block_on(move || async move {
                let queue = MorselQueue::new(100, 1);
                assert_eq!((queue.share(1), queue.share(8), queue.share(200)), (usize::MAX, 12, 2));
                let (live, done, of_others) = (&Cell::new(0), &Cell::new(0), &Cell::new(0));
                let next = || {
                    queue.next()?;
                    live.set(live.get() + 1);
                    assert!(live.get() <= queue.share(4) + 1, "{} of {}", live.get(), queue.left());
                    Some(async {
                        yield_now().await;
                        // Another worker takes one, too.
                        of_others.set(of_others.get() + usize::from(queue.next().is_some()));
                        live.set(live.get() - 1);
                        done.set(done.get() + 1);
                        Ok::<(), ()>(())
                    })
                };
                let batch = Batch::new(50, boundary, next).at_most(|| queue.share(4));
                batch.await.unwrap();
                assert_eq!((queue.left(), live.get()), (0, 0));
                done.get() + of_others.get()
            });
            assert_eq!(done, Ok(100));
        }
    });
}

/// However many coroutines of a batch compute, its worker looks at others in between.
#[test]
fn a_batch_that_computes_lets_others_run() {
    within_limit(|| {
        let runtime = runtime(1);
        let others = runtime.block_on(|| async {
            let (done, others) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
            let (until, counted) = (done.clone(), others.clone());
            let other = spawn_local(async move {
                while !until.get() {
                    counted.set(counted.get() + 1);
                    yield_now().await;
                }
            });
            numbered(64, 64, |_| async {
                for _ in 0..4 {
                    let since = std::time::Instant::now();
                    while since.elapsed() < Duration::from_micros(200) {
                        std::hint::spin_loop();
                    }
                    yield_now().await;
                }
            })
            .await;
            done.set(true);
            other.await.unwrap();
            others.get()
        });
        // 51 ms in turns of little more than a quarter of one.
        let others = others.unwrap();
        assert!(others >= 64, "{others} times");
    });
}

/// A task that begins at once runs until it waits, before its maker goes on; then it is as any other.
#[test]
fn a_task_may_begin_at_once() {
    within_limit(|| {
        for setup in setups(1) {
            let runtime = setup.runtime(2, 8);
            let ran = runtime.block_on(|| async {
                let steps = Rc::new(RefCell::new(Vec::new()));
                let step = |number: usize| {
                    let steps = steps.clone();
                    move || steps.borrow_mut().push(number)
                };
                let (first, third, fourth) = (step(1), step(3), step(4));
                let task = spawn_begun(async move {
                    first();
                    yield_now().await;
                    third();
                    sleep(Duration::from_micros(50)).await;
                    fourth();
                    7
                });
                step(2)();
                assert_eq!(*steps.borrow(), [1, 2]);
                let result = task.await;
                assert_eq!(*steps.borrow(), [1, 2, 3, 4]);
                let at_once = spawn_begun(async { 8 }).await;
                let panics = spawn_begun(async { panic!("at once") }).await;
                assert_eq!(panics, Err(JoinError::Panicked("at once".into())));
                (result, at_once)
            });
            assert_eq!(ran, Ok((Ok(7), Ok(8))));
        }
    });
}
