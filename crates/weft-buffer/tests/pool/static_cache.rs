//! The static cache: which pages are permanent, and that they are the right ones.

use weft_buffer::static_cache::CacheError;
use weft_buffer::{BufferError, Choice, StaticCache, SwipState};
use weft_rt::{MorselOptions, MorselQueue};

use crate::drivers::{seeds, setups, within_limit};
use crate::pages::{assert_at_rest, assert_is, files, pool, pool_over};

const PAGES: usize = 200;

#[test]
fn the_chosen_fraction_is_permanent() {
    within_limit(|| {
        for seed in seeds("static cache") {
            let mut random = fastrand::Rng::with_seed(seed);
            let accesses: Vec<u32> = (0..PAGES).map(|_| random.u32(..1000)).collect();
            let total: u32 = accesses.iter().sum();
            for setup in setups(seed) {
                for by_accesses in [false, true] {
                    let runtime = setup.runtime(2, 32);
                    let pool = pool(&setup, PAGES, 64);
                    let mut cache = StaticCache::new(pool.clone(), seed);
                    let mut before = Vec::new();
                    for fraction in [0.0, 0.6, 0.3, 1.0] {
                        let choice = match by_accesses {
                            false => Choice::Pages(fraction),
                            true => Choice::Accesses(fraction, &accesses),
                        };
                        cache = cache.grow(&runtime, choice).unwrap();
                        let is_hot = |number: &usize| {
                            matches!(pool.table().swip(*number).state(), SwipState::Hot(_))
                        };
                        let hot: Vec<usize> = (0..PAGES).filter(is_hot).collect();
                        assert_eq!(
                            (hot.len(), hot.len() * 4096),
                            (cache.pages(), cache.bytes() as usize)
                        );
                        assert!(before.iter().all(|number| hot.contains(number)), "it only grows");
                        let served: u32 = hot.iter().map(|&number| accesses[number]).sum();
                        let served = f64::from(served) / f64::from(total);
                        match (by_accesses, fraction) {
                            (_, 0.3) => assert_eq!(hot, before, "it does not shrink"),
                            (false, _) => assert_eq!(hot.len() as f64, fraction * PAGES as f64),
                            // One page more than needed at most.
                            (true, _) => assert!((fraction..fraction + 0.02).contains(&served)),
                        }
                        before = hot;
                        read_everything(&runtime, &pool, cache.pages());
                    }
                }
            }
        }
    });
}

fn read_everything(
    runtime: &weft_rt::Runtime,
    pool: &std::sync::Arc<weft_buffer::StaticPool>,
    permanent: usize,
) {
    let queue = MorselQueue::new(PAGES as u64, 1);
    let before = pool.stats().reads;
    let shared = pool.clone();
    let run = runtime.run_morsels(
        &MorselOptions::new(32),
        move |_| queue.next(),
        |_| (),
        move |_, morsel| {
            let pool = shared.clone();
            async move {
                let number = morsel.start as usize;
                assert_is(&pool.fix(pool.table().swip(number)).await?[..], number);
                Ok::<(), BufferError>(())
            }
        },
    );
    run.wait().unwrap();
    assert_eq!(pool.stats().reads - before, (PAGES - permanent) as u64);
    assert_at_rest(pool, permanent);
}

#[test]
fn a_damaged_page_ends_the_caching() {
    within_limit(|| {
        for setup in setups(1) {
            let files = files(&setup, PAGES, |device, bytes| bytes[4096 * 30 + 100] ^= 1 << device);
            let pool = pool_over(files, PAGES, 8);
            let runtime = setup.runtime(2, 8);
            let cache = StaticCache::new(pool.clone(), 1);
            let error = cache.grow(&runtime, Choice::Pages(1.0)).err().expect("two are damaged");
            assert!(matches!(error, CacheError::Buffer(BufferError::Page { .. })), "{error}");
            assert!(error.to_string().contains("is damaged"), "{error}");
        }
    });
}

#[test]
fn fractions_out_of_range_are_refused() {
    for fraction in [-0.1, 1.1, f64::NAN] {
        let refused = std::panic::catch_unwind(|| {
            let setup = setups(1).pop().unwrap();
            let cache = StaticCache::new(pool(&setup, 10, 1), 1);
            cache.grow(&setup.runtime(1, 1), Choice::Pages(fraction)).map(|cache| cache.pages())
        });
        assert!(refused.is_err(), "{fraction}");
    }
}
