//! The model's speed, in virtual time; under the real clock only that nothing is too early.

use std::time::{Duration, Instant};

use super::super::{SimClock, SimDisk, SimMode, SimModel, SimOptions};
use super::{disk, worker};
use crate::io::driver::Driver;

fn virtual_options(model: SimModel) -> SimOptions {
    SimOptions { clock: SimClock::Virtual, ..SimOptions::benchmark(model, SimMode::Async) }
}

/// Requests per second of a closed loop of reads, `depth` at a time, one after the other.
fn reads_per_s(options: SimOptions, depth: usize, bytes: usize, count: usize) -> f64 {
    let (disk, mut worker) = disk(options);
    let file = disk.create("data", (count * bytes) as u64).unwrap();
    let began = disk.now();
    let mut started = 0;
    while worker.order.len() < count {
        while started < count && started - worker.order.len() < depth {
            worker.start_read(&file, (started * bytes) as u64, bytes).unwrap();
            started += 1;
        }
        worker.driver.wait(None).unwrap();
        worker.reap();
        worker.forget_done();
    }
    count as f64 / disk.now().duration_since(began).as_secs_f64()
}

fn assert_near(measured: f64, expected: f64, what: &str) {
    let ratio = measured / expected;
    assert!((0.98..=1.005).contains(&ratio), "{what}: {measured:.0} instead of {expected:.0}");
}

#[test]
fn throughput_follows_the_model() {
    let model = SimModel {
        read_latency: Duration::from_micros(100),
        write_latency: Duration::from_micros(100),
        bandwidth_bytes_per_s: 2e9,
        iops_max: 300_000.0,
        queue_depth: 64,
        jitter: 0.0,
        devices: 1,
        seed: 1,
    };
    for depth in [1, 4, 16, 32, 64, 200] {
        for bytes in [4096, 16384, 65536] {
            let by_latency = depth.min(model.queue_depth) as f64 / 100e-6;
            let by_bandwidth = model.bandwidth_bytes_per_s / bytes as f64;
            let expected = by_latency.min(by_bandwidth).min(model.iops_max);
            let measured = reads_per_s(virtual_options(model.clone()), depth, bytes, 4000);
            assert_near(measured, expected, &format!("depth {depth}, {bytes} bytes"));
        }
    }
}

#[test]
fn the_device_s_queue_is_the_limit() {
    let mut model = SimModel::nvme_array();
    (model.devices, model.queue_depth) = (1, 4);
    let measured = reads_per_s(virtual_options(model), 100, 4096, 5000);
    assert_near(measured, 4.0 / 73e-6, "4 of 100 at once");
}

#[test]
fn jitter_keeps_the_mean() {
    let model = SimModel { jitter: 0.3, devices: 1, ..SimModel::nvme_array() };
    let measured = reads_per_s(virtual_options(model), 1, 4096, 20_000);
    assert_near(measured, 1.0 / 73e-6, "with jitter");
}

#[test]
fn the_nvme_array_is_the_papers() {
    let options = || {
        let mut options = virtual_options(SimModel::nvme_array());
        options.stripe_bytes = 4096;
        options
    };
    assert_near(reads_per_s(options(), 1, 4096, 1000), 1.0 / 73e-6, "one read of 4 KiB");
    assert_near(reads_per_s(options(), 1024, 4096, 50_000), 8e6, "reads of 4 KiB");
    let options = || virtual_options(SimModel::nvme_array());
    let deep = reads_per_s(options(), 8 * 32, 64 << 10, 10_000) * 65536.0;
    assert_near(deep, 50e9, "bytes per second at 64 KiB");
    let shallow = reads_per_s(options(), 8 * 2, 64 << 10, 2000) * 65536.0;
    assert!(shallow < 20e9, "two requests per device do not saturate it: {shallow}");
}

#[test]
fn virtual_waits_end_at_the_deadline() {
    let model = SimModel { jitter: 0.0, ..SimOptions::testing(1).model };
    let (disk, mut worker) = disk(virtual_options(model));
    let file = disk.create("data", 4096).unwrap();
    let began = disk.now();
    let key = worker.start_read(&file, 0, 4096).unwrap();
    worker.driver.wait(Some(began + Duration::from_micros(30))).unwrap();
    assert_eq!(disk.now() - began, Duration::from_micros(30));
    worker.finish(key).0.unwrap();
    assert_eq!(disk.now() - began, Duration::from_micros(80));
}

#[test]
fn blocking_reads_take_virtual_time() {
    let options = SimOptions { mode: SimMode::Blocking, ..virtual_options(SimModel::nvme_array()) };
    let (disk, mut worker) = disk(options);
    let file = disk.create("data", 1 << 20).unwrap();
    let began = disk.now();
    for at in 0..100 {
        worker.read(&file, at * 4096, 4096).unwrap();
    }
    assert_eq!(disk.now() - began, Duration::from_micros(7300));
}

#[test]
fn real_reads_are_never_early() {
    for mode in [SimMode::Async, SimMode::Blocking] {
        let disk = SimDisk::new(SimOptions::benchmark(SimModel::nvme_array(), mode));
        let file = disk.create("data", 1 << 20).unwrap();
        let mut worker = worker(&disk, 0);
        let mut times: Vec<Duration> = (0..256)
            .map(|at| {
                let began = Instant::now();
                worker.read(&file, at * 4096, 4096).unwrap();
                began.elapsed()
            })
            .collect();
        times.sort();
        assert!(times[0] >= Duration::from_micros(73), "{:?}", times[0]);
        let (median, late) = (times[128], times[243]);
        println!("{mode:?}: a read of 73 µs took {median:?}, the 95th percentile {late:?}");
    }
}
