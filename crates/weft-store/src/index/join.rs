//! Rows of a table by keys of one of its indexes, many keys at a time: the inner side of an index-nested-loop join (Umbra's
//! asynchronous one, section 5).
//!
//! Keys are encoded as the index has them and looked up in their order, each once, beside each other. The ids that they
//! lead to are sorted, so that each block is read once, and all reads of a round are in flight together. What keys match
//! comes in rounds of bounded size, however many rows have one key. Where entries of the index have all columns that are asked for,
//! those of conditions among them, rows are told from them and not fetched.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};
use weft_codec::{Block, Compression, Options, Predicate};
use weft_index::{EntryBytes, KeyColumn, KeyEncoder, Keys, PrefixCursor, PrefixRound};

use crate::error::{Result, StoreError};
use crate::fetch::{Wish, fetch_where, retain_live};
use crate::index::definition::Covering;
use crate::index::overlay::Layer;
use crate::index::probe::{Ordered, ProbeCode, ProbeKeys, ProbeRound, Probing, ROWS_MAX, timed};
use crate::index::version::IndexVersion;
use crate::table::Table;

/// Lookups that run beside each other.
const WIDTH: usize = 32;

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
    keys_by_code: AtomicU64,
    found: AtomicU64,
    fetched: AtomicU64,
}

/// What lookups of an index have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLookupStats {
    /// Different keys that were looked up in each vector.
    pub keys: u64,
    /// Those of them that code has looked up.
    pub keys_by_code: u64,
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
    way: Way,
    /// Whether keys have all columns of the index.
    is_of_whole_keys: bool,
    descending: Duration,
}

/// How keys are looked up.
#[derive(Debug)]
enum Way {
    /// By cursors, one for each different key, in each of the trees that the index consists of.
    Cursors { ordered: Ordered, cursors: Vec<Vec<PrefixCursor>> },
    /// By code.
    Code(Probing),
}

