//! The journal: small commits are found after a crash without a manifest of theirs, and what is wrong with the file is said.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Int64Type;
use weft_buffer::page::checksum;
use weft_rt::io::DriverKind;
use weft_store::*;

use crate::support::*;

const SECTOR_BYTES: usize = 4096;

/// A database with a table of numbers and an index of them, which a crash may leave as it is.
struct Fixture {
    kept: tempfile::TempDir,
    runtime: Arc<weft_rt::Runtime>,
    store: Arc<Store>,
}

impl Fixture {
    fn new() -> Fixture {
        let kept = tempfile::tempdir().unwrap();
        let runtime = runtime(DriverKind::Auto, 1);
        let store = open(&Directory::Os(kept.path().join("db")), &runtime);
        let definition = index("by_n", &[0], true);
        let create = Change::CreateTable { schema: number_table("t"), or_replace: false };
        let index = Change::CreateIndex { table: "t".into(), expected: None, definition };
        store.commit_blocking(vec![create, index]).unwrap();
        Fixture { kept, runtime, store }
    }

    fn add(&self, rows: std::ops::Range<i64>) {
        append(&self.store, &number_table("t"), &[numbers(rows)]);
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.kept.path().join("db").join(name)).unwrap()
    }

    /// A copy of the files, as a crash would leave them now.
    fn crashed(&self, name: &str) -> PathBuf {
        let copy = self.kept.path().join(name);
        std::fs::create_dir_all(&copy).unwrap();
        for entry in std::fs::read_dir(self.kept.path().join("db")).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            }
        }
        copy
    }

    fn open(&self, path: &Path, read_only: bool) -> Result<Arc<Store>> {
        let options = StoreOptions { read_only, ..StoreOptions::default() };
        Store::open(&Directory::Os(path.into()), &options, self.runtime.clone(), ample())
    }
}

/// The numbers of the table, by a scan and by the index.
fn rows(store: &Store) -> Vec<i64> {
    let table = store.snapshot().table("t").unwrap();
    let found = column_of::<Int64Type>(&everything(&table).unwrap(), 0);
    assert_eq!(column_of::<Int64Type>(&by_index(&table, "by_n"), 0), found);
    assert_eq!(weft_rt::sync::block_on(table.check_index("by_n")).unwrap(), None);
    found
}

/// Where the records begin.
fn records(journal: &[u8]) -> Vec<usize> {
    let is_record = |at: &usize| journal[*at..].starts_with(b"WEFTJRNL");
    (0..journal.len()).step_by(SECTOR_BYTES).filter(is_record).collect()
}

#[test]
fn small_commits_are_recovered_without_a_manifest_of_theirs() {
    let fixture = Fixture::new();
    let manifest = fixture.bytes("MANIFEST");
    fixture.add(0..10);
    fixture.add(10..250);
    let mut gone = RowSet::default();
    (5..20).for_each(|row| assert!(gone.insert(row)));
    let delete = Change::Delete { table: "t".into(), expected: None, rows: gone };
    let option = Change::SetOption { name: "threads".into(), value: Some("3".into()) };
    fixture.store.commit_blocking(vec![delete, option]).unwrap();
    assert_eq!(fixture.bytes("MANIFEST"), manifest, "no manifest is written");
    assert_eq!(records(&fixture.bytes("JOURNAL")).len(), 3);
    let expected: Vec<i64> = (0..5).chain(20..250).collect();
    let crashed = fixture.crashed("crashed");
    for _ in 0..2 {
        let store = fixture.open(&crashed, false).unwrap();
        assert_eq!(rows(&store), expected);
        assert_eq!(store.snapshot().option("threads"), Some("3"));
        // The ids go on from there.
        append(&store, &number_table("t"), &[numbers(1_000..1_001)]);
        let table = store.snapshot().table("t").unwrap();
        let all = collect(&table, ScanOptions { projection: vec![0], ..Default::default() });
        let ids = column_of::<arrow_array::types::UInt64Type>(&all.unwrap(), 1);
        let last = *ids.last().unwrap();
        let mut gone = RowSet::default();
        gone.insert(last);
        let delete = Change::Delete { table: "t".into(), expected: None, rows: gone };
        store.commit_blocking(vec![delete]).unwrap();
        assert_eq!(rows(&store), expected);
    }
    assert!(!crashed.join("JOURNAL").exists(), "a closed database has no journal");
    assert_eq!(rows(&fixture.open(&crashed, true).unwrap()), expected);
}

