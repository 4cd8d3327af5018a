//! Scans: the rows whose keys are in a range, in the order of an index.

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_index::{Direction, Mode};

use crate::error::Result;
use crate::table::{KeyRange, Table};
use crate::transaction::{Transaction, nested};

impl<M: Mode> Transaction<'_, M> {
    /// Gives each row to `visit` whose key in an index is not below `low` and below `high`, with its id, until that breaks
    /// off; all rows where a bound is `None`. Gives the number of rows that were visited. For a serializable transaction
    /// all of the range counts as read, visited or not.
    ///
    /// # Errors
    /// [`TxnError`](crate::TxnError) of the index or of reading a frozen row, or if the table has no such index.
    pub async fn scan(
        &self,
        table: &Arc<Table>,
        index: usize,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.open_operation(table)?;
        let tree = &table.index(index)?.tree;
        if self.is_serializable() {
            let range = KeyRange { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
            self.reads.borrow_mut().ranges.push((table.clone(), index, range));
        }
        let mut entries = tree.range(low, high, direction);
        let mut visited = 0;
        while let Some(entry) = entries.next().await? {
            let Some(bytes) = nested!(M, self.read(table, entry.row))? else { continue };
            // A row has entries for the keys of all its versions in a secondary index.
            if index > 0 && table.key(index, &bytes) != entry.key {
                continue;
            }
            visited += 1;
            if visit(entry.row, &bytes).is_break() {
                break;
            }
        }
        Ok(visited)
    }
}
