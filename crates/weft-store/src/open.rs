//! Opening a database: from its files to its newest generation.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_buffer::{BufferPool, Devices, PoolOptions};
use weft_rt::Runtime;
use weft_rt::io::{Access as FileAccess, File};
use weft_rt::memory::Ledger;

use crate::commit::{install, write_manifest};
use crate::core::Core;
use crate::device::{self, DatabaseId};
use crate::directory::{Directory, SECTOR_BYTES};
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::journal::{self, Changes, Found, Journal};
use crate::lock::Lock;
use crate::manifest::Manifest;
use crate::manifest_file;
use crate::page_io::PageSource;
use crate::place::Place;
use crate::snapshot::{Access, Snapshot};
use crate::space::{Device, Space};
use crate::store::StoreOptions;
use crate::wire::WireError;

/// Bytes that the buffer pool always has: at least, which is what one coroutine reads at a time and more, and at most,
/// but never more than half of the budget.
const POOL_BYTES_MIN: (u64, u64) = (2 << 20, 128 << 20);

/// Opens or makes the database, on a worker.
pub(crate) async fn open(
    directory: Directory,
    options: &StoreOptions,
    runtime: Arc<Runtime>,
    ledger: Ledger,
    lock: Lock,
) -> Result<Arc<Core>> {
    let sync = !options.temporary;
    let mut manifest = match manifest_file::read(&directory).await? {
        Some(found) => {
            if let Some(problem) = &found.to_repair {
                log::warn!("{}: {problem}; the other copy is whole", directory.path().display());
                if !options.read_only {
                    manifest_file::prepare(&directory, &found.manifest, sync).await?;
                    manifest_file::publish(&directory, sync)?;
                }
            }
            found.manifest
        }
        None if options.create && !options.read_only => create(&directory, options, sync).await?,
        None => return Err(StoreError::NotFound { path: directory.path().into() }),
    };
    if !options.read_only {
        manifest_file::discard(&directory);
    }
    let known = manifest.devices.clone();
    let devices = open_devices(&directory, &mut manifest, options).await?;
    // Records follow the manifest as it is on the disk.
    let of = (&manifest.database, manifest.generation);
    let of_file = if options.read_only { FileAccess::Read } else { FileAccess::ReadWrite };
    let found = journal::read(&directory, of, of_file).await?;
    let journal = Journal::of(found.as_ref());
    let to_apply = found.filter(|found| !found.is_empty());
    if to_apply.is_some() && options.read_only {
        return Err(StoreError::NotRecovered { path: directory.path().into() });
    }
    if known != manifest.devices && !options.read_only && to_apply.is_none() {
        manifest.generation += 1;
        manifest_file::prepare(&directory, &manifest, sync).await?;
        manifest_file::publish(&directory, sync)?;
    }
    let files = devices.iter().map(|device| device.file.clone()).collect();
    let space = Space::new(devices);
    let source = page_source(files, &ledger)?;
    let access = Arc::new(Access { runtime, source, ledger, space: space.clone() });
    let pin = space.pin(manifest.generation);
    let snapshot = Snapshot::from_manifest(manifest, access, pin);
    let keys = (Arc::new(lock), journal);
    let core = Arc::new(Core::new(directory, space, snapshot, keys, (options.read_only, sync)));
    if let Some(found) = to_apply {
        recover(&core, &found).await?;
    }
    Ok(core)
}

/// Applies what the journal has to the database, and writes a manifest, on a worker.
async fn recover(core: &Arc<Core>, found: &Found) -> Result<()> {
    let mut draft = Draft::new(core.snapshot());
    for (generation, body) in found.records() {
        let damaged = |WireError(problem): WireError| found.damaged(*generation, problem);
        let mut changes = Changes::of(body);
        while let Some(change) = changes.next(&draft.tables).map_err(damaged)? {
            let applied = draft.apply(change, &core.space, &core.access).await;
            applied.map_err(|error| found.unapplied(*generation, error))?;
        }
        // What the changes come to together is what was checked when they were committed.
        let checked = draft.remake_indexes(&core.access).await;
        checked.map_err(|error| found.unapplied(*generation, error))?;
        draft.advance(*generation);
    }
    let count = found.records().len();
    log::info!("{}: {count} commits of the journal are recovered", core.directory.path().display());
    write_manifest(core, &mut draft).await?;
    install(core, draft);
    Ok(())
}

