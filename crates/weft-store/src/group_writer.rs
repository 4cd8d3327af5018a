//! Writing one row group: its columns are encoded block by block, and leave in one run of pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;
use weft_codec::{Encoder, Options, zone};
use weft_rt::yield_now;

use crate::array_bytes::logical_bytes;
use crate::error::{Result, StoreError};
use crate::pages::{PageKind, PageRun, units_of};
use crate::row_group::{Block, Chunk, ROW_GROUP_ROWS_MAX, RowGroup};
use crate::schema::TableSchema;
use crate::space::{Allocation, Space};
use crate::statistics::Collector;

/// Encoded bytes that a block should have at most.
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes of a column's row group that are tried as one block where nothing is known of the column: many strings repeat themselves in all
/// of its rows, and not in a part of them.
const WHOLE_BYTES_MAX: usize = 16 * BLOCK_BYTES;

/// Rows of a block, at least, unless the row group has fewer.
const BLOCK_ROWS_MIN: usize = 1024;

/// A row group that is on its device, with space that goes back unless it is committed.
#[derive(Clone, Debug)]
pub(crate) struct WrittenGroup {
    /// Its first row has no id yet.
    pub(crate) group: RowGroup,
    pub(crate) allocation: Arc<Allocation>,
}

/// What is known of each column from the row groups before: encoded bytes of 256 rows, 0 if nothing.
pub(crate) type SizeHints = Arc<[AtomicU32]>;

/// No hints for so many columns.
pub(crate) fn no_hints(columns: usize) -> SizeHints {
    (0..columns).map(|_| AtomicU32::new(0)).collect()
}

struct Encoded {
    block_rows: usize,
    blocks: Vec<(Vec<u8>, Block)>,
}

/// Writes rows as one row group, on a worker. `columns` holds the pieces of each column; the rows are added to the
/// statistics that `collector` gathers.
///
/// # Errors
/// [`StoreError::Encode`] if a value is too long, [`StoreError::DiskFull`], [`StoreError::File`].
pub(crate) async fn write_group(
    space: &Arc<Space>,
    schema: &TableSchema,
    columns: Vec<Vec<ArrayRef>>,
    hints: &SizeHints,
    collector: Option<&Collector>,
) -> Result<WrittenGroup> {
    let mut arrays = Vec::new();
    let mut group = Encoding::new(schema);
    for (pieces, hint) in columns.into_iter().zip(hints.iter()) {
        let array = group.add(pieces, hint).await?;
        if collector.is_some() {
            arrays.push(array);
        }
    }
    if let Some(collector) = collector {
        collector.add(&arrays).map_err(|source| StoreError::Encode {
            place: format!("statistics of table {}", schema.name),
            source,
        })?;
        drop(arrays);
    }
    group.write(space).await
}

/// A row group whose columns come one after the other: only one of them is in memory before it is encoded.
pub(crate) struct Encoding<'a> {
    schema: &'a TableSchema,
    rows: usize,
    columns: Vec<Encoded>,
}

