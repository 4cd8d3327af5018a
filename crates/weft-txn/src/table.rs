//! Tables: rows by id, and indexes from keys to ids.
//!
//! The primary index has one entry for each key, and the row of a key keeps its id for as long as anybody may
//! see it: who inserts a key whose row is deleted revives that row. Secondary indexes have an entry for each key
//! that any version of a row has; who finds a row by one looks whether the version that it sees has the key.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_index::Tree;
use weft_rt::sync::HybridLatch;

use crate::engine::Core;
use crate::error::{Result, TxnError};
use crate::primitives::lock;
use crate::row_map::{CHUNK_ROWS, ROWS_MAX, RowMap};
use crate::version::{Kind, Shared};

/// Rows up to this number are taken to be in the second-level cache, with entry and version: a switch costs
/// more than it hides.
const CACHED_ROWS: u64 = 12 << 10;
/// Stamps of reads of what has no version, by hash. More of them make fewer false alarms.
const GRANULES: usize = 4096;
/// Ranges whose readers are told apart.
const RANGES_MAX: usize = 128;

thread_local! {
    /// Keys that are compared and not kept.
    static KEYS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a frozen row could not be read.
pub type FrozenError = Box<dyn std::error::Error + Send + Sync>;

/// What [`FrozenRows::row`] gives.
pub type FrozenRow<'a> =
    Pin<Box<dyn Future<Output = std::result::Result<Option<Box<[u8]>>, FrozenError>> + 'a>>;

/// The rows of a table that no transaction has changed since they were frozen: what a row without versions is.
pub trait FrozenRows: Send + Sync {
    /// The bytes of a row; `None` if there is no row with this id.
    fn row(&self, row: u64) -> FrozenRow<'_>;

    /// No row was frozen with this id or a larger one.
    fn end(&self) -> u64;
}

/// Makes the keys of rows.
pub trait RowKeys: Send + Sync {
    /// Appends the key that a row has in an index: 0 is the primary one, then come the secondary ones. The keys of a
    /// secondary index must not begin with each other, as those of a [`KeyEncoder`](weft_index::KeyEncoder) do not.
    fn append_key(&self, index: usize, row: &[u8], key: &mut Vec<u8>);
}

/// What a table is made of.
pub struct TableForm {
    /// Tells tables apart, also in the log.
    pub id: u32,
    /// A unique tree from primary keys to ids of rows.
    pub primary: Option<Tree>,
    /// Trees with an entry for each key and row, and whether there may be but one row of a key.
    pub secondary: Vec<(Tree, bool)>,
    /// Makes keys of rows.
    pub keys: Arc<dyn RowKeys>,
    /// The rows that have no version.
    pub frozen: Option<Arc<dyn FrozenRows>>,
    /// No index has an entry with this id or a larger one.
    pub row_end: u64,
}

/// Rows of bytes with ids, and their indexes.
pub struct Table {
    id: u32,
    pub(crate) primary: Option<Index>,
    pub(crate) secondary: Vec<Index>,
    pub(crate) rows: RowMap,
    next_row: AtomicU64,
    keys: Arc<dyn RowKeys>,
    frozen: Option<Arc<dyn FrozenRows>>,
    /// Reads of rows without a version.
    pub(crate) frozen_reads: ReadStamps,
    /// The latest commit by which a key has lost its row, of those of which nothing else is left.
    last_forgotten: AtomicU64,
    /// Address of the engine that it was added to: versions of another one's transactions would be freed too early.
    engine: usize,
}

/// An index of a table.
pub(crate) struct Index {
    pub(crate) number: usize,
    pub(crate) tree: Tree,
    pub(crate) is_unique: bool,
    /// Shared by those who give a row a key and add the entry, held exclusively by those who take entries away
    /// that no version needs: else an entry could go that is needed again.
    pub(crate) upkeep: HybridLatch,
    /// Reads of keys that had no row.
    pub(crate) absent_reads: ReadStamps,
    pub(crate) range_reads: RangeReads,
}

impl Index {
    fn new(number: usize, tree: Tree, is_unique: bool) -> Index {
        let (absent_reads, range_reads) = (ReadStamps::new(), RangeReads::default());
        Index { number, tree, is_unique, upkeep: HybridLatch::new(), absent_reads, range_reads }
    }
}

impl Table {
    /// A table of these parts.
    ///
    /// # Errors
    /// [`TxnError::Table`] if the primary tree is not unique, or a secondary one is.
    pub fn new(form: TableForm) -> Result<Table> {
        let TableForm { id, primary, secondary, keys, frozen, row_end } = form;
        let wrong = |reason: &str| Err(TxnError::Table { table: id, reason: reason.into() });
        if primary.as_ref().is_some_and(|tree| !tree.form().is_unique) {
            return wrong("the tree of its primary index may have several rows of a key");
        }
        if secondary.iter().any(|(tree, _)| tree.form().is_unique) {
            return wrong("the tree of a secondary index has one row of each key at most");
        }
        let next_row = frozen.as_ref().map_or(row_end, |frozen| frozen.end().max(row_end));
        let secondary = secondary.into_iter().enumerate();
        Ok(Table {
            id,
            primary: primary.map(|tree| Index::new(0, tree, true)),
            secondary: secondary
                .map(|(at, (tree, is_unique))| Index::new(at + 1, tree, is_unique))
                .collect(),
            rows: RowMap::new(),
            next_row: AtomicU64::new(next_row),
            keys,
            frozen,
            frozen_reads: ReadStamps::new(),
            last_forgotten: AtomicU64::new(0),
            engine: 0,
        })
    }

    /// What tells it apart.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Nothing tells any more, once this was called, that a key has lost its row by a commit at `at`.
    pub(crate) fn forget_until(&self, at: u64) {
        self.last_forgotten.fetch_max(at, Ordering::SeqCst);
    }

    /// The latest commit by which keys without a row may have lost it, as far as nothing else tells. No snapshot is before it.
    pub(crate) fn last_forgotten(&self) -> u64 {
        self.last_forgotten.load(Ordering::SeqCst)
    }

    /// Belongs to an engine from now on.
    pub(crate) fn join(&mut self, core: &Core) {
        self.engine = std::ptr::from_ref(core).addr();
    }

    #[inline]
    pub(crate) fn is_of(&self, core: &Core) -> bool {
        self.engine == std::ptr::from_ref(core).addr()
    }

    /// The first id that no row has had yet.
    pub fn row_end(&self) -> u64 {
        self.next_row.load(Ordering::Relaxed)
    }

    /// Entries of its indexes, the primary one first.
    pub fn index_entries(&self) -> Vec<u64> {
        self.primary.iter().chain(&self.secondary).map(|index| index.tree.len()).collect()
    }

    /// True if a row of this range of [`CHUNK_ROWS`](crate::CHUNK_ROWS) ids may have versions: if not, it is as it was frozen.
    pub fn is_changed(&self, chunk: u64) -> bool {
        self.rows.chunk(chunk).is_some()
    }

    pub(crate) fn take_row(&self) -> Result<u64> {
        let row = self.next_row.fetch_add(1, Ordering::Relaxed);
        if row >= ROWS_MAX {
            self.next_row.fetch_sub(1, Ordering::Relaxed);
            return Err(TxnError::RowIds { table: self.id });
        }
        Ok(row)
    }

    /// Rows with ids below `end` exist.
    pub(crate) fn note_rows(&self, end: u64) {
        self.next_row.fetch_max(end, Ordering::Relaxed);
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.row_end().div_ceil(CHUNK_ROWS)
    }

    /// True if its rows are perhaps in no cache.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.next_row.load(Ordering::Relaxed) > CACHED_ROWS
    }

    #[inline]
    pub(crate) fn index(&self, number: usize) -> Result<&Index> {
        let index = match number {
            0 => self.primary.as_ref(),
            _ => self.secondary.get(number - 1),
        };
        index.ok_or_else(|| TxnError::Table {
            table: self.id,
            reason: format!("it has no index number {number}"),
        })
    }

    pub(crate) fn key(&self, index: usize, row: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        self.keys.append_key(index, row, &mut key);
        key
    }

    /// True if two rows have the same key in an index.
    pub(crate) fn has_same_key(&self, index: usize, row: &[u8], other: &[u8]) -> bool {
        KEYS.with_borrow_mut(|keys| {
            keys.clear();
            self.keys.append_key(index, row, keys);
            let len = keys.len();
            self.keys.append_key(index, other, keys);
            let (key, other) = keys.split_at(len);
            key == other
        })
    }

    /// True if a row has this key in an index.
    pub(crate) fn has_key(&self, index: usize, row: &[u8], key: &[u8]) -> bool {
        KEYS.with_borrow_mut(|keys| {
            keys.clear();
            self.keys.append_key(index, row, keys);
            *keys == key
        })
    }

    /// The keys of a row in all indexes, one after the other with their lengths: what a version that deletes it carries.
    pub(crate) fn all_keys(&self, row: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        for index in self.primary.iter().chain(&self.secondary) {
            let key = self.key(index.number, row);
            all.extend_from_slice(&(index.number as u32).to_le_bytes());
            all.extend_from_slice(&(key.len() as u32).to_le_bytes());
            all.extend_from_slice(&key);
        }
        all
    }

    /// The keys of a version's row, or of the one that it deletes, with the numbers of their indexes.
    pub(crate) fn keys_of(&self, version: &Shared<'_>) -> Vec<(usize, Vec<u8>)> {
        if version.header().kind() == Kind::Row {
            let indexes = self.primary.iter().chain(&self.secondary);
            return indexes.map(|it| (it.number, self.key(it.number, version.bytes()))).collect();
        }
        let mut keys = Vec::new();
        let mut rest = version.bytes();
        while let Some((number, behind)) = rest.split_first_chunk::<4>()
            && let Some((len, behind)) = behind.split_first_chunk::<4>()
            && let Some((key, behind)) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)
        {
            keys.push((u32::from_le_bytes(*number) as usize, key.to_vec()));
            rest = behind;
        }
        keys
    }

    /// True if a row without versions may be a frozen one.
    #[inline]
    pub(crate) fn may_be_frozen(&self, row: u64) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| row < frozen.end())
    }

    /// The frozen bytes of a row.
    pub(crate) async fn frozen_row(&self, row: u64) -> Result<Option<Box<[u8]>>> {
        let Some(frozen) = self.frozen.as_ref().filter(|frozen| row < frozen.end()) else {
            return Ok(None);
        };
        let bytes = frozen.row(row).await;
        bytes.map_err(|source| TxnError::Frozen { table: self.id, row, source })
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({}, ids below {})", self.id, self.row_end())
    }
}

