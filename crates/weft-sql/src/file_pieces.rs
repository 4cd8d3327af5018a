//! How much of files is read at a time, where memory is short.
//!
//! A reader of Parquet files holds the bytes of a whole row group, of all columns that are wanted, until it has decoded
//! them, and reserves none of it. Where the part of the memory limit that a reader may have is less, a row group is read in
//! several pieces, as if they were files of their own, of which the reader fetches only the pages.
//! That takes an index of the pages, which most writers write; a row group without one is read as a whole. Of all
//! formats, fewer rows are decoded at a time.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, ParquetSource,
};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use weft_rt::memory::Ledger;

use crate::pipelines::file_scan;
use crate::plan_node::Plan;

/// Of the memory limit, the part that all readers of a scan may hold of what they have not decoded.
const HELD_PART: u64 = 8;

/// Bytes that a reader should be able to hold.
const HELD_MIN: u64 = 1 << 20;

/// The memory limit from which on readers decode as many rows at a time as others.
const ALL_ROWS_FROM: u64 = 128 << 20;

/// Rows that are decoded at a time, at least.
const ROWS_MIN: usize = 512;

/// How many readers a scan may have with this memory limit in bytes.
pub(crate) fn streams_max(limit_bytes: u64) -> usize {
    (limit_bytes / HELD_PART / HELD_MIN).clamp(1, 1 << 16) as usize
}

/// Rows that are decoded at a time, of `rows`, with this memory limit.
fn batch_rows(rows: usize, limit_bytes: u64) -> usize {
    let part = limit_bytes.min(ALL_ROWS_FROM) as f64 / ALL_ROWS_FROM as f64;
    rows.min(ROWS_MIN.max((rows as f64 * part) as usize))
}

/// Has scans of files hold less at a time, if the memory limit is low.
pub(crate) struct FilePieces {
    ledger: Ledger,
    environment: Arc<RuntimeEnv>,
}

impl FilePieces {
    /// Knows the limit from `ledger`, and what lies where in files from what `environment` has cached.
    pub(crate) fn new(ledger: Ledger, environment: Arc<RuntimeEnv>) -> FilePieces {
        FilePieces { ledger, environment }
    }
}

impl fmt::Debug for FilePieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FilePieces")
    }
}

