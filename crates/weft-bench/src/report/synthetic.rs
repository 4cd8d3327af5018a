//! Invented points of plausible shape, for tests and for looking at the figures. Nothing here was
//! measured, and nothing here is part of the product.

use super::{LatencyUs, OverTime, Point};

const DEVICE: &str = "synthetic demo data, 8 x SSD of 6 GB/s";

/// Throughput in units of one request: `requests` in flight saturate smoothly at `peak`.
fn saturate(requests: f64, per_request: f64, peak: f64) -> f64 {
    let linear = requests * per_request;
    linear / (1.0 + (linear / peak).powi(4)).powf(0.25)
}

fn base(experiment: &str, driver: &str, threads: u32, depth: u32) -> Point {
    let simulated = driver.starts_with("sim");
    Point {
        experiment: experiment.into(),
        driver: driver.into(),
        simulated,
        device: DEVICE.into(),
        threads,
        depth,
        scale: (experiment == "scan" || experiment == "lookup").then_some(10.0),
        repetitions: 5,
        seconds: 2.0,
        seconds_min: Some(1.94),
        seconds_max: Some(2.11),
        answer: Some("correct".into()),
        ..Point::default()
    }
}

/// One point of a scan.
fn scan(driver: &str, threads: u32, depth: u32, cached: f64, peak: f64) -> Point {
    let requests = f64::from(threads * depth);
    let device = saturate(requests, 0.17, peak);
    let memory = saturate(f64::from(threads), 5.2, 150.0);
    let wait = (1.0 - cached) / device;
    let work = 1.0 / memory;
    let time = if depth == 1 { wait + work } else { wait.max(work) + 0.15 * wait.min(work) };
    let optimum = (peak / (1.0 - cached).max(1e-9)).min(150.0);
    Point {
        cached: Some(cached),
        page_size: Some(65536),
        boundary: Some("weak".into()),
        gb_per_s: Some(1.0 / time),
        optimum_gb_per_s: Some(optimum),
        reads: Some((1e5 * (1.0 - cached)) as u64),
        bytes_read: Some((6.5e9 * (1.0 - cached)) as u64),
        ..base("scan", driver, threads, depth)
    }
}

/// One point of index lookups.
fn lookup(driver: &str, threads: u32, depth: u32) -> Point {
    let reads = saturate(f64::from(threads * depth), 2_600.0, 1.9e6);
    let rate = (reads / 0.4).min(f64::from(threads) * 480_000.0);
    Point {
        cached: Some(0.6),
        page_size: Some(4096),
        lookups_per_s: Some(rate),
        reads: Some(400_000),
        reads_shared: Some(1_200),
        ..base("lookup", driver, threads, depth)
    }
}

/// One point of plain reads.
fn io(pattern: &str, driver: &str, threads: u32, depth: u32, page_size: u64, peak: f64) -> Point {
    let size = page_size as f64;
    let latency = 70e-6 + size / 2.2e9;
    let rate = saturate(
        f64::from(threads * depth),
        size / latency / 1e9,
        peak * (size / 131072.0).min(1.0).sqrt(),
    );
    let wait = f64::from(threads * depth) * size / (rate * 1e9) * 1e6;
    Point {
        pattern: Some(pattern.into()),
        page_size: Some(page_size),
        gb_per_s: Some(rate),
        iops: Some(rate * 1e9 / size),
        latency_us: Some(LatencyUs {
            p50: wait,
            p90: wait * 1.4,
            p99: wait * 2.6,
            p999: wait * 7.0,
            max: wait * 31.0,
        }),
        ..base("io", driver, threads, depth)
    }
}

/// A run like the paper's: a server with eight simulated SSDs, every experiment.
pub fn paper_points() -> Vec<Point> {
    let thread_counts = [1, 2, 4, 8, 16, 32, 64, 128];
    let mut points = Vec::new();
    for pattern in ["sequential", "random"] {
        for page_size in [4096, 16384, 65536] {
            points.push(io(pattern, "sim-blocking", 4, 1, page_size, 48.0));
            let depths = [1, 2, 4, 8, 16, 32, 64, 128, 256];
            points.extend(depths.map(|depth| io(pattern, "sim", 4, depth, page_size, 48.0)));
        }
    }
    for (pattern, peak) in [("dram-sequential", 152.0), ("dram-random", 74.0)] {
        points.extend(thread_counts.map(|threads| Point {
            pattern: Some(pattern.into()),
            gb_per_s: Some(saturate(f64::from(threads), peak / 18.0, peak)),
            ..base("io", "memory", threads, 1)
        }));
    }
    for threads in thread_counts {
        let mut blocking = scan("sim-blocking", threads, 1, 0.6, 48.0);
        blocking.ratio_to_blocking = Some(1.0);
        points.push(blocking.clone());
        for depth in [4, 8, 16, 32, 64, 128] {
            let mut point = scan("sim", threads, depth, 0.6, 48.0);
            point.ratio_to_blocking = point.gb_per_s.zip(blocking.gb_per_s).map(|(a, b)| a / b);
            points.push(point);
        }
        points.push(lookup("sim-blocking", threads, 1));
        points.extend([16, 32, 64, 128, 256, 512].map(|depth| lookup("sim", threads, depth)));
    }
    for threads in [8, 32] {
        for tenth in 0..=10 {
            let cached = f64::from(tenth) / 10.0;
            points.push(scan("sim-blocking", threads, 1, cached, 48.0));
            points.push(scan("sim", threads, 128, cached, 48.0));
        }
    }
    points.extend(prefetch_points());
    points
}