/// The two latest commit timestamps of those who have read something: two, so that a reader who changes it, too, can
/// tell others from itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Latest {
    first: u64,
    second: u64,
}

impl Latest {
    fn note(&mut self, at: u64) {
        if at > self.first {
            (self.first, self.second) = (at, self.first);
        } else if at < self.first {
            self.second = self.second.max(at);
        }
    }

    /// The latest timestamp below `at`, or a later one that is below `at` still, where that is not known.
    fn before(self, at: u64) -> u64 {
        if self.first < at {
            self.first
        } else if self.second < at {
            self.second
        } else {
            at - 1
        }
    }
}

/// Commit timestamps of those who have read what has no version of its own to note that, by hash. A reader too many is
/// a false alarm at worst.
pub(crate) struct ReadStamps(Box<[Mutex<Latest>]>);

impl ReadStamps {
    fn new() -> ReadStamps {
        ReadStamps((0..GRANULES).map(|_| Mutex::default()).collect())
    }

    fn of_hash(&self, hash: u64) -> &Mutex<Latest> {
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(mixed >> 32) as usize % GRANULES]
    }

    fn of_key(&self, key: &[u8]) -> &Mutex<Latest> {
        // FNV-1a.
        let fold = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        self.of_hash(key.iter().fold(0xCBF2_9CE4_8422_2325, fold))
    }

    pub(crate) fn note_row(&self, row: u64, at: u64) {
        lock(self.of_hash(row)).note(at);
    }

    pub(crate) fn note_key(&self, key: &[u8], at: u64) {
        lock(self.of_key(key)).note(at);
    }

    /// The latest reader before `at` of a row; it may be of another one.
    pub(crate) fn row(&self, row: u64, at: u64) -> u64 {
        lock(self.of_hash(row)).before(at)
    }

    /// The latest reader before `at` of a key; it may be of another one.
    pub(crate) fn key(&self, key: &[u8], at: u64) -> u64 {
        lock(self.of_key(key)).before(at)
    }
}

