//! How points are measured: drivers and devices of a sweep, repetitions, medians.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_buffer::{Choice, Devices, PageTable as Swips, PoolStats, StaticCache, StaticPool};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{
    Fault, FaultRule, Operation, SimDisk, SimFaults, SimMode, SimModel, SimOptions,
};
use weft_rt::{Boundary, MorselOptions, Runtime, RuntimeOptions};

use crate::args::{CommonArgs, DeviceArgs, DriverName, SimArgs};
use crate::data;
use crate::error::BenchError;
use crate::report::Point;
use crate::resident;
use crate::tpch::PageTable;

/// One combination of the options that a sweep runs through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How requests reach the device.
    pub driver: DriverName,
    /// Workers.
    pub threads: u32,
    /// Morsel coroutines per worker.
    pub depth: u32,
    /// When the next morsel starts.
    pub boundary: Boundary,
}

/// Every combination that makes sense: the synchronous baselines have no depth.
pub fn configs(
    common: &CommonArgs,
    device: &DeviceArgs,
    depths: &[u32],
    boundaries: &[Boundary],
) -> Vec<Config> {
    let mut configs = Vec::new();
    for &driver in &device.driver {
        for threads in common.threads() {
            for &boundary in boundaries {
                for &depth in depths {
                    let (depth, boundary) =
                        if driver.is_blocking() { (1, Boundary::Weak) } else { (depth, boundary) };
                    let config = Config { driver, threads, depth, boundary };
                    if !configs.contains(&config) {
                        configs.push(config);
                    }
                }
            }
        }
    }
    configs
}

/// A device, real or simulated, with the table's pages on it.
pub struct Target {
    /// The drivers that reach it.
    kinds: Vec<DriverName>,
    disk: Option<SimDisk>,
    /// The device in words.
    pub description: String,
    /// The pages.
    pub pool: Arc<StaticPool>,
    /// Those of them that are permanent; `None` while it grows and if that failed.
    cache: Option<StaticCache>,
}

impl Target {
    /// The targets that a sweep's drivers need: at most one real, and one per simulated mode.
    ///
    /// # Errors
    /// [`BenchError`] if a file cannot be opened or memory is short, also for the fraction
    /// `cached_max` of the pages that is to be permanent later.
    pub fn all(
        table: &PageTable,
        device: &DeviceArgs,
        configs: &[Config],
        seed: u64,
        machine_device: &str,
        cached_max: f64,
    ) -> Result<Vec<Target>, BenchError> {
        require_memory(table, configs, cached_max)?;
        let mut targets: Vec<Target> = Vec::new();
        for config in configs {
            if targets.iter().any(|target| target.kinds.contains(&config.driver)) {
                continue;
            }
            let same_target = |other: &Config| {
                other.driver == config.driver
                    || !(other.driver.is_simulated() || config.driver.is_simulated())
            };
            let mine: Vec<&Config> = configs.iter().filter(|other| same_target(other)).collect();
            // A guard per coroutine, and a few to spare.
            let frames = mine.iter().map(|config| config.threads * (config.depth + 1)).max();
            let (devices, disk, description) = if config.driver.is_simulated() {
                let disk = sim_disk(&device.sim, config.driver, table.spec.class.bytes() as u64);
                let devices = data::simulated_devices(table, &disk)?;
                (devices, Some(disk), describe_sim(&device.sim))
            } else {
                (data::real_devices(table)?, None, machine_device.to_owned())
            };
            let pool = pool(devices, table, frames.unwrap_or(1) as usize)?;
            targets.push(Target {
                kinds: mine.iter().map(|config| config.driver).collect(),
                disk,
                description,
                cache: Some(StaticCache::new(pool.clone(), seed)),
                pool,
            });
        }
        Ok(targets)
    }

    /// The target of a driver.
    ///
    /// # Panics
    /// If [`Target::all`] was not told of the driver.
    pub fn of(targets: &mut [Target], driver: DriverName) -> &mut Target {
        let target = targets.iter_mut().find(|target| target.kinds.contains(&driver));
        target.expect("every driver has a target")
    }

