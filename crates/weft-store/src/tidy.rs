//! Row groups of which many rows are deleted are written anew without them, in the background: so a table takes the space and the time
//! of the rows that it has, however often they were changed. What is left keeps its row ids ([`crate::sparse_ids`]).
//!
//! A commit that leaves a row group *worn* starts the coroutine that looks after it, unless it runs. This takes worn row groups, joined
//! with their neighbours where both are short, reads and encodes what is left of them, and commits that: rows that were deleted
//! meanwhile are marked in the new row group, and one whose row groups have gone meanwhile is given up. It works a fifth of the time.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use weft_buffer::SwipState;
use weft_rt::sleep;

use crate::append::{IDS_MAX, JOIN_BYTES_MAX, join_groups};
use crate::commit::{Work, commit};
use crate::core::Core;
use crate::deleted::Deleted;
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::group_writer::WrittenGroup;
use crate::row_group::{ROW_GROUP_ROWS_MAX, RowGroup};
use crate::segment::Segment;
use crate::snapshot::{Access, Snapshot};
use crate::space::Allocation;
use crate::table::TableVersion;

/// A row group is worn if one in so many of its rows is deleted: a scan of it takes a third longer than need be then, and three rows are
/// written for each row that has gone.
const WORN_PART: u32 = 4;
/// Shorter row groups are not worn: commits join them soon.
const WORN_ROWS_MIN: u32 = 1024;
/// Rows of the row groups that one commit writes anew, about.
const COMMIT_ROWS: u64 = 4 * ROW_GROUP_ROWS_MAX as u64;
/// The coroutine sleeps so many times as long as it has worked, and at least, or after an error, so long.
const SLEEP_TIMES: u32 = 4;
const SLEEP_MIN: Duration = Duration::from_millis(100);
const SLEEP_AFTER_ERROR: Duration = Duration::from_secs(5);

/// Which row groups are written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Those of which many rows are deleted.
    Worn,
    /// Those of which a row is deleted.
    Changed,
}

impl Aim {
    fn has(self, group: &RowGroup) -> bool {
        match self {
            Aim::Worn => is_worn(group),
            Aim::Changed => group.deleted.is_some(),
        }
    }
}

/// Row groups that lie one behind the other, and what takes their place.
#[derive(Debug)]
pub(crate) struct Tidied {
    /// As they were when they were read.
    old: Vec<RowGroup>,
    new: WrittenGroup,
}

/// Row groups of a table that were written anew.
#[derive(Debug)]
pub(crate) struct TidiedTable {
    pub(crate) table: String,
    /// The table's identity.
    pub(crate) expected: u64,
    pub(crate) groups: Vec<Tidied>,
}

/// A table with row groups that were written anew.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub(crate) version: TableVersion,
    pub(crate) taken: Vec<Arc<Allocation>>,
    pub(crate) freed: Vec<Extent>,
}

/// Whether a row group should be written anew.
pub(crate) fn is_worn(group: &RowGroup) -> bool {
    let deleted = group.deleted.as_ref().map_or(0, Deleted::rows);
    group.rows >= WORN_ROWS_MIN && deleted >= group.rows / WORN_PART
}

/// Which row groups of a segment are written anew, each range of them as one.
fn runs(groups: &[RowGroup], aim: Aim) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut number = 0;
    while number < groups.len() {
        if !aim.has(&groups[number]) {
            number += 1;
            continue;
        }
        let mut run = number..number + 1;
        let behind_last = runs.last().map_or(0, |last| last.end);
        loop {
            let before = run.start.checked_sub(1).filter(|before| *before >= behind_last);
            if groups.get(run.end).is_some_and(|next| takes(&groups[run.clone()], next, aim)) {
                run.end += 1;
            } else if let Some(before) = before
                && takes(&groups[run.clone()], &groups[before], aim)
            {
                run.start -= 1;
            } else {
                break;
            }
        }
        number = run.end;
        runs.push(run);
    }
    runs
}

