//! Commits: all or nothing, durable when acknowledged, one after the other, or several at once as one generation.
//!
//! Commits that change few rows are made durable by the journal (`journal.rs`), the others by a manifest. The order of a manifest: data pages and segments are written and made durable on all devices, and both copies of the new manifest
//! under temporary names; then these get their names, and the directory is made durable. A failure before
//! the names change leaves the old state. One while they change, or of a sync, leaves it open what a crash
//! would find: no further commit is taken until the database is opened again. Temporary databases, which
//! nobody opens again, have no manifest after their first.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{join, join_all};

use crate::change::Change;
use crate::combine::{Deleted, Prospect, combined, small};
use crate::core::Core;
use crate::device;
use crate::directory::off_worker;
use crate::draft::Draft;
use crate::error::{Result, StoreError};
use crate::journal::{JournalError, Record};
use crate::manifest_file;
use crate::place::Place;
use crate::snapshot::Snapshot;
use crate::space::Device;
use crate::tidy::{self, TidiedTable};
use crate::transaction::{Finished, as_conflict, rebase};

/// What is to be committed together.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) changes: Vec<Change>,
    /// A device to be added: a directory or a block device.
    pub(crate) device: Option<PathBuf>,
    /// A transaction that has ended.
    pub(crate) transaction: Option<Finished>,
    /// The manifest is to have everything.
    pub(crate) is_checkpoint: bool,
    /// Row groups of a table that were written anew.
    pub(crate) tidied: Option<TidiedTable>,
}

/// Work that waits for its commit.
#[derive(Debug)]
pub(crate) struct Waiting {
    work: Work,
    outcome: Arc<Outcome>,
}

/// What has become of work.
#[derive(Debug, Default)]
struct Outcome(Mutex<Option<Result<Arc<Snapshot>>>>);

