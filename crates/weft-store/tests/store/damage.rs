//! Damaged bytes and truncated files: an error that names the place, or the right answer; never a wrong
//! answer, a panic or a hang.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use weft_buffer::page::checksum;
use weft_rt::Runtime;
use weft_rt::io::DriverKind;
use weft_rt::sync::block_on;
use weft_store::*;

use crate::support::*;

struct Fixture {
    _kept: tempfile::TempDir,
    path: PathBuf,
    runtime: Arc<Runtime>,
    expected: Vec<RecordBatch>,
}

impl Fixture {
    fn new() -> Fixture {
        let kept = tempfile::tempdir().unwrap();
        let path = kept.path().join("db");
        let runtime = runtime(DriverKind::Auto, 1);
        let store = open(&Directory::Os(path.clone()), &runtime);
        let mut random = fastrand::Rng::with_seed(7);
        let schema = many_types("t");
        let options = WriterOptions { row_group_rows: 700, ..WriterOptions::default() };
        store
            .commit_blocking(vec![
                Change::CreateTable { schema: schema.clone(), or_replace: false },
                Change::CreateTable { schema: number_table("gone"), or_replace: false },
                Change::CreateView { name: "v".into(), sql: "SELECT 1".into(), or_replace: false },
                Change::SetOption { name: "memory_limit".into(), value: Some("1GB".into()) },
            ])
            .unwrap();
        append(&store, &number_table("gone"), &[numbers(0..5_000)]);
        let rows = random_rows(&schema, 1_500, &mut random);
        let groups = write_as(&store, &schema, &[rows], options).unwrap();
        let append = Change::Append { table: "t".into(), expected: None, groups };
        store.commit_blocking(vec![append]).unwrap();
        let drop = Change::DropTable { name: "gone".into(), expected: None };
        store.commit_blocking(vec![drop]).unwrap();
        std::mem::drop(store);
        let mut fixture = Fixture { _kept: kept, path, runtime, expected: Vec::new() };
        fixture.expected = fixture.read().unwrap();
        fixture
    }

    /// Everything that the database holds.
    fn read(&self) -> Result<Vec<RecordBatch>> {
        let options = StoreOptions { read_only: true, ..StoreOptions::default() };
        let directory = Directory::Os(self.path.clone());
        let store = Store::open(&directory, &options, self.runtime.clone(), ample())?;
        let snapshot = store.snapshot();
        assert_eq!(snapshot.views().collect::<Vec<_>>(), [("v", "SELECT 1")]);
        assert_eq!(snapshot.option("memory_limit"), Some("1GB"));
        let tables: Vec<_> = snapshot.tables().map(|name| snapshot.table(name).unwrap()).collect();
        let rows = tables.iter().map(everything).collect::<Result<Vec<_>>>()?;
        for table in &tables {
            // A point read goes its own way.
            block_on(table.get(table.rows() / 2, &[0, 8]))?;
        }
        Ok(rows)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path.join(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path.join(name), bytes).unwrap();
    }

    /// Reads with these bytes in a file: true if the right answer came.
    fn check(&self, name: &str, bytes: &[u8], what: &str) -> bool {
        self.write(name, bytes);
        match self.read() {
            Ok(found) => {
                assert!(found == self.expected, "{what}: a wrong answer");
                true
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(name), "{what}: the file is not named: {message}");
                false
            }
        }
    }
}

#[test]
fn a_flipped_byte_of_a_data_file_is_an_error_or_does_not_matter() {
    let fixture = Fixture::new();
    let name = "data-0.weft";
    let good = fixture.bytes(name);
    let (mut right, mut errors) = (0, 0);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = 0;
    while at < good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << random.u8(..8);
        match fixture.check(name, &bad, &format!("byte {at} of {name}")) {
            true => right += 1,
            false => errors += 1,
        }
        // Every page often, and its header more often.
        at += if at % 4096 < 16 { 5 } else { random.usize(300..900) };
    }
    println!("{right} flips did not matter, {errors} were errors");
    assert!(errors > 100 && right > 100, "there is free space, and there are pages");
}

#[test]
fn errors_name_table_row_group_and_column() {
    let fixture = Fixture::new();
    let name = "data-0.weft";
    let good = fixture.bytes(name);
    let mut columns = std::collections::BTreeSet::new();
    let mut groups = std::collections::BTreeSet::new();
    for page in 1..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096 + 100] ^= 0x40;
        fixture.write(name, &bad);
        let Err(error) = fixture.read() else { continue };
        let message = error.to_string();
        assert!(message.contains("table t"), "{message}");
        let word = |after: &str| {
            let (_, rest) = message.split_once(after)?;
            Some(rest.split([',', ':']).next()?.to_owned())
        };
        groups.extend(word("row group "));
        columns.extend(word("column "));
    }
    assert_eq!(columns.len(), 13, "{columns:?}");
    assert_eq!(groups.len(), 3, "{groups:?}");
}

#[test]
fn either_copy_of_the_manifest_is_enough() {
    let fixture = Fixture::new();
    let names = ["MANIFEST", "MANIFEST.copy"];
    let good = fixture.bytes(names[0]);
    assert_eq!(good, fixture.bytes(names[1]));
    for at in (0..good.len()).step_by(61) {
        let mut bad = good.clone();
        bad[at] ^= 0x04;
        for name in names {
            assert!(fixture.check(name, &bad, &format!("byte {at} of {name}")));
            fixture.write(name, &good);
        }
        names.iter().for_each(|name| fixture.write(name, &bad));
        let message = fixture.read().unwrap_err().to_string();
        assert!(message.contains("MANIFEST"), "{message}");
        names.iter().for_each(|name| fixture.write(name, &good));
    }
    for name in names {
        std::fs::remove_file(fixture.path.join(name)).unwrap();
        assert_eq!(fixture.read().unwrap(), fixture.expected);
        fixture.write(name, &good);
    }
}

