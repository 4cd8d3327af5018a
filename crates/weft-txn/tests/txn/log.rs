//! The log: the power fails at each write, sync and change of a name, during transactions and checkpoints, and what is
//! recovered is what was committed, as far as was promised, and nothing else.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_index::Direction;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Operation, SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_txn::{
    Batching, Context, Durability, Engine, EngineOptions, Isolation, LogDirectory, LogOptions,
    Table, TransactionOptions, TxnError, run_batch,
};

use crate::drivers::{Setup, runtime, seeds, within_limit};
use crate::fixture::{GROUPS, bytes, numbers, table};

type Rows = BTreeMap<u64, (u64, u64)>;

const FROZEN: u64 = 6;

fn initial() -> Rows {
    (0..FROZEN).map(|row| (row, (row % 7, row))).collect()
}

async fn open(setup: &Setup, directory: LogDirectory) -> weft_txn::Result<(Engine, Arc<Table>)> {
    let ledger = Ledger::new(64 << 20);
    let log = LogOptions { directory, segment_bytes: 12 << 10 };
    let engine = Engine::with_log(ledger.clone(), &EngineOptions::default(), log);
    let table = engine.add_table(table(setup, ledger, FROZEN, false).await)?;
    engine.recover().await?;
    Ok((engine, table))
}

/// All rows, by both indexes.
async fn rows(engine: &Engine, table: &Arc<Table>) -> Rows {
    let mut context = engine.context().unwrap();
    let transaction = context.begin(TransactionOptions::default());
    let mut found = [Rows::new(), Rows::new()];
    for (index, found) in [0, GROUPS].into_iter().zip(&mut found) {
        let visit = |_, row: &[u8]| {
            let (key, group, value) = numbers(row);
            assert!(found.insert(key, (group, value)).is_none(), "twice");
            ControlFlow::Continue(())
        };
        transaction.scan(table, index, None, None, Direction::Forwards, visit).await.unwrap();
    }
    let [first, second] = found;
    assert_eq!(first, second, "the indexes differ");
    first
}

/// States after each transaction, and how many of them were reported as durable.
#[derive(Default)]
struct History {
    states: Vec<Rows>,
    reported: usize,
}

/// Random transactions one after the other, until one fails.
async fn transact(
    engine: &Engine,
    table: &Arc<Table>,
    seed: u64,
    durability: Durability,
    history: &mut History,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut context = engine.context().unwrap();
    for count in 0..14 {
        if count % 5 == 4 && engine.checkpoint().await.is_err() {
            return;
        }
        let mut model = history.states.last().unwrap().clone();
        let options = TransactionOptions { durability, ..TransactionOptions::default() };
        let mut transaction = context.begin(options);
        let savepoint = transaction.savepoint();
        transaction.insert(table, &bytes(999, 0, 0)).await.unwrap();
        transaction.rollback_to(savepoint);
        for _ in 0..random.usize(1..5) {
            let (key, group, value) = (random.u64(..12), random.u64(..4), random.u64(..));
            match random.u8(..3) {
                0 => {
                    let inserted = transaction.insert(table, &bytes(key, group, value)).await;
                    assert_eq!(inserted.is_ok(), !model.contains_key(&key));
                    model.entry(key).or_insert((group, value));
                }
                1 => {
                    let row = bytes(key, group, value);
                    if transaction.update(table, &key.to_be_bytes(), &row).await.unwrap() {
                        assert!(model.insert(key, (group, value)).is_some());
                    }
                }
                _ => {
                    let removed = transaction.remove(table, &key.to_be_bytes()).await.unwrap();
                    assert_eq!(removed, model.remove(&key).is_some());
                }
            }
        }
        history.states.push(model);
        match transaction.commit().await {
            Ok(_) if durability == Durability::Durable => history.reported = history.states.len(),
            Ok(_) => weft_rt::sleep(Duration::from_micros(random.u64(..300))).await,
            Err(error) => {
                assert!(matches!(error, TxnError::LogFailed { .. }), "{error}");
                return;
            }
        }
    }
}

/// Recovers from what a crash left; gives the place of the state that is found.
async fn recover(setup: &Setup, disk: &SimDisk, history: &History) -> (Engine, Arc<Table>, usize) {
    let (engine, table) = open(setup, LogDirectory::Sim(disk.clone())).await.unwrap();
    let found = rows(&engine, &table).await;
    let first = history.reported.saturating_sub(1);
    let place = history.states[first..].iter().position(|state| *state == found);
    let place = place.unwrap_or_else(|| panic!("{found:?} is no state from {first} on"));
    (engine, table, first + place)
}

