//! The relation `weft_cache`: what is kept of files that are elsewhere, and what came from where.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::catalog::{MemTable, TableProvider};
use weft_remote::Remote;

use crate::error::Result;

/// The relation's name.
pub(crate) const RELATION: &str = "weft_cache";

/// One row.
///
/// # Errors
/// None that are known.
pub(crate) fn table(remote: &Remote) -> Result<Arc<dyn TableProvider>> {
    let (options, stats) = (remote.cache(), remote.cache_stats());
    let text = |value: Option<String>| -> ArrayRef { Arc::new(StringViewArray::from(vec![value])) };
    let count = |value: u64| -> ArrayRef {
        Arc::new(Int64Array::from(vec![i64::try_from(value).unwrap_or(i64::MAX)]))
    };
    let directory = options.directory.filter(|_| options.bytes_max > 0);
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("directory", text(directory.map(|directory| directory.display().to_string())), true),
        ("bytes_max", count(options.bytes_max), true),
        ("bytes", count(stats.bytes), true),
        ("blocks", count(stats.blocks), true),
        ("bytes_from_cache", count(stats.bytes_from_cache), true),
        ("bytes_from_network", count(stats.bytes_from_network), true),
        ("bytes_evicted", count(stats.bytes_evicted), true),
        ("problem", text(stats.problem), true),
    ])?;
    Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}
