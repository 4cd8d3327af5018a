//! Changed pages of the dynamic pool: they leave and come back, and end on the devices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_buffer::{BufferError, BufferPool, PageTable, SwipState};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults, SimOptions};
use weft_rt::yield_now;

use crate::drivers::{Setup, seeds, setups, within_limit};
use crate::mixed::{Pages, UNIT, for_each, fresh, give_back, pool_over, units};
use crate::pages::{NEVER, give_up_after};

/// The number in a page that tests count up.
fn count_in(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[16..24].try_into().unwrap())
}

/// Adds one to the count of a page, which others must not see half done.
async fn count_up(
    pool: &BufferPool,
    table: &Arc<PageTable>,
    number: usize,
) -> Result<(), BufferError> {
    let mut guard = pool.fix_exclusive(table, number).await?;
    let count = count_in(&guard);
    guard[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    yield_now().await;
    guard[16..24].copy_from_slice(&(count + 1).to_le_bytes());
    Ok(())
}

/// Pages are changed by many, leave and come back; some coroutines give up at any point, in the middle
/// of write-backs too. In the end every change is on the devices.
fn change_many(gives_up: bool, faults: impl Fn() -> SimFaults) {
    for seed in seeds("changes") {
        let failing = SimOptions { faults: faults(), ..SimOptions::testing(seed) };
        let with_faults = !failing.faults.rules.is_empty();
        let setups = if with_faults { vec![Setup::sim("failing", failing)] } else { setups(seed) };
        for setup in setups {
            const PAGES: usize = 60;
            let ledger = units(20);
            let pages = Pages::small(PAGES);
            let devices = pages.write_with(&setup, |page| page[16..24].fill(0));
            let pool = pool_over(devices.clone(), &ledger);
            let table = pages.table();
            let expected: Arc<[AtomicU64]> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
            let runtime = setup.runtime(3, 16);
            let shared = (pool.clone(), table.clone(), expected.clone());
            for_each(&runtime, 5, 800, move |number| {
                let (pool, table, expected) = shared.clone();
                let mut random = fastrand::Rng::with_seed(seed ^ number);
                async move {
                    let page = random.usize(..PAGES);
                    if random.bool() {
                        let polls = if gives_up { random.u32(..8) } else { NEVER };
                        match give_up_after(polls, pool.fix(&table, page)).await {
                            Some(Ok(guard)) => {
                                let count = count_in(&guard);
                                assert!(count < u64::MAX, "half a change");
                                yield_now().await;
                                assert_eq!(count, count_in(&guard), "changed under a guard");
                            }
                            Some(Err(error)) if !with_faults => return Err(error),
                            _ => {}
                        }
                    } else {
                        match count_up(&pool, &table, page).await {
                            Ok(()) => _ = expected[page].fetch_add(1, Ordering::Relaxed),
                            Err(error) if !with_faults => return Err(error),
                            Err(error) => assert!(error.to_string().contains("cannot write")),
                        }
                    }
                    if number % 200 == 100 && !gives_up && !with_faults {
                        pool.flush_all().await?;
                    }
                    Ok(())
                }
            });
            if let Some(disk) = &setup.disk {
                disk.set_faults(SimFaults::none());
            }
            let expected: Vec<u64> =
                expected.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            let shared = (pool.clone(), table.clone());
            let found = runtime.block_on(move || async move {
                let (pool, table) = shared;
                let mut counts = Vec::new();
                for number in 0..PAGES {
                    counts.push(count_in(&pool.fix(&table, number).await.unwrap()));
                }
                pool.flush_all().await.unwrap();
                counts
            });
            assert_eq!(found.unwrap(), expected, "{}", setup.name);
            let done = pool.cache_stats();
            println!("{}: {done:?}", setup.name);
            assert!(done.write_backs > 100 && done.evictions > 100);
            assert!(ledger.peak() <= ledger.limit());
            // What is on the devices, as a pool that has never seen it finds it.
            let fresh = fresh(devices, pages.table());
            let found = runtime.block_on(move || async move {
                let mut counts = Vec::new();
                for swip in fresh.table().swips() {
                    counts.push(count_in(&fresh.fix(swip).await.unwrap()));
                }
                counts
            });
            assert_eq!(found.unwrap(), expected, "{}: on the devices", setup.name);
            let before = pool.cache_stats().write_backs;
            give_back(&runtime, &pool, &table, &ledger);
            assert_eq!(pool.cache_stats().write_backs, before, "they were clean");
        }
    }
}

#[test]
fn changed_pages_survive_eviction() {
    within_limit(|| change_many(false, SimFaults::none));
}

#[test]
fn write_backs_that_are_given_up_lose_nothing() {
    within_limit(|| change_many(true, SimFaults::none));
}

#[test]
fn failed_writes_lose_nothing() {
    within_limit(|| {
        let some_fail =
            || SimFaults::none().with(FaultRule::chance(Operation::Write, 0.2, Fault::IO));
        change_many(true, some_fail);
    });
}

fn dead_writes() -> Setup {
    let dead = FaultRule::chance(Operation::Write, 1.0, Fault::IO);
    let faults = SimFaults::none().with(dead);
    Setup::sim("failing", SimOptions { faults, ..SimOptions::testing(1) })
}

/// A device that takes no writes: the error names page and device, the page stays in memory, and goes
/// when the device works again.
#[test]
fn a_page_that_cannot_be_written_stays() {
    within_limit(|| {
        let setup = dead_writes();
        let (ledger, pages) = (units(1), Pages::small(4));
        let pool = pool_over(pages.write(&setup), &ledger);
        let (table, runtime) = (pages.table(), setup.runtime(1, 8));
        let shared = (pool.clone(), table.clone());
        let disk = setup.disk.clone().unwrap();
        let run = runtime.block_on(move || async move {
            let (pool, table) = shared;
            pool.fix_exclusive(&table, 1).await.unwrap()[16..24].fill(9);
            for _ in 0..3 {
                let errors = [
                    pool.fix(&table, 2).await.map(drop).unwrap_err(),
                    pool.flush_all().await.unwrap_err(),
                    pool.shrink_to(0).await.unwrap_err(),
                ];
                for error in errors {
                    let error = error.to_string();
                    assert!(error.contains("cannot write the changed page of 4 KiB"), "{error}");
                    assert!(error.contains("device-1"), "{error}");
                }
                assert_eq!(count_in(&pool.fix(&table, 1).await.unwrap()), 0x0909_0909_0909_0909);
            }
            disk.set_faults(SimFaults::none());
            pages.assert_is(&pool.fix(&table, 2).await.unwrap(), 2);
            assert_eq!(table.swip(1).state(), SwipState::Cold(table.id(1)));
            assert_eq!(count_in(&pool.fix(&table, 1).await.unwrap()), 0x0909_0909_0909_0909);
            pool.cache_stats().write_backs
        });
        assert_eq!(run.unwrap(), 1);
        give_back(&runtime, &pool, &table, &ledger);
    });
}

/// As long as there are other pages to evict, nobody hears of one that cannot be written.
#[test]
fn readers_go_on_beside_a_page_that_cannot_be_written() {
    within_limit(|| {
        let setup = dead_writes();
        let (ledger, pages) = (units(5), Pages::small(40));
        let pool = pool_over(pages.write(&setup), &ledger);
        let (table, runtime) = (pages.table(), setup.runtime(1, 8));
        let shared = (pool.clone(), table.clone());
        let disk = setup.disk.clone().unwrap();
        let run = runtime.block_on(move || async move {
            let (pool, table) = shared;
            pool.fix_exclusive(&table, 1).await.unwrap()[16..24].fill(9);
            for page in (2..40).chain(2..40) {
                pages.assert_is(&pool.fix(&table, page).await.unwrap(), page);
            }
            assert!(matches!(table.swip(1).state(), SwipState::Hot(_)));
            disk.set_faults(SimFaults::none());
        });
        run.unwrap();
        give_back(&runtime, &pool, &table, &ledger);
    });
}

/// Readers come all the time, and there is always one: whoever wants the page alone gets it all the same.
#[test]
fn exclusive_guards_do_not_starve() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(5), Pages::small(4));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            let changed = Arc::new(AtomicU64::new(0));
            let shared = (pool.clone(), table.clone(), changed.clone());
            for_each(&runtime, 8, 8, move |number| {
                let (pool, table, changed) = shared.clone();
                async move {
                    if number == 5 {
                        for _ in 0..10 {
                            pool.fix_exclusive(&table, 2).await?[100] ^= 1;
                        }
                        changed.store(1, Ordering::Relaxed);
                        return Ok(());
                    }
                    // Some give up wanting the page alone, and then let the others in again.
                    let mut rounds = 0;
                    while changed.load(Ordering::Relaxed) == 0 {
                        let guard = pool.fix(&table, 2).await?;
                        for _ in 0..=number {
                            yield_now().await;
                        }
                        drop(guard);
                        rounds += 1;
                        if rounds % 7 == 0 {
                            drop(give_up_after(1, pool.fix_exclusive(&table, 2)).await);
                        }
                    }
                    Ok(())
                }
            });
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// All memory has changed pages that nobody uses; whoever reserves some gets it, on a worker or not, once
/// they are written.
#[test]
fn changed_pages_are_written_for_others() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(20), Pages::small(40));
            let devices = pages.write(&setup);
            let pool = pool_over(devices.clone(), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            for elsewhere in [false, true] {
                let shared = (pool.clone(), table.clone(), ledger.clone());
                let run = runtime.block_on(move || async move {
                    let (pool, table, ledger) = shared;
                    for page in 0..20 {
                        count_up(&pool, &table, page).await.unwrap();
                    }
                    if !elsewhere {
                        assert_eq!(ledger.reserve(15 * UNIT).await.unwrap().bytes(), 15 * UNIT);
                    }
                });
                run.unwrap();
                if elsewhere {
                    let reserved = weft_rt::sync::block_on(ledger.reserve(15 * UNIT)).unwrap();
                    assert!(pool.cache_stats().bytes_used <= 5 * UNIT, "{}", setup.name);
                    drop(reserved);
                }
            }
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}
