//! The dynamic pool: pages stay within the budget, whatever their sizes, and leave it as they should.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use weft_buffer::{BufferPool, Devices, PageId, PageTable, PoolOptions, SwipState};
use weft_rt::memory::Ledger;
use weft_rt::{sleep, yield_now};

use crate::drivers::{seeds, setups, within_limit};
use crate::mixed::{Pages, UNIT, fix_all, for_each, give_back, pool_over, units};
use crate::pages::{NEVER, give_up_after};

/// Ten times more pages than memory, of few sizes and of many; some fixes are given up, and somebody
/// else takes some of the ledger now and then.
#[test]
fn a_large_working_set_is_read_right_within_the_budget() {
    within_limit(|| {
        for seed in seeds("large working set") {
            for setup in setups(seed) {
                for units_max in [1, 24] {
                    let pages = Pages::mixed(seed, 160, units_max);
                    let ledger = Ledger::new(pages.bytes() / 10 + 20 * units_max as u64 * UNIT);
                    let pool = pool_over(pages.write(&setup), &ledger);
                    let (table, count) = (pages.table(), pages.len());
                    let runtime = setup.runtime(3, 16);
                    let shared = (pool.clone(), table.clone(), ledger.clone(), pages);
                    for_each(&runtime, 6, 400, move |number| {
                        let (pool, table, ledger, pages) = shared.clone();
                        let mut random = fastrand::Rng::with_seed(seed ^ number);
                        async move {
                            let operator = if number % 50 == 7 {
                                ledger.try_reserve(UNIT * random.u64(..20))
                            } else {
                                None
                            };
                            let page = random.usize(..count);
                            let polls = if random.u8(..4) == 0 { random.u32(..6) } else { NEVER };
                            let guard = if random.bool() {
                                give_up_after(polls, pool.fix(&table, page)).await
                            } else {
                                give_up_after(polls, pool.fix_for_scan(&table, page)).await
                            };
                            if let Some(guard) = guard {
                                let guard = guard?;
                                pages.assert_is(&guard, page);
                                yield_now().await;
                                pages.assert_is(&guard, page);
                                assert_eq!(guard.payload().len() + 16, table.id(page).bytes());
                            }
                            drop(operator);
                            Ok(())
                        }
                    });
                    let done = pool.cache_stats();
                    println!("{}: {done:?}", setup.name);
                    assert!(ledger.peak() <= ledger.limit());
                    assert!(done.bytes_used <= done.bytes_reserved);
                    assert!(done.bytes_reserved <= ledger.limit() && done.evictions > 0);
                    assert_eq!(done.write_backs, 0);
                    give_back(&runtime, &pool, &table, &ledger);
                }
            }
        }
    });
}

/// Memory for fewer pages than coroutines, for one even: they take turns, big pages and small ones.
#[test]
fn pages_in_use_are_waited_for() {
    within_limit(|| {
        for seed in seeds("pages in use") {
            for setup in setups(seed) {
                for (budget, units_max) in [(1, 1), (3, 1), (20, 20), (30, 20)] {
                    let pages = Pages::mixed(seed, 50, units_max);
                    let ledger = units(budget);
                    let pool = pool_over(pages.write(&setup), &ledger);
                    let table = pages.table();
                    let runtime = setup.runtime(2, 20);
                    let shared = (pool.clone(), table.clone(), pages);
                    for_each(&runtime, 20, 400, move |number| {
                        let (pool, table, pages) = shared.clone();
                        let mut random = fastrand::Rng::with_seed(seed ^ number);
                        async move {
                            let page = random.usize(..50);
                            let polls = if random.bool() { random.u32(..8) } else { NEVER };
                            let fix = pool.fix(&table, page);
                            if let Some(guard) = give_up_after(polls, fix).await {
                                let guard = guard?;
                                yield_now().await;
                                pages.assert_is(&guard, page);
                            }
                            Ok(())
                        }
                    });
                    assert!(ledger.peak() <= ledger.limit());
                    give_back(&runtime, &pool, &table, &ledger);
                }
            }
        }
    });
}

