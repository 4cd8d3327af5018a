//! Transactions of several statements: what they see, what of it remains, what does not go together, and that nothing is left of
//! those that are given up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt64Type};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimDisk, SimFaults, SimOptions};
use weft_rt::sync::block_on;
use weft_store::*;

use crate::support::*;

struct Fixture {
    runtime: Arc<weft_rt::Runtime>,
    directory: Directory,
    _files: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let files = tempfile::tempdir().unwrap();
        let directory = Directory::Os(files.path().join("db"));
        Fixture { runtime: runtime(DriverKind::Auto, 2), directory, _files: files }
    }

    fn open(&self) -> Arc<Store> {
        open(&self.directory, &self.runtime)
    }
}

/// Makes tables of numbers, each with an index of them.
fn make(store: &Store, tables: &[(&str, bool)]) {
    let mut changes = Vec::new();
    for (name, is_unique) in tables {
        changes.push(Change::CreateTable { schema: number_table(name), or_replace: false });
        changes.push(create_index(name, *is_unique));
    }
    store.commit_blocking(changes).unwrap();
}

fn create_index(table: &str, is_unique: bool) -> Change {
    let definition = index(&format!("{table}_idx"), &[0], is_unique);
    Change::CreateIndex { table: table.into(), expected: None, definition }
}

/// Numbers that come into a table.
fn adding(store: &Store, table: &str, numbers: Vec<i64>) -> Change {
    let groups = write(store, &number_table(table), &[number_list(numbers)]).unwrap();
    Change::Append { table: table.into(), expected: None, groups }
}

/// Numbers that go from a table of a snapshot.
fn deleting(snapshot: &Snapshot, name: &str, goes: impl Fn(i64) -> bool) -> Change {
    let table = snapshot.table(name).unwrap();
    let all = collect(&table, ScanOptions { projection: vec![0], ..Default::default() }).unwrap();
    let (numbers, ids) = (column_of::<Int64Type>(&all, 0), column_of::<UInt64Type>(&all, 1));
    let mut rows = RowSet::default();
    for (number, id) in numbers.into_iter().zip(ids) {
        if goes(number) {
            assert!(rows.insert(id));
        }
    }
    Change::Delete { table: name.into(), expected: Some(table.id()), rows }
}

/// The numbers of a table of a snapshot, in order, which its indexes have as well.
fn numbers_of(snapshot: &Snapshot, name: &str) -> Vec<i64> {
    let table = snapshot.table(name).unwrap();
    let mut all = column_of::<Int64Type>(&everything(&table).unwrap(), 0);
    all.sort_unstable();
    assert_eq!(table.rows(), all.len() as u64, "rows of {name}");
    for index in table.indexes() {
        let mut found = column_of::<Int64Type>(&by_index(&table, &index.name), 0);
        found.sort_unstable();
        assert_eq!(found, all, "index {}", index.name);
        assert_eq!(block_on(table.check_index(&index.name)).unwrap(), None);
    }
    all
}

fn begin(store: &Store) -> Arc<Transaction> {
    Arc::new(store.begin(Isolation::Snapshot))
}

fn apply(transaction: &Arc<Transaction>, changes: Vec<Change>) -> Result<()> {
    block_on(transaction.apply(changes))
}

fn commit(transaction: &Arc<Transaction>) -> Result<()> {
    block_on(transaction.commit())
}

/// Makes changes that need not be applied at once, if possible; tells whether they wait.
fn change(transaction: &Arc<Transaction>, changes: Vec<Change>) -> Result<bool> {
    match transaction.defer(changes)? {
        Some(changes) => apply(transaction, changes).map(|()| false),
        None => Ok(true),
    }
}

/// What a transaction sees, once all its changes are applied.
fn view(transaction: &Arc<Transaction>) -> Arc<Snapshot> {
    block_on(transaction.settle()).unwrap();
    transaction.snapshot().unwrap()
}

/// Numbers that come into the table of this name in a snapshot.
fn adding_to(store: &Store, snapshot: &Snapshot, name: &str, numbers: Vec<i64>) -> Change {
    let Change::Append { table, groups, .. } = adding(store, name, numbers) else { unreachable!() };
    Change::Append { table, expected: Some(snapshot.table(name).unwrap().id()), groups }
}

