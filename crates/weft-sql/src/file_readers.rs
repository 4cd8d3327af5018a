//! How much of files is read at a time, where memory is short: fewer readers, each of which decodes fewer rows at a time.
//!
//! What a reader of files holds until it has decoded it, of Parquet the bytes of a row group of all columns that are wanted, it does
//! not reserve.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
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
pub(crate) fn batch_rows(rows: usize, limit_bytes: u64) -> usize {
    let part = limit_bytes.min(ALL_ROWS_FROM) as f64 / ALL_ROWS_FROM as f64;
    rows.min(ROWS_MIN.max((rows as f64 * part) as usize))
}

/// Has scans of files decode fewer rows at a time, if the memory limit is low.
pub(crate) struct FileReaders {
    ledger: Ledger,
}

impl FileReaders {
    /// Knows the limit from `ledger`.
    pub(crate) fn new(ledger: Ledger) -> FileReaders {
        FileReaders { ledger }
    }
}

impl fmt::Debug for FileReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileReaders")
    }
}

impl PhysicalOptimizerRule for FileReaders {
    fn optimize(&self, plan: Plan, options: &ConfigOptions) -> DfResult<Plan> {
        let limit = self.ledger.limit();
        let rows = options.execution.batch_size.get();
        let fewer = batch_rows(rows, limit);
        if fewer == rows {
            return Ok(plan);
        }
        let rewritten = plan.transform_up(|node| {
            let Some((leaf, scan)) = file_scan(&node) else { return Ok(Transformed::no(node)) };
            let scan =
                FileScanConfigBuilder::from(scan.clone()).with_batch_size(Some(fewer)).build();
            Ok(Transformed::yes(Arc::new(leaf.clone().with_data_source(Arc::new(scan)))))
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        "file_readers"
    }

    fn schema_check(&self) -> bool {
        true
    }
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
