//! Rows that were deleted: neither scans nor reads of single rows find them, under any predicate, before and after the table grows
//! and is opened again.

use std::collections::BTreeMap;

use arrow_array::types::{Int64Type, UInt64Type};
use weft_rt::io::DriverKind;
use weft_rt::sync::block_on;
use weft_store::*;

use crate::support::*;

/// The ids and numbers of a table by a scan with these predicates.
fn scanned(store: &Store, predicates: Vec<(usize, Predicate)>) -> BTreeMap<u64, i64> {
    let table = store.snapshot().table("t").unwrap();
    let options = ScanOptions { projection: vec![0], predicates, ..Default::default() };
    let rows = collect(&table, options).unwrap();
    let (numbers, ids) = (column_of::<Int64Type>(&rows, 0), column_of::<UInt64Type>(&rows, 1));
    ids.into_iter().zip(numbers).collect()
}

/// Compares what is found of the table with a model.
fn check(store: &Store, model: &BTreeMap<u64, i64>, random: &mut fastrand::Rng) {
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(table.rows(), model.len() as u64);
    assert_eq!(&scanned(store, Vec::new()), model);
    let (least, most) = (random.i64(..1_000), random.i64(..1_000));
    let compare = |op, value| (0, Predicate::Compare(op, Scalar::Int(value)));
    let between = vec![compare(Op::GtEq, least), compare(Op::LtEq, most)];
    let (rows_least, rows_most) = table.rows_within(&between);
    let mut expected = model.clone();
    expected.retain(|_, number| (least..=most).contains(number));
    assert!((rows_least..=rows_most).contains(&(expected.len() as u64)));
    assert_eq!(scanned(store, between), expected);
    let ids = model.last_key_value().map_or(0, |(id, _)| id + 1);
    for id in (0..20).map(|_| random.u64(..=ids)) {
        let found = block_on(table.get(id, &[0])).unwrap();
        assert_eq!(found, model.get(&id).map(|number| vec![Scalar::Int(*number)]), "row {id}");
    }
}

#[test]
fn deleted_rows_are_found_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Directory::Os(directory.path().into());
    let runtime = runtime(DriverKind::Auto, 2);
    let mut store = open(&directory, &runtime);
    let create = Change::CreateTable { schema: number_table("t"), or_replace: false };
    store.commit_blocking(vec![create]).unwrap();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}");
    let (mut model, mut next_id) = (BTreeMap::new(), 0);
    for _ in 0..60 {
        let count = [1, 40, 2_000, 90_000][random.usize(..4)];
        let new: Vec<i64> = (0..random.usize(1..=count)).map(|_| random.i64(..1_000)).collect();
        let share = [0.0, 0.01, 0.5, 1.0][random.usize(..4)];
        let first = random.u64(..=next_id);
        let is_gone = |id: u64, random: &mut fastrand::Rng| {
            (share == 1.0 && id >= first) || random.f64() < share
        };
        let gone: Vec<u64> = model.keys().copied().filter(|id| is_gone(*id, &mut random)).collect();
        let mut rows = RowSet::default();
        assert!(gone.iter().all(|id| rows.insert(*id)));
        let mut changes = Vec::new();
        if !rows.is_empty() {
            changes.push(Change::Delete { table: "t".into(), expected: None, rows });
        }
        let groups = write(&store, &number_table("t"), &[number_list(new.clone())]).unwrap();
        changes.push(Change::Append { table: "t".into(), expected: None, groups });
        store.commit_blocking(changes).unwrap();
        model.retain(|id, _| gone.binary_search(id).is_err());
        model.extend((next_id..).zip(new.iter().copied()));
        next_id += new.len() as u64;
        check(&store, &model, &mut random);
        if random.u8(..3) == 0 {
            block_on(store.tidy(None)).unwrap();
            check(&store, &model, &mut random);
        }
        if random.u8(..8) == 0 {
            drop(store);
            store = open(&directory, &runtime);
            check(&store, &model, &mut random);
        }
    }
}

#[test]
fn rows_are_deleted_once() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let store = open(&Directory::Os(directory.path().into()), &runtime);
    load(&store, &number_table("t"), &[numbers(0..10)]);
    let delete = |ids: &[u64]| {
        let mut rows = RowSet::default();
        assert!(ids.iter().all(|id| rows.insert(*id)));
        store.commit_blocking(vec![Change::Delete { table: "t".into(), expected: None, rows }])
    };
    delete(&[3]).unwrap();
    for gone in [&[3][..], &[2, 3], &[10], &[1 << 40]] {
        let error = delete(gone).unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    }
    assert_eq!(store.snapshot().table("t").unwrap().rows(), 9);
    delete(&[0, 1, 2, 4, 5, 6, 7, 8, 9]).unwrap();
    let empty = store.snapshot().table("t").unwrap();
    assert_eq!((empty.rows(), empty.row_groups(), empty.bytes()), (0, 0, 0));
}

#[test]
fn a_snapshot_keeps_what_is_deleted_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let store = open(&Directory::Os(directory.path().into()), &runtime);
    let before = load(&store, &number_table("t"), &[numbers(0..100_000)]);
    let mut rows = RowSet::default();
    assert!((50..90_000).all(|id| rows.insert(id)));
    let delete = Change::Delete { table: "t".into(), expected: Some(before.id()), rows };
    store.commit_blocking(vec![delete]).unwrap();
    store.commit_blocking(vec![Change::Truncate { table: "t".into(), expected: None }]).unwrap();
    let table = append(&store, &number_table("t"), &[numbers(7..9)]);
    assert_eq!(everything(&before).unwrap(), numbers(0..100_000));
    assert_eq!(everything(&table).unwrap(), numbers(7..9));
}
