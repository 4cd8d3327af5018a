//! Indexes of tables whose rows are deleted and updated: each snapshot finds its rows, and a commit that fails changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::DataType;
use weft_rt::Runtime;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
use weft_store::*;

use crate::support::*;

fn schema() -> TableSchema {
    table("t", &[("n", DataType::Int64), ("s", DataType::Utf8View)])
}

/// Number and text of rows, by their ids.
type Model = BTreeMap<u64, (i64, String)>;

/// A table with indexes, and what it has.
struct Fixture {
    store: Arc<Store>,
    model: Model,
    next_id: u64,
}

fn batch(rows: &[(i64, String)]) -> RecordBatch {
    let numbers: Int64Array = rows.iter().map(|row| Some(row.0)).collect();
    let texts: StringViewArray = rows.iter().map(|row| Some(row.1.as_str())).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(texts)];
    RecordBatch::try_new(schema().arrow_schema(), columns).unwrap()
}

impl Fixture {
    fn new(directory: &Directory, runtime: &Arc<Runtime>) -> Fixture {
        let store = open(directory, runtime);
        let create =
            |definition| Change::CreateIndex { table: "t".into(), expected: None, definition };
        let changes = vec![
            Change::CreateTable { schema: schema(), or_replace: false },
            create(index("by_n", &[0], true)),
            create(index("by_s", &[1], false)),
        ];
        store.commit_blocking(changes).unwrap();
        Fixture { store, model: Model::new(), next_id: 0 }
    }

    /// Deletes rows and adds others, by one commit.
    fn change(&mut self, deleted: &[u64], added: &[(i64, String)]) -> Result<()> {
        let mut changes = Vec::new();
        if !deleted.is_empty() {
            let mut rows = RowSet::default();
            deleted.iter().for_each(|id| assert!(rows.insert(*id)));
            changes.push(Change::Delete { table: "t".into(), expected: None, rows });
        }
        if !added.is_empty() {
            let groups = write(&self.store, &schema(), &[batch(added)])?;
            changes.push(Change::Append { table: "t".into(), expected: None, groups });
        }
        self.store.commit_blocking(changes)?;
        self.note_change(deleted, added);
        Ok(())
    }

    fn note_change(&mut self, deleted: &[u64], added: &[(i64, String)]) {
        deleted.iter().for_each(|id| assert!(self.model.remove(id).is_some()));
        for row in added {
            self.model.insert(self.next_id, row.clone());
            self.next_id += 1;
        }
    }

    fn table(&self) -> Arc<Table> {
        self.store.snapshot().table("t").unwrap()
    }
}

/// The rows with each of these numbers, by lookups as a join makes them.
fn looked_up(runtime: &Runtime, table: &Arc<Table>, numbers: &[i64]) -> Vec<(i64, String)> {
    let options = KeyLookupOptions {
        index: "by_n".into(),
        projection: vec![0, 1],
        conditions: Vec::new(),
        depth: 4,
    };
    let lookup = table.key_lookup(options).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
    let task = runtime.spawn(move || async move {
        let mut lookups = lookup.begin(&[keys], None)?;
        let mut found = Vec::new();
        while let Some(matches) = lookups.next().await? {
            let (numbers, texts) = (&matches.columns[0], &matches.columns[1]);
            for row in &matches.rows {
                let number = numbers.as_primitive::<Int64Type>().value(*row as usize);
                found.push((number, texts.as_string_view().value(*row as usize).to_owned()));
            }
        }
        Result::Ok(found)
    });
    let mut found = weft_rt::sync::block_on(task).unwrap().unwrap();
    found.sort();
    found
}

/// Compares the rows at the ends of a range of an index with the rows.
fn check_ends(table: &Arc<Table>, model: &Model, random: &mut fastrand::Rng) {
    let ends = IndexEnds { first: random.usize(0..6), last: random.usize(0..6) };
    let (low, high) = (random.i64(0..3_500), random.i64(0..3_500));
    let key = |number: i64| {
        let key: ArrayRef = Arc::new(Int64Array::from(vec![number]));
        table.key_prefix("by_n", &[key]).unwrap()
    };
    let range = KeyRange { low: Some(key(low)), high: Some(key(high)) };
    let mut within: Vec<(i64, u64)> = model.iter().map(|(id, row)| (row.0, *id)).collect();
    within.retain(|(number, _)| (low..high).contains(number));
    within.sort_unstable();
    let first = within.iter().take(ends.first);
    let mut ids: Vec<u64> =
        first.chain(within.iter().rev().take(ends.last)).map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    let expected: Vec<(i64, String)> = ids.iter().map(|id| model[id].clone()).collect();
    let found = by_ends_of_index(table, "by_n", range, Some(ends)).unwrap();
    assert_eq!(found, batch(&expected), "{ends:?} of {low}..{high}");
}

