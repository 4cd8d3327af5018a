//! Versions go when nobody sees them, and what somebody sees stays.

use weft_index::Coroutines;
use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_txn::{Engine, Isolation, TransactionOptions, TxnError};

use crate::drivers::{Setup, runtime, within_limit};
use crate::fixture::{bytes, engine, numbers, options, set, value, with_rows};

/// A row with thousands of versions: an old snapshot sees its own, and they go when it ends.
#[test]
fn versions_of_a_hot_row_go() {
    with_rows(3, async |engine: Engine, table| {
        let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
        let old = two.begin(options(Isolation::Snapshot));
        assert_eq!(value(&old, &table, 1).await, Some(10));
        for number in 0..20_000 {
            let mut transaction = one.begin(options(Isolation::Snapshot));
            set(&mut transaction, &table, 1, number).await.unwrap();
            transaction.commit().await.unwrap();
        }
        let before = engine.version_bytes();
        assert!(before > 20_000 * 64, "{before} bytes: nothing went that the snapshot needs");
        assert_eq!(value(&old, &table, 1).await, Some(10));
        old.rollback().await;
        one.collect().await.unwrap();
        one.collect().await.unwrap();
        drop((one, two));
        engine.collect().await.unwrap();
        let after = engine.version_bytes();
        assert!(after < before / 8, "{after} of {before} bytes");
        // And without an old snapshot they do not even become many.
        let mut one = engine.context().unwrap();
        for number in 0..20_000 {
            let mut transaction = one.begin(options(Isolation::Snapshot));
            set(&mut transaction, &table, 1, number).await.unwrap();
            transaction.commit().await.unwrap();
        }
        assert!(engine.version_bytes() < before / 2, "{} bytes", engine.version_bytes());
    });
}

/// Rows that are inserted and removed leave nothing, and their keys can be used again.
#[test]
fn removed_rows_go() {
    with_rows(0, async |engine: Engine, table| {
        let mut context = engine.context().unwrap();
        for round in 0..50_u64 {
            let mut transaction = context.begin(options(Isolation::Serializable));
            for key in 0..200 {
                transaction.insert(&table, &bytes(key, key % 5, round)).await.unwrap();
            }
            transaction.commit().await.unwrap();
            let mut transaction = context.begin(options(Isolation::Serializable));
            for key in 0..200_u64 {
                assert!(transaction.remove(&table, &key.to_be_bytes()).await.unwrap());
            }
            transaction.commit().await.unwrap();
            if round % 3 == 0 {
                context.collect().await.unwrap();
            }
        }
        context.collect().await.unwrap();
        context.collect().await.unwrap();
        assert!(table.row_end() > 200, "rows that are gone do not come back");
        drop(context);
        engine.collect().await.unwrap();
        assert_eq!(engine.version_bytes(), 0);
        assert_eq!(table.index_entries(), vec![0, 0]);
    });
}

