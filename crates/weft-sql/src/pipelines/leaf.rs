//! Leaves of plans that DataFusion executes for pipelines: scans of files, series of numbers, relations that the catalog
//! makes, and the rows of a recursive query's last step. (Most scans of Parquet files are sources of their own: `parquet_scan`.)
//!
//! Reading and decoding are theirs, all else is the pipelines'. A scan of files gives as many streams as there are threads, as
//! long as nothing depends on the order of its rows; fewer where there is little memory, as each reads pages of all columns.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;

use crate::file_readers::streams_max;
use crate::file_scan::FilesExec;
use crate::index_scan::IndexScanExec;
use crate::plan_node::Plan;

/// The scan of files that a leaf is.
pub(crate) fn file_scan(plan: &Plan) -> Option<(&DataSourceExec, &FileScanConfig)> {
    let leaf = plan.downcast_ref::<DataSourceExec>()?;
    Some((leaf, leaf.data_source().downcast_ref::<FileScanConfig>()?))
}

/// The leaf as this many threads read it with this memory limit in bytes.
///
/// # Errors
/// Those of DataFusion when it divides the files.
pub(super) fn divided(
    plan: &Plan,
    threads: usize,
    limit_bytes: u64,
    options: &ConfigOptions,
) -> DfResult<Plan> {
    let Some((leaf, scan)) = file_scan(plan) else { return Ok(plan.clone()) };
    let is_fixed = !scan.output_ordering.is_empty()
        || scan.limit.is_some()
        || scan.preserve_order
        || scan.output_partitioning.is_some();
    let streams = threads.min(streams_max(limit_bytes)).max(1);
    if is_fixed || scan.file_groups.len() == streams {
        return Ok(plan.clone());
    }
    if scan.file_groups.len() > streams {
        let mut groups = vec![FileGroup::default(); streams];
        for (number, group) in scan.file_groups.iter().enumerate() {
            group.iter().for_each(|file| groups[number % streams].push(file.clone()));
        }
        let scan = FileScanConfigBuilder::from(scan.clone()).with_file_groups(groups).build();
        return Ok(Arc::new(leaf.clone().with_data_source(Arc::new(scan))));
    }
    Ok(plan.repartitioned(streams, options)?.unwrap_or_else(|| plan.clone()))
}

/// What a leaf is, for EXPLAIN.
pub(super) fn in_words(plan: &Plan) -> String {
    if let Some(files) = plan.downcast_ref::<FilesExec>() {
        return format!("scan of {}", files.label());
    }
    if let Some(lookup) = plan.downcast_ref::<IndexScanExec>() {
        return lookup.in_words();
    }
    let Some((_, scan)) = file_scan(plan) else { return format!("rows of {}", plan.name()) };
    let files = scan.file_groups.iter().flat_map(FileGroup::iter);
    let mut paths: Vec<&str> = files.map(|file| file.object_meta.location.as_ref()).collect();
    paths.sort_unstable();
    paths.dedup();
    match paths[..] {
        [path] => {
            let name = Path::new(path).file_name().unwrap_or(path.as_ref());
            format!("scan of {}", name.to_string_lossy())
        }
        _ => format!("scan of {} {} files", paths.len(), scan.file_source().file_type()),
    }
}
