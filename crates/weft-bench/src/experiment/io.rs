//! What devices and memory give: Table 1 of the ADMS paper, on this machine.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use weft_buffer::{Devices, PageId, PageTable, StaticPool};
use weft_rt::io::{Access, Arena, File, IoBuf};
use weft_rt::{Boundary, MorselQueue, Runtime};

use crate::args::{IoArgs, distinct};
use crate::data;
use crate::dram;
use crate::error::BenchError;
use crate::fio::{self, FioJob};
use crate::harness::{self, Config, compare_with_blocking, configs};
use crate::report::{LatencyUs, Machine, Point};
use crate::resident;
use crate::scratch;
use crate::size_class::SizeClass;

/// I/O depths where none are given.
const DEPTHS: [u32; 5] = [1, 8, 32, 64, 128];

/// How the offsets of the reads follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// In order, each coroutine through a part of its own.
    Sequential,
    /// At random.
    Random,
    /// At random, through swips and the buffer pool, with checksums verified.
    Swips,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
            Pattern::Swips => "random-swips",
        }
    }
}

/// One read target.
struct Device {
    /// What is read.
    path: PathBuf,
    /// The device in words.
    description: String,
    /// True if the file holds our pages, which swips can refer to.
    has_pages: bool,
}

/// What is measured in one point.
#[derive(Clone, Copy)]
struct Case {
    pattern: Pattern,
    class: SizeClass,
    config: Config,
}

/// What a run measured.
#[derive(Clone)]
struct Run {
    driver: &'static str,
    seconds: f64,
    reads: u64,
    latency: LatencyUs,
}

/// Runs the sweep.
///
/// # Errors
/// [`BenchError`] if a file cannot be written or a device fails.
pub fn run(args: &IoArgs, machine: &Machine) -> Result<Vec<Point>, BenchError> {
    if args.device.driver.iter().any(|driver| driver.is_simulated()) {
        return Err(BenchError::Usage(
            "io measures devices and has nothing to say about simulated ones: use the drivers sim \
             and sim-blocking with scan and lookup"
                .to_owned(),
        ));
    }
    args.device.check()?;
    let mut points = Vec::new();
    let devices = args.device.directories(&args.common);
    for path in &devices {
        let device = device(path, args, machine, devices.len())?;
        points.extend(sweep(args, &device)?);
    }
    compare_with_blocking(&mut points);
    points.extend(memory(args)?);
    Ok(points)
}

/// The file to read in a directory, or the file or block device itself.
fn device(
    path: &Path,
    args: &IoArgs,
    machine: &Machine,
    devices: usize,
) -> Result<Device, BenchError> {
    let is_target = fs::metadata(path).is_ok_and(|found| !found.is_dir());
    let file = if is_target {
        path.to_path_buf()
    } else {
        scratch::file(path, args.size, args.common.seed)?
    };
    let description =
        if is_target || devices > 1 { path.display().to_string() } else { machine.device.clone() };
    Ok(Device { path: file, description, has_pages: !is_target })
}

fn cases(args: &IoArgs, device: &Device) -> Vec<Case> {
    let depths = args.device.depths(&DEPTHS);
    let configs = configs(&args.common, &args.device, &depths, &[Boundary::Weak]);
    let mut cases = Vec::new();
    for class in distinct(&args.page_size) {
        for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Swips] {
            if pattern == Pattern::Swips && (class != SizeClass::MIN || !device.has_pages) {
                continue;
            }
            cases.extend(configs.iter().map(|&config| Case { pattern, class, config }));
        }
    }
    cases
}

fn sweep(args: &IoArgs, device: &Device) -> Result<Vec<Point>, BenchError> {
    let cases = cases(args, device);
    let mut runs: Vec<Vec<Run>> = cases.iter().map(|_| Vec::new()).collect();
    let mut fio_runs: Vec<(FioJob, Vec<fio::FioResult>)> = Vec::new();
    require_memory(&cases)?;
    let bar = data::measuring("io", cases.len(), &args.common);
    for _ in 0..args.common.repeat {
        for (case, runs) in cases.iter().zip(&mut runs) {
            runs.push(measure(case, device, args)?);
            bar.inc(1);
            if args.device.fio {
                let job = fio_job(case, device, args.seconds);
                let at = fio_runs.iter().position(|(known, _)| *known == job);
                let at = at.unwrap_or_else(|| {
                    fio_runs.push((job.clone(), Vec::new()));
                    fio_runs.len() - 1
                });
                // One run of fio a round serves all cases that it is the measure of.
                if fio_runs[at].1.len() < runs.len() {
                    fio_runs[at].1.push(fio::run(&job)?);
                }
            }
        }
    }
    let mut points = Vec::new();
    for (case, runs) in cases.iter().zip(&mut runs) {
        let mut point = point(case, runs, device);
        let job = fio_job(case, device, args.seconds);
        if let Some((_, of_fio)) = fio_runs.iter().find(|(known, _)| *known == job) {
            let iops = dram::median(of_fio.iter().map(|result| result.iops));
            point.ratio_to_fio = point.iops.map(|ours| ours / iops);
        }
        points.push(point);
    }
    points.extend(fio_runs.iter().map(|(job, results)| fio_point(job, results, device)));
    Ok(points)
}