fn crash_at_each_write(durability: Durability) {
    within_limit(move || {
        for seed in seeds("crashes").take(2) {
            for mutations in 0..400 {
                let mut disk = SimDisk::new(SimOptions::testing(seed));
                let mut history = History { states: vec![initial()], reported: 1 };
                let mut is_done = false;
                // Crashed, recovered, crashed again, recovered.
                for round in 0..2 {
                    let setup = Setup::new();
                    let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
                    let failing = disk.clone();
                    let work = move || async move {
                        let (engine, table, place) = recover(&setup, &failing, &history).await;
                        history.states.truncate(place + 1);
                        history.reported = place + 1;
                        failing.set_faults(SimFaults::none().crash_after_write(mutations));
                        let seed = seed ^ mutations << 8 ^ round;
                        transact(&engine, &table, seed, durability, &mut history).await;
                        (history, failing.mutations() < mutations)
                    };
                    (history, is_done) = runtime.block_on(work).unwrap();
                    drop(runtime);
                    disk = disk.crash(seed ^ mutations ^ round << 32);
                }
                let setup = Setup::new();
                let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
                let found = move || async move { recover(&setup, &disk, &history).await.2 };
                runtime.block_on(found).unwrap();
                if is_done {
                    assert!(mutations > 20, "nothing was written");
                    break;
                }
            }
        }
    });
}

#[test]
fn durable_commits_survive_crashes() {
    crash_at_each_write(Durability::Durable);
}

#[test]
fn relaxed_commits_are_lost_from_the_end() {
    crash_at_each_write(Durability::Relaxed(Duration::from_micros(500)));
}

/// Many at once: what each was told is durable is there, and sums are whole.
#[test]
fn transactions_at_once_survive_crashes() {
    within_limit(|| {
        for seed in seeds("at once") {
            for mutations in [3, 7, 12, 20, 33, 54, 80, 130] {
                let disk = SimDisk::new(SimOptions::testing(seed));
                let reported = Arc::new(Mutex::new([0_u64; 8]));
                let setup = Setup::new();
                let first = runtime(DriverKind::Sim(disk.clone()), 2);
                let (failing, told) = (disk.clone(), reported.clone());
                let work = move || async move {
                    let directory = LogDirectory::Sim(failing.clone());
                    let (engine, table) = open(&setup, directory).await.unwrap();
                    let mut context = engine.context().unwrap();
                    let mut load = context.begin(TransactionOptions::default());
                    for key in 100..116 {
                        load.insert(&table, &bytes(key, 1, 0)).await.unwrap();
                    }
                    load.commit().await.unwrap();
                    failing.set_faults(SimFaults::none().crash_after_write(mutations));
                    let mut next = 0..8_u64;
                    let start = || {
                        let (session, table) = (next.next()?, table.clone());
                        let told = told.clone();
                        Some(async move |context: &mut Context| {
                            for count in 1..200 {
                                let isolation = Isolation::Serializable;
                                let options =
                                    TransactionOptions { isolation, ..Default::default() };
                                let mut transaction = context.begin(options);
                                // Two rows of each session, which are always the same.
                                for key in [100 + session, 108 + session] {
                                    let row = bytes(key, 1, count);
                                    transaction.update(&table, &key.to_be_bytes(), &row).await?;
                                }
                                match transaction.commit().await {
                                    Ok(_) => told.lock().unwrap()[session as usize] = count,
                                    Err(_) => return Ok(()),
                                }
                            }
                            Ok(())
                        })
                    };
                    run_batch(&engine, Batching::default(), start).await.unwrap();
                };
                first.block_on(work).unwrap();
                drop(first);
                let crashed = disk.crash(seed ^ mutations);
                let setup = Setup::new();
                let second = runtime(DriverKind::Sim(crashed.clone()), 1);
                let work = move || async move {
                    let (engine, table) = open(&setup, LogDirectory::Sim(crashed)).await.unwrap();
                    rows(&engine, &table).await
                };
                let found = second.block_on(work).unwrap();
                for (session, &told) in reported.lock().unwrap().iter().enumerate() {
                    let value = |key: u64| found[&(key + session as u64)].1;
                    assert!(value(100) >= told, "session {session}: {} of {told}", value(100));
                    assert_eq!(value(100), value(108), "half of a transaction");
                }
            }
        }
    });
}

/// A full disk is an error, also for those who come later, and what was reported stays.
#[test]
fn full_disks_lose_nothing() {
    within_limit(|| {
        let disk = SimDisk::new(SimOptions::testing(1));
        disk.set_faults(SimFaults::none().disk_full_after(40 << 10));
        let setup = Setup::new();
        let first = runtime(DriverKind::Sim(disk.clone()), 1);
        let full = disk.clone();
        let work = move || async move {
            let (engine, table) = open(&setup, LogDirectory::Sim(full)).await.unwrap();
            let mut context = engine.context().unwrap();
            for key in 1000.. {
                let mut transaction = context.begin(TransactionOptions::default());
                transaction.insert(&table, &bytes(key, 0, key)).await.unwrap();
                if let Err(error) = transaction.commit().await {
                    assert_eq!(error.sqlstate(), "58030", "{error}");
                    let mut next = context.begin(TransactionOptions::default());
                    next.insert(&table, &bytes(1, 0, 0)).await.unwrap_err();
                    next.insert(&table, &bytes(5000, 0, 0)).await.unwrap();
                    assert!(matches!(next.commit().await, Err(TxnError::LogFailed { .. })));
                    return key;
                }
            }
            unreachable!("the disk is small")
        };
        let failed = first.block_on(work).unwrap();
        drop(first);
        disk.set_faults(SimFaults::none());
        let setup = Setup::new();
        let second = runtime(DriverKind::Sim(disk.clone()), 1);
        let work = move || async move {
            let (engine, table) = open(&setup, LogDirectory::Sim(disk)).await.unwrap();
            rows(&engine, &table).await
        };
        let found = second.block_on(work).unwrap();
        assert!((1000..failed).all(|key| found.contains_key(&key)) && !found.contains_key(&5000));
        assert!(failed > 1002, "{failed}");
    });
}

