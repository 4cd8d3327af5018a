//! Adding row groups to the end of a table.
//!
//! Many small commits must make neither many small row groups nor rewrite the last one each time: as in a
//! binary counter, a row group is joined with the one before it while that is less than twice as long. A row
//! is so rewritten at most some 16 times, and a table has some 16 short row groups at most. The segments of
//! the directory are treated alike. Row ids do not change; deleted rows are left out of what is joined.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBufferBuilder;
use arrow_select::filter::filter;
use weft_codec::Block as Decoder;

use crate::deleted::Deleted;
use crate::error::{Result, StoreError};
use crate::extent::Extent;
use crate::group_writer::{Encoding, WrittenGroup, no_hints};
use crate::page_io::Wanted;
use crate::pages::{PageKind, PageRun, Stored, units_of};
use crate::row_group::{Block, RowGroup};
use crate::schema::{TableSchema, scan_type};
use crate::segment::Segment;
use crate::snapshot::Access;
use crate::space::{Allocation, Space};
use crate::sparse_ids::first_and_distances;
use crate::statistics::Statistics;
use crate::table::TableVersion;
use crate::writer::WrittenGroups;

/// A commit that adds fewer rows, or less than a sixteenth of what there are, leaves the statistics as they are.
pub(crate) const STATISTICS_ROWS_MIN: u64 = 1024;

/// Row groups of a segment, at most.
const SEGMENT_GROUPS_MAX: usize = 1024;

/// Row groups that are longer, in encoded bytes, are not joined: their values are long.
pub(crate) const JOIN_BYTES_MAX: u64 = 16 << 20;

/// Ids among which those of a row group lie, at most: their distances have 32 bits.
pub(crate) const IDS_MAX: u64 = u32::MAX as u64;

/// Row groups of so many encoded bytes stay in memory when they are written: the next commits read them, to join them with what they add.
const KEPT_BYTES_MAX: u64 = 256 << 10;

/// Row groups that one commit adds are joined if they have so few rows: those that partitions end with, and those that were cut
/// very short by a lack of memory, as what is known of each of them would take much of that ever after. A load that rewrote all longer
/// ones would take twice as long.
const NEW_ROWS_MAX: u64 = 16 << 10;

/// A table with more rows.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) version: TableVersion,
    pub(crate) taken: Vec<Arc<Allocation>>,
    pub(crate) freed: Vec<Extent>,
}

/// A row group of the table, or one to be added.
#[derive(Debug)]
enum Piece {
    Old(RowGroup),
    New(WrittenGroup),
    /// Rows that are not written: the id of the first, how many there are, and their columns, some rows at a time.
    Loose(u64, u32, Vec<Vec<ArrayRef>>),
}

impl Piece {
    /// The row group, if it is written.
    fn group(&self) -> Option<&RowGroup> {
        match self {
            Piece::Old(group) => Some(group),
            Piece::New(written) => Some(&written.group),
            Piece::Loose(..) => None,
        }
    }

    /// The id of the first row.
    fn first_row(&self) -> u64 {
        match self {
            Piece::Loose(first_row, ..) => *first_row,
            Piece::Old(group) | Piece::New(WrittenGroup { group, .. }) => group.first_row,
        }
    }

    fn rows(&self) -> u32 {
        match self {
            Piece::Loose(_, rows, _) => *rows,
            Piece::Old(group) | Piece::New(WrittenGroup { group, .. }) => group.rows,
        }
    }

    /// The rows that a row group joined of it has: own rows of a transaction stay together, so that its commit can give them other ids.
    fn joined_rows(&self, is_own: bool) -> u32 {
        match self.group() {
            Some(group) if !is_own => group.live_rows(),
            _ => self.rows(),
        }
    }

    /// The id behind that of the last row.
    fn end_row(&self) -> u64 {
        self.group().map_or(self.first_row() + u64::from(self.rows()), RowGroup::end_row)
    }
}