impl<'a> Encoding<'a> {
    /// One for a table, without columns.
    pub(crate) fn new(schema: &'a TableSchema) -> Encoding<'a> {
        Encoding { schema, rows: 0, columns: Vec::with_capacity(schema.columns.len()) }
    }

    /// Adds the next column, of which these are the pieces; gives it as one.
    ///
    /// # Errors
    /// [`StoreError::Encode`] if a value is too long.
    pub(crate) async fn add(
        &mut self,
        pieces: Vec<ArrayRef>,
        hint: &AtomicU32,
    ) -> Result<ArrayRef> {
        let column = &self.schema.columns[self.columns.len()];
        let failed = |source| StoreError::Encode {
            place: format!("column {} of table {}", column.name, self.schema.name),
            source,
        };
        let array = join(pieces).map_err(failed)?;
        self.rows = array.len();
        self.columns.push(encode_column(&array, hint).await.map_err(failed)?);
        Ok(array)
    }

    /// Gives it a place; it is to be written there. Its space lives as long as a page of it is in memory.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::File`].
    pub(crate) async fn place(self, space: &Arc<Space>) -> Result<(WrittenGroup, PageRun)> {
        let Encoding { rows, columns, .. } = self;
        assert!(rows > 0 && rows <= ROW_GROUP_ROWS_MAX, "a row group of {rows} rows");
        let blocks = || columns.iter().flat_map(|column| &column.blocks);
        let lens = blocks().map(|(bytes, _)| bytes.len());
        let allocation = space.allocate(lens.clone().map(units_of).sum()).await?;
        let mut run = PageRun::new(allocation.extent(), lens);
        let mut chunks = Vec::with_capacity(columns.len());
        for column in columns {
            let store = |(bytes, mut block): (Vec<u8>, Block)| {
                block.stored = run.push(&bytes, PageKind::Block);
                block
            };
            let blocks = column.blocks.into_iter().map(store).collect();
            chunks.push(Chunk::new(column.block_rows as u32, blocks));
        }
        let allocation = Arc::new(allocation);
        let group = RowGroup::new((0, rows as u32), None, allocation.extent(), chunks);
        group.pages.keep_alive(allocation.clone());
        Ok((WrittenGroup { group, allocation }, run))
    }

    /// Writes it, on a worker.
    ///
    /// # Errors
    /// As [`Encoding::place`].
    async fn write(self, space: &Arc<Space>) -> Result<WrittenGroup> {
        let (written, run) = self.place(space).await?;
        run.write(space).await?;
        Ok(written)
    }
}

/// The pieces of a column as one array.
fn join(mut pieces: Vec<ArrayRef>) -> std::result::Result<ArrayRef, weft_codec::Error> {
    if pieces.len() == 1 {
        return Ok(pieces.remove(0));
    }
    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
    let bytes = || pieces.iter().map(|piece| piece.get_buffer_memory_size()).sum();
    // The pieces have one type, so that only offsets of 32 bits can overflow.
    concat(&pieces).map_err(|_| weft_codec::Error::TooManyBytes { bytes: bytes() })
}

/// Rows of a block if 256 rows take `bytes`: a power of two.
fn block_rows(bytes_of_256: usize, rows: usize) -> usize {
    let mut block_rows = ROW_GROUP_ROWS_MAX;
    while block_rows > BLOCK_ROWS_MIN && bytes_of_256 * (block_rows / 256) > BLOCK_BYTES {
        block_rows /= 2;
    }
    block_rows.min(rows)
}

async fn encode_column(
    array: &ArrayRef,
    hint: &AtomicU32,
) -> std::result::Result<Encoded, weft_codec::Error> {
    let rows = array.len();
    let raw = logical_bytes(array) as usize;
    let guess = match hint.load(Ordering::Relaxed) as usize {
        0 if raw <= WHOLE_BYTES_MAX => 0,
        // Encoding makes a column some three times smaller.
        0 => raw * 256 / rows / 3,
        known => known,
    };
    let mut block_rows = block_rows(guess, rows);
    let mut encoder = Encoder::new(Options::default());
    let mut blocks = Vec::new();
    let (mut at, mut bytes) = (0, 0);
    while at < rows {
        let slice = array.slice(at, block_rows.min(rows - at));
        let block = encoder.encode(&slice)?;
        if block.len() > 2 * BLOCK_BYTES && blocks.is_empty() && block_rows > BLOCK_ROWS_MIN {
            block_rows = self::block_rows(block.len() * 256 / slice.len(), rows)
                .min(block_rows.next_power_of_two() / 2);
            continue;
        }
        at += slice.len();
        bytes += block.len();
        blocks.push((block, Block::unplaced(slice.len() as u32, zone(&slice))));
        yield_now().await;
    }
    if rows >= BLOCK_ROWS_MIN {
        hint.store((bytes * 256 / rows).max(1) as u32, Ordering::Relaxed);
    }
    Ok(Encoded { block_rows, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_powers_of_two_of_rows() {
        assert_eq!(block_rows(0, 65_536), 65_536);
        assert_eq!(block_rows(1024, 65_536), 65_536);
        assert_eq!(block_rows(1025, 65_536), 32_768);
        assert_eq!(block_rows(1025, 500), 500);
        assert_eq!(block_rows(1 << 30, 65_536), 1024);
    }
}
