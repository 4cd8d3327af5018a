//! The `weft-bench` binary: the experiments.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use weft::{CountingAllocator, KeepingAllocator};
use weft_bench::allocations::Tally;
use weft_bench::args::BenchArgs;

/// The allocator of the binary `weft`, of which each thread tells how often it was asked for memory.
#[global_allocator]
static ALLOCATOR: Tally<CountingAllocator<KeepingAllocator<System>>> =
    Tally::new(CountingAllocator::new(KeepingAllocator::new(System)));

#[derive(Debug, Parser)]
#[command(name = "weft-bench", version)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    weft::give_back_promptly();
    let environment = env_logger::Env::default().filter_or("WEFT_LOG", "warn");
    env_logger::Builder::from_env(environment).format_target(false).format_timestamp(None).init();
    match weft_bench::run(&Cli::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed, the exit code has to do.
            drop(writeln!(io::stderr(), "weft-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}
