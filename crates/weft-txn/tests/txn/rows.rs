//! One transaction after the other against a map: inserts, updates, removals, savepoints, scans of all indexes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_index::Direction;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_txn::{Isolation, Table, Transaction, TxnError};

use crate::drivers::{Setup, runtime, seeds, within_limit};
use crate::fixture::{GROUPS, VALUES, bytes, engine, numbers, options};

type Model = BTreeMap<u64, (u64, u64)>;

async fn scanned(
    transaction: &Transaction<'_>,
    table: &Arc<Table>,
    index: usize,
    direction: Direction,
) -> Vec<(u64, u64, u64)> {
    let mut rows = Vec::new();
    let visit = |_, row: &[u8]| {
        rows.push(numbers(row));
        ControlFlow::Continue(())
    };
    let visited = transaction.scan(table, index, None, None, direction, visit).await.unwrap();
    assert_eq!(visited, rows.len() as u64);
    rows
}

async fn compare(transaction: &Transaction<'_>, table: &Arc<Table>, model: &Model) {
    let mut expected: Vec<_> =
        model.iter().map(|(&key, &(group, value))| (key, group, value)).collect();
    assert_eq!(scanned(transaction, table, 0, Direction::Forwards).await, expected);
    expected.sort_by_key(|&(_, group, _)| group);
    let mut by_group = scanned(transaction, table, GROUPS, Direction::Forwards).await;
    let mut backwards = scanned(transaction, table, GROUPS, Direction::Backwards).await;
    backwards.reverse();
    assert_eq!(by_group, backwards);
    by_group.sort_by_key(|&(key, group, _)| (group, key));
    assert_eq!(by_group, expected);
    expected.sort_by_key(|&(_, _, value)| value);
    assert_eq!(scanned(transaction, table, VALUES, Direction::Forwards).await, expected);
}

async fn operate(
    transaction: &mut Transaction<'_>,
    table: &Arc<Table>,
    model: &mut Model,
    random: &mut fastrand::Rng,
) {
    let key = random.u64(..60);
    let (group, value) = (random.u64(..5), random.u64(..200));
    let taken = |model: &Model, key: u64| {
        model.iter().any(|(&other, &(_, it))| it == value && other != key)
    };
    match random.u8(..6) {
        0 | 1 => match transaction.insert(table, &bytes(key, group, value)).await {
            Ok(_) => {
                assert!(!model.contains_key(&key) && !taken(model, key));
                model.insert(key, (group, value));
            }
            Err(TxnError::DuplicateKey { index: 0, .. }) => assert!(model.contains_key(&key)),
            Err(TxnError::DuplicateKey { index: VALUES, .. }) => assert!(taken(model, key)),
            Err(error) => panic!("{error}"),
        },
        2 | 3 => {
            let row = bytes(key, group, value);
            match transaction.update(table, &key.to_be_bytes(), &row).await {
                Ok(done) => {
                    assert_eq!(done, model.contains_key(&key));
                    if done {
                        assert!(!taken(model, key));
                        model.insert(key, (group, value));
                    }
                }
                Err(TxnError::DuplicateKey { index: VALUES, .. }) => assert!(taken(model, key)),
                Err(error) => panic!("{error}"),
            }
        }
        4 => {
            let removed = transaction.remove(table, &key.to_be_bytes()).await.unwrap();
            assert_eq!(removed, model.remove(&key).is_some());
        }
        _ => {
            let found = transaction.get(table, &key.to_be_bytes()).await.unwrap();
            let expected = model.get(&key).map(|&(group, value)| (key, group, value));
            assert_eq!(found.map(|row| numbers(&row)), expected);
        }
    }
}

#[test]
fn rows_are_as_in_a_map() {
    within_limit(|| {
        for seed in seeds("rows") {
            for frozen in [0, 40] {
                let setup = Setup::new();
                let runtime = runtime(DriverKind::Blocking, 1);
                let run = move || async move {
                    let ledger = Ledger::new(64 << 20);
                    let (engine, table) = engine(&setup, ledger, frozen, true).await;
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut model: Model = (0..frozen).map(|row| (row, (row % 7, row))).collect();
                    let mut context = engine.context().unwrap();
                    for _ in 0..400 {
                        let level = [
                            Isolation::Snapshot,
                            Isolation::Serializable,
                            Isolation::ReadCommitted,
                        ];
                        let level = level[random.usize(..3)];
                        let mut transaction = context.begin(options(level));
                        let before = model.clone();
                        for _ in 0..random.usize(1..6) {
                            let (savepoint, at) = (transaction.savepoint(), model.clone());
                            for _ in 0..random.usize(1..6) {
                                operate(&mut transaction, &table, &mut model, &mut random).await;
                            }
                            if random.u8(..3) == 0 {
                                transaction.rollback_to(savepoint);
                                model = at;
                            }
                        }
                        if random.u8(..8) == 0 {
                            compare(&transaction, &table, &model).await;
                        }
                        match random.u8(..4) {
                            0 => transaction.rollback().await,
                            1 => drop(transaction),
                            _ => {
                                transaction.commit().await.unwrap();
                                continue;
                            }
                        }
                        model = before;
                    }
                    compare(&context.begin(options(Isolation::Snapshot)), &table, &model).await;
                    context.collect().await.unwrap();
                    compare(&context.begin(options(Isolation::Snapshot)), &table, &model).await;
                };
                runtime.block_on(run).unwrap();
            }
        }
    });
}

#[test]
fn primary_keys_do_not_change() {
    crate::fixture::with_rows(2, async |engine: weft_txn::Engine, table| {
        let mut context = engine.context().unwrap();
        let mut transaction = context.begin(options(Isolation::Snapshot));
        let error = transaction.update(&table, &0_u64.to_be_bytes(), &bytes(5, 0, 0)).await;
        assert!(matches!(error, Err(TxnError::KeyChanged { table: 1, .. })));
        assert!(
            transaction
                .scan(&table, 9, None, None, Direction::Forwards, |_, _| ControlFlow::Break(()))
                .await
                .is_err()
        );
    });
}
