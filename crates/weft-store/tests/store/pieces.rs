//! Rows are decoded a piece at a time: whatever is left of a row group, they are those of the table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array};
use arrow_array::{RecordBatch, StringViewArray};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use weft_rt::io::DriverKind;
use weft_store::*;

use crate::support::*;

/// Three row groups, the last one short.
const ROWS: i64 = 150_000;

/// The column that predicates are on, with numbers below a hundred.
const CHOSEN: usize = 1;

fn schema() -> TableSchema {
    table(
        "t",
        &[
            ("key", DataType::Int64),
            ("chosen", DataType::Int64),
            ("runs", DataType::Int64),
            ("price", DataType::Decimal128(15, 2)),
            ("ratio", DataType::Float64),
            ("maybe", DataType::Int64),
            ("kind", DataType::Utf8View),
            ("comment", DataType::Utf8View),
        ],
    )
}

fn rows(random: &mut fastrand::Rng) -> RecordBatch {
    let numbers = |number: &mut dyn FnMut(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(number)))
    };
    let mut run = 0;
    let mut next_run = |_| {
        run += i64::from(random.u8(..) < 60);
        run
    };
    let runs = numbers(&mut next_run);
    let prices = (0..ROWS).map(|_| i128::from(random.u32(..1_000_000)));
    let price = Decimal128Array::from_iter_values(prices).with_precision_and_scale(15, 2).unwrap();
    let ratio = Float64Array::from_iter_values((0..ROWS).map(|row| row as f64 / 8.0));
    let maybe: Int64Array = (0..ROWS).map(|row| (row % 7 > 0).then_some(row * 3)).collect();
    let kinds = ["", "green", "a kind with a longer name", "blue"];
    let kind = (0..ROWS).map(|row| (row % 11 > 0).then(|| kinds[random.usize(..4)]));
    let kind: StringViewArray = kind.collect();
    let word = |number: u32| ["furiously", "ironic", "deposits", "sleep", "!"][number as usize % 5];
    let comment = |row: i64| format!("{} {row} {}", word(random.u32(..)), word(random.u32(..)));
    let comment = StringViewArray::from_iter_values((0..ROWS).map(comment));
    let columns: Vec<ArrayRef> = vec![
        numbers(&mut |row| row),
        numbers(&mut |_| random.i64(..).rem_euclid(100)),
        runs,
        Arc::new(price),
        Arc::new(ratio),
        Arc::new(maybe),
        Arc::new(kind),
        Arc::new(comment),
    ];
    RecordBatch::try_new(schema().arrow_schema(), columns).unwrap()
}

/// The rows of a scan, whose morsels are read in turns; strings as views.
fn morsels(store: &Store, scan: MorselScan) -> Vec<RecordBatch> {
    let read = move || async move {
        scan.open().await.unwrap();
        let mut open: Vec<ScanMorsel> = std::iter::from_fn(|| scan.next()).take(2).collect();
        let mut found = Vec::new();
        while !open.is_empty() {
            let mut at = 0;
            while at < open.len() {
                match open[at].next().await.unwrap() {
                    Some(rows) => {
                        found.push(rows);
                        at += 1;
                    }
                    None => drop(open.remove(at)),
                }
            }
            if open.is_empty() {
                open.extend(scan.next());
            }
        }
        found
    };
    let found = store.runtime().spawn_on(0, read).wait().unwrap();
    let plain = |rows: ScanRows| {
        let columns =
            rows.batch.columns().iter().map(|array| match array.as_any_dictionary_opt() {
                Some(codes) => {
                    arrow_select::take::take(codes.values(), codes.keys(), None).unwrap()
                }
                None => array.clone(),
            });
        let batch = RecordBatch::try_new(schema().arrow_schema(), columns.collect()).unwrap();
        match rows.selected {
            Some(selected) => {
                filter_record_batch(&batch, &BooleanArray::new(selected, None)).unwrap()
            }
            None => batch,
        }
    };
    found.into_iter().map(plain).collect()
}

#[test]
fn rows_that_are_left_are_those_of_the_table() {
    let kept = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let store = open(&Directory::Os(kept.path().join("db")), &runtime);
    let rows = rows(&mut fastrand::Rng::with_seed(3));
    let table = load(&store, &schema(), std::slice::from_ref(&rows));
    assert_eq!(table.row_groups(), 3);
    let chosen = rows.column(CHOSEN).as_primitive::<Int64Type>();
    for below in [0, 1, 10, 30, 55, 99, 100] {
        let mask: BooleanArray = chosen.iter().map(|value| value.map(|it| it < below)).collect();
        let expected = filter_record_batch(&rows, &mask).unwrap();
        let predicate = Predicate::Compare(Op::Lt, Scalar::Int(below));
        let options = |batch_rows: usize| ScanOptions {
            projection: (0..rows.num_columns()).collect(),
            predicates: vec![(CHOSEN, predicate.clone())],
            batch_rows,
            ..Default::default()
        };
        for batch_rows in [1000, 8192, 65_536] {
            let found = collect(&table, options(batch_rows)).unwrap();
            let found = found.project(&(0..rows.num_columns()).collect::<Vec<_>>()).unwrap();
            assert_eq!(found, expected, "below {below}, {batch_rows} rows at a time");
            let mut found = morsels(&store, table.scan_morsels(options(batch_rows)).unwrap());
            let key = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().value(0);
            found.retain(|batch| batch.num_rows() > 0);
            found.sort_by_key(key);
            let found = concat_batches(&schema().arrow_schema(), &found).unwrap();
            assert_eq!(found, expected, "below {below}, {batch_rows} rows at a time, as stored");
        }
    }
}
