//! What is written is read: over types, sizes, drivers, and after opening again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, Schema};
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
fn statistics_follow_the_rows() {
    let (_kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 2);
    let schema = many_types("t");
    let mut random = fastrand::Rng::with_seed(4);
    let store = open(&directory, &runtime);
    let statistics = |store: &Store| {
        let table = store.snapshot().table("t").unwrap();
        weft_rt::sync::block_on(table.statistics()).unwrap()
    };
    let mut batch = |rows| random_rows(&schema, rows, &mut random);
    load(&store, &schema, &[batch(1_000)]);
    assert!(statistics(&store).is_none(), "so few rows are not worth it");
    append(&store, &schema, &[batch(70_000)]);
    let first = statistics(&store).expect("a load has some");
    assert_eq!((first.rows(), first.sample_rows()), (70_000, SAMPLE_ROWS_MAX));
    append(&store, &schema, &[batch(2_000)]);
    assert_eq!(statistics(&store).unwrap().rows(), 70_000, "a small commit leaves them");
    append(&store, &schema, &[batch(10_000)]);
    drop(store);
    let store = open(&directory, &runtime);
    let merged = statistics(&store).unwrap();
    assert_eq!((merged.rows(), merged.sample_rows()), (80_000, SAMPLE_ROWS_MAX));
    let columns = merged.sample().iter().map(|values| values.data_type().clone());
    let expected = schema.columns.iter().map(|column| scan_type(&column.data_type));
    assert!(columns.eq(expected));
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
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    let table = load(&store, &number_table("t"), &[numbers(0..100_000)]);
    let all =
        collect(&table, ScanOptions { projection: vec![0, 0], ..Default::default() }).unwrap();
    assert_eq!(all.num_columns(), 3);
    for row in [0, 65_535, 65_536, 99_999] {
        assert_eq!(all.column(1).as_primitive::<Int64Type>().value(row), row as i64);
    }
    drop((table, store));
    let store = open(&directory, &runtime);
    let table = store.snapshot().table("t").unwrap();
    let mut counted = 0;
    let mut scan = table.scan(ScanOptions::default()).unwrap();
    while let Some(batch) = scan.next_blocking() {
        let batch = batch.unwrap();
        assert!(batch.num_columns() == 0 && batch.num_rows() <= 8192);
        counted += batch.num_rows();
    }
    assert_eq!(counted, 100_000);
    assert_eq!(store.stats().bytes_read, 0, "counting reads nothing, not even the directory");
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
    // Zones tell that the rows are among those of one row group, and that many are greater than a number.
    let group = 1 << 16;
    assert_eq!(table.rows_within(&between), (0, group));
    let greater = (0, Predicate::Compare(Op::GtEq, Scalar::Int(70_000)));
    assert_eq!(table.rows_within(&[greater]), (300_000 - 2 * group, 300_000 - group));
    assert_eq!(table.rows_within(&[]), (300_000, 300_000));
    assert_eq!(table.rows_within(&[(9, Predicate::IsNull)]), (0, 300_000));
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

/// Wants every multiple of `of`; says so of 100,000 values and then that it is not worth it.
#[derive(Debug)]
struct Multiples {
    of: i64,
    seen: AtomicUsize,
}

impl ColumnFilter for Multiples {
    fn is_worth_it(&self) -> bool {
        self.seen.load(Ordering::Relaxed) < 100_000
    }

    fn wanted(&self, values: &ArrayRef, rows: usize) -> Option<BooleanBuffer> {
        let is_asked = self.seen.fetch_add(rows, Ordering::Relaxed) < 100_000;
        let values = values.as_primitive::<Int64Type>();
        is_asked.then(|| values.values().iter().map(|value| value % self.of == 0).collect())
    }
}

#[test]
fn what_the_owner_of_a_scan_does_not_want_is_left_out() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 1));
    let table = load(&store, &number_table("t"), &[numbers(0..300_000)]);
    let multiples = |of, seen: usize| {
        (0, Arc::new(Multiples { of, seen: seen.into() }) as Arc<dyn ColumnFilter>)
    };
    let scan = |options: ScanOptions| {
        let mut scan = table.scan(ScanOptions { projection: vec![0, 0], ..options }).unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = scan.next_blocking() {
            let batch = batch.unwrap();
            assert_eq!(batch.num_columns(), 2);
            rows.extend(batch.column(1).as_primitive::<Int64Type>().values().to_vec());
        }
        rows.sort_unstable();
        (rows, scan.stats())
    };
    // Whole row groups by their zones, but nothing else.
    let at_least = (0, Predicate::Compare(Op::GtEq, Scalar::Int(290_000)));
    let (rows, stats) =
        scan(ScanOptions { zone_predicates: vec![at_least.clone()], ..Default::default() });
    assert_eq!((stats.row_groups, stats.row_groups_pruned), (5, 4));
    assert!(rows.iter().copied().eq(4 * 65_536..300_000));
    // Rows by one filter and another, after a predicate.
    let (rows, _) = scan(ScanOptions {
        predicates: vec![at_least],
        filters: vec![multiples(1000, 0), multiples(7, 0)],
        ..Default::default()
    });
    assert!(rows.iter().copied().eq((290_000..300_000).filter(|value| value % 7000 == 0)));
    // All rows, once the filter says that it is not worth it.
    let options =
        ScanOptions { filters: vec![multiples(1000, 0)], io_depth: 1, ..Default::default() };
    let (rows, _) = scan(options);
    assert!(rows.starts_with(&[0, 1000, 2000]) && rows.ends_with(&[299_998, 299_999]));
    let (rows, _) =
        scan(ScanOptions { filters: vec![multiples(1000, 100_000)], ..Default::default() });
    assert_eq!(rows.len(), 300_000);
}

