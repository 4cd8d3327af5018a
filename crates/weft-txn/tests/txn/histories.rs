//! Random transactions at once, and a checker: what each has read is what its snapshot holds, and, for serializable
//! ones, the graph of who comes before whom has no circle.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use weft_index::Direction;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Boundary, yield_now};
use weft_txn::{Batching, Context, Isolation, Table, run_batch};

use crate::drivers::{Setup, runtime, seeds, within_limit};
use crate::fixture::{bytes, engine, numbers, options};

const KEYS: u64 = 24;

/// A transaction that has committed.
#[derive(Clone, Debug, Default)]
struct Done {
    id: u64,
    snapshot: u64,
    at: u64,
    /// Keys, and who wrote what was seen; `None` if there was no row.
    reads: Vec<(u64, Option<u64>)>,
    /// Keys, and whether there is a row afterwards.
    writes: BTreeMap<u64, bool>,
}

/// What a worker's transactions share.
#[derive(Clone)]
struct World {
    table: Arc<Table>,
    done: Arc<Mutex<Vec<Done>>>,
    level: Isolation,
    first_key: u64,
}

impl World {
    async fn run(&self, context: &mut Context, id: u64, seed: u64) -> weft_txn::Result<()> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut transaction = context.begin(options(self.level));
        let mut done = Done { id, snapshot: transaction.snapshot(), ..Done::default() };
        for _ in 0..random.usize(1..7) {
            let key = random.u64(..KEYS);
            let bytes_of_key = (self.first_key + key).to_be_bytes();
            let row = bytes(self.first_key + key, key % 3, id);
            let result = match random.u8(..12) {
                0..5 => {
                    let found = transaction.get(&self.table, &bytes_of_key).await;
                    if !done.writes.contains_key(&key) {
                        let found =
                            found.as_ref().map(|row| row.as_ref().map(|row| numbers(row).2));
                        done.reads.push((key, found.unwrap_or(None)));
                    }
                    found.map(|_| ())
                }
                5..8 => {
                    let changed = transaction.update(&self.table, &bytes_of_key, &row).await;
                    if let Ok(is_there) = changed {
                        match is_there {
                            true => _ = done.writes.insert(key, true),
                            false if !done.writes.contains_key(&key) => {
                                done.reads.push((key, None))
                            }
                            false => {}
                        }
                    }
                    changed.map(|_| ())
                }
                8 => {
                    let inserted = transaction.insert(&self.table, &row).await;
                    match inserted {
                        Ok(_) => {
                            done.writes.insert(key, true);
                            Ok(())
                        }
                        Err(weft_txn::TxnError::DuplicateKey { .. }) => Ok(()),
                        Err(error) => Err(error),
                    }
                }
                9 => {
                    let removed = transaction.remove(&self.table, &bytes_of_key).await;
                    if let Ok(is_there) = removed {
                        match is_there {
                            true => _ = done.writes.insert(key, false),
                            false if !done.writes.contains_key(&key) => {
                                done.reads.push((key, None))
                            }
                            false => {}
                        }
                    }
                    removed.map(|_| ())
                }
                _ => {
                    let (from, to) = (key, (key + random.u64(1..8)).min(KEYS));
                    let (low, high) = (
                        (self.first_key + from).to_be_bytes(),
                        (self.first_key + to).to_be_bytes(),
                    );
                    let mut seen = HashMap::new();
                    let visit = |_, row: &[u8]| {
                        let (key, _, writer) = numbers(row);
                        seen.insert(key - self.first_key, writer);
                        ControlFlow::Continue(())
                    };
                    let scan = transaction.scan(
                        &self.table,
                        0,
                        Some(&low),
                        Some(&high),
                        Direction::Forwards,
                        visit,
                    );
                    let scanned = scan.await.map(|_| ());
                    let others = (from..to).filter(|key| !done.writes.contains_key(key));
                    done.reads.extend(others.map(|key| (key, seen.get(&key).copied())));
                    scanned
                }
            };
            if let Err(error) = result {
                assert!(error.is_retryable(), "{error}");
                transaction.rollback().await;
                return Ok(());
            }
            for _ in 0..random.usize(..3) {
                yield_now().await;
            }
        }
        match random.u8(..12) {
            0 => transaction.rollback().await,
            1 => drop(transaction),
            _ => match transaction.commit().await {
                Ok(at) => {
                    done.at = at;
                    self.done.lock().unwrap().push(done);
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            },
        }
        Ok(())
    }
}

/// Versions of a key: when, by whom, and whether there is a row.
type Versions = BTreeMap<u64, Vec<(u64, u64, bool)>>;