/// The ledger's memory is somebody else's at first; the pool gets it when it is given back.
#[test]
fn memory_of_others_is_waited_for() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(4), Pages::small(8));
            let pool = pool_over(pages.write(&setup), &ledger);
            let table = pages.table();
            let runtime = setup.runtime(1, 8);
            let operator = ledger.try_reserve(4 * UNIT).unwrap();
            let shared = (pool.clone(), table.clone());
            let fixed = runtime.block_on(move || async move {
                let (pool, table) = shared;
                let mut fix = Box::pin(pool.fix(&table, 3));
                let waits = poll_fn(|context| Poll::Ready(fix.as_mut().poll(context).is_pending()));
                assert!(waits.await, "there is no memory");
                drop(operator);
                pages.assert_is(&fix.await.unwrap(), 3);
            });
            fixed.unwrap();
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Where there is plenty, memory comes by huge pages, for sizes that fill them and others; it goes like any other,
/// and comes back piece by piece.
#[test]
fn plenty_of_memory_comes_in_huge_pages() {
    within_limit(|| {
        for setup in setups(1) {
            for units in [1, 16, 20] {
                let pages = Pages::of((0..(11 << 20) / (units * UNIT as usize)).map(|_| units));
                let ledger = Ledger::new(32 << 20);
                let pool = pool_over(pages.write(&setup), &ledger);
                let (table, count) = (pages.table(), pages.len());
                let runtime = setup.runtime(3, 16);
                let pages = Arc::new(pages);
                let read = |pool: &Arc<BufferPool>| {
                    let shared = (pool.clone(), table.clone(), pages.clone());
                    for_each(&runtime, 6, count as u64, move |number| {
                        let (pool, table, pages) = shared.clone();
                        async move {
                            let guard = pool.fix(&table, number as usize).await?;
                            pages.assert_is(&guard, number as usize);
                            Ok(())
                        }
                    });
                };
                read(&pool);
                let done = pool.cache_stats();
                assert_eq!((done.evictions, done.reads), (0, count as u64), "{}", setup.name);
                // What was taken at once and is not used yet is less than a huge page for each worker.
                let idle = done.bytes_used - pages.bytes();
                assert!(idle > 0 && idle <= 4 << 21, "{done:?}");
                let operator = ledger.try_reserve(30 << 20).expect("the pool gives it back");
                read(&pool);
                drop(operator);
                read(&pool);
                assert!(ledger.peak() <= ledger.limit());
                give_back(&runtime, &pool, &table, &ledger);
            }
        }
    });
}

/// The pool has taken everything; others get what they reserve, at once or when guards go, and never
/// what the pool was to keep.
#[test]
fn others_get_memory_back() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(40), Pages::mixed(5, 100, 8));
            let options = PoolOptions { bytes_min: Some(10 * UNIT), bytes_max: Some(1 << 20) };
            let devices = Devices::new(pages.write(&setup));
            let pool = BufferPool::dynamic(devices, ledger.clone(), options).unwrap();
            let table = pages.table();
            let runtime = setup.runtime(1, 8);
            fix_all(&runtime, &pool, &table, 0..pages.len());
            assert!(ledger.used() > 32 * UNIT, "the pool takes what is free");
            let operator = ledger.try_reserve(30 * UNIT).expect("the pool gives it back at once");
            assert!(ledger.try_reserve(UNIT).is_none(), "the rest is the pool's to keep");
            fix_all(&runtime, &pool, &table, 0..pages.len());
            assert!(pool.cache_stats().bytes_used <= 10 * UNIT);
            drop(operator);
            fix_all(&runtime, &pool, &table, 0..pages.len());
            let (shared, table, budget) = (pool.clone(), table.clone(), ledger.clone());
            let run = runtime.block_on(move || async move {
                // All that fits is in use.
                let mut guards = Vec::new();
                let mut held = 0;
                for page in 0..pages.len() {
                    let bytes = table.id(page).bytes() as u64;
                    if held + bytes * 5 / 4 + 4 * UNIT < 40 * UNIT {
                        guards.push(shared.fix(&table, page).await.unwrap());
                        held += bytes;
                    }
                }
                assert!(held > 20 * UNIT, "{held}");
                let mut reserve = Box::pin(budget.reserve(30 * UNIT));
                let waits =
                    poll_fn(|context| Poll::Ready(reserve.as_mut().poll(context).is_pending()));
                assert!(waits.await, "the pages are in use");
                guards.pop();
                let waits =
                    poll_fn(|context| Poll::Ready(reserve.as_mut().poll(context).is_pending()));
                assert!(waits.await, "most of the pages are in use");
                drop(guards);
                // What the pool had came with the guards.
                reserve.await.unwrap().bytes()
            });
            assert_eq!(run.unwrap(), 30 * UNIT);
            assert!(ledger.peak() <= ledger.limit());
        }
    });
}

