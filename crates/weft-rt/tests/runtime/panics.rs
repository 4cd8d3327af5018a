//! Panics end the task in which they happen, and nothing else.

use weft_rt::io::DriverKind;
use weft_rt::{JoinError, MorselError, MorselOptions, Runtime, RuntimeOptions, sleep, yield_now};

use crate::drivers::within_limit;

fn runtime(workers: usize) -> Runtime {
    let options = RuntimeOptions { workers, driver: DriverKind::Posix, ..Default::default() };
    Runtime::new(&options).unwrap()
}

struct PanicsWhenDropped(&'static str);

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

fn still_works(runtime: &Runtime) {
    for worker in 0..runtime.workers() {
        assert_eq!(runtime.spawn_on(worker, || async { 7 }).wait(), Ok(7), "worker {worker}");
    }
}

#[test]
fn of_a_task() {
    within_limit(|| {
        let runtime = runtime(1);
        let panics = runtime.block_on(|| async {
            yield_now().await;
            if worker_is_there() {
                panic!("in the middle");
            }
        });
        assert_eq!(panics, Err(JoinError::Panicked("in the middle".into())));
        still_works(&runtime);
    });
}

fn worker_is_there() -> bool {
    weft_rt::worker_index() == 0
}

#[test]
fn of_what_makes_a_task() {
    within_limit(|| {
        let runtime = runtime(1);
        let panics = runtime.block_on(|| {
            if worker_is_there() {
                panic!("no future");
            }
            async {}
        });
        assert_eq!(panics, Err(JoinError::Panicked("no future".into())));
        still_works(&runtime);
    });
}

#[test]
fn of_a_result_that_nobody_wants() {
    within_limit(|| {
        let runtime = runtime(1);
        let (go, gone) = weft_rt::sync::oneshot::channel();
        drop(runtime.spawn(|| async move {
            gone.await.unwrap();
            PanicsWhenDropped("result")
        }));
        go.send(()).unwrap();
        still_works(&runtime);
    });
}

#[test]
fn of_a_future_that_is_dropped() {
    within_limit(|| {
        let runtime = runtime(1);
        // Nothing awaits it in the task: it is dropped with the future.
        let held = PanicsWhenDropped("with the future");
        let ended = runtime.block_on(|| {
            let mut held = Some(held);
            std::future::poll_fn(move |_| {
                assert!(held.as_mut().is_some());
                std::task::Poll::Ready(())
            })
        });
        assert!(ended.is_err(), "{ended:?}");
        still_works(&runtime);
    });
}

#[test]
fn of_tasks_that_are_dropped_at_shutdown() {
    within_limit(|| {
        let runtime = runtime(2);
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                runtime.spawn(|| async {
                    let held = PanicsWhenDropped("at shutdown");
                    sleep(std::time::Duration::MAX).await;
                    drop(held);
                })
            })
            .collect();
        still_works(&runtime);
        drop(runtime);
        for task in tasks {
            assert_eq!(task.wait(), Err(JoinError::Shutdown));
        }
    });
}

/// The other worker's morsels would never end by themselves.
#[test]
fn of_a_morsel_cancels_the_others() {
    within_limit(|| {
        let runtime = runtime(2);
        let run = runtime.run_morsels(
            &MorselOptions::new(4),
            Some,
            |_| (),
            |_, worker| async move {
                yield_now().await;
                if worker == 1 {
                    panic!("one of two");
                }
                sleep(std::time::Duration::MAX).await;
                Ok::<(), ()>(())
            },
        );
        let panicked = MorselError::Join(JoinError::Panicked("one of two".into()));
        assert_eq!(run.wait(), Err(panicked));
        still_works(&runtime);
    });
}

#[test]
fn of_a_worker_that_would_wait_for_itself() {
    within_limit(|| {
        let runtime = runtime(1);
        let waits = runtime.block_on(|| async {
            weft_rt::spawn_local(async {}).wait().unwrap();
        });
        assert!(matches!(waits, Err(JoinError::Panicked(_))));
        still_works(&runtime);
    });
}
