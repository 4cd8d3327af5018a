//! Segments: immutable pieces of a table's directory, loaded when the table is first used.

use std::sync::{Arc, OnceLock};

use crate::error::{Result, StoreError};
use crate::extent::{Extent, coalesce};
use crate::manifest::SegmentEntry;
use crate::page_io::PageSource;
use crate::pages::{PageKind, Stored};
use crate::row_group::RowGroup;
use crate::wire::{Reader, WireError, WireResult, Writer, wrong};

/// Bytes of the shortest row group in a segment.
const GROUP_ENTRY_BYTES: usize = 49;

/// A segment: what the manifest says of it, and its row groups once they are loaded.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) entry: SegmentEntry,
    /// Bytes of memory that the row groups take are few: some 100 per block.
    groups: OnceLock<Arc<[RowGroup]>>,
}

impl Segment {
    pub(crate) fn new(entry: SegmentEntry) -> Segment {
        Segment { entry, groups: OnceLock::new() }
    }

    /// One whose row groups are known already.
    pub(crate) fn loaded(entry: SegmentEntry, mut groups: Vec<RowGroup>) -> Segment {
        number_pages(&mut groups);
        Segment { entry, groups: OnceLock::from(Arc::from(groups)) }
    }

    /// The row groups, on a worker.
    pub(crate) async fn load(
        &self,
        source: &PageSource,
        table: u64,
        columns: usize,
    ) -> Result<&Arc<[RowGroup]>> {
        if let Some(groups) = self.groups.get() {
            return Ok(groups);
        }
        let stored = self.entry.stored;
        let bytes = source.read_one(&stored, PageKind::Segment).await?;
        let groups = decode(&bytes.payload(), &self.entry, table, columns);
        let groups = groups.map_err(|WireError(problem)| StoreError::Damaged {
            path: source.path(stored.device),
            place: format!("directory at byte {}", stored.extent().offset()),
            problem,
        })?;
        // Of two that load it, one is superfluous.
        Ok(self.groups.get_or_init(|| groups.into()))
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
    let mut groups = groups.collect::<WireResult<Vec<_>>>()?;
    reader.end()?;
    let rows: u64 = groups.iter().map(|group| u64::from(group.rows)).sum();
    if (groups.len(), rows) != (entry.row_groups as usize, entry.rows) {
        return wrong(format!("{} row groups with {rows} rows are not those named", groups.len()));
    }
    if occupied(&groups, &entry.stored) != entry.extents {
        return wrong("its row groups do not lie where the manifest has them");
    }
    number_pages(&mut groups);
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