/// Adds numbers to a table.
fn add(store: &Store, transaction: &Arc<Transaction>, table: &str, numbers: Vec<i64>) {
    apply(transaction, vec![adding(store, table, numbers)]).unwrap();
}

/// Deletes numbers of a table.
fn delete(transaction: &Arc<Transaction>, table: &str, goes: impl Fn(i64) -> bool) {
    let change = deleting(&view(transaction), table, goes);
    apply(transaction, vec![change]).unwrap();
}

/// Checks that a commit does not go together with what others have done.
fn check_conflict(transaction: &Arc<Transaction>, message: &str) {
    match commit(transaction) {
        Err(error @ StoreError::Serialization { .. }) => {
            assert!(error.to_string().contains(message), "{error}");
        }
        other => panic!("{other:?} instead of: {message}"),
    }
    assert!(matches!(transaction.snapshot(), Err(StoreError::TransactionEnded)));
}

/// All bytes of the data files are a header, a table's or free.
fn check_space(store: &Store) {
    // Space that commits of the journal have freed waits for a manifest.
    weft_rt::sync::block_on(store.checkpoint()).unwrap();
    let snapshot = store.snapshot();
    let used: u64 =
        snapshot.tables().map(|name| snapshot.table(name).unwrap().bytes_on_disk()).sum();
    drop(snapshot);
    let headers = store.devices().len() as u64 * 4096;
    assert_eq!(store.bytes_free() + used + headers, store.bytes_on_disk(), "space is lost");
}

#[test]
fn changes_are_seen_by_their_transaction_alone_until_it_commits() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    store.commit_blocking(vec![adding(&store, "t", (0..100).collect())]).unwrap();
    let transaction = begin(&store);
    add(&store, &transaction, "t", vec![100, 101]);
    assert_eq!(numbers_of(&view(&transaction), "t"), (0..102).collect::<Vec<_>>());
    delete(&transaction, "t", |number| number % 2 == 0);
    add(&store, &transaction, "t", vec![4, 200]);
    let expected: Vec<i64> = [vec![1, 3, 4], (5..102).step_by(2).collect(), vec![200]].concat();
    assert_eq!(numbers_of(&view(&transaction), "t"), expected);
    assert_eq!(numbers_of(&store.snapshot(), "t"), (0..100).collect::<Vec<_>>());
    commit(&transaction).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "t"), expected);
    drop(transaction);
    check_space(&store);
    drop(store);
    let store = fixture.open();
    assert_eq!(numbers_of(&store.snapshot(), "t"), expected);
    check_space(&store);
}

#[test]
fn nothing_is_left_of_a_transaction_that_is_rolled_back_or_dropped() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    store.commit_blocking(vec![adding(&store, "t", (0..5_000).collect())]).unwrap();
    check_space(&store);
    for is_dropped in [false, true] {
        let transaction = begin(&store);
        add(&store, &transaction, "t", (5_000..20_000).collect());
        delete(&transaction, "t", |number| number % 3 == 0);
        make_in(&transaction, "u");
        add(&store, &transaction, "u", (0..3_000).collect());
        let reader = view(&transaction).table("t").unwrap();
        match is_dropped {
            true => drop(transaction),
            false => transaction.roll_back(),
        }
        // Who still reads finds all.
        assert_eq!(reader.rows(), everything(&reader).unwrap().num_rows() as u64);
        drop(reader);
        assert_eq!(numbers_of(&store.snapshot(), "t"), (0..5_000).collect::<Vec<_>>());
        assert!(store.snapshot().table("u").is_none());
        check_space(&store);
    }
}

fn make_in(transaction: &Arc<Transaction>, name: &str) {
    let create = Change::CreateTable { schema: number_table(name), or_replace: false };
    apply(transaction, vec![create, create_index(name, false)]).unwrap();
}

