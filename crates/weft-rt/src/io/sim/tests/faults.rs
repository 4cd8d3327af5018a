//! Faults come as scheduled, and the same ones from the same seed.

use std::io;

use super::super::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimMode, SimOptions};
use super::{disk, worker};
use crate::io::driver::Driver;

fn with(rule: FaultRule) -> SimOptions {
    SimOptions { faults: SimFaults::none().with(rule), ..SimOptions::testing(5) }
}

fn errno(result: io::Result<impl std::fmt::Debug>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn the_nth_request_fails() {
    for mode in [SimMode::Async, SimMode::Blocking] {
        for fault in [Fault::IO, Fault::INTERRUPTED, Fault::AGAIN, Fault::Error(libc::ENODEV)] {
            let options = with(FaultRule::nth(Operation::Write, 2, fault));
            let (disk, mut worker) = disk(SimOptions { mode, ..options });
            let file = disk.create("data", 4096).unwrap();
            for at in 0..5u8 {
                let before = worker.read(&file, 0, 4096).unwrap();
                let result = worker.write(&file, 0, &[at + 1; 4096]);
                let after = worker.read(&file, 0, 4096).unwrap();
                if at == 2 {
                    assert_eq!(Fault::Error(errno(result)), fault);
                    assert_eq!(before, after, "a failed write has no effect");
                } else {
                    assert_eq!(result.unwrap(), 4096);
                    assert_eq!(after, [at + 1; 4096]);
                }
            }
        }
    }
}

#[test]
fn a_failed_sync_makes_nothing_durable() {
    let rule = FaultRule::nth(Operation::Sync, 0, Fault::IO);
    let mut options = with(rule);
    options.faults.crash_odds.lost = 1.0;
    options.faults.crash_odds.torn = 0.0;
    let (disk, mut worker) = disk(options);
    let file = disk.create("data", 4096).unwrap();
    disk.sync_directory("").unwrap();
    worker.write(&file, 0, &[1; 4096]).unwrap();
    assert_eq!(errno(worker.sync(&file)), libc::EIO);
    let found = disk.crash(1);
    let mut worker = super::worker(&found, 0);
    assert_eq!(worker.read(&found.open("data").unwrap(), 0, 4096).unwrap(), [0; 4096]);
}

#[test]
fn short_transfers_are_whole_sectors() {
    let faults = SimFaults::none()
        .with(FaultRule::chance(Operation::Read, 1.0, Fault::Short))
        .with(FaultRule::chance(Operation::Write, 1.0, Fault::Short));
    let (disk, mut worker) = disk(SimOptions { faults, ..SimOptions::testing(5) });
    let file = disk.create("data", 8192).unwrap();
    let mut lengths = [0; 16];
    for _ in 0..200 {
        let written = worker.write(&file, 0, &[1; 4096]).unwrap();
        let read = worker.read(&file, 0, 4096).unwrap().len();
        for count in [written, read] {
            assert!(count > 0 && count < 4096 && count % 512 == 0, "{count}");
            lengths[count / 512] += 1;
        }
    }
    assert_eq!(lengths.iter().filter(|&&count| count > 0).count(), 7, "{lengths:?}");
    assert_eq!(worker.write(&file, 4096, &[2; 512]).unwrap(), 512, "one sector is not cut");
    disk.set_faults(SimFaults::none());
    assert_eq!(worker.read(&file, 4096 - 512, 512).unwrap(), [0; 512], "never written");
}

#[test]
fn one_bit_flips() {
    let (disk, mut worker) = disk(with(FaultRule::nth(Operation::Read, 1, Fault::BitFlip)));
    let file = disk.create("data", 4096).unwrap();
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let read = [0; 3].map(|_| ones(&worker.read(&file, 0, 4096).unwrap()));
    assert_eq!(read, [0, 1, 0]);
}

#[test]
fn a_full_disk_says_so() {
    let faults = SimFaults::none().disk_full_after(10 * 4096);
    let (disk, mut worker) = disk(SimOptions { faults, ..SimOptions::testing(5) });
    let file = disk.create("a", 4096).unwrap();
    assert_eq!(errno(disk.create("b", 10 * 4096)), libc::ENOSPC);
    worker.allocate(&file, 0, 8 * 4096).unwrap();
    worker.write(&file, 0, &[1; 8 * 4096]).unwrap();
    worker.write(&file, 8 * 4096, &[1; 4096]).unwrap();
    assert_eq!(errno(worker.write(&file, 9 * 4096, &[1; 8192])), libc::ENOSPC);
    worker.write(&file, 9 * 4096, &[1; 4096]).unwrap();
    assert_eq!(errno(worker.allocate(&file, 0, 11 * 4096)), libc::ENOSPC);
    assert_eq!(worker.write(&file, 0, &[2; 4096]).unwrap(), 4096, "what is allocated stays usable");
    assert_eq!(disk.allocated_bytes(), 10 * 4096);
    disk.remove("a").unwrap();
    disk.create("b", 10 * 4096).unwrap();
    disk.create("c", 0).unwrap();
    disk.rename("c", "b").unwrap();
    assert_eq!(disk.allocated_bytes(), 0, "a replaced file gives its space back");
}

#[test]
fn nothing_works_without_power() {
    let faults = SimFaults::none().crash_after_write(3);
    let (disk, mut worker) = disk(SimOptions { faults, ..SimOptions::testing(5) });
    let file = disk.create("a", 4096).unwrap();
    worker.write(&file, 0, &[1; 4096]).unwrap();
    worker.read(&file, 0, 4096).unwrap();
    worker.sync(&file).unwrap();
    let read = worker.start_read(&file, 0, 4096).unwrap();
    assert_eq!(errno(worker.write(&file, 0, &[2; 4096])), libc::EIO);
    assert_eq!(errno(worker.finish(read).0), libc::EIO, "it was in flight");
    assert_eq!(errno(worker.read(&file, 0, 4096)), libc::EIO);
    assert_eq!(errno(worker.sync(&file)), libc::EIO);
    assert_eq!(errno(disk.open("a")), libc::EIO);
    assert_eq!(errno(disk.create("b", 0)), libc::EIO);
    assert_eq!(errno(disk.list("")), libc::EIO);
    assert_eq!(errno(disk.sync_directory("")), libc::EIO);
}

/// What a busy worker saw: keys in their order, with results and times.
fn trace(seed: u64) -> Vec<String> {
    let faults = SimFaults::none()
        .with(FaultRule::chance(Operation::Read, 0.1, Fault::AGAIN))
        .with(FaultRule::chance(Operation::Write, 0.1, Fault::Short))
        .with(FaultRule::chance(Operation::Read, 0.2, Fault::BitFlip));
    let disk = SimDisk::new(SimOptions { faults, ..SimOptions::testing(seed) });
    let mut worker = worker(&disk, 0);
    let file = disk.create("data", 1 << 20).unwrap();
    let began = disk.now();
    let mut trace = Vec::new();
    for round in 0..20u64 {
        let keys: Vec<u32> = (0..20u64)
            .map(|at| match at % 3 {
                0 => worker.start_write(&file, at * 8192, &[round as u8; 8192]).unwrap(),
                _ => worker.start_read(&file, at * 8192, 8192).unwrap(),
            })
            .collect();
        worker.driver.flush().unwrap();
        for key in keys {
            let (result, buffer) = worker.finish(key);
            let sum = buffer.unwrap().iter().map(|&byte| u64::from(byte)).sum::<u64>();
            trace.push(format!("{key} {result:?} {sum} {:?}", disk.now() - began));
        }
    }
    trace.push(format!("{:?}", worker.order));
    trace
}

#[test]
fn the_seed_determines_everything() {
    for seed in 0..5 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
        assert_ne!(trace(seed), trace(seed + 1), "seed {seed}");
    }
}

