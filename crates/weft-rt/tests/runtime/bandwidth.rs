//! Devices that are made slower than they are.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use weft_rt::io::IoBuf;
use weft_rt::sleep;

use crate::drivers::{pattern, setups, within_limit};

const BYTES: usize = 1 << 20;

#[test]
fn transfers_keep_to_the_bandwidth() {
    within_limit(|| {
        for setup in setups(5) {
            let content = pattern(3, BYTES);
            let file = setup.file("slow", &content);
            let runtime = setup.runtime(2, 8);
            let read_twice = || {
                let began = Instant::now();
                let tasks = [0, 1].map(|worker| {
                    let file = file.clone();
                    runtime.spawn_on(worker, move || async move {
                        let (result, buffer) = file.read_exact(IoBuf::zeroed(BYTES), 0).await;
                        result.map(|_| buffer.to_vec())
                    })
                });
                for task in tasks {
                    assert!(task.wait().unwrap().unwrap() == content, "{}", setup.name);
                }
                began.elapsed()
            };
            runtime.limit_bandwidth(Some(20 << 20));
            let slow = read_twice();
            // A virtual clock goes on at once.
            if setup.disk.is_none() {
                assert!(slow >= Duration::from_millis(95), "{}: {slow:?}", setup.name);
            }
            let abandoned = file.clone();
            let dropped = runtime.block_on(move || async move {
                let mut read = pin!(abandoned.read(IoBuf::zeroed(BYTES), 0));
                let first = std::future::poll_fn(|context| {
                    Poll::Ready(read.as_mut().poll(context).is_pending())
                });
                let is_pending = first.await;
                sleep(Duration::from_millis(10)).await;
                let second = std::future::poll_fn(|context| {
                    Poll::Ready(read.as_mut().poll(context).is_pending())
                });
                (is_pending, second.await)
            });
            assert_eq!(dropped.unwrap(), (true, true), "{}: ends too early", setup.name);
            runtime.limit_bandwidth(None);
            read_twice();
        }
    });
}