#[test]
fn what_others_add_to_a_table_is_no_conflict() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    let (first, second) = (begin(&store), begin(&store));
    add(&store, &first, "t", vec![1, 2, 3]);
    delete(&first, "t", |number| number == 2);
    add(&store, &second, "t", vec![10, 20, 30]);
    store.commit_blocking(vec![adding(&store, "t", vec![100])]).unwrap();
    assert_eq!(numbers_of(&view(&second), "t"), [10, 20, 30]);
    commit(&first).unwrap();
    commit(&second).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "t"), [1, 3, 10, 20, 30, 100]);
    drop((first, second));
    check_space(&store);
}

#[test]
fn rows_that_two_change_and_keys_that_two_take_are_conflicts() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    store.commit_blocking(vec![adding(&store, "t", vec![1, 2, 3])]).unwrap();
    let (first, second, third) = (begin(&store), begin(&store), begin(&store));
    delete(&first, "t", |number| number == 2);
    delete(&second, "t", |number| number == 2);
    add(&store, &first, "t", vec![7]);
    add(&store, &third, "t", vec![7]);
    commit(&first).unwrap();
    check_conflict(&second, "table t was changed");
    check_conflict(&third, "key of t_idx in table t was taken");
    assert_eq!(numbers_of(&store.snapshot(), "t"), [1, 3, 7]);
    // The key that another one has given up is free.
    let (first, second) = (begin(&store), begin(&store));
    delete(&first, "t", |number| number == 1);
    commit(&first).unwrap();
    let error = apply(&second, vec![adding(&store, "t", vec![1])]).unwrap_err();
    assert!(matches!(error, StoreError::Duplicate { .. }), "{error}");
    add(&store, &second, "t", vec![8]);
    commit(&second).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "t"), [3, 7, 8]);
    drop((first, second, third));
    check_space(&store);
}

#[test]
fn tables_that_others_drop_or_make_are_conflicts() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true), ("u", false)]);
    let (first, second, third) = (begin(&store), begin(&store), begin(&store));
    add(&store, &first, "t", vec![1]);
    add(&store, &first, "u", vec![1]);
    make_in(&second, "v");
    make_in(&third, "v");
    add(&store, &second, "v", vec![5]);
    store.commit_blocking(vec![Change::DropTable { name: "u".into(), expected: None }]).unwrap();
    check_conflict(&first, "table u was dropped");
    commit(&second).unwrap();
    check_conflict(&third, "table v was created");
    assert_eq!(numbers_of(&store.snapshot(), "v"), [5]);
    assert_eq!(numbers_of(&store.snapshot(), "t"), [0_i64; 0]);
    drop((first, second, third));
    check_space(&store);
}

#[test]
fn a_truncated_table_is_empty_and_takes_rows_again() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    store.commit_blocking(vec![adding(&store, "t", (0..50).collect())]).unwrap();
    let truncate = || Change::Truncate { table: "t".into(), expected: None };
    let (first, second) = (begin(&store), begin(&store));
    add(&store, &first, "t", vec![100]);
    apply(&first, vec![truncate()]).unwrap();
    assert_eq!(numbers_of(&view(&first), "t"), [0_i64; 0]);
    add(&store, &first, "t", vec![7, 8, 9]);
    delete(&first, "t", |number| number == 8);
    assert_eq!(numbers_of(&view(&first), "t"), [7, 9]);
    apply(&second, vec![truncate()]).unwrap();
    commit(&first).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "t"), [7, 9]);
    check_conflict(&second, "table t was changed");
    drop((first, second));
    check_space(&store);
}

#[test]
fn savepoints_nest_and_are_returned_to() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    store.commit_blocking(vec![adding(&store, "t", vec![1, 2])]).unwrap();
    let transaction = begin(&store);
    let back = |name: &str| block_on(transaction.roll_back_to(name));
    add(&store, &transaction, "t", vec![10]);
    transaction.savepoint("a").unwrap();
    add(&store, &transaction, "t", vec![20]);
    delete(&transaction, "t", |number| number == 1 || number == 10);
    transaction.savepoint("b").unwrap();
    add(&store, &transaction, "t", vec![30]);
    make_in(&transaction, "u");
    assert_eq!(numbers_of(&view(&transaction), "t"), [2, 20, 30]);
    back("b").unwrap();
    assert_eq!(numbers_of(&view(&transaction), "t"), [2, 20]);
    assert!(view(&transaction).table("u").is_none());
    add(&store, &transaction, "t", vec![30, 31]);
    back("b").unwrap();
    add(&store, &transaction, "t", vec![32]);
    assert_eq!(numbers_of(&view(&transaction), "t"), [2, 20, 32]);
    back("a").unwrap();
    assert_eq!(numbers_of(&view(&transaction), "t"), [1, 2, 10]);
    assert!(matches!(back("b"), Err(StoreError::NoSuchSavepoint { .. })));
    add(&store, &transaction, "t", vec![20]);
    transaction.release("a").unwrap();
    assert!(matches!(back("a"), Err(StoreError::NoSuchSavepoint { .. })));
    commit(&transaction).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "t"), [1, 2, 10, 20]);
    drop(transaction);
    check_space(&store);
}

