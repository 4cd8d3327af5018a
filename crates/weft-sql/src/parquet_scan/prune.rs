//! Which row groups, and which of their pages, may have rows that a condition holds of.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::physical_plan::ParquetFileMetrics;
use datafusion::datasource::physical_plan::parquet::{
    BloomFilterStatistics, PagePruningAccessPlanFilter, ParquetAccessPlan, RowGroupAccess,
    RowGroupAccessPlanFilter,
};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::arrow::parquet_column;
use parquet::file::metadata::ParquetMetaData;
use weft_parquet::{OpenFile, ReadCounts, bloom_filters};

use super::node::Pruning;
use crate::plan_node::Expr;

/// What is to be read of each row group of a file.
///
/// # Errors
/// If Bloom filters cannot be read.
pub(super) async fn pruned(
    file: &OpenFile,
    physical: &SchemaRef,
    predicate: Option<&Expr>,
    pruning: Pruning,
    counts: &ReadCounts,
) -> weft_parquet::Result<Vec<RowGroupAccess>> {
    let metadata = Arc::clone(file.metadata.metadata());
    let all = ParquetAccessPlan::new_all(metadata.num_row_groups());
    let built = predicate.and_then(|predicate| {
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(physical));
        builder.with_max_in_list_size(pruning.list_max).build(Arc::clone(predicate))
    });
    let (Some(predicate), Some(built)) = (predicate, built) else { return Ok(all.into_inner()) };
    let metrics = ParquetFileMetrics::new(0, &file.name, &ExecutionPlanMetricsSet::new());
    let descriptor = metadata.file_metadata().schema_descr();
    let mut groups = RowGroupAccessPlanFilter::new(all);
    if pruning.by_statistics {
        let of_groups = metadata.row_groups();
        groups.prune_by_statistics(physical, descriptor, of_groups, &built, &metrics);
    }
    if pruning.by_bloom_filters && !groups.is_empty() {
        let filters = filters(file, &metadata, physical, &built, &groups, counts).await?;
        groups.prune_by_bloom_filters(&built, &metrics, &filters);
    }
    let mut access = groups.build();
    let has_pages = metadata.column_index().is_some() && metadata.offset_index().is_some();
    if pruning.by_pages && has_pages {
        let pages = PagePruningAccessPlanFilter::new(predicate, Arc::clone(physical));
        if pages.filter_number() > 0 {
            let plan = access;
            access =
                pages.prune_plan_with_page_index(plan, physical, descriptor, &metadata, &metrics);
        }
    }
    Ok(access.into_inner())
}

/// The Bloom filters of each row group that is left, of columns that are compared with literals.
async fn filters(
    file: &OpenFile,
    metadata: &ParquetMetaData,
    physical: &SchemaRef,
    predicate: &PruningPredicate,
    groups: &RowGroupAccessPlanFilter,
    counts: &ReadCounts,
) -> weft_parquet::Result<Vec<BloomFilterStatistics>> {
    let descriptor = metadata.file_metadata().schema_descr();
    let names = predicate.literal_columns();
    let leaf = |name: &String| Some(parquet_column(descriptor, physical, name)?.0);
    let (names, leaves): (Vec<String>, Vec<usize>) =
        names.into_iter().filter_map(|name| leaf(&name).map(|leaf| (name, leaf))).unzip();
    let mut filters = vec![BloomFilterStatistics::new(); metadata.num_row_groups()];
    for group in groups.row_group_indexes() {
        let read = bloom_filters(file, group, &leaves, counts).await?;
        for ((name, leaf), filter) in names.iter().zip(&leaves).zip(read) {
            let column = descriptor.column(*leaf);
            if let Some(filter) = filter {
                let (physical, length) = (column.physical_type(), column.type_length());
                filters[group].insert(name, filter, physical, length);
            }
        }
    }
    Ok(filters)
}