impl PhysicalOptimizerRule for FilePieces {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> DfResult<Plan> {
        let limit = self.ledger.limit();
        let files = self.environment.cache_manager.get_file_metadata_cache();
        let rows = options.execution.batch_size.get();
        let rewritten = plan.transform_up(|node| {
            let Some((leaf, scan)) = file_scan(&node) else { return Ok(Transformed::no(node)) };
            let held = limit / HELD_PART / scan.file_groups.len().max(1) as u64;
            let groups = in_pieces(scan, held, files.as_ref());
            let fewer = batch_rows(rows, limit);
            if groups.is_none() && fewer == rows {
                return Ok(Transformed::no(node));
            }
            let mut scan = FileScanConfigBuilder::from(scan.clone());
            if let Some(groups) = groups {
                // Each reader takes those of its own, in their order: rows that are written keep it.
                scan = scan.with_file_groups(groups).with_preserve_order(true);
            }
            let scan = scan.with_batch_size(Some(fewer)).build();
            Ok(Transformed::yes(Arc::new(leaf.clone().with_data_source(Arc::new(scan)))))
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "file_pieces"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The files of a scan, in pieces of at most about `held` bytes; `None` if they are to be read as they are.
fn in_pieces(
    scan: &FileScanConfig,
    held: u64,
    cache: &FileMetadataCache,
) -> Option<Vec<FileGroup>> {
    scan.file_source().downcast_ref::<ParquetSource>()?;
    // Of pieces of one file nobody sees that they follow each other, and the first rows would be counted by row groups.
    if !scan.output_ordering.is_empty() || scan.limit.is_some() {
        return None;
    }
    let table = scan.file_source().table_schema().table_schema();
    let projection = scan.file_source().projection();
    let wanted = projection.map_or_else(
        || (0..table.fields().len()).collect(),
        |projection| projection.column_indices(),
    );
    let filtered = scan.file_source().filter().into_iter().flat_map(|filter| {
        let columns = collect_columns(&filter);
        columns.into_iter().map(|column| column.index())
    });
    let fields = wanted.into_iter().chain(filtered).filter_map(|at| table.fields().get(at));
    let columns: HashSet<&str> = fields.map(|field| field.name().as_str()).collect();
    let mut is_divided = false;
    let groups = scan.file_groups.iter().map(|group| {
        let mut files = Vec::new();
        for file in group.iter() {
            match pieces_of(file, &columns, held, cache) {
                Some(pieces) => {
                    is_divided = true;
                    files.extend(pieces);
                }
                None => files.push(file.clone()),
            }
        }
        FileGroup::new(files)
    });
    let groups = groups.collect();
    is_divided.then_some(groups)
}

/// A file, or a range of it, in pieces; `None` if it is to be read as it is.
fn pieces_of(
    file: &PartitionedFile,
    columns: &HashSet<&str>,
    held: u64,
    cache: &FileMetadataCache,
) -> Option<Vec<PartitionedFile>> {
    if file.extensions.get::<ParquetAccessPlan>().is_some() {
        return None;
    }
    let known = cache.get(&file.object_meta.location)?;
    if !known.is_valid_for(&file.object_meta) {
        return None;
    }
    let metadata: &CachedParquetMetaData = known.file_metadata.as_any().downcast_ref()?;
    let metadata = metadata.parquet_metadata();
    let row_groups = metadata.row_groups();
    let none = || ParquetAccessPlan::new_none(row_groups.len());
    let (mut pieces, mut whole) = (Vec::new(), none());
    for (number, row_group) in row_groups.iter().enumerate() {
        if !is_in_range(file, row_group) {
            continue;
        }
        let starts = piece_starts(metadata, number, columns, held);
        if starts.len() <= 1 {
            whole.scan(number);
            continue;
        }
        let rows = row_group.num_rows() as usize;
        let ends = starts.iter().skip(1).copied().chain([rows]);
        for (start, end) in starts.iter().copied().zip(ends) {
            let selectors = [
                RowSelector::skip(start),
                RowSelector::select(end - start),
                RowSelector::skip(rows - end),
            ];
            let selectors = selectors.into_iter().filter(|selector| selector.row_count > 0);
            let mut piece = none();
            piece.scan(number);
            piece.scan_selection(number, RowSelection::from(selectors.collect::<Vec<_>>()));
            pieces.push(piece);
        }
    }
    if pieces.is_empty() {
        return None;
    }
    if !whole.row_group_indexes().is_empty() {
        pieces.push(whole);
    }
    let piece = |plan| {
        let mut piece = file.clone().with_extension(plan);
        // The rows that are wanted are those of the plan.
        piece.range = None;
        piece
    };
    Some(pieces.into_iter().map(piece).collect())
}

/// True if whoever reads a range of a file reads this row group, as DataFusion decides it.
fn is_in_range(file: &PartitionedFile, row_group: &RowGroupMetaData) -> bool {
    let Some(range) = &file.range else { return true };
    let Some(first) = row_group.columns().first() else { return true };
    range.contains(first.dictionary_page_offset().unwrap_or_else(|| first.data_page_offset()))
}

/// The rows that pieces of a row group begin with: first rows of pages of the column that has most bytes.
fn piece_starts(
    metadata: &ParquetMetaData,
    row_group: usize,
    columns: &HashSet<&str>,
    held: u64,
) -> Vec<usize> {
    let chunks = metadata.row_group(row_group).columns().iter().enumerate();
    let wanted = chunks.filter(|(_, chunk)| {
        chunk.column_path().parts().first().is_some_and(|name| columns.contains(name.as_str()))
    });
    let bytes = |chunk: &parquet::file::metadata::ColumnChunkMetaData| {
        chunk.compressed_size().max(0) as u64
    };
    let sizes: Vec<(u64, usize)> = wanted.map(|(at, chunk)| (bytes(chunk), at)).collect();
    let all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    let index = metadata.offset_index().and_then(|index| index.get(row_group));
    let (Some((_, largest)), Some(index), true) = (sizes.iter().max(), index, all > held) else {
        return vec![0];
    };
    let Some(pages) = index.get(*largest).map(|pages| pages.page_locations()) else {
        return vec![0];
    };
    let rows = metadata.row_group(row_group).num_rows().max(1) as usize;
    let rows_max = (rows as u64 * held / all) as usize;
    let firsts = || pages.iter().map(|page| page.first_row_index.max(0) as usize);
    let ends = firsts().skip(1).chain([rows]);
    let mut starts = vec![0];
    let mut last = 0;
    for (first, end) in firsts().zip(ends) {
        if first > last && end > last + rows_max {
            starts.push(first);
            last = first;
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_and_rows_follow_the_limit() {
        assert_eq!(streams_max(1 << 20), 1);
        assert_eq!(streams_max(24 << 20), 3);
        assert!(streams_max(8 << 30) > 1_000);
        assert_eq!(batch_rows(8_192, 1 << 30), 8_192);
        assert_eq!(batch_rows(8_192, 64 << 20), 4_096);
        assert_eq!(batch_rows(8_192, 1 << 20), ROWS_MIN);
        assert_eq!(batch_rows(100, 1 << 20), 100);
    }
}
