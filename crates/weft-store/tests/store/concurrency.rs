//! Several partitions, scans during commits, conflicts, several handles, read-only databases.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use weft_rt::cancel::CancelToken;
use weft_rt::io::sim::{SimDisk, SimOptions};
use weft_rt::io::{DriverKind, IoBuf};
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_store::spill::Scheme;
use weft_store::*;

use crate::support::*;

fn directory() -> (tempfile::TempDir, Directory) {
    let kept = tempfile::tempdir().unwrap();
    let directory = Directory::Os(kept.path().join("db"));
    (kept, directory)
}

#[test]
fn partitions_keep_the_order_of_the_input() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let schema = number_table("t");
    let writer = store.writer(&schema, WriterOptions::default()).unwrap();
    let part = |number: usize| (number as i64 * 90_000, (number as i64 + 1) * 90_000);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let mut partition = writer.partition(number);
            scope.spawn(move || {
                let (start, end) = part(number);
                for at in (start..end).step_by(10_000) {
                    block_on(partition.append(numbers(at..at + 10_000))).unwrap();
                }
                block_on(partition.finish()).unwrap();
            });
        }
    });
    let groups = block_on(writer.finish()).unwrap();
    assert_eq!(groups.rows(), 360_000);
    let create = Change::CreateTable { schema: schema.clone(), or_replace: false };
    let append = Change::Append { table: "t".into(), expected: None, groups };
    let snapshot = store.commit_blocking(vec![create, append]).unwrap();
    let table = snapshot.table("t").unwrap();
    assert_eq!(everything(&table).unwrap(), numbers(0..360_000));
}

#[test]
fn partitions_of_a_scan_give_each_row_once() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let table = load(&store, &number_table("t"), &[numbers(0..1_000_000)]);
    for partitions in [1, 2, 3, 8] {
        let options = ScanOptions { projection: vec![0], ..Default::default() };
        let scans = table.scan_partitions(partitions, options).unwrap();
        let sums: Vec<(i64, usize)> = std::thread::scope(|scope| {
            let run = |mut scan: Scan| {
                let (mut sum, mut rows) = (0, 0);
                while let Some(batch) = scan.next_blocking() {
                    let batch = batch.unwrap();
                    rows += batch.num_rows();
                    sum += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
                }
                (sum, rows)
            };
            let threads: Vec<_> =
                scans.into_iter().map(|scan| scope.spawn(move || run(scan))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let total = sums.iter().fold((0, 0), |(a, b), (sum, rows)| (a + sum, b + rows));
        assert_eq!(total, (999_999 * 1_000_000 / 2, 1_000_000), "{partitions} partitions");
    }
}

/// Whoever has rows of a scan may wait for memory that only another worker can free, once it has read on.
#[test]
fn workers_with_rows_of_a_scan_do_not_hold_up_others() {
    let (_kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    let table = load(&store, &number_table("t"), &[numbers(0..500_000)]);
    let ledger = store.ledger().clone();
    let all_memory: Vec<_> = std::iter::from_fn(|| ledger.try_reserve(1 << 20)).collect();
    let scan =
        table.scan_morsels(ScanOptions { projection: vec![0], ..Default::default() }).unwrap();
    let opened = scan.clone();
    runtime.block_on(move || async move { opened.open().await }).unwrap().unwrap();
    let read = |worker: usize| {
        let scan = scan.clone();
        let read = move || async move {
            let mut morsel = scan.next().unwrap();
            let rows = morsel.next().await.unwrap().unwrap().batch.num_rows();
            (morsel, rows)
        };
        runtime.spawn_on(worker, read).wait().unwrap()
    };
    let (first, second) = (read(0), read(1));
    assert!(first.1 > 0 && second.1 > 0);
    drop(all_memory);
}

/// With a lower budget the buffer pool keeps less for itself.
#[test]
fn a_lower_budget_is_not_all_the_pools() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let table = load(&store, &number_table("t"), &[numbers(0..500_000)]);
    for (limit_bytes, kept_bytes_max) in
        [(64 << 20, 8 << 20), (1 << 30, 128 << 20), (16 << 20, 8 << 20)]
    {
        store.set_memory_limit(limit_bytes);
        let ledger = store.ledger();
        let rest: Vec<_> = std::iter::from_fn(|| ledger.try_reserve(1 << 20)).collect();
        let bytes = rest.iter().map(|reservation| reservation.bytes()).sum::<u64>();
        assert!(bytes + kept_bytes_max + (2 << 20) > limit_bytes, "{bytes} of {limit_bytes}");
        assert_eq!(everything(&table).unwrap(), numbers(0..500_000));
    }
}

#[test]
fn a_scan_that_is_dropped_stops_reading() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let mut random = fastrand::Rng::with_seed(1);
    let schema = number_table("t");
    let values: Vec<_> = (0..3_000_000).map(|_| Some(random.i64(..))).collect();
    let column = array(&arrow_schema::DataType::Int64, &values);
    let batch = arrow_array::RecordBatch::try_new(schema.arrow_schema(), vec![column]).unwrap();
    let table = load(&store, &schema, &[batch]);
    assert!(table.row_groups() > 40);
    let read = store.stats().bytes_read;
    let mut scan = table.scan(ScanOptions { projection: vec![0], ..Default::default() }).unwrap();
    scan.next_blocking().unwrap().unwrap();
    drop(scan);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let read = store.stats().bytes_read - read;
    assert!(read < table.bytes() * 3 / 4, "{read} of {} bytes", table.bytes());
    let cancel = CancelToken::new();
    let options = ScanOptions { projection: vec![0], cancel: cancel.clone(), ..Default::default() };
    let mut scan = table.scan(options).unwrap();
    scan.next_blocking().unwrap().unwrap();
    cancel.cancel();
    let last = std::iter::from_fn(|| scan.next_blocking()).last().unwrap();
    assert!(matches!(last, Err(StoreError::Cancelled)), "{last:?}");
    // The tables' directories stay in memory, and pages that may be wanted again.
    let held = || store.ledger().used() - store.pool().cache_stats().bytes_reserved;
    for _ in 0..500 {
        if held() < 64 << 10 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} bytes are not given back", held());
}

#[test]
fn scans_see_their_snapshot_while_tables_change() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 2));
    let schema = number_table("t");
    load(&store, &schema, &[numbers(0..10_000)]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let table = store.snapshot().table("t").unwrap();
                    let rows = table.rows();
                    std::thread::yield_now();
                    let all = everything(&table).unwrap();
                    assert_eq!(all.num_rows() as u64, rows);
                    let values = all.column(0).as_primitive::<Int64Type>().values();
                    let first = values[0];
                    let ordered =
                        values.iter().zip(first..).all(|(value, wanted)| *value == wanted);
                    assert!(ordered, "rows of two tables in one scan");
                }
            });
        }
        for round in 0..40 {
            let start = round * 1_000_000;
            if round % 5 == 0 {
                let groups = write(&store, &schema, &[numbers(start..start + 10_000)]).unwrap();
                store
                    .commit_blocking(vec![
                        Change::CreateTable { schema: schema.clone(), or_replace: true },
                        Change::Append { table: "t".into(), expected: None, groups },
                    ])
                    .unwrap();
            } else {
                let table = store.snapshot().table("t").unwrap();
                let first = round / 5 * 5_000_000;
                let next = first + table.rows() as i64;
                append(&store, &schema, &[numbers(next..next + 700)]);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.bytes_on_disk() < 4 << 20, "space is reused: {}", store.bytes_on_disk());
}