/// The ranges of keys that serializable transactions have read, with their commit timestamps.
#[derive(Default)]
pub(crate) struct RangeReads(Mutex<KnownRanges>);

#[derive(Default)]
struct KnownRanges {
    /// Ranges by what all their keys begin with: a key is looked for in few of them.
    by_start: HashMap<Vec<u8>, Vec<(KeyRange, Latest)>>,
    /// How many starts there are of each length, of those that there are.
    starts: Vec<(usize, usize)>,
    /// All of them, the oldest first.
    order: VecDeque<KeyRange>,
    /// Of ranges that are not told apart any more.
    others: Latest,
}

/// Keys from `low` on and below `high`; all where that is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) low: Option<Vec<u8>>,
    pub(crate) high: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| key >= low)
            && self.high.as_deref().is_none_or(|high| key < high)
    }
}

impl KeyRange {
    /// What all keys of the range begin with.
    fn start(&self) -> &[u8] {
        let (Some(low), Some(high)) = (&self.low, &self.high) else { return &[] };
        let shared = low.iter().zip(high).take_while(|(low, high)| low == high).count();
        &low[..shared]
    }
}

impl KnownRanges {
    /// The oldest range is not told apart any more.
    fn forget_oldest(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        let start = oldest.start();
        let Some(ranges) = self.by_start.get_mut(start) else { return };
        let place = ranges.iter().position(|(range, _)| *range == oldest);
        if let Some((_, latest)) = place.map(|place| ranges.swap_remove(place)) {
            self.others.note(latest.first);
            self.others.note(latest.second);
        }
        if ranges.is_empty() {
            self.by_start.remove(start);
            let place = self.starts.iter().position(|(len, _)| *len == start.len());
            if let Some(place) = place {
                self.starts[place].1 -= 1;
                if self.starts[place].1 == 0 {
                    self.starts.swap_remove(place);
                }
            }
        }
    }
}