/// Compares what was read with the snapshots; true if the transactions have an order.
fn check(done: &[Done]) -> bool {
    let mut versions = Versions::new();
    for transaction in done {
        for (&key, &is_there) in &transaction.writes {
            versions.entry(key).or_default().push((transaction.at, transaction.id, is_there));
        }
    }
    versions.values_mut().for_each(|versions| versions.sort_unstable());
    let places: HashMap<u64, usize> = done.iter().enumerate().map(|(at, it)| (it.id, at)).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); done.len()];
    for (place, transaction) in done.iter().enumerate() {
        for &(key, seen) in &transaction.reads {
            let versions = versions.get(&key).map_or(&[][..], |versions| versions);
            let behind = versions.partition_point(|&(at, ..)| at <= transaction.snapshot);
            let expected = behind.checked_sub(1).map(|at| versions[at]);
            let expected_row = expected.filter(|&(.., is_there)| is_there).map(|(_, id, _)| id);
            assert_eq!(seen, expected_row, "key {key}: {transaction:?} of {versions:?}");
            if let Some((_, writer, _)) = expected {
                after[places[&writer]].push(place);
            }
            if let Some(&(_, writer, _)) = versions.get(behind).filter(|it| it.1 != transaction.id)
            {
                after[place].push(places[&writer]);
            }
        }
    }
    for (key, versions) in &versions {
        for pair in versions.windows(2) {
            let (before, behind) = (places[&pair[0].1], places[&pair[1].1]);
            let snapshot = done[behind].snapshot;
            assert!(snapshot >= pair[0].0, "key {key}: an update was lost between {pair:?}");
            after[before].push(behind);
        }
    }
    is_acyclic(&after)
}

/// Kahn's algorithm.
fn is_acyclic(after: &[Vec<usize>]) -> bool {
    let mut before = vec![0; after.len()];
    after.iter().flatten().for_each(|&next| before[next] += 1);
    let mut free: Vec<usize> = (0..after.len()).filter(|&it| before[it] == 0).collect();
    let mut taken = 0;
    while let Some(next) = free.pop() {
        taken += 1;
        for &behind in &after[next] {
            before[behind] -= 1;
            if before[behind] == 0 {
                free.push(behind);
            }
        }
    }
    taken == after.len()
}

/// Runs random transactions at once; true if those that have committed have an order.
fn run(seed: u64, level: Isolation, workers: usize, large: bool, count: u64) -> (bool, usize) {
    let setup = Setup::new();
    let runtime = runtime(DriverKind::Blocking, workers);
    let make = move || async move {
        let (engine, table) = engine(&setup, Ledger::new(64 << 20), 0, false).await;
        // Of a large table every access suspends.
        let first_key = if large { 14_000 } else { 0 };
        let mut context = engine.context().unwrap();
        let mut load = context.begin(options(Isolation::Snapshot));
        for key in 0..first_key {
            load.insert(&table, &bytes(key, 5, 0)).await.unwrap();
        }
        load.commit().await.unwrap();
        drop(context);
        (engine, table, first_key, setup)
    };
    let (engine, table, first_key, _setup) = runtime.block_on(make).unwrap();
    let world = World { table, done: Arc::default(), level, first_key };
    let tasks: Vec<_> = (0..workers as u64)
        .map(|worker| {
            let (engine, world) = (engine.clone(), world.clone());
            runtime.spawn_on(worker as usize, move || async move {
                let mut left = count;
                let next = || {
                    left = left.checked_sub(1)?;
                    let (world, id) = (world.clone(), 1 + worker * count + left);
                    let seed = seed.wrapping_mul(0x9E37_79B9).wrapping_add(id);
                    Some(async move |context: &mut Context| world.run(context, id, seed).await)
                };
                let batching = Batching { depth: 8, boundary: Boundary::Weak };
                run_batch(&engine, batching, next).await.unwrap();
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.wait().unwrap());
    let done = world.done.lock().unwrap().clone();
    let is_ordered = check(&done);
    let collect = engine.clone();
    runtime.block_on(move || async move { collect.collect().await.unwrap() }).unwrap();
    (is_ordered, done.len())
}

#[test]
fn serializable_histories_have_an_order() {
    within_limit(|| {
        for seed in seeds("serializable") {
            for (workers, large) in [(1, false), (1, true), (3, false), (4, true)] {
                for round in 0..2 {
                    let (is_ordered, done) =
                        run(seed + round, Isolation::Serializable, workers, large, 600);
                    assert!(is_ordered, "seed {seed}, {workers} workers, round {round}");
                    assert!(done > 50, "{done} have committed of {}", 600 * workers);
                    println!("{workers} workers: {done} of {} committed", 600 * workers);
                }
            }
        }
    });
}

/// Snapshots hold what they should; and the checker sees circles, which snapshots do not forbid.
#[test]
fn snapshots_hold_and_allow_circles() {
    within_limit(|| {
        let mut circles = 0;
        for seed in seeds("snapshots") {
            for workers in [1, 3] {
                let (is_ordered, done) = run(seed, Isolation::Snapshot, workers, false, 800);
                circles += usize::from(!is_ordered);
                assert!(done > 100);
            }
        }
        assert!(circles > 0, "the checker sees nothing");
    });
}
