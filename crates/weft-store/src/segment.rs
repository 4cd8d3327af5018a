//! Segments: immutable pieces of a table's directory, loaded when the table is first used.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use weft_rt::memory::{Ledger, Reservation};
use weft_rt::yield_now;

use crate::error::{Result, StoreError};
use crate::extent::{Extent, coalesce};
use crate::manifest::SegmentEntry;
use crate::page_io::TURN;
use crate::pages::{PageKind, PageRun, Stored, units_of};
use crate::row_group::RowGroup;
use crate::snapshot::Access;
use crate::space::{Allocation, Space};
use crate::sparse_ids::SparseIds;
use crate::wire::{Reader, WireError, WireResult, Writer, wrong};

/// Bytes of the shortest row group in a segment.
const GROUP_ENTRY_BYTES: usize = 49;

/// A segment: what the manifest says of it, or will say, and its row groups once they are loaded.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) entry: SegmentEntry,
    loaded: OnceLock<Arc<Loaded>>,
    /// Space of the segment and its row groups that no commit names yet: it belongs to a transaction.
    pub(crate) owned: Vec<Arc<Allocation>>,
}

/// Row groups in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) groups: Box<[RowGroup]>,
    /// What they take, if the budget had it.
    _memory: Option<Reservation>,
}

/// In place of where a segment is stored that is not written.
const NOWHERE: Stored = Stored { device: 0, start: 0, bytes: 0, checksum: 0 };

/// About what a block's entry takes in memory, in bytes.
const BLOCK_MEMORY_BYTES: u64 = 200;

impl Loaded {
    fn new(groups: Vec<RowGroup>, ledger: &Ledger) -> Loaded {
        let blocks = groups.iter().flat_map(RowGroup::blocks).count();
        let ids = groups.iter().filter_map(|group| group.ids.as_ref()).map(SparseIds::bytes);
        let memory = ledger.try_reserve(blocks as u64 * BLOCK_MEMORY_BYTES + ids.sum::<u64>());
        Loaded { groups: groups.into(), _memory: memory }
    }
}

impl Segment {
    pub(crate) fn new(entry: SegmentEntry) -> Segment {
        Segment { entry, loaded: OnceLock::new(), owned: Vec::new() }
    }

    /// One that only memory has so far: a commit writes it, once for all work that it makes durable.
    pub(crate) fn unwritten(groups: Vec<RowGroup>, ledger: &Ledger) -> Segment {
        let entry = SegmentEntry {
            stored: NOWHERE,
            row_groups: groups.len() as u32,
            rows: groups.iter().map(|group| u64::from(group.live_rows())).sum(),
            bytes: groups.iter().map(RowGroup::bytes).sum(),
            extents: coalesce(groups.iter().map(|group| group.extent).collect()),
        };
        let loaded = OnceLock::from(Arc::new(Loaded::new(groups, ledger)));
        Segment { entry, loaded, owned: Vec::new() }
    }

    /// Where it is written; `None` if it is not.
    pub(crate) fn stored(&self) -> Option<Extent> {
        (self.entry.stored != NOWHERE).then(|| self.entry.stored.extent())
    }

    /// Writes one that is not written, on a worker.
    ///
    /// # Errors
    /// If there is no space, or a device fails.
    pub(crate) async fn write(
        &self,
        table: u64,
        columns: usize,
        space: &Arc<Space>,
    ) -> Result<(Segment, Allocation)> {
        let loaded = self.loaded.get().expect("memory has what is not written");
        let bytes = encode(&loaded.groups, table, columns);
        let allocation = space.allocate(units_of(bytes.len())).await?;
        let mut run = PageRun::new(allocation.extent(), [bytes.len()].into_iter());
        let stored = run.push(&bytes, PageKind::Segment);
        run.write(space).await?;
        let extents = occupied(&loaded.groups, &stored);
        let entry = SegmentEntry { stored, extents, ..self.entry.clone() };
        let loaded = OnceLock::from(loaded.clone());
        Ok((Segment { entry, loaded, owned: self.owned.clone() }, allocation))
    }

    /// The row groups, if they were loaded.
    pub(crate) fn known(&self) -> Option<&Loaded> {
        self.loaded.get().map(AsRef::as_ref)
    }