#[test]
fn a_dropped_table_stays_readable_for_those_who_have_it() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 1));
    let schema = number_table("t");
    let table = load(&store, &schema, &[numbers(0..50_000)]);
    let free = store.bytes_free();
    store.commit_blocking(vec![Change::DropTable { name: "t".into(), expected: None }]).unwrap();
    load(&store, &number_table("u"), &[numbers(7..50_007)]);
    assert_eq!(everything(&table).unwrap(), numbers(0..50_000));
    drop(table);
    assert!(store.bytes_free() >= free, "{} instead of {free}", store.bytes_free());
}

#[test]
fn conflicting_commits_fail() {
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 1));
    let schema = number_table("t");
    let table = load(&store, &schema, &[numbers(0..10)]);
    let expected = Some(table.id());
    let append = |groups| Change::Append { table: "t".into(), expected, groups };
    let groups = write(&store, &schema, &[numbers(0..10)]).unwrap();
    store
        .commit_blocking(vec![Change::CreateTable { schema: schema.clone(), or_replace: true }])
        .unwrap();
    let error = store.commit_blocking(vec![append(groups)]).unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
    let groups = write(&store, &schema, &[numbers(0..10)]).unwrap();
    store.commit_blocking(vec![Change::DropTable { name: "t".into(), expected: None }]).unwrap();
    let error = store.commit_blocking(vec![append(groups)]).unwrap_err();
    assert!(error.to_string().contains("dropped"), "{error}");
    // All or nothing.
    let view = Change::CreateView { name: "v".into(), sql: "SELECT 1".into(), or_replace: false };
    let wrong = Change::DropView { name: "w".into() };
    assert!(store.commit_blocking(vec![view, wrong]).is_err());
    assert_eq!(store.snapshot().views().count(), 0);
}