#[test]
fn a_statement_that_fails_leaves_the_transaction_as_it_was() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true), ("u", true)]);
    store.commit_blocking(vec![adding(&store, "t", vec![1, 2])]).unwrap();
    let transaction = begin(&store);
    add(&store, &transaction, "t", vec![3]);
    for numbers in [vec![5, 3], vec![6, 2], vec![8, 8]] {
        let changes = vec![adding(&store, "u", vec![1]), adding(&store, "t", numbers)];
        let error = apply(&transaction, changes).unwrap_err();
        assert!(matches!(error, StoreError::Duplicate { .. }), "{error}");
        assert_eq!(numbers_of(&view(&transaction), "t"), [1, 2, 3]);
        assert_eq!(numbers_of(&view(&transaction), "u"), [0_i64; 0]);
    }
    add(&store, &transaction, "t", vec![5, 6, 8]);
    commit(&transaction).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "t"), [1, 2, 3, 5, 6, 8]);
    drop(transaction);
    check_space(&store);
}

#[test]
fn rows_that_others_refer_to_are_conflicts() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("p", true), ("c", false)]);
    let (columns, parent_columns) = (vec![0], vec![0]);
    let key = ForeignKey { name: "c_fkey".into(), columns, parent: 0, parent_columns };
    let key = Change::AddForeignKey { table: "c".into(), parent: "p".into(), key };
    store.commit_blocking(vec![key, adding(&store, "p", vec![1, 2, 3])]).unwrap();
    let (first, second) = (begin(&store), begin(&store));
    let error = apply(&first, vec![adding(&store, "c", vec![9])]).unwrap_err();
    assert!(matches!(error, StoreError::Unreferenced { .. }), "{error}");
    add(&store, &first, "p", vec![9]);
    add(&store, &first, "c", vec![9, 2]);
    let change = deleting(&view(&first), "p", |number| number == 9);
    assert!(matches!(apply(&first, vec![change]), Err(StoreError::Unreferenced { .. })));
    delete(&second, "p", |number| number == 2);
    commit(&second).unwrap();
    check_conflict(&first, "row of table p that c_fkey needs was deleted");
    assert_eq!(numbers_of(&store.snapshot(), "p"), [1, 3]);
    assert_eq!(numbers_of(&store.snapshot(), "c"), [0_i64; 0]);
}

#[test]
fn definitions_change_with_a_transaction() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true), ("u", false)]);
    store.commit_blocking(vec![adding(&store, "t", vec![1, 2, 2_000])]).unwrap();
    let transaction = begin(&store);
    apply(&transaction, vec![Change::DropIndex { name: "t_idx".into() }]).unwrap();
    add(&store, &transaction, "t", vec![2, 3]);
    apply(&transaction, vec![create_index("t", false)]).unwrap();
    add(&store, &transaction, "t", vec![3]);
    delete(&transaction, "t", |number| number == 1);
    let view_of_it = Change::CreateView { name: "v".into(), sql: "x".into(), or_replace: false };
    let rename = |from: &str, to: &str| Change::RenameTable { from: from.into(), to: to.into() };
    let changes = vec![view_of_it, rename("t", "w"), rename("u", "t"), rename("w", "u")];
    apply(&transaction, changes).unwrap();
    add(&store, &transaction, "t", vec![77]);
    make_in(&transaction, "n");
    add(&store, &transaction, "n", vec![5]);
    store.commit_blocking(vec![adding(&store, "t", vec![50])]).unwrap();
    commit(&transaction).unwrap();
    let snapshot = store.snapshot();
    assert_eq!(numbers_of(&snapshot, "u"), [2, 2, 3, 3, 50, 2_000]);
    assert_eq!(numbers_of(&snapshot, "t"), [77]);
    assert_eq!(numbers_of(&snapshot, "n"), [5]);
    assert_eq!(snapshot.view("v"), Some("x"));
    assert_eq!(snapshot.tables().collect::<Vec<_>>(), ["n", "t", "u"]);
    drop((snapshot, transaction));
    check_space(&store);
}

