//! The catalogue of anomalies (Berenson and others, "A Critique of ANSI SQL Isolation Levels", 1995; Adya, 1999;
//! Fekete and others, "A Read-Only Transaction Anomaly Under Snapshot Isolation", 2004), a history each, at the levels that
//! allow it and those that do not.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use weft_index::Direction;
use weft_txn::Isolation::{ReadCommitted, Serializable, Snapshot};
use weft_txn::{Engine, Isolation, Table, Transaction, TxnError};

use crate::fixture::{GROUPS, bytes, numbers, options, set, value, with_rows};

const LEVELS: [Isolation; 3] = [ReadCommitted, Snapshot, Serializable];

fn is_conflict<T>(result: weft_txn::Result<T>) -> bool {
    matches!(result, Err(TxnError::Conflict { .. }))
}

fn fails<T>(result: weft_txn::Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert!(error.is_retryable() && error.sqlstate() == "40001", "{error}");
            true
        }
    }
}

/// The values of a range of an index, in order.
async fn values(transaction: &Transaction<'_>, table: &Arc<Table>, index: usize) -> Vec<u64> {
    let mut values = Vec::new();
    let visit = |_, row: &[u8]| {
        values.push(numbers(row).2);
        ControlFlow::Continue(())
    };
    transaction.scan(table, index, None, None, Direction::Forwards, visit).await.unwrap();
    values
}

/// G0: two transactions never mix what they write.
#[test]
fn dirty_write() {
    with_rows(2, async |engine: Engine, table| {
        for level in [Snapshot, Serializable] {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            set(&mut first, &table, 0, 1).await.unwrap();
            assert!(is_conflict(set(&mut second, &table, 0, 2).await));
            // What failed has left nothing, and the transaction goes on.
            assert_eq!(value(&second, &table, 0).await.map(|it| it % 10), Some(0));
            assert!(set(&mut second, &table, 1, 2).await.unwrap());
            second.rollback().await;
            first.rollback().await;
        }
    });
}

/// G1a, G1b: nobody sees what was not committed, or what is no version's last state.
#[test]
fn dirty_and_intermediate_read() {
    with_rows(1, async |engine: Engine, table| {
        for level in LEVELS {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut writer = one.begin(options(level));
            let reader = two.begin(options(level));
            set(&mut writer, &table, 0, 101).await.unwrap();
            assert_eq!(value(&reader, &table, 0).await, Some(0), "{level:?}");
            set(&mut writer, &table, 0, 102).await.unwrap();
            assert_eq!(value(&writer, &table, 0).await, Some(102), "its own");
            assert_eq!(value(&reader, &table, 0).await, Some(0));
            writer.rollback().await;
            assert_eq!(value(&reader, &table, 0).await, Some(0));
            reader.commit().await.unwrap();
        }
    });
}

/// G1c: no information flows in a circle.
#[test]
fn circular_information_flow() {
    with_rows(2, async |engine: Engine, table| {
        for level in LEVELS {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            set(&mut first, &table, 0, 1).await.unwrap();
            set(&mut second, &table, 1, 2).await.unwrap();
            assert_eq!(value(&first, &table, 1).await, Some(10));
            assert_eq!(value(&second, &table, 0).await, Some(0));
            first.rollback().await;
            second.rollback().await;
        }
    });
}

/// OTV and PMP: what has vanished for one read has vanished for the others of the snapshot.
#[test]
fn observed_transaction_vanishes() {
    with_rows(2, async |engine: Engine, table| {
        for level in [Snapshot, Serializable] {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let reader = two.begin(options(level));
            let before = value(&reader, &table, 0).await;
            let mut writer = one.begin(options(level));
            set(&mut writer, &table, 0, 7).await.unwrap();
            set(&mut writer, &table, 1, 7).await.unwrap();
            writer.commit().await.unwrap();
            assert_eq!(value(&reader, &table, 0).await, before);
            assert_ne!(value(&reader, &table, 1).await, Some(7));
            reader.rollback().await;
            let mut reset = one.begin(options(level));
            set(&mut reset, &table, 0, 0).await.unwrap();
            set(&mut reset, &table, 1, 10).await.unwrap();
            reset.commit().await.unwrap();
        }
    });
}

/// P2: a second read of a row gives the same; read committed sees the newer one.
#[test]
fn fuzzy_read() {
    with_rows(1, async |engine: Engine, table| {
        for level in LEVELS {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let reader = one.begin(options(level));
            let before = value(&reader, &table, 0).await.unwrap();
            let mut writer = two.begin(options(level));
            set(&mut writer, &table, 0, before + 1).await.unwrap();
            writer.commit().await.unwrap();
            let sees_newer = value(&reader, &table, 0).await == Some(before + 1);
            assert_eq!(sees_newer, level == ReadCommitted);
            reader.rollback().await;
        }
    });
}