#[test]
fn completions_are_reordered() {
    let reordered = |reorder: bool| {
        let mut options = SimOptions { reorder, ..SimOptions::testing(5) };
        options.model.jitter = 0.0;
        let (disk, mut worker) = disk(options);
        let file = disk.create("data", 1 << 20).unwrap();
        for at in 0..16 {
            worker.start_read(&file, at * 4096, 4096).unwrap();
        }
        worker.driver.flush().unwrap();
        // Let all of them become due before the first is reaped.
        while !worker.reap() {
            worker.driver.wait(Some(disk.now() + std::time::Duration::from_millis(1))).unwrap();
            let later = disk.now() + std::time::Duration::from_millis(1);
            disk.clock().advance_to(disk.clock().ns_of(later));
        }
        worker.order != (0..16).collect::<Vec<u32>>()
    };
    assert!(reordered(true));
    assert!(!reordered(false));
}

#[test]
fn faults_of_a_directory_spare_all_others() {
    let rule = FaultRule::nth(Operation::Write, 1, Fault::IO).in_directory("spill");
    let (disk, mut worker) = disk(with(rule));
    let spilled = disk.create_unnamed("base/spill/1").unwrap();
    for name in ["base/data", "spill", "spill/below/data"] {
        let other = disk.create(name, 4096).unwrap();
        for _ in 0..3 {
            worker.write(&other, 0, &[1; 4096]).unwrap();
        }
    }
    worker.write(&spilled, 0, &[1; 4096]).unwrap();
    assert_eq!(disk.requests_seen(), [1]);
    assert_eq!(errno(worker.write(&spilled, 0, &[1; 4096])), libc::EIO);
    worker.write(&spilled, 0, &[1; 4096]).unwrap();
    assert_eq!(disk.requests_seen(), [3]);
}

#[test]
fn files_without_names_count_while_they_are_open() {
    let faults = SimFaults::none().disk_full_after(3 * 4096);
    let (disk, mut worker) = disk(SimOptions { faults, ..SimOptions::testing(5) });
    let named = disk.create("data", 4096).unwrap();
    let unnamed = disk.create_unnamed("unnamed").unwrap();
    assert_eq!(disk.list("").unwrap(), [named.path()]);
    worker.write(&unnamed, 4096, &[1; 4096]).unwrap();
    assert_eq!(disk.allocated_bytes(), 3 * 4096);
    assert_eq!(errno(worker.write(&unnamed, 8192, &[1; 4096])), libc::ENOSPC);
    assert_eq!(errno(worker.write(&named, 4096, &[1; 4096])), libc::ENOSPC);
    drop(unnamed);
    assert_eq!(disk.allocated_bytes(), 4096);
    worker.write(&named, 4096, &[1; 4096]).unwrap();
}
