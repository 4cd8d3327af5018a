//! Commits: all or nothing, durable when acknowledged, one after the other.
//!
//! The order: data pages are written and made durable on all devices, and both copies of the new manifest
//! under temporary names; then these get their names, and the directory is made durable. A failure before
//! the names change leaves the old state. One while they change, or of a sync, leaves it open what a crash
//! would find: no further commit is taken until the database is opened again. Temporary databases, which
//! nobody opens again, have no manifest after their first.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::{join, join_all};

use crate::change::Change;
use crate::core::Core;
use crate::device;
use crate::directory::off_worker;
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::manifest_file;
use crate::place::Place;
use crate::snapshot::Snapshot;
use crate::space::Device;
use crate::transaction::{Finished, as_conflict, rebase};

/// What is to be committed together.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) changes: Vec<Change>,
    /// A device to be added: a directory or a block device.
    pub(crate) device: Option<PathBuf>,
    /// A transaction that has ended.
    pub(crate) transaction: Option<Finished>,
}

/// Commits, on a worker.
pub(crate) async fn commit(core: &Arc<Core>, work: Work) -> Result<Arc<Snapshot>> {
    let _turn = core.committing.reserve(1).await?;
    core.check_writable("change it")?;
    let mut draft = Draft::new(core.snapshot());
    let device = match prepare(core, &mut draft, work).await {
        Ok(device) => device,
        Err(error) => {
            draft.take_back().await;
            return Err(error);
        }
    };
    if let Some(device) = device {
        core.access.source.pool().add_device(device.file.clone());
        core.space.add_device(device);
    }
    Ok(install(core, draft))
}

/// Puts the changes together and makes them durable; gives the device that is added.
async fn prepare(core: &Core, draft: &mut Draft, work: Work) -> Result<Option<Device>> {
    let is_transaction = work.transaction.is_some();
    let put_together = put_together(core, draft, work.changes, work.transaction).await;
    put_together.map_err(|error| if is_transaction { as_conflict(error) } else { error })?;
    let device = match work.device {
        Some(path) => Some(add_device(core, draft, path).await?),
        None => None,
    };
    if core.sync {
        if draft.has_index_work() {
            core.space.devices().iter().for_each(|device| device.mark_dirty());
        }
        make_durable(core, draft).await?;
    } else {
        keep(draft);
    }
    Ok(device)
}

/// Applies changes, and what transactions have changed.
async fn put_together(
    core: &Core,
    draft: &mut Draft,
    changes: Vec<Change>,
    transaction: Option<Finished>,
) -> Result<()> {
    for change in changes {
        draft.apply(change, &core.space, &core.access).await?;
    }
    if let Some(transaction) = transaction {
        rebase(draft, &transaction, &core.space, &core.access).await?;
    }
    draft.remake_indexes(&core.access).await?;
    draft.check_references(&core.access).await
}

/// Leaves the space that was taken to the database.
fn keep(draft: &mut Draft) {
    draft.settle_indexes();
    for allocation in draft.taken.drain(..) {
        allocation.keep();
    }
}

async fn make_durable(core: &Core, draft: &mut Draft) -> Result<()> {
    let manifest = draft.manifest();
    let prepared = manifest_file::prepare(&core.directory, &manifest, true);
    let (prepared, synced) = join(prepared, sync_devices(core)).await;
    if let Err(error) = prepared.and(synced) {
        let directory = core.directory.clone();
        off_worker(move || manifest_file::discard(&directory)).await?;
        return Err(error);
    }
    let directory = core.directory.clone();
    let published = off_worker(move || manifest_file::publish(&directory, true)).await;
    // From here on the new space may be named by what is on the disk.
    keep(draft);
    published.flatten().map_err(|error| {
        core.halt(&error);
        StoreError::InDoubt { source: Box::new(error) }
    })
}

/// Makes a durable generation the current one.
fn install(core: &Arc<Core>, mut draft: Draft) -> Arc<Snapshot> {
    let freed = std::mem::take(&mut draft.freed);
    let generation = core.snapshot().generation + 1;
    let snapshot = Arc::new(draft.into_snapshot(core.space.pin(generation)));
    core.space.free_after(generation, freed);
    // The old generation goes when nobody looks at it any more: maybe now.
    drop(core.replace(snapshot.clone()));
    snapshot
}

/// Makes what was written durable; if that fails, nobody can say any more what is.
async fn sync_devices(core: &Core) -> Result<()> {
    let devices = core.space.devices();
    let synced = join_all(devices.iter().map(|device| device.sync())).await;
    synced.into_iter().collect::<Result<()>>().inspect_err(|error| core.halt(error))
}

/// Makes the data file of a new device, and names it in the draft.
async fn add_device(core: &Core, draft: &mut Draft, path: PathBuf) -> Result<Device> {
    let number = draft.devices.len();
    let problem = if draft.devices.contains(&path) {
        Some("the database has this device already".to_owned())
    } else if number >= device::DEVICES_MAX {
        Some(format!("a database has at most {} devices", device::DEVICES_MAX))
    } else {
        None
    };
    if let Some(problem) = problem {
        return Err(StoreError::Device { number, path, problem });
    }
    let place = Place::of(&core.directory, &path);
    let file = device::create(&place, &core.snapshot().database, number, core.sync).await?;
    draft.devices.push(path);
    Device::new(file, &[])
}
