//! Rows by their ids: each block is read once for all rows of a vector that it has, and all reads are in flight together.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use futures::{StreamExt, TryStreamExt, stream};
use weft_codec::{Block as Decoder, Predicate, Scalar};

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

/// Up to so many values of a block are compared one by one.
const COMPARED_SINGLY_MAX: usize = 16;

/// What is read of rows.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    /// The columns, by number.
    pub(crate) projection: &'a [usize],
    /// Conditions on columns, by number.
    pub(crate) conditions: &'a [(usize, Predicate)],
    /// Row groups that are read at a time, at most.
    pub(crate) depth: usize,
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
    let wish = Wish { projection, conditions: &[], depth };
    Ok(fetch_where(version, access, rows, wish).await?.0)
}

/// As [`fetch`], with a bit for each of the rows, which is set if it satisfies the conditions, where there are some. The
/// columns have the values of all rows.
///
/// # Errors
/// As [`fetch`].
pub(crate) async fn fetch_where(
    version: &TableVersion,
    access: &Access,
    rows: &[u64],
    wish: Wish<'_>,
) -> Result<(Vec<ArrayRef>, Option<BooleanBuffer>)> {
    debug_assert!(rows.is_sorted_by(|a, b| a < b));
    let Wish { projection, conditions, depth } = wish;
    let parts = parts_of(version, access, rows).await?;
    let reads = parts.iter().map(|part| read(version, access, part, rows, wish));
    let read: Vec<(Vec<ArrayRef>, BooleanBuffer)> =
        stream::iter(reads).buffered(depth.max(1)).try_collect().await?;
    let mut kept = BooleanBufferBuilder::new(if conditions.is_empty() { 0 } else { rows.len() });
    if !conditions.is_empty() {
        read.iter().for_each(|(_, of_part)| kept.append_buffer(of_part));
    }
    let kept = (!conditions.is_empty()).then(|| kept.finish());
    let read: Vec<Vec<ArrayRef>> = read.into_iter().map(|(columns, _)| columns).collect();
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
    let columns: Result<Vec<ArrayRef>> = (0..projection.len()).map(column).collect();
    Ok((columns?, kept))
}

/// Keeps those ids, which ascend, of which the table has rows.
///
/// # Errors
/// Those of reading the table's directory.
pub(crate) async fn retain_live(
    version: &TableVersion,
    access: &Access,
    rows: &mut Vec<u64>,
) -> Result<()> {
    let directory = version.load(access).await?;
    let (mut segment, mut group) = (0, 0);
    rows.retain(|row| {
        while let Some(loaded) = directory.get(segment) {
            // Most are in the group of the row before, or in one behind it.
            let behind = loaded.groups[group..].partition_point(|group| group.end_row() <= *row);
            group += behind;
            let Some(found) = loaded.groups.get(group) else {
                (segment, group) = (segment + 1, 0);
                continue;
            };
            return found.has_live(*row);
        }
        false
    });
    Ok(())
}

async fn parts_of(version: &TableVersion, access: &Access, rows: &[u64]) -> Result<Vec<Part>> {
    let directory = version.load(access).await?;
    let mut parts = Vec::new();
    let (mut segment, mut group, mut start) = (0, 0, 0);
    while start < rows.len() {
        let Some(loaded) = directory.get(segment) else {
            return Err(no_row(version, rows[start]));
        };
        let Some(found) = loaded.groups.get(group) else {
            (segment, group) = (segment + 1, 0);
            continue;
        };
        let end_row = found.end_row();
        let end = start + rows[start..].partition_point(|row| *row < end_row);
        if end > start {
            parts.push(Part { segment: loaded.clone(), group, rows: start..end });
            start = end;
        }
        group += 1;
    }
    Ok(parts)
}

fn no_row(version: &TableVersion, row: u64) -> StoreError {
    let (table, problem) = (version.schema.name.clone(), format!("there is no row {row}"));
    StoreError::Request { table, problem }
}

/// Which rows of a block are wanted, and what for.
struct BlockWish<'a> {
    /// The number of the column in the projection, or of a condition.
    purpose: Purpose,
    block: &'a Block,
    /// By their places in the row group.
    rows: &'a [u32],
    first: u32,
}

#[derive(Clone, Copy)]
enum Purpose {
    Column(usize),
    Condition(usize),
}