#[test]
fn one_writer_or_several_readers() {
    let (_kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 1);
    let store = open(&directory, &runtime);
    load(&store, &number_table("t"), &[numbers(0..10)]);
    let message = try_open(&directory, &runtime).unwrap_err().to_string();
    assert!(message.contains(&std::process::id().to_string()), "{message}");
    drop(store);
    let options = StoreOptions { read_only: true, ..StoreOptions::default() };
    let reader = || Store::open(&directory, &options, runtime.clone(), ample()).unwrap();
    let readers = [reader(), reader()];
    for reader in &readers {
        let table = reader.snapshot().table("t").unwrap();
        assert_eq!(everything(&table).unwrap(), numbers(0..10));
        let error =
            reader.commit_blocking(vec![Change::DropView { name: "v".into() }]).unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    }
    let message = try_open(&directory, &runtime).unwrap_err().to_string();
    assert!(message.contains("in use"), "{message}");
    drop(readers);
    open(&directory, &runtime);
}

#[test]
fn reading_writes_nothing() {
    let (kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 1);
    load(&open(&directory, &runtime), &number_table("t"), &[numbers(0..10)]);
    let path = kept.path().join("db");
    std::fs::remove_file(path.join("LOCK")).unwrap();
    let names = || -> Vec<_> {
        let mut names: Vec<_> = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name(), entry.metadata().unwrap().modified().unwrap())
            })
            .collect();
        names.sort();
        names
    };
    let before = names();
    let options = StoreOptions { read_only: true, ..StoreOptions::default() };
    let store = Store::open(&directory, &options, runtime, ample()).unwrap();
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(everything(&table).unwrap(), numbers(0..10));
    assert_eq!(names(), before);
}

#[test]
fn directories_without_a_database() {
    let (kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 1);
    let plain = StoreOptions::default();
    let message = |options: &StoreOptions, directory: &Directory| {
        Store::open(directory, options, runtime.clone(), ample()).unwrap_err().to_string()
    };
    assert!(message(&plain, &directory).contains("holds no Weft database"));
    assert!(!kept.path().join("db").exists());
    std::fs::write(kept.path().join("letter.txt"), "hello").unwrap();
    let create = StoreOptions { create: true, ..StoreOptions::default() };
    let foreign = Directory::Os(kept.path().into());
    assert!(message(&create, &foreign).contains("not empty"));
    assert_eq!(std::fs::read_dir(kept.path()).unwrap().count(), 1, "nothing is left there");
}

#[test]
fn temporary_databases_go() {
    let (kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 1);
    let options = StoreOptions { create: true, temporary: true, ..StoreOptions::default() };
    let store = Store::open(&directory, &options, runtime, ample()).unwrap();
    let table = load(&store, &number_table("t"), &[numbers(0..100_000)]);
    let spill = store.spill_directory().to_path_buf();
    assert!(!spill.exists(), "nothing is made before it is needed");
    std::fs::create_dir(&spill).unwrap();
    std::fs::write(spill.join("run"), "x").unwrap();
    assert_eq!(everything(&table).unwrap(), numbers(0..100_000));
    drop((table, store));
    assert!(!kept.path().join("db").exists());
}

#[test]
fn devices_can_be_added() {
    let (kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 2);
    let store = open(&directory, &runtime);
    let schema = number_table("t");
    load(&store, &schema, &[numbers(0..100_000)]);
    let area = store.spill_area(None, 1 << 30);
    store.add_device(&kept.path().join("ssd")).unwrap();
    append(&store, &schema, &[numbers(100_000..400_000)]);
    assert!(store.add_device(&kept.path().join("ssd")).is_err());
    // What is spilled goes to both in turn, each of which grows in steps of 64 MiB.
    let spilled = runtime.block_on(move || async move {
        let mut kept = Vec::new();
        for files in [1, 2, 2] {
            let write = area.write(IoBuf::zeroed(4096), Scheme::Off, ());
            kept.push(write.await.unwrap().spilled.unwrap());
            assert_eq!(area.stats().file_bytes, files * (64 << 20));
        }
    });
    spilled.unwrap();
    drop(store);
    let store = open(&directory, &runtime);
    assert_eq!(store.devices().len(), 2);
    let table = store.snapshot().table("t").unwrap();
    assert_eq!(everything(&table).unwrap(), numbers(0..400_000));
    assert!(std::fs::metadata(kept.path().join("ssd/data-1.weft")).unwrap().len() > 4096);
    drop((table, store));
    std::fs::rename(kept.path().join("ssd"), kept.path().join("moved")).unwrap();
    let message = try_open(&directory, &runtime).unwrap_err().to_string();
    assert!(message.contains("missing"), "{message}");
    let devices = vec![kept.path().join("moved")];
    let options = StoreOptions { devices, ..StoreOptions::default() };
    drop(Store::open(&directory, &options, runtime.clone(), ample()).unwrap());
    let table = open(&directory, &runtime).snapshot().table("t").unwrap();
    assert_eq!(everything(&table).unwrap(), numbers(0..400_000));
}