/// Rows that are not written as pieces of up to `rows_max` rows, of which the first has this id.
fn loose_pieces(
    loose: Vec<Vec<ArrayRef>>,
    mut first_row: u64,
    rows_max: u64,
) -> impl Iterator<Item = Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for columns in loose {
        let rows = columns[0].len() as u32;
        match pieces.last_mut() {
            Some(Piece::Loose(_, there, batches)) if u64::from(*there + rows) <= rows_max => {
                *there += rows;
                batches.push(columns);
            }
            _ => pieces.push(Piece::Loose(first_row, rows, vec![columns])),
        }
        first_row += u64::from(rows);
    }
    pieces.into_iter()
}

/// Row groups that are to become one.
#[derive(Debug)]
struct Join {
    pieces: Vec<Piece>,
    /// The id of the first row.
    first_row: u64,
    /// The id behind that of the last row.
    end_row: u64,
    /// What is left of the rows.
    rows: u64,
    /// Ids between those of the rows may have none.
    may_have_gaps: bool,
    /// Those of the longest of them.
    longest: u64,
    bytes: u64,
    /// Some of it was in the table before.
    has_old: bool,
    /// Some of it was not.
    has_new: bool,
}

impl Join {
    fn of(piece: Piece, is_own: bool) -> Join {
        let bytes = piece.group().map_or(0, RowGroup::bytes);
        let (first_row, end_row) = (piece.first_row(), piece.end_row());
        let (rows, may_have_gaps) = (piece.joined_rows(is_own).into(), !is_own);
        let has_new = !matches!(piece, Piece::Old(..));
        let (longest, has_old, pieces) = (rows, !has_new, vec![piece]);
        Join { pieces, first_row, end_row, rows, may_have_gaps, longest, bytes, has_old, has_new }
    }

    /// True if the row group behind should be joined with this one.
    fn takes(&self, next: &Join, rows_max: u64) -> bool {
        let rows = self.rows + next.rows;
        let all_new = !self.has_old && !next.has_old;
        is_short_before(self.rows, next.rows)
            // Row groups between them may have been deleted as a whole.
            && (self.may_have_gaps || self.end_row == next.first_row)
            && next.end_row - self.first_row <= IDS_MAX
            // What was left apart before stays so.
            && next.has_new
            && (!all_new || self.longest.max(next.longest) <= NEW_ROWS_MAX)
            && rows <= rows_max
            && self.bytes + next.bytes <= JOIN_BYTES_MAX
    }
}

fn is_short_before(rows: u64, next: u64) -> bool {
    rows < 2 * next
}

/// Which row groups are to become one: the binary counter.
fn settle(single: impl Iterator<Item = Join>, rows_max: u64) -> Vec<Join> {
    let mut joins: Vec<Join> = Vec::new();
    for join in single {
        joins.push(join);
        while let [.., before, last] = &joins[..]
            && before.takes(last, rows_max)
        {
            let last = joins.pop().expect("there are two");
            let before = joins.last_mut().expect("there are two");
            before.pieces.extend(last.pieces);
            before.rows += last.rows;
            before.end_row = last.end_row;
            before.longest = before.longest.max(last.longest);
            before.bytes += last.bytes;
            before.has_old |= last.has_old;
            before.has_new |= last.has_new;
        }
    }
    joins
}