/// Checks that the buffers of the most demanding case fit the machine's memory.
fn require_memory(cases: &[Case]) -> Result<(), BenchError> {
    let bytes = |case: &Case| {
        let Config { threads, depth, .. } = case.config;
        u64::from(threads) * u64::from(depth) * case.class.bytes() as u64
    };
    resident::require(
        cases.iter().map(bytes).max().unwrap_or(0),
        "the reads in flight",
        "use a lower --depth, fewer --threads or a smaller --page-size",
    )
}

fn fio_job(case: &Case, device: &Device, seconds: f64) -> FioJob {
    FioJob {
        files: vec![device.path.clone()],
        block_bytes: case.class.bytes(),
        depth: case.config.depth,
        threads: case.config.threads,
        random: case.pattern != Pattern::Sequential,
        seconds,
    }
}

fn point(case: &Case, runs: &mut [Run], device: &Device) -> Point {
    runs.sort_by(|a, b| (a.reads as f64 / a.seconds).total_cmp(&(b.reads as f64 / b.seconds)));
    let run = &runs[runs.len() / 2];
    let iops = run.reads as f64 / run.seconds;
    let bytes = case.class.bytes() as u64;
    Point {
        pattern: Some(case.pattern.name().to_owned()),
        page_size: Some(bytes),
        repetitions: runs.len() as u32,
        seconds: run.seconds,
        iops: Some(iops),
        gb_per_s: Some(iops * bytes as f64 / 1e9),
        latency_us: Some(run.latency),
        reads: Some(run.reads),
        bytes_read: Some(run.reads * bytes),
        // There are no morsels.
        boundary: None,
        ..case.config.point("io", run.driver, &device.description)
    }
}

fn fio_point(job: &FioJob, results: &[fio::FioResult], device: &Device) -> Point {
    let mut results = results.to_vec();
    results.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    let result = results[results.len() / 2];
    Point {
        experiment: "io".to_owned(),
        pattern: Some(if job.random { "random" } else { "sequential" }.to_owned()),
        driver: "fio".to_owned(),
        device: device.description.clone(),
        threads: job.threads,
        depth: job.depth,
        page_size: Some(job.block_bytes as u64),
        repetitions: results.len() as u32,
        seconds: job.seconds,
        iops: Some(result.iops),
        gb_per_s: Some(result.gb_per_s),
        latency_us: Some(result.latency),
        ..Point::default()
    }
}

/// One run of a case: each worker keeps `depth` coroutines reading until the time is up.
fn measure(case: &Case, device: &Device, args: &IoArgs) -> Result<Run, BenchError> {
    let file = File::open(&device.path, Access::Read)?;
    let bytes = case.class.bytes() as u64;
    let pages = file.size()? / bytes;
    if pages == 0 {
        let path = device.path.display();
        return Err(BenchError::Usage(format!("{path} has no {bytes} bytes to read")));
    }
    let runtime = harness::runtime(&case.config, None)?;
    let readers = case.config.threads * case.config.depth;
    let reads = match case.pattern {
        Pattern::Swips => {
            let ids = (0..pages).map(|page| PageId::new(0, page * bytes, case.class.bytes()));
            let table = PageTable::new(ids);
            let pool = StaticPool::new(Devices::new(vec![file]), table, readers as usize)?;
            pool.register(&runtime);
            let pool = Arc::new(pool);
            run_readers(&runtime, case, args, move |reader, end| {
                fix_until(pool.clone(), reader, end)
            })?
        }
        Pattern::Sequential | Pattern::Random => {
            let (arena, buffers) =
                Arena::carve(readers as usize, case.class.bytes()).map_err(|source| {
                    BenchError::Io {
                        action: "map buffers to read into from",
                        path: device.path.clone(),
                        source,
                    }
                })?;
            runtime.register(&arena);
            let buffers = Mutex::new(buffers);
            let random = case.pattern == Pattern::Random;
            let cursor = Arc::new(AtomicU64::new(0));
            run_readers(&runtime, case, args, move |reader, end| {
                let mut buffers = buffers.lock().unwrap_or_else(PoisonError::into_inner);
                let buffer = buffers.pop().expect("a buffer per reader");
                let walk = if random {
                    Walk::random(reader.seed, pages)
                } else {
                    Walk::Sequential { cursor: cursor.clone(), pages }
                };
                read_until(file.clone(), buffer, walk, end, reader.latencies)
            })?
        }
    };
    Ok(reads)
}