impl BlockWish<'_> {
    /// The rows by their places in the block.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| (row - self.first) as usize)
    }

    fn mask(&self) -> BooleanBuffer {
        let mut mask = BooleanBufferBuilder::new(self.block.rows as usize);
        mask.append_n(self.block.rows as usize, false);
        self.places().for_each(|place| mask.set_bit(place, true));
        mask.finish()
    }

    /// Which of the rows satisfy a condition.
    fn satisfied(
        &self,
        block: &Decoder<'_>,
        predicate: &Predicate,
    ) -> weft_codec::Result<BooleanBuffer> {
        let mut kept = BooleanBufferBuilder::new(self.rows.len());
        if self.rows.len() <= COMPARED_SINGLY_MAX {
            for place in self.places() {
                kept.append(satisfies(&block.value(place)?, predicate));
            }
        } else {
            let all = block.filter(predicate)?;
            self.places().for_each(|place| kept.append(all.value(place)));
        }
        Ok(kept.finish())
    }
}

/// Whether a value satisfies a condition.
fn satisfies(value: &Scalar, predicate: &Predicate) -> bool {
    if *value == Scalar::Null {
        return *predicate == Predicate::IsNull;
    }
    match predicate {
        Predicate::IsNull => false,
        Predicate::IsNotNull => true,
        Predicate::Compare(op, other) => value.compare(other).is_some_and(|order| op.holds(order)),
        Predicate::In(values) => {
            values.iter().any(|other| value.compare(other).is_some_and(std::cmp::Ordering::is_eq))
        }
        Predicate::StartsWith(prefix) => {
            matches!(value, Scalar::Bytes(bytes) if bytes.starts_with(prefix))
        }
    }
}

async fn read(
    version: &TableVersion,
    access: &Access,
    part: &Part,
    rows: &[u64],
    Wish { projection, conditions, .. }: Wish<'_>,
) -> Result<(Vec<ArrayRef>, BooleanBuffer)> {
    let group = part.group();
    let place = |row: &u64| group.place_of(*row).ok_or_else(|| no_row(version, *row));
    let places: Vec<u32> = rows[part.rows.clone()].iter().map(place).collect::<Result<_>>()?;
    let columns = projection.iter().enumerate().map(|(at, column)| (Purpose::Column(at), column));
    let conditioned = conditions.iter().enumerate();
    let conditioned = conditioned.map(|(at, (column, _))| (Purpose::Condition(at), column));
    let wishes: Vec<BlockWish<'_>> = columns
        .chain(conditioned)
        .flat_map(|(purpose, column)| wishes(purpose, &group.chunks[*column], &places))
        .collect();
    let blocks: Vec<&Block> = wishes.iter().map(|wish| wish.block).collect();
    let source = &access.source;
    let mut pieces: Vec<Vec<ArrayRef>> = projection.iter().map(|_| Vec::new()).collect();
    let mut satisfied: Vec<Vec<BooleanBuffer>> = conditions.iter().map(|_| Vec::new()).collect();
    let visited =
        source.visit(&group.pages, &blocks, PageKind::Block, Wanted::ByPoint, |at, bytes| {
            let wish = &wishes[at];
            let undecodable = |error| source.undecodable(&wish.block.stored, error);
            let block = Decoder::open(bytes).map_err(undecodable)?;
            match wish.purpose {
                Purpose::Column(number) => {
                    let column = &version.schema.columns[projection[number]];
                    let data_type = scan_type(&column.data_type);
                    let decoded = block.decode_selected(&wish.mask(), &data_type);
                    pieces[number].push(decoded.map_err(undecodable)?);
                }
                Purpose::Condition(number) => {
                    let of_block = wish.satisfied(&block, &conditions[number].1);
                    satisfied[number].push(of_block.map_err(undecodable)?);
                }
            }
            Ok(())
        });
    visited.await.map_err(|(at, error)| {
        let column = match wishes[at].purpose {
            Purpose::Column(number) => projection[number],
            Purpose::Condition(number) => conditions[number].0,
        };
        let column = &version.schema.columns[column].name;
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
    let columns: Result<Vec<ArrayRef>> = pieces.into_iter().map(join).collect();
    let of_conditions = satisfied.into_iter().map(|pieces| {
        let mut joined = BooleanBufferBuilder::new(places.len());
        pieces.iter().for_each(|piece| joined.append_buffer(piece));
        joined.finish()
    });
    let kept = of_conditions.reduce(|a, b| &a & &b);
    Ok((columns?, kept.unwrap_or_else(|| BooleanBuffer::new_set(places.len()))))
}

/// The blocks of a chunk that have wanted rows.
fn wishes<'a>(purpose: Purpose, chunk: &'a Chunk, places: &'a [u32]) -> Vec<BlockWish<'a>> {
    let mut wishes: Vec<BlockWish<'a>> = Vec::new();
    let mut start = 0;
    while start < places.len() {
        let number = places[start] / chunk.block_rows;
        let first = number * chunk.block_rows;
        let behind = first.saturating_add(chunk.block_rows);
        let end = start + places[start..].partition_point(|place| *place < behind);
        let block = &chunk.blocks[number as usize];
        wishes.push(BlockWish { purpose, block, rows: &places[start..end], first });
        start = end;
    }
    wishes
}