/// A statement of a read committed transaction has one snapshot.
#[test]
fn statements_of_read_committed() {
    with_rows(1, async |engine: Engine, table| {
        let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
        let mut reader = one.begin(options(ReadCommitted));
        reader.begin_statement();
        let mut writer = two.begin(options(ReadCommitted));
        set(&mut writer, &table, 0, 5).await.unwrap();
        writer.commit().await.unwrap();
        assert_eq!(value(&reader, &table, 0).await, Some(0));
        reader.end_statement();
        assert_eq!(value(&reader, &table, 0).await, Some(5));
        reader.commit().await.unwrap();
    });
}

/// P4: no update is lost; read committed works on what was committed last.
#[test]
fn lost_update() {
    with_rows(1, async |engine: Engine, table| {
        for level in LEVELS {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            let before = value(&first, &table, 0).await.unwrap();
            value(&second, &table, 0).await.unwrap();
            let add = |row: &[u8], changed: &mut Vec<u8>| {
                changed.extend(bytes(0, 0, numbers(row).2 + 1));
                true
            };
            assert!(first.update_with(&table, &[0; 8], add).await.unwrap());
            first.commit().await.unwrap();
            let done = second.update_with(&table, &[0; 8], add).await;
            let expected = match level {
                ReadCommitted => {
                    assert!(done.unwrap());
                    before + 2
                }
                _ => {
                    assert!(is_conflict(done));
                    before + 1
                }
            };
            second.commit().await.unwrap();
            let check = one.begin(options(level));
            assert_eq!(value(&check, &table, 0).await, Some(expected), "{level:?}");
        }
    });
}

/// A5A: a snapshot shows no half of another transaction.
#[test]
fn read_skew() {
    with_rows(2, async |engine: Engine, table| {
        for level in LEVELS {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let reader = one.begin(options(level));
            let first = value(&reader, &table, 0).await.unwrap();
            let second = {
                let other = two.begin(options(level));
                value(&other, &table, 1).await.unwrap()
            };
            let sum = first.wrapping_add(second);
            let mut writer = two.begin(options(level));
            set(&mut writer, &table, 0, first.wrapping_add(5)).await.unwrap();
            set(&mut writer, &table, 1, second.wrapping_sub(5)).await.unwrap();
            writer.commit().await.unwrap();
            let is_whole = first.wrapping_add(value(&reader, &table, 1).await.unwrap()) == sum;
            assert_eq!(is_whole, level != ReadCommitted);
            // It has read what was replaced, and changes nothing: it comes before the writer.
            reader.commit().await.unwrap();
        }
    });
}

/// A5B: write skew is what snapshots allow, and serializable transactions do not.
#[test]
fn write_skew() {
    with_rows(2, async |engine: Engine, table| {
        for level in [Snapshot, Serializable] {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            for key in 0..2 {
                value(&first, &table, key).await.unwrap();
                value(&second, &table, key).await.unwrap();
            }
            set(&mut first, &table, 0, 100).await.unwrap();
            set(&mut second, &table, 1, 100).await.unwrap();
            first.commit().await.unwrap();
            assert_eq!(fails(second.commit().await), level == Serializable);
        }
    });
}

/// As write skew, between keys that are not there: each looks for the other's, and inserts its own.
#[test]
fn write_skew_of_absent_keys() {
    with_rows(1, async |engine: Engine, table| {
        for (level, base) in [(Snapshot, 100), (Serializable, 200)] {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            assert_eq!(value(&first, &table, base).await, None);
            assert_eq!(value(&second, &table, base + 1).await, None);
            first.insert(&table, &bytes(base + 1, 0, 0)).await.unwrap();
            second.insert(&table, &bytes(base, 0, 0)).await.unwrap();
            first.commit().await.unwrap();
            assert_eq!(fails(second.commit().await), level == Serializable);
        }
    });
}

/// The same with keys whose rows were deleted, which come back.
#[test]
fn write_skew_of_deleted_keys() {
    with_rows(4, async |engine: Engine, table| {
        for (level, base) in [(Snapshot, 0), (Serializable, 2)] {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut delete = one.begin(options(level));
            for key in base..base + 2 {
                assert!(delete.remove(&table, &u64::to_be_bytes(key)).await.unwrap());
            }
            delete.commit().await.unwrap();
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            assert_eq!(value(&first, &table, base).await, None);
            assert_eq!(value(&second, &table, base + 1).await, None);
            first.insert(&table, &bytes(base + 1, 0, 0)).await.unwrap();
            second.insert(&table, &bytes(base, 0, 0)).await.unwrap();
            first.commit().await.unwrap();
            assert_eq!(fails(second.commit().await), level == Serializable);
        }
    });
}

