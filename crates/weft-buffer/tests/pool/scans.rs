//! Scans through the dynamic pool: they leave the pages that others want where they are.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use weft_buffer::{BufferPool, PageTable, SwipState};
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults, SimOptions};
use weft_rt::yield_now;

use crate::drivers::{Setup, seeds, setups, within_limit};
use crate::mixed::{Pages, UNIT, fix_all, for_each, give_back, pool_over, units};
use crate::pages::{NEVER, give_up_after};

fn scan(
    runtime: &weft_rt::Runtime,
    pool: &Arc<BufferPool>,
    (table, pages): (&Arc<PageTable>, &Pages),
    range: std::ops::Range<usize>,
    hint: bool,
) {
    let (pool, table, pages) = (pool.clone(), table.clone(), pages.clone());
    let first = range.start;
    for_each(runtime, 4, range.len() as u64, move |number| {
        let (pool, table, pages) = (pool.clone(), table.clone(), pages.clone());
        async move {
            let page = first + number as usize;
            let guard = if hint {
                pool.fix_for_scan(&table, page).await?
            } else {
                pool.fix(&table, page).await?
            };
            pages.assert_is(&guard, page);
            Ok(())
        }
    });
}

/// A hot set of more than a third of the memory, then a scan of sixteen times the memory: every hot page
/// is found where it was. Without the hint it is not, so the hint is what does it.
#[test]
fn the_hot_set_survives_a_scan() {
    within_limit(|| {
        for setup in setups(1) {
            for hint in [true, false] {
                // Twenty hot pages of 1 to 4 units, and pages of 1 to 8 units that are scanned.
                let sizes = (0..20).map(|number| number % 4 + 1);
                let pages = Pages::of(sizes.chain((0..500).map(|number| number % 8 + 1)));
                // The hot pages take 50 units. The rest is for eight pages that are in use at once, at most
                // 64 units, and for what two threads that look for room have in hand meanwhile.
                let ledger = units(140);
                let pool = pool_over(pages.write(&setup), &ledger);
                let (table, runtime) = (pages.table(), setup.runtime(2, 8));
                for _ in 0..3 {
                    fix_all(&runtime, &pool, &table, 0..20);
                }
                scan(&runtime, &pool, (&table, &pages), 20..520, hint);
                let before = pool.cache_stats();
                assert_eq!(before.misses, 520, "{}", setup.name);
                fix_all(&runtime, &pool, &table, 0..20);
                let found = pool.cache_stats().hits - before.hits;
                println!("{}: {found} of 20 hot pages found, hint: {hint}", setup.name);
                assert_eq!(found, if hint { 20 } else { 0 }, "{}", setup.name);
                give_back(&runtime, &pool, &table, &ledger);
            }
        }
    });
}

/// A page that a scan brought and somebody fixed again is one of the hot ones.
#[test]
fn a_scanned_page_that_is_fixed_again_becomes_hot() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(10), Pages::small(100));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            let shared = (pool.clone(), table.clone());
            let run = runtime.block_on(move || async move {
                let (pool, table) = shared;
                for number in 0..100 {
                    drop(pool.fix_for_scan(&table, number).await.unwrap());
                    if number == 4 {
                        drop(pool.fix(&table, 2).await.unwrap());
                    }
                }
                let hot = |number: &usize| matches!(table.swip(*number).state(), SwipState::Hot(_));
                (0..20).filter(hot).collect::<Vec<_>>()
            });
            assert_eq!(run.unwrap(), [2], "{}", setup.name);
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Pages of one size that were scanned long ago leave for those of another that are scanned now and
/// again: in the end the later ones are all in memory. Pages that were fixed long ago make some room.
#[test]
fn old_pages_make_room_for_a_scan() {
    within_limit(|| {
        for setup in setups(1) {
            for fixed_first in [false, true] {
                let sizes = (0..60).map(|_| 2).chain((0..10).map(|_| 6));
                let (ledger, pages) = (units(124), Pages::of(sizes));
                let pool = pool_over(pages.write(&setup), &ledger);
                let (table, runtime) = (pages.table(), setup.runtime(1, 8));
                scan(&runtime, &pool, (&table, &pages), 0..60, !fixed_first);
                for _ in 0..6 {
                    scan(&runtime, &pool, (&table, &pages), 60..70, true);
                }
                let hot = |page: &usize| matches!(table.swip(*page).state(), SwipState::Hot(_));
                let found = (60..70).filter(hot).count();
                let expected = if fixed_first { 2 } else { 10 };
                assert!(found >= expected, "{}: {found} pages, {fixed_first}", setup.name);
                give_back(&runtime, &pool, &table, &ledger);
            }
        }
    });
}