/// Whether a neighbour is joined with row groups that are written anew: if together they have at most half of the rows that a row group
/// may have, or the neighbour is written anew as well.
fn takes(run: &[RowGroup], neighbour: &RowGroup, aim: Aim) -> bool {
    let all = || run.iter().chain([neighbour]);
    let rows: u64 = all().map(|group| u64::from(group.live_rows())).sum();
    let rows_max = ROW_GROUP_ROWS_MAX as u64;
    let first = all().map(|group| group.first_row).min();
    let end = all().map(RowGroup::end_row).max();
    let rows_max = if aim.has(neighbour) { rows_max } else { rows_max / 2 };
    rows <= rows_max
        && all().map(RowGroup::bytes).sum::<u64>() <= JOIN_BYTES_MAX
        && end.zip(first).is_some_and(|(end, first)| end - first <= IDS_MAX)
}

/// Starts the coroutine that writes worn row groups anew, unless it runs, after a commit that has left one.
pub(crate) fn start(core: &Arc<Core>) {
    core.tidying.commits.fetch_add(1, Ordering::AcqRel);
    if core.read_only || core.tidying.is_running.swap(true, Ordering::AcqRel) {
        return;
    }
    let (weak, runtime) = (Arc::downgrade(core), &core.access.runtime);
    let worker = runtime.next_of(runtime.workers());
    drop(runtime.spawn_in(None, worker, move || run(weak)));
}

async fn run(core: Weak<Core>) {
    let (mut pause, mut has_failed) = (SLEEP_MIN, false);
    loop {
        sleep(pause).await;
        let Some(core) = core.upgrade() else { return };
        if has_failed {
            // The next commit that leaves a worn row group starts another one.
            core.tidying.is_running.store(false, Ordering::Release);
            return;
        }
        let Ok(turn) = core.tidying.turn.reserve(1).await else { return };
        let (began, seen) = (Instant::now(), core.tidying.commits.load(Ordering::Acquire));
        let done = tidy_some(&core, None, Aim::Worn).await;
        pause = (began.elapsed() * SLEEP_TIMES).max(SLEEP_MIN);
        let has_ended = match done {
            Ok(true) => false,
            Ok(false) => {
                core.tidying.is_running.store(false, Ordering::Release);
                // A commit that came meanwhile saw that this coroutine runs.
                core.tidying.commits.load(Ordering::Acquire) == seen
                    || core.tidying.is_running.swap(true, Ordering::AcqRel)
            }
            Err(error) => {
                let path = core.directory.path().display();
                log::warn!("{path}: space of deleted rows is not freed: {error}");
                (pause, has_failed) = (SLEEP_AFTER_ERROR, true);
                false
            }
        };
        // A store that is being closed waits for the turn: nothing may hold the database by then.
        drop(core);
        drop(turn);
        if has_ended {
            return;
        }
    }
}

/// Writes all row groups anew of which a row is deleted, of one table or all, on a worker.
///
/// # Errors
/// Those of reading, writing and committing; [`StoreError::NoSuchTable`].
pub(crate) async fn tidy(core: &Arc<Core>, table: Option<&str>) -> Result<()> {
    if let Some(name) = table
        && !core.snapshot().tables.contains_key(name)
    {
        return Err(StoreError::NoSuchTable { name: name.to_owned() });
    }
    core.check_writable("change it")?;
    // Rows that go meanwhile are left to the background.
    let rows = core.snapshot().tables.values().map(|version| version.rows()).max().unwrap_or(0);
    for _ in 0..=rows.div_ceil(COMMIT_ROWS) {
        let _turn = core.tidying.turn.reserve(1).await?;
        let snapshot = core.snapshot();
        let tables = snapshot.tables.iter().filter(|(name, _)| table.is_none_or(|of| of == *name));
        for (_, version) in tables {
            version.load(&core.access).await?;
        }
        if !tidy_some(core, table, Aim::Changed).await? {
            break;
        }
    }
    Ok(())
}

