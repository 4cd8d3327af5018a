//! Rows of a table by keys of one of its indexes, many keys at a time: the inner side of an index-nested-loop join (Umbra's
//! asynchronous one, section 5).
//!
//! Keys are encoded as the index has them and looked up in their order, each once, beside each other. The ids that they
//! lead to are sorted, so that each block is read once, and all reads of a round are in flight together. What keys match
//! comes in rounds of bounded size, however many rows have one key. Where entries of the index have all columns that are asked for,
//! those of conditions among them, rows are told from them and not fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use weft_codec::{Block, Compression, Options, Predicate};
use weft_index::{EntryBytes, KeyEncoder, Keys, PrefixCursor};

use crate::error::{Result, StoreError};
use crate::fetch::{Wish, fetch_where, retain_live};
use crate::index::definition::Covering;
use crate::index::version::IndexVersion;
use crate::table::Table;

/// Lookups that run beside each other.
const WIDTH: usize = 32;
/// Rows that are fetched in a round, about.
const ROWS_MAX: usize = 2_048;
/// Pairs of a key and a row in a round, about.
const PAIRS_MAX: usize = 8_192;

/// How values of entries are put into a block for a moment.
const AS_THEY_ARE: Options = Options { cascade_depth: 0, compression: Compression::None };

/// What a join asks of an index.
#[derive(Clone, Debug)]
pub struct KeyLookupOptions {
    /// The index's name.
    pub index: String,
    /// Columns of the rows, by number, in the order in which they are to come.
    pub projection: Vec<usize>,
    /// Conditions that rows have to satisfy, on columns by number.
    pub conditions: Vec<(usize, Predicate)>,
    /// Row groups that one coroutine reads at a time, at most.
    pub depth: usize,
}

/// Looks up keys in an index, and fetches the rows.
#[derive(Debug)]
pub struct KeyLookup {
    table: Arc<Table>,
    index: IndexVersion,
    encoder: KeyEncoder,
    /// Tells the rows' values from entries, if these have all columns that are asked for: first those that are to come, then those of
    /// conditions.
    covering: Option<Covering>,
    options: KeyLookupOptions,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    keys: AtomicU64,
    found: AtomicU64,
    fetched: AtomicU64,
}

/// What lookups of an index have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLookupStats {
    /// Different keys that were looked up in each vector.
    pub keys: u64,
    /// Rows that the index has led to.
    pub found: u64,
    /// Rows that columns were fetched of.
    pub fetched: u64,
}

/// What of a table keeps it unknown that a key has no match in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknowns {
    /// Whether the table has rows.
    pub has_rows: bool,
    /// Whether one of them has NULL in the first column of the index.
    pub has_null: bool,
}

/// Some keys on their way through the index.
#[derive(Debug)]
pub struct KeyLookups {
    lookup: Arc<KeyLookup>,
    /// One for each different key, in each of the trees that the index consists of.
    cursors: Vec<Vec<PrefixCursor>>,
    /// The numbers of the keys, those that are equal beside each other, and where those of each cursor end.
    numbers: Vec<u32>,
    ends: Vec<u32>,
    /// How many equal keys there are, at most.
    equal_max: usize,
}

/// What some keys match: pairs of a key and a row.
#[derive(Debug)]
pub struct KeyMatches {
    /// For each pair the number of the key.
    pub keys: Vec<u32>,
    /// For each pair the number of its row in `columns`.
    pub rows: Vec<u32>,
    /// The values of the rows, an array for each column that was asked for.
    pub columns: Vec<ArrayRef>,
}

/// Columns of rows, and which rows satisfy the conditions, if there are some: of those alone are the columns.
type Fetched = (Vec<ArrayRef>, Option<BooleanBuffer>);

impl Table {
    /// Lookups of keys in an index.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`]; [`StoreError::Request`] if there is no such column.
    pub fn key_lookup(self: &Arc<Self>, options: KeyLookupOptions) -> Result<Arc<KeyLookup>> {
        let index = self.index(&options.index)?.clone();
        self.check_columns(&options.projection)?;
        self.check_columns(options.conditions.iter().map(|(column, _)| column))?;
        let encoder = index.definition().encoder(self.schema())?;
        let conditioned = options.conditions.iter().map(|(column, _)| *column);
        let wanted: Vec<usize> = options.projection.iter().copied().chain(conditioned).collect();
        let covering = match wanted.is_empty() {
            true => None,
            false => index.definition().covering(self.schema(), &wanted).transpose()?,
        };
        let (table, counts) = (self.clone(), Counts::default());
        Ok(Arc::new(KeyLookup { table, index, encoder, covering, options, counts }))
    }

