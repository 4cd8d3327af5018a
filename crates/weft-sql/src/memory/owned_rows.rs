//! Scans pass on pieces of larger arrays, and sorts rows whose texts lie in the arrays of many batches. An
//! operator that keeps such a piece keeps all of these arrays, and asks for memory for all of them with each
//! piece: sorts spill many times too soon, merges run out of memory. A node below them copies what is only a
//! small part of what it keeps in memory.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use super::passing::{Kind, Step, put_below};
use crate::physical_rule::PhysicalRule;

/// Rows are copied if they keep so many times their own size in memory.
const COPIED_FROM: usize = 2;

/// Puts a node that copies pieces of larger arrays below each sort that keeps its input, and below merges.
pub(crate) const OWNED_ROWS: PhysicalRule = PhysicalRule {
    name: "owned_rows",
    rewrite: |plan| {
        put_below(plan, Kind { name: "OwnedRowsExec", step }, |node| {
            // A top-k sort copies the rows that it keeps.
            node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none())
                || node.is::<SortPreservingMergeExec>()
                || node.is::<SortMergeJoinExec>()
        })
    },
};

fn step(_: usize, _: &TaskContext) -> Step {
    Box::new(|batch| Ok(owned(batch)?))
}

/// The bytes that the rows of an array need.
fn own_bytes(array: &dyn Array) -> usize {
    let views = |lengths: &mut dyn Iterator<Item = u32>| -> usize {
        lengths.map(|length| if length > 12 { 16 + length as usize } else { 16 }).sum()
    };
    match array.data_type() {
        DataType::Utf8View => views(&mut array.as_string_view().lengths()),
        DataType::BinaryView => views(&mut array.as_binary_view().lengths()),
        _ => array.to_data().get_slice_memory_size().unwrap_or(usize::MAX / 64),
    }
}

/// The batch with arrays of its own, if those that it has are much larger.
fn owned(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let own: usize = batch.columns().iter().map(|column| own_bytes(column)).sum();
    if batch.num_rows() == 0 || get_record_batch_memory_size(&batch) < COPIED_FROM * own {
        return Ok(batch);
    }
    let mut copied = BatchCoalescer::new(batch.schema(), batch.num_rows());
    copied.push_batch(batch.clone())?;
    copied.finish_buffered_batch()?;
    Ok(copied.next_completed_batch().unwrap_or(batch))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let texts = (0..rows).map(|row| (row % 3 != 0).then(|| format!("a text of row {row}")));
        let texts: ArrayRef = Arc::new(texts.collect::<StringViewArray>());
        RecordBatch::try_from_iter([("n", numbers), ("s", texts)]).unwrap()
    }

    #[test]
    fn pieces_are_copied_and_whole_batches_are_not() {
        let whole = batch(10_000);
        let piece = whole.slice(7_000, 100);
        let copied = owned(piece.clone()).unwrap();
        assert_eq!(copied, piece);
        let (kept, had) =
            (get_record_batch_memory_size(&copied), get_record_batch_memory_size(&whole));
        assert!(kept < had / 20, "{kept} of {had} bytes");
        let same = owned(whole.clone()).unwrap();
        assert!(Arc::ptr_eq(same.column(0), whole.column(0)));
        assert_eq!(owned(whole.slice(5, 0)).unwrap().num_rows(), 0);
    }
}
