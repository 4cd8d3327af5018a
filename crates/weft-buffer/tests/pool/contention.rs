//! Many coroutines, few frames.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_buffer::{BufferError, StaticGuard, StaticPool};
use weft_rt::{Batch, Boundary, MorselOptions, MorselQueue, sleep, yield_now};

use crate::drivers::{seeds, setups, within_limit};
use crate::pages::{NEVER, assert_at_rest, assert_is, give_up_after, pool};

/// Who uses which page at which address, and how often a page came into use.
struct Users {
    pages: Vec<Mutex<(usize, usize)>>,
    came: Mutex<u64>,
}

impl Users {
    fn new(pages: usize) -> Users {
        Users { pages: (0..pages).map(|_| Mutex::default()).collect(), came: Mutex::default() }
    }

    /// All who use a page at one time see it at one address: it was read once for all of them.
    fn enter(&self, number: usize, guard: &StaticGuard<'_>) {
        assert_is(guard, number);
        let mut page = self.pages[number].lock().unwrap();
        let (users, address) = &mut *page;
        if *users == 0 {
            *address = guard.as_ptr() as usize;
            *self.came.lock().unwrap() += 1;
        }
        assert_eq!(*address, guard.as_ptr() as usize, "page {number} is in memory twice");
        *users += 1;
    }

    fn leave(&self, number: usize, guard: StaticGuard<'_>) {
        assert_is(&guard, number);
        self.pages[number].lock().unwrap().0 -= 1;
        drop(guard);
    }
}

async fn pause(random: &mut fastrand::Rng) {
    match random.u8(..8) {
        0 => sleep(Duration::from_micros(random.u64(..30))).await,
        1..5 => yield_now().await,
        _ => {}
    }
}

/// Fixes two pages, one after the other or at once; may give up the second.
async fn visit(
    pool: &StaticPool,
    users: &Users,
    random: &mut fastrand::Rng,
    gives_up: bool,
) -> Result<(), BufferError> {
    let count = pool.table().len();
    // A few pages are wanted by many.
    let near = |random: &mut fastrand::Rng| {
        if random.bool() { random.usize(..3) } else { random.usize(..count) }
    };
    let (first, second) = (near(random), near(random));
    let guard = pool.fix(pool.table().swip(first)).await?;
    users.enter(first, &guard);
    pause(random).await;
    if random.bool() {
        users.leave(first, guard);
    } else {
        let fix = pool.fix(pool.table().swip(second));
        let polls = if gives_up { random.u32(..6) } else { NEVER };
        if let Some(other) = give_up_after(polls, fix).await {
            let other = other?;
            users.enter(second, &other);
            pause(random).await;
            users.leave(second, other);
        }
        users.leave(first, guard);
    }
    Ok(())
}

fn stress(gives_up: bool) {
    for seed in seeds("contention") {
        for setup in setups(seed) {
            let (workers, depth, pages) = (3, 24, 40);
            // Two for each coroutine, as it may hold one page while it fixes the other; given up
            // loads keep theirs for a while longer.
            let pool = pool(&setup, pages, 2 * workers * depth);
            let users = Arc::new(Users::new(pages));
            let runtime = setup.runtime(workers, depth);
            pool.register(&runtime);
            let queue = MorselQueue::new(1500, 1);
            let (shared, seen) = (pool.clone(), users.clone());
            let run = runtime.run_morsels(
                &MorselOptions::new(depth),
                move |_| queue.next(),
                |_| (),
                move |_, morsel| {
                    let (pool, users) = (shared.clone(), seen.clone());
                    let mut random = fastrand::Rng::with_seed(seed + morsel.start);
                    async move { visit(&pool, &users, &mut random, gives_up).await }
                },
            );
            run.wait().unwrap();
            drop(runtime);
            assert_at_rest(&pool, 0);
            let (stats, came) = (pool.stats(), *users.came.lock().unwrap());
            println!("{}: {stats:?}, came into use {came} times", setup.name);
            assert!(stats.reads > 0);
            if !gives_up {
                assert!(stats.reads <= came, "{}: {stats:?}, {came}", setup.name);
                assert!(!setup.suspends() || stats.shared > 0, "nobody ever waited");
            }
        }
    }
}

#[test]
fn random_pages_are_right_and_read_once() {
    within_limit(|| stress(false));
}

#[test]
fn loads_that_are_given_up_disturb_nobody() {
    within_limit(|| stress(true));
}

#[test]
fn one_read_however_many_want_the_page() {
    within_limit(|| {
        for setup in setups(1).into_iter().filter(|setup| setup.suspends()) {
            let pool = pool(&setup, 3, 4);
            let shared = pool.clone();
            let fixed = setup.runtime(1, 100).block_on(move || async move {
                let mut count = 0;
                Batch::new(100, Boundary::Weak, || {
                    count += 1;
                    let pool = &shared;
                    let fix = async move {
                        assert_is(&pool.fix(pool.table().swip(2)).await?[..], 2);
                        yield_now().await;
                        Ok::<(), BufferError>(())
                    };
                    (count <= 100).then_some(fix)
                })
                .await
            });
            fixed.unwrap().unwrap();
            let stats = pool.stats();
            assert_eq!((stats.reads, stats.shared), (1, 99), "{}", setup.name);
            assert_at_rest(&pool, 0);
        }
    });
}

/// One frame, a hundred coroutines on two workers, each wants another page: they take turns. Some
/// stop waiting for the frame.
#[test]
fn frames_are_waited_for() {
    within_limit(|| {
        for seed in seeds("frames are waited for") {
            for setup in setups(seed) {
                for frames in [1, 2, 5] {
                    let pool = pool(&setup, 100, frames);
                    let shared = pool.clone();
                    let queue = MorselQueue::new(600, 1);
                    let runtime = setup.runtime(2, 50);
                    let run = runtime.run_morsels(
                        &MorselOptions::new(50),
                        move |_| queue.next(),
                        |_| (),
                        move |_, morsel| {
                            let pool = shared.clone();
                            let mut random = fastrand::Rng::with_seed(seed + morsel.start);
                            async move {
                                let number = morsel.start as usize % 100;
                                let polls = if random.bool() { random.u32(..8) } else { NEVER };
                                let fix = pool.fix(pool.table().swip(number));
                                if let Some(guard) = give_up_after(polls, fix).await {
                                    assert_is(&guard?, number);
                                    pause(&mut random).await;
                                }
                                Ok::<(), BufferError>(())
                            }
                        },
                    );
                    run.wait().unwrap();
                    drop(runtime);
                    assert_at_rest(&pool, 0);
                }
            }
        }
    });
}