/// Adds row groups to a table, on a worker. The rows are written when this returns, the segments are not. A statement of a transaction
/// gives the id of the transaction's first row: rows before it stay in segments of their own, and few rows behind it in memory, as long as there
/// is room.
pub(crate) async fn append(
    version: &TableVersion,
    groups: WrittenGroups,
    first_own_row: Option<u64>,
    space: &Arc<Space>,
    access: &Access,
) -> Result<Appended> {
    check_groups(version, &groups, space)?;
    let mut segments = version.segments.clone();
    let mut freed = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut next_row_id = version.next_row_id;
    let rows_max = groups.row_group_rows as u64;
    let new_rows = groups.rows();
    let groups_statistics =
        groups.statistics.filter(|_| new_rows >= STATISTICS_ROWS_MIN.max(version.rows() / 16));
    for mut written in groups.groups {
        written.group.first_row = next_row_id;
        next_row_id += u64::from(written.group.rows);
        pieces.push(Piece::New(written));
    }
    let first_loose_row = next_row_id;
    next_row_id = version.next_row_id + new_rows;
    pieces.extend(loose_pieces(groups.loose, first_loose_row, rows_max));
    let columns = version.schema.columns.len();
    let is_own = first_own_row.is_some();
    while let (Some(segment), Some(first)) = (segments.last(), pieces.first()) {
        let at_table = |error: StoreError| error.at(format!("table {}", version.schema.name));
        let old = segment.load(access, version.id, columns).await.map_err(at_table)?;
        let least = first_own_row.unwrap_or(0);
        if old.groups.first().is_none_or(|group| group.first_row < least) {
            break;
        }
        let rows: u64 = pieces.iter().map(|piece| u64::from(piece.joined_rows(is_own))).sum();
        let joinable = old.groups.last().is_some_and(|last| {
            let last_rows = if is_own { last.rows } else { last.live_rows() };
            is_short_before(last_rows.into(), rows.min(rows_max))
                && u64::from(last_rows) + u64::from(first.joined_rows(is_own)) <= rows_max
        });
        let fits = old.groups.len() + pieces.len() <= SEGMENT_GROUPS_MAX;
        let small = fits && old.groups.len() < 2 * pieces.len();
        if !(joinable || small) {
            break;
        }
        freed.extend(segment.stored());
        let old = old.groups.iter().map(|group| Piece::Old(group.clone()));
        pieces = old.chain(pieces).collect();
        segments.pop();
    }
    let mut taken = Vec::new();
    let mut groups = Vec::with_capacity(pieces.len());
    for join in settle(pieces.into_iter().map(|piece| Join::of(piece, is_own)), rows_max) {
        let made = execute(join, version, (space, access), is_own, &mut freed).await;
        let (group, allocation) = made?;
        groups.push(group);
        taken.extend(allocation);
    }
    while !groups.is_empty() {
        let rest = groups.split_off(groups.len().min(SEGMENT_GROUPS_MAX));
        segments.push(Arc::new(Segment::unwritten(groups, &access.ledger)));
        groups = rest;
    }
    let statistics = match groups_statistics {
        Some(new) => {
            let (stored, allocation) = write_statistics(version, new, space, access).await?;
            freed.extend(version.stored_statistics.iter().map(Stored::extent));
            taken.push(Arc::new(allocation));
            Some(stored)
        }
        None => version.stored_statistics,
    };
    let schema = version.schema.clone();
    let keys = (version.indexes.clone(), version.constraints.clone());
    let version = TableVersion::new(version.id, schema, next_row_id, segments, statistics)
        .with_keys(keys.0, keys.1);
    Ok(Appended { version, taken, freed })
}

/// Checks that rows were written for a table like this one, in this database.
fn check_groups(version: &TableVersion, groups: &WrittenGroups, space: &Arc<Space>) -> Result<()> {
    let is_ours = |written: &WrittenGroup| Arc::ptr_eq(written.allocation.space(), space);
    assert!(groups.groups.iter().all(is_ours), "row groups of another database");
    let types = |schema: &TableSchema| -> Vec<_> {
        schema
            .columns
            .iter()
            .map(|column| (scan_type(&column.data_type), column.nullable))
            .collect()
    };
    if types(&version.schema) == types(&groups.schema) {
        return Ok(());
    }
    Err(StoreError::Mismatch {
        table: version.schema.name.clone(),
        problem: "they were written for other columns".into(),
    })
}

