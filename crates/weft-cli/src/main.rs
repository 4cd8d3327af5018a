//! The `weft` binary.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weft_bench::args::BenchArgs;

/// A SQL database for data larger than memory on fast SSDs
#[derive(Parser)]
#[command(name = "weft", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what coroutines buy on this machine
    Bench(BenchArgs),
}

fn main() -> ExitCode {
    let environment = env_logger::Env::default().filter_or("WEFT_LOG", "warn");
    env_logger::Builder::from_env(environment).format_target(false).format_timestamp(None).init();
    let Cli { command: Command::Bench(args) } = Cli::parse();
    match weft_bench::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft: {error}");
            ExitCode::FAILURE
        }
    }
}
