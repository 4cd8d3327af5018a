//! The rows that have come to a table, a row group at a time: from them keys are made.

use arrow_array::{Array, ArrayRef, BooleanArray};

use crate::append::decode_column;
use crate::error::{Result, StoreError};
use crate::index::maintain::Maintenance;
use crate::row_group::RowGroup;

/// The ids of rows: one follows the other, unless rows between them are deleted.
pub(crate) enum RowIds {
    From(u64),
    Listed(Vec<u64>),
}

impl RowIds {
    /// The id of a row.
    pub(crate) fn at(&self, row: usize) -> u64 {
        match self {
            RowIds::From(first) => first + row as u64,
            RowIds::Listed(ids) => ids[row],
        }
    }
}

/// The rows of a table from one on, a row group at a time.
pub(crate) struct NewRows<'a> {
    work: &'a Maintenance<'a>,
    first_row: u64,
    /// Segments that are still to come, the next one last.
    segments: Option<Vec<usize>>,
    group: usize,
}

impl<'a> NewRows<'a> {
    pub(crate) fn new(work: &'a Maintenance<'a>, first_row: u64) -> NewRows<'a> {
        NewRows { work, first_row, segments: None, group: 0 }
    }

    /// The values of columns in the next row group, without deleted rows, with the ids of the rows.
    pub(crate) async fn next(
        &mut self,
        columns: &[usize],
    ) -> Result<Option<(RowIds, Vec<ArrayRef>)>> {
        let Maintenance { version, access } = self.work;
        let count = version.schema.columns.len();
        let at_table = |error: StoreError| error.at(format!("table {}", version.schema.name));
        if self.segments.is_none() {
            let mut segments = Vec::new();
            for number in (0..version.segments.len()).rev() {
                let loaded = version.segments[number].load(access, version.id, count).await;
                let first = loaded.map_err(at_table)?.groups.first().map(|group| group.first_row);
                segments.push(number);
                if first.is_none_or(|first| first <= self.first_row) {
                    break;
                }
            }
            self.segments = Some(segments);
        }
        let segments = self.segments.as_mut().expect("they were found");
        while let Some(number) = segments.last() {
            let loaded = version.segments[*number].load(access, version.id, count).await;
            let loaded = loaded.map_err(at_table)?.clone();
            let Some(group) = loaded.groups.get(self.group) else {
                segments.pop();
                self.group = 0;
                continue;
            };
            self.group += 1;
            if group.end_row() <= self.first_row {
                continue;
            }
            let skipped = group.rows_before(self.first_row);
            let mut arrays = Vec::with_capacity(columns.len());
            for column in columns {
                let array = self.column(group, *column).await?;
                arrays.push(array.slice(skipped, array.len() - skipped));
            }
            let places = skipped..group.rows as usize;
            if group.deleted.is_none() && group.ids.is_none() {
                let first_row = group.first_row + skipped as u64;
                return Ok(Some((RowIds::From(first_row), arrays)));
            }
            let ids = group.ids_of(places.clone());
            let Some(deleted) = &group.deleted else {
                return Ok(Some((RowIds::Listed(ids.values().to_vec()), arrays)));
            };
            let live = deleted.live().slice(skipped, places.len());
            let ids = live.set_indices().map(|row| ids.value(row)).collect();
            let mask = BooleanArray::new(live, None);
            let left = arrays.iter().map(|array| {
                arrow_select::filter::filter(array, &mask).expect("a bit for each row")
            });
            return Ok(Some((RowIds::Listed(ids), left.collect())));
        }
        Ok(None)
    }

    async fn column(&self, group: &RowGroup, column: usize) -> Result<ArrayRef> {
        let Maintenance { version, access } = self.work;
        let mut arrays = Vec::new();
        let decoded = decode_column(group, column, version, access, &mut arrays).await;
        let first_row = group.first_row;
        decoded.map_err(|error| {
            error.at(format!("table {}, row group from row {first_row}", version.schema.name))
        })?;
        if let [array] = &arrays[..] {
            return Ok(array.clone());
        }
        let parts: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        arrow_select::concat::concat(&parts).map_err(|error| StoreError::Request {
            table: version.schema.name.clone(),
            problem: error.to_string(),
        })
    }
}
