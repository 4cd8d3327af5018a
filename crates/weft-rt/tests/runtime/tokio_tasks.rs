//! Our tasks and channels together with those of tokio, both ways.

use std::time::Duration;

use weft_rt::io::IoBuf;
use weft_rt::memory::Ledger;
use weft_rt::sync::channel::bounded;
use weft_rt::{sleep, yield_now};

use crate::drivers::{pattern, setups, within_limit};

fn tokio(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_time().build().unwrap()
}

/// Tokio's tasks await what our workers read.
#[test]
fn tokio_awaits_our_tasks() {
    within_limit(|| {
        for setup in setups(5) {
            let content = pattern(4, 64 * 4096);
            let file = setup.file("tokio", &content);
            let (runtime, tokio) = (setup.runtime(2, 8), tokio(2));
            let pages = tokio.block_on(async {
                let reads: Vec<_> = (0..64)
                    .map(|page: u64| {
                        let file = file.clone();
                        let read = runtime.spawn(move || async move {
                            let (result, buffer) =
                                file.read_exact(IoBuf::zeroed(4096), page * 4096).await;
                            result.map(|_| buffer.to_vec())
                        });
                        ::tokio::spawn(async move { read.await.unwrap().unwrap() })
                    })
                    .collect();
                let mut pages = Vec::new();
                for read in reads {
                    pages.extend(read.await.unwrap());
                }
                // A task that panics is an error there, too.
                let failed = runtime.spawn(|| async { panic!("as the test wants it") });
                assert!(failed.await.is_err());
                pages
            });
            assert!(pages == content, "{}", setup.name);
        }
    });
}

/// What tokio's tasks send our workers receive, and the other way round; both ends wait for each other,
/// and both notice when the other one goes.
#[test]
fn channels_between_tokio_and_workers() {
    within_limit(|| {
        for setup in setups(5) {
            let (runtime, tokio) = (setup.runtime(2, 8), tokio(2));
            for capacity in [1, 7] {
                let (to_worker, mut at_worker) = bounded::<u64>(capacity);
                let (to_tokio, mut at_tokio) = bounded::<u64>(capacity);
                let doubling = runtime.spawn(move || async move {
                    let mut count = 0;
                    while let Some(number) = at_worker.recv().await {
                        if number % 100 == 3 {
                            sleep(Duration::from_micros(200)).await;
                        }
                        to_tokio.send(2 * number).await.unwrap();
                        count += 1;
                    }
                    count
                });
                let sum = tokio.block_on(async {
                    for task in 0..4_u64 {
                        let to_worker = to_worker.clone();
                        ::tokio::spawn(async move {
                            for number in 0..250 {
                                if number % 50 == 7 {
                                    ::tokio::time::sleep(Duration::from_micros(300)).await;
                                }
                                to_worker.send(task * 250 + number).await.unwrap();
                            }
                        });
                    }
                    drop(to_worker);
                    let mut sum = 0;
                    while let Some(number) = at_tokio.recv().await {
                        sum += number;
                    }
                    sum
                });
                assert_eq!(sum, 1000 * 999, "{}", setup.name);
                assert_eq!(doubling.wait().unwrap(), 1000);
                let (sender, receiver) = bounded::<u64>(capacity);
                let sending = runtime.spawn(move || async move {
                    let mut sent = 0;
                    while sender.send(sent).await.is_ok() {
                        sent += 1;
                        yield_now().await;
                    }
                    sent
                });
                tokio.block_on(async move {
                    let mut receiver = receiver;
                    for expected in 0..20 {
                        assert_eq!(receiver.recv().await, Some(expected));
                    }
                });
                assert!(sending.wait().unwrap() >= 20);
            }
        }
    });
}

/// A reservation that a tokio task waits for is served when a worker gives memory back.
#[test]
fn memory_between_tokio_and_workers() {
    within_limit(|| {
        for setup in setups(5) {
            let (runtime, tokio) = (setup.runtime(1, 8), tokio(1));
            let ledger = Ledger::new(100);
            let held = ledger.try_reserve(80).unwrap();
            let holding = runtime.spawn(move || async move {
                sleep(Duration::from_millis(2)).await;
                drop(held);
            });
            let waited = tokio.block_on(async { ledger.reserve(60).await.unwrap().bytes() });
            assert_eq!(waited, 60);
            holding.wait().unwrap();
            assert_eq!(ledger.used(), 0);
        }
    });
}