/// A short run on one real SSD: one thread, two depths, few repetitions.
pub fn laptop_points() -> Vec<Point> {
    let real = |mut point: Point| {
        point.simulated = false;
        point.device = "synthetic demo data, 1 x SSD".into();
        point.repetitions = 1;
        point
    };
    let mut points = vec![
        scan("blocking", 1, 1, 0.6, 3.5),
        scan("uring", 1, 16, 0.6, 3.5),
        scan("uring", 1, 64, 0.6, 3.5),
        lookup("blocking", 1, 1),
        lookup("uring", 1, 64),
        lookup("posix", 1, 64),
    ];
    for driver in ["uring", "fio"] {
        points.extend([1, 8, 64].map(|depth| Point {
            ratio_to_fio: (driver == "uring").then_some(0.97),
            ..io("random", driver, 1, depth, 4096, 3.5)
        }));
    }
    points.push(io("random", "blocking", 1, 1, 4096, 3.5));
    points.into_iter().map(real).collect()
}

fn prefetch_points() -> Vec<Point> {
    let variant = |pattern: &str, depth: u32, ns_per_op: f64| Point {
        pattern: Some(pattern.into()),
        ns_per_op: Some(ns_per_op),
        ..base("prefetch", "memory", 1, depth)
    };
    let mut points = vec![variant("sequential", 1, 92.3), variant("prefetch, no switch", 1, 58.5)];
    for (batch, coroutines, by_hand) in [
        (1, 97.0, 93.0),
        (2, 58.0, 52.0),
        (4, 36.0, 32.0),
        (8, 27.2, 24.6),
        (16, 26.1, 23.9),
        (32, 28.8, 26.0),
    ] {
        points.push(variant("coroutines", batch, coroutines));
        points.push(variant("state machine by hand", batch, by_hand));
    }
    points
}

/// A point with every field set.
pub fn complete_point() -> Point {
    let latency = LatencyUs { p50: 73.0, p90: 90.0, p99: 140.0, p999: 400.0, max: 2100.0 };
    Point {
        query: Some(4),
        pattern: Some("sequential".into()),
        latency_us: Some(latency),
        iops: Some(32_000.0),
        lookups_per_s: Some(80_000.0),
        variant: Some("coro-mk".into()),
        compile: Some("always".into()),
        suspends: Some(true),
        batch: Some(8),
        probes_per_s: Some(5e6),
        workload: Some("tpcc".into()),
        warehouses: Some(16),
        suppliers: Some(100),
        isolation: Some("SI".into()),
        durable: Some(false),
        txn_per_s: Some(30_000.0),
        txn_per_processor_s: Some(31_000.0),
        new_orders_per_minute: Some(810_000.0),
        aborts: Some([("payment".into(), 12)].into()),
        frame_bytes: Some(632),
        ratio_to_naive: Some(2.5),
        ns_per_op: Some(31.0),
        ns_per_call: Some(9.0),
        allocations_per_call: Some(1.0),
        overhead_ns: Some(4.0),
        reads_shared: Some(3),
        processor_seconds: Some(1.5),
        ratio_to_blocking: Some(3.9),
        ratio_to_fio: Some(0.98),
        resident_bytes_peak: Some(1 << 30),
        resident_bytes_allowed: Some(1 << 31),
        decoded_gb_per_s: Some(9.0),
        rows: Some(1_000),
        bytes_written: Some(1 << 20),
        bytes_on_disk: Some(1 << 22),
        memory_limit: Some(1 << 30),
        spilled_bytes: Some(1 << 24),
        partition: Some("always".into()),
        spill_mode: Some("all".into()),
        spill_compression: Some("lz4".into()),
        io_bandwidth_limit: Some(100_000_000),
        spilled_bytes_raw: Some(1 << 25),
        spilled_by_scheme: Some([("lz4".into(), 1 << 24), ("off".into(), 1 << 24)].into()),
        spilled_partitions: Some(12),
        neighbour_bytes_per_s: Some(20_000_000),
        neighbour_from_s: Some(0.5),
        neighbour_to_s: Some(1.5),
        compress_ns: Some(1.4),
        decompress_ns: Some(0.4),
        over_time: Some(over_time(4)),
        ..scan("uring", 1, 64, 0.6, 6.0)
    }
}

/// So many samples of a run that reads, then spills what outgrows memory, and reads it back.
pub fn over_time(samples: usize) -> OverTime {
    let mut over_time = OverTime::default();
    for sample in 0..samples {
        let share = sample as f64 / samples as f64;
        over_time.seconds.push((sample + 1) as f64 * 0.1);
        over_time.cores.push(1.6 + 0.3 * (share * 20.0).sin());
        let bytes = ((share * 3.0).min(1.0) * 1e9) as u64;
        over_time.resident_bytes.push(bytes + (100 << 20));
        over_time.reserved_bytes.push(bytes);
        over_time.read_bytes_per_s.push(if share < 0.4 { 1.4e9 } else { 0.9e9 });
        let written = if (0.2..0.7).contains(&share) { 0.6e9 } else { 0.0 };
        over_time.written_bytes_per_s.push(written);
        let raw = written * (1.0 + 2.0 * share);
        over_time.spilled_raw_bytes_per_s.push(raw);
        for (scheme, share) in [("off", 1.0 - share), ("lz4", share)] {
            let of_scheme = over_time.spilled_by_scheme_bytes_per_s.entry(scheme.into());
            of_scheme.or_default().push(raw * share);
        }
    }
    over_time
}