/// P3: a snapshot shows no phantom; read committed does.
#[test]
fn phantom() {
    with_rows(3, async |engine: Engine, table| {
        for (at, level) in LEVELS.into_iter().enumerate() {
            for index in [0, GROUPS] {
                let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
                let reader = one.begin(options(level));
                let before = values(&reader, &table, index).await;
                let mut writer = two.begin(options(level));
                let key = 100 + 10 * at as u64 + index as u64;
                writer.insert(&table, &bytes(key, 0, 1)).await.unwrap();
                writer.commit().await.unwrap();
                let is_same = values(&reader, &table, index).await == before;
                assert_eq!(is_same, level != ReadCommitted);
                reader.commit().await.unwrap();
            }
        }
    });
}

/// G2: write skew by a predicate: each counts the rows of a range, and adds one to it.
#[test]
fn write_skew_by_range() {
    with_rows(3, async |engine: Engine, table| {
        for (at, level) in [Snapshot, Serializable].into_iter().enumerate() {
            for index in [0, GROUPS] {
                let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
                let mut first = one.begin(options(level));
                let mut second = two.begin(options(level));
                let count = values(&first, &table, index).await.len() as u64;
                assert_eq!(values(&second, &table, index).await.len() as u64, count);
                let key = 1000 * (2 * at as u64 + index as u64 + 1);
                first.insert(&table, &bytes(key, 0, count)).await.unwrap();
                second.insert(&table, &bytes(key + 1, 0, count)).await.unwrap();
                first.commit().await.unwrap();
                assert_eq!(fails(second.commit().await), level == Serializable, "index {index}");
            }
        }
    });
}

/// The same by an update that moves a row into a range of a secondary index, and out of it.
#[test]
fn write_skew_by_moves() {
    with_rows(4, async |engine: Engine, table| {
        let in_group = async |transaction: &Transaction<'_>, table: &Arc<Table>, group: u64| {
            let (low, high) = (group.to_be_bytes(), (group + 1).to_be_bytes());
            let visit = |_, _: &[u8]| ControlFlow::Continue(());
            let scan = transaction.scan(
                table,
                GROUPS,
                Some(&low),
                Some(&high),
                Direction::Forwards,
                visit,
            );
            scan.await.unwrap()
        };
        for level in [Snapshot, Serializable] {
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            assert_eq!(in_group(&first, &table, 1).await, 0);
            assert_eq!(in_group(&second, &table, 2).await, 0);
            for (transaction, key, group) in [(&mut first, 0_u64, 2), (&mut second, 1, 1)] {
                let row = bytes(key, group, 0);
                assert!(transaction.update(&table, &key.to_be_bytes(), &row).await.unwrap());
            }
            first.commit().await.unwrap();
            assert_eq!(fails(second.commit().await), level == Serializable);
            let mut back = one.begin(options(level));
            for key in 0..2_u64 {
                back.update(&table, &key.to_be_bytes(), &bytes(key, 0, 0)).await.unwrap();
            }
            back.commit().await.unwrap();
            let check = one.begin(options(level));
            assert_eq!(
                (in_group(&check, &table, 1).await, in_group(&check, &table, 2).await),
                (0, 0)
            );
            assert_eq!(in_group(&check, &table, 0).await, 4);
        }
    });
}

/// Fekete, O'Neil, O'Neil: a transaction that only reads makes a history that no order explains.
#[test]
fn read_only_anomaly() {
    with_rows(2, async |engine: Engine, table| {
        for level in [Snapshot, Serializable] {
            let mut contexts: Vec<_> = (0..3).map(|_| engine.context().unwrap()).collect();
            let [one, two, three] = &mut contexts[..] else { unreachable!() };
            let mut withdrawal = two.begin(options(level));
            value(&withdrawal, &table, 0).await.unwrap();
            value(&withdrawal, &table, 1).await.unwrap();
            let mut deposit = one.begin(options(level));
            let savings = value(&deposit, &table, 1).await.unwrap();
            set(&mut deposit, &table, 1, savings + 20).await.unwrap();
            deposit.commit().await.unwrap();
            let report = three.begin(options(level));
            value(&report, &table, 0).await.unwrap();
            value(&report, &table, 1).await.unwrap();
            report.commit().await.unwrap();
            set(&mut withdrawal, &table, 0, 1).await.unwrap();
            assert_eq!(fails(withdrawal.commit().await), level == Serializable);
        }
    });
}