/// What lookups have found in a tree: keys by number and ids of rows, and the rows' entries if they are wanted.
type FoundRows = (Vec<(u32, u64)>, EntryBytes);

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
        let Counts { keys, keys_by_code, found, fetched } = &self.counts;
        let [keys, keys_by_code, found, fetched] =
            [keys, keys_by_code, found, fetched].map(|count| count.load(Ordering::Relaxed));
        KeyLookupStats { keys, keys_by_code, found, fetched }
    }

    /// The keys of the rows of these arrays that have no NULL, and the numbers of the rows.
    fn encoded(&self, keys: &[ArrayRef]) -> Result<(Keys, Vec<u32>)> {
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
        Ok((encoded, numbers))
    }

    /// Begins to look up keys: rows of these arrays, which are values of the first columns of the index, in the types of
    /// the table's scans. A key with a NULL matches nothing. With code, that looks them up.
    ///
    /// # Errors
    /// [`StoreError::Index`] if the arrays are not of the columns' types.
    pub fn begin(
        self: &Arc<Self>,
        keys: &[ArrayRef],
        code: Option<Arc<dyn ProbeCode>>,
    ) -> Result<KeyLookups> {
        let (encoded, numbers) = self.encoded(keys)?;
        let ordered = Ordered::of_keys(encoded, &numbers);
        self.counts.keys.fetch_add(ordered.len() as u64, Ordering::Relaxed);
        Ok(match code {
            None => {
                let cursors = || (0..ordered.len()).map(|key| PrefixCursor::new(ordered.get(key)));
                let layers = 0..self.index.layer_count();
                let cursors = layers.map(|_| cursors().collect()).collect();
                self.lookups(Way::Cursors { ordered, cursors }, keys.len())
            }
            Some(code) => {
                let ordered = ordered.into();
                let of_code = ProbeKeys { tuples: Vec::new(), key_bytes: 0, ordered };
                self.lookups(Way::Code(Probing::new(code, of_code)), keys.len())
            }
        })
    }

    /// Begins to look up the keys that code makes of tuples, of the first `columns` columns of the index.
    ///
    /// # Panics
    /// If the code does not make keys.
    pub fn begin_tuples(
        self: &Arc<Self>,
        tuples: Vec<u64>,
        columns: usize,
        code: Arc<dyn ProbeCode>,
    ) -> KeyLookups {
        let key_bytes = code.key_bytes().expect("code that makes keys");
        let keys = ProbeKeys { tuples, key_bytes, ordered: OnceCell::new() };
        self.lookups(Way::Code(Probing::new(code, keys)), columns)
    }

    fn lookups(self: &Arc<Self>, way: Way, columns: usize) -> KeyLookups {
        let is_of_whole_keys = columns == self.encoder.columns().len();
        KeyLookups { lookup: self.clone(), way, is_of_whole_keys, descending: Duration::ZERO }
    }

    /// The columns of the index's keys.
    pub fn key_columns(&self) -> &[KeyColumn] {
        self.encoder.columns()
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

    /// Goes on with cursors of a tree, for a round.
    async fn go_on(
        &self,
        layer: &Layer<'_>,
        cursors: &mut [PrefixCursor],
        rows_max: usize,
    ) -> Result<FoundRows> {
        let tree = &layer.opened.tree;
        let failed = |source| self.index.definition().error(self.table.schema(), source);
        let (mut found, mut entries) = match &self.covering {
            Some(_) => {
                let found = tree.multi_prefix_entries(cursors, WIDTH, rows_max).await;
                let (found, entries) = found.map_err(failed)?;
                // Rows of later commits are in the tree as well.
                shown(found, &entries, |row| layer.shows(row))
            }
            None => {
                let found = tree.multi_prefix(cursors, WIDTH, rows_max).await;
                let mut found = found.map_err(failed)?;
                found.retain(|(_, row)| layer.shows(*row));
                (found, EntryBytes::new())
            }
        };
        let wanted = self.covering.is_some().then_some(&mut entries);
        layer.add_past(cursors, &mut found, wanted);
        Ok((found, entries))
    }

    /// Goes on with keys that code looks up, for a round; `None` if there is nothing to go on with.
    async fn probe(
        &self,
        layers: &[Layer<'_>],
        probing: &mut Probing,
        is_of_whole_keys: bool,
    ) -> Result<Option<FoundRows>> {
        if let Some(layer) = layers.get(probing.layer)
            && !probing.left.is_empty()
        {
            let left = std::mem::take(&mut probing.left);
            let (numbers, mut cursors): (Vec<u32>, Vec<PrefixCursor>) = left.into_iter().unzip();
            let rows_max = probing.keys.ordered().rows_max();
            let (mut found, entries) = self.go_on(layer, &mut cursors, rows_max).await?;
            found.iter_mut().for_each(|(number, _)| *number = numbers[*number as usize]);
            let of_numbers = numbers.into_iter().zip(cursors);
            probing.left = of_numbers.filter(|(_, cursor)| !cursor.has_ended()).collect();
            return Ok(Some((found, entries)));
        }
        if probing.keys.ordered.get().is_some_and(|ordered| probing.next == ordered.len()) {
            (probing.layer, probing.next) = (probing.layer + 1, 0);
        }
        let Some(layer) = layers.get(probing.layer) else { return Ok(None) };
        let (first, tree) = (probing.next, &layer.opened.tree);
        let rows_max = probing.keys.ordered.get().map_or(ROWS_MAX, Ordered::rows_max);
        let found = PrefixRound::new(rows_max, is_of_whole_keys, self.covering.is_some());
        let are_made_now = probing.keys.ordered.get().is_none();
        let round = ProbeRound::new(&probing.keys, tree, &found);
        let probed = probing.code.probe(&round, first).await;
        let ordered = probing.keys.ordered();
        if are_made_now {
            self.counts.keys.fetch_add(ordered.len() as u64, Ordering::Relaxed);
        }
        if probing.layer == 0 {
            let looked_up = (probed.next - first) as u64;
            self.counts.keys_by_code.fetch_add(looked_up, Ordering::Relaxed);
        }
        probing.next = probed.next;
        let found = found.into_found();
        if let Some(source) = found.failed {
            return Err(self.index.definition().error(self.table.schema(), *source));
        }
        probing.left = found.left;
        let mut rows = found.rows;
        rows.extend(probed.rows.iter().map(|[number, row]| (*number as u32, *row)));
        let (mut rows, mut entries) = match found.entries {
            Some(entries) => shown(rows, &entries, |row| layer.shows(row)),
            None => {
                rows.retain(|(_, row)| layer.shows(*row));
                (rows, EntryBytes::new())
            }
        };
        if layer.has_past() {
            let mut cursors: Vec<PrefixCursor> =
                (0..probing.next).map(|key| PrefixCursor::looked_up(ordered.get(key))).collect();
            // Keys of earlier rounds are none that this one has looked up.
            for (key, cursor) in cursors.iter_mut().enumerate().take(first) {
                *cursor = PrefixCursor::new(ordered.get(key));
            }
            for (key, cursor) in &probing.left {
                cursors[*key as usize] = cursor.clone();
            }
            let wanted = self.covering.is_some().then_some(&mut entries);
            layer.add_past(&cursors, &mut rows, wanted);
        }
        Ok(Some((rows, entries)))
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
        let definition = lookup.index.definition();
        let failed = |source| definition.error(lookup.table.schema(), source);
        loop {
            let mut descending = Duration::ZERO;
            let found = timed(self.find(&layers), &mut descending).await;
            self.descending += descending;
            let Some((found, entries)) = found? else { return Ok(None) };
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
    }

    /// How long the processor was busy with keys and with finding the ids of rows.
    pub fn descending(&self) -> Duration {
        self.descending
    }

    /// Different keys; those that code makes are known once it has run.
    pub fn keys(&self) -> usize {
        self.ordered().map_or(0, Ordered::len)
    }

    /// For each of so many tuples whether its key has no NULL, once the keys are made.
    pub fn have_keys(&self, tuples: usize) -> BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(tuples);
        bits.append_n(tuples, false);
        let numbers = self.ordered().map_or(&[][..], |ordered| &ordered.numbers);
        numbers.iter().for_each(|number| bits.set_bit(*number as usize, true));
        bits.finish()
    }

    fn ordered(&self) -> Option<&Ordered> {
        match &self.way {
            Way::Cursors { ordered, .. } => Some(ordered),
            Way::Code(probing) => probing.keys.ordered.get(),
        }
    }

    /// The rows that a round finds in one of the trees, those that have left it among them; `None` if no more can be found.
    async fn find(&mut self, layers: &[Layer<'_>]) -> Result<Option<FoundRows>> {
        let lookup = self.lookup.clone();
        match &mut self.way {
            Way::Cursors { ordered, cursors } => {
                let goes_on = |of: &Vec<PrefixCursor>| of.iter().any(|of| !of.has_ended());
                let Some(at) = cursors.iter().position(goes_on) else { return Ok(None) };
                lookup.go_on(&layers[at], &mut cursors[at], ordered.rows_max()).await.map(Some)
            }
            Way::Code(probing) => lookup.probe(layers, probing, self.is_of_whole_keys).await,
        }
    }
    /// The pairs of keys and rows, of which `ids` are left.
    fn pairs(&self, found: &[(u32, u64)], ids: &[u64]) -> (Vec<u32>, Vec<u32>) {
        let (mut keys, mut rows) = (Vec::with_capacity(found.len()), Vec::new());
        let Some(ordered) = self.ordered() else { return (keys, rows) };
        for (cursor, id) in found {
            let Ok(row) = ids.binary_search(id) else { continue };
            let cursor = *cursor as usize;
            let start = if cursor == 0 { 0 } else { ordered.ends[cursor - 1] };
            let equal = &ordered.numbers[start as usize..ordered.ends[cursor] as usize];
            keys.extend_from_slice(equal);
            rows.resize(keys.len(), row as u32);
        }
        (keys, rows)
    }
}