    /// The share of an index's nodes that is in memory, 0 to 1, and how many levels it has, as far as it was used yet.
    ///
    /// # Errors
    /// [`StoreError::NoSuchIndex`].
    pub fn index_residence(&self, index: &str) -> Result<Option<(f64, usize)>> {
        let opened = self.index(index)?.opened();
        Ok(opened.map(|opened| (opened.tree.hot_share(SAMPLED), opened.tree.height())))
    }
}

/// Nodes that are looked at to know how many are in memory.
const SAMPLED: u64 = 256;

impl KeyLookup {
    /// What it has done so far.
    pub fn stats(&self) -> KeyLookupStats {
        let Counts { keys, found, fetched } = &self.counts;
        let [keys, found, fetched] =
            [keys, found, fetched].map(|count| count.load(Ordering::Relaxed));
        KeyLookupStats { keys, found, fetched }
    }

    /// Begins to look up keys: rows of these arrays, which are values of the first columns of the index, in the types of
    /// the table's scans. A key with a NULL matches nothing.
    ///
    /// # Errors
    /// [`StoreError::Index`] if the arrays are not of the columns' types.
    pub fn begin(self: &Arc<Self>, keys: &[ArrayRef]) -> Result<KeyLookups> {
        let rows = keys.first().map_or(0, |array| array.len());
        let nulls = keys.iter().fold(None, |nulls: Option<NullBuffer>, array| {
            NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref())
        });
        let mut encoded = Keys::new();
        let numbers: Vec<u32> = match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => {
                self.encode(keys, &mut encoded)?;
                (0..rows as u32).collect()
            }
            Some(nulls) => {
                let valid = BooleanArray::new(nulls.inner().clone(), None);
                let filtered = keys.iter().map(|array| arrow_select::filter::filter(array, &valid));
                let filtered: std::result::Result<Vec<ArrayRef>, _> = filtered.collect();
                let filtered = filtered.map_err(|error| self.request(error.to_string()))?;
                self.encode(&filtered, &mut encoded)?;
                nulls.valid_indices().map(|number| number as u32).collect()
            }
        };
        let mut order: Vec<u32> = (0..encoded.len() as u32).collect();
        order.sort_unstable_by(|a, b| encoded.get(*a as usize).cmp(encoded.get(*b as usize)));
        let (mut different, mut ends) = (Vec::new(), Vec::new());
        for (at, place) in order.iter().enumerate() {
            let key = encoded.get(*place as usize);
            let is_equal = at > 0 && encoded.get(order[at - 1] as usize) == key;
            match ends.last_mut() {
                Some(end) if is_equal => *end = at as u32 + 1,
                _ => {
                    different.push(key);
                    ends.push(at as u32 + 1);
                }
            }
        }
        let starts = std::iter::once(&0).chain(&ends);
        let equal_max = starts.zip(&ends).map(|(start, end)| (end - start) as usize).max();
        let numbers = order.iter().map(|at| numbers[*at as usize]).collect();
        self.counts.keys.fetch_add(different.len() as u64, Ordering::Relaxed);
        let cursors = || different.iter().map(|key| PrefixCursor::new(key)).collect();
        let cursors = (0..self.index.layer_count()).map(|_| cursors()).collect();
        let equal_max = equal_max.unwrap_or(1);
        Ok(KeyLookups { lookup: self.clone(), cursors, numbers, ends, equal_max })
    }

    fn encode(&self, keys: &[ArrayRef], encoded: &mut Keys) -> Result<()> {
        let definition = self.index.definition();
        let made = self.encoder.encode(keys, encoded);
        made.map_err(|source| definition.error(self.table.schema(), source))
    }

    fn request(&self, problem: String) -> StoreError {
        StoreError::Request { table: self.table.schema().name.clone(), problem }
    }

    /// The rows of these ids, which ascend, in the columns that were asked for, and which of them satisfy the conditions.
    async fn fetch(&self, ids: &[u64]) -> Result<Fetched> {
        let KeyLookupOptions { projection, conditions, depth, .. } = &self.options;
        if projection.is_empty() && conditions.is_empty() {
            return Ok((Vec::new(), None));
        }
        self.counts.fetched.fetch_add(ids.len() as u64, Ordering::Relaxed);
        let Table { version, access, .. } = &*self.table;
        let wish = Wish { projection, conditions, depth: *depth };
        let (columns, kept) = fetch_where(version, access, ids, wish).await?;
        self.filtered(columns, kept)
    }

    /// Columns without the rows that are not kept.
    fn filtered(&self, columns: Vec<ArrayRef>, kept: Option<BooleanBuffer>) -> Result<Fetched> {
        let Some(kept) = kept else { return Ok((columns, None)) };
        let mask = BooleanArray::new(kept.clone(), None);
        let columns = columns.iter().map(|array| arrow_select::filter::filter(array, &mask));
        let columns: std::result::Result<Vec<ArrayRef>, _> = columns.collect();
        Ok((columns.map_err(|error| self.request(error.to_string()))?, Some(kept)))
    }

    /// The columns that were asked for, of these and behind them those of the conditions, without rows that do not satisfy the
    /// conditions; and which rows do.
    fn satisfying(&self, mut columns: Vec<ArrayRef>) -> Result<Fetched> {
        let conditioned = columns.split_off(self.options.projection.len());
        let conditions = self.options.conditions.iter().zip(&conditioned);
        let kept = conditions.map(|((number, predicate), array)| {
            let failed = |source| StoreError::Encode {
                place: format!("column {}", self.table.schema().columns[*number].name),
                source,
            };
            // As a block has them, so that a condition says of them what it says of those.
            let bytes = weft_codec::encode(array, &AS_THEY_ARE).map_err(failed)?;
            let block = Block::open(&bytes).map_err(failed)?;
            block.filter(predicate).map_err(failed)
        });
        let kept: Vec<BooleanBuffer> = kept.collect::<Result<_>>()?;
        self.filtered(columns, kept.into_iter().reduce(|a, b| &a & &b))
    }

    /// What keeps it unknown that a key has no match.
    ///
    /// # Errors
    /// [`StoreError::Index`] if the index cannot be read or is damaged; those of reading the table.
    pub async fn unknowns(&self) -> Result<Unknowns> {
        let Table { version, access, .. } = &*self.table;
        let mut unknowns = Unknowns { has_rows: self.table.rows() > 0, has_null: false };
        let Some(first) = self.encoder.columns().first().filter(|column| column.is_nullable) else {
            return Ok(unknowns);
        };
        let mut null = Keys::new();
        self.encode(&[new_null_array(&first.data_type, 1)], &mut null)?;
        let definition = self.index.definition();
        for layer in self.index.layers(version, access).await? {
            let mut cursors = [PrefixCursor::new(null.get(0))];
            while !unknowns.has_null && !cursors[0].has_ended() {
                let found = layer.opened.tree.multi_prefix(&mut cursors, 1, ROWS_MAX).await;
                let failed = |source| definition.error(self.table.schema(), source);
                let mut found = found.map_err(failed)?;
                found.retain(|(_, row)| layer.shows(*row));
                layer.add_past(&cursors, &mut found, None);
                let mut ids: Vec<u64> = found.iter().map(|(_, row)| *row).collect();
                ids.sort_unstable();
                retain_live(version, access, &mut ids).await?;
                unknowns.has_null = !ids.is_empty();
            }
        }
        Ok(unknowns)
    }

    /// True if rows are told from the entries of the index, and not fetched.
    pub fn is_index_only(&self) -> bool {
        let KeyLookupOptions { projection, conditions, .. } = &self.options;
        self.covering.is_some() || projection.is_empty() && conditions.is_empty()
    }
}

