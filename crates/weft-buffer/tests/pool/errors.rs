//! Devices that fail, pages that are damaged, files that end too early.

use std::cell::RefCell;

use weft_buffer::{BufferError, StaticPool};
use weft_rt::io::FileError;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimFaults, SimOptions};
use weft_rt::{Batch, Boundary, Runtime};

use crate::drivers::{Setup, seeds, setups, within_limit};
use crate::pages::{assert_at_rest, assert_is, files, id, pool, pool_over};

/// What `count` coroutines get that fix the same page at once.
fn fix_all(
    runtime: &Runtime,
    pool: &std::sync::Arc<StaticPool>,
    number: usize,
    count: usize,
) -> Vec<Result<(), BufferError>> {
    let pool = pool.clone();
    let results = runtime.block_on(move || async move {
        let (results, mut started) = (RefCell::new(Vec::new()), 0);
        Batch::new(count, Boundary::Weak, || {
            started += 1;
            let (pool, results) = (&pool, &results);
            let part = async move {
                let result = pool.fix(pool.table().swip(number)).await;
                let result = result.map(|guard| assert_is(&guard, number));
                results.borrow_mut().push(result);
                Ok::<(), ()>(())
            };
            (started <= count).then_some(part)
        })
        .await
        .unwrap();
        results.into_inner()
    });
    results.unwrap()
}

fn failing(when: impl Fn(Fault) -> FaultRule, fault: Fault, seed: u64) -> Setup {
    let faults = SimFaults::none().with(when(fault));
    Setup::sim("failing", SimOptions { faults, ..SimOptions::testing(seed) })
}

#[test]
fn a_failed_read_is_the_loaders_error_only() {
    within_limit(|| {
        for seed in seeds("one failed read") {
            for fault in [Fault::IO, Fault::BitFlip] {
                let setup = failing(|fault| FaultRule::nth(Operation::Read, 0, fault), fault, seed);
                let pool = pool(&setup, 4, 8);
                let results = fix_all(&setup.runtime(1, 20), &pool, 3, 20);
                let failed: Vec<_> = results.iter().filter(|result| result.is_err()).collect();
                assert_eq!((results.len(), failed.len()), (20, 1), "{failed:?}");
                assert_eq!(pool.stats().reads, 2);
                assert_at_rest(&pool, 0);
            }
        }
    });
}

#[test]
fn a_dead_device_fails_everybody() {
    within_limit(|| {
        for seed in seeds("dead device") {
            for (fault, text) in [(Fault::IO, "cannot read"), (Fault::BitFlip, "is damaged")] {
                let always = |fault| FaultRule::chance(Operation::Read, 1.0, fault);
                let setup = failing(always, fault, seed);
                let pool = pool(&setup, 4, 3);
                let results = fix_all(&setup.runtime(2, 20), &pool, 3, 20);
                assert_eq!(results.len(), 20);
                for result in results {
                    let error = result.unwrap_err().to_string();
                    assert!(error.contains(text) && error.contains("device-1"), "{error}");
                }
                assert_at_rest(&pool, 0);
            }
        }
    });
}

#[test]
fn damaged_pages_are_named() {
    within_limit(|| {
        for setup in setups(2) {
            // Page 4 has a wrong bit; pages 1 and 3 were written to each other's places.
            let files = files(&setup, 6, |device, bytes| {
                if device == 0 {
                    bytes[2 * 4096 + 1234] ^= 4;
                } else {
                    let (first, second) = bytes.split_at_mut(4096);
                    first.swap_with_slice(&mut second[..4096]);
                }
            });
            let pool = pool_over(files, 6, 4);
            let runtime = setup.runtime(1, 8);
            for (number, text) in [(4, "checksum"), (1, "not the expected one"), (3, "expected")] {
                for result in fix_all(&runtime, &pool, number, 3) {
                    let error = result.unwrap_err();
                    let BufferError::Page { path, id: at, .. } = &error else { panic!("{error}") };
                    assert_eq!(*at, id(number));
                    assert!(path.ends_with(format!("device-{}", number % 2)));
                    let message = error.to_string();
                    let place = format!("byte {} of device {}", id(number).offset(), number % 2);
                    assert!(message.contains(&place), "{message}");
                    assert!(message.contains(text), "{message}");
                }
            }
            for number in [0, 2, 5] {
                fix_all(&runtime, &pool, number, 2).into_iter().for_each(Result::unwrap);
            }
            assert_at_rest(&pool, 0);
        }
    });
}

#[test]
fn truncated_files_are_named() {
    within_limit(|| {
        for setup in setups(3) {
            for len in [4096 + 1000, 4096] {
                let files = files(&setup, 4, |device, bytes| {
                    if device == 1 {
                        bytes.truncate(len);
                    }
                });
                let pool = pool_over(files, 4, 4);
                let runtime = setup.runtime(1, 8);
                for result in fix_all(&runtime, &pool, 3, 5) {
                    let error = result.unwrap_err();
                    let BufferError::Read(FileError::Truncated { path, offset, got, .. }) = &error
                    else {
                        panic!("{}: {error}", setup.name)
                    };
                    assert!(path.ends_with("device-1"), "{error}");
                    assert_eq!((*offset, *got), (4096, len as u64 - 4096), "{error}");
                }
                fix_all(&runtime, &pool, 1, 5).into_iter().for_each(Result::unwrap);
                assert_at_rest(&pool, 0);
            }
        }
    });
}
