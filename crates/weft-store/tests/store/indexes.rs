//! Indexes: what they find, what unique ones refuse, foreign keys, and that a failed commit leaves no trace.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::DataType;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
use weft_store::*;

use crate::support::*;

/// Numbers with texts; either may be NULL.
fn schema(name: &str) -> TableSchema {
    table(name, &[("n", DataType::Int64), ("s", DataType::Utf8View)])
}

fn batch(schema: &TableSchema, rows: &[(Option<i64>, Option<&str>)]) -> RecordBatch {
    let numbers: Int64Array = rows.iter().map(|row| row.0).collect();
    let texts: StringViewArray = rows.iter().map(|row| row.1).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(texts)];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

fn series(schema: &TableSchema, numbers: impl Iterator<Item = i64>) -> RecordBatch {
    let numbers: Vec<i64> = numbers.collect();
    let texts: StringViewArray = numbers.iter().map(|n| Some(format!("text {}", n % 7))).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(numbers)), Arc::new(texts)];
    RecordBatch::try_new(schema.arrow_schema(), columns).unwrap()
}

fn make(store: &Store, schema: &TableSchema, indexes: &[IndexDefinition]) {
    let mut changes = vec![Change::CreateTable { schema: schema.clone(), or_replace: false }];
    changes.extend(indexes.iter().map(|definition| Change::CreateIndex {
        table: schema.name.clone(),
        expected: None,
        definition: definition.clone(),
    }));
    store.commit_blocking(changes).unwrap();
}

fn try_append(store: &Store, schema: &TableSchema, batches: &[RecordBatch]) -> Result<()> {
    let groups = write(store, schema, batches)?;
    let append = Change::Append { table: schema.name.clone(), expected: None, groups };
    store.commit_blocking(vec![append]).map(drop)
}

fn numbers_of(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// Rows with this number, by an index that begins with the numbers.
fn with_number(table: &Arc<Table>, index: &str, number: i64) -> Vec<i64> {
    let value: ArrayRef = Arc::new(Int64Array::from(vec![number]));
    let prefix = table.key_prefix(index, &[value]).unwrap();
    numbers_of(&try_by_index(table, index, KeyRange::beginning_with(prefix)).unwrap())
}

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

#[test]
fn rows_are_found_after_small_and_large_commits_and_reopening() {
    let fixture = Fixture::new();
    let schema = schema("t");
    let store = fixture.open();
    make(&store, &schema, &[index("by_n", &[0], true), index("by_s", &[1, 0], false)]);
    for part in [0..3, 3..4, 4..9_000, 9_000..9_010, 9_010..200_000] {
        try_append(&store, &schema, &[series(&schema, part.map(|n| n * 3))]).unwrap();
    }
    let check = |store: &Store| {
        let table = store.snapshot().table("t").unwrap();
        assert_eq!(by_index(&table, "by_n"), everything(&table).unwrap());
        assert_eq!(by_index(&table, "by_s"), everything(&table).unwrap());
        for number in [0, 9, 27_027, 599_997] {
            assert_eq!(with_number(&table, "by_n", number), [number]);
        }
        assert!(with_number(&table, "by_n", 5).is_empty());
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["text 4"]));
        let prefix = table.key_prefix("by_s", &[text]).unwrap();
        let range = KeyRange::beginning_with(prefix);
        let found = numbers_of(&try_by_index(&table, "by_s", range).unwrap());
        let expected: Vec<i64> = (0..200_000).map(|n| n * 3).filter(|n| n % 7 == 4).collect();
        assert_eq!(found, expected);
    };
    check(&store);
    drop(store);
    let store = fixture.open();
    check(&store);
    try_append(&store, &schema, &[series(&schema, 1..2)]).unwrap();
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(with_number(&table, "by_n", 1), [1]);
}

