//! Generated coroutines as futures: results, waits, panics, and what is dropped.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weft_jit::coroutine::{Callee, Found, MultiGet};
use weft_rt::memory::Ledger;

/// Counts how often it is dropped.
struct Guard<'a>(&'a Cell<usize>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Waits so many times.
async fn wait(mut times: u64) {
    poll_fn(|context| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn poll_once(future: Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn results_come_whether_calls_wait_or_not() {
    let ledger = Ledger::new(1 << 20);
    let code = MultiGet::new(&ledger).expect("code for this processor");
    assert!(ledger.used() > 0, "code counts");
    let dropped = Cell::new(0);
    let callee = Callee::new(|key| {
        let dropped = &dropped;
        async move {
            let _guard = Guard(dropped);
            wait(key % 3).await;
            [u64::from(key % 2 == 0), key * 10]
        }
    });
    for rounds in 1..4 {
        for count in [0, 1, 7, 128, 300] {
            dropped.set(0);
            let keys: Vec<u64> = (0..count).map(|key| key * rounds).collect();
            let mut results: Vec<Found> = vec![[9; 2]; keys.len()];
            let mut polls = 0;
            {
                let mut calls = pin!(code.call(&callee, &keys, &mut results));
                while poll_once(calls.as_mut()).is_pending() {
                    polls += 1;
                }
            }
            assert_eq!(polls, keys.iter().map(|key| key % 3).sum::<u64>());
            assert_eq!(dropped.get(), keys.len());
            let expected: Vec<Found> =
                keys.iter().map(|key| [u64::from(key % 2 == 0), key * 10]).collect();
            assert_eq!(results, expected);
        }
    }
}

#[test]
fn what_is_awaited_is_dropped_with_the_coroutine() {
    let code = MultiGet::new(&Ledger::new(1 << 20)).expect("code for this processor");
    let dropped = Cell::new(0);
    let callee = Callee::new(|key| {
        let dropped = &dropped;
        async move {
            let _guard = Guard(dropped);
            wait(if key == 5 { u64::MAX } else { 0 }).await;
            [1, key]
        }
    });
    let (keys, mut results) = ((0..10).collect::<Vec<u64>>(), [[0; 2]; 10]);
    drop(code.call(&callee, &keys, &mut results));
    assert_eq!(dropped.get(), 0, "it has not begun");
    let mut calls = Box::pin(code.call(&callee, &keys, &mut results));
    assert!(poll_once(calls.as_mut()).is_pending() && poll_once(calls.as_mut()).is_pending());
    assert_eq!(dropped.get(), 5);
    drop(calls);
    assert_eq!(dropped.get(), 6);
    assert_eq!((results[4], results[5]), ([1, 4], [0, 0]));
}

#[test]
fn panics_come_through() {
    let code = MultiGet::new(&Ledger::new(1 << 20)).expect("code for this processor");
    let dropped = Rc::new(Cell::new(0));
    let of_calls = dropped.clone();
    let callee = Callee::new(move |key| {
        let dropped = of_calls.clone();
        async move {
            let _guard = Guard(&dropped);
            wait(1).await;
            assert!(key < 3, "key {key} is too large");
            [1, key]
        }
    });
    let keys: Vec<u64> = (0..10).collect();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut results = [[0; 2]; 10];
        let mut calls = pin!(code.call(&callee, &keys, &mut results));
        while poll_once(calls.as_mut()).is_pending() {}
    }));
    let panic = result.expect_err("it panics");
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("key 3 is too large"));
    assert_eq!(dropped.get(), 4);
}
