//! A process that runs TPC-C is killed (SIGKILL) in the middle of it: what another process recovers from its log is consistent.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weft_rt::io::DriverKind;
use weft_tpcc::{RunOptions, Scale, Storage};
use weft_txn::{Durability, LogDirectory, LogOptions, TransactionOptions};

use crate::setup::{checked, open, options, run, runtime, within_limit};

/// Where the child of the test has its log.
const LOG: &str = "WEFT_TPCC_TEST_LOG";
const READY: &str = "loaded";

fn storage(directory: &Path) -> Storage {
    Storage::Logged(LogOptions::new(LogDirectory::Os(directory.join("log"))))
}

/// The child: loads, says so, and runs until it is killed. Without a log it has nothing to do.
#[test]
fn child_runs_until_it_is_killed() {
    let Some(directory) = std::env::var_os(LOG) else { return };
    let directory = Path::new(&directory);
    let runtime = runtime(DriverKind::Auto, 2);
    let database = open(&runtime, Scale::small(2), 9, storage(directory)).unwrap();
    weft_tpcc::load(&runtime, &database, 1, TransactionOptions::default()).unwrap();
    std::fs::write(directory.join(READY), []).unwrap();
    let time = Duration::from_secs(60);
    let options = RunOptions { threads: 2, durability: Durability::Durable, time, ..options(9) };
    run(&runtime, &database, &options).unwrap();
}

#[test]
fn a_killed_process_leaves_what_is_consistent() {
    within_limit(|| {
        let name = format!("weft-tpcc-kill-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        for milliseconds in [30, 150, 400] {
            std::fs::create_dir_all(directory.join("log")).unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "kill::child_runs_until_it_is_killed"])
                .env(LOG, &directory)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let start = Instant::now();
            while !directory.join(READY).exists() {
                assert!(child.try_wait().unwrap().is_none(), "it has ended before it was loaded");
                assert!(start.elapsed() < Duration::from_secs(120), "it loads for ever");
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(milliseconds));
            child.kill().unwrap();
            child.wait().unwrap();
            let runtime = runtime(DriverKind::Auto, 1);
            let database = open(&runtime, Scale::small(2), 9, storage(&directory)).unwrap();
            checked(&runtime, &database).unwrap();
            let time = Duration::from_millis(50);
            run(&runtime, &database, &RunOptions { time, ..options(10) }).unwrap();
            checked(&runtime, &database).unwrap();
            drop((database, runtime));
            std::fs::remove_dir_all(&directory).unwrap();
        }
    });
}
