//! The morsels of a file: row groups, and parts of large ones.

use datafusion::datasource::physical_plan::parquet::RowGroupAccess;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use weft_parquet::Piece;

/// Rows of a piece of a row group whose pages have an index, at least and at most, about; a row group is divided if it has twice as
/// many. Each piece of a row group reads the dictionaries of its columns anew.
const PIECE_ROWS: (usize, usize) = (128 << 10, 512 << 10);

/// Pieces for each worker, about, where files have so many rows.
const PIECES_PER_WORKER: usize = 8;

/// Rows of a part of a row group, at least.
const PART_ROWS_MIN: usize = 16 << 10;

/// How pieces are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Bytes that may be in flight.
    pub(super) bytes_max: u64,
    pub(super) files: usize,
    pub(super) workers: usize,
}

impl Cut {
    /// Rows of a piece of a file with so many, one of several that are alike, about.
    fn piece_rows(self, rows: usize) -> usize {
        let all = rows.saturating_mul(self.files);
        let (least, most) = PIECE_ROWS;
        (all / (self.workers.max(1) * PIECES_PER_WORKER)).clamp(least, most)
    }
}

/// The pieces of the row groups that are left of a file, in their order.
pub(super) fn pieces(
    metadata: &ParquetMetaData,
    access: Vec<RowGroupAccess>,
    columns: &[usize],
    cut: Cut,
) -> Vec<Piece> {
    let rows = usize::try_from(metadata.file_metadata().num_rows()).unwrap_or_default();
    let piece_rows = cut.piece_rows(rows);
    let mut pieces = Vec::new();
    for (row_group, access) in access.into_iter().enumerate() {
        let rows = usize::try_from(metadata.row_group(row_group).num_rows()).unwrap_or_default();
        let selection = match access {
            RowGroupAccess::Skip => continue,
            RowGroupAccess::Scan => None,
            RowGroupAccess::Selection(selection) => Some(selection),
        };
        let whole = Piece { row_group, rows: selected(&selection, rows), selection };
        if whole.rows == 0 {
            continue;
        }
        let starts = page_starts(metadata, &whole, columns, rows, piece_rows, cut.bytes_max);
        divide(whole, &starts, rows, &mut pieces);
    }
    pieces
}

/// Divides a row group without an index of pages into so many pieces, each of which reads the chunks as a whole, but decodes only
/// its own rows.
pub(super) fn divided(piece: Piece, parts: usize, rows: usize, pieces: &mut Vec<Piece>) {
    let part = rows.div_ceil(parts.max(1)).max(PART_ROWS_MIN);
    let starts: Vec<usize> = (0..rows).step_by(part).collect();
    divide(piece, &starts, rows, pieces);
}

fn selected(selection: &Option<RowSelection>, rows: usize) -> usize {
    selection.as_ref().map_or(rows, RowSelection::row_count)
}

/// Divides a piece of a row group with so many rows where parts start.
fn divide(piece: Piece, starts: &[usize], rows: usize, pieces: &mut Vec<Piece>) {
    if starts.len() < 2 {
        pieces.push(piece);
        return;
    }
    let ends = starts.iter().skip(1).copied().chain([rows]);
    for (start, end) in starts.iter().zip(ends) {
        let part = RowSelection::from_consecutive_ranges(std::iter::once(*start..end), rows);
        let selection = match &piece.selection {
            Some(selection) => selection.intersection(&part),
            None => part,
        };
        let selected = selection.row_count();
        if selected > 0 {
            let selection = Some(selection);
            pieces.push(Piece { row_group: piece.row_group, selection, rows: selected });
        }
    }
}

/// Where parts of a row group start: at pages of its largest column that is wanted, if pages have an index.
fn page_starts(
    metadata: &ParquetMetaData,
    piece: &Piece,
    columns: &[usize],
    rows: usize,
    piece_rows: usize,
    bytes_max: u64,
) -> Vec<usize> {
    let Some(offsets) = metadata.offset_index() else { return Vec::new() };
    let Some(offsets) = offsets.get(piece.row_group) else { return Vec::new() };
    let schema = metadata.file_metadata().schema_descr();
    let chunks = metadata.row_group(piece.row_group).columns().iter().enumerate();
    let wanted = chunks.filter(|(leaf, _)| columns.contains(&schema.get_column_root_idx(*leaf)));
    let largest = wanted.max_by_key(|(_, chunk)| chunk.byte_range().1);
    let Some((largest, _)) = largest else { return Vec::new() };
    let bytes = Piece { selection: None, rows, ..piece.clone() }.bytes(metadata, columns);
    // As many rows as may be in flight several times.
    let by_bytes = (rows as u128 * u128::from(bytes_max / 8) / u128::from(bytes.max(1))) as usize;
    let part = piece_rows.min(by_bytes).max(PART_ROWS_MIN);
    if rows < 2 * part {
        return Vec::new();
    }
    let mut starts: Vec<usize> = vec![0];
    let pages = offsets.get(largest).map(|of| of.page_locations().as_slice()).unwrap_or_default();
    for page in pages {
        let start = usize::try_from(page.first_row_index).unwrap_or_default();
        if starts.last().is_some_and(|last| start >= last + part) && start < rows {
            starts.push(start);
        }
    }
    starts
}
