//! What the directory of a table knows of a row group: where each column's blocks lie, and their zones.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use weft_buffer::PageTable;
use weft_codec::Zone;

use crate::deleted::Deleted;
use crate::extent::Extent;
use crate::pages::{Stored, units_of};
use crate::row_set::RowSet;
use crate::sparse_ids::{SparseIds, ids_of};
use crate::wire::{Reader, WireError, WireResult, Writer, wrong};

/// Rows of a row group, at most: what a block can hold.
pub const ROW_GROUP_ROWS_MAX: usize = weft_codec::MAX_ROWS;

/// The flag of a row group of which rows are deleted.
const HAS_DELETED: u32 = 1;
/// The flag of a row group between whose ids others have no rows.
const HAS_GAPS: u32 = 2;

/// Bytes of the shortest block in a segment: its place and its zone.
const BLOCK_ENTRY_BYTES: usize = 12 + 9;

/// Rows that lie together: a chunk for each column, at most 65,536 rows. Their values never change, but rows may be deleted: copies with other
/// deleted rows share chunks and pages.
#[derive(Clone, Debug)]
pub(crate) struct RowGroup {
    /// Id of the first row; those of the others follow, unless they are given.
    pub(crate) first_row: u64,
    pub(crate) rows: u32,
    /// The ids of the rows, if some between them have no rows any more.
    pub(crate) ids: Option<SparseIds>,
    /// Which of the rows are deleted, but not all.
    pub(crate) deleted: Option<Deleted>,
    /// What all its blocks occupy.
    pub(crate) extent: Extent,
    /// By column.
    pub(crate) chunks: Arc<[Chunk]>,
    /// The pages of all blocks, by their numbers.
    pub(crate) pages: Arc<PageTable>,
}

impl PartialEq for RowGroup {
    /// Pages follow from the chunks.
    fn eq(&self, other: &RowGroup) -> bool {
        (self.first_row, self.rows, self.extent) == (other.first_row, other.rows, other.extent)
            && self.ids == other.ids
            && self.deleted == other.deleted
            && self.chunks == other.chunks
    }
}

/// A column of a row group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chunk {
    /// Rows of each block but the last; a power of two, or all rows.
    pub(crate) block_rows: u32,
    pub(crate) blocks: Box<[Block]>,
    /// Of all blocks, if there are several.
    zone: Option<Box<Zone>>,
}

/// Rows of a column that are decoded together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) stored: Stored,
    pub(crate) rows: u32,
    pub(crate) zone: Zone,
    /// Number of its first page in the row group.
    pub(crate) first_page: u32,
}

impl Block {
    /// A block that has no place yet.
    pub(crate) fn unplaced(rows: u32, zone: Zone) -> Block {
        let stored = Stored { device: 0, start: 0, bytes: 0, checksum: 0 };
        Block { stored, rows, zone, first_page: 0 }
    }
}

impl Block {
    /// Something that is no block of a column but stored like one, as the only one of its pages.
    pub(crate) fn placed(stored: Stored) -> Block {
        let zone = Zone { min: None, max: None, null_count: 0, exact: false };
        Block { stored, ..Block::unplaced(0, zone) }
    }

    /// Pages that it spans.
    pub(crate) fn page_count(&self) -> usize {
        self.stored.pages().count()
    }
}

impl Chunk {
    pub(crate) fn new(block_rows: u32, blocks: Vec<Block>) -> Chunk {
        let zone = (blocks.len() > 1).then(|| {
            let mut zone = blocks[0].zone.clone();
            let mut rows = u64::from(blocks[0].rows);
            for block in &blocks[1..] {
                zone.merge(rows, &block.zone, block.rows.into());
                rows += u64::from(block.rows);
            }
            Box::new(zone)
        });
        Chunk { block_rows, blocks: blocks.into(), zone }
    }

    /// The zone of all its rows.
    pub(crate) fn zone(&self) -> &Zone {
        self.zone.as_deref().unwrap_or_else(|| &self.blocks[0].zone)
    }

    /// Bytes of its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.stored.bytes)).sum()
    }
}

impl RowGroup {
    /// A row group with these chunks, whose pages it numbers.
    pub(crate) fn new(
        (first_row, rows): (u64, u32),
        deleted: Option<Deleted>,
        extent: Extent,
        mut chunks: Vec<Chunk>,
    ) -> RowGroup {
        let mut next_page = 0_u32;
        for block in chunks.iter_mut().flat_map(|chunk| &mut chunk.blocks) {
            block.first_page = next_page;
            next_page = next_page.saturating_add(block.page_count() as u32);
        }
        let blocks = chunks.iter().flat_map(|chunk| &chunk.blocks);
        let pages = PageTable::new(blocks.flat_map(|block| block.stored.pages()));
        RowGroup { first_row, rows, ids: None, deleted, extent, chunks: chunks.into(), pages }
    }

    /// The number of rows that are not deleted.
    pub(crate) fn live_rows(&self) -> u32 {
        self.rows - self.deleted.as_ref().map_or(0, Deleted::rows)
    }

    /// The id behind that of the last row.
    pub(crate) fn end_row(&self) -> u64 {
        self.first_row + self.ids.as_ref().map_or(self.rows.into(), SparseIds::span)
    }

    /// The place of the row that has an id, deleted or not.
    pub(crate) fn place_of(&self, row_id: u64) -> Option<u32> {
        let distance = row_id.checked_sub(self.first_row)?;
        match &self.ids {
            None => (distance < self.rows.into()).then_some(distance as u32),
            Some(ids) => ids.place_of(distance),
        }
    }

    /// Whether it has a row of this id, which is not deleted.
    pub(crate) fn has_live(&self, row_id: u64) -> bool {
        let is_live = |place: u32| {
            let deleted = self.deleted.as_ref();
            deleted.is_none_or(|deleted| deleted.live().value(place as usize))
        };
        self.place_of(row_id).is_some_and(is_live)
    }