/// A lowered limit takes memory from the pool.
#[test]
fn a_lower_limit_is_obeyed() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(100), Pages::small(100));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            fix_all(&runtime, &pool, &table, 0..100);
            assert_eq!(ledger.used(), 100 * UNIT);
            ledger.set_limit(30 * UNIT);
            assert_eq!(ledger.used(), 30 * UNIT);
            fix_all(&runtime, &pool, &table, 0..100);
            assert_eq!(pool.cache_stats().bytes_used, 30 * UNIT);
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

#[test]
fn a_budget_below_one_page_is_an_error() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (Ledger::new(3 * UNIT), Pages::of([4, 2]));
            let pool = pool_over(pages.write(&setup), &ledger);
            let table = pages.table();
            let shared = (pool.clone(), table.clone());
            let runtime = setup.runtime(1, 8);
            let fixed = runtime.block_on(move || async move {
                let (pool, table) = shared;
                pages.assert_is(&pool.fix(&table, 1).await.unwrap(), 1);
                pool.fix(&table, 0).await.map(drop).unwrap_err().to_string()
            });
            assert!(fixed.unwrap().contains("raise memory_limit"));
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// A device that was never added is an error, and is none once it is.
#[test]
fn devices_are_added() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(10), Pages::small(4));
            let mut files = pages.write(&setup);
            let second = files.pop().unwrap();
            let pool = pool_over(files, &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            let shared = (pool.clone(), table.clone());
            let fixed = runtime.block_on(move || async move {
                let (pool, table) = shared;
                pages.assert_is(&pool.fix(&table, 2).await.unwrap(), 2);
                let error = pool.fix(&table, 3).await.map(drop).unwrap_err().to_string();
                assert!(error.contains("device 1") && error.contains("1 devices"), "{error}");
                assert_eq!(pool.add_device(second), Some(1));
                pages.assert_is(&pool.fix(&table, 3).await.unwrap(), 3);
            });
            fixed.unwrap();
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Two tables share the pool. One is dropped while pages of it are idle, guarded and being read; its
/// memory is free, or is as soon as the guards go, and the other table's pages stay.
#[test]
fn a_dropped_table_leaves_nothing() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(200), Pages::mixed(3, 40, 5));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (kept, dropped) = (pages.table(), pages.table());
            let runtime = setup.runtime(2, 8);
            fix_all(&runtime, &pool, &kept, 0..10);
            fix_all(&runtime, &pool, &dropped, 0..30);
            assert_eq!(pool.pages_in_memory(), 40);
            let (shared, others) = (pool.clone(), kept.clone());
            let run = runtime.block_on(move || async move {
                let guard = shared.fix(&dropped, 7).await.unwrap();
                shared.fix_exclusive(&dropped, 8).await.unwrap()[16] ^= 1;
                let alone = shared.fix_exclusive(&dropped, 9).await.unwrap();
                let mut reading = Box::pin(shared.fix(&dropped, 35));
                poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_ready())).await;
                drop(reading);
                drop(dropped);
                pages.assert_is(&guard, 7);
                pages.assert_is(&alone, 9);
                let (main, hits) = (shared.pages_in_memory(), shared.cache_stats().hits);
                drop((guard, alone));
                for page in 0..10 {
                    pages.assert_is(&shared.fix(&others, page).await.unwrap(), page);
                }
                assert_eq!(shared.cache_stats().hits - hits, 10, "the other table's pages left");
                for _ in 0..10_000 {
                    if shared.pages_in_memory() == 10 {
                        break;
                    }
                    sleep(std::time::Duration::from_micros(50)).await;
                }
                (main, shared.pages_in_memory(), shared.cache_stats().write_backs)
            });
            let (main, left, write_backs) = run.unwrap();
            assert!((12..=13).contains(&main), "{}: {main} pages", setup.name);
            assert_eq!((left, write_backs), (10, 0), "{}", setup.name);
            give_back(&runtime, &pool, &kept, &ledger);
        }
    });
}