/// The row of a number by a unique index that has it alone: what is told of it without waiting, and what a worker finds, which has to
/// be the same if anything is told.
fn row_of(
    fixture: &Fixture,
    table: &Arc<Table>,
    index: &str,
    number: i64,
) -> Option<Vec<ArrayRef>> {
    let value: ArrayRef = Arc::new(Int64Array::from(vec![number]));
    let key = table.key_prefix(index, &[value]).unwrap();
    let projection: Vec<usize> = (0..table.schema().columns.len()).collect();
    let resident = || table.resident_row(index, &key, &projection).unwrap();
    let before = resident();
    let (of_worker, name, key, columns) =
        (table.clone(), index.to_owned(), key.clone(), projection.clone());
    let find = move || async move { of_worker.row_by_key(&name, &key, &columns).await };
    let found = fixture.runtime.block_on(find).unwrap().unwrap();
    let found = found.map(|row| row.values);
    for told in [before, resident()] {
        match told {
            ResidentRow::Row(row) => assert_eq!(Some(row.values), found),
            ResidentRow::NoRow => assert_eq!(found, None),
            ResidentRow::Unknown => {}
        }
    }
    found
}

#[test]
fn one_row_of_any_types_is_found_by_its_key() {
    let fixture = Fixture::new();
    let mut random = fastrand::Rng::with_seed(21);
    let mut schema = many_types("t");
    schema.columns.insert(0, column("key", DataType::Int64));
    let store = fixture.open();
    make(&store, &schema, &[index("by_key", &[0], true)]);
    let rows = random_rows(&many_types("t"), 5_000, &mut random);
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..5_000).map(|key| key * 2)));
    let columns = [keys].into_iter().chain(rows.columns().iter().cloned()).collect();
    let rows = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
    try_append(&store, &schema, std::slice::from_ref(&rows)).unwrap();
    let check = |store: &Store| {
        let table = store.snapshot().table("t").unwrap();
        for row in (0..5_000).step_by(97) {
            let found = row_of(&fixture, &table, "by_key", row as i64 * 2).unwrap();
            let expected = rows.slice(row, 1);
            for (found, expected) in found.iter().zip(expected.columns()) {
                assert_eq!(found, expected);
            }
        }
        assert_eq!(row_of(&fixture, &table, "by_key", 5), None);
    };
    check(&store);
    let table = store.snapshot().table("t").unwrap();
    let key = table.key_prefix("by_key", &[Arc::new(Int64Array::from(vec![4]))]).unwrap();
    let told = table.resident_row("by_key", &key, &[0]).unwrap();
    assert!(matches!(told, ResidentRow::Row(_)), "{told:?}");
    assert!(matches!(table.resident_row("none", &key, &[0]), Err(StoreError::NoSuchIndex { .. })));
    assert!(matches!(table.resident_row("by_key", &key, &[99]), Err(StoreError::Request { .. })));
    drop((table, store));
    check(&fixture.open());
}

#[test]
fn rows_of_later_commits_and_deleted_ones_are_not_found_by_their_keys() {
    let fixture = Fixture::new();
    let schema = number_table("n");
    let store = fixture.open();
    make(&store, &schema, &[index("by_n", &[0], true)]);
    try_append(&store, &schema, &[number_list((0..1_000).collect())]).unwrap();
    let before = store.snapshot().table("n").unwrap();
    try_append(&store, &schema, &[number_list((1_000..1_100).collect())]).unwrap();
    let mut rows = RowSet::default();
    assert!(rows.insert(7) && rows.insert(1_050));
    let delete = Change::Delete { table: "n".into(), expected: None, rows };
    store.commit_blocking(vec![delete]).unwrap();
    let after = store.snapshot().table("n").unwrap();
    for (number, was, is) in
        [(7, true, false), (8, true, true), (1_050, false, false), (1_051, false, true)]
    {
        assert_eq!(row_of(&fixture, &before, "by_n", number).is_some(), was, "{number} before");
        assert_eq!(row_of(&fixture, &after, "by_n", number).is_some(), is, "{number} after");
    }
}

