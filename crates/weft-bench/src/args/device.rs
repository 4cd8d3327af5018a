//! The options of the experiments that use a device, and of the simulated one.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::values::within;
use super::{CommonArgs, distinct};
use crate::error::BenchError;

/// Options of the experiments that use a device.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// I/O depth per thread: morsel coroutines, and so requests, in flight; a list sweeps. Blocking
    /// drivers have depth 1 [default: 64,128 for scan, 64,512 for lookup, 1,8,32,64,128 for io]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: Vec<u32>,

    /// How requests reach the device: blocking, uring, posix, auto, or a simulated array: sim,
    /// sim-blocking; a list sweeps, all interleaved in one run
    #[arg(long, value_delimiter = ',', default_value = "blocking,auto", value_name = "LIST")]
    pub driver: Vec<DriverName>,

    /// A directory on a further device; data is spread round-robin over all of them [default: the
    /// data directory]. For io also a file or block device, which is only read
    #[arg(long, value_name = "PATH")]
    pub device: Vec<PathBuf>,

    /// Compare with fio on the same files in the same minute (fio must be installed)
    #[arg(long)]
    pub fio: bool,

    /// The simulated array.
    #[command(flatten)]
    pub sim: SimArgs,
}

impl DeviceArgs {
    /// The directories that data is spread over.
    pub fn directories(&self, common: &CommonArgs) -> Vec<PathBuf> {
        if self.device.is_empty() { vec![common.data.clone()] } else { self.device.clone() }
    }

    /// The depths to sweep.
    pub fn depths(&self, default: &[u32]) -> Vec<u32> {
        if self.depth.is_empty() { default.to_vec() } else { distinct(&self.depth) }
    }

    /// Checks what the parser cannot: that devices exist, and that the simulated array can.
    ///
    /// # Errors
    /// [`BenchError::Usage`] with what to change.
    pub fn check(&self) -> Result<(), BenchError> {
        // A directory that is made up, say where a device is not mounted, would be on another device.
        if let Some(absent) = self.device.iter().find(|path| !path.exists()) {
            return Err(BenchError::Usage(format!(
                "--device {} does not exist; mount the device and create the directory, or name \
                 another one",
                absent.display()
            )));
        }
        let simulated = self.driver.iter().any(|driver| driver.is_simulated());
        if self.sim.sim_error_after.is_some() && !simulated {
            return Err(BenchError::Usage(
                "--sim-error-after makes a simulated disk fail; add --driver sim or sim-blocking"
                    .to_owned(),
            ));
        }
        let transfer = self.sim.transfer_us();
        if simulated && transfer > self.sim.sim_latency {
            return Err(BenchError::Usage(format!(
                "a read of 4 KiB cannot take {} µs: one of {} devices with {} GB/s in all transfers \
                 it in {transfer:.1} µs; raise --sim-latency or --sim-bandwidth",
                self.sim.sim_latency, self.sim.sim_devices, self.sim.sim_bandwidth
            )));
        }
        Ok(())
    }
}

/// The simulated array of the drivers `sim` and `sim-blocking`; by default that of the paper: eight
/// SSDs of 73 µs and 50 GB/s in all.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Simulated SSDs
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Simulated array")]
    pub sim_devices: u32,

    /// Latency of a 4 KiB read, in µs
    #[arg(long, default_value_t = 73.0, value_name = "µs", value_parser = within::<1, 1_000_000>, help_heading = "Simulated array")]
    pub sim_latency: f64,

    /// Bandwidth of the whole array, in GB/s
    #[arg(long, default_value_t = 50.0, value_name = "GB/s", value_parser = within::<1, 10_000>, help_heading = "Simulated array")]
    pub sim_bandwidth: f64,

    /// Reads per second of the whole array, in millions
    #[arg(long, default_value_t = 8.0, value_name = "M", value_parser = within::<1, 10_000>, help_heading = "Simulated array")]
    pub sim_iops: f64,

    /// Fail the N-th read of each simulated disk and all later ones with an I/O error, as a device that
    /// dies in the middle of a scan does; reads that fill the cache count too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Simulated array")]
    pub sim_error_after: Option<u64>,
}

impl SimArgs {
    /// Bytes per second of one device.
    pub fn device_bandwidth(&self) -> f64 {
        self.sim_bandwidth * 1e9 / f64::from(self.sim_devices)
    }

    /// How long one device transfers 4 KiB, in µs.
    pub fn transfer_us(&self) -> f64 {
        4096.0 / self.device_bandwidth() * 1e6
    }
}

/// A driver as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverName {
    /// io_uring where there is one, else threads.
    Auto,
    /// io_uring.
    Uring,
    /// Threads.
    Posix,
    /// Completes in place: the synchronous baseline.
    Blocking,
    /// A simulated array.
    Sim,
    /// The same, completing in place.
    SimBlocking,
}

impl DriverName {
    /// True for the synchronous baselines, whose depth is always one.
    pub fn is_blocking(self) -> bool {
        matches!(self, DriverName::Blocking | DriverName::SimBlocking)
    }

    /// True if the device is simulated.
    pub fn is_simulated(self) -> bool {
        matches!(self, DriverName::Sim | DriverName::SimBlocking)
    }
}

impl FromStr for DriverName {
    type Err = String;

    fn from_str(name: &str) -> Result<DriverName, String> {
        Ok(match name {
            "auto" => DriverName::Auto,
            "uring" => DriverName::Uring,
            "posix" => DriverName::Posix,
            "blocking" => DriverName::Blocking,
            "sim" => DriverName::Sim,
            "sim-blocking" => DriverName::SimBlocking,
            _ => {
                return Err("expected auto, uring, posix, blocking, sim or sim-blocking".into());
            }
        })
    }
}
