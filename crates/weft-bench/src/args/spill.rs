//! The options of the benchmarks of operators that outgrow memory.

use std::path::PathBuf;

use clap::Args;

use super::values::scale_factor;
use super::{CommonArgs, cores, distinct};

/// `weft bench agg`, `weft bench join` and `weft bench sort`.
#[derive(Args, Clone, Debug)]
pub struct SpillArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// The database; created and loaded if needed [default: one of the scale in the data directory]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,

    /// Memory limit of the database, such as 16GB,1GB,512MB; a list sweeps [default: the database's]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub memory_limit: Vec<String>,
}

impl SpillArgs {
    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        let default = || self.common.data.join(format!("tpch-sf{}.weft", self.scale));
        self.db.clone().unwrap_or_else(default)
    }

    /// The thread counts to sweep: all cores if none are given.
    pub fn threads(&self) -> Vec<u32> {
        if self.common.threads.is_empty() { vec![cores()] } else { distinct(&self.common.threads) }
    }

    /// The limits to sweep, of which none is the database's own.
    pub fn limits(&self) -> Vec<Option<&str>> {
        match self.memory_limit.as_slice() {
            [] => vec![None],
            limits => limits.iter().map(|limit| Some(limit.as_str())).collect(),
        }
    }

    /// Where the database lies.
    pub(super) fn places(&self) -> Vec<PathBuf> {
        vec![self.database()]
    }
}
