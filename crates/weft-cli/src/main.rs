//! The `weft` binary: the SQL shell and `weft serve`.

#![forbid(unsafe_code)]

mod args;
mod editor;
mod error;
mod interrupt;
mod output;
mod progress;
mod serve;
mod shell;
mod sql;

use std::alloc::System;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use args::{Cli, Command, ShellArgs};
use interrupt::Interrupts;
use shell::Shell;
use weft::{CountingAllocator, KeepingAllocator};

/// Counts, so that the memory limit holds for all that the process has; keeps some of what is freed.
#[global_allocator]
static ALLOCATOR: CountingAllocator<KeepingAllocator<System>> =
    CountingAllocator::new(KeepingAllocator::new(System));

fn main() -> ExitCode {
    weft::give_back_promptly();
    let environment = env_logger::Env::default().filter_or("WEFT_LOG", "warn");
    env_logger::Builder::from_env(environment).format_target(false).format_timestamp(None).init();
    let cli = Cli::from_command_line();
    match cli.command {
        Some(Command::Serve(args)) => match serve::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                drop(io::stderr().write_all(shell::explain(&error).as_bytes()));
                ExitCode::FAILURE
            }
        },
        Some(Command::Bench { .. }) => {
            fail(
                &"bench is a binary of its own, weft-bench; a database directory of this name is ./bench",
            );
            ExitCode::from(2)
        }
        None => run_shell(&cli.shell),
    }
}

fn run_shell(args: &ShellArgs) -> ExitCode {
    let interrupts = match Interrupts::install() {
        Ok(interrupts) => interrupts,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    match Shell::new(args, interrupts) {
        Ok(shell) => ExitCode::from(shell.run(&args.jobs)),
        Err(error) => {
            drop(io::stderr().write_all(shell::explain(&error).as_bytes()));
            ExitCode::FAILURE
        }
    }
}

/// Prints why nothing was done.
fn fail(error: &dyn Display) -> ExitCode {
    // Where standard error is closed, the exit code has to do.
    drop(writeln!(io::stderr(), "weft: {error}"));
    ExitCode::FAILURE
}