#[test]
fn what_a_serializable_transaction_has_read_must_not_change() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true), ("u", true)]);
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let read = |transaction: &Arc<Transaction>, name: &str| {
            transaction.note_read(view(transaction).table(name).unwrap().id());
        };
        let (first, second) = (Arc::new(store.begin(isolation)), Arc::new(store.begin(isolation)));
        let only_reads = Arc::new(store.begin(isolation));
        read(&first, "t");
        read(&second, "u");
        read(&only_reads, "t");
        let number = if isolation == Isolation::Snapshot { 1 } else { 2 };
        add(&store, &first, "u", vec![number]);
        add(&store, &second, "t", vec![number]);
        commit(&first).unwrap();
        if isolation == Isolation::Serializable {
            check_conflict(&second, "table u, which this transaction has read, was changed");
        } else {
            commit(&second).unwrap();
        }
        commit(&only_reads).unwrap();
    }
}

#[test]
fn read_committed_transactions_see_commits_beside_what_they_have_changed() {
    const TRANSACTIONS: i64 = 3;
    let mut random = fastrand::Rng::with_seed(4);
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true)]);
    let mut committed = BTreeSet::new();
    // Each changes numbers of its own: what is to be there in the end, and whether it runs.
    let begin = || Arc::new(store.begin(Isolation::ReadCommitted));
    let mut running: Vec<_> = (0..TRANSACTIONS).map(|_| (begin(), BTreeMap::new())).collect();
    let mut waiting = 0;
    for step in 0..400 {
        let of = random.i64(0..TRANSACTIONS);
        let (transaction, changed) = &mut running[of as usize];
        if random.u8(..6) == 0 {
            match random.bool() {
                true => {
                    commit(transaction).unwrap();
                    for (number, is_there) in &*changed {
                        match is_there {
                            true => committed.insert(*number),
                            false => committed.remove(number),
                        };
                    }
                }
                false => transaction.roll_back(),
            }
            (*transaction, *changed) = (begin(), BTreeMap::new());
            continue;
        }
        block_on(transaction.refresh()).unwrap();
        let mut expected: BTreeSet<i64> = committed.clone();
        for (number, is_there) in &*changed {
            match is_there {
                true => expected.insert(*number),
                false => expected.remove(number),
            };
        }
        if random.bool() {
            let seen = numbers_of(&view(transaction), "t");
            assert_eq!(seen, expected.iter().copied().collect::<Vec<_>>(), "step {step}");
        }
        let number = random.i64(0..20) * TRANSACTIONS + of;
        let is_there = expected.contains(&number);
        let next = match is_there {
            true => {
                let next = deleting(&view(transaction), "t", |of| of == number);
                block_on(transaction.lock_rows(std::slice::from_ref(&next), true)).unwrap();
                next
            }
            false => adding_to(&store, &transaction.snapshot().unwrap(), "t", vec![number]),
        };
        waiting += usize::from(change(transaction, vec![next]).unwrap());
        changed.insert(number, !is_there);
    }
    running.clear();
    assert!(waiting > 20, "only {waiting} changes waited");
    let numbers: Vec<i64> = committed.iter().copied().collect();
    assert_eq!(numbers_of(&store.snapshot(), "t"), numbers);
    check_space(&store);
}