/// Who wants more memory for versions than there is hears of it, and others go on.
#[test]
fn memory_runs_out_with_an_error() {
    within_limit(|| {
        let setup = Setup::new();
        let runtime = runtime(DriverKind::Blocking, 1);
        let run = move || async move {
            let ledger = Ledger::new(24 << 20);
            let (engine, table) = engine(&setup, ledger.clone(), 0, false).await;
            let mut context = engine.context().unwrap();
            let mut load = context.begin(TransactionOptions::default());
            load.insert(&table, &bytes(0, 0, 0)).await.unwrap();
            load.commit().await.unwrap();
            let mut other = engine.context().unwrap();
            let old = other.begin(options(Isolation::Snapshot));
            let mut failed = false;
            for number in 0..1_000_000 {
                let mut transaction = context.begin(options(Isolation::Snapshot));
                match set(&mut transaction, &table, 0, number).await {
                    Ok(_) => _ = transaction.commit().await.unwrap(),
                    Err(TxnError::Memory { .. }) => {
                        failed = true;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(failed && ledger.used() <= ledger.limit());
            assert_eq!(old.get(&table, &[0; 8]).await.unwrap().map(|row| numbers(&row).2), Some(0));
            old.rollback().await;
            // Without the old snapshot there is memory again, once the first transaction has seen to it.
            let mut tries = 0;
            loop {
                let mut transaction = context.begin(options(Isolation::Snapshot));
                match set(&mut transaction, &table, 0, 7).await {
                    Ok(_) => {
                        transaction.commit().await.unwrap();
                        break;
                    }
                    Err(error) => assert!(tries < 2, "{error}"),
                };
                tries += 1;
            }
            drop((context, other));
            engine.collect().await.unwrap();
            assert!(engine.version_bytes() < 4 << 20);
        };
        runtime.block_on(run).unwrap();
    });
}

/// A dropped coroutine leaves no row held.
#[test]
fn dropped_transactions_are_rolled_back() {
    with_rows(2, async |engine: Engine, table| {
        let mut one = engine.context().unwrap();
        let mut transaction = one.begin(options(Isolation::Snapshot));
        set(&mut transaction, &table, 0, 5).await.unwrap();
        transaction.insert(&table, &bytes(9, 0, 0)).await.unwrap();
        drop(transaction);
        drop(one);
        let mut two = engine.context().unwrap();
        let mut transaction = two.begin(options(Isolation::Snapshot));
        assert_eq!(value(&transaction, &table, 0).await, Some(0));
        assert_eq!(value(&transaction, &table, 9).await, None);
        assert!(set(&mut transaction, &table, 0, 6).await.unwrap());
        transaction.insert(&table, &bytes(9, 0, 1)).await.unwrap();
        transaction.commit().await.unwrap();
        let check = two.begin(options(Isolation::Snapshot));
        assert_eq!(
            (value(&check, &table, 0).await, value(&check, &table, 9).await),
            (Some(6), Some(1))
        );
    });
}

/// A change whose coroutine was dropped has not happened, whatever the transaction does then.
#[test]
fn dropped_changes_are_taken_back() {
    use std::future::Future;
    use std::task::{Context, Waker};
    within_limit(|| {
        let setup = Setup::new();
        let runtime = runtime(DriverKind::Blocking, 1);
        let run = move || async move {
            let (engine, table) = engine(&setup, Ledger::new(64 << 20), 20_000, false).await;
            let mut context = engine.context().unwrap();
            for polls in 0..40 {
                let mut transaction = context.begin(options(Isolation::Snapshot));
                let is_whole = {
                    let row = bytes(30_000 + polls, 3, 1);
                    let mut insert = std::pin::pin!(transaction.insert(&table, &row));
                    let mut waker = Context::from_waker(Waker::noop());
                    (0..polls).any(|_| insert.as_mut().poll(&mut waker).is_ready())
                };
                let key = (100 + polls).to_be_bytes();
                let is_changed = {
                    let row = bytes(100 + polls, 90, 1);
                    let mut update = std::pin::pin!(transaction.update(&table, &key, &row));
                    let mut waker = Context::from_waker(Waker::noop());
                    (0..polls).any(|_| update.as_mut().poll(&mut waker).is_ready())
                };
                transaction.commit().await.unwrap();
                let check = context.begin(options(Isolation::Snapshot));
                assert_eq!(value(&check, &table, 30_000 + polls).await.is_some(), is_whole);
                let found = check.get(&table, &key).await.unwrap().map(|row| numbers(&row).1);
                assert_eq!(found == Some(90), is_changed, "after {polls} polls");
            }
        };
        runtime.block_on(run).unwrap();
    });
}

/// A transaction that was leaked is rolled back when its context is used again; a table of another engine is refused.
#[test]
fn leaks_and_mistakes_do_no_harm() {
    with_rows(2, async |one: Engine, table| {
        let mut context = one.context().unwrap();
        let mut leaked = context.begin(options(Isolation::Serializable));
        set(&mut leaked, &table, 0, 5).await.unwrap();
        std::mem::forget(leaked);
        let mut next = context.begin(options(Isolation::Snapshot));
        assert_eq!(value(&next, &table, 0).await, Some(0));
        set(&mut next, &table, 0, 6).await.unwrap();
        next.commit().await.unwrap();
        let other = Engine::new(Ledger::new(1 << 20), &weft_txn::EngineOptions::default());
        let mut context = other.context().unwrap();
        let mut transaction = context.begin(TransactionOptions::default());
        assert!(matches!(transaction.get(&table, &[0; 8]).await, Err(TxnError::Table { .. })));
        assert!(matches!(transaction.remove(&table, &[0; 8]).await, Err(TxnError::Table { .. })));
    });
}

/// A snapshot sees the same rows whichever transactions read it, while rows change, come and go; what it needs goes with it.
#[test]
fn a_snapshot_is_read_by_many_transactions() {
    with_rows(100, async |engine: Engine, table| {
        let sum = async |snapshot: &weft_txn::Snapshot, mode| {
            let mut context = engine.context().unwrap();
            let transaction = snapshot.begin(&mut context, mode);
            let mut rows = (0_u64, 0_u64);
            for start in (0..table.row_end()).step_by(33) {
                let visit = |_, row: &[u8]| rows = (rows.0 + 1, rows.1 + numbers(row).2);
                transaction.scan_rows(&table, start..start + 33, visit).await.unwrap();
            }
            transaction.commit().await.unwrap();
            rows
        };
        let before = engine.snapshot().unwrap();
        let expected = sum(&before, Coroutines).await;
        assert_eq!(expected.0, 100);
        let mut context = engine.context().unwrap();
        for round in 0..200_u64 {
            let mut transaction = context.begin(options(Isolation::Snapshot));
            set(&mut transaction, &table, round % 50, 1_000_000 + round).await.unwrap();
            transaction.insert(&table, &bytes(1000 + round, 1, round)).await.unwrap();
            if round < 40 {
                assert!(transaction.remove(&table, &(50 + round).to_be_bytes()).await.unwrap());
            }
            transaction.commit().await.unwrap();
            context.collect().await.unwrap();
            assert_eq!(sum(&before, Coroutines).await, expected, "after {round} changes");
        }
        let after = engine.snapshot().unwrap();
        assert!(after.at() > before.at());
        assert_eq!(sum(&after, Coroutines).await.0, 260);
        // A row that has changed since is not changed on top of the snapshot.
        let mut other = engine.context().unwrap();
        let mut late = before.begin(&mut other, Coroutines);
        let conflict = set(&mut late, &table, 1, 7).await.unwrap_err();
        assert!(matches!(conflict, TxnError::Conflict { .. }), "{conflict}");
        late.rollback().await;
        let with_both = engine.version_bytes();
        drop((before, after));
        for _ in 0..2 {
            context.collect().await.unwrap();
        }
        drop((context, other));
        engine.collect().await.unwrap();
        assert!(
            engine.version_bytes() < with_both,
            "versions that only the snapshots had are freed"
        );
        let mut context = engine.context().unwrap();
        let serializable = context.begin(options(Isolation::Serializable));
        let refused = serializable.scan_rows(&table, 0..10, |_, _| ()).await.unwrap_err();
        assert!(refused.to_string().contains("scan an index"), "{refused}");
    });
}