impl RangeReads {
    /// A transaction with this commit timestamp has read a range.
    pub(crate) fn note(&self, range: &KeyRange, at: u64) {
        let start = range.start();
        let mut known = lock(&self.0);
        let ranges = known.by_start.get_mut(start);
        let same = ranges.and_then(|ranges| ranges.iter_mut().find(|(other, _)| other == range));
        if let Some((_, latest)) = same {
            latest.note(at);
            return;
        }
        if known.order.len() == RANGES_MAX {
            known.forget_oldest();
        }
        known.order.push_back(range.clone());
        let latest = Latest { first: at, second: 0 };
        if let Some(ranges) = known.by_start.get_mut(start) {
            ranges.push((range.clone(), latest));
            return;
        }
        known.by_start.insert(start.to_vec(), vec![(range.clone(), latest)]);
        match known.starts.iter_mut().find(|(len, _)| *len == start.len()) {
            Some((_, count)) => *count += 1,
            None => known.starts.push((start.len(), 1)),
        }
    }

    /// The latest reader before `at` of a range with this key; it may be of another range.
    pub(crate) fn latest(&self, key: &[u8], at: u64) -> u64 {
        let known = lock(&self.0);
        let starts = known.starts.iter().filter_map(|(len, _)| key.get(..*len));
        let ranges = starts.filter_map(|start| known.by_start.get(start)).flatten();
        let ranges = ranges.filter(|(range, _)| range.contains(key));
        ranges.map(|(_, latest)| latest.before(at)).fold(known.others.before(at), u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_ranges_are_known_or_taken_for_all() {
        let reads = RangeReads::default();
        let range = |low: u8, high: u8| KeyRange { low: Some(vec![low]), high: Some(vec![high]) };
        reads.note(&range(3, 5), 10);
        reads.note(&range(4, 8), 12);
        reads.note(&range(4, 8), 11);
        assert_eq!((reads.latest(&[3], 99), reads.latest(&[4], 99)), (10, 12));
        // Of the second range two are known, of which the one before 12 is 11.
        assert_eq!(
            (reads.latest(&[4], 12), reads.latest(&[5], 12), reads.latest(&[8], 99)),
            (11, 11, 0)
        );
        assert_eq!(reads.latest(&[5], 11), 10, "not known: the latest that is possible");
        for number in 0..RANGES_MAX as u64 {
            reads.note(
                &KeyRange { low: None, high: Some(number.to_be_bytes().to_vec()) },
                20 + number,
            );
        }
        assert_eq!(reads.latest(&[9], 99), 12, "of a range that is not told apart any more");
    }
}