/// Reads that come before everybody's writes, and rows that a transaction reads and changes itself, fail nobody.
#[test]
fn harmless_histories_commit() {
    with_rows(8, async |engine: Engine, table| {
        let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
        for round in 0..50 {
            let mut first = one.begin(options(Serializable));
            let mut second = two.begin(options(Serializable));
            for key in 0..4 {
                let old = value(&first, &table, key).await.unwrap();
                set(&mut first, &table, key, old + 1).await.unwrap();
                let old = value(&second, &table, 4 + key).await.unwrap();
                set(&mut second, &table, 4 + key, old + 1).await.unwrap();
            }
            for (transaction, key) in [(&mut first, 1000 + round), (&mut second, 2000 + round)] {
                assert_eq!(value(transaction, &table, key).await, None);
                transaction.insert(&table, &bytes(key, 0, 0)).await.unwrap();
            }
            first.commit().await.unwrap();
            second.commit().await.unwrap();
            let count = one.begin(options(Serializable));
            let mut third = two.begin(options(Serializable));
            assert_eq!(values(&count, &table, 0).await.len() as u64, 8 + 2 * (round + 1));
            third.insert(&table, &bytes(3000 + round, 0, 0)).await.unwrap();
            // Whoever counts without the new row comes before.
            third.commit().await.unwrap();
            count.commit().await.unwrap();
            let mut back = two.begin(options(Serializable));
            assert!(back.remove(&table, &u64::to_be_bytes(3000 + round)).await.unwrap());
            back.commit().await.unwrap();
        }
    });
}

/// Two that insert a key: one has it, and the other hears of it.
#[test]
fn one_row_of_a_key() {
    with_rows(1, async |engine: Engine, table| {
        for (at, level) in LEVELS.into_iter().enumerate() {
            let key = 50 + at as u64;
            let (mut one, mut two) = (engine.context().unwrap(), engine.context().unwrap());
            let mut first = one.begin(options(level));
            let mut second = two.begin(options(level));
            first.insert(&table, &bytes(key, 0, 1)).await.unwrap();
            if level != ReadCommitted {
                assert!(is_conflict(second.insert(&table, &bytes(key, 0, 2)).await));
            }
            first.commit().await.unwrap();
            let done = second.insert(&table, &bytes(key, 0, 2)).await;
            match level {
                ReadCommitted => assert!(matches!(done, Err(TxnError::DuplicateKey { .. }))),
                _ => assert!(is_conflict(done)),
            }
            second.rollback().await;
            let mut third = two.begin(options(level));
            let done = third.insert(&table, &bytes(key, 0, 2)).await;
            assert!(matches!(done, Err(TxnError::DuplicateKey { index: 0, .. })));
            assert_eq!(value(&third, &table, key).await, Some(1));
            third.rollback().await;
        }
    });
}

/// A read committed transaction waits for the one that has the row, and works on what that has made of it.
#[test]
fn read_committed_waits() {
    with_rows(1, async |engine: Engine, table| {
        for commits in [true, false] {
            let mut one = engine.context().unwrap();
            let mut first = one.begin(options(ReadCommitted));
            let before = value(&first, &table, 0).await.unwrap();
            set(&mut first, &table, 0, before + 1).await.unwrap();
            let (other, its_table) = (engine.clone(), table.clone());
            let waiting = weft_rt::spawn_local(async move {
                let work = async |transaction: &mut Transaction<'_>| {
                    let add = |row: &[u8], changed: &mut Vec<u8>| {
                        changed.extend(bytes(0, 0, numbers(row).2 + 100));
                        true
                    };
                    transaction.update_with(&its_table, &[0; 8], add).await
                };
                other.transaction(options(ReadCommitted), work).await
            });
            weft_rt::sleep(Duration::from_millis(1)).await;
            match commits {
                true => _ = first.commit().await.unwrap(),
                false => first.rollback().await,
            }
            assert!(waiting.await.unwrap().unwrap());
            let check = one.begin(options(ReadCommitted));
            let expected = before + 100 + u64::from(commits);
            assert_eq!(value(&check, &table, 0).await, Some(expected));
        }
    });
}

/// Two that wait for each other: one hears of it.
#[test]
fn deadlocks_end() {
    with_rows(2, async |engine: Engine, table| {
        let run = |first: u64| {
            let (engine, table) = (engine.clone(), table.clone());
            weft_rt::spawn_local(async move {
                let mut context = engine.context().unwrap();
                let mut transaction = context.begin(options(ReadCommitted));
                set(&mut transaction, &table, first, 1).await.unwrap();
                weft_rt::sleep(Duration::from_millis(1)).await;
                let done = set(&mut transaction, &table, 1 - first, 1).await;
                match done {
                    Ok(_) => transaction.commit().await.map(|_| ()),
                    Err(error) => {
                        transaction.rollback().await;
                        Err(error)
                    }
                }
            })
        };
        let (one, two) = (run(0), run(1));
        let ends = [one.await.unwrap(), two.await.unwrap()];
        let dead = ends.iter().filter(|end| matches!(end, Err(TxnError::Deadlock { .. })));
        assert_eq!(dead.count(), 1, "{ends:?}");
    });
}