#[test]
fn a_key_that_is_there_fails_the_commit_as_a_whole() {
    let fixture = Fixture::new();
    let schema = schema("t");
    let store = fixture.open();
    make(&store, &schema, &[index("first", &[1], false), index("t_n_key", &[0], true)]);
    try_append(&store, &schema, &[series(&schema, 0..5_000)]).unwrap();
    let free = store.bytes_free();
    // Short and long commits; two rows of one commit; the last one of many.
    let again = |numbers: &mut dyn Iterator<Item = i64>| {
        let appended = try_append(&store, &schema, &[series(&schema, numbers)]);
        let error = appended.unwrap_err();
        assert!(
            matches!(&error, StoreError::Duplicate { constraint, key, .. }
            if constraint == "t_n_key" && key[0].0 == "n"),
            "{error}"
        );
    };
    again(&mut [4_000].into_iter());
    again(&mut [9_000, 9_001, 9_000].into_iter());
    again(&mut (4_999..5_300));
    again(&mut (5_000..60_000).chain([17]));
    again(&mut (5_000..60_000).chain([5_001]));
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(table.rows(), 5_000);
    assert_eq!(by_index(&table, "t_n_key"), everything(&table).unwrap());
    assert_eq!(by_index(&table, "first"), everything(&table).unwrap());
    drop(table);
    try_append(&store, &schema, &[series(&schema, [9_000, 9_001].into_iter())]).unwrap();
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(by_index(&table, "first"), everything(&table).unwrap());
    assert!(store.bytes_free() + (1 << 20) > free, "failed commits take no space");
}

#[test]
fn rows_without_a_key_do_not_conflict() {
    let fixture = Fixture::new();
    let schema = schema("t");
    let store = fixture.open();
    make(&store, &schema, &[index("t_key", &[0, 1], true)]);
    let rows =
        [(Some(1), None), (Some(1), None), (None, None), (None, Some("a")), (None, Some("a"))];
    try_append(&store, &schema, &[batch(&schema, &rows)]).unwrap();
    try_append(&store, &schema, &[batch(&schema, &rows)]).unwrap();
    try_append(&store, &schema, &[batch(&schema, &[(Some(1), Some("a"))])]).unwrap();
    try_append(&store, &schema, &[batch(&schema, &[(Some(1), Some("a"))])]).unwrap_err();
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(by_index(&table, "t_key"), everything(&table).unwrap());
}

#[test]
fn an_index_of_rows_that_are_there_already() {
    let fixture = Fixture::new();
    let schema = schema("t");
    let store = fixture.open();
    load(&store, &schema, &[series(&schema, (0..70_000).map(|n| n % 35_000))]);
    let create = |definition| {
        let table = "t".into();
        store.commit_blocking(vec![Change::CreateIndex { table, expected: None, definition }])
    };
    assert!(matches!(create(index("u", &[0], true)), Err(StoreError::Duplicate { .. })));
    create(index("i", &[0], false)).unwrap();
    assert!(matches!(create(index("i", &[1], false)), Err(StoreError::Exists { .. })));
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(with_number(&table, "i", 34_999), [34_999, 34_999]);
    store.commit_blocking(vec![Change::Reindex { name: "i".into() }]).unwrap();
    // A snapshot from before has its index until it goes.
    assert_eq!(with_number(&table, "i", 7), [7, 7]);
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(by_index(&table, "i"), everything(&table).unwrap());
    store.commit_blocking(vec![Change::DropIndex { name: "i".into() }]).unwrap();
    assert!(store.snapshot().table("t").unwrap().indexes().next().is_none());
    drop(table);
    let dropped = store.commit_blocking(vec![Change::DropIndex { name: "i".into() }]);
    assert!(matches!(dropped, Err(StoreError::NoSuchIndex { .. })));
}