    /// The row groups, on a worker.
    pub(crate) async fn load(
        &self,
        access: &Access,
        table: u64,
        columns: usize,
    ) -> Result<&Arc<Loaded>> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let source = &access.source;
        let stored = self.entry.stored;
        let bytes = source.read_once(&stored, PageKind::Segment).await?;
        let groups = decode(&bytes, &self.entry, table, columns).await;
        let groups = groups.map_err(|WireError(problem)| StoreError::Damaged {
            path: source.path(stored.device),
            place: format!("directory at byte {}", stored.extent().offset()),
            problem,
        })?;
        // Of two that load it, one is superfluous.
        Ok(self.loaded.get_or_init(|| Arc::new(Loaded::new(groups, &access.ledger))))
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

async fn decode(
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
    let (mut groups, mut since) = (Vec::new(), Instant::now());
    for _ in 0..count {
        groups.push(RowGroup::read(&mut reader, columns)?);
        if since.elapsed() >= TURN {
            yield_now().await;
            since = Instant::now();
        }
    }
    reader.end()?;
    let rows: u64 = groups.iter().map(|group| u64::from(group.live_rows())).sum();
    if (groups.len(), rows) != (entry.row_groups as usize, entry.rows) {
        return wrong(format!("{} row groups with {rows} rows are not those named", groups.len()));
    }
    if occupied(&groups, &entry.stored) != entry.extents {
        return wrong("its row groups do not lie where the manifest has them");
    }
    Ok(groups)
}

/// What a segment occupies, sorted and joined.
pub(crate) fn occupied(groups: &[RowGroup], stored: &Stored) -> Vec<Extent> {
    let groups = groups.iter().map(|group| group.extent);
    coalesce(groups.chain([stored.extent()]).collect())
}

#[cfg(test)]
mod tests {
    use arrow_buffer::BooleanBuffer;
    use futures::executor::block_on;
    use weft_codec::{Scalar, Zone};

    use super::*;
    use crate::deleted::Deleted;
    use crate::row_group::{Block, Chunk};
    use crate::row_set::RowSet;

    fn groups() -> Vec<RowGroup> {
        let zone = |least| Zone {
            min: Some(Scalar::Int(least)),
            max: Some(Scalar::Bytes(b"shuttle".to_vec())),
            null_count: 3,
            exact: true,
        };
        let block = |start, rows| {
            let stored = Stored { device: 2, start, bytes: 5_000, checksum: 77 };
            Block { stored, ..Block::unplaced(rows, zone(start as i64)) }
        };
        let chunks = vec![Chunk::new(1024, vec![block(10, 1024), block(12, 6)])];
        let extent = Extent { device: 2, start: 10, units: 4 };
        vec![RowGroup::new((90, 1030), None, extent, chunks)]
    }

    /// The row groups with two rows less, and their entry.
    fn with_deleted() -> (Vec<RowGroup>, SegmentEntry) {
        let mut groups = groups();
        let live = BooleanBuffer::collect_bool(1030, |row| row != 4 && row != 1029);
        groups[0].deleted = Deleted::of_live(live);
        (groups, SegmentEntry { rows: 1028, ..entry() })
    }

    /// The row groups with ids between which others have no rows.
    fn with_gaps() -> Vec<RowGroup> {
        let mut groups = with_deleted().0;
        let distances: Vec<u32> = (0..1030).map(|row| row * 5).collect();
        groups[0].ids = SparseIds::new(&distances);
        groups
    }

    fn entry() -> SegmentEntry {
        let stored = Stored { device: 2, start: 20, bytes: 400, checksum: 1 };
        let extents = occupied(&groups(), &stored);
        SegmentEntry { stored, row_groups: 1, rows: 1030, bytes: 10_000, extents }
    }

    /// What the bytes say of a table with one column.
    fn of(bytes: &[u8], entry: &SegmentEntry, table: u64) -> WireResult<Vec<RowGroup>> {
        block_on(decode(bytes, entry, table, 1))
    }

    #[test]
    fn comes_back() {
        let bytes = encode(&groups(), 5, 1);
        assert_eq!(of(&bytes, &entry(), 5), Ok(groups()));
        assert!(of(&bytes, &entry(), 6).is_err(), "of another table");
        assert!(of(&bytes, &SegmentEntry { rows: 1031, ..entry() }, 5).is_err());
    }

    #[test]
    fn deleted_rows_come_back() {
        let (groups, entry) = with_deleted();
        let bytes = encode(&groups, 5, 1);
        assert_eq!(of(&bytes, &entry, 5), Ok(groups));
        assert!(of(&bytes, &self::entry(), 5).is_err(), "more rows than are left");
    }

    #[test]
    fn ids_with_gaps_come_back() {
        let (groups, entry) = (with_gaps(), with_deleted().1);
        let read = of(&encode(&groups, 5, 1), &entry, 5).unwrap();
        assert_eq!(read, groups);
        let group = &read[0];
        assert_eq!(
            (group.place_of(90), group.place_of(95), group.place_of(96)),
            (Some(0), Some(1), None)
        );
        assert_eq!((group.end_row(), group.rows_before(101)), (90 + 1029 * 5 + 1, 3));
        assert!(group.has_live(90) && !group.has_live(90 + 4 * 5) && !group.has_live(91));
        let mut rows = RowSet::default();
        assert!([3, 91, 95, 96, 90 + 1029 * 5].into_iter().all(|row| rows.insert(row)));
        let among = group.among(&rows).unwrap();
        assert_eq!(among.set_indices().collect::<Vec<_>>(), [1, 1029]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let good = encode(&with_gaps(), 5, 1);
        for at in 0..good.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                of(&bad, &with_deleted().1, 5).ok();
            }
            assert!(of(&good[..at], &with_deleted().1, 5).is_err());
        }
    }
}
