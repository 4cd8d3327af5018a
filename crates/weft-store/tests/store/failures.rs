//! Full disks, failing devices, cancelled and abandoned writers: the old state stays, and the space comes
//! back.

use std::sync::Arc;

use weft_rt::Runtime;
use weft_rt::cancel::CancelToken;
use weft_rt::io::DriverKind;
use weft_rt::io::sim::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_store::*;

use crate::support::*;

fn simulated(seed: u64) -> (SimDisk, Arc<Runtime>, Directory) {
    let disk = SimDisk::new(SimOptions::testing(seed));
    let runtime = runtime(DriverKind::Sim(disk.clone()), 2);
    (disk.clone(), runtime, Directory::Sim(disk, "db".into()))
}

/// Bytes that tables do not occupy and that are not free.
fn lost_bytes(store: &Store) -> u64 {
    let snapshot = store.snapshot();
    let used: u64 =
        snapshot.tables().map(|name| snapshot.table(name).unwrap().bytes_on_disk()).sum();
    store.bytes_on_disk() - used - store.bytes_free() - 4096
}

/// Row groups that were in flight when something failed end first.
fn check_nothing_is_lost(store: &Store) {
    for _ in 0..500 {
        if lost_bytes(store) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} bytes are lost", lost_bytes(store));
}

fn try_append(store: &Store, schema: &TableSchema, rows: std::ops::Range<i64>) -> Result<()> {
    let groups = write(store, schema, &[numbers(rows)])?;
    let append = Change::Append { table: schema.name.clone(), expected: None, groups };
    store.commit_blocking(vec![append]).map(drop)
}

/// Rows that take space: no two are alike.
fn wide_rows(rows: usize) -> arrow_array::RecordBatch {
    let mut random = fastrand::Rng::with_seed(5);
    let values = (0..rows).map(|_| Some(random.i64(..))).collect::<Vec<_>>();
    let column = array(&arrow_schema::DataType::Int64, &values);
    arrow_array::RecordBatch::try_new(number_table("t").arrow_schema(), vec![column]).unwrap()
}

#[test]
fn a_full_disk_is_named_and_leaves_the_old_state() {
    let (disk, runtime, directory) = simulated(1);
    let store = open(&directory, &runtime);
    let schema = number_table("t");
    load(&store, &schema, &[numbers(0..1_000)]);
    disk.set_faults(SimFaults::none().disk_full_after(disk.allocated_bytes() + (1 << 20)));
    let error = write(&store, &schema, &[wide_rows(500_000)]).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    let message = error.to_string();
    assert!(message.contains("data-0.weft") && message.contains("bytes"), "{message}");
    check_nothing_is_lost(&store);
    assert_eq!(store.snapshot().table("t").unwrap().rows(), 1_000);
    disk.set_faults(SimFaults::none());
    try_append(&store, &schema, 1_000..2_000).unwrap();
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(everything(&table).unwrap(), numbers(0..2_000));
}

#[test]
fn a_full_disk_at_any_byte_leaves_the_old_state() {
    for room in (0..400 << 10).step_by(12 << 10) {
        let (disk, runtime, directory) = simulated(room);
        let store = open(&directory, &runtime);
        let schema = number_table("t");
        load(&store, &schema, &[numbers(0..1_000)]);
        disk.set_faults(SimFaults::none().disk_full_after(disk.allocated_bytes() + room));
        let mut rows = 1_000;
        let error = loop {
            match try_append(&store, &schema, rows..rows + 3_000) {
                Ok(()) => rows += 3_000,
                Err(error) => break error,
            }
            assert!(rows < 10_000_000, "the disk never fills");
            if rows > 100_000 {
                return; // There is room in what was allocated before.
            }
        };
        assert!(error.is_disk_full(), "room for {room}: {error}");
        assert_eq!(lost_bytes(&store), 0);
        disk.set_faults(SimFaults::none());
        try_append(&store, &schema, rows..rows + 10).unwrap();
        drop(store);
        let store = open(&directory, &runtime);
        let table = store.snapshot().table("t").unwrap();
        assert_eq!(everything(&table).unwrap(), numbers(0..rows + 10));
    }
}

#[test]
fn any_failing_request_leaves_the_old_state() {
    for operation in [Operation::Write, Operation::Allocate, Operation::Sync, Operation::Read] {
        for nth in 0..12 {
            let (disk, runtime, directory) = simulated(nth);
            let store = open(&directory, &runtime);
            let schema = number_table("t");
            load(&store, &schema, &[wide_rows(1_000)]);
            let before = everything(&store.snapshot().table("t").unwrap()).unwrap();
            let rule = FaultRule::nth(operation, nth, Fault::IO);
            disk.set_faults(SimFaults::none().with(rule));
            let result = try_append(&store, &schema, 0..2_000);
            disk.set_faults(SimFaults::none());
            let table = store.snapshot().table("t").unwrap();
            match result {
                Ok(()) => assert_eq!(table.rows(), 3_000),
                Err(error) => {
                    assert!(
                        matches!(error, StoreError::File(_) | StoreError::At { .. }),
                        "{error}"
                    );
                    assert_eq!(everything(&table).unwrap(), before);
                    assert_eq!(lost_bytes(&store), 0, "{operation:?} number {nth}");
                    // A failed sync of a data file may have lost what others wrote.
                    match try_append(&store, &schema, 0..2_000) {
                        Ok(()) => {}
                        Err(StoreError::Halted { .. }) => assert_eq!(operation, Operation::Sync),
                        Err(error) => panic!("{operation:?} number {nth}: {error}"),
                    }
                }
            }
            drop((table, store));
            let store = open(&directory, &runtime);
            let rows = store.snapshot().table("t").unwrap().rows();
            assert!(rows == 1_000 || rows == 3_000, "{rows}");
            try_append(&store, &schema, 0..1).unwrap();
        }
    }
}

