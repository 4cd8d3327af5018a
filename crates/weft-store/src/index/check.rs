//! Comparing an index with its table: the keys of all rows, and the entries of the tree, have to be the same.
//!
//! Both are gone through once, in whatever order: what is compared is how many there are, and sums of their hashes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use weft_rt::yield_now;

use weft_index::Direction;

use crate::error::Result;
use crate::index::key_run::KeyRun;
use crate::index::maintain::Maintenance;
use crate::index::new_rows::NewRows;
use crate::index::overlay::LayerEntry;
use crate::index::version::IndexVersion;
use crate::table::Table;

/// Entries after which others may run.
const TURN_ENTRIES: u64 = 1_024;

/// What a set of entries comes to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    entries: u64,
    sum: u64,
    folded: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], row: u64, included: &[u8]) {
        let mut hasher = DefaultHasher::new();
        (key, row, included).hash(&mut hasher);
        let hash = hasher.finish();
        self.entries += 1;
        self.sum = self.sum.wrapping_add(hash);
        self.folded ^= hash.rotate_left((hash & 63) as u32);
    }
}

impl Table {
    /// Compares an index with the table; says what is wrong. On any executor.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`](crate::StoreError::NoSuchIndex); what keeps index or table from being read.
    pub async fn check_index(self: &Arc<Self>, name: &str) -> Result<Option<String>> {
        let index = self.index(name)?.clone();
        let table = self.clone();
        let runtime = &self.access.runtime;
        runtime.spawn(move || async move { check(&table, &index).await }).await?
    }
}

async fn check(table: &Table, index: &IndexVersion) -> Result<Option<String>> {
    let (version, access) = (&table.version, &*table.access);
    let definition = index.definition();
    let failed = |source| definition.error(&version.schema, source);
    let mut there = Sum::default();
    for layer in index.layers(version, access).await? {
        let mut before = None::<(Vec<u8>, u64)>;
        let mut range = layer.range(None, None, Direction::Forwards);
        while let Some(LayerEntry { key, row, included }) = range.next().await.map_err(failed)? {
            if let Some((key_before, row_before)) = &before
                && (&key_before[..], *row_before) >= (&key[..], row)
            {
                let rows = format!("rows {row_before} and {row}");
                return Ok(Some(format!("its entries of {rows} are not in order")));
            }
            there.add(&key, row, &included);
            before = Some((key.into_owned(), row));
            if there.entries % TURN_ENTRIES == 0 {
                yield_now().await;
            }
        }
    }
    let work = Maintenance { version, access };
    let encoder = definition.entry_encoder(&version.schema)?;
    let form = definition.form();
    let (mut rows, numbers) = (NewRows::new(&work, 0), definition.all_numbers());
    let mut wanted = Sum::default();
    while let Some((ids, columns)) = rows.next(&numbers).await? {
        let mut run = KeyRun::new(&access.ledger, definition.is_unique);
        run.add(&encoder, &columns, &ids).map_err(failed)?;
        let entries = run.entries();
        entries.for_each(|(key, row, beside)| wanted.add(&form.full_key(key, row), row, beside));
        yield_now().await;
    }
    Ok(match (there.entries == wanted.entries, there == wanted) {
        (_, true) => None,
        (false, _) => {
            let (entries, rows) = (there.entries, wanted.entries);
            Some(format!("it has {entries} entries where the table has {rows} rows"))
        }
        (true, false) => Some("its entries are not those of the table's rows".to_owned()),
    })
}