#[test]
fn rows_refer_to_rows_that_there_are() {
    let fixture = Fixture::new();
    let (parent, child) = (schema("parent"), schema("child"));
    let store = fixture.open();
    make(&store, &parent, &[index("parent_key", &[1, 0], true)]);
    make(&store, &child, &[]);
    let key = ForeignKey {
        name: "child_fkey".into(),
        columns: vec![0, 1],
        parent: 0,
        parent_columns: vec![0, 1],
    };
    let add = Change::AddForeignKey { table: "child".into(), parent: "parent".into(), key };
    store.commit_blocking(vec![add]).unwrap();
    try_append(&store, &parent, &[batch(&parent, &[(Some(1), Some("a")), (Some(2), Some("b"))])])
        .unwrap();
    let good = [(Some(1), Some("a")), (None, Some("z")), (Some(9), None), (Some(2), Some("b"))];
    try_append(&store, &child, &[batch(&child, &good)]).unwrap();
    let bad = [(None, None), (Some(1), Some("a")), (Some(1), Some("b"))];
    let error = try_append(&store, &child, &[batch(&child, &bad)]).unwrap_err();
    assert!(
        matches!(&error, StoreError::Unreferenced { constraint, parent, key, .. }
        if constraint == "child_fkey" && parent == "parent" && key[0].1 == Scalar::Int(1)),
        "{error}"
    );
    let refused = |change| {
        let error = store.commit_blocking(vec![change]).unwrap_err();
        assert!(matches!(error, StoreError::Referenced { .. }), "{error}");
    };
    refused(Change::DropTable { name: "parent".into(), expected: None });
    refused(Change::CreateTable { schema: parent.clone(), or_replace: true });
    refused(Change::DropIndex { name: "parent_key".into() });
    let drop_table = |name: &str| Change::DropTable { name: name.into(), expected: None };
    store.commit_blocking(vec![drop_table("parent"), drop_table("child")]).unwrap();
}

#[test]
fn commits_of_several_threads_keep_keys_unique() {
    let fixture = Fixture::new();
    let schema = schema("t");
    let store = fixture.open();
    make(&store, &schema, &[index("t_n_key", &[0], true)]);
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let tried = (0..25).filter(|n| {
                        try_append(&store, &schema, &[series(&schema, [*n].into_iter())]).is_ok()
                    });
                    tried.count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    let table = store.snapshot().table("t").unwrap();
    let mut found = numbers_of(&by_index(&table, "t_n_key"));
    found.sort_unstable();
    assert_eq!((ended, found), (25, (0..25).collect()));
}

#[test]
fn indexes_are_made_with_little_memory() {
    let files = tempfile::tempdir().unwrap();
    let directory = Directory::Os(files.path().join("db"));
    let runtime = runtime(DriverKind::Auto, 2);
    let options = StoreOptions { create: true, ..StoreOptions::default() };
    let ledger = weft_rt::memory::Ledger::new(16 << 20);
    let store = Store::open(&directory, &options, runtime, ledger).unwrap();
    let schema = schema("t");
    make(&store, &schema, &[index("t_n_key", &[0], true), index("by_s", &[1], false)]);
    let mixed = |n: i64| (n * 7_919) % 400_009;
    for part in 0..4 {
        let numbers = (part * 100_000..(part + 1) * 100_000).map(mixed);
        try_append(&store, &schema, &[series(&schema, numbers)]).unwrap();
    }
    try_append(&store, &schema, &[series(&schema, (399_990..400_009).map(mixed))]).unwrap_err();
    let table = store.snapshot().table("t").unwrap();
    for number in [0, 1, 250_000, 399_000] {
        let is_there = (0..400_000).any(|n| mixed(n) == number);
        assert_eq!(with_number(&table, "t_n_key", number).len(), usize::from(is_there));
    }
}

/// Numbers of a table by scanning it and by its index, which are the same.
fn check_by_index(store: &Store) -> Vec<i64> {
    let table = store.snapshot().table("t").unwrap();
    let all = everything(&table).unwrap();
    assert_eq!(by_index(&table, "t_n_key"), all);
    assert_eq!(weft_rt::sync::block_on(table.check_index("t_n_key")).unwrap(), None);
    numbers_of(&all)
}

