//! Scans: the rows whose keys are in a range, in the order of an index; and those whose ids are, in their order.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use weft_index::{Direction, Mode};
use weft_rt::prefetch_line;

use crate::chain::Chain;
use crate::error::{Result, TxnError};
use crate::table::{KeyRange, Table};
use crate::transaction::{RowBytes, Transaction};

/// Rows of a scan that are waited for at once, at first and at most: about as many lines as a core fetches at a time.
const ROWS_AT_ONCE_FIRST: usize = 4;
const ROWS_AT_ONCE_MAX: usize = 16;

impl<M: Mode> Transaction<'_, M> {
    /// The rows with these primary keys, in their order, as [`Transaction::get`] gives them: the pointers of `width` keys are
    /// followed at a time, without other transactions in between (CoroBase, section 4.6: operations of many keys remain,
    /// by AMAC in the index and by stages behind it).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn multi_get<'t, K: AsRef<[u8]>>(
        &'t self,
        table: &Arc<Table>,
        keys: &[K],
        width: usize,
    ) -> Result<Vec<Option<RowBytes<'t>>>> {
        let rows = self.multi_find(table, keys, width).await?;
        let mut found = Vec::with_capacity(keys.len());
        for (row, key) in rows.into_iter().zip(keys) {
            let seen = match row {
                // It was asked for above.
                Some(row) => match self.read_newest(table, row) {
                    Some(found) => found,
                    None => self.read_present(table, row).await?,
                },
                None => None,
            };
            if seen.is_none() {
                self.note_absent(table, key.as_ref());
            }
            found.push(seen);
        }
        Ok(found)
    }

    /// The ids that the primary index has for these keys, in their order; `None` for a key without one. The rows may be deleted, or
    /// not be seen: what [`Transaction::update_row`] and [`Transaction::get_row`] look at comes to the caches meanwhile, as in
    /// [`Transaction::multi_get`].
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn multi_find<K: AsRef<[u8]>>(
        &self,
        table: &Arc<Table>,
        keys: &[K],
        width: usize,
    ) -> Result<Vec<Option<u64>>> {
        self.open_operation(table)?;
        let rows = table.index(0)?.tree.multi_get_amac(keys, width).await?;
        let chains = rows.iter().map(|row| row.and_then(|row| table.rows.chain(row)));
        let chains: Vec<_> = chains.collect();
        chains.iter().flatten().for_each(|chain| prefetch_line(chain.place()));
        for place in chains.iter().flatten().map(|chain| chain.head_place()) {
            prefetch_line(place);
            prefetch_line(place.wrapping_add(48));
        }
        Ok(rows)
    }

    /// Gives each row to `visit` whose key in an index is not below `low` and below `high`, with its id, until that breaks
    /// off; all rows where a bound is `None`. Gives the number of rows that were visited. For a serializable transaction
    /// the range counts as read up to where it broke off.
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
        let mut place = 0;
        if self.is_serializable() {
            let range = KeyRange { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
            let ranges = &mut self.reads.borrow_mut().ranges;
            place = ranges.len();
            ranges.push((table.clone(), index, range));
        }
        let mut entries = tree.range_rows(self.mode, low, high, direction);
        let (mut visited, mut width) = (0, ROWS_AT_ONCE_FIRST);
        while entries.next().await? {
            let mut start = 0;
            while start < entries.rows().len() {
                let end = entries.rows().len().min(start + width);
                let at_once = &entries.rows()[start..end];
                if M::SUSPENDS {
                    M::call(self.come_to_all(table, at_once)).await;
                }
                for (at, &row) in at_once.iter().enumerate() {
                    let found = match M::SUSPENDS {
                        true => match self.read_newest(table, row) {
                            Some(found) => found,
                            None => M::call(self.read_present(table, row)).await?,
                        },
                        false => M::call(self.read(table, row)).await?,
                    };
                    let Some(bytes) = found else { continue };
                    // A row has entries for the keys of all its versions in a secondary index.
                    if index > 0 && !table.has_key(index, &bytes, entries.key(start + at)) {
                        continue;
                    }
                    visited += 1;
                    if visit(row, &bytes).is_break() {
                        if self.is_serializable() {
                            self.narrow(place, direction, table.key(index, &bytes), row);
                        }
                        return Ok(visited);
                    }
                }
                start = end;
                width = (2 * width).min(ROWS_AT_ONCE_MAX);
            }
        }
        Ok(visited)
    }

    /// Gives each row with one of these ids to `visit`, without an index: for queries that read most of a table.
    ///
    /// # Errors
    /// [`TxnError`] of reading a frozen row, or if the transaction is serializable: rows that others add are not noticed.
    pub async fn scan_rows(
        &self,
        table: &Arc<Table>,
        ids: Range<u64>,
        mut visit: impl FnMut(u64, &[u8]),
    ) -> Result<()> {
        self.open_operation(table)?;
        if self.is_serializable() {
            let reason = "its rows cannot be scanned by their ids in a serializable transaction: scan an index";
            return Err(TxnError::Table { table: table.id(), reason: reason.into() });
        }
        let end = ids.end.min(table.row_end());
        let mut start = ids.start;
        let mut at_once = Vec::with_capacity(ROWS_AT_ONCE_MAX);
        while start < end {
            let next = end.min(start + ROWS_AT_ONCE_MAX as u64);
            if M::PREFETCHES {
                at_once.clear();
                at_once.extend(start..next);
                M::call(self.come_to_all(table, &at_once)).await;
            }
            for row in start..next {
                let found = match self.read_newest(table, row) {
                    Some(found) => found,
                    None => M::call(self.read_present(table, row)).await?,
                };
                if let Some(bytes) = found {
                    visit(row, &bytes);
                }
            }
            start = next;
        }
        Ok(())
    }

    /// A scan has broken off at a row: what lies behind it was not read.
    fn narrow(&self, place: usize, direction: Direction, mut key: Vec<u8>, row: u64) {
        let (_, index, range) = &mut self.reads.borrow_mut().ranges[place];
        if direction == Direction::Backwards {
            range.low = Some(key);
            return;
        }
        if *index > 0 {
            key.extend_from_slice(&row.to_be_bytes());
        }
        key.push(0);
        range.high = Some(key);
    }

    /// As [`Transaction::come_to`] for each of some rows, with one wait for the entries of all of them and one for the versions.
    async fn come_to_all(&self, table: &Table, rows: &[u64]) {
        if !table.is_waited_for() {
            return;
        }
        let chains = || rows.iter().filter_map(|&row| table.rows.chain(row));
        chains().for_each(|chain| prefetch_line(chain.place()));
        self.mode.pause().await;
        for place in chains().map(Chain::head_place) {
            prefetch_line(place);
            prefetch_line(place.wrapping_add(48));
        }
        self.mode.pause().await;
    }
}