    /// How many rows have a lesser id, deleted ones among them: their places are below this.
    pub(crate) fn rows_before(&self, row_id: u64) -> usize {
        let distance = row_id.saturating_sub(self.first_row);
        match &self.ids {
            None => distance.min(self.rows.into()) as usize,
            Some(ids) => ids.rows_before(distance),
        }
    }

    /// The ids of the rows that are not deleted.
    pub(crate) fn live_ids(&self) -> Vec<u64> {
        let ids = self.ids_of(0..self.rows as usize);
        match &self.deleted {
            None => ids.values().to_vec(),
            Some(deleted) => deleted.live().set_indices().map(|row| ids.value(row)).collect(),
        }
    }

    /// The ids of the rows at some places.
    pub(crate) fn ids_of(&self, places: Range<usize>) -> UInt64Array {
        ids_of(self.first_row, self.ids.as_ref(), places)
    }

    /// A bit for each row that is set if its id is in a set; `None` if none is.
    pub(crate) fn among(&self, rows: &RowSet) -> Option<BooleanBuffer> {
        let Some(ids) = &self.ids else { return rows.among(self.first_row, self.rows as usize) };
        let mut bits = BooleanBufferBuilder::new(0);
        rows.each_within(self.first_row..self.end_row(), |row_id| {
            if let Some(place) = ids.place_of(row_id - self.first_row) {
                if bits.is_empty() {
                    bits.append_n(self.rows as usize, false);
                }
                bits.set_bit(place as usize, true);
            }
        });
        (!bits.is_empty()).then(|| bits.finish())
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(Chunk::bytes).sum()
    }

    /// All blocks, in the order of their pages.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.chunks.iter().flat_map(|chunk| &chunk.blocks)
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u64(self.first_row);
        writer.u32(self.rows);
        let has_deleted = if self.deleted.is_some() { HAS_DELETED } else { 0 };
        writer.u32(has_deleted | if self.ids.is_some() { HAS_GAPS } else { 0 });
        // Version chains: none yet.
        writer.u64(0);
        writer.u64(0);
        self.extent.write(writer);
        if let Some(deleted) = &self.deleted {
            deleted.write(writer);
        }
        if let Some(ids) = &self.ids {
            ids.write(writer);
        }
        for chunk in self.chunks.iter() {
            writer.u32(chunk.block_rows);
            for block in &chunk.blocks {
                writer.u32((block.stored.start - self.extent.start) as u32);
                writer.u32(block.stored.bytes);
                writer.u32(block.stored.checksum);
                block.zone.write(&mut writer.0);
            }
        }
    }

    /// Reads a row group of a table with `columns` columns.
    pub(crate) fn read(reader: &mut Reader<'_>, columns: usize) -> WireResult<RowGroup> {
        let (first_row, rows) = (reader.u64()?, reader.u32()?);
        if rows == 0 || rows as usize > ROW_GROUP_ROWS_MAX {
            return wrong(format!("a row group of {rows} rows"));
        }
        let (flags, marks, versions) = (reader.u32()?, reader.u64()?, reader.u64()?);
        if (flags & !(HAS_DELETED | HAS_GAPS), marks, versions) != (0, 0, 0) {
            return wrong("a row group with marks that this version does not know");
        }
        let extent = Extent::read(reader)?;
        let has_deleted = flags & HAS_DELETED != 0;
        let deleted = has_deleted.then(|| Deleted::read(reader, rows)).transpose()?;
        let has_gaps = flags & HAS_GAPS != 0;
        let ids = has_gaps.then(|| SparseIds::read(reader, rows)).transpose()?;
        let span = ids.as_ref().map_or(rows.into(), SparseIds::span);
        if first_row.checked_add(span).is_none() {
            return wrong(format!("a row group that begins at row {first_row}"));
        }
        let mut chunks = Vec::with_capacity(columns);
        for _ in 0..columns {
            chunks.push(read_chunk(reader, rows, extent)?);
        }
        Ok(RowGroup { ids, ..RowGroup::new((first_row, rows), deleted, extent, chunks) })
    }
}

fn read_chunk(reader: &mut Reader<'_>, rows: u32, extent: Extent) -> WireResult<Chunk> {
    let block_rows = reader.u32()?;
    if block_rows == 0 || block_rows > rows {
        return wrong(format!("blocks of {block_rows} rows in a row group of {rows}"));
    }
    let count = rows.div_ceil(block_rows) as usize;
    reader.expect(count, BLOCK_ENTRY_BYTES)?;
    let mut blocks = Vec::with_capacity(count);
    for number in 0..count as u32 {
        let (offset, bytes, checksum) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let units = units_of(bytes as usize);
        if bytes == 0 || u64::from(offset) + units > extent.units {
            return wrong(format!("a block of {bytes} bytes at unit {offset} of {}", extent.units));
        }
        let start = extent.start + u64::from(offset);
        let stored = Stored { device: extent.device, start, bytes, checksum };
        let zone = reader.zone()?;
        let rows = block_rows.min(rows - number * block_rows);
        if zone.null_count > rows.into() {
            return wrong(format!("{} nulls in a block of {rows} rows", zone.null_count));
        }
        blocks.push(Block { stored, rows, zone, first_page: 0 });
    }
    Ok(Chunk::new(block_rows, blocks))
}

impl<'a> Reader<'a> {
    /// Reads a zone.
    fn zone(&mut self) -> WireResult<Zone> {
        let mut rest = self.rest();
        let zone = Zone::read(&mut rest).map_err(|error| WireError(error.to_string()))?;
        self.set_rest(rest);
        Ok(zone)
    }
}
