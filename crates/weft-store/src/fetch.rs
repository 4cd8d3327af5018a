//! Rows by their ids: each block is read once for all rows of a vector that it has, and all reads are in flight together.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::BooleanBuffer;
use futures::{StreamExt, TryStreamExt, stream};
use weft_codec::Block as Decoder;

use crate::error::{Result, StoreError};
use crate::page_io::Wanted;
use crate::pages::PageKind;
use crate::row_group::{Block, Chunk, RowGroup};
use crate::schema::scan_type;
use crate::segment::Loaded;
use crate::snapshot::Access;
use crate::table::TableVersion;

/// Rows of one row group, by their places in a vector of ids.
struct Part {
    segment: Arc<Loaded>,
    group: usize,
    rows: std::ops::Range<usize>,
}

impl Part {
    fn group(&self) -> &RowGroup {
        &self.segment.groups[self.group]
    }
}

/// The values of rows in the columns of `projection`, on a worker. The ids ascend, none comes twice, and the table has all
/// of them; up to `depth` row groups are read at a time.
///
/// # Errors
/// Those of reading; [`StoreError::Request`] if a row is not there.
pub(crate) async fn fetch(
    version: &TableVersion,
    access: &Access,
    rows: &[u64],
    projection: &[usize],
    depth: usize,
) -> Result<Vec<ArrayRef>> {
    debug_assert!(rows.is_sorted_by(|a, b| a < b));
    let parts = parts_of(version, access, rows).await?;
    let reads = parts.iter().map(|part| read(version, access, part, rows, projection));
    let read: Vec<Vec<ArrayRef>> = stream::iter(reads).buffered(depth.max(1)).try_collect().await?;
    let column = |at: usize| -> Result<ArrayRef> {
        let data_type = scan_type(&version.schema.columns[projection[at]].data_type);
        let pieces: Vec<&dyn Array> = read.iter().map(|part| part[at].as_ref()).collect();
        match &pieces[..] {
            [] => Ok(new_empty_array(&data_type)),
            [_] => Ok(read[0][at].clone()),
            _ => arrow_select::concat::concat(&pieces).map_err(|error| StoreError::Request {
                table: version.schema.name.clone(),
                problem: error.to_string(),
            }),
        }
    };
    (0..projection.len()).map(column).collect()
}

async fn parts_of(version: &TableVersion, access: &Access, rows: &[u64]) -> Result<Vec<Part>> {
    let directory = version.load(access).await?;
    let mut parts = Vec::new();
    let (mut segment, mut group, mut start) = (0, 0, 0);
    while start < rows.len() {
        let Some(loaded) = directory.get(segment) else {
            return Err(StoreError::Request {
                table: version.schema.name.clone(),
                problem: format!("there is no row {}", rows[start]),
            });
        };
        let Some(found) = loaded.groups.get(group) else {
            (segment, group) = (segment + 1, 0);
            continue;
        };
        let end_row = found.first_row + u64::from(found.rows);
        let end = start + rows[start..].partition_point(|row| *row < end_row);
        if end > start {
            if rows[start] < found.first_row {
                return Err(StoreError::Request {
                    table: version.schema.name.clone(),
                    problem: format!("there is no row {}", rows[start]),
                });
            }
            parts.push(Part { segment: loaded.clone(), group, rows: start..end });
            start = end;
        }
        group += 1;
    }
    Ok(parts)
}

/// Which rows of a block are wanted.
struct Wish<'a> {
    column: usize,
    block: &'a Block,
    /// By their places in the row group.
    rows: Vec<u32>,
    first: u32,
}

async fn read(
    version: &TableVersion,
    access: &Access,
    part: &Part,
    rows: &[u64],
    projection: &[usize],
) -> Result<Vec<ArrayRef>> {
    let group = part.group();
    let places: Vec<u32> =
        rows[part.rows.clone()].iter().map(|row| (row - group.first_row) as u32).collect();
    let wishes: Vec<Wish<'_>> = projection
        .iter()
        .enumerate()
        .flat_map(|(at, column)| wishes(at, &group.chunks[*column], &places))
        .collect();
    let blocks: Vec<&Block> = wishes.iter().map(|wish| wish.block).collect();
    let source = &access.source;
    let mut pieces: Vec<Vec<ArrayRef>> = projection.iter().map(|_| Vec::new()).collect();
    let visited = source.visit(
        &part.segment.pages,
        &blocks,
        PageKind::Block,
        Wanted::ByPoint,
        |at, bytes| {
            let wish = &wishes[at];
            let column = &version.schema.columns[projection[wish.column]];
            let mut wanted = vec![false; wish.block.rows as usize];
            wish.rows.iter().for_each(|row| wanted[(row - wish.first) as usize] = true);
            let wanted = BooleanBuffer::from(wanted);
            let decoded = Decoder::open(bytes)
                .and_then(|block| block.decode_selected(&wanted, &scan_type(&column.data_type)));
            let array = decoded.map_err(|error| source.undecodable(&wish.block.stored, error))?;
            pieces[wish.column].push(array);
            Ok(())
        },
    );
    visited.await.map_err(|(at, error)| {
        let column = &version.schema.columns[projection[wishes[at].column]].name;
        let (table, first) = (&version.schema.name, group.first_row);
        error.at(format!("table {table}, row group from row {first}, column {column}"))
    })?;
    let join = |pieces: Vec<ArrayRef>| match &pieces[..] {
        [piece] => Ok(piece.clone()),
        _ => {
            let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
            arrow_select::concat::concat(&pieces).map_err(|error| StoreError::Request {
                table: version.schema.name.clone(),
                problem: error.to_string(),
            })
        }
    };
    pieces.into_iter().map(join).collect()
}

/// The blocks of a chunk that have wanted rows.
fn wishes<'a>(at: usize, chunk: &'a Chunk, places: &[u32]) -> Vec<Wish<'a>> {
    let mut wishes: Vec<Wish<'a>> = Vec::new();
    for place in places {
        let number = place / chunk.block_rows;
        let first = number * chunk.block_rows;
        match wishes.last_mut() {
            Some(last) if last.first == first => last.rows.push(*place),
            _ => {
                let block = &chunk.blocks[number as usize];
                wishes.push(Wish { column: at, block, rows: vec![*place], first });
            }
        }
    }
    wishes
}
