//! The spill area: what is written comes back, space is used again, limits and failures are clear, nothing is left.

use std::sync::Arc;

use weft_rt::Runtime;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
use weft_rt::io::{DriverKind, IoBuf};
use weft_rt::memory::Ledger;
use weft_store::spill::{HEADER_BYTES, SCALE, Scheme, SpillArea, Spilled};
use weft_store::{Directory, StoreError};

use crate::support::runtime;

const UNIT: usize = 4096;

fn simulated(seed: u64, faults: SimFaults) -> (Arc<Runtime>, Directory) {
    let disk = SimDisk::new(SimOptions { faults, ..SimOptions::testing(seed) });
    (runtime(DriverKind::Sim(disk.clone()), 4), Directory::Sim(disk, "spill".into()))
}

fn piece(bytes: usize, seed: u64) -> IoBuf {
    let mut buffer = IoBuf::zeroed(bytes);
    let mut random = fastrand::Rng::with_seed(seed);
    // Some can be compressed.
    let most = if random.bool() { u8::MAX } else { 3 };
    buffer[HEADER_BYTES..].fill_with(|| random.u8(..=most));
    buffer
}

async fn write(area: &SpillArea, bytes: usize, seed: u64) -> Result<Spilled, StoreError> {
    area.write(piece(bytes, seed), Scheme::Off, ()).await.unwrap().spilled
}

async fn check(spilled: &Spilled, seed: u64) {
    let read = spilled.read(IoBuf::zeroed(spilled.bytes())).await.unwrap();
    assert_eq!(read[HEADER_BYTES..], piece(spilled.bytes(), seed)[HEADER_BYTES..]);
}

