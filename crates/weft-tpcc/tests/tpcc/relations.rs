//! The tables as relations: a snapshot that several threads scan has whole transactions only, while others commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type};
use arrow_array::{Array, RecordBatch};
use weft_rt::Runtime;
use weft_rt::io::DriverKind;
use weft_tpcc::{Database, Relation, RunOptions, Scale, run_until};
use weft_txn::Snapshot;

use crate::setup::{checked, loaded, options, runtime, within_limit};

/// Ids of rows of a batch: no power of two, so that batches end within chunks.
const IDS: u64 = 1000;

fn relation(database: &Database, name: &str) -> Relation {
    database.relations().into_iter().find(|relation| relation.name() == name).unwrap()
}

/// Some columns of all rows of a table that a snapshot has, scanned on two workers in turn.
fn scan(
    runtime: &Runtime,
    database: &Database,
    snapshot: &Arc<Snapshot>,
    name: &str,
    columns: &[&str],
) -> Vec<RecordBatch> {
    let relation = relation(database, name);
    let columns: Vec<usize> =
        columns.iter().map(|column| relation.schema().index_of(column).unwrap()).collect();
    let batch = |start: u64| {
        let (relation, snapshot, columns) = (relation.clone(), snapshot.clone(), columns.clone());
        let make = move || async move {
            relation.batch(&snapshot, start..start + IDS, &columns).await.unwrap()
        };
        runtime.spawn_on((start / IDS % 2) as usize, make)
    };
    let batches: Vec<_> = (0..relation.end()).step_by(IDS as usize).map(batch).collect();
    batches.into_iter().map(|batch| batch.wait().unwrap()).collect()
}

fn sum_of_money(batches: &[RecordBatch]) -> i128 {
    let columns = batches.iter().map(|batch| batch.column(0).as_primitive::<Decimal128Type>());
    columns.flat_map(|column| column.values().iter()).sum()
}

fn sum_of_numbers(batches: &[RecordBatch]) -> i64 {
    let columns = batches.iter().map(|batch| batch.column(0).as_primitive::<Int32Type>());
    columns.flat_map(|column| column.values().iter()).map(|number| i64::from(*number)).sum()
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

#[test]
fn snapshots_have_whole_transactions() {
    within_limit(|| {
        let (transactions, scans) =
            (runtime(DriverKind::Blocking, 1), runtime(DriverKind::Blocking, 2));
        let database = loaded(&transactions, Scale::small(2), 8);
        let stop = Arc::new(AtomicBool::new(false));
        let until_stopped = RunOptions { time: std::time::Duration::from_secs(250), ..options(8) };
        std::thread::scope(|scope| {
            let run = scope.spawn(|| run_until(&transactions, &database, &until_stopped, &stop));
            let (mut lines_before, mut grown) = (0, 0);
            for round in 0..20 {
                let snapshot = Arc::new(database.engine().snapshot().unwrap());
                let scan =
                    |name, columns: &[&str]| scan(&scans, &database, &snapshot, name, columns);
                let warehouses = sum_of_money(&scan("warehouse", &["w_ytd"]));
                let lines = rows(&scan("order_line", &[]));
                let said = sum_of_numbers(&scan("orders", &["o_ol_cnt"]));
                let districts = sum_of_money(&scan("district", &["d_ytd"]));
                let history = sum_of_money(&scan("history", &["h_amount"]));
                assert_eq!(warehouses, districts, "round {round}");
                assert_eq!(warehouses, history, "round {round}");
                assert_eq!(lines as i64, said, "round {round}");
                assert_eq!(rows(&scan("order_line", &["ol_amount", "ol_o_id"])), lines);
                assert!(lines >= lines_before);
                grown += usize::from(lines > lines_before);
                lines_before = lines;
            }
            stop.store(true, Ordering::Relaxed);
            run.join().unwrap().unwrap();
            assert!(grown > 0);
        });
        checked(&transactions, &database).unwrap();
    });
}

#[test]
fn columns_have_their_names_and_values() {
    within_limit(|| {
        let runtime = runtime(DriverKind::Blocking, 2);
        let database = loaded(&runtime, Scale::small(1), 9);
        let snapshot = Arc::new(database.engine().snapshot().unwrap());
        for relation in database.relations() {
            let names: Vec<&str> =
                relation.schema().fields().iter().map(|field| field.name().as_str()).collect();
            let batches = scan(&runtime, &database, &snapshot, relation.name(), &names);
            assert!(rows(&batches) > 0, "{relation:?}");
            for batch in &batches {
                assert_eq!(batch.schema().fields(), relation.schema().fields(), "{relation:?}");
            }
        }
        let nations = scan(&runtime, &database, &snapshot, "nation", &["n_name", "n_nationkey"]);
        let names = nations[0].column(0).as_string::<i32>();
        assert_eq!(
            (names.value(0), names.value(24), names.len()),
            ("ALGERIA", "UNITED STATES", 25)
        );
        // Orders that wait for their delivery have no carrier.
        let carriers = scan(&runtime, &database, &snapshot, "orders", &["o_carrier_id"]);
        let nulls: usize = carriers.iter().map(|batch| batch.column(0).null_count()).sum();
        let waiting = scan(&runtime, &database, &snapshot, "new_order", &["no_o_id"]);
        assert!(nulls > 0 && nulls == rows(&waiting));
    });
}
