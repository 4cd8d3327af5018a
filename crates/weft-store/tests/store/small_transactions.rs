//! Small transactions of many sessions, whose commits are made durable together: of several transactions that change one row one
//! commits, keys stay unique, and foreign keys hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::DataType;
use weft_rt::io::DriverKind;
use weft_rt::sync::block_on;
use weft_store::*;

use crate::support::*;

const ACCOUNTS: i64 = 40;
const SESSIONS: usize = 8;
const TRANSACTIONS: usize = 25;

fn accounts() -> TableSchema {
    table("accounts", &[("number", DataType::Int64), ("balance", DataType::Int64)])
}

fn batch(rows: &[(i64, i64)]) -> RecordBatch {
    let (numbers, balances): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(numbers)), Arc::new(Int64Array::from(balances))];
    RecordBatch::try_new(accounts().arrow_schema(), columns).unwrap()
}

/// Accounts without money, and an empty history, which refers to them.
fn make(store: &Store) {
    let schemas = [accounts(), number_table("history")];
    let create = |schema| Change::CreateTable { schema, or_replace: false };
    let mut changes: Vec<Change> = schemas.into_iter().map(create).collect();
    changes.push(Change::CreateIndex {
        table: "accounts".into(),
        expected: None,
        definition: index("accounts_pkey", &[0], true),
    });
    let (columns, parent_columns) = (vec![0], vec![0]);
    let key = ForeignKey { name: "history_fkey".into(), columns, parent: 0, parent_columns };
    changes.push(Change::AddForeignKey { table: "history".into(), parent: "accounts".into(), key });
    let rows: Vec<(i64, i64)> = (0..ACCOUNTS).map(|number| (number, 0)).collect();
    let groups = write(store, &accounts(), &[batch(&rows)]).unwrap();
    changes.push(Change::Append { table: "accounts".into(), expected: None, groups });
    store.commit_blocking(changes).unwrap();
}

/// The accounts of a snapshot: number, balance, and id of the row.
fn rows_of(snapshot: &Snapshot) -> Vec<(i64, i64, u64)> {
    let table = snapshot.table("accounts").unwrap();
    let all = ScanOptions { projection: vec![0, 1], ..ScanOptions::default() };
    let all = collect(&table, all).unwrap();
    let (numbers, balances) = (column_of::<Int64Type>(&all, 0), column_of::<Int64Type>(&all, 1));
    let ids = column_of::<UInt64Type>(&all, 2);
    numbers.into_iter().zip(balances).zip(ids).map(|((n, b), id)| (n, b, id)).collect()
}

/// Gives accounts of a transaction these amounts more, and writes them down; the account gets another number where one is given.
fn change(
    store: &Store,
    transaction: &Arc<Transaction>,
    amounts: &[(i64, i64)],
    renumber: impl Fn(i64) -> i64,
) -> Result<()> {
    let snapshot = transaction.snapshot()?;
    let (mut gone, mut new, mut written) = (RowSet::default(), Vec::new(), Vec::new());
    for (number, balance, id) in rows_of(&snapshot) {
        for (_, amount) in amounts.iter().filter(|(of, _)| *of == number) {
            gone.insert(id);
            new.push((renumber(number), balance + amount));
            written.push(renumber(number));
        }
    }
    let expected = Some(snapshot.table("accounts").unwrap().id());
    let table = || "accounts".to_owned();
    let groups = write(store, &accounts(), &[batch(&new)])?;
    let history = write(store, &number_table("history"), &[number_list(written)])?;
    block_on(transaction.apply(vec![
        Change::Delete { table: table(), expected, rows: gone },
        Change::Append { table: table(), expected, groups },
        Change::Append { table: "history".into(), expected: None, groups: history },
    ]))
}

fn begin(store: &Store) -> Arc<Transaction> {
    Arc::new(store.begin(Isolation::Snapshot))
}