#[test]
fn any_failing_request_leaves_index_and_table_as_they_were() {
    for operation in [Operation::Write, Operation::Allocate, Operation::Sync, Operation::Read] {
        // Keys that come into the tree, and a tree that is made anew.
        for (nth, rows) in (0..14).flat_map(|nth| [(nth, 60), (nth, 4_000)]) {
            let disk = SimDisk::new(SimOptions::testing(nth));
            let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
            let directory = Directory::Sim(disk.clone(), "db".into());
            let store = open(&directory, &runtime);
            let schema = schema("t");
            make(&store, &schema, &[index("t_n_key", &[0], true)]);
            try_append(&store, &schema, &[series(&schema, 0..3_000)]).unwrap();
            let rule = FaultRule::nth(operation, nth, Fault::IO);
            disk.set_faults(SimFaults::none().with(rule));
            let result = try_append(&store, &schema, &[series(&schema, 3_000..3_000 + rows)]);
            disk.set_faults(SimFaults::none());
            let found = check_by_index(&store);
            let expected = if result.is_ok() { 3_000 + rows } else { 3_000 };
            assert_eq!(found, (0..expected).collect::<Vec<i64>>(), "{operation:?} {nth}");
            // The rows that failed have left no keys behind.
            if result.is_err() {
                match try_append(&store, &schema, &[series(&schema, 3_000..3_000 + rows)]) {
                    Ok(()) => assert_eq!(check_by_index(&store).len() as i64, 3_000 + rows),
                    Err(StoreError::Halted { .. }) => assert_eq!(operation, Operation::Sync),
                    Err(error) => panic!("{operation:?} {nth}: {error}"),
                }
            }
            drop(store);
            let store = open(&directory, &runtime);
            let reopened = check_by_index(&store).len() as i64;
            assert!(reopened == 3_000 || reopened == 3_000 + rows, "{reopened}");
            try_append(&store, &schema, &[series(&schema, 90_000..90_001)]).unwrap();
            try_append(&store, &schema, &[series(&schema, 7..8)]).unwrap_err();
        }
    }
}

#[test]
fn a_damaged_index_is_named_and_made_anew() {
    let fixture = Fixture::new();
    let schema = schema("t");
    let store = fixture.open();
    make(&store, &schema, &[index("t_n_key", &[0], true)]);
    try_append(&store, &schema, &[series(&schema, (0..5_000).map(|n| n * 7 % 5_000))]).unwrap();
    drop(store);
    let path = fixture.directory.path().join("data-0.weft");
    let good = std::fs::read(&path).unwrap();
    let manifests = ["MANIFEST", "MANIFEST.copy"].map(|name| {
        let path = fixture.directory.path().join(name);
        (std::fs::read(&path).unwrap(), path)
    });
    let mut damaged = 0;
    for page in 1..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096 + 300] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        let store = fixture.open();
        let table = store.snapshot().table("t").unwrap();
        let Ok(all) = everything(&table) else { continue };
        // The table is read as ever, whatever has become of its index.
        match try_by_index(&table, "t_n_key", KeyRange::default()) {
            Ok(found) => assert_eq!(found, all),
            Err(error) => {
                damaged += 1;
                assert!(error.to_string().contains("index t_n_key of table t"), "{error}");
                let checked = weft_rt::sync::block_on(table.check_index("t_n_key"));
                assert!(matches!(checked, Err(StoreError::Index { .. })), "{checked:?}");
                store.commit_blocking(vec![Change::Reindex { name: "t_n_key".into() }]).unwrap();
                assert_eq!(check_by_index(&store).len(), 5_000);
            }
        }
        drop((table, store));
        manifests.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).unwrap());
    }
    assert!(damaged > 5, "{damaged} pages of the index");
}