#[test]
fn a_damaged_copy_of_the_manifest_is_made_good() {
    let fixture = Fixture::new();
    for (damaged, other) in [("MANIFEST", "MANIFEST.copy"), ("MANIFEST.copy", "MANIFEST")] {
        fixture.write(damaged, b"rubbish");
        drop(open(&Directory::Os(fixture.path.clone()), &fixture.runtime));
        assert_eq!(fixture.bytes(damaged), fixture.bytes(other));
        assert_eq!(fixture.read().unwrap(), fixture.expected);
    }
}

#[test]
fn truncated_files_are_errors() {
    let fixture = Fixture::new();
    let name = "data-0.weft";
    let good = fixture.bytes(name);
    let mut errors = 0;
    for len in (0..good.len()).step_by(4096).chain([1, 100, 4095, good.len() - 1]) {
        errors += u32::from(!fixture.check(name, &good[..len], &format!("{name} of {len} bytes")));
    }
    assert!(errors > 30, "{errors}");
    fixture.write(name, &good);
    let manifest = fixture.bytes("MANIFEST");
    for len in (0..manifest.len()).step_by(97) {
        fixture.write("MANIFEST", &manifest[..len]);
        fixture.write("MANIFEST.copy", &manifest[..len]);
        let message = fixture.read().unwrap_err().to_string();
        assert!(message.contains("MANIFEST"), "{message}");
    }
}

#[test]
fn other_versions_are_named() {
    let fixture = Fixture::new();
    let manifest = fixture.bytes("MANIFEST");
    let mut newer = manifest.clone();
    newer[8] = 77;
    let rest = checksum(&newer[16..]).to_le_bytes();
    let crc = checksum(&[&newer[..12], &rest].concat());
    newer[12..16].copy_from_slice(&crc.to_le_bytes());
    // One copy is enough: the other one may be what an interrupted upgrade left.
    for name in ["MANIFEST", "MANIFEST.copy"] {
        fixture.write(name, &newer);
        let message = fixture.read().unwrap_err().to_string();
        assert!(
            message.contains("format version 77") && message.contains("version 4"),
            "{message}"
        );
        fixture.write(name, &manifest);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn missing_foreign_and_swapped_devices_are_named() {
    let kept = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let of = |name: &str| kept.path().join(name);
    let make = |name: &str| {
        let devices = ["a", "b"].map(|device| of(&format!("{name}-{device}"))).to_vec();
        let options = StoreOptions { create: true, devices, ..StoreOptions::default() };
        let directory = Directory::Os(of(name));
        let store = Store::open(&directory, &options, runtime.clone(), ample()).unwrap();
        load(&store, &number_table("t"), &[numbers(0..200_000)]);
    };
    make("one");
    make("two");
    let message = || match try_open(&Directory::Os(of("one")), &runtime) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(message(), "");
    assert!(std::fs::metadata(of("one-b").join("data-1.weft")).unwrap().len() > 100_000);
    copy(&of("one-b"), &of("kept"));
    std::fs::remove_file(of("one-b").join("data-1.weft")).unwrap();
    assert!(message().contains("missing") && message().contains("device 1"), "{}", message());
    copy(&of("two-b"), &of("one-b"));
    assert!(message().contains("another database"), "{}", message());
    copy(&of("kept"), &of("one-b"));
    assert_eq!(message(), "");
    std::fs::copy(of("one-a").join("data-0.weft"), of("one-b").join("data-1.weft")).unwrap();
    assert!(message().contains("swapped"), "{}", message());
}

#[test]
fn a_lost_write_is_noticed() {
    let kept = tempfile::tempdir().unwrap();
    let runtime = runtime(DriverKind::Auto, 1);
    let directory = Directory::Os(kept.path().join("db"));
    let data = kept.path().join("db/data-0.weft");
    let schema = number_table("t");
    let replace = |first: i64| {
        let store = open(&directory, &runtime);
        let groups = write(&store, &schema, &[numbers(first..first + 20_000)]).unwrap();
        store
            .commit_blocking(vec![
                Change::CreateTable { schema: schema.clone(), or_replace: true },
                Change::Append { table: "t".into(), expected: None, groups },
            ])
            .unwrap();
        std::fs::read(&data).unwrap()
    };
    // The third table takes the place of the first one.
    let first = replace(0);
    replace(1_000_000);
    let third = replace(2_000_000);
    assert_eq!(first.len(), third.len());
    let changed: Vec<usize> = (1..first.len() / 4096)
        .filter(|page| first[page * 4096..][..4096] != third[page * 4096..][..4096])
        .collect();
    let mut errors = 0;
    for page in &changed {
        let range = page * 4096..(page + 1) * 4096;
        let mut bytes = third.clone();
        bytes[range.clone()].copy_from_slice(&first[range]);
        std::fs::write(&data, &bytes).unwrap();
        let read = || everything(&open(&directory, &runtime).snapshot().table("t").unwrap());
        match read() {
            Ok(found) => assert_eq!(found, numbers(2_000_000..2_020_000), "page {page}"),
            Err(error) => {
                errors += 1;
                assert!(error.to_string().contains("data-0.weft"), "{error}");
            }
        }
    }
    assert!(errors > 0, "{} pages differ", changed.len());
    std::fs::write(&data, &first).unwrap();
    let error = everything(&open(&directory, &runtime).snapshot().table("t").unwrap()).unwrap_err();
    assert!(error.to_string().contains("a write was lost"), "{error}");
}