/// Writes some row groups anew whose segments are loaded, of one table or all; false if there are none.
async fn tidy_some(core: &Arc<Core>, table: Option<&str>, aim: Aim) -> Result<bool> {
    let snapshot = core.snapshot();
    let tables = snapshot.tables.iter().filter(|(name, _)| table.is_none_or(|of| of == *name));
    let mut is_any = false;
    for (name, version) in tables {
        let groups = write_anew(core, &snapshot, version, aim).await?;
        if groups.is_empty() {
            continue;
        }
        let tidied = TidiedTable { table: name.clone(), expected: version.identity(), groups };
        let work = Work { tidied: Some(tidied), ..Work::default() };
        match commit(core, work).await {
            Ok(_) => is_any = true,
            // The table is another one, or none.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(is_any)
}

/// Writes some row groups of a table anew, as many as one commit takes.
async fn write_anew(
    core: &Core,
    snapshot: &Snapshot,
    version: &TableVersion,
    aim: Aim,
) -> Result<Vec<Tidied>> {
    let (mut tidied, mut rows) = (Vec::new(), 0);
    for loaded in version.segments.iter().filter_map(|segment| segment.known()) {
        for run in runs(&loaded.groups, aim) {
            if rows >= COMMIT_ROWS || core.tidying.is_closing.load(Ordering::Acquire) {
                return Ok(tidied);
            }
            let old = &loaded.groups[run];
            // What is read of a column, and all that is encoded.
            let bytes = old.iter().map(RowGroup::bytes).sum::<u64>();
            let _memory = match (aim, core.access.ledger.try_reserve(2 * bytes)) {
                (_, Some(memory)) => memory,
                (Aim::Worn, None) => continue,
                (Aim::Changed, None) => core.access.ledger.reserve(2 * bytes).await?,
            };
            let new = join_groups(old, version, (&core.space, &snapshot.access), is_hot(old));
            let new = new.await?;
            rows += u64::from(new.group.rows);
            tidied.push(Tidied { old: old.to_vec(), new });
        }
    }
    Ok(tidied)
}

/// Whether most blocks of row groups are in memory.
fn is_hot(groups: &[RowGroup]) -> bool {
    let blocks = || groups.iter().flat_map(|group| group.blocks().map(move |block| (group, block)));
    let hot = blocks().filter(|(group, block)| {
        let swip = group.pages.swip(block.first_page as usize);
        matches!(swip.state(), SwipState::Hot(_))
    });
    2 * hot.count() > blocks().count()
}

/// Puts row groups that were written anew into a table, on a worker. The segments that are others then are not written.
///
/// # Errors
/// Those of reading the table's directory.
pub(crate) async fn replace(
    version: &TableVersion,
    tidied: Vec<Tidied>,
    access: &Access,
) -> Result<Replaced> {
    let columns = version.schema.columns.len();
    let mut segments = Vec::with_capacity(version.segments.len());
    let (mut taken, mut freed) = (Vec::new(), Vec::new());
    let mut tidied = tidied.into_iter().peekable();
    for segment in &version.segments {
        let at_table = |error: StoreError| error.at(format!("table {}", version.schema.name));
        let loaded = segment.load(access, version.id, columns).await.map_err(at_table)?;
        let end = loaded.groups.last().map_or(0, RowGroup::end_row);
        let mut groups = loaded.groups.to_vec();
        let mut has_changed = false;
        while let Some(Tidied { old, new }) = tidied.next_if(|next| next.old[0].first_row < end) {
            let is_first = |group: &RowGroup| group.extent == old[0].extent;
            let Some(first) = groups.iter().position(is_first) else { continue };
            let there = groups[first..].iter().zip(&old);
            let are_same = there.clone().all(|(now, old)| now.extent == old.extent);
            if !are_same || there.len() < old.len() {
                continue;
            }
            let live = live_of(there);
            let mut group = new.group;
            let is_empty = !live.has_true();
            group.deleted = Deleted::of_live(live);
            freed.extend(old.iter().map(|group| group.extent));
            let place = first..first + old.len();
            if is_empty {
                groups.drain(place);
            } else {
                groups.splice(place, [group]);
                taken.push(new.allocation);
            }
            has_changed = true;
        }
        if !has_changed {
            segments.push(segment.clone());
            continue;
        }
        freed.extend(segment.stored());
        if !groups.is_empty() {
            segments.push(Arc::new(Segment::unwritten(groups, &access.ledger)));
        }
    }
    let version = version.copied().with_segments(segments);
    Ok(Replaced { version, taken, freed })
}

/// Which of the rows that row groups had are left, given each as it is now and as it was.
fn live_of<'a>(groups: impl Iterator<Item = (&'a RowGroup, &'a RowGroup)>) -> BooleanBuffer {
    let mut live = BooleanBufferBuilder::new(0);
    for (now, old) in groups {
        let is_live = |row: usize| match &now.deleted {
            None => true,
            Some(deleted) => deleted.live().value(row),
        };
        match &old.deleted {
            None => (0..old.rows as usize).for_each(|row| live.append(is_live(row))),
            Some(deleted) => deleted.live().set_indices().for_each(|row| live.append(is_live(row))),
        }
    }
    live.finish()
}