fn check(store: &Store, transactions: usize) {
    let snapshot = store.snapshot();
    let mut rows = rows_of(&snapshot);
    rows.sort_unstable();
    assert!(rows.iter().map(|row| row.0).eq(0..ACCOUNTS), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.1).sum::<i64>(), 0);
    assert_eq!(snapshot.table("history").unwrap().rows(), 2 * transactions as u64);
    let accounts = snapshot.table("accounts").unwrap();
    assert_eq!(by_index(&accounts, "accounts_pkey").num_rows() as i64, ACCOUNTS);
    assert_eq!(block_on(accounts.check_index("accounts_pkey")).unwrap(), None);
}

#[test]
fn transfers_of_many_sessions_keep_the_sum() {
    let files = tempfile::tempdir().unwrap();
    let directory = Directory::Os(files.path().join("db"));
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    make(&store);
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let store = &store;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(session as u64);
                for _ in 0..TRANSACTIONS {
                    let from = random.i64(0..ACCOUNTS);
                    let to = (from + random.i64(1..ACCOUNTS)) % ACCOUNTS;
                    loop {
                        let transaction = begin(store);
                        change(store, &transaction, &[(from, -1), (to, 1)], |n| n).unwrap();
                        match block_on(transaction.commit()) {
                            Ok(()) => break,
                            Err(StoreError::Serialization { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    check(&store, SESSIONS * TRANSACTIONS);
    drop(store);
    check(&open(&directory, &runtime), SESSIONS * TRANSACTIONS);
}

#[test]
fn of_transactions_that_change_one_row_one_commits() {
    let files = tempfile::tempdir().unwrap();
    let directory = Directory::Os(files.path().join("db"));
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    make(&store);
    for round in 0..10 {
        // Each also changes a row of its own.
        let transactions: Vec<_> = (1..=SESSIONS as i64)
            .map(|own| {
                let transaction = begin(&store);
                change(&store, &transaction, &[(0, -1), (own, 1)], |n| n).unwrap();
                transaction
            })
            .collect();
        let committed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for transaction in &transactions {
                scope.spawn(|| match block_on(transaction.commit()) {
                    Ok(()) => drop(committed.fetch_add(1, Ordering::Relaxed)),
                    Err(StoreError::Serialization { what, .. }) => {
                        assert_eq!(what, "table accounts");
                    }
                    Err(error) => panic!("{error}"),
                });
            }
        });
        assert_eq!(committed.into_inner(), 1, "round {round}");
        check(&store, round + 1);
    }
}

#[test]
fn a_key_that_others_refer_to_stays_in_an_update_or_is_refused() {
    let files = tempfile::tempdir().unwrap();
    let directory = Directory::Os(files.path().join("db"));
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    make(&store);
    let transaction = begin(&store);
    change(&store, &transaction, &[(3, 5), (4, -5)], |n| n).unwrap();
    block_on(transaction.commit()).unwrap();
    check(&store, 1);
    // Numbers that change places are there afterwards.
    let transaction = begin(&store);
    change(&store, &transaction, &[(3, 1), (4, -1)], |n| 7 - n).unwrap();
    block_on(transaction.commit()).unwrap();
    check(&store, 2);
    // One that goes is refused, within a transaction and by a statement of its own.
    let transaction = begin(&store);
    let error = change(&store, &transaction, &[(3, 0)], |n| n + 100).unwrap_err();
    assert!(matches!(error, StoreError::Unreferenced { .. }), "{error}");
    let snapshot = store.snapshot();
    let (_, _, id) = rows_of(&snapshot).into_iter().find(|row| row.0 == 3).unwrap();
    let mut rows = RowSet::default();
    rows.insert(id);
    let expected = Some(snapshot.table("accounts").unwrap().id());
    let error =
        store.commit_blocking(vec![Change::Delete { table: "accounts".into(), expected, rows }]);
    assert!(matches!(error, Err(StoreError::Unreferenced { .. })), "{error:?}");
    check(&store, 2);
}