/// Makes one row group of those to be joined.
async fn execute(
    join: Join,
    version: &TableVersion,
    (space, access): (&Arc<Space>, &Access),
    is_own: bool,
    freed: &mut Vec<Extent>,
) -> Result<(RowGroup, Option<Arc<Allocation>>)> {
    match &join.pieces[..] {
        [Piece::Old(group)] => return Ok((group.clone(), None)),
        [Piece::New(written)] => {
            return Ok((written.group.clone(), Some(written.allocation.clone())));
        }
        _ => {}
    }
    let joined = joined(&join.pieces, version, (space, access), (is_own, false)).await?;
    assert_eq!(u64::from(joined.group.rows), join.rows, "joining keeps the rows");
    freed.extend(join.pieces.iter().filter_map(|piece| match piece {
        Piece::Old(group) => Some(group.extent),
        Piece::New(_) | Piece::Loose(..) => None,
    }));
    Ok((joined.group, Some(joined.allocation)))
}

/// Writes one row group of what is left of row groups of a table, which ascend, on a worker. Its pages stay in memory if they are few, or
/// on request, as long as there is room.
pub(crate) async fn join_groups(
    groups: &[RowGroup],
    version: &TableVersion,
    (space, access): (&Arc<Space>, &Access),
    keeps: bool,
) -> Result<WrittenGroup> {
    let pieces: Vec<Piece> = groups.iter().map(|group| Piece::Old(group.clone())).collect();
    joined(&pieces, version, (space, access), (false, keeps)).await
}

/// Writes one row group of pieces: own rows of a transaction with their deleted rows.
async fn joined(
    pieces: &[Piece],
    version: &TableVersion,
    (space, access): (&Arc<Space>, &Access),
    (is_own, keeps): (bool, bool),
) -> Result<WrittenGroup> {
    let hints = no_hints(version.schema.columns.len());
    let mut encoding = Encoding::new(&version.schema);
    for (column, hint) in hints.iter().enumerate() {
        let mut arrays = Vec::with_capacity(pieces.len());
        for piece in pieces {
            if let Piece::Loose(_, _, batches) = piece {
                arrays.extend(batches.iter().map(|columns| columns[column].clone()));
            }
            let Some(group) = piece.group() else { continue };
            let at = arrays.len();
            let place =
                format!("table {}, row group from row {}", version.schema.name, group.first_row);
            let decoded = decode_column(group, column, version, access, &mut arrays).await;
            decoded.map_err(|error| error.at(place))?;
            if let Some(deleted) = group.deleted.as_ref().filter(|_| !is_own) {
                retain(&mut arrays, at, deleted);
            }
        }
        encoding.add(arrays, hint).await?;
    }
    let (mut written, run) = encoding.place(space).await?;
    let pages = &written.group.pages;
    let is_short = keeps || written.group.bytes() <= KEPT_BYTES_MAX;
    let is_kept = is_own && is_short && access.source.keep(pages, (run.pages(), false));
    if !is_kept {
        let images = run.write(space).await?;
        if is_short {
            access.source.keep(pages, (&images, true));
        }
    }
    match is_own {
        true => {
            written.group.first_row = pieces[0].first_row();
            written.group.deleted = deleted_of(pieces);
        }
        false => {
            let ids = pieces.iter().flat_map(live_ids);
            (written.group.first_row, written.group.ids) = first_and_distances(ids);
        }
    }
    Ok(written)
}

/// The ids of a piece's rows that are not deleted.
fn live_ids(piece: &Piece) -> Vec<u64> {
    match piece.group() {
        Some(group) => group.live_ids(),
        None => (piece.first_row()..piece.end_row()).collect(),
    }
}

/// Leaves deleted rows of a row group out of a column, whose arrays are those from `at` on.
pub(crate) fn retain(arrays: &mut [ArrayRef], at: usize, deleted: &Deleted) {
    let mut first = 0;
    for array in &mut arrays[at..] {
        let live = deleted.live().slice(first, array.len());
        first += array.len();
        let left = filter(array, &BooleanArray::new(live, None));
        *array = left.expect("a bit for each row");
    }
}

/// The deleted rows of row groups that are joined.
fn deleted_of(pieces: &[Piece]) -> Option<Deleted> {
    let rows = pieces.iter().map(|piece| piece.rows() as usize).sum();
    let mut live = BooleanBufferBuilder::new(rows);
    for piece in pieces {
        match piece.group().and_then(|group| group.deleted.as_ref()) {
            Some(deleted) => live.append_buffer(deleted.live()),
            None => live.append_n(piece.rows() as usize, true),
        }
    }
    Deleted::of_live(live.finish())
}

