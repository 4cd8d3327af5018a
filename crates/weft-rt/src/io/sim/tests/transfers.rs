//! The right bytes, in every mode and under both clocks.

use std::thread;
use std::time::Duration;

use super::super::driver::SimDriver;
use super::super::{Placement, SimClock, SimDisk, SimMode, SimModel, SimOptions};
use super::{disk, worker};
use crate::io::conformance::{self, TempFile};
use crate::io::driver::Driver;

/// Every combination of clock, mode and volatility.
fn variants() -> Vec<SimOptions> {
    let mut variants = Vec::new();
    for clock in [SimClock::Virtual, SimClock::Real] {
        for mode in [SimMode::Async, SimMode::Blocking] {
            for volatile_writes in [false, true] {
                let options = SimOptions::testing(3);
                variants.push(SimOptions { clock, mode, volatile_writes, ..options });
            }
        }
    }
    variants
}

fn driver(disk: &SimDisk) -> SimDriver {
    SimDriver::new(disk.clone(), 0).unwrap()
}

#[test]
fn simulated_files_hold_the_right_bytes() {
    for options in variants() {
        let disk = SimDisk::new(options);
        let file = disk.create("data", 0).unwrap();
        conformance::check_bytes(driver(&disk), &file);
        conformance::check_vectored(driver(&disk), &disk.create("vectored", 0).unwrap());
    }
}

#[test]
fn the_systems_files_hold_the_right_bytes() {
    for options in variants() {
        let disk = SimDisk::new(options);
        let temp = TempFile::new();
        conformance::check_bytes(driver(&disk), &temp.create());
        conformance::check_vectored(driver(&disk), &TempFile::new().create());
        conformance::check_read_only_file(driver(&disk), &TempFile::new().create_and_reopen());
    }
}

impl TempFile {
    fn create_and_reopen(&self) -> crate::io::File {
        self.create();
        self.open_for_reading()
    }
}

#[test]
fn every_request_suspends() {
    let (disk, mut worker) = disk(SimOptions::testing(1));
    let file = disk.create("data", 8192).unwrap();
    let keys = [
        worker.start_read(&file, 0, 4096).unwrap(),
        worker.start_write(&file, 0, &[1; 4096]).unwrap(),
        worker.start_sync(&file).unwrap(),
    ];
    worker.driver.flush().unwrap();
    assert!(!worker.reap());
    assert_eq!(worker.driver.in_flight(), 3);
    for key in keys {
        worker.finish(key).0.unwrap();
    }
}

#[test]
fn polling_without_waiting_makes_progress() {
    let (disk, mut worker) = disk(SimOptions::testing(1));
    let file = disk.create("data", 8192).unwrap();
    let key = worker.start_read(&file, 0, 4096).unwrap();
    worker.driver.flush().unwrap();
    while !worker.is_done(key) {
        worker.reap();
    }
}

#[test]
fn a_full_driver_says_so() {
    for clock in [SimClock::Virtual, SimClock::Real] {
        let options = SimOptions { clock, in_flight_max: 8, ..SimOptions::testing(1) };
        let disk = SimDisk::new(options);
        conformance::check_full(driver(&disk), &disk.create("data", 0).unwrap(), 8);
    }
}

#[test]
fn a_waiting_driver_is_woken() {
    for options in variants() {
        let disk = SimDisk::new(options);
        conformance::check_notify(|| driver(&disk));
        conformance::check_deadline(driver(&disk));
    }
}

#[test]
fn a_wait_for_a_far_completion_ends_with_a_notification() {
    let model =
        SimModel { read_latency: Duration::from_secs(3600), ..SimOptions::testing(1).model };
    let disk = SimDisk::new(SimOptions::benchmark(model, SimMode::Async));
    let file = disk.create("data", 4096).unwrap();
    let mut worker = worker(&disk, 0);
    worker.start_read(&file, 0, 4096).unwrap();
    let notifier = worker.driver.notifier();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(20));
            notifier.notify();
        });
        worker.driver.wait(None).unwrap();
    });
    assert_eq!(worker.driver.in_flight(), 1, "dropping it must not wait for an hour either");
}