#[test]
fn rows_that_others_refer_to_are_recovered_with_their_keys() {
    let fixture = Fixture::new();
    let key =
        ForeignKey { name: "c_fkey".into(), columns: vec![0], parent: 0, parent_columns: vec![0] };
    let create = Change::CreateTable { schema: number_table("c"), or_replace: false };
    let refer = Change::AddForeignKey { table: "c".into(), parent: "t".into(), key };
    fixture.store.commit_blocking(vec![create, refer]).unwrap();
    fixture.add(0..10);
    append(&fixture.store, &number_table("c"), &[numbers(3..5)]);
    // An update: the row goes, and another one with its key comes.
    let mut gone = RowSet::default();
    assert!(gone.insert(3));
    let groups = write(&fixture.store, &number_table("t"), &[numbers(3..4)]).unwrap();
    let delete = Change::Delete { table: "t".into(), expected: None, rows: gone };
    let add = Change::Append { table: "t".into(), expected: None, groups };
    fixture.store.commit_blocking(vec![delete, add]).unwrap();
    let crashed = fixture.crashed("crashed");
    let store = fixture.open(&crashed, false).unwrap();
    assert_eq!(rows(&store), [0, 1, 2, 4, 5, 6, 7, 8, 9, 3]);
    let child = store.snapshot().table("c").unwrap();
    assert_eq!(column_of::<Int64Type>(&everything(&child).unwrap(), 0), [3, 4]);
}

#[test]
fn a_database_that_is_only_read_is_recovered_first() {
    let fixture = Fixture::new();
    fixture.add(0..10);
    let crashed = fixture.crashed("crashed");
    let error = fixture.open(&crashed, true).unwrap_err();
    assert!(matches!(error, StoreError::NotRecovered { .. }));
    assert!(error.to_string().contains("open it once for writing"), "{error}");
    drop(fixture.open(&crashed, false).unwrap());
    assert!(!crashed.join("JOURNAL").exists(), "a closed database has no journal");
    assert_eq!(rows(&fixture.open(&crashed, true).unwrap()).len(), 10);
}

#[test]
fn many_commits_are_recovered_with_little_memory() {
    const COMMITS: u64 = 200;
    let fixture = Fixture::new();
    fixture.add(0..100);
    for n in 0..COMMITS {
        let mut gone = RowSet::default();
        assert!(gone.insert(n));
        let number = 100 + n as i64;
        let groups =
            write(&fixture.store, &number_table("t"), &[numbers(number..number + 1)]).unwrap();
        let delete = Change::Delete { table: "t".into(), expected: None, rows: gone };
        let add = Change::Append { table: "t".into(), expected: None, groups };
        fixture.store.commit_blocking(vec![delete, add]).unwrap();
    }
    let crashed = fixture.crashed("crashed");
    let ledger = weft_rt::memory::Ledger::new(16 << 20);
    let directory = Directory::Os(crashed);
    let runtime = fixture.runtime.clone();
    let store = Store::open(&directory, &StoreOptions::default(), runtime, ledger).unwrap();
    assert_eq!(rows(&store), (200..300).collect::<Vec<_>>());
}

#[test]
fn a_database_whose_device_was_moved_is_recovered() {
    let kept = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let of = |name: &str| kept.path().join(name);
    let open = |name: &str, device: &str| {
        let devices = vec![of(device)];
        let options = StoreOptions { create: true, devices, ..StoreOptions::default() };
        Store::open(&Directory::Os(of(name)), &options, runtime.clone(), ample()).unwrap()
    };
    let store = open("db", "ssd");
    load(&store, &number_table("t"), &[numbers(0..2_000)]);
    append(&store, &number_table("t"), &[numbers(2_000..2_010)]);
    for (from, to) in [("db", "crashed"), ("ssd", "other")] {
        std::fs::create_dir_all(of(to)).unwrap();
        for entry in std::fs::read_dir(of(from)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                std::fs::copy(entry.path(), of(to).join(entry.file_name())).unwrap();
            }
        }
    }
    drop(store);
    std::fs::remove_dir_all(of("ssd")).unwrap();
    for _ in 0..2 {
        let store = open("crashed", "other");
        let table = store.snapshot().table("t").unwrap();
        let found = column_of::<Int64Type>(&everything(&table).unwrap(), 0);
        assert_eq!(found, (0..2_010).collect::<Vec<_>>());
        assert_eq!(store.devices(), [of("other")]);
    }
}