/// A block that is missing in the middle is an error, and not a shorter history.
#[test]
fn a_missing_file_is_noticed() {
    within_limit(|| {
        let disk = SimDisk::new(SimOptions::testing(1));
        let setup = Setup::new();
        let first = runtime(DriverKind::Sim(disk.clone()), 1);
        let log = disk.clone();
        let work = move || async move {
            let (engine, table) = open(&setup, LogDirectory::Sim(log)).await.unwrap();
            let mut context = engine.context().unwrap();
            for key in 1000..1020 {
                let mut transaction = context.begin(TransactionOptions::default());
                transaction.insert(&table, &bytes(key, 0, key)).await.unwrap();
                transaction.commit().await.unwrap();
            }
        };
        first.block_on(work).unwrap();
        drop(first);
        let names = disk.list("").unwrap();
        assert!(names.len() > 4, "{names:?}");
        disk.remove(&names[2]).unwrap();
        let setup = Setup::new();
        let second = runtime(DriverKind::Sim(disk.clone()), 1);
        let work = move || async move {
            open(&setup, LogDirectory::Sim(disk)).await.err().map(|error| error.to_string())
        };
        let error = second.block_on(work).unwrap().expect("an error");
        assert!(error.contains("missing"), "{error}");
    });
}

/// The log stays bounded while checkpoints are written, on the system's files; one flush is for many commits.
#[test]
fn checkpoints_bound_the_log() {
    within_limit(|| {
        let setup = Setup::new();
        let path = setup.directory("log");
        let again = path.clone();
        let first = runtime(DriverKind::Auto, 1);
        let work = move || async move {
            let (engine, table) = open(&setup, LogDirectory::Os(path.clone())).await.unwrap();
            let mut most = 0;
            for round in 0..6 {
                let mut next = 0..64_u64;
                let start = || {
                    let (key, table) = (next.next()?, table.clone());
                    Some(async move |context: &mut Context| {
                        let mut transaction = context.begin(TransactionOptions::default());
                        let row = bytes(100 + key, round % 5, round);
                        if round == 0 {
                            transaction.insert(&table, &row).await?;
                        } else {
                            transaction.update(&table, &(100 + key).to_be_bytes(), &row).await?;
                        }
                        transaction.commit().await.map(|_| ())
                    })
                };
                run_batch(&engine, Batching { depth: 32, ..Batching::default() }, start)
                    .await
                    .unwrap();
                engine.checkpoint().await.unwrap();
                most = most.max(std::fs::read_dir(&path).unwrap().count());
            }
            assert!(most <= 3, "{most} files");
            // Only now, as it takes its directory along.
            setup
        };
        let setup = first.block_on(work).unwrap();
        drop(first);
        let second = runtime(DriverKind::Auto, 1);
        let work = move || async move {
            let (engine, table) = open(&setup.another(), LogDirectory::Os(again)).await.unwrap();
            let found = rows(&engine, &table).await;
            assert!((100..164).all(|key| found[&key] == (0, 5)), "{found:?}");
            drop(setup);
        };
        second.block_on(work).unwrap();
    });
}

/// Errors of the device reach those who commit.
#[test]
fn failed_writes_are_errors() {
    use weft_rt::io::sim::{Fault, FaultRule};
    within_limit(|| {
        for operation in [Operation::Write, Operation::Sync] {
            let disk = SimDisk::new(SimOptions::testing(3));
            let setup = Setup::new();
            let first = runtime(DriverKind::Sim(disk.clone()), 1);
            let work = move || async move {
                let (engine, table) = open(&setup, LogDirectory::Sim(disk.clone())).await.unwrap();
                let rule = FaultRule::nth(operation, 1, Fault::Error(5));
                disk.set_faults(SimFaults::none().with(rule));
                let mut context = engine.context().unwrap();
                let mut ends = Vec::new();
                for key in 1000..1004 {
                    let mut transaction = context.begin(TransactionOptions::default());
                    transaction.insert(&table, &bytes(key, 0, key)).await.unwrap();
                    ends.push(transaction.commit().await.is_ok());
                }
                ends
            };
            let ends = first.block_on(work).unwrap();
            assert_eq!(ends, [true, false, false, false]);
        }
    });
}
