//! Deleting rows of a table: they are marked in the directory, their values stay where they are. A row group without rows that
//! are left goes as a whole.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;

use crate::deleted::Deleted;
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::pages::Stored;
use crate::row_group::RowGroup;
use crate::row_set::RowSet;
use crate::segment::Segment;
use crate::snapshot::Access;
use crate::table::TableVersion;
use crate::tidy::is_worn;

/// A table with fewer rows.
#[derive(Debug)]
pub(crate) struct Shortened {
    pub(crate) version: TableVersion,
    pub(crate) freed: Vec<Extent>,
    /// Many rows of a row group are deleted.
    pub(crate) has_worn: bool,
}

/// Deletes rows, on a worker. The segments that are others then are not written.
///
/// # Errors
/// [`StoreError::Conflict`] if one of them is there no more: another statement deleted or updated it.
pub(crate) async fn delete(
    version: &TableVersion,
    rows: &RowSet,
    access: &Access,
) -> Result<Shortened> {
    let columns = version.schema.columns.len();
    let mut segments = Vec::with_capacity(version.segments.len());
    let mut freed = Vec::new();
    let (mut found, mut has_worn) = (0, false);
    for segment in &version.segments {
        let at_table = |error: StoreError| error.at(format!("table {}", version.schema.name));
        let loaded = segment.load(access, version.id, columns).await.map_err(at_table)?;
        let mut groups = Vec::with_capacity(loaded.groups.len());
        let mut has_changed = false;
        for group in &loaded.groups {
            let Some(gone) = group.among(rows) else {
                groups.push(group.clone());
                continue;
            };
            let live_rows = group.live_rows();
            let (left, left_rows) = without(group, &gone);
            found += u64::from(live_rows - left_rows);
            has_changed = true;
            match left {
                Some(left) => {
                    has_worn |= is_worn(&left);
                    groups.push(left);
                }
                None => freed.push(group.extent),
            }
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
    if found < rows.len() {
        let table = version.schema.name.clone();
        return Err(StoreError::Conflict { table, change: "changed" });
    }
    let version = version.copied().with_segments(segments);
    Ok(Shortened { version, freed, has_worn })
}

/// A row group without those of its rows whose bits are set, and how many are left; `None` if none is.
fn without(group: &RowGroup, gone: &BooleanBuffer) -> (Option<RowGroup>, u32) {
    let live = match &group.deleted {
        Some(deleted) => deleted.live() & &!gone,
        None => !gone,
    };
    let left_rows = live.count_set_bits() as u32;
    let left =
        (left_rows > 0).then(|| RowGroup { deleted: Deleted::of_live(live), ..group.clone() });
    (left, left_rows)
}

/// The table without any row.
pub(crate) fn truncate(version: &TableVersion) -> Shortened {
    let segments = version.segments.iter().flat_map(|segment| segment.entry.extents.clone());
    let statistics = version.stored_statistics.iter().map(Stored::extent);
    let freed = segments.chain(statistics).collect();
    let (schema, next_row_id) = (version.schema.clone(), version.next_row_id);
    let (indexes, constraints) = (version.indexes.clone(), version.constraints.clone());
    let version = TableVersion::new(version.id, schema, next_row_id, Vec::new(), None)
        .with_keys(indexes, constraints);
    Shortened { version, freed, has_worn: false }
}