impl Outcome {
    fn set(&self, outcome: Result<Arc<Snapshot>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    fn take(&self) -> Option<Result<Arc<Snapshot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Commits, on a worker. What waits by the time that it is this work's turn is made durable with it, by one generation: so a
/// device is asked once to make the changes of many statements durable.
pub(crate) async fn commit(core: &Arc<Core>, work: Work) -> Result<Arc<Snapshot>> {
    let outcome = Arc::new(Outcome::default());
    core.waiting().push(Waiting { work, outcome: outcome.clone() });
    let turn = core.committing.reserve(1).await;
    if let Some(outcome) = outcome.take() {
        return outcome;
    }
    let group = group_of(&mut core.waiting(), &outcome);
    let _turn = turn?;
    commit_group(core, group).await;
    // A commit that panicked has taken this work with it.
    outcome.take().unwrap_or_else(|| {
        let (path, reason) = (core.directory.path().into(), "a commit ended in its middle".into());
        Err(StoreError::Halted { path, reason })
    })
}

/// What is committed together when it is the turn of the work with this outcome.
fn group_of(waiting: &mut Vec<Waiting>, outcome: &Arc<Outcome>) -> Vec<Waiting> {
    let is_it = |of: &Waiting| Arc::ptr_eq(&of.outcome, outcome);
    let is_alone = waiting.iter().any(|of| is_it(of) && of.work.device.is_some());
    let is_in = |of: &Waiting| is_it(of) || !is_alone && of.work.device.is_none();
    let (group, rest) = std::mem::take(waiting).into_iter().partition(is_in);
    *waiting = rest;
    group
}

/// Commits what it can of a group, and says for each of it what became of it.
async fn commit_group(core: &Arc<Core>, group: Vec<Waiting>) {
    let mut draft = Draft::new(core.snapshot());
    draft.unwritten = core.journal.changed_indexes();
    let mut device = None;
    // What a journal is to have of it; none if it needs a manifest.
    let mut record = core.sync.then(Record::default);
    let mut committed = Vec::with_capacity(group.len());
    let (together, others): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|of| small(&of.work).is_some());
    let others = others.into_iter().map(|waiting| vec![waiting]);
    let mut parts: Vec<Vec<Waiting>> = others.rev().chain([together]).collect();
    while let Some(part) = parts.pop() {
        let (mut part, disputed) = promising(core, &draft, part).await;
        if !disputed.is_empty() {
            parts.push(disputed);
        }
        let work = match &mut part[..] {
            [] => continue,
            [of] => std::mem::take(&mut of.work),
            all => {
                let changes = all.iter().flat_map(|of| small(&of.work).into_iter().flatten());
                Work { changes: combined(changes), ..Work::default() }
            }
        };
        let mark = draft.mark(committed.is_empty());
        let recorded = record.as_ref().map_or(0, Record::len);
        match prepare(core, &mut draft, work, &mut record).await {
            Ok(added) => {
                device = device.or(added);
                committed.extend(part.into_iter().map(|of| of.outcome));
            }
            Err(error) => {
                draft.return_to(mark).await;
                if let Some(record) = &mut record {
                    record.truncate(recorded);
                }
                match &part[..] {
                    [of] => of.outcome.set(Err(error)),
                    _ => {
                        let second = part.split_off(part.len() / 2);
                        parts.extend([second, part]);
                    }
                }
            }
        }
    }
    if committed.is_empty() {
        return;
    }
    if let Err(error) = finish(core, &mut draft, record).await {
        draft.take_back().await;
        match &committed[..] {
            [outcome] => outcome.set(Err(error)),
            _ => {
                let error = Arc::new(error);
                let shared = || Err(StoreError::Shared(error.clone()));
                committed.iter().for_each(|outcome| outcome.set(shared()));
            }
        }
        return;
    }
    if let Some(device) = device {
        core.access.source.pool().add_device(device.file.clone());
        core.space.add_device(device);
    }
    let has_worn = draft.has_worn;
    let snapshot = install(core, draft);
    if has_worn {
        tidy::start(core);
    }
    committed.iter().for_each(|outcome| outcome.set(Ok(snapshot.clone())));
}

/// Parts work that is to be tried together: work that may succeed, and work that deletes a row which this deletes, too, and is to be tried
/// after it. Work that deletes a row which is not there any more gets its error.
async fn promising(core: &Core, draft: &Draft, part: Vec<Waiting>) -> (Vec<Waiting>, Vec<Waiting>) {
    let (mut good, mut disputed) = (Vec::with_capacity(part.len()), Vec::new());
    let mut deleted = Deleted::default();
    for of in part {
        let prospect = match small(&of.work) {
            Some(changes) => deleted.add(changes, draft, &core.access).await,
            None => Prospect::Good,
        };
        match prospect {
            Prospect::Good => good.push(of),
            Prospect::Disputed => disputed.push(of),
            Prospect::Lost(error) => {
                let is_transaction = of.work.transaction.is_some();
                of.outcome.set(Err(if is_transaction { as_conflict(error) } else { error }));
            }
        }
    }
    (good, disputed)
}

/// Puts the changes of one work on top of a draft, and into the record of the commit if it can have them; gives the device that is
/// added.
async fn prepare(
    core: &Core,
    draft: &mut Draft,
    mut work: Work,
    record: &mut Option<Record>,
) -> Result<Option<Device>> {
    core.check_writable("change it")?;
    let is_transaction = work.transaction.is_some();
    let is_partial = work.transaction.as_ref().is_some_and(|transaction| !transaction.is_whole);
    if let Some(few) = work.transaction.as_mut().and_then(|transaction| transaction.few.take()) {
        let mark = draft.mark(true);
        let mut with_few = record.clone();
        note(&mut with_few, &few, draft);
        match put_together(core, draft, few, None).await {
            Ok(()) => {
                *record = with_few;
                return Ok(None);
            }
            Err(error) if is_partial => return Err(as_conflict(error)),
            Err(_) => {}
        }
        // The transaction as a whole says why not.
        draft.return_to(mark).await;
    }
    match is_transaction || work.device.is_some() || work.is_checkpoint {
        true => *record = None,
        false => note(record, &work.changes, draft),
    }
    if let Some(tidied) = work.tidied {
        // Recovery finds the same rows without it.
        draft.tidy(tidied, &core.access).await?;
    }
    let put_together = put_together(core, draft, work.changes, work.transaction).await;
    put_together.map_err(|error| if is_transaction { as_conflict(error) } else { error })?;
    match work.device {
        Some(path) => add_device(core, draft, path).await.map(Some),
        None => Ok(None),
    }
}

/// Adds changes that are about to be applied to the record of a commit, which has none if it cannot have them.
fn note(record: &mut Option<Record>, changes: &[Change], draft: &Draft) {
    if record.as_mut().is_some_and(|record| !record.add(changes, draft)) {
        *record = None;
    }
}

/// Makes a draft durable: by the journal, if that can have it.
async fn finish(core: &Core, draft: &mut Draft, record: Option<Record>) -> Result<()> {
    if let Some(record) = record
        && core.journal.has_room(&record, &draft.freed)
    {
        let of = (&draft.base.database, draft.base.generation + 1);
        match core.journal.append(&core.directory, of, record).await {
            Ok(()) => {
                core.journal.note(draft.leave_to_manifest());
                keep(draft);
                return Ok(());
            }
            Err(JournalError::InDoubt(error)) => {
                core.halt(&error);
                return Err(StoreError::InDoubt { source: Box::new(error) });
            }
            Err(JournalError::NotWritten(error)) => {
                log::warn!("the journal cannot be written, a manifest is: {error}");
            }
        }
    }
    write_manifest(core, draft).await
}

/// Makes a draft durable by a manifest, which supersedes the journal.
pub(crate) async fn write_manifest(core: &Core, draft: &mut Draft) -> Result<()> {
    draft.write_indexes().await?;
    if !core.sync {
        keep(draft);
        return Ok(());
    }
    draft.write_segments(&core.space).await?;
    if draft.has_index_work() {
        core.space.devices().iter().for_each(|device| device.mark_dirty());
    }
    make_durable(core, draft).await?;
    draft.freed.extend(core.journal.supersede());
    Ok(())
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
pub(crate) fn install(core: &Arc<Core>, mut draft: Draft) -> Arc<Snapshot> {
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
