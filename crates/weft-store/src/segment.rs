//! Segments: immutable pieces of a table's directory, loaded when the table is first used.

use std::sync::{Arc, OnceLock};

use weft_rt::memory::{Ledger, Reservation};

use crate::error::{Result, StoreError};
use crate::extent::{Extent, coalesce};
use crate::manifest::SegmentEntry;
use crate::pages::{PageKind, Stored};
use crate::row_group::RowGroup;
use crate::snapshot::Access;
use crate::wire::{Reader, WireError, WireResult, Writer, wrong};

/// Bytes of the shortest row group in a segment.
const GROUP_ENTRY_BYTES: usize = 49;

/// A segment: what the manifest says of it, and its row groups once they are loaded.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) entry: SegmentEntry,
    loaded: OnceLock<Loaded>,
}

/// Row groups in memory.
#[derive(Debug)]
struct Loaded {
    groups: Arc<[RowGroup]>,
    /// What they take, if the budget had it.
    _memory: Option<Reservation>,
}

/// About what a block's entry takes in memory, in bytes.
const BLOCK_MEMORY_BYTES: u64 = 160;

impl Loaded {
    fn new(mut groups: Vec<RowGroup>, ledger: &Ledger) -> Loaded {
        number_pages(&mut groups);
        let chunks = groups.iter().flat_map(|group| &group.chunks);
        let blocks: usize = chunks.map(|chunk| chunk.blocks.len()).sum();
        let memory = ledger.try_reserve(blocks as u64 * BLOCK_MEMORY_BYTES);
        Loaded { groups: groups.into(), _memory: memory }
    }
}

impl Segment {
    pub(crate) fn new(entry: SegmentEntry) -> Segment {
        Segment { entry, loaded: OnceLock::new() }
    }

    /// One whose row groups are known already.
    pub(crate) fn loaded(entry: SegmentEntry, groups: Vec<RowGroup>, ledger: &Ledger) -> Segment {
        Segment { entry, loaded: OnceLock::from(Loaded::new(groups, ledger)) }
    }

    /// The row groups, on a worker.
    pub(crate) async fn load(
        &self,
        access: &Access,
        table: u64,
        columns: usize,
    ) -> Result<&Arc<[RowGroup]>> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(&loaded.groups);
        }
        let source = &access.source;
        let stored = self.entry.stored;
        let bytes = source.read_one(&stored, PageKind::Segment).await?;
        let groups = decode(&bytes.payload(), &self.entry, table, columns);
        let groups = groups.map_err(|WireError(problem)| StoreError::Damaged {
            path: source.path(stored.device),
            place: format!("directory at byte {}", stored.extent().offset()),
            problem,
        })?;
        // Of two that load it, one is superfluous.
        Ok(&self.loaded.get_or_init(|| Loaded::new(groups, &access.ledger)).groups)
    }
}

/// The bytes of a segment of these row groups.
pub(crate) fn encode(groups: &[RowGroup], table: u64, columns: usize) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(table);
    writer.len(columns);
    writer.len(groups.len());
    groups.iter().for_each(|group| group.write(&mut writer));
    writer.0
}

fn decode(
    bytes: &[u8],
    entry: &SegmentEntry,
    table: u64,
    columns: usize,
) -> WireResult<Vec<RowGroup>> {
    let mut reader = Reader::new(bytes);
    let (found_table, found_columns) = (reader.u64()?, reader.u32()? as usize);
    if (found_table, found_columns) != (table, columns) {
        return wrong(format!(
            "it is of table {found_table} with {found_columns} columns, not of {table} with {columns}"
        ));
    }
    let count = reader.count(GROUP_ENTRY_BYTES)?;
    let groups = (0..count).map(|_| RowGroup::read(&mut reader, columns));
    let groups = groups.collect::<WireResult<Vec<_>>>()?;
    reader.end()?;
    let rows: u64 = groups.iter().map(|group| u64::from(group.rows)).sum();
    if (groups.len(), rows) != (entry.row_groups as usize, entry.rows) {
        return wrong(format!("{} row groups with {rows} rows are not those named", groups.len()));
    }
    if occupied(&groups, &entry.stored) != entry.extents {
        return wrong("its row groups do not lie where the manifest has them");
    }
    Ok(groups)
}

fn number_pages(groups: &mut [RowGroup]) {
    let mut next_page = 0;
    groups.iter_mut().for_each(|group| group.number_pages(&mut next_page));
}

/// What a segment occupies, sorted and joined.
pub(crate) fn occupied(groups: &[RowGroup], stored: &Stored) -> Vec<Extent> {
    let groups = groups.iter().map(|group| group.extent);
    coalesce(groups.chain([stored.extent()]).collect())
}
