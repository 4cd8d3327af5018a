//! Scans through the dynamic pool: they leave the pages that others want where they are.

use std::sync::Arc;

use weft_buffer::{BufferPool, PageTable, SwipState};

use crate::drivers::{setups, within_limit};
use crate::mixed::{Pages, fix_all, for_each, give_back, pool_over, units};

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

/// A hot set of half the memory, then a scan of twenty times the memory: every hot page is found where
/// it was. Without the hint it is not, so the hint is what does it.
#[test]
fn the_hot_set_survives_a_scan() {
    within_limit(|| {
        for setup in setups(1) {
            for hint in [true, false] {
                // Twenty hot pages of 1 to 4 units, and pages of 1 to 8 units that are scanned.
                let sizes = (0..20).map(|number| number % 4 + 1);
                let pages = Pages::of(sizes.chain((0..500).map(|number| number % 8 + 1)));
                let ledger = units(110);
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
