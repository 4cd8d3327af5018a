//! Row groups that are written anew without their deleted rows: in the background, on request, and while others change the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::types::{Int64Type, UInt64Type};
use weft_rt::io::DriverKind;
use weft_rt::sync::block_on;
use weft_store::*;

use crate::support::*;

/// The ids and numbers of table `t`.
fn rows_of(table: &Arc<Table>) -> BTreeMap<u64, i64> {
    let options = ScanOptions { projection: vec![0], with_row_id: true, ..Default::default() };
    let rows = collect(table, options).unwrap();
    let (numbers, ids) = (column_of::<Int64Type>(&rows, 0), column_of::<UInt64Type>(&rows, 1));
    ids.into_iter().zip(numbers).collect()
}

fn table_of(store: &Store) -> Arc<Table> {
    store.snapshot().table("t").unwrap()
}

fn deleting(ids: impl Iterator<Item = u64>) -> Change {
    let mut rows = RowSet::default();
    ids.for_each(|id| assert!(rows.insert(id)));
    Change::Delete { table: "t".into(), expected: None, rows }
}

/// Numbers that come into the table.
fn adding(store: &Store, numbers: Vec<i64>) -> Change {
    let groups = write(store, &number_table("t"), &[number_list(numbers)]).unwrap();
    Change::Append { table: "t".into(), expected: None, groups }
}

/// Rows of the table's row groups, deleted ones among them.
fn rows_stored(table: &Arc<Table>) -> u64 {
    let options = ScanOptions { projection: vec![0], ..Default::default() };
    let mut scan = table.scan(options).unwrap();
    while let Some(batch) = scan.next_blocking() {
        batch.unwrap();
    }
    scan.stats().rows_in
}

#[test]
fn the_background_writes_worn_row_groups_anew() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Directory::Os(directory.path().into());
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    load(&store, &number_table("t"), &[numbers(0..200_000)]);
    let before = table_of(&store);
    store.commit_blocking(vec![deleting((0..200_000).filter(|id| id % 3 != 0))]).unwrap();
    let model: BTreeMap<u64, i64> =
        (0..200_000).filter(|id| id % 3 == 0).map(|id| (id, id as i64)).collect();
    let give_up = Instant::now() + Duration::from_secs(300);
    while rows_stored(&table_of(&store)) > model.len() as u64 {
        assert!(Instant::now() < give_up, "deleted rows are still stored");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(rows_of(&table_of(&store)), model);
    // Row groups that have become short are joined.
    assert!(table_of(&store).row_groups() <= 3, "{} row groups", table_of(&store).row_groups());
    assert_eq!(rows_of(&before).len(), 200_000);
    drop(before);
    drop(store);
    let store = open(&directory, &runtime);
    assert_eq!(rows_of(&table_of(&store)), model);
    assert_eq!(rows_stored(&table_of(&store)), model.len() as u64);
}

#[test]
fn a_table_that_is_changed_for_long_takes_the_space_of_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&Directory::Os(directory.path().into()), &runtime);
    load(&store, &number_table("t"), &[numbers(0..50_000)]);
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..60 {
        let there: Vec<(u64, i64)> = rows_of(&table_of(&store)).into_iter().collect();
        let mut changed: Vec<(u64, i64)> =
            (0..5_000).map(|_| there[random.usize(..there.len())]).collect();
        changed.sort_unstable();
        changed.dedup();
        let numbers = changed.iter().map(|(_, number)| *number).collect();
        let added = adding(&store, numbers);
        store
            .commit_blocking(vec![deleting(changed.into_iter().map(|(id, _)| id)), added])
            .unwrap();
        if round % 10 == 9 {
            block_on(store.tidy(Some("t"))).unwrap();
            assert_eq!(rows_stored(&table_of(&store)), 50_000);
            assert!(table_of(&store).row_groups() <= 12, "{}", table_of(&store).row_groups());
        }
    }
    let mut numbers: Vec<i64> = rows_of(&table_of(&store)).into_values().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50_000).collect::<Vec<_>>());
}