#[test]
fn a_record_that_is_not_whole_is_the_end_or_damage() {
    let fixture = Fixture::new();
    (0..4).for_each(|n| fixture.add(10 * n..10 * n + 10));
    let crashed = fixture.crashed("crashed");
    let journal = std::fs::read(crashed.join("JOURNAL")).unwrap();
    let starts = records(&journal);
    assert_eq!(starts.len(), 4);
    for (number, start) in starts.iter().enumerate() {
        for at in [0, 9, 17, 25, 41, 50, 90] {
            let copy = fixture.crashed(&format!("damaged-{number}-{at}"));
            let mut bytes = journal.clone();
            bytes[start + at] ^= 0x20;
            std::fs::write(copy.join("JOURNAL"), &bytes).unwrap();
            match fixture.open(&copy, false) {
                Ok(store) => {
                    assert_eq!(number, 3, "byte {at}");
                    assert_eq!(rows(&store), (0..30).collect::<Vec<_>>());
                }
                Err(error) => {
                    assert!(number < 3, "byte {at}: {error}");
                    let message = error.to_string();
                    assert!(message.contains("JOURNAL") && message.contains("commit"), "{message}");
                }
            }
        }
    }
    // A record of another table than there is.
    let mut bytes = journal.clone();
    let name = starts[1] + 48 + 1 + 4;
    assert_eq!(bytes[name], b't');
    bytes[name] = b'u';
    let record = &mut bytes[starts[1]..starts[2]];
    let rest = checksum(&record[16..]).to_le_bytes();
    let crc = checksum(&[&record[..12], &rest].concat());
    record[12..16].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(crashed.join("JOURNAL"), &bytes).unwrap();
    let message = fixture.open(&crashed, false).unwrap_err().to_string();
    assert!(message.contains("there is no table u"), "{message}");
}

#[test]
fn other_commits_and_full_journals_write_a_manifest() {
    let fixture = Fixture::new();
    fixture.add(0..10);
    let manifest = fixture.bytes("MANIFEST");
    let view = Change::CreateView { name: "v".into(), sql: "SELECT 1".into(), or_replace: false };
    fixture.store.commit_blocking(vec![view]).unwrap();
    assert_ne!(fixture.bytes("MANIFEST"), manifest);
    // Records from before the manifest do not count, whatever follows it.
    fixture.add(10..20);
    let crashed = fixture.crashed("crashed");
    assert_eq!(rows(&fixture.open(&crashed, false).unwrap()), (0..20).collect::<Vec<_>>());
    let manifest = fixture.bytes("MANIFEST");
    let value = "x".repeat(3 << 20);
    for n in 0..6 {
        let option = Change::SetOption { name: format!("o{n}"), value: Some(value.clone()) };
        fixture.store.commit_blocking(vec![option]).unwrap();
    }
    assert_ne!(fixture.bytes("MANIFEST"), manifest);
    assert_eq!(fixture.bytes("JOURNAL").len(), 16 << 20, "it does not grow");
    let crashed = fixture.crashed("full");
    let store = fixture.open(&crashed, false).unwrap();
    assert_eq!(store.snapshot().options().count(), 6);
}

#[test]
fn databases_of_the_version_before_are_read_and_written() {
    let fixture = Fixture::new();
    fixture.add(0..2_000);
    let copy = fixture.crashed("old");
    for (name, len) in
        [("MANIFEST", usize::MAX), ("MANIFEST.copy", usize::MAX), ("data-0.weft", SECTOR_BYTES)]
    {
        let mut bytes = std::fs::read(copy.join(name)).unwrap();
        let len = len.min(bytes.len());
        let header = &mut bytes[..len];
        header[8] = 3;
        let rest = checksum(&header[16..]).to_le_bytes();
        let crc = checksum(&[&header[..12], &rest].concat());
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(copy.join(name), &bytes).unwrap();
    }
    let store = fixture.open(&copy, false).unwrap();
    append(&store, &number_table("t"), &[numbers(2_000..2_010)]);
    drop(store);
    let store = fixture.open(&copy, false).unwrap();
    assert_eq!(rows(&store), (0..2_010).collect::<Vec<_>>());
    assert_eq!(std::fs::read(copy.join("MANIFEST")).unwrap()[8], 4);
}
