//! The options of `weft-bench all`, and what it consists of.

use clap::{Args, Parser};

use super::values::scale_factor;
use super::{BenchArgs, CommonArgs, Experiment, LookupArgs, ScanArgs};

/// `weft-bench all`.
#[derive(Args, Clone, Debug)]
pub struct AllArgs {
    /// Options of every experiment.
    #[command(flatten)]
    pub common: CommonArgs,

    /// TPC-H scale factor
    #[arg(long, default_value_t = 1.0, value_name = "SF", allow_negative_numbers = true, value_parser = scale_factor)]
    pub scale: f64,

    /// Compare with fio on the same files in the same minute (fio must be installed)
    #[arg(long)]
    pub fio: bool,
}

impl AllArgs {
    /// The experiments that it consists of.
    pub fn commands(&self) -> Vec<Experiment> {
        let fio = if self.fio { " --fio" } else { "" };
        let lines = [
            format!("io --depth 1,8,64,256 --seconds 0.4{fio}"),
            format!("scan --cached 0,20,40,60,80,90,100 --depth 16,64,128{fio}"),
            "scan --cached 60 --threads 1 --driver auto --depth 64 --boundary weak,hard".to_owned(),
            "lookup --cached 0,60,90,100 --depth 64,128,512".to_owned(),
            "scan --cached 0,60,90,100 --threads 1 --depth 128 --driver sim-blocking,sim"
                .to_owned(),
            "lookup --cached 0,60,90 --threads 1 --depth 64,512 --driver sim-blocking,sim"
                .to_owned(),
            "prefetch".to_owned(),
        ];
        lines.iter().map(|line| self.experiment(line)).collect()
    }

    /// The experiment of a command line, with the common options and the scale of this one.
    fn experiment(&self, line: &str) -> Experiment {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        let parsed = Line::try_parse_from(words).expect("the lines above are valid");
        let mut experiment = parsed.bench.experiment;
        let threads = experiment.common().threads.clone();
        let common = experiment.common_mut();
        *common = self.common.clone();
        if !threads.is_empty() {
            common.threads = threads;
        }
        if let Experiment::Scan(ScanArgs { table, .. })
        | Experiment::Lookup(LookupArgs { table, .. }) = &mut experiment
        {
            table.scale = self.scale;
        }
        experiment
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}
