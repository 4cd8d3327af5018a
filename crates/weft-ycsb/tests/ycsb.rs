//! YCSB with few rows: in each variant all rows are there, and no update is lost; in memory, and in files that memory is a part of.

use std::time::Duration;

use weft_rt::io::DriverKind;
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};
use weft_txn::Isolation;
use weft_ycsb::{
    Database, Form, Place, RunOptions, Variant, Workload, YcsbError, check, prepare, run,
};

const FORM: Form = Form { rows: 3000, key_bytes: 8, value_bytes: 8 };

fn runtime(workers: usize, driver: DriverKind) -> Runtime {
    let options = RuntimeOptions { workers, pin: false, driver, io_depth: 16 };
    Runtime::new(&options).unwrap()
}

fn options(workload: Workload, variant: Variant) -> RunOptions {
    RunOptions {
        variant,
        workload,
        operations: 10,
        theta: 0.5,
        threads: 2,
        batch: 8,
        isolation: Isolation::Snapshot,
        time: Duration::from_millis(15),
        seed: 42,
    }
}

#[test]
fn no_update_is_lost_in_any_variant_and_at_any_level() {
    let runtime = runtime(2, DriverKind::Blocking);
    let ledger = Ledger::new(512 << 20);
    let database = Database::open(&runtime, FORM, Place::Memory, ledger).unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for workload in Workload::ALL {
            for variant in Variant::ALL {
                let options = RunOptions { isolation, ..options(workload, variant) };
                let measured = run(&runtime, &database, &options);
                let measured = measured.unwrap_or_else(|error| panic!("{options:?}: {error}"));
                assert!(measured.commits > 0, "{options:?}");
                assert_eq!(measured.latency_ns.len(), measured.commits, "{options:?}");
            }
        }
        check(&runtime, &database).unwrap();
    }
}

#[test]
fn keys_and_values_have_the_bytes_that_are_wanted() {
    let runtime = runtime(1, DriverKind::Blocking);
    let form = Form { rows: 500, key_bytes: 40, value_bytes: 300 };
    let database = Database::open(&runtime, form, Place::Memory, Ledger::new(256 << 20)).unwrap();
    for variant in Variant::ALL {
        let options = RunOptions { threads: 1, ..options(Workload::Mixed, variant) };
        assert!(run(&runtime, &database, &options).unwrap().commits > 0);
    }
    check(&runtime, &database).unwrap();
    let one = RunOptions { operations: 1, threads: 1, ..options(Workload::Rmw, Variant::CoroBase) };
    assert!(run(&runtime, &database, &one).unwrap().commits > 0);
    check(&runtime, &database).unwrap();
}

#[test]
fn a_table_in_files_is_read_and_changed_with_little_memory() {
    let form = Form { rows: 400_000, key_bytes: 8, value_bytes: 100 };
    let directory = tempfile::tempdir().unwrap();
    let writer = runtime(1, DriverKind::Auto);
    let files = prepare(&writer, form, directory.path(), Ledger::new(64 << 20)).unwrap();
    assert!(files.bytes() > 48 << 20, "{}", files.bytes());
    for driver in [DriverKind::Auto, DriverKind::Blocking] {
        let runtime = runtime(2, driver);
        let ledger = Ledger::new(32 << 20);
        let place = Place::Files(files.clone());
        let database = Database::open(&runtime, form, place, ledger.clone()).unwrap();
        for workload in [Workload::Read, Workload::Mixed, Workload::Scan] {
            for variant in [Variant::Naive, Variant::AmacMk, Variant::CoroMk, Variant::CoroBase] {
                let options = RunOptions { batch: 32, ..options(workload, variant) };
                let measured = run(&runtime, &database, &options);
                let measured = measured.unwrap_or_else(|error| panic!("{options:?}: {error}"));
                assert!(measured.commits > 0, "{options:?}");
            }
        }
        check(&runtime, &database).unwrap();
        assert!(database.memory_bytes() <= 32 << 20, "{}", database.memory_bytes());
    }
}

#[test]
fn what_cannot_be_run_says_so() {
    let runtime = runtime(1, DriverKind::Blocking);
    for form in [
        Form { rows: 0, ..FORM },
        Form { key_bytes: 7, ..FORM },
        Form { key_bytes: 65, ..FORM },
        Form { value_bytes: 0, ..FORM },
    ] {
        let opened = Database::open(&runtime, form, Place::Memory, Ledger::new(64 << 20));
        assert!(matches!(opened, Err(YcsbError::Form(_))), "{form:?}");
    }
    let large = Form { rows: 1_000_000, ..FORM };
    let opened = Database::open(&runtime, large, Place::Memory, Ledger::new(8 << 20));
    assert!(matches!(opened, Err(YcsbError::Index(_) | YcsbError::Transaction(_))));
    let database = Database::open(&runtime, FORM, Place::Memory, Ledger::new(64 << 20)).unwrap();
    for operations in [0, 65] {
        let options =
            RunOptions { operations, threads: 1, ..options(Workload::Read, Variant::Naive) };
        assert!(matches!(run(&runtime, &database, &options), Err(YcsbError::Form(_))));
    }
}