/// What was found, and the entries of it, without rows that do not count.
pub(crate) fn shown(
    found: Vec<(u32, u64)>,
    entries: &EntryBytes,
    shows: impl Fn(u64) -> bool,
) -> (Vec<(u32, u64)>, EntryBytes) {
    let (mut left, mut of_left) = (Vec::with_capacity(found.len()), EntryBytes::new());
    for (number, pair) in found.into_iter().enumerate() {
        if shows(pair.1) {
            let (key, included) = entries.get(number);
            left.push(pair);
            of_left.push(key, included);
        }
    }
    (left, of_left)
}

/// For each of the ids, which ascend, the number of an entry of it.
fn entries_of(ids: &[u64], found: &[(u32, u64)]) -> Vec<usize> {
    let mut numbers = vec![0; ids.len()];
    for (number, (_, row)) in found.iter().enumerate() {
        if let Ok(at) = ids.binary_search(row) {
            numbers[at] = number;
        }
    }
    numbers
}

impl KeyLookups {
    /// What keys match, as much of it as makes a round, on a worker; `None` when there is no more.
    ///
    /// # Errors
    /// [`StoreError::Index`] if the index cannot be read or is damaged; those of reading the table.
    pub async fn next(&mut self) -> Result<Option<KeyMatches>> {
        let lookup = self.lookup.clone();
        let Table { version, access, .. } = &*lookup.table;
        let layers = lookup.index.layers(version, access).await?;
        let goes_on = |cursors: &[PrefixCursor]| cursors.iter().any(|cursor| !cursor.has_ended());
        while let Some(at) = self.cursors.iter().position(|cursors| goes_on(cursors)) {
            let rows_max = (PAIRS_MAX / self.equal_max.max(1)).clamp(1, ROWS_MAX);
            let tree = &layers[at].opened.tree;
            let definition = lookup.index.definition();
            let failed = |source| definition.error(lookup.table.schema(), source);
            let cursors = &mut self.cursors[at];
            let (mut found, mut entries) = match &lookup.covering {
                Some(_) => {
                    let found = tree.multi_prefix_entries(cursors, WIDTH, rows_max).await;
                    let (found, entries) = found.map_err(failed)?;
                    // Rows of later commits are in the tree as well.
                    shown(found, &entries, |row| layers[at].shows(row))
                }
                None => {
                    let found = tree.multi_prefix(cursors, WIDTH, rows_max).await;
                    let mut found = found.map_err(failed)?;
                    found.retain(|(_, row)| layers[at].shows(*row));
                    (found, EntryBytes::new())
                }
            };
            let wanted = lookup.covering.is_some().then_some(&mut entries);
            layers[at].add_past(&self.cursors[at], &mut found, wanted);
            let mut ids: Vec<u64> = found.iter().map(|(_, row)| *row).collect();
            ids.sort_unstable();
            ids.dedup();
            retain_live(version, access, &mut ids).await?;
            lookup.counts.found.fetch_add(ids.len() as u64, Ordering::Relaxed);
            if ids.is_empty() {
                continue;
            }
            let (columns, kept) = match &lookup.covering {
                Some(covering) => {
                    let columns = covering.decode(&entries, &entries_of(&ids, &found));
                    lookup.satisfying(columns.map_err(failed)?)?
                }
                None => lookup.fetch(&ids).await?,
            };
            if let Some(kept) = kept {
                let mut bits = kept.iter();
                ids.retain(|_| bits.next().unwrap_or(false));
            }
            let (keys, rows) = self.pairs(&found, &ids);
            if !keys.is_empty() {
                return Ok(Some(KeyMatches { keys, rows, columns }));
            }
        }
        Ok(None)
    }

    /// The pairs of keys and rows, of which `ids` are left.
    fn pairs(&self, found: &[(u32, u64)], ids: &[u64]) -> (Vec<u32>, Vec<u32>) {
        let (mut keys, mut rows) = (Vec::with_capacity(found.len()), Vec::new());
        for (cursor, id) in found {
            let Ok(row) = ids.binary_search(id) else { continue };
            let cursor = *cursor as usize;
            let start = if cursor == 0 { 0 } else { self.ends[cursor - 1] };
            let equal = &self.numbers[start as usize..self.ends[cursor] as usize];
            keys.extend_from_slice(equal);
            rows.resize(keys.len(), row as u32);
        }
        (keys, rows)
    }
}
