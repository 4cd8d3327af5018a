//! What a loss of power leaves, compared with a model of what it may leave.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::super::random::Random;
use super::super::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
use super::{Seed, disk, seeds, worker};
use crate::io::File;
use crate::io::driver::Driver;

const SECTOR: usize = 512;
const SECTORS: usize = 64;

struct Write {
    first: usize,
    count: usize,
    stamp: u64,
    completed: bool,
}

/// What each sector of a file may hold.
struct Model {
    durable: Vec<u64>,
    /// By key, so that a sync can refer to them.
    volatile: BTreeMap<u32, Write>,
    /// Keys of completed writes, in the order of completion.
    completed: Vec<u32>,
    /// By key: how many of `completed` the sync covers.
    syncs: BTreeMap<u32, usize>,
}

impl Model {
    fn complete(&mut self, key: u32) {
        if let Some(write) = self.volatile.get_mut(&key) {
            write.completed = true;
            self.completed.push(key);
        } else if let Some(covered) = self.syncs.remove(&key) {
            for key in &self.completed[..covered] {
                if let Some(write) = self.volatile.remove(key) {
                    self.durable[write.first..write.first + write.count].fill(write.stamp);
                }
            }
        }
    }

    /// Checks what was found; returns how many volatile writes were lost, kept and torn.
    fn check(&self, found: &[u64]) -> [usize; 3] {
        for (sector, stamp) in found.iter().enumerate() {
            let writes = self.volatile.values();
            let possible = writes
                .filter(|write| (write.first..write.first + write.count).contains(&sector))
                .map(|write| write.stamp);
            assert!(
                possible.chain([self.durable[sector]]).any(|possible| possible == *stamp),
                "sector {sector} holds {stamp}, which it cannot"
            );
        }
        let mut fates = [0; 3];
        for write in self.volatile.values() {
            let sectors = &found[write.first..write.first + write.count];
            match sectors.iter().filter(|stamp| **stamp == write.stamp).count() {
                0 => fates[0] += 1,
                all if all == write.count => fates[1] += 1,
                _ => fates[2] += 1,
            }
        }
        fates
    }
}

fn stamps(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(SECTOR)
        .map(|sector| {
            let stamp = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert!(sector.chunks(8).all(|word| word == stamp.to_le_bytes()), "half a sector");
            stamp
        })
        .collect()
}

/// Writes and syncs at random, cuts the power at a random moment, and checks what is found.
fn crash_at_random(seed: u64, torn: f64) -> [usize; 3] {
    let _seed = Seed(seed);
    let mut random = Random::new(seed, 77);
    let mut options = SimOptions { reorder: false, ..SimOptions::testing(seed) };
    options.faults.crash_odds.torn = torn;
    let (disk, mut worker) = disk(options);
    let file = disk.create("data", (SECTORS * SECTOR) as u64).unwrap();
    disk.sync_directory("").unwrap();
    let mut model = Model {
        durable: vec![0; SECTORS],
        volatile: BTreeMap::new(),
        completed: Vec::new(),
        syncs: BTreeMap::new(),
    };
    let mut seen = 0;
    for stamp in 1..=random.below(60) + 1 {
        match random.below(10) {
            0 => {
                let key = worker.start_sync(&file).unwrap();
                model.syncs.insert(key, model.completed.len());
                worker.driver.flush().unwrap();
            }
            1..=3 => {
                if worker.driver.in_flight() > 0 {
                    worker.driver.wait(None).unwrap();
                }
                worker.reap();
                worker.order[seen..].iter().for_each(|key| model.complete(*key));
                seen = worker.order.len();
            }
            _ => {
                let first = random.below(SECTORS as u64 - 1) as usize;
                let count = 1 + random.below((SECTORS - first).min(12) as u64) as usize;
                let bytes = stamp.to_le_bytes().repeat(count * SECTOR / 8);
                let offset = (first * SECTOR) as u64;
                let key = worker.start_write(&file, offset, &bytes).unwrap();
                worker.driver.flush().unwrap();
                model.volatile.insert(key, Write { first, count, stamp, completed: false });
            }
        }
    }
    let found = disk.crash(seed ^ 1);
    let mut reader = super::worker(&found, 0);
    let bytes = reader.read(&found.open("data").unwrap(), 0, SECTORS * SECTOR).unwrap();
    let again = disk.crash(seed ^ 1);
    let file = again.open("data").unwrap();
    let mut reader = super::worker(&again, 0);
    assert_eq!(reader.read(&file, 0, SECTORS * SECTOR).unwrap(), bytes, "the same seed");
    model.check(&stamps(&bytes))
}

