//! Databases on block devices: loop devices, where this machine lets one make them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use weft_rt::io::{DriverKind, IoBuf};
use weft_store::spill::{HEADER_BYTES, Scheme};
use weft_store::{Directory, Result, Store, StoreError, StoreOptions};

use crate::support::*;

/// A loop device over a file of zeros.
struct Loop {
    path: PathBuf,
    _directory: tempfile::TempDir,
    file: PathBuf,
}

impl Loop {
    /// Nothing where loop devices cannot be made.
    fn new(bytes: u64) -> Option<Loop> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk");
        std::fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        match made {
            Ok(made) if made.status.success() => {
                let path = String::from_utf8(made.stdout).unwrap().trim().into();
                Some(Loop { path, _directory: directory, file })
            }
            other => {
                eprintln!("no loop devices here, nothing is tested: {other:?}");
                None
            }
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        file.sync_all().unwrap();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let ended = Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(ended.is_ok_and(|status| status.success()), "{:?}", self.file);
    }
}

fn open_with(path: &Path, devices: &[&Path]) -> Result<Arc<Store>> {
    let devices = devices.iter().map(|path| path.to_path_buf()).collect();
    let options = StoreOptions { create: true, devices, ..StoreOptions::default() };
    Store::open(&Directory::Os(path.into()), &options, runtime(DriverKind::Auto, 1), ample())
}

#[test]
fn a_database_lies_on_a_block_device() {
    let Some(device) = Loop::new(16 << 20) else { return };
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("db");
    let schema = table("t", &[("n", DataType::Int64)]);
    let mut random = fastrand::Rng::with_seed(1);
    let mut numbers = || {
        let numbers = Int64Array::from_iter_values((0..500_000).map(|_| random.i64(..)));
        RecordBatch::try_new(schema.arrow_schema(), vec![Arc::new(numbers)]).unwrap()
    };
    let rows = numbers();
    {
        let store = open_with(&path, &[&device.path]).unwrap();
        load(&store, &schema, std::slice::from_ref(&rows));
        // Nobody else may write to it.
        let other = open_with(&kept.path().join("other"), &[&device.path]).err().unwrap();
        assert!(other.to_string().contains("busy"), "{other}");
        // There is no more than its size.
        let mut kept = Vec::new();
        let full = (0..9).find_map(|_| match write(&store, &schema, &[numbers()]) {
            Ok(groups) => {
                kept.push(groups);
                None
            }
            Err(error) => Some(error),
        });
        assert!(full.is_some_and(|error| error.is_disk_full()));
    }
    assert!(!path.join("data-0.weft").exists());
    let store = open_with(&path, &[]).unwrap();
    assert_eq!(store.devices(), std::slice::from_ref(&device.path));
    assert_eq!(everything(&store.snapshot().table("t").unwrap()).unwrap(), rows);
    drop(store);
    // Another database does not take it.
    let error = open_with(&kept.path().join("third"), &[&device.path]).err().unwrap();
    assert!(matches!(error, StoreError::Device { .. }), "{error}");
    assert!(error.to_string().contains("carries data"), "{error}");
}

#[test]
fn what_is_free_of_a_block_device_is_spilled_to() {
    let Some(device) = Loop::new(80 << 20) else { return };
    let Some(other) = Loop::new(16 << 20) else { return };
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("db");
    let store = open_with(&path, &[&device.path]).unwrap();
    let schema = table("t", &[("n", DataType::Int64)]);
    let numbers = Int64Array::from_iter_values((0..100_000).map(|n| n * n));
    let rows = RecordBatch::try_new(schema.arrow_schema(), vec![Arc::new(numbers)]).unwrap();
    load(&store, &schema, std::slice::from_ref(&rows));
    let area = store.spill_area(None, 1 << 40);
    // One that is added takes its part.
    store.add_device(&other.path).unwrap();
    let free = store.bytes_free();
    let spill = |count: usize, bytes: usize| {
        let area = area.clone();
        let write = move || async move {
            let mut pieces = Vec::new();
            for number in 0..count {
                let mut piece = IoBuf::zeroed(bytes);
                piece[HEADER_BYTES..].fill(number as u8);
                pieces.push(area.write(piece, Scheme::Off, ()).await.unwrap().spilled.unwrap());
            }
            pieces
        };
        store.runtime().block_on(write).unwrap()
    };
    for _ in 0..2 {
        let mut pieces = spill(110, 1 << 20);
        // What the devices have no room for goes to the database's directory.
        assert!(path.join("spill").exists());
        assert!(store.bytes_free() < 3 << 20, "{} are free", store.bytes_free());
        let mut small = Vec::new();
        while store.bytes_free() > 0 {
            small.extend(spill(1, 4096));
            assert!(small.len() < 10_000, "small pieces find what is free");
        }
        assert!(area.stats().file_bytes > free);
        // There is no room for rows until pieces are gone: not all of them, as parts go back.
        let full = write(&store, &schema, std::slice::from_ref(&rows)).err();
        assert!(full.is_some_and(|error| error.is_disk_full()));
        let kept = pieces.split_off(pieces.len() / 2);
        let read = move || async move {
            for (number, piece) in pieces.iter().enumerate() {
                let read = piece.read(IoBuf::zeroed(1 << 20)).await.unwrap();
                assert!(read[HEADER_BYTES..].iter().all(|byte| *byte == number as u8));
            }
        };
        store.runtime().block_on(read).unwrap();
        drop(small);
        assert!(store.bytes_free() > free / 4, "{} of {free} are free", store.bytes_free());
        drop(write(&store, &schema, std::slice::from_ref(&rows)).unwrap());
        drop(kept);
        assert_eq!((area.stats().used_bytes, area.stats().file_bytes), (0, 0));
        assert_eq!(store.bytes_free(), free);
    }
    append(&store, &schema, std::slice::from_ref(&rows));
    drop(store);
    // What is spilled keeps others from taking its place.
    let error = open_with(&path, &[]).err().unwrap();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(area);
    let table = open_with(&path, &[]).unwrap().snapshot().table("t").unwrap().clone();
    let both = concat_batches(&schema.arrow_schema(), [&rows, &rows]).unwrap();
    assert_eq!(everything(&table).unwrap(), both);
}

#[test]
fn a_file_system_is_left_alone() {
    for offset in [510, 1080, 0x1_0040, (8 << 20) - 512] {
        let Some(device) = Loop::new(8 << 20) else { return };
        device.write(offset, &[0x55, 0xaa]);
        let kept = tempfile::tempdir().unwrap();
        let error = open_with(&kept.path().join("db"), &[&device.path]).err().unwrap();
        assert!(error.to_string().contains("blkdiscard"), "{offset}: {error}");
    }
}

#[test]
fn a_block_device_is_added() {
    let Some(device) = Loop::new(8 << 20) else { return };
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("db");
    let store = open_with(&path, &[]).unwrap();
    store.add_device(&device.path).unwrap();
    assert_eq!(store.devices().len(), 2);
    drop(store);
    assert_eq!(open_with(&path, &[]).unwrap().devices()[1], device.path);
}