/// What a scan needs beside its pages comes and goes, of what the pool leaves: its frames serve other pages, and do not go back to the
/// system for that each time.
#[test]
fn frames_stay_while_others_take_and_give_memory() {
    within_limit(|| {
        for setup in setups(1) {
            let pages = Pages::of((0..600).map(|number| number % 4 + 1));
            let ledger = units(320);
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            let shared = (pool.clone(), table.clone(), ledger.clone());
            let scanned = runtime.block_on(move || async move {
                let (pool, table, ledger) = shared;
                for number in 0..600 {
                    let guard = pool.fix_for_scan(&table, number).await.unwrap();
                    let beside = ledger.try_reserve(6 * UNIT);
                    assert!(beside.is_some(), "page {number}");
                    drop((guard, beside));
                }
            });
            scanned.unwrap();
            let stats = pool.cache_stats();
            let (read, discarded) = (stats.bytes_read / UNIT, stats.bytes_discarded / UNIT);
            assert_eq!(read, 1500, "{}", setup.name);
            assert!(stats.bytes_used > 290 * UNIT, "{}", setup.name);
            assert!(discarded < 30, "{}: {discarded} units of {read} went back", setup.name);
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Memory that pages of one size had serves those of another, back and forth.
#[test]
fn memory_moves_between_sizes() {
    within_limit(|| {
        for setup in setups(1) {
            let sizes = (0..60).map(|_| 1).chain((0..20).map(|_| 30)).chain((0..20).map(|_| 7));
            let (ledger, pages) = (units(70), Pages::of(sizes));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            for hint in [true, false] {
                for range in [0..60, 60..80, 80..100, 0..60] {
                    scan(&runtime, &pool, (&table, &pages), range, hint);
                    assert!(ledger.used() <= ledger.limit());
                }
            }
            let before = pool.cache_stats().hits;
            scan(&runtime, &pool, (&table, &pages), 0..60, true);
            assert_eq!(pool.cache_stats().hits - before, 60, "all small pages fit");
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// A run of cold pages is one read per device and MiB; pages that are in memory are not read again, and
/// split the run.
#[test]
fn adjacent_pages_are_read_together() {
    within_limit(|| {
        for setup in setups(1) {
            // On each device: 30 pages of 1 unit, then 10 of 80 units.
            let sizes = std::iter::repeat_n(1, 60).chain(std::iter::repeat_n(80, 20));
            let (ledger, pages) = (units(3000), Pages::of(sizes));
            let pool = pool_over(pages.write(&setup), &ledger);
            // The pages of the first device, then those of the second.
            let order = |pages: &Pages| {
                let of = |device| (0..pages.len()).filter(move |number| number % 2 == device);
                of(0).chain(of(1)).collect::<Vec<_>>()
            };
            let numbers = order(&pages);
            let table = PageTable::new(numbers.iter().map(|&number| pages.ids[number]));
            let runtime = setup.runtime(1, 8);
            let shared = (pool.clone(), table.clone(), pages);
            let run = runtime.block_on(move || async move {
                let (pool, table, pages) = shared;
                let mut read = Vec::new();
                for range in [0..5, 0..30, 35..40, 0..80, 0..80] {
                    let guards = pool.fix_run_for_scan(&table, range.clone()).await.unwrap();
                    assert_eq!(guards.len(), range.len());
                    for (guard, page) in guards.iter().zip(range) {
                        pages.assert_is(guard, numbers[page]);
                    }
                    let done = pool.cache_stats();
                    read.push((done.reads, done.misses));
                }
                assert!(pool.fix_run_for_scan(&table, 7..7).await.unwrap().is_empty());
                read
            });
            // Three pages of 320 KiB make a MiB. Pages 30..35 go on until a MiB is full: 30 to 32.
            let expected = [(1, 5), (2, 30), (4, 35), (10, 80), (10, 80)];
            assert_eq!(run.unwrap(), expected, "{}", setup.name);
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Pages of a run that lie apart on one device, or in another order, are read by themselves.
#[test]
fn pages_that_lie_apart_are_not_read_together() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(100), Pages::small(40));
            let pool = pool_over(pages.write(&setup), &ledger);
            let numbers = [0, 4, 8, 10, 30, 28, 26, 1, 3];
            let table = PageTable::new(numbers.iter().map(|&number| pages.ids[number]));
            let runtime = setup.runtime(1, 8);
            let shared = (pool.clone(), table.clone());
            let run = runtime.block_on(move || async move {
                let (pool, table) = shared;
                let guards = pool.fix_run_for_scan(&table, 0..numbers.len()).await.unwrap();
                for (guard, number) in guards.iter().zip(numbers) {
                    pages.assert_is(guard, number);
                }
                pool.cache_stats().reads
            });
            // 8 and 10 are neighbours, and so are 1 and 3.
            assert_eq!(run.unwrap(), 7, "{}", setup.name);
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// A damaged page is an error that names it, whether it is fixed alone or in a run; the other pages of the
/// run are none the worse, and no memory is lost.
#[test]
fn damaged_pages_are_errors() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(100), Pages::small(20));
            let all: Vec<u8> = (0..20).step_by(2).flat_map(|number| pages.sealed(number)).collect();
            let mut bytes = all.clone();
            bytes[3 * 4096 + 1000] ^= 4;
            let pool = pool_over(vec![setup.file("damaged", &bytes)], &ledger);
            let table = PageTable::new((0..20).step_by(2).map(|number| pages.ids[number]));
            let runtime = setup.runtime(1, 8);
            let shared = (pool.clone(), table.clone());
            let run = runtime.block_on(move || async move {
                let (pool, table) = shared;
                for _ in 0..2 {
                    let errors = [
                        pool.fix_run_for_scan(&table, 0..10).await.map(drop).unwrap_err(),
                        pool.fix(&table, 3).await.map(drop).unwrap_err(),
                        pool.fix_exclusive(&table, 3).await.map(drop).unwrap_err(),
                    ];
                    for error in errors {
                        let error = error.to_string();
                        assert!(
                            error.contains("at byte 12288") && error.contains("checksum"),
                            "{error}"
                        );
                    }
                }
                assert_eq!(table.swip(3).state(), SwipState::Cold(table.id(3)));
                for page in [0, 1, 2, 4, 9] {
                    pages.assert_is(&pool.fix(&table, page).await.unwrap(), 2 * page);
                }
            });
            run.unwrap();
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Runs, single pages and changes of the same pages, with memory for a few runs only; some are given up,
/// and some reads fail.
#[test]
fn runs_are_right_under_contention() {
    within_limit(|| {
        for seed in seeds("runs") {
            let failing = FaultRule::chance(Operation::Read, 0.05, Fault::IO);
            let faults = SimFaults::none().with(failing);
            let faulty = SimOptions { faults, ..SimOptions::testing(seed) };
            for setup in setups(seed).into_iter().chain([Setup::sim("faulty", faulty)]) {
                let (ledger, pages) = (units(150), Pages::mixed(seed, 80, 10));
                let pool = pool_over(pages.write(&setup), &ledger);
                let (table, runtime) = (pages.table(), setup.runtime(3, 16));
                let shared = (pool.clone(), table.clone(), pages);
                let fails = setup.name == "faulty";
                for_each(&runtime, 6, 300, move |number| {
                    let (pool, table, pages) = shared.clone();
                    let mut random = fastrand::Rng::with_seed(seed ^ number);
                    async move {
                        let first = random.usize(..80);
                        let range = first..(first + random.usize(..10)).min(80);
                        let polls = if random.u8(..4) == 0 { random.u32(..9) } else { NEVER };
                        if random.u8(..4) == 0 {
                            match pool.fix_exclusive(&table, first).await {
                                Ok(mut guard) => guard.mark_dirty(),
                                Err(_) if fails => {}
                                Err(error) => return Err(error),
                            }
                            return Ok(());
                        }
                        let run = pool.fix_run_for_scan(&table, range.clone());
                        match give_up_after(polls, run).await {
                            Some(Ok(guards)) => {
                                yield_now().await;
                                assert_eq!(guards.len(), range.len());
                                for (guard, page) in guards.iter().zip(range) {
                                    pages.assert_is(guard, page);
                                }
                            }
                            Some(Err(error)) if !fails => return Err(error),
                            _ => {}
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

/// Two want a page alone each while others have guards on both: a scan of both does not wait for them, as
/// they may wait for its own guards.
#[test]
fn scans_do_not_wait_for_those_who_wait() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(10), Pages::small(4));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(1, 8));
            let shared = (pool.clone(), table.clone());
            let run = runtime.block_on(move || async move {
                let (pool, table) = shared;
                let guards =
                    [pool.fix(&table, 1).await.unwrap(), pool.fix(&table, 2).await.unwrap()];
                let mut waiting = [1, 2].map(|page| Box::pin(pool.fix_exclusive(&table, page)));
                let mut reading = Box::pin(pool.fix(&table, 1));
                poll_fn(|context| {
                    for change in &mut waiting {
                        assert!(change.as_mut().poll(context).is_pending());
                    }
                    assert!(reading.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                let run = pool.fix_run_for_scan(&table, 1..3).await.unwrap();
                drop((guards, run));
                for change in waiting {
                    change.await.unwrap().mark_dirty();
                }
                drop(reading.await.unwrap());
            });
            run.unwrap();
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}

/// Runs of half the memory each, many at a time: nobody waits for ever, and one that is too long is an
/// error.
#[test]
fn long_runs_take_turns() {
    within_limit(|| {
        for setup in setups(1) {
            let (ledger, pages) = (units(40), Pages::small(100));
            let pool = pool_over(pages.write(&setup), &ledger);
            let (table, runtime) = (pages.table(), setup.runtime(2, 16));
            let shared = (pool.clone(), table.clone(), pages);
            for_each(&runtime, 8, 100, move |number| {
                let (pool, table, pages) = shared.clone();
                async move {
                    let first = (number * 7 % 75) as usize;
                    let range = first..first + 25;
                    let guards = pool.fix_run_for_scan(&table, range.clone()).await?;
                    yield_now().await;
                    guards.iter().zip(range).for_each(|(guard, page)| pages.assert_is(guard, page));
                    Ok(())
                }
            });
            let shared = (pool.clone(), table.clone());
            let run = runtime.block_on(move || async move {
                let (pool, table) = shared;
                pool.fix_run_for_scan(&table, 0..41).await.map(drop).unwrap_err().to_string()
            });
            assert!(run.unwrap().contains(&(41 * UNIT).to_string()), "it names the bytes");
            give_back(&runtime, &pool, &table, &ledger);
        }
    });
}