#[test]
fn a_crash_leaves_only_what_it_may() {
    let mut fates = [0; 3];
    for seed in seeds(300) {
        let found = crash_at_random(seed, 1.0 / 3.0);
        (0..3).for_each(|fate| fates[fate] += found[fate]);
    }
    println!("lost, kept, torn or partly overwritten: {fates:?}");
    assert!(fates.iter().all(|count| *count > 100), "every fate occurs: {fates:?}");
}

#[test]
fn a_synced_write_survives_and_an_unsynced_one_may() {
    let mut fates = BTreeMap::<String, u32>::new();
    for seed in seeds(100) {
        let _seed = Seed(seed);
        let faults = SimFaults::none().with(FaultRule::nth(Operation::Write, 2, Fault::Torn));
        let (disk, mut worker) = disk(SimOptions { faults, ..SimOptions::testing(seed) });
        let file = disk.create("data", 0).unwrap();
        disk.sync_directory("").unwrap();
        worker.write(&file, 0, &[1; 4096]).unwrap();
        worker.sync(&file).unwrap();
        worker.write(&file, 4096, &[2; 4096]).unwrap();
        worker.write(&file, 8192, &[3; 4096]).unwrap();
        assert_eq!(worker.read(&file, 8192, 4096).unwrap(), [3; 4096], "tearing shows only later");
        let found = disk.crash(seed);
        let mut reader = super::worker(&found, 0);
        let file = found.open("data").unwrap();
        let bytes = reader.read(&file, 0, 16384).unwrap();
        assert_eq!(bytes[..4096], [1; 4096]);
        let count = |value| bytes.iter().filter(|byte| **byte == value).count();
        let fate = match count(2) {
            0 => "lost",
            4096 => "kept",
            _ => "torn",
        };
        *fates.entry(fate.into()).or_default() += 1;
        *fates.entry(format!("{} sectors", count(3) / SECTOR)).or_default() += 1;
    }
    println!("{fates:?}");
    for fate in ["lost", "kept", "torn"] {
        assert!(fates[fate] > 20, "{fates:?}");
    }
    assert!(fates["4 sectors"] > 20, "the torn write: {fates:?}");
}

#[test]
fn a_sync_does_not_cover_writes_in_flight() {
    let (mut write_first, mut lost) = (0, 0);
    for seed in 0..100 {
        let _seed = Seed(seed);
        let (disk, mut worker) = disk(SimOptions::testing(seed));
        let file = disk.create("data", 4096).unwrap();
        disk.sync_directory("").unwrap();
        let write = worker.start_write(&file, 0, &[1; 4096]).unwrap();
        let sync = worker.start_sync(&file).unwrap();
        worker.finish(write).0.unwrap();
        worker.finish(sync).0.unwrap();
        let found = disk.crash(seed);
        let bytes = super::worker(&found, 0).read(&found.open("data").unwrap(), 0, 4096).unwrap();
        if worker.order == [write, sync] {
            write_first += 1;
            lost += u32::from(bytes != [1; 4096]);
        }
    }
    assert!(lost > 10, "{lost} of {write_first} that completed before the sync");
}

/// Replaces `manifest` by way of a temporary file; without `sync`, wrongly.
fn replace(disk: &SimDisk, sync: bool) -> io::Result<()> {
    let mut worker = worker(disk, 0);
    let file = disk.create("db/manifest.new", 0)?;
    for page in 0..3 {
        worker.write(&file, page * 4096, &[2; 4096])?;
    }
    if sync {
        worker.sync(&file)?;
    }
    disk.rename("db/manifest.new", "db/manifest")?;
    disk.sync_directory("db")
}