#[test]
fn changes_wait_until_their_table_is_read() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true), ("u", false)]);
    store.commit_blocking(vec![adding(&store, "t", vec![1, 2, 3])]).unwrap();
    store.commit_blocking(vec![adding(&store, "u", vec![1])]).unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let transaction = Arc::new(store.begin(isolation));
        let seen = transaction.snapshot().unwrap();
        let update = |number| {
            let gone = deleting(&seen, "t", |of| of == number);
            vec![gone, adding_to(&store, &seen, "t", vec![number])]
        };
        let taken = || vec![adding_to(&store, &seen, "t", vec![3])];
        assert!(change(&transaction, taken()).is_err(), "a key that is taken");
        assert!(change(&transaction, update(2)).unwrap());
        assert!(change(&transaction, vec![adding_to(&store, &seen, "u", vec![7])]).unwrap());
        assert!(change(&transaction, vec![adding_to(&store, &seen, "u", vec![8])]).unwrap());
        assert!(transaction.has_waiting("t") && transaction.has_waiting("u"));
        assert!(!change(&transaction, update(1)).unwrap(), "a table with keys and changes");
        assert!(!transaction.has_waiting("t") && !transaction.has_waiting("u"));
        let of_u = numbers_of(&seen, "u");
        let expected: Vec<i64> = of_u.iter().copied().chain([7, 8]).collect();
        assert_eq!(numbers_of(&transaction.snapshot().unwrap(), "u"), expected);
        // What others commit has the changes wait again, of a transaction that sees it.
        store.commit_blocking(vec![adding(&store, "u", vec![0])]).unwrap();
        block_on(transaction.refresh()).unwrap();
        assert_eq!(transaction.has_waiting("t"), isolation == Isolation::ReadCommitted);
        assert_eq!(store.snapshot().table("u").unwrap().rows(), of_u.len() as u64 + 1);
        commit(&transaction).unwrap();
        assert_eq!(numbers_of(&store.snapshot(), "t"), [1, 2, 3]);
        assert_eq!(store.snapshot().table("u").unwrap().rows(), of_u.len() as u64 + 3);
        store.commit_blocking(vec![deleting(&store.snapshot(), "u", |of| of > 1)]).unwrap();
    }
    check_space(&store);
}

#[test]
fn changes_that_wait_go_into_a_table_of_another_name() {
    let fixture = Fixture::new();
    let store = fixture.open();
    make(&store, &[("t", true), ("u", true)]);
    let renamed = || Change::RenameTable { from: "t".into(), to: "v".into() };
    let begin_with = |isolation, table: &str, number: i64| {
        let transaction = Arc::new(store.begin(isolation));
        let seen = transaction.snapshot().unwrap();
        let added = adding_to(&store, &seen, table, vec![number]);
        assert!(change(&transaction, vec![added]).unwrap());
        transaction
    };
    let transaction = begin_with(Isolation::ReadCommitted, "t", 1);
    store.commit_blocking(vec![renamed()]).unwrap();
    commit(&transaction).unwrap();
    assert_eq!(numbers_of(&store.snapshot(), "v"), [1]);
    let transaction = begin_with(Isolation::Snapshot, "u", 1);
    store.commit_blocking(vec![adding(&store, "u", vec![1])]).unwrap();
    check_conflict(&transaction, "taken");
    let transaction = begin_with(Isolation::Snapshot, "u", 2);
    store.commit_blocking(vec![Change::DropTable { name: "u".into(), expected: None }]).unwrap();
    check_conflict(&transaction, "dropped");
    check_space(&store);
}

/// A row of the model: which one it is, whatever its key.
type Rows = BTreeMap<i64, u64>;

/// A transaction of the model.
struct Running {
    transaction: Arc<Transaction>,
    began_with: Rows,
    rows: Rows,
    savepoint: Option<Rows>,
}

impl Running {
    /// The rows after a commit on top of `now`; none if that is a conflict.
    fn committed(&self, now: &Rows) -> Option<Rows> {
        let mut after = now.clone();
        for (key, row) in &self.began_with {
            if self.rows.get(key) != Some(row) && after.remove(key) != Some(*row) {
                return None;
            }
        }
        for (key, row) in &self.rows {
            if self.began_with.get(key) != Some(row) && after.insert(*key, *row).is_some() {
                return None;
            }
        }
        Some(after)
    }
}