/// Compares what a snapshot finds by its indexes with its rows.
fn check(runtime: &Runtime, table: &Arc<Table>, model: &Model, random: &mut fastrand::Rng) {
    let rows: Vec<(i64, String)> = model.values().cloned().collect();
    assert_eq!(by_index(table, "by_n"), batch(&rows));
    assert_eq!(by_index(table, "by_s"), batch(&rows));
    let numbers: Vec<i64> = (0..40).map(|_| random.i64(0..3_500)).collect();
    let mut wanted = numbers.clone();
    wanted.sort_unstable();
    let expected = wanted.iter().flat_map(|n| rows.iter().filter(move |row| row.0 == *n));
    assert_eq!(looked_up(runtime, table, &numbers), expected.cloned().collect::<Vec<_>>());
    for number in &numbers[..10] {
        let key: ArrayRef = Arc::new(Int64Array::from(vec![*number]));
        let key = table.key_prefix("by_n", &[key]).unwrap();
        let expected = rows.iter().find(|row| row.0 == *number).map(|row| row.1.as_str());
        match table.resident_row("by_n", &key, &[1]).unwrap() {
            ResidentRow::Row(row) => {
                assert_eq!(Some(row.values[0].as_string_view().value(0)), expected);
            }
            ResidentRow::NoRow => assert_eq!(expected, None),
            ResidentRow::Unknown => {}
        }
    }
    check_ends(table, model, random);
    let text = format!("text {}", random.u32(0..40));
    let value: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str()]));
    let prefix = table.key_prefix("by_s", &[value]).unwrap();
    let found = try_by_index(table, "by_s", KeyRange::beginning_with(prefix)).unwrap();
    let expected: Vec<_> = rows.iter().filter(|row| row.1 == text).cloned().collect();
    assert_eq!(found, batch(&expected));
}

fn text(random: &mut fastrand::Rng) -> String {
    format!("text {}", random.u32(0..40))
}

#[test]
fn snapshots_find_their_rows_by_indexes_however_the_table_changes() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Directory::Os(directory.path().join("db"));
    let runtime = runtime(DriverKind::Auto, 2);
    let mut fixture = Fixture::new(&directory, &runtime);
    let mut random = fastrand::Rng::with_seed(7);
    let rows: Vec<_> = (0..3_000).map(|n| (n, text(&mut random))).collect();
    fixture.change(&[], &rows).unwrap();
    let mut kept: Vec<(Arc<Table>, Model)> = Vec::new();
    let has_ended = Arc::new(AtomicBool::new(false));
    let reader = {
        let (store, has_ended) = (fixture.store.clone(), has_ended.clone());
        std::thread::spawn(move || {
            while !has_ended.load(Ordering::Relaxed) {
                let table = store.snapshot().table("t").unwrap();
                let all = everything(&table).unwrap();
                assert_eq!(by_index(&table, "by_n"), all);
                assert_eq!(by_index(&table, "by_s"), all);
            }
        })
    };
    for round in 0..200 {
        let ids: Vec<u64> = fixture.model.keys().copied().collect();
        // Sometimes so many that the trees are made anew.
        let count = if round % 50 == 49 { 1_200 } else { random.usize(1..30) };
        let mut gone: Vec<u64> = (0..count).map(|_| ids[random.usize(0..ids.len())]).collect();
        gone.sort_unstable();
        gone.dedup();
        let mut added: Vec<(i64, String)> = Vec::new();
        for id in &gone {
            let (number, _) = fixture.model[id];
            if random.u32(0..10) > 1 {
                added.push((number, text(&mut random)));
            }
        }
        if round % 3 == 0 {
            added.push((10_000 + round, text(&mut random)));
        }
        fixture.change(&gone, &added).unwrap();
        if round % 7 == 0 {
            weft_rt::sync::block_on(fixture.store.tidy(None)).unwrap();
        }
        if round % 20 == 5 {
            kept.push((fixture.table(), fixture.model.clone()));
        }
        if kept.len() == 4 {
            kept.remove(random.usize(0..4));
        }
        if round % 10 == 0 {
            for (table, model) in &kept {
                check(&runtime, table, model, &mut random);
            }
            check(&runtime, &fixture.table(), &fixture.model, &mut random);
            for name in ["by_n", "by_s"] {
                let checked = weft_rt::sync::block_on(fixture.table().check_index(name));
                assert_eq!(checked.unwrap(), None);
            }
        }
        // A number that is there.
        let there = fixture.model.values().next().unwrap().clone();
        assert!(matches!(
            fixture.change(&[], std::slice::from_ref(&there)),
            Err(StoreError::Duplicate { .. })
        ));
    }
    has_ended.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    drop(kept);
    let Fixture { store, model, .. } = fixture;
    drop(store);
    let store = open(&directory, &runtime);
    let table = store.snapshot().table("t").unwrap();
    check(&runtime, &table, &model, &mut random);
    for name in ["by_n", "by_s"] {
        assert_eq!(weft_rt::sync::block_on(table.check_index(name)).unwrap(), None);
    }
}