/// Tables come and go while others read: nobody sees a page of another table or a frame in two hands.
#[test]
fn tables_come_and_go() {
    within_limit(|| {
        for seed in seeds("tables") {
            for setup in setups(seed) {
                let (ledger, pages) = (units(150), Pages::mixed(seed, 60, 12));
                let pool = pool_over(pages.write(&setup), &ledger);
                let (table, runtime) = (pages.table(), setup.runtime(3, 8));
                let shared = (pool.clone(), table.clone(), pages);
                for_each(&runtime, 4, 60, move |number| {
                    let (pool, lasting, pages) = shared.clone();
                    let mut random = fastrand::Rng::with_seed(seed ^ number);
                    async move {
                        let own = pages.table();
                        let mut guards = Vec::new();
                        for _ in 0..20 {
                            let page = random.usize(..60);
                            let table = if random.bool() { &own } else { &lasting };
                            let guard = pool.fix_for_scan(table, page).await?;
                            pages.assert_is(&guard, page);
                            if random.u8(..10) == 0 && guards.is_empty() {
                                guards.push((guard, page));
                            } else {
                                guards.clear();
                            }
                        }
                        drop(own);
                        for (guard, page) in guards {
                            yield_now().await;
                            pages.assert_is(&guard, page);
                        }
                        Ok(())
                    }
                });
                assert!(ledger.peak() <= ledger.limit());
                give_back(&runtime, &pool, &table, &ledger);
            }
        }
    });
}

/// Pool and guards may outlive each other, and the table both.
#[test]
fn guards_outlive_the_pool() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(50), Pages::mixed(7, 10, 4));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            let shared = (pool.clone(), table.clone());
            let guard = runtime.block_on(move || async move {
                let (pool, table) = shared;
                pool.fix(&table, 1).await.unwrap();
                pool.fix(&table, 2).await.unwrap()
            });
            let guard = guard.unwrap();
            drop(runtime);
            drop(pool);
            let elsewhere = std::thread::spawn(move || {
                pages.assert_is(&guard, 2);
                drop(guard);
            });
            elsewhere.join().unwrap();
            assert_eq!(ledger.used(), 0, "{}", setup.name);
            for number in 1..3 {
                assert_eq!(table.swip(number).state(), SwipState::Cold(table.id(number)));
            }
        }
    });
}

/// The pool goes while pages are read and written: the frames' memory outlives the requests, and the
/// ledger gets all of it back after the last of them.
#[test]
fn a_pool_may_be_dropped_during_reads_and_writes() {
    within_limit(|| {
        for setup in setups(1) {
            for _ in 0..5 {
                let (ledger, pages) = (units(16), Pages::small(64));
                let pool = pool_over(pages.write(&setup), &ledger);
                let table = pages.table();
                let runtime = setup.runtime(1, 64);
                let run = runtime.block_on(move || async move {
                    for number in 0..16 {
                        pool.fix_exclusive(&table, number).await.unwrap().mark_dirty();
                    }
                    let mut fixes: Vec<_> =
                        (8..40).map(|page| Box::pin(pool.fix(&table, page))).collect();
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
                assert_eq!(ledger.used(), 0, "{}", setup.name);
            }
        }
    });
}

#[test]
#[should_panic(expected = "another pool")]
fn a_table_belongs_to_one_pool() {
    let setup = setups(1).into_iter().find(|setup| setup.name == "sim").unwrap();
    let (ledger, pages) = (units(10), Pages::small(4));
    let files = pages.write(&setup);
    let (one, other) = (pool_over(files.clone(), &ledger), pool_over(files, &ledger));
    let (table, runtime) = (pages.table(), setup.runtime(1, 8));
    fix_all(&runtime, &one, &table, 0..1);
    let page: PageId = table.id(0);
    assert!(matches!(table.swip(0).state(), SwipState::Hot(_)), "{page:?}");
    let _: Arc<PageTable> = table.clone();
    other.try_fix(&table, 0);
}