fn prepared(seed: u64) -> SimDisk {
    let (disk, mut worker) = disk(SimOptions::testing(seed));
    let file = disk.create("db/manifest", 0).unwrap();
    worker.write(&file, 0, &[1; 8192]).unwrap();
    worker.sync(&file).unwrap();
    disk.sync_directory("db").unwrap();
    disk
}

/// True if the manifest is the whole old or the whole new one.
fn is_whole(disk: &SimDisk, file: &File) -> bool {
    let bytes = worker(disk, 0).read(file, 0, 16384).unwrap();
    bytes == [1; 8192] || bytes == [2; 12288]
}

#[test]
fn replacing_a_file_is_atomic_at_every_write() {
    let disk = prepared(0);
    disk.set_faults(SimFaults::none());
    replace(&disk, true).unwrap();
    let mutations = disk.mutations();
    assert_eq!(mutations, 7);
    for (seed, n) in seeds(20).flat_map(|seed| (0..=mutations).map(move |n| (seed, n))) {
        let _seed = Seed(seed);
        let disk = prepared(seed);
        disk.set_faults(SimFaults::none().crash_after_write(n));
        let result = replace(&disk, true);
        assert_eq!(result.is_ok(), n == mutations, "crash at {n}");
        let found = disk.crash(seed);
        let file = found.open("db/manifest").expect("the manifest is always there");
        assert!(is_whole(&found, &file), "crash at {n}");
        if n == mutations {
            assert_eq!(file.size().unwrap(), 12288);
            assert_eq!(found.list("db").unwrap(), [PathBuf::from("db/manifest")]);
        }
    }
}

#[test]
fn forgetting_the_sync_is_found_out() {
    let broken = (0..40).filter(|seed| {
        let disk = prepared(*seed);
        replace(&disk, false).unwrap();
        let found = disk.crash(*seed);
        let file = found.open("db/manifest").unwrap();
        !is_whole(&found, &file)
    });
    assert!(broken.count() > 20);
}

#[test]
fn names_are_volatile_until_the_directory_is_synced() {
    let mut found = BTreeMap::<Vec<PathBuf>, u32>::new();
    for seed in 0..200 {
        let (disk, _) = disk(SimOptions::testing(seed));
        disk.create("db/kept", 0).unwrap();
        disk.create("db/old", 0).unwrap();
        disk.create("elsewhere/x", 0).unwrap();
        disk.sync_directory("elsewhere").unwrap();
        disk.create("unsynced/y", 0).unwrap();
        assert_eq!(disk.create("db/old", 0).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(disk.open("db/new").unwrap_err().kind(), io::ErrorKind::NotFound);
        disk.sync_directory("db").unwrap();
        disk.rename("db/old", "db/new").unwrap();
        disk.remove("elsewhere/x").unwrap();
        let names = ["db/kept", "db/new"].map(PathBuf::from);
        assert_eq!(disk.list("db").unwrap(), names);
        let crashed = disk.crash(seed);
        *found.entry(crashed.list("db").unwrap()).or_default() += 1;
        *found.entry(crashed.list("elsewhere").unwrap()).or_default() += 1;
        *found.entry(crashed.list("unsynced").unwrap()).or_default() += 1;
    }
    let names = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let possible = [
        names(&["db/kept", "db/new"]),
        names(&["db/kept", "db/old"]),
        names(&["elsewhere/x"]),
        names(&["unsynced/y"]),
        names(&[]),
    ];
    assert_eq!(found.len(), possible.len(), "{found:?}");
    assert!(possible.iter().all(|names| found[names] > 20), "{found:?}");
    // No sync covered its creation, so that a third of the crashes lose it.
    assert!(found[&names(&["unsynced/y"])] < 180, "{found:?}");
}