    /// Workers for a run, with the pool's frames registered.
    ///
    /// # Errors
    /// [`BenchError::Runtime`] if the system refuses them.
    pub fn runtime(&self, config: &Config) -> Result<Runtime, BenchError> {
        let runtime = runtime(config, self.disk.as_ref())?;
        self.pool.register(&runtime);
        Ok(runtime)
    }

    /// True if the device is simulated.
    pub fn is_simulated(&self) -> bool {
        self.disk.is_some()
    }

    /// Makes further pages permanent.
    ///
    /// # Errors
    /// [`BenchError`] if a page cannot be read.
    ///
    /// # Panics
    /// If it failed before.
    pub fn grow_cache(&mut self, choice: Choice<'_>) -> Result<(), BenchError> {
        let driver = match &self.disk {
            Some(disk) => DriverKind::Sim(disk.clone()),
            None => DriverKind::Auto,
        };
        let options = RuntimeOptions { workers: 1, driver, ..RuntimeOptions::default() };
        let cache = self.cache.take().expect("the cache has not failed before");
        let grown = cache.grow(&Runtime::new(&options)?, choice);
        self.cache = Some(grown.map_err(|error| self.label(error.into()))?);
        Ok(())
    }

    /// Says of an error that it is a simulated device's, if it is.
    fn label(&self, error: BenchError) -> BenchError {
        match error {
            BenchError::Buffer(source) if self.is_simulated() => {
                BenchError::Simulated { device: self.description.clone(), source }
            }
            other => other,
        }
    }
}

/// Checks that copies for simulated devices, permanent pages and frames fit the machine's memory.
fn require_memory(
    table: &PageTable,
    configs: &[Config],
    cached_max: f64,
) -> Result<(), BenchError> {
    let page_bytes = table.spec.class.bytes() as u64;
    let pages = table.page_ids.len() as u64;
    let kinds = [DriverName::Sim, DriverName::SimBlocking];
    let is_used = |kind: &&DriverName| configs.iter().any(|config| config.driver == **kind);
    let copies = kinds.iter().filter(is_used).count() as u64;
    let targets = copies + u64::from(configs.iter().any(|config| !config.driver.is_simulated()));
    let in_flight = configs.iter().map(|c| u64::from(c.threads) * (u64::from(c.depth) + 1)).max();
    let permanent = (pages as f64 * cached_max).ceil() as u64;
    let pages_in_memory =
        copies * pages + targets * (permanent + in_flight.unwrap_or(0)).min(pages);
    resident::require(
        pages_in_memory * page_bytes,
        "the pages in memory and in flight",
        "use a smaller --scale, fewer drivers, a lower --cached, --depth or --threads",
    )
}

fn pool(devices: Devices, table: &PageTable, frames: usize) -> Result<Arc<StaticPool>, BenchError> {
    let swips = Swips::new(table.page_ids.iter().copied());
    Ok(Arc::new(StaticPool::new(devices, swips, frames)?))
}

/// Workers for a run.
///
/// # Errors
/// [`BenchError::Runtime`] if the system refuses them.
pub fn runtime(config: &Config, disk: Option<&SimDisk>) -> Result<Runtime, BenchError> {
    let driver = match config.driver {
        DriverName::Auto => DriverKind::Auto,
        DriverName::Uring => DriverKind::Uring,
        DriverName::Posix => DriverKind::Posix,
        DriverName::Blocking => DriverKind::Blocking,
        DriverName::Sim | DriverName::SimBlocking => {
            DriverKind::Sim(disk.expect("a simulated driver has a disk").clone())
        }
    };
    Ok(Runtime::new(&RuntimeOptions {
        workers: config.threads as usize,
        pin: config.threads <= crate::args::cores(),
        driver,
        io_depth: config.depth as usize,
    })?)
}

/// The simulated array that the options describe.
pub fn sim_disk(sim: &SimArgs, driver: DriverName, stripe_bytes: u64) -> SimDisk {
    let devices = sim.sim_devices as usize;
    // The latency given is that of 4 KiB, transfer included.
    let before_transfer = (sim.sim_latency - sim.transfer_us()).max(0.0);
    let model = SimModel {
        read_latency: Duration::from_secs_f64(before_transfer / 1e6),
        bandwidth_bytes_per_s: sim.device_bandwidth(),
        iops_max: sim.sim_iops * 1e6 / devices as f64,
        devices,
        ..SimModel::nvme_array()
    };
    let mode = if driver == DriverName::SimBlocking { SimMode::Blocking } else { SimMode::Async };
    let faults = sim.sim_error_after.map_or(SimFaults::none(), |n| {
        SimFaults::none().with(FaultRule::from(Operation::Read, n - 1, Fault::IO))
    });
    SimDisk::new(SimOptions { stripe_bytes, faults, ..SimOptions::benchmark(model, mode) })
}