#[test]
fn rows_that_go_while_a_row_group_is_written_anew_stay_gone() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Directory::Os(directory.path().into());
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    load(&store, &number_table("t"), &[numbers(0..30_000)]);
    let mut model = rows_of(&table_of(&store));
    let has_ended = Arc::new(AtomicBool::new(false));
    let tidying = {
        let (store, has_ended) = (store.clone(), has_ended.clone());
        std::thread::spawn(move || {
            while !has_ended.load(Ordering::Relaxed) {
                block_on(store.tidy(None)).unwrap();
            }
        })
    };
    let mut random = fastrand::Rng::with_seed(11);
    let mut next_id = 30_000;
    for round in 0..150 {
        let ids: Vec<u64> = model.keys().copied().collect();
        let mut gone: Vec<u64> =
            (0..random.usize(1..400)).map(|_| ids[random.usize(..ids.len())]).collect();
        gone.sort_unstable();
        gone.dedup();
        let new: Vec<i64> = (0..random.i64(1..300)).collect();
        let changes = vec![deleting(gone.iter().copied()), adding(&store, new.clone())];
        if round % 3 == 0 {
            let transaction = Arc::new(store.begin(Isolation::Snapshot));
            for change in changes {
                block_on(transaction.apply(vec![change])).unwrap();
            }
            block_on(transaction.commit()).unwrap();
        } else {
            store.commit_blocking(changes).unwrap();
        }
        gone.iter().for_each(|id| assert!(model.remove(id).is_some()));
        model.extend((next_id..).zip(new.iter().copied()));
        next_id += new.len() as u64;
        assert_eq!(rows_of(&table_of(&store)), model, "round {round}");
        let error = store.commit_blocking(vec![deleting(gone.iter().copied())]).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        for id in ids.iter().step_by(997) {
            let found = block_on(table_of(&store).get(*id, &[0])).unwrap();
            assert_eq!(found, model.get(id).map(|number| vec![Scalar::Int(*number)]), "row {id}");
        }
    }
    has_ended.store(true, Ordering::Relaxed);
    tidying.join().unwrap();
    drop(store);
    let store = open(&directory, &runtime);
    assert_eq!(rows_of(&table_of(&store)), model);
}

#[test]
fn a_transaction_goes_on_with_the_rows_that_it_knew() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&Directory::Os(directory.path().into()), &runtime);
    load(&store, &number_table("t"), &[numbers(0..10_000)]);
    store.commit_blocking(vec![deleting((0..10_000).filter(|id| id % 5 == 0))]).unwrap();
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable] {
        let mut expected = rows_of(&table_of(&store));
        let gone: Vec<u64> = expected.keys().copied().take(100).collect();
        let transaction = Arc::new(store.begin(isolation));
        block_on(transaction.apply(vec![adding(&store, vec![-1, -2])])).unwrap();
        block_on(transaction.apply(vec![deleting(gone[..50].iter().copied())])).unwrap();
        block_on(store.tidy(Some("t"))).unwrap();
        block_on(transaction.apply(vec![deleting(gone[50..].iter().copied())])).unwrap();
        block_on(transaction.commit()).unwrap();
        expected.retain(|id, _| !gone.contains(id));
        let found = rows_of(&table_of(&store));
        let old: BTreeMap<u64, i64> =
            found.iter().filter(|row| *row.1 >= 0).map(|(id, number)| (*id, *number)).collect();
        expected.retain(|_, number| *number >= 0);
        assert_eq!(old, expected, "{isolation:?}");
        assert!(found.values().filter(|number| **number < 0).count() >= 2);
    }
}

#[test]
fn what_a_transaction_has_read_or_emptied_is_the_same_after_its_row_groups_were_written_anew() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&Directory::Os(directory.path().into()), &runtime);
    load(&store, &number_table("t"), &[numbers(0..10_000)]);
    store.commit_blocking(vec![deleting(0..5_000)]).unwrap();
    let reading = Arc::new(store.begin(Isolation::Serializable));
    reading.note_read(table_of(&store).number());
    block_on(reading.apply(vec![adding(&store, vec![7])])).unwrap();
    let emptying = Arc::new(store.begin(Isolation::Snapshot));
    let truncate = Change::Truncate { table: "t".into(), expected: None };
    block_on(emptying.apply(vec![truncate])).unwrap();
    block_on(store.tidy(None)).unwrap();
    assert_eq!(rows_stored(&table_of(&store)), 5_000);
    block_on(store.checkpoint()).unwrap();
    block_on(reading.commit()).unwrap();
    assert_eq!(table_of(&store).rows(), 5_001);
    let error = block_on(emptying.commit()).unwrap_err();
    assert!(matches!(error, StoreError::Serialization { .. }), "a row was added: {error}");
}
