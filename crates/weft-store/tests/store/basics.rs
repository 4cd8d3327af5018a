//! What is written is read: over types, sizes, drivers, and after opening again.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{SimDisk, SimOptions};
use weft_store::*;

use crate::support::*;

fn directory() -> (tempfile::TempDir, Directory) {
    let kept = tempfile::tempdir().unwrap();
    let directory = Directory::Os(kept.path().join("db"));
    (kept, directory)
}

#[test]
fn a_table_comes_back_after_opening_again() {
    let (_kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 2);
    let schema = many_types("t");
    let mut random = fastrand::Rng::with_seed(1);
    let batches: Vec<RecordBatch> =
        [1, 5_000, 70_000, 3].iter().map(|rows| random_rows(&schema, *rows, &mut random)).collect();
    let expected = arrow_select::concat::concat_batches(&schema.arrow_schema(), &batches).unwrap();
    let store = open(&directory, &runtime);
    let table = load(&store, &schema, &batches);
    assert_eq!(everything(&table).unwrap(), expected);
    assert_eq!((table.rows(), table.row_groups()), (75_004, 2));
    drop((table, store));
    let store = open(&directory, &runtime);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.tables().collect::<Vec<_>>(), ["t"]);
    let table = snapshot.table("t").unwrap();
    assert_eq!(table.schema(), &schema);
    assert_eq!(everything(&table).unwrap(), expected);
}

#[test]
fn random_tables_come_back_with_every_driver() {
    for (number, driver) in [
        DriverKind::Uring,
        DriverKind::Posix,
        DriverKind::Blocking,
        DriverKind::Sim(SimDisk::new(SimOptions::testing(3))),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = fastrand::u64(..);
        println!("driver {number}, seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (_kept, mut directory) = directory();
        if let DriverKind::Sim(disk) = &driver {
            directory = Directory::Sim(disk.clone(), "db".into());
        }
        let runtime = runtime(driver, 2);
        let store = open(&directory, &runtime);
        let schema = many_types("t");
        let mut all = Vec::new();
        for round in 0..6 {
            let rows = if round == 0 { 66_000 } else { random.usize(1..4_000) };
            let batch = random_rows(&schema, rows, &mut random);
            match round {
                0 => load(&store, &schema, std::slice::from_ref(&batch)),
                _ => append(&store, &schema, std::slice::from_ref(&batch)),
            };
            all.push(batch);
            let expected =
                arrow_select::concat::concat_batches(&schema.arrow_schema(), &all).unwrap();
            let table = store.snapshot().table("t").unwrap();
            assert!(everything(&table).unwrap() == expected, "seed {seed}, round {round}");
        }
        drop(store);
        let store = open(&directory, &runtime);
        let table = store.snapshot().table("t").unwrap();
        let expected = arrow_select::concat::concat_batches(&schema.arrow_schema(), &all).unwrap();
        assert!(everything(&table).unwrap() == expected, "seed {seed}, opened again");
    }
}

#[test]
fn projections_and_row_ids() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let table = load(&store, &number_table("t"), &[numbers(0..100_000)]);
    let all =
        collect(&table, ScanOptions { projection: vec![0, 0], ..Default::default() }).unwrap();
    assert_eq!(all.num_columns(), 3);
    for row in [0, 65_535, 65_536, 99_999] {
        assert_eq!(all.column(1).as_primitive::<Int64Type>().value(row), row as i64);
    }
    let mut counted = 0;
    let mut scan = table.scan(ScanOptions::default()).unwrap();
    while let Some(batch) = scan.next_blocking() {
        let batch = batch.unwrap();
        assert!(batch.num_columns() == 0 && batch.num_rows() <= 8192);
        counted += batch.num_rows();
    }
    assert_eq!(counted, 100_000);
    assert_eq!(scan.stats().bytes_read, 0, "counting reads nothing");
    assert!(table.scan(ScanOptions { projection: vec![1], ..Default::default() }).is_err());
}

#[test]
fn predicates_are_exact_and_prune() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let table = load(&store, &number_table("t"), &[numbers(0..300_000)]);
    let between = vec![
        (0, Predicate::Compare(Op::GtEq, Scalar::Int(70_000))),
        (0, Predicate::Compare(Op::Lt, Scalar::Int(70_010))),
    ];
    let options = ScanOptions { projection: vec![0], predicates: between, ..Default::default() };
    let mut scan = table.scan(options).unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = scan.next_blocking() {
        rows.extend(batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
    }
    assert_eq!(rows, (70_000..70_010).collect::<Vec<_>>());
    let stats = scan.stats();
    assert_eq!((stats.row_groups, stats.row_groups_pruned, stats.rows_out), (5, 4, 10));
    assert_eq!(table.zone(0).unwrap().max, Some(Scalar::Int(299_999)));
}

#[test]
fn point_reads_find_every_row() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let table = load(&store, &number_table("t"), &[numbers(0..80_000)]);
    for row in [0, 1, 65_535, 65_536, 79_999] {
        let found = weft_rt::sync::block_on(table.get(row, &[0])).unwrap();
        assert_eq!(found, Some(vec![Scalar::Int(row as i64)]));
    }
    assert_eq!(weft_rt::sync::block_on(table.get(80_000, &[0])).unwrap(), None);
}

#[test]
fn small_commits_make_few_row_groups() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let schema = number_table("t");
    let mut table = load(&store, &schema, &[numbers(0..1)]);
    for n in 1..100 {
        table = append(&store, &schema, &[numbers(n..n + 1)]);
        let bits = (n + 1).count_ones() as usize;
        assert!(table.row_groups() <= 2 * bits.max(7), "{} after {n}", table.row_groups());
    }
    let all = everything(&table).unwrap();
    assert_eq!(all, numbers(0..100));
    assert_eq!(all.column(0).len(), 100);
    assert!(table.bytes_on_disk() < 1 << 20, "{}", table.bytes_on_disk());
    assert!(store.bytes_on_disk() < 4 << 20, "{}", store.bytes_on_disk());
}