#[test]
fn a_transaction_finds_the_rows_that_others_have_deleted_since() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let mut fixture = Fixture::new(&Directory::Os(directory.path().join("db")), &runtime);
    let rows: Vec<_> = (0..1_000).map(|n| (n, "a".to_owned())).collect();
    fixture.change(&[], &rows).unwrap();
    let transaction = Arc::new(fixture.store.begin(Isolation::Snapshot));
    let mut own = RowSet::default();
    assert!(own.insert(500));
    let delete = Change::Delete { table: "t".into(), expected: None, rows: own };
    weft_rt::sync::block_on(transaction.apply(vec![delete])).unwrap();
    fixture.change(&[3, 5], &[(3, "b".to_owned())]).unwrap();
    let seen = transaction.snapshot().unwrap().table("t").unwrap();
    let expected: Vec<_> = rows.iter().filter(|row| row.0 != 500).cloned().collect();
    assert_eq!(by_index(&seen, "by_n"), batch(&expected));
    assert_eq!(by_index(&seen, "by_s"), batch(&expected));
    drop(seen);
    weft_rt::sync::block_on(transaction.commit()).unwrap();
    let mut left: Vec<_> =
        expected.iter().filter(|row| row.0 != 3 && row.0 != 5).cloned().collect();
    left.push((3, "b".to_owned()));
    assert_eq!(by_index(&fixture.table(), "by_n"), batch(&left));
    assert_eq!(by_index(&fixture.table(), "by_s"), batch(&left));
}

#[test]
fn an_update_that_fails_leaves_indexes_as_they_were() {
    for operation in [Operation::Write, Operation::Allocate, Operation::Sync, Operation::Read] {
        for nth in 0..14 {
            let disk = SimDisk::new(SimOptions::testing(nth));
            let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
            let directory = Directory::Sim(disk.clone(), "db".into());
            let mut fixture = Fixture::new(&directory, &runtime);
            let mut random = fastrand::Rng::with_seed(nth);
            let rows: Vec<_> = (0..3_000).map(|n| (n, text(&mut random))).collect();
            fixture.change(&[], &rows).unwrap();
            let (gone, before) = ((100..140).collect::<Vec<u64>>(), fixture.model.clone());
            // The last key is there already in every other case: the commit fails after all others have come.
            let mut added: Vec<_> = (100..130).map(|n| (n, text(&mut random))).collect();
            if nth % 2 == 1 {
                added.push((7, "taken".into()));
            }
            let rule = FaultRule::nth(operation, nth, Fault::IO);
            disk.set_faults(SimFaults::none().with(rule));
            let result = fixture.change(&gone, &added);
            disk.set_faults(SimFaults::none());
            assert!(result.is_err() || nth % 2 == 0);
            let table = fixture.table();
            let rows: Vec<_> = fixture.model.values().cloned().collect();
            assert_eq!(by_index(&table, "by_n"), batch(&rows), "{operation:?} {nth}: {result:?}");
            assert_eq!(by_index(&table, "by_s"), batch(&rows), "{operation:?} {nth}: {result:?}");
            if let Err(StoreError::InDoubt { .. }) = result {
                fixture.note_change(&gone, &added);
            }
            let after = fixture.model.clone();
            drop((table, fixture));
            let store = open(&directory, &runtime);
            let table = store.snapshot().table("t").unwrap();
            let found = everything(&table).unwrap();
            assert_eq!(by_index(&table, "by_n"), found, "{operation:?} {nth}");
            assert_eq!(by_index(&table, "by_s"), found, "{operation:?} {nth}");
            let as_before: Vec<_> = before.values().cloned().collect();
            let as_after: Vec<_> = after.values().cloned().collect();
            assert!(found == batch(&as_before) || found == batch(&as_after));
            for name in ["by_n", "by_s"] {
                assert_eq!(weft_rt::sync::block_on(table.check_index(name)).unwrap(), None);
            }
        }
    }
}