/// One of the coroutines of a run.
struct Reader {
    /// A seed of its own.
    seed: u64,
    /// Where it notes its latencies.
    latencies: Rc<RefCell<Histogram<u64>>>,
}

/// Runs `threads · depth` readers, made by `make`, for some time.
fn run_readers<F, M>(
    runtime: &Runtime,
    case: &Case,
    args: &IoArgs,
    make: M,
) -> Result<Run, BenchError>
where
    F: Future<Output = Result<(), BenchError>> + 'static,
    M: Fn(Reader, Instant) -> F + Send + Sync + 'static,
{
    let readers = MorselQueue::new(u64::from(case.config.threads * case.config.depth), 1);
    let depth = u64::from(case.config.depth);
    let started: Vec<AtomicU64> = (0..runtime.workers()).map(|_| AtomicU64::new(0)).collect();
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(args.seconds);
    let seed = args.common.seed;
    let run = runtime.run_morsels(
        &case.config.morsel_options(),
        move |worker| {
            // Every worker gets its share of the readers, however fast the others start.
            if started[worker].fetch_add(1, Ordering::Relaxed) < depth {
                readers.next()
            } else {
                None
            }
        },
        |_| RefCell::new(new_histogram()),
        move |latencies, reader| make(Reader { seed: seed ^ reader.start, latencies }, end),
    );
    let mut all = new_histogram();
    for histogram in run.wait()? {
        all.add(histogram.into_inner()).expect("the histograms have the same bounds");
    }
    let us = |quantile| all.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Run {
        driver: runtime.driver(),
        seconds: start.elapsed().as_secs_f64(),
        reads: all.len(),
        latency: LatencyUs {
            p50: us(0.5),
            p90: us(0.9),
            p99: us(0.99),
            p999: us(0.999),
            max: all.max() as f64 / 1000.0,
        },
    })
}

/// Latencies from 100 ns to 100 s, to two digits.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 100_000_000_000, 2).expect("the bounds are valid")
}

/// Which page comes next.
enum Walk {
    Random { random: fastrand::Rng, pages: u64 },
    Sequential { cursor: Arc<AtomicU64>, pages: u64 },
}

impl Walk {
    fn random(seed: u64, pages: u64) -> Walk {
        Walk::Random { random: fastrand::Rng::with_seed(seed), pages }
    }

    fn next(&mut self) -> u64 {
        match self {
            Walk::Random { random, pages } => random.u64(..*pages),
            Walk::Sequential { cursor, pages } => cursor.fetch_add(1, Ordering::Relaxed) % *pages,
        }
    }
}

/// Reads pages one after the other until the time is up.
async fn read_until(
    file: File,
    mut buffer: IoBuf,
    mut walk: Walk,
    end: Instant,
    latencies: Rc<RefCell<Histogram<u64>>>,
) -> Result<(), BenchError> {
    let bytes = buffer.len() as u64;
    let mut now = Instant::now();
    while now < end {
        let (result, same) = file.read_exact(buffer, walk.next() * bytes).await;
        result?;
        buffer = same;
        now = note(&latencies, now);
    }
    Ok(())
}

/// Fixes pages one after the other until the time is up.
async fn fix_until(pool: Arc<StaticPool>, reader: Reader, end: Instant) -> Result<(), BenchError> {
    let mut walk = Walk::random(reader.seed, pool.table().len() as u64);
    let mut now = Instant::now();
    while now < end {
        drop(pool.fix(pool.table().swip(walk.next() as usize)).await?);
        now = note(&reader.latencies, now);
    }
    Ok(())
}

/// Notes the time since `start`; gives the time now.
fn note(latencies: &RefCell<Histogram<u64>>, start: Instant) -> Instant {
    let now = Instant::now();
    latencies.borrow_mut().saturating_record((now - start).as_nanos() as u64);
    now
}

/// Memory, by the same measures.
fn memory(args: &IoArgs) -> Result<Vec<Point>, BenchError> {
    let mut points = Vec::new();
    for threads in args.common.threads() {
        let bandwidth = dram::measure(threads, args.common.repeat)?;
        let point = |pattern: &str, gb_per_s, ns_per_op| Point {
            experiment: "io".to_owned(),
            pattern: Some(pattern.to_owned()),
            driver: "memory".to_owned(),
            device: "DRAM".to_owned(),
            threads,
            depth: 1,
            repetitions: args.common.repeat,
            gb_per_s,
            ns_per_op,
            ..Point::default()
        };
        points.push(point("dram-sequential", Some(bandwidth.sequential_gb_per_s), None));
        points.push(point("dram-random", Some(bandwidth.random_gb_per_s), None));
        if threads == 1 {
            points.push(point("dram-latency", None, Some(bandwidth.latency_ns)));
        }
    }
    Ok(points)
}