#[test]
fn dropping_it_finishes_what_is_in_flight() {
    for clock in [SimClock::Virtual, SimClock::Real] {
        for flushed in [false, true] {
            let options = SimOptions { clock, ..SimOptions::testing(1) };
            let (disk, mut first) = disk(options);
            let file = disk.create("data", 0).unwrap();
            for page in 0..64 {
                first.start_write(&file, page * 4096, &[page as u8 + 1; 4096]).unwrap();
            }
            if flushed {
                first.driver.flush().unwrap();
            }
            drop(first);
            let mut second = worker(&disk, 1);
            for page in 0..64 {
                let bytes = second.read(&file, page * 4096, 4096).unwrap();
                assert_eq!(bytes, [page as u8 + 1; 4096], "page {page}");
            }
        }
    }
}

#[test]
fn workers_share_a_disk() {
    for mode in [SimMode::Async, SimMode::Blocking] {
        let model = SimModel { devices: 4, ..SimOptions::testing(1).model };
        let disk = SimDisk::new(SimOptions::benchmark(model, mode));
        let file = disk.create_on("data", 0, Placement::striped(4, 4096)).unwrap();
        thread::scope(|scope| {
            for number in 0..4u64 {
                let (disk, file) = (&disk, &file);
                scope.spawn(move || {
                    let mut worker = worker(disk, number as usize);
                    let at = |page: u64| (page * 4 + number) * 4096;
                    let byte = |page: u64| (page * 4 + number) as u8;
                    let writes: Vec<u32> = (0..50)
                        .map(|page| {
                            worker.start_write(file, at(page), &[byte(page); 4096]).unwrap()
                        })
                        .collect();
                    for key in writes {
                        worker.finish(key).0.unwrap();
                    }
                    for page in 0..50 {
                        let bytes = worker.read(file, at(page), 4096).unwrap();
                        assert_eq!(bytes, [byte(page); 4096]);
                    }
                });
            }
        });
    }
}

#[test]
fn a_copy_slower_than_the_model_is_waited_for() {
    let model = SimModel {
        read_latency: Duration::ZERO,
        bandwidth_bytes_per_s: 1e15,
        ..SimOptions::testing(1).model
    };
    let disk = SimDisk::new(SimOptions::benchmark(model, SimMode::Async));
    let file = disk.create("data", 0).unwrap();
    let mut worker = worker(&disk, 0);
    worker.write(&file, 0, &vec![9; 1 << 20]).unwrap();
    for _ in 0..20 {
        let keys = [0; 8].map(|at| worker.start_read(&file, at, 1 << 20).unwrap());
        for key in keys {
            let (result, buffer) = worker.finish(key);
            assert_eq!(result.unwrap(), 1 << 20);
            assert!(buffer.unwrap().iter().all(|&byte| byte == 9));
        }
    }
    assert!(disk.late_copies() > 0);
}

#[test]
fn files_can_be_loaded() {
    let temp = TempFile::new();
    let bytes: Vec<u8> = (0..200_001u32).map(|at| (at * 7 / 3) as u8).collect();
    std::fs::write(&temp.0, &bytes).unwrap();
    let (disk, mut worker) = disk(SimOptions::testing(1));
    let file = disk.load_from("copy", &temp.0).unwrap();
    assert_eq!(file.size().unwrap(), bytes.len() as u64);
    assert_eq!(worker.read(&file, 0, 300_000).unwrap(), bytes);
}

#[test]
fn handles_of_another_disk_are_refused() {
    let (first, _) = disk(SimOptions::testing(1));
    let (_second, mut worker) = disk(SimOptions::testing(1));
    let file = first.create("data", 4096).unwrap();
    let error = worker.read(&file, 0, 4096).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
}

#[test]
fn writes_far_beyond_the_end_are_refused() {
    let (disk, mut worker) = disk(SimOptions::testing(1));
    let file = disk.create("data", 4096).unwrap();
    let error = worker.write(&file, u64::MAX - 4096, &[1; 4096]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    assert_eq!(disk.allocated_bytes(), 4096);
}