/// The simulated array in words.
pub fn describe_sim(sim: &SimArgs) -> String {
    format!(
        "simulated array of {} SSDs, {} µs, {} GB/s",
        sim.sim_devices, sim.sim_latency, sim.sim_bandwidth
    )
}

/// The runs of one point.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    driver: &'static str,
    runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    seconds: f64,
    stats: PoolStats,
    resident_bytes: Option<u64>,
}

impl Runs {
    /// Runs `query` once on fresh workers; it also checks its answer.
    ///
    /// # Errors
    /// Those of the workers and of the query.
    pub fn measure(
        &mut self,
        target: &Target,
        config: &Config,
        query: impl FnOnce(&Runtime) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let runtime = target.runtime(config)?;
        self.driver = runtime.driver();
        resident::reset_peak();
        let before = target.pool.stats();
        let start = Instant::now();
        query(&runtime).map_err(|error| target.label(error))?;
        let seconds = start.elapsed().as_secs_f64();
        let after = target.pool.stats();
        self.runs.push(Run {
            seconds,
            stats: PoolStats {
                reads: after.reads - before.reads,
                shared: after.shared - before.shared,
            },
            resident_bytes: resident::peak_bytes(),
        });
        Ok(())
    }

    /// The point of these runs: everything but what the experiment alone knows.
    ///
    /// # Panics
    /// If there was no run.
    pub fn point(&mut self, experiment: &str, config: &Config, target: &Target) -> Point {
        self.runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        let run = self.runs[self.runs.len() / 2];
        let page_bytes = target.pool.page_bytes() as u64;
        Point {
            page_size: Some(page_bytes),
            repetitions: self.runs.len() as u32,
            seconds: run.seconds,
            seconds_min: Some(first.seconds),
            seconds_max: Some(last.seconds),
            bytes_read: Some(run.stats.reads * page_bytes),
            reads: Some(run.stats.reads),
            reads_shared: Some(run.stats.shared),
            resident_bytes_peak: run.resident_bytes,
            answer: Some("correct".to_owned()),
            ..config.point(experiment, self.driver, &target.description)
        }
    }
}

impl Config {
    /// How morsels are run.
    pub fn morsel_options(&self) -> MorselOptions {
        MorselOptions { boundary: self.boundary, ..MorselOptions::new(self.depth as usize) }
    }

    /// The part of a point that follows from the configuration.
    pub fn point(&self, experiment: &str, driver: &str, device: &str) -> Point {
        let boundary = match self.boundary {
            Boundary::Weak => "weak",
            Boundary::Hard => "hard",
        };
        Point {
            experiment: experiment.to_owned(),
            driver: driver.to_owned(),
            simulated: self.driver.is_simulated(),
            device: device.to_owned(),
            threads: self.threads,
            depth: self.depth,
            boundary: Some(boundary.to_owned()),
            ..Point::default()
        }
    }
}

/// Fills in each point's ratio to the blocking driver's on the same device under the same settings.
pub fn compare_with_blocking(points: &mut [Point]) {
    let rate = |point: &Point| point.lookups_per_s.or(point.gb_per_s);
    for index in 0..points.len() {
        let point = &points[index];
        if point.is_blocking() {
            continue;
        }
        let baseline = points.iter().find(|other| {
            other.is_blocking()
                && other.simulated == point.simulated
                && other.device == point.device
                && other.experiment == point.experiment
                && other.pattern == point.pattern
                && other.threads == point.threads
                && other.cached == point.cached
                && other.page_size == point.page_size
        });
        let ratio = baseline.and_then(|other| Some(rate(point)? / rate(other)?));
        points[index].ratio_to_blocking = ratio;
    }
}