/// Transactions beside each other, compared with a model.
fn check_history(seed: u64, steps: usize) {
    let fixture = Fixture::new();
    let mut store = fixture.open();
    make(&store, &[("t", true)]);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut rows, mut next_row) = (Rows::new(), 0);
    let mut running: Vec<Running> = Vec::new();
    let (mut commits, mut conflicts) = (0, 0);
    let keys = |rows: &Rows| rows.keys().copied().collect::<Vec<_>>();
    for _ in 0..steps {
        if running.len() < 3 && random.u8(..3) == 0 {
            let (transaction, began_with) = (begin(&store), rows.clone());
            running.push(Running {
                transaction,
                rows: began_with.clone(),
                began_with,
                savepoint: None,
            });
        }
        if running.is_empty() {
            continue;
        }
        let at = random.usize(..running.len());
        let of = &mut running[at];
        let many = [1, 3, 40, 3_000][random.usize(..4)];
        match random.u8(..12) {
            0..=3 => {
                let first = random.i64(..400);
                let new: Vec<i64> = (first..first + random.i64(1..=many)).collect();
                let is_free = new.iter().all(|key| !of.rows.contains_key(key));
                let seen = of.transaction.snapshot().unwrap();
                let added =
                    change(&of.transaction, vec![adding_to(&store, &seen, "t", new.clone())]);
                assert_eq!(added.is_ok(), is_free, "seed {seed}: {added:?}");
                for key in new.into_iter().filter(|_| is_free) {
                    of.rows.insert(key, next_row);
                    next_row += 1;
                }
            }
            4 | 5 => {
                let divisor = random.i64(1..30);
                let (least, most) = (random.i64(..400), random.i64(..600));
                let goes = |key: i64| key % divisor == 0 && (least..most).contains(&key);
                let gone = deleting(&view(&of.transaction), "t", goes);
                change(&of.transaction, vec![gone]).unwrap();
                of.rows.retain(|key, _| !goes(*key));
            }
            6 | 7 => {
                // Rows get other versions, with the same keys.
                let divisor = random.i64(1..50);
                let changed: Vec<i64> =
                    of.rows.keys().copied().filter(|key| key % divisor == 0).collect();
                if !changed.is_empty() {
                    let goes = |key: i64| key % divisor == 0;
                    let seen = view(&of.transaction);
                    let gone = deleting(&seen, "t", goes);
                    let come = adding_to(&store, &seen, "t", changed.clone());
                    change(&of.transaction, vec![gone, come]).unwrap();
                    for key in changed {
                        of.rows.insert(key, next_row);
                        next_row += 1;
                    }
                }
            }
            8 => match of.savepoint.take() {
                Some(saved) if random.bool() => {
                    block_on(of.transaction.roll_back_to("s")).unwrap();
                    of.rows = saved.clone();
                    of.savepoint = Some(saved);
                }
                _ => {
                    of.transaction.savepoint("s").unwrap();
                    of.savepoint = Some(of.rows.clone());
                }
            },
            9 => drop(running.swap_remove(at)),
            _ => {
                let of = running.swap_remove(at);
                match (commit(&of.transaction), of.committed(&rows)) {
                    (Ok(()), Some(after)) => (rows, commits) = (after, commits + 1),
                    (Err(StoreError::Serialization { .. }), None) => conflicts += 1,
                    (found, expected) => panic!(
                        "seed {seed}: {found:?} where the model {} a conflict",
                        if expected.is_some() { "has no" } else { "has" }
                    ),
                }
            }
        }
        assert_eq!(numbers_of(&store.snapshot(), "t"), keys(&rows), "seed {seed}");
        if let Some(of) = running.get(at).filter(|_| random.bool()) {
            assert_eq!(numbers_of(&view(&of.transaction), "t"), keys(&of.rows), "seed {seed}");
        }
        if running.is_empty() {
            check_space(&store);
            if random.u8(..4) == 0 {
                drop(store);
                store = fixture.open();
            }
        }
    }
    drop(running);
    check_space(&store);
    assert_eq!(numbers_of(&store.snapshot(), "t"), keys(&rows), "seed {seed}");
    println!("seed {seed}: {commits} commits, {conflicts} conflicts");
}

#[test]
fn histories_of_several_transactions_are_those_of_a_model() {
    let first = fastrand::u64(..);
    for seed in [1, 2, 3, first, first.wrapping_add(1)] {
        check_history(seed, 120);
    }
}

