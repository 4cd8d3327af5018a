//! Coroutines that disappear while they load, wait for a load, or wait for a frame.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use weft_buffer::{BufferError, SwipState};
use weft_rt::{Batch, Boundary, MorselError, MorselOptions, sleep, yield_now};

use crate::drivers::{seeds, setups, within_limit};
use crate::pages::{assert_at_rest, assert_is, give_up_after, pool};

/// The loader is dropped while its read is under way and others wait for it.
#[test]
fn a_waiter_takes_over_from_a_dropped_loader() {
    within_limit(|| {
        for setup in setups(1).into_iter().filter(|setup| setup.suspends()) {
            for droppers in 1..5 {
                let pool = pool(&setup, 2, 10);
                let shared = pool.clone();
                let name = setup.name;
                let runtime = setup.runtime(1, 32);
                let fixed = runtime.block_on(move || async move {
                    let (fixed, mut count) = (&Cell::new(0), 0);
                    let batch = Batch::new(20, Boundary::Weak, || {
                        count += 1;
                        let (number, pool) = (count, &shared);
                        let part = async move {
                            let swip = pool.table().swip(1);
                            if number <= droppers {
                                // The first begins to read, the others wait for it; all are dropped.
                                let given_up = give_up_after(0, pool.fix(swip)).await;
                                assert!(given_up.is_none(), "{name} does not suspend");
                            } else {
                                assert_is(&pool.fix(swip).await?[..], 1);
                                fixed.set(fixed.get() + 1);
                            }
                            Ok::<(), BufferError>(())
                        };
                        (count <= 20).then_some(part)
                    });
                    batch.await?;
                    Ok::<usize, BufferError>(fixed.get())
                });
                assert_eq!(fixed.unwrap().unwrap(), 20 - droppers, "{name}");
                drop(runtime);
                assert_at_rest(&pool, 0);
            }
        }
    });
}

/// The loader and those who wait for it are all suspended; then the loader goes.
#[test]
fn those_who_wait_already_take_over() {
    within_limit(|| {
        for setup in setups(1).into_iter().filter(|setup| setup.suspends()) {
            let pool = pool(&setup, 2, 10);
            let shared = pool.clone();
            let runtime = setup.runtime(1, 32);
            let fixed = runtime.block_on(move || async move {
                let swip = shared.table().swip(0);
                let mut fixes: Vec<_> = (0..6).map(|_| Box::pin(shared.fix(swip))).collect();
                poll_fn(|context| {
                    fixes
                        .iter_mut()
                        .for_each(|fix| assert!(fix.as_mut().poll(context).is_pending()));
                    Poll::Ready(())
                })
                .await;
                assert!(matches!(swip.state(), SwipState::Loading(_)));
                let before = shared.stats();
                // The loader, and one of those who wait.
                drop(fixes.remove(0));
                drop(fixes.remove(2));
                for fix in fixes {
                    assert_is(&fix.await.unwrap(), 0);
                }
                (before.reads, before.shared, shared.stats().reads)
            });
            let (reads, waiting, reads_after) = fixed.unwrap();
            assert_eq!((reads, waiting), (1, 5), "{}", setup.name);
            // Each was awaited alone, after the one before had let go of the page.
            assert!((2..=5).contains(&reads_after), "{}: {reads_after} reads", setup.name);
            drop(runtime);
            assert_at_rest(&pool, 0);
        }
    });
}

/// A query is cancelled at random times; the pool is whole afterwards and serves the next one.
#[test]
fn cancellation_leaves_the_pool_whole() {
    within_limit(|| {
        for seed in seeds("cancellation") {
            for setup in setups(seed) {
                let pool = pool(&setup, 64, 80);
                let runtime = setup.runtime(2, 32);
                pool.register(&runtime);
                for round in 0..12 {
                    let options = MorselOptions::new(32);
                    let shared = pool.clone();
                    let run = runtime.run_morsels(
                        &options,
                        |worker| Some(worker as u64),
                        |_| (),
                        move |_, worker| {
                            let pool = shared.clone();
                            let mut random = fastrand::Rng::with_seed(seed + worker);
                            async move {
                                for _ in 0..1000 {
                                    let number = random.usize(..64);
                                    let guard = pool.fix(pool.table().swip(number)).await?;
                                    yield_now().await;
                                    assert_is(&guard, number);
                                }
                                Ok::<(), BufferError>(())
                            }
                        },
                    );
                    std::thread::sleep(Duration::from_micros(seed % 700 + round * 150));
                    options.cancel.cancel();
                    assert!(matches!(run.wait(), Err(MorselError::Cancelled)));
                }
                // The pool may be dropped before the last device has finished.
                let shared = pool.clone();
                runtime
                    .block_on(move || async move {
                        while shared.frames().1 < shared.frames().0 {
                            sleep(Duration::from_micros(10)).await;
                        }
                        assert_is(&shared.fix(shared.table().swip(5)).await.unwrap(), 5);
                    })
                    .unwrap();
                assert_at_rest(&pool, 0);
            }
        }
    });
}

/// Reads are under way when pool and runtime go; the frames' memory must outlive them.
#[test]
fn a_pool_may_be_dropped_during_reads() {
    within_limit(|| {
        for setup in setups(1) {
            for _ in 0..10 {
                let runtime = setup.runtime(1, 64);
                let pool = pool(&setup, 64, 64);
                pool.register(&runtime);
                let run = runtime.block_on(move || async move {
                    let mut fixes: Vec<_> =
                        pool.table().swips().iter().map(|swip| Box::pin(pool.fix(swip))).collect();
                    poll_fn(|context| {
                        for fix in &mut fixes {
                            drop(fix.as_mut().poll(context));
                        }
                        Poll::Ready(())
                    })
                    .await;
                });
                run.unwrap();
                drop(runtime);
            }
        }
    });
}