/// The buffer pool of the database, and how it is read through.
fn page_source(files: Vec<File>, ledger: &Ledger) -> Result<PageSource> {
    let least = pool_bytes_min(ledger.limit());
    let options = PoolOptions { bytes_min: Some(least), ..PoolOptions::default() };
    let pool = BufferPool::dynamic(Devices::new(files), ledger.clone(), options);
    Ok(PageSource::new(pool.map_err(StoreError::Buffer)?, least))
}

/// Bytes that the buffer pool always has with a budget of `limit_bytes`.
pub(crate) fn pool_bytes_min(limit_bytes: u64) -> u64 {
    (limit_bytes / 8).clamp(POOL_BYTES_MIN.0, POOL_BYTES_MIN.1).min(limit_bytes / 2)
}

/// Makes an empty database.
async fn create(directory: &Directory, options: &StoreOptions, sync: bool) -> Result<Manifest> {
    let database = new_id();
    let devices = match &options.devices[..] {
        [] => vec![PathBuf::new()],
        devices => devices.to_vec(),
    };
    for (number, device) in devices.iter().enumerate() {
        if devices[..number].contains(device) || number >= device::DEVICES_MAX {
            let problem = "it is given twice, or there are more than 256".to_owned();
            return Err(StoreError::Device { number, path: device.clone(), problem });
        }
        let place = Place::of(directory, device);
        device::create(&place, &database, number, sync).await?;
    }
    let manifest = Manifest {
        generation: 1,
        database,
        devices,
        options: Default::default(),
        views: Default::default(),
        next_table_id: 1,
        tables: Default::default(),
    };
    manifest_file::prepare(directory, &manifest, sync).await?;
    manifest_file::publish(directory, sync)?;
    if sync {
        directory.sync_parents()?;
    }
    Ok(manifest)
}

/// A number that no other database has.
fn new_id() -> DatabaseId {
    let mut id = [0; 16];
    for (half, bytes) in id.chunks_mut(8).enumerate() {
        // The standard library seeds it from the system's random numbers.
        let now = std::time::SystemTime::now();
        bytes.copy_from_slice(&RandomState::new().hash_one((now, half)).to_le_bytes());
    }
    id
}

/// Opens the data files, and finds out what is free in them. A device that is not where the manifest has it
/// is looked for in the directories that were given, and its new path noted.
async fn open_devices(
    directory: &Directory,
    manifest: &mut Manifest,
    options: &StoreOptions,
) -> Result<Vec<Device>> {
    let live = manifest.live_extents().map_err(|WireError(problem)| StoreError::Damaged {
        path: directory.path().join("MANIFEST"),
        place: "the tables' space".into(),
        problem,
    })?;
    let mut devices = Vec::with_capacity(manifest.devices.len());
    for (number, live) in live.iter().enumerate() {
        let path = find_device(directory, number, &manifest.devices[number], options)?;
        let place = Place::of(directory, &path);
        let file = device::open(&place, &manifest.database, number, options.read_only).await?;
        manifest.devices[number] = path;
        let needed = live.last().map_or(SECTOR_BYTES as u64, |last| last.offset() + last.bytes());
        let size = file.size()?;
        if size < needed {
            return Err(StoreError::Device {
                number,
                path: file.path().into(),
                problem: format!(
                    "it is truncated: {size} bytes where {needed} are in use; restore the database \
                     from a backup"
                ),
            });
        }
        devices.push(Device::new(file, live)?);
    }
    Ok(devices)
}

/// The directory that has the data file of a device, or its block device.
fn find_device(
    directory: &Directory,
    number: usize,
    known: &Path,
    options: &StoreOptions,
) -> Result<PathBuf> {
    let has = |path: &Path| Place::of(directory, path).may_hold(number);
    if !has(known)? {
        for path in &options.devices {
            if has(path)? {
                return Ok(path.clone());
            }
        }
    }
    Ok(known.into())
}