#[test]
fn futures_go_to_any_executor() {
    fn is_send<T: Send>(_: &T) {}
    let (_kept, directory) = directory();
    let store = open(&directory, &runtime(DriverKind::Auto, 1));
    let schema = number_table("t");
    let table: Arc<Table> = load(&store, &schema, &[numbers(0..10)]);
    let writer = store.writer(&schema, WriterOptions::default()).unwrap();
    let mut partition = writer.partition(0);
    is_send(&partition.append(numbers(0..1)));
    is_send(&partition.finish());
    is_send(&writer.finish());
    is_send(&store.commit(Vec::new()));
    is_send(&table.get(0, &[0]));
    is_send(&table.load());
    is_send(&table.scan(ScanOptions::default()).unwrap());
}

#[test]
fn a_commit_in_flight_ends_before_the_database_is_opened_again() {
    let (_kept, directory) = directory();
    let runtime = runtime(DriverKind::Auto, 2);
    let schema = number_table("t");
    load(&open(&directory, &runtime), &schema, &[]);
    let mut rows = 0;
    for round in 0..20 {
        let store = open(&directory, &runtime);
        let table = store.snapshot().table("t").unwrap();
        assert!(table.rows() == rows || table.rows() == rows + 5_000, "{}", table.rows());
        rows = table.rows();
        everything(&table).unwrap();
        drop(table);
        let groups = write(&store, &schema, &[numbers(0..5_000)]).unwrap();
        let append = Change::Append { table: "t".into(), expected: None, groups };
        let mut commit = std::pin::pin!(store.commit(vec![append]));
        let waker = std::task::Waker::noop();
        let polled = commit.as_mut().poll(&mut std::task::Context::from_waker(waker));
        assert!(polled.is_pending(), "round {round}");
    }
}

/// Calls `work` on a thread, and fails if it does not end.
fn must_end(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).ok();
    });
    let timeout = std::time::Duration::from_secs(240);
    if ended.recv_timeout(timeout) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().unwrap();
}

#[test]
fn many_scans_that_wait_for_each_other_end_with_little_memory() {
    for driver in [0, 1] {
        must_end(move || {
            let disk = SimDisk::new(SimOptions::testing(9));
            let driver = if driver == 0 { DriverKind::Auto } else { DriverKind::Sim(disk.clone()) };
            let (_kept, mut directory) = directory();
            if let DriverKind::Sim(disk) = &driver {
                directory = Directory::Sim(disk.clone(), "db".into());
            }
            let ledger = Ledger::new(4 << 20);
            let options = StoreOptions { create: true, ..StoreOptions::default() };
            let store =
                Store::open(&directory, &options, runtime(driver, 2), ledger.clone()).unwrap();
            let schema = many_types("t");
            let mut random = fastrand::Rng::with_seed(2);
            let batches: Vec<_> =
                (0..12).map(|_| random_rows(&schema, 8_000, &mut random)).collect();
            let options = WriterOptions { row_group_rows: 6_000, ..WriterOptions::default() };
            let groups = write_as(&store, &schema, &batches, options).unwrap();
            let create = Change::CreateTable { schema, or_replace: false };
            let append = Change::Append { table: "t".into(), expected: None, groups };
            let snapshot = store.commit_blocking(vec![create, append]).unwrap();
            let table = snapshot.table("t").unwrap();
            let options = ScanOptions { projection: (0..13).collect(), ..Default::default() };
            let mut scans: Vec<Scan> =
                (0..3).flat_map(|_| table.scan_partitions(3, options.clone()).unwrap()).collect();
            let mut rows = 0;
            for scan in &mut scans {
                rows += scan.next_blocking().map_or(0, |batch| batch.unwrap().num_rows());
            }
            // The last one first: the others hold what they have in flight meanwhile.
            while let Some(mut scan) = scans.pop() {
                while let Some(batch) = scan.next_blocking() {
                    rows += batch.unwrap().num_rows();
                    let row = random.u64(..table.rows());
                    block_on(table.get(row, &[2, 8])).unwrap().unwrap();
                }
            }
            assert_eq!(rows, 3 * 96_000);
        });
    }
}
