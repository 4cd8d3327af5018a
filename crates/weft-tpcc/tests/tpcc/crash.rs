//! The power fails at some write in the middle of a run on a simulated disk: what is recovered is consistent, and runs on.

use std::time::Duration;

use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimDisk, SimFaults, SimOptions};
use weft_tpcc::{Kind, RunOptions, Scale, Storage};
use weft_txn::{Durability, LogDirectory, LogOptions, TransactionOptions};

use crate::setup::{checked, open, options, run, runtime, within_limit};

const SEGMENT_BYTES: u64 = 1 << 20;

fn storage(disk: &SimDisk) -> Storage {
    let directory = LogDirectory::Sim(disk.clone());
    Storage::Logged(LogOptions { directory, segment_bytes: SEGMENT_BYTES })
}

fn crash_in_a_run(durability: Durability) {
    let scale = Scale::small(2);
    for (seed, mutations) in [(1, 5), (2, 40), (3, 150), (4, 400)] {
        let mut disk = SimDisk::new(SimOptions::testing(seed));
        // Crashed in the first run, and again in one of what was recovered.
        for round in 0..2 {
            let runtime = runtime(DriverKind::Sim(disk.clone()), 2);
            let database = open(&runtime, scale, seed, storage(&disk)).unwrap();
            if round == 0 {
                let options = TransactionOptions { durability, ..TransactionOptions::default() };
                weft_tpcc::load(&runtime, &database, 1, options).unwrap();
                // One that is durable makes the others so.
                run_for(&runtime, &database, seed, Durability::Durable, 1).unwrap();
            }
            checked(&runtime, &database).unwrap();
            disk.set_faults(SimFaults::none().crash_after_write(mutations));
            let ended = run_for(&runtime, &database, seed ^ round << 8, durability, 200);
            if let Ok(measured) = ended {
                assert!(measured.commits(Kind::NewOrder) > 0, "nothing has happened");
            }
            drop((database, runtime));
            disk = disk.crash(seed ^ round << 32);
        }
        let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
        let database = open(&runtime, scale, seed, storage(&disk)).unwrap();
        checked(&runtime, &database).unwrap();
        run_for(&runtime, &database, seed, durability, 50).unwrap();
        checked(&runtime, &database).unwrap();
    }
}

fn run_for(
    runtime: &weft_rt::Runtime,
    database: &weft_tpcc::Database,
    seed: u64,
    durability: Durability,
    milliseconds: u64,
) -> Result<weft_tpcc::Measured, weft_tpcc::TpccError> {
    let time = Duration::from_millis(milliseconds);
    run(runtime, database, &RunOptions { durability, time, ..options(seed) })
}

#[test]
fn durable_runs_survive_crashes() {
    within_limit(|| crash_in_a_run(Durability::Durable));
}

#[test]
fn relaxed_runs_survive_crashes() {
    within_limit(|| crash_in_a_run(Durability::Relaxed(Duration::from_micros(500))));
}