/// Writes, reads and forgets pieces of many sizes at random on all workers.
fn exercise(runtime: &Arc<Runtime>, area: &SpillArea, rounds: usize, seed: u64) {
    let tasks: Vec<_> = (0..runtime.workers())
        .map(|worker| {
            let area = area.clone();
            runtime.spawn_on(worker, move || async move {
                let mut random = fastrand::Rng::with_seed(seed + worker as u64);
                let mut kept: Vec<(Spilled, u64)> = Vec::new();
                for _ in 0..rounds {
                    let together: Vec<_> = (0..random.usize(1..6))
                        .map(|_| {
                            let units = if random.u8(..) < 20 {
                                random.usize(17..200)
                            } else {
                                random.usize(1..17)
                            };
                            let seed = random.u64(..);
                            (
                                area.write(
                                    piece(units * UNIT, seed),
                                    SCALE[random.usize(..SCALE.len())].scheme,
                                    (),
                                ),
                                seed,
                            )
                        })
                        .collect();
                    for (written, seed) in together {
                        kept.push((written.await.unwrap().spilled.unwrap(), seed));
                    }
                    while kept.len() > 20 || !kept.is_empty() && random.bool() {
                        let (spilled, seed) = kept.swap_remove(random.usize(..kept.len()));
                        check(&spilled, seed).await;
                    }
                }
                for (spilled, seed) in kept {
                    check(&spilled, seed).await;
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.wait().unwrap());
    assert_eq!((area.stats().used_bytes, area.stats().file_bytes), (0, 0));
}

#[test]
fn pieces_come_back_from_all_drivers() {
    let seed = fastrand::u64(..1 << 60);
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    for driver in [DriverKind::Auto, DriverKind::Posix, DriverKind::Blocking] {
        let runtime = runtime(driver, 3);
        let paths = ["one", "two"].map(|name| directory.path().join(name));
        let area = SpillArea::new(paths.clone().map(Directory::Os).to_vec(), 1 << 40);
        exercise(&runtime, &area, 40, seed);
        for path in paths {
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "a file has a name");
        }
    }
    let faults = SimFaults::none()
        .with(FaultRule::chance(Operation::Write, 0.2, Fault::Short))
        .with(FaultRule::chance(Operation::Read, 0.2, Fault::Short))
        .with(FaultRule::chance(Operation::Write, 0.1, Fault::INTERRUPTED));
    let (runtime, directory) = simulated(seed, faults);
    let area = SpillArea::new(vec![directory], 1 << 40);
    exercise(&runtime, &area, 60, seed);
}

#[test]
fn space_is_used_again() {
    let (runtime, directory) = simulated(3, SimFaults::none());
    // A single step of growth.
    let area = SpillArea::new(vec![directory], 64 << 20);
    let of_task = area.clone();
    let work = move || async move {
        let mut kept = Vec::new();
        for round in 0..100 {
            kept.push(write(&of_task, 512 * UNIT, round).await.unwrap());
            if kept.len() > 20 {
                kept.remove(0);
            }
        }
        assert_eq!(of_task.stats().used_bytes, 20 * 512 * UNIT as u64);
        assert_eq!(of_task.stats().file_bytes, 64 << 20);
    };
    runtime.block_on(work).unwrap();
    assert_eq!(area.stats().file_bytes, 0);
    assert_eq!(area.stats().written_bytes, 100 * 512 * UNIT as u64);
}

#[test]
fn the_limit_is_an_error_of_who_writes_then() {
    let (runtime, directory) = simulated(4, SimFaults::none());
    let area = SpillArea::new(vec![directory], (10 * UNIT) as u64);
    let work = move || async move {
        let first = write(&area, 8 * UNIT, 1).await.unwrap();
        let error = write(&area, 3 * UNIT, 2).await.unwrap_err();
        assert!(matches!(error, StoreError::SpillLimit { limit_bytes: 40_960, .. }), "{error}");
        assert!(error.to_string().contains("raise max_temp_size"), "{error}");
        check(&first, 1).await;
        area.set_limit((11 * UNIT) as u64);
        let second = write(&area, 3 * UNIT, 2).await.unwrap();
        check(&second, 2).await;
        drop(first);
        let third = write(&area, 8 * UNIT, 3).await.unwrap();
        check(&third, 3).await;
    };
    runtime.block_on(work).unwrap();
}

/// One device may not grow, by the setting or because its disk is full, and the other has room.
#[test]
fn pieces_go_where_there_is_room() {
    let (runtime, directory) = simulated(8, SimFaults::none());
    let Directory::Sim(disk, _) = &directory else { unreachable!("it is simulated") };
    let other = Directory::Sim(disk.clone(), "other".into());
    let area = SpillArea::new(vec![directory, other], (10 * UNIT) as u64);
    let work = move || async move {
        let first = write(&area, 4 * UNIT, 1).await.unwrap();
        let second = write(&area, 4 * UNIT, 2).await.unwrap();
        // Of the first device, which has 2 units free then.
        drop(write(&area, 2 * UNIT, 3).await.unwrap());
        assert_eq!(area.stats().file_bytes, 10 * UNIT as u64);
        let third = write(&area, UNIT, 4).await.unwrap();
        let fourth = write(&area, UNIT, 5).await.unwrap();
        for (piece, seed) in [(&first, 1), (&second, 2), (&third, 4), (&fourth, 5)] {
            check(piece, seed).await;
        }
        let error = write(&area, UNIT, 6).await.unwrap_err();
        assert!(matches!(error, StoreError::SpillLimit { .. }), "{error}");
        let text = "needs 4 KiB more on disk, but the setting max_temp_size allows 40 KiB in all";
        assert!(error.to_string().contains(text), "{error}");
    };
    runtime.block_on(work).unwrap();
}

#[test]
fn temporary_directories_are_there_and_may_be_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for path in [directory.path().join("a").join("b"), file] {
        let error = weft_store::spill::temp_directory(&path).unwrap_err().to_string();
        let words = format!("the setting temp_directory is {}", path.display());
        assert!(error.contains(&words), "{error}");
    }
    weft_store::spill::temp_directory(directory.path()).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn full_disks_and_failing_devices_are_named() {
    let no_space = Fault::Error(28);
    for operation in [Operation::Allocate, Operation::Write] {
        for (fault, words) in [(no_space, "set temp_directory"), (Fault::IO, "spill")] {
            let faults = SimFaults::none().with(FaultRule::from(operation, 0, fault));
            let (runtime, directory) = simulated(5, faults);
            let area = SpillArea::new(vec![directory], 1 << 40);
            let of_task = area.clone();
            let work = move || async move { write(&of_task, UNIT, 1).await.unwrap_err() };
            let error = runtime.block_on(work).unwrap();
            assert!(error.to_string().contains(words), "{operation:?}: {error}");
            assert_eq!(error.is_disk_full(), fault == no_space, "{operation:?}: {error}");
            assert_eq!(area.stats().used_bytes, 0);
        }
    }
}

/// The last piece is given back while the file is being made longer, in vain.
#[test]
fn a_file_that_cannot_grow_is_forgotten_with_its_last_piece() {
    let faults = SimFaults::none().with(FaultRule::from(Operation::Allocate, 1, Fault::Error(28)));
    let (runtime, directory) = simulated(5, faults);
    let area = SpillArea::new(vec![directory], 1 << 40);
    let of_task = area.clone();
    let work = move || async move {
        let first = write(&of_task, UNIT, 1).await.unwrap();
        let large = of_task.write(IoBuf::zeroed((64 << 20) + UNIT), Scheme::Off, ());
        // No time passes meanwhile, by the simulated clock.
        for _ in 0..20 {
            weft_rt::yield_now().await;
        }
        drop(first);
        assert!(of_task.stats().file_bytes > 0, "it is being made longer");
        large.await.unwrap().spilled.unwrap_err()
    };
    let error = runtime.block_on(work).unwrap();
    assert!(error.is_disk_full(), "{error}");
    assert_eq!((area.stats().used_bytes, area.stats().file_bytes), (0, 0));
}

#[test]
fn damage_is_noticed() {
    let faults = SimFaults::none().with(FaultRule::from(Operation::Read, 0, Fault::BitFlip));
    let (runtime, directory) = simulated(6, faults);
    let area = SpillArea::new(vec![directory], 1 << 40);
    let work = move || async move {
        let spilled = write(&area, UNIT, 1).await.unwrap();
        let error = spilled.read(IoBuf::zeroed(UNIT)).await.unwrap_err();
        assert!(matches!(error, StoreError::SpillDamaged { offset: 0, .. }), "{error}");
    };
    runtime.block_on(work).unwrap();
}

/// Whoever waits for a write goes away: its place and what is held are free when it has ended, and not before.
#[test]
fn abandoned_writes_end_first() {
    let (runtime, directory) = simulated(7, SimFaults::none());
    let area = SpillArea::new(vec![directory], 1 << 40);
    let ledger = Ledger::new(1 << 20);
    let (of_task, budget) = (area.clone(), ledger.clone());
    let work = move || async move {
        for round in 0..50 {
            let held = budget.try_reserve(UNIT as u64).unwrap();
            drop(of_task.write(piece(UNIT, round), Scheme::Off, held));
            let kept = write(&of_task, UNIT, 1_000 + round).await.unwrap();
            check(&kept, 1_000 + round).await;
        }
        // The last ones may still be on their way.
        while of_task.stats().used_bytes > 0 || budget.used() > 0 {
            weft_rt::sleep(std::time::Duration::from_micros(50)).await;
        }
    };
    runtime.block_on(work).unwrap();
    assert_eq!((area.stats().file_bytes, ledger.used()), (0, 0));
}
