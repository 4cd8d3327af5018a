//! Window functions that need all rows at once keep them without asking for memory. A node below them asks
//! for it: so such a statement fails, and says what it lacks, before the process has more than it may.

use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_plan::windows::WindowAggExec;

use super::consumer::WINDOW;
use super::passing::{Kind, Step, put_below};
use crate::physical_rule::PhysicalRule;

/// What is held of each row: the row, and its copy among all rows in one piece.
const COPIES: usize = 2;

/// Puts a node that asks for memory below each window function that needs all rows at once.
pub(crate) const HELD_ROWS: PhysicalRule = PhysicalRule {
    name: "held_rows",
    rewrite: |plan| {
        put_below(plan, Kind { name: "HeldRowsExec", step }, |node| node.is::<WindowAggExec>())
    },
};

/// Reserves memory for all rows, until it is dropped.
fn step(partition: usize, context: &TaskContext) -> Step {
    let memory = MemoryConsumer::new(format!("{WINDOW}[{partition}]"));
    let memory = memory.register(context.memory_pool());
    let mut counter = RecordBatchMemoryCounter::new();
    Box::new(move |batch| {
        memory.try_grow(counter.count_batch(&batch) * COPIES)?;
        Ok(batch)
    })
}
