//! The theoretical optimum of a scan: the auxiliary line of the ADMS paper's Figure 7.
//!
//! With a fraction `c` of the pages in memory, the device has to deliver `1 - c` of the bytes and
//! the memory all of them. If both are busy all the time, the scan runs at
//! `min(device / (1 - c), memory)`: reading and processing overlap completely, and processing costs
//! nothing but the memory's bandwidth.

use std::sync::Arc;
use std::time::Instant;

use weft_buffer::StaticPool;
use weft_rt::io::{Arena, FileError, IoBuf};
use weft_rt::{Batch, Boundary, MorselQueue, Runtime};

use crate::args::{DriverName, SimArgs};
use crate::dram;
use crate::error::BenchError;
use crate::harness::{Config, Target, runtime};

/// Bytes in flight per thread while the device's bandwidth is measured.
const BYTES_IN_FLIGHT: usize = 16 << 20;

/// What devices and memory were measured to give.
pub struct Optimum {
    /// 10^9 bytes per second of memory, by threads.
    memory: Vec<(u32, f64)>,
    /// 10^9 bytes per second of the real device, a value per round, by threads.
    device: Vec<(u32, f64)>,
    /// 10^9 bytes per second that the simulated array is modelled to give.
    simulated_gb_per_s: f64,
}

impl Optimum {
    /// Measures memory for each number of threads.
    ///
    /// # Errors
    /// [`BenchError::Usage`] if there is too little memory.
    pub fn new(threads: &[u32], repeat: u32, sim: &SimArgs) -> Result<Optimum, BenchError> {
        let memory = threads
            .iter()
            .map(|&threads| Ok((threads, dram::measure(threads, repeat)?.sequential_gb_per_s)))
            .collect::<Result<_, BenchError>>()?;
        Ok(Optimum { memory, device: Vec::new(), simulated_gb_per_s: sim.sim_bandwidth })
    }

    /// Measures the real device, if one is in use, for each number of threads: a round.
    ///
    /// # Errors
    /// [`BenchError::File`] if it fails.
    pub fn measure_devices(
        &mut self,
        configs: &[Config],
        targets: &[Target],
    ) -> Result<(), BenchError> {
        let Some(target) = targets.iter().find(|target| !target.is_simulated()) else {
            return Ok(());
        };
        let bytes = target.pool.page_bytes();
        let depth = (BYTES_IN_FLIGHT / bytes).clamp(16, 512);
        let memory = &self.memory;
        for &(threads, _) in memory {
            if configs.iter().any(|config| config.threads == threads) {
                let config = Config {
                    driver: DriverName::Auto,
                    threads,
                    depth: depth as u32,
                    boundary: Boundary::Weak,
                };
                let runtime = runtime(&config, None)?;
                self.device.push((threads, read_all(&runtime, &target.pool, depth)?));
            }
        }
        Ok(())
    }

    /// The best throughput possible with the fraction `cached` in memory, 10^9 bytes per second.
    pub fn gb_per_s(&self, config: &Config, cached: f64) -> f64 {
        let of_threads = |values: &[(u32, f64)]| {
            dram::median(
                values.iter().filter(|(threads, _)| *threads == config.threads).map(|(_, v)| *v),
            )
        };
        let device = if config.driver.is_simulated() {
            self.simulated_gb_per_s
        } else {
            of_threads(&self.device)
        };
        (device / (1.0 - cached)).min(of_threads(&self.memory))
    }
}

/// Reads all pages of a pool's table without looking at them; 10^9 bytes per second.
fn read_all(runtime: &Runtime, pool: &Arc<StaticPool>, depth: usize) -> Result<f64, BenchError> {
    let bytes = pool.page_bytes();
    let queue = Arc::new(MorselQueue::new(pool.table().len() as u64, 1));
    let count = runtime.workers() * depth;
    let (arena, mut buffers) = Arena::carve(count, bytes).map_err(|error| {
        BenchError::Usage(format!("cannot map {} MiB of buffers: {error}", (count * bytes) >> 20))
    })?;
    runtime.register(&arena);
    let start = Instant::now();
    let tasks: Vec<_> = (0..runtime.workers())
        .map(|worker| {
            let (pool, queue) = (pool.clone(), queue.clone());
            let mut mine = buffers.split_off(buffers.len() - depth);
            runtime.spawn_on(worker, move || {
                Batch::new(depth, Boundary::Weak, move || {
                    Some(reader(pool.clone(), queue.clone(), mine.pop()?))
                })
            })
        })
        .collect();
    for task in tasks {
        task.wait()??;
    }
    Ok(pool.table().bytes() as f64 / start.elapsed().as_secs_f64() / 1e9)
}

async fn reader(
    pool: Arc<StaticPool>,
    queue: Arc<MorselQueue>,
    mut buffer: IoBuf,
) -> Result<(), FileError> {
    while let Some(pages) = queue.next() {
        let id = pool.table().id(pages.start as usize);
        let (result, same) = pool.devices().of(id).read_exact(buffer, id.offset()).await;
        result?;
        buffer = same;
    }
    Ok(())
}