#[test]
fn a_predicate_of_another_type_is_no_damage() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 1));
    let table = load(&store, &number_table("t"), &[numbers(0..100)]);
    let predicates = vec![(0, Predicate::StartsWith(b"x".to_vec()))];
    let error = collect(&table, ScanOptions { predicates, ..Default::default() }).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("column n") && !message.contains("damaged"), "{message}");
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
    assert_eq!(everything(&table).unwrap(), numbers(0..100));
    // A small table comes in its order.
    let mut scan = table.scan(ScanOptions { projection: vec![0], ..Default::default() }).unwrap();
    let mut values = Vec::new();
    while let Some(batch) = scan.next_blocking() {
        values.extend(batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec());
    }
    assert_eq!(values, (0..100).collect::<Vec<_>>());
    assert!(table.bytes_on_disk() < 1 << 20, "{}", table.bytes_on_disk());
    assert!(store.bytes_on_disk() < 4 << 20, "{}", store.bytes_on_disk());
}

#[test]
fn long_strings_take_several_pages() {
    let (_kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    let schema = table("t", &[("n", DataType::Int64), ("text", DataType::Utf8)]);
    let mut random = fastrand::Rng::with_seed(3);
    let mut text = |len: usize| (0..len).map(|_| random.alphanumeric()).collect::<String>();
    let lens = [0, 5, 3_000_000, 1 << 20, 17, 900_000, 1_048_560 - 16];
    let mut texts: Vec<Option<String>> = lens.into_iter().map(|len| Some(text(len))).collect();
    texts.push(None);
    texts.extend((0..3_000).map(|_| Some(text(2_000))));
    let numbers: Vec<_> = (0..texts.len() as i64).map(Some).collect();
    let columns: Vec<arrow_array::ArrayRef> = vec![
        array(&DataType::Int64, &numbers),
        Arc::new(texts.iter().map(|text| text.as_deref()).collect::<arrow_array::StringArray>()),
    ];
    let fields =
        vec![Field::new("n", DataType::Int64, true), Field::new("text", DataType::Utf8, true)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let stored =
        load(&store, &schema, &[batch.slice(0, 10), batch.slice(10, batch.num_rows() - 10)]);
    let check = |table: &Arc<Table>| {
        let all = everything(table).unwrap();
        let found: Vec<_> = all.column(1).as_string_view().iter().collect();
        assert!(found == texts.iter().map(|text| text.as_deref()).collect::<Vec<_>>());
        for row in [2, 7, 100] {
            let found = weft_rt::sync::block_on(table.get(row, &[1])).unwrap().unwrap();
            let wanted = texts[row as usize].as_ref();
            assert_eq!(
                found,
                [wanted.map_or(Scalar::Null, |text| Scalar::Bytes(text.clone().into()))]
            );
        }
    };
    check(&stored);
    drop((stored, store));
    check(&open(&directory, &runtime).snapshot().table("t").unwrap());
}

#[test]
fn filters_agree_with_filtering_afterwards() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let schema = many_types("t");
    let options = WriterOptions { row_group_rows: 9_000, ..WriterOptions::default() };
    let batches: Vec<_> = (0..5).map(|_| random_rows(&schema, 7_000, &mut random)).collect();
    let groups = write_as(&store, &schema, &batches, options).unwrap();
    let create = Change::CreateTable { schema: schema.clone(), or_replace: false };
    let append = Change::Append { table: "t".into(), expected: None, groups };
    let table = store.commit_blocking(vec![create, append]).unwrap().table("t").unwrap();
    let all = everything(&table).unwrap();
    let number = |row: usize| {
        let column = all.column(2).as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    for _ in 0..40 {
        let pivot = random.i64(-200..300);
        let (predicate, holds): (_, Box<dyn Fn(Option<i64>) -> bool>) = match random.u8(..5) {
            0 => (Predicate::IsNull, Box::new(|n| n.is_none())),
            1 => (Predicate::IsNotNull, Box::new(|n| n.is_some())),
            2 => (
                Predicate::Compare(Op::LtEq, Scalar::Int(pivot)),
                Box::new(move |n| n.is_some_and(|n| n <= pivot)),
            ),
            3 => (
                Predicate::Compare(Op::Eq, Scalar::Int(pivot)),
                Box::new(move |n| n == Some(pivot)),
            ),
            _ => (
                Predicate::In(vec![Scalar::Int(pivot), Scalar::Int(3), Scalar::Null]),
                Box::new(move |n| n == Some(pivot) || n == Some(3)),
            ),
        };
        let keep: BooleanArray = (0..all.num_rows()).map(|row| Some(holds(number(row)))).collect();
        let projection = vec![random.usize(..10), 2];
        let expected = arrow_select::filter::filter_record_batch(&all, &keep).unwrap();
        let expected = expected.project(&projection).unwrap();
        let options = ScanOptions {
            projection,
            predicates: vec![(2, predicate.clone())],
            batch_rows: random.usize(1..10_000),
            ..Default::default()
        };
        let found = collect(&table, options).unwrap();
        let found = found.project(&[0, 1]).unwrap();
        assert!(found.columns() == expected.columns(), "{predicate:?}");
    }
}