/// What a database is in which power may fail: two tables, and what a transaction does with both.
fn run_until_failure(disk: &SimDisk) -> (bool, bool) {
    let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
    let directory = Directory::Sim(disk.clone(), "db".into());
    let Ok(store) = try_open(&directory, &runtime) else { return (false, false) };
    let create = |name: &str, is_unique| {
        let schema = number_table(name);
        vec![Change::CreateTable { schema, or_replace: false }, create_index(name, is_unique)]
    };
    let written = |name: &str, numbers: std::ops::Range<i64>| -> Result<Change> {
        let groups = write(&store, &number_table(name), &[number_list(numbers.collect())])?;
        Ok(Change::Append { table: name.into(), expected: None, groups })
    };
    let prepared = || -> Result<()> {
        let mut changes = [create("a", true), create("b", false)].concat_changes();
        changes.push(written("a", 0..1_000)?);
        changes.push(written("b", 0..10)?);
        store.commit_blocking(changes).map(drop)
    };
    if prepared().is_err() {
        return (false, false);
    }
    let transaction = begin(&store);
    let changed = || -> Result<()> {
        apply(&transaction, vec![written("a", 1_000..1_500)?])?;
        let change = deleting(&view(&transaction), "a", |number| number % 2 == 0);
        apply(&transaction, vec![change])?;
        apply(&transaction, vec![written("b", 10..20)?])?;
        apply(&transaction, create("c", true))?;
        apply(&transaction, vec![written("c", 0..100)?])?;
        commit(&transaction)
    };
    (true, changed().is_ok())
}

trait Concat {
    fn concat_changes(self) -> Vec<Change>;
}

impl Concat for [Vec<Change>; 2] {
    fn concat_changes(self) -> Vec<Change> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn power_may_fail_at_every_write_of_a_transaction() {
    let seed = fastrand::u64(..);
    let disk = SimDisk::new(SimOptions::testing(seed));
    assert_eq!(run_until_failure(&disk), (true, true));
    let mutations = disk.mutations();
    let (mut before, mut after) = (0, 0);
    for n in 0..mutations {
        let disk = SimDisk::new(SimOptions::testing(seed ^ n));
        disk.set_faults(SimFaults::none().crash_after_write(n));
        let (is_prepared, is_committed) = run_until_failure(&disk);
        let disk = disk.crash(seed ^ n);
        let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
        let directory = Directory::Sim(disk.clone(), "db".into());
        let store = try_open(&directory, &runtime).unwrap();
        let snapshot = store.snapshot();
        let names: Vec<&str> = snapshot.tables().collect();
        if is_prepared {
            let of = |name| numbers_of(&snapshot, name);
            match names[..] {
                ["a", "b"] => {
                    assert!(!is_committed, "seed {seed}, crash at {n}: a commit is lost");
                    assert_eq!((of("a").len(), of("b").len()), (1_000, 10));
                    before += 1;
                }
                ["a", "b", "c"] => {
                    assert_eq!((of("a").len(), of("b").len(), of("c").len()), (750, 20, 100));
                    after += 1;
                }
                _ => panic!("seed {seed}, crash at {n}: {names:?}"),
            }
        }
        drop(snapshot);
        check_space(&store);
    }
    println!("seed {seed}: {mutations} mutations, {before} before and {after} after the commit");
    assert!(before > 0);
}

#[test]
fn a_transaction_of_a_temporary_database_is_like_any_other() {
    let files = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let directory = Directory::Os(files.path().join("db"));
    let options = StoreOptions { create: true, temporary: true, ..StoreOptions::default() };
    let store = Store::open(&directory, &options, runtime, ample()).unwrap();
    make(&store, &[("t", true)]);
    let (first, second) = (begin(&store), begin(&store));
    add(&store, &first, "t", vec![1, 2]);
    add(&store, &second, "t", vec![2, 3]);
    commit(&first).unwrap();
    check_conflict(&second, "key of t_idx");
    assert_eq!(numbers_of(&store.snapshot(), "t"), [1, 2]);
    drop((first, second));
    check_space(&store);
}
