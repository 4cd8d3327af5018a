//! Our futures under other executors' wakers.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use weft_rt::io::{File, FileError, IoBuf};
use weft_rt::sync::block_on;
use weft_rt::{Batch, Boundary, prefetch, sleep, yield_now};

use crate::drivers::{pattern, setups, within_limit};

/// Polls only children that were woken, each with a waker of its own, as `FuturesUnordered` does.
struct JoinAll<'a> {
    children: Vec<(Option<BoxFuture<'a>>, Arc<Child>)>,
}

type BoxFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct Child {
    woken: AtomicBool,
    parent: std::sync::Mutex<Option<Waker>>,
}

impl Wake for Child {
    fn wake(self: Arc<Child>) {
        self.woken.store(true, Ordering::SeqCst);
        let parent = self.parent.lock().unwrap().clone();
        parent.expect("polled before").wake();
    }
}

impl<'a> JoinAll<'a> {
    fn new(children: impl IntoIterator<Item = BoxFuture<'a>>) -> Self {
        let children = children.into_iter().map(|future| {
            let child = Child { woken: AtomicBool::new(true), parent: Default::default() };
            (Some(future), Arc::new(child))
        });
        JoinAll { children: children.collect() }
    }
}

impl Future for JoinAll<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut left = false;
        for (future, child) in &mut self.children {
            *child.parent.lock().unwrap() = Some(context.waker().clone());
            let Some(running) = future else { continue };
            let waker = Waker::from(child.clone());
            if child.woken.swap(false, Ordering::SeqCst)
                && running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                *future = None;
            }
            left |= future.is_some();
        }
        if left { Poll::Pending } else { Poll::Ready(()) }
    }
}

async fn every_wait(file: &File, number: u64) {
    let bytes = [number; 8];
    let mut next = 0;
    let nested = Batch::new(3, Boundary::Weak, || {
        next += 1;
        let coroutine = async {
            yield_now().await;
            sleep(Duration::from_micros(50)).await;
            prefetch(&bytes[3]).await;
            file.read_exact(IoBuf::zeroed(4096), number % 8 * 4096).await.0?;
            Ok::<(), FileError>(())
        };
        (next <= 9).then_some(coroutine)
    });
    nested.await.unwrap();
    for _ in 0..100 {
        yield_now().await;
    }
    file.read_exact(IoBuf::zeroed(4096), 0).await.0.unwrap();
}

#[test]
fn combinators_with_wakers_of_their_own() {
    within_limit(|| {
        for setup in setups(8) {
            let file = setup.file("foreign", &pattern(1, 8 * 4096));
            let joined = setup.runtime(1, 8).block_on(move || async move {
                let children = (0..20).map(|number| {
                    let child: BoxFuture<'_> = Box::pin(every_wait(&file, number));
                    child
                });
                JoinAll::new(children).await;
            });
            joined.expect(setup.name);
        }
    });
}

#[test]
fn a_batch_needs_no_worker() {
    within_limit(|| {
        let sum = Cell::new(0);
        let mut next = 0;
        let batch = Batch::new(100, Boundary::Hard, || {
            next += 1;
            let (number, sum) = (next, &sum);
            let coroutine = async move {
                for _ in 0..number {
                    yield_now().await;
                }
                sum.set(sum.get() + number);
                Ok::<(), ()>(())
            };
            (next <= 1000).then_some(coroutine)
        });
        block_on(batch).unwrap();
        assert_eq!(sum.get(), 500_500);
    });
}

static WOKEN: AtomicUsize = AtomicUsize::new(0);

/// A waker without data, as executors with one global task have it.
fn global_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    fn wake(_: *const ()) {
        WOKEN.fetch_add(1, Ordering::SeqCst);
    }
    fn drop(_: *const ()) {}
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);
    // SAFETY: the functions use no data, so that they fulfil the contract on any thread.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

#[test]
fn a_waker_without_data_is_woken() {
    let waker = global_waker();
    let mut context = Context::from_waker(&waker);
    let mut yielding = pin!(yield_now());
    assert!(yielding.as_mut().poll(&mut context).is_pending());
    assert_eq!(WOKEN.load(Ordering::SeqCst), 1);
    assert!(yielding.poll(&mut context).is_ready());
}

/// A waker that is replaced may be the last to hold a future with a request in flight, which is
/// dropped then and there.
#[test]
fn a_replaced_waker_may_drop_a_transfer() {
    struct Holds(#[expect(dead_code, reason = "held to be dropped")] weft_rt::io::Transfer);
    // SAFETY: never leaves the worker that polls it.
    unsafe impl Send for Holds {}
    // SAFETY: as above.
    unsafe impl Sync for Holds {}
    impl Wake for Holds {
        fn wake(self: Arc<Holds>) {}
    }
    within_limit(|| {
        for setup in setups(8).into_iter().filter(|setup| setup.suspends()) {
            let file = setup.file("held", &pattern(1, 8 * 4096));
            let polled = setup.runtime(1, 8).block_on(move || async move {
                let read = || file.read(IoBuf::zeroed(4096), 0);
                let holding = || {
                    let mut held = read();
                    let mut noop = Context::from_waker(Waker::noop());
                    assert!(Pin::new(&mut held).poll(&mut noop).is_pending());
                    Waker::from(Arc::new(Holds(held)))
                };
                let (mut reading, mut sleeping) = (read(), Box::pin(sleep(Duration::from_secs(9))));
                for _ in 0..2 {
                    let waker = holding();
                    let mut context = Context::from_waker(&waker);
                    assert!(Pin::new(&mut reading).poll(&mut context).is_pending());
                    let waker = holding();
                    let mut context = Context::from_waker(&waker);
                    assert!(sleeping.as_mut().poll(&mut context).is_pending());
                }
                drop(sleeping);
                poll_fn(|context| Pin::new(&mut reading).poll(context)).await.0.unwrap();
            });
            polled.expect(setup.name);
        }
    });
}