#[test]
fn commits_that_wait_for_each_other_are_made_durable_together() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Directory::Os(directory.path().join("db"));
    let runtime = runtime(DriverKind::Auto, 1);
    let fixture = Fixture::new(&directory, &runtime);
    let before = fixture.store.snapshot().generation();
    let id = fixture.table().id();
    // Every fourth has a key that another one has.
    let commits = (0..40).map(|number: i64| {
        let key = if number % 4 == 3 { number - 1 } else { number };
        let groups =
            write(&fixture.store, &schema(), &[batch(&[(key, format!("text {number}"))])]).unwrap();
        // Those of statements that rely on the table as it was are put together as one.
        let expected = (number >= 20).then_some(id);
        let append = Change::Append { table: "t".into(), expected, groups };
        fixture.store.commit(vec![append])
    });
    let results = weft_rt::sync::block_on(futures::future::join_all(commits));
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result.is_err(), number % 4 == 3, "{number}: {result:?}");
    }
    assert!(fixture.store.snapshot().generation() < before + 30);
    let expected: Vec<_> =
        (0..40).filter(|n| n % 4 != 3).map(|n| (n, format!("text {n}"))).collect();
    let numbers: Vec<i64> = (0..40).collect();
    assert_eq!(looked_up(&runtime, &fixture.table(), &numbers), expected);
    drop(fixture);
    let table = open(&directory, &runtime).snapshot().table("t").unwrap();
    assert_eq!(looked_up(&runtime, &table, &numbers), expected);
    assert_eq!(weft_rt::sync::block_on(table.check_index("by_s")).unwrap(), None);
}

#[test]
fn each_of_several_commits_that_a_device_fails_is_there_or_not() {
    for operation in [Operation::Write, Operation::Allocate, Operation::Sync] {
        for nth in 0..40 {
            let disk = SimDisk::new(SimOptions::testing(nth));
            let runtime = runtime(DriverKind::Sim(disk.clone()), 1);
            let directory = Directory::Sim(disk.clone(), "db".into());
            let mut fixture = Fixture::new(&directory, &runtime);
            let rows: Vec<_> = (0..500).map(|n| (n, "old".to_owned())).collect();
            fixture.change(&[], &rows).unwrap();
            let expected = (nth % 4 > 0).then_some(fixture.table().id());
            let updates = (0..12).map(|number: i64| {
                let new = batch(&[(number, format!("new {number}"))]);
                let groups = write(&fixture.store, &schema(), &[new]).unwrap();
                // Rows that another one of them deletes as well, in every third.
                let mut rows = RowSet::default();
                assert!(rows.insert(if number % 3 == 2 { number - 1 } else { number } as u64));
                let table = || "t".to_owned();
                fixture.store.commit(vec![
                    Change::Delete { table: table(), expected, rows },
                    Change::Append { table: table(), expected, groups },
                ])
            });
            let updates: Vec<_> = updates.collect();
            let rule = FaultRule::nth(operation, nth, Fault::IO);
            disk.set_faults(SimFaults::none().with(rule));
            let results = weft_rt::sync::block_on(futures::future::join_all(updates));
            disk.set_faults(SimFaults::none());
            let check = |store: &Store, is_reopened: bool| {
                let table = store.snapshot().table("t").unwrap();
                let found = everything(&table).unwrap();
                assert_eq!(by_index(&table, "by_n"), found, "{operation:?} {nth}");
                assert_eq!(by_index(&table, "by_s"), found, "{operation:?} {nth}");
                assert_eq!(found.num_rows(), 500);
                let texts: Vec<&str> = found.column(1).as_string_view().iter().flatten().collect();
                for (number, result) in results.iter().enumerate() {
                    let is_there = texts.contains(&&*format!("new {number}"));
                    assert!(number % 3 != 2 || result.is_err(), "{number}");
                    // A failed sync leaves it open what is on the disk.
                    assert!(
                        is_there == result.is_ok() || is_reopened && operation == Operation::Sync,
                        "{operation:?} {nth}, row {number}: {result:?}"
                    );
                }
            };
            check(&fixture.store, false);
            drop(fixture);
            check(&open(&directory, &runtime), true);
        }
    }
}