#[test]
fn abandoned_writers_give_their_space_back() {
    let (_, runtime, directory) = simulated(2);
    let store = open(&directory, &runtime);
    let schema = number_table("t");
    load(&store, &schema, &[numbers(0..10)]);
    drop(write(&store, &schema, &[wide_rows(200_000)]).unwrap());
    check_nothing_is_lost(&store);
    let writer = store.writer(&schema, WriterOptions::default()).unwrap();
    let mut partition = writer.partition(0);
    block_on(partition.append(wide_rows(200_000))).unwrap();
    drop(partition);
    let error = block_on(writer.finish()).unwrap_err();
    assert!(matches!(error, StoreError::Incomplete { .. }), "{error}");
    let error = {
        let cancel = CancelToken::new();
        let options = WriterOptions { cancel: cancel.clone(), ..WriterOptions::default() };
        let writer = store.writer(&schema, options).unwrap();
        let mut partition = writer.partition(0);
        block_on(partition.append(wide_rows(70_000))).unwrap();
        cancel.cancel();
        block_on(partition.append(wide_rows(70_000))).unwrap_err()
    };
    assert!(matches!(error, StoreError::Cancelled), "{error}");
    check_nothing_is_lost(&store);
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let (_, runtime, directory) = simulated(4);
    let store = open(&directory, &runtime);
    let mut schema = number_table("t");
    schema.columns[0].nullable = false;
    let nulls = array(&arrow_schema::DataType::Int64, &[Some(1), None]);
    let nulls =
        arrow_array::RecordBatch::try_new(number_table("t").arrow_schema(), vec![nulls]).unwrap();
    let message = write(&store, &schema, &[nulls]).unwrap_err().to_string();
    assert!(message.contains("column n") && message.contains("NOT NULL"), "{message}");
    let other = table("t", &[("n", arrow_schema::DataType::Utf8)]);
    let message = write(&store, &other, &[numbers(0..1)]).unwrap_err().to_string();
    assert!(message.contains("Int64") && message.contains("Utf8"), "{message}");
}

#[test]
fn writing_goes_on_with_a_tiny_budget() {
    let (_, runtime, directory) = simulated(5);
    let ledger = Ledger::new(4 << 20);
    let options = StoreOptions { create: true, ..StoreOptions::default() };
    let store = Store::open(&directory, &options, runtime, ledger.clone()).unwrap();
    let others = ledger.try_reserve(ledger.limit() - ledger.used()).unwrap();
    let schema = number_table("t");
    let rows = wide_rows(300_000);
    let written = store.stats().bytes_written;
    let table = load(&store, &schema, std::slice::from_ref(&rows));
    assert!(everything(&table).unwrap() == rows);
    assert!(table.row_groups() > 2, "they were cut short");
    let written = store.stats().bytes_written - written;
    assert!(written < table.bytes() * 5 / 4, "{written} bytes were written for {}", table.bytes());
    drop((table, store));
    assert_eq!(ledger.used(), others.bytes(), "everything is given back");
}

#[test]
fn failing_and_wrong_reads_are_errors_and_never_wrong_answers() {
    let (disk, runtime, directory) = simulated(6);
    let schema = number_table("t");
    let rows = wide_rows(150_000);
    let store = open(&directory, &runtime);
    let expected = everything(&load(&store, &schema, std::slice::from_ref(&rows))).unwrap();
    drop(store);
    let (mut errors, mut answers) = (0, 0);
    for fault in [Fault::IO, Fault::BitFlip, Fault::Short, Fault::INTERRUPTED] {
        for _ in 0..15 {
            let store = open(&directory, &runtime);
            let table = store.snapshot().table("t").unwrap();
            disk.set_faults(SimFaults::none().with(FaultRule::chance(Operation::Read, 0.5, fault)));
            match everything(&table) {
                Ok(found) => {
                    assert!(found == expected, "a wrong answer after {fault:?}");
                    answers += 1;
                }
                Err(error) => {
                    assert!(matches!(fault, Fault::Error(_) | Fault::BitFlip), "{error}");
                    assert!(error.to_string().contains("data-0.weft"), "{error}");
                    errors += 1;
                }
            }
            disk.set_faults(SimFaults::none());
            assert!(everything(&table).unwrap() == expected, "the fault was not for good");
        }
    }
    println!("{errors} errors, {answers} answers");
    assert!(errors > 3 && answers > 3);
}
