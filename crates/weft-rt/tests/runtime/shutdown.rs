//! What becomes of tasks when their runtime is dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_rt::{JoinError, spawn_local, worker_index, yield_now};

use crate::drivers::{setups, within_limit};

/// Says on which worker it was dropped, and spawns once more.
struct Witness(Arc<Mutex<Vec<usize>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(worker_index());
        let spawned = self.0.clone();
        drop(spawn_local(async move {
            spawned.lock().unwrap().push(usize::MAX);
        }));
    }
}

#[test]
fn tasks_are_dropped_on_their_workers() {
    within_limit(|| {
        for setup in setups(1) {
            let runtime = setup.runtime(2, 4);
            let dropped = Arc::new(Mutex::new(Vec::new()));
            let tasks: Vec<_> = (0..10)
                .map(|number| {
                    let witness = Witness(dropped.clone());
                    runtime.spawn_on(number, move || async move {
                        let held = witness;
                        match number {
                            0..5 => std::future::pending().await,
                            _ => loop {
                                yield_now().await;
                            },
                        }
                        drop(held);
                    })
                })
                .collect();
            for worker in 0..2 {
                runtime.spawn_on(worker, || async {}).wait().unwrap();
            }
            drop(runtime);
            let mut dropped = dropped.lock().unwrap().clone();
            dropped.sort_unstable();
            assert_eq!(dropped, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], "{}", setup.name);
            for task in tasks {
                assert_eq!(task.wait(), Err(JoinError::Shutdown));
            }
        }
    });
}

/// Tasks are spawned until the very end; each handle hears something.
#[test]
fn no_handle_is_forgotten() {
    within_limit(|| {
        for setup in setups(1) {
            for round in 0..20 {
                let runtime = setup.runtime(2, 4);
                let ran = Arc::new(AtomicUsize::new(0));
                let handles: Vec<_> = (0..200)
                    .map(|_| {
                        let ran = ran.clone();
                        runtime.spawn(move || async move {
                            yield_now().await;
                            ran.fetch_add(1, Ordering::Relaxed);
                        })
                    })
                    .collect();
                std::thread::sleep(Duration::from_micros(round * 10));
                drop(runtime);
                let ended = handles.into_iter().map(|handle| handle.wait());
                let ended = ended.filter(|result| result.is_ok()).count();
                assert_eq!(ended, ran.load(Ordering::Relaxed), "{}", setup.name);
            }
        }
    });
}

#[test]
fn a_task_may_own_its_runtime() {
    within_limit(|| {
        for setup in setups(1) {
            let runtime = Arc::new(setup.runtime(2, 4));
            let own = runtime.clone();
            let (go, gone) = weft_rt::sync::oneshot::channel();
            let task = runtime.spawn(move || async move {
                gone.await.unwrap();
                drop(own);
                7
            });
            drop(runtime);
            go.send(()).unwrap();
            assert_eq!(task.wait(), Ok(7), "{}", setup.name);
        }
    });
}