/// Adds what a row group has of a column to `arrays`.
pub(crate) async fn decode_column(
    group: &RowGroup,
    column: usize,
    version: &TableVersion,
    access: &Access,
    arrays: &mut Vec<ArrayRef>,
) -> Result<()> {
    let (source, column_of) = (&access.source, &version.schema.columns[column]);
    let blocks: Vec<&Block> = group.chunks[column].blocks.iter().collect();
    let data_type = scan_type(&column_of.data_type);
    let read = source.visit(&group.pages, &blocks, PageKind::Block, Wanted::ByScan, |at, bytes| {
        let decoded = Decoder::open(bytes).and_then(|block| block.decode_as(&data_type));
        let array = decoded.map_err(|error| source.undecodable(&blocks[at].stored, error))?;
        source.check_rows(blocks[at], array.len())?;
        arrays.push(array);
        Ok(())
    });
    read.await.map_err(|(_, error)| error.at(format!("column {}", column_of.name)))
}

/// Writes the statistics of the table with what is added to it.
async fn write_statistics(
    version: &TableVersion,
    new: Statistics,
    space: &Arc<Space>,
    access: &Access,
) -> Result<(Stored, Allocation)> {
    let failed = |source| StoreError::Encode {
        place: format!("statistics of table {}", version.schema.name),
        source,
    };
    let mut statistics = match version.statistics(access).await {
        Some(old) => (**old).clone(),
        None => Statistics::none(&version.schema),
    };
    statistics.merge(new).and_then(|()| statistics.settle()).map_err(failed)?;
    let bytes = statistics.encode(version.id).map_err(failed)?;
    let allocation = space.allocate(units_of(bytes.len())).await?;
    let mut run = PageRun::new(allocation.extent(), [bytes.len()].into_iter());
    let stored = run.push(&bytes, PageKind::Statistics);
    run.write(space).await?;
    Ok((stored, allocation))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the row groups that `joins` makes of old and new ones.
    fn check(old: &[u64], new: &[u64], expected: &[u64]) {
        let mut first_row = 0;
        let mut join = |rows: u64, has_new: bool| {
            first_row += rows;
            let (first_row, has_old) = (first_row - rows, !has_new);
            Join {
                pieces: Vec::new(),
                first_row,
                end_row: first_row + rows,
                rows,
                may_have_gaps: true,
                longest: rows,
                bytes: rows,
                has_old,
                has_new,
            }
        };
        let mut joins: Vec<Join> = old.iter().map(|rows| join(*rows, false)).collect();
        joins.extend(new.iter().map(|rows| join(*rows, true)));
        let found = settle(joins.into_iter(), 65_536);
        assert_eq!(found.iter().map(|join| join.rows).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn short_row_groups_are_joined_as_in_a_binary_counter() {
        check(&[], &[1], &[1]);
        check(&[1], &[1], &[2]);
        check(&[2], &[1], &[2, 1]);
        check(&[4, 2, 1], &[1], &[8]);
        check(&[60_000], &[10], &[60_000, 10]);
        check(&[60_000], &[40_000], &[60_000, 40_000]);
        check(&[5], &[65_536, 65_536, 7], &[5, 65_536, 65_536, 7]);
    }

    #[test]
    fn loads_rewrite_neither_themselves_nor_the_table() {
        check(&[], &[30_000, 30_000, 30_000], &[30_000, 30_000, 30_000]);
        check(&[], &[10, 12, 11, 9], &[42]);
        check(&[], &[17_000, 17_000], &[17_000, 17_000]);
        // Cut very short by a lack of memory.
        check(&[], &[4_000; 33], &[64_000, 64_000, 4_000]);
        check(&[8_000; 20], &[8_000; 3], &[&[8_000; 13][..], &[64_000, 16_000]].concat());
    }
}
