//! The tree: nodes by number, and the descent that all operations share.
//!
//! Nodes refer to each other by *numbers*, which stay, as places do not: whatever is changed is written
//! elsewhere. A number leads to a swip, and that to a page in memory or on a device, so a descent has two
//! waits: for a hot page it prefetches and suspends, for a cold one it reads and suspends (one read,
//! however many want the page). It takes no latch: it reads pages optimistically, checks that the parent
//! has not changed since it led to the child, or that the child is the one for the key, and begins anew
//! if neither is so. (Leis, Haubenschild, Neumann, "Optimistic Lock Coupling", 2019; CoroBase, section 4.)
//!
//! Levels that fit in the second-level cache are not waited for: there a switch costs more than it hides.

pub(crate) mod amac;
mod change;
pub(crate) mod directory;
mod flat;
pub(crate) mod interleave;
pub(crate) mod load;
pub(crate) mod mode;
pub(crate) mod places;
pub(crate) mod prefix_round;
pub(crate) mod prefixes;
pub(crate) mod range;
pub(crate) mod resident;
pub(crate) mod rows;

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weft_buffer::{BufferPool, OptimisticPage, PageGuard, PageId, PageTable, is_page_size};
use weft_rt::memory::Reservation;
use weft_rt::sync::HybridLatch;

use crate::error::IndexError;
use crate::node::check::{NODE_BYTES_MAX, check_node, entry_bytes_max};
use crate::node::image::NodeImage;
use crate::node::{HAS_INCLUDED, HAS_ROW, Node, SLOTS_AT, head_of};
use interleave::Interleave;
use mode::{Coroutines, Interleaved, Mode};
use places::{Places, Space};

/// Number of the root, which stays.
pub(crate) const ROOT: u32 = 0;
/// Levels that a tree may have.
pub(crate) const LEVELS_MAX: usize = 32;
/// Numbers in the first chunk; each one has twice as many as the one before.
const CHUNK_FIRST: u32 = 64;
const CHUNKS: usize = 26;
/// Bytes of nodes that are taken to be in the second-level cache, from the root down.
const CACHED_BYTES: u64 = 512 << 10;
/// Bytes of memory for each number: its swip, and its place.
const NUMBER_BYTES: u64 = 16;
/// Cache lines of a node that every search reads: what it is, and its hints.
const LINES: usize = 2;

/// Size of nodes in bytes unless another is asked for. Of 4 to 64 KiB, 8 and 16 gave most lookups in 60 million keys in memory
/// (`examples/probe.rs`): the tree has a level less than with 4. The smaller of them costs less to change.
pub const NODE_BYTES: usize = 8192;

/// What the entries of a tree are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeForm {
    /// Bytes of a node: a page's size up to 64 KiB.
    pub node_bytes: usize,
    /// Whether there is one row of each key at most. If there may be several, they are in the order of their ids,
    /// and no key may begin with another: none of a [`KeyEncoder`](crate::KeyEncoder) does.
    pub is_unique: bool,
    /// Whether rows have bytes beside their ids.
    pub has_included: bool,
}

impl TreeForm {
    /// Nodes of the usual size, without included bytes.
    pub fn new(is_unique: bool) -> TreeForm {
        TreeForm { node_bytes: NODE_BYTES, is_unique, has_included: false }
    }

    pub(crate) fn row_flags(&self) -> u8 {
        let included = if self.has_included { HAS_INCLUDED } else { 0 };
        if self.is_unique { HAS_ROW | included } else { included }
    }

    /// Most bytes of an entry.
    pub(crate) fn entry_bytes_max(&self) -> usize {
        entry_bytes_max(self.node_bytes)
    }

    /// The key that the tree has for a row.
    pub fn full_key(&self, key: &[u8], row: u64) -> Vec<u8> {
        let mut full = Vec::with_capacity(key.len() + 8);
        full.extend_from_slice(key);
        if !self.is_unique {
            full.extend_from_slice(&row.to_be_bytes());
        }
        full
    }
}

/// A B+tree on pages of a buffer pool: keys, which are byte strings, with 64-bit ids of rows.
pub struct Tree {
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) form: TreeForm,
    chunks: Box<[OnceLock<Arc<PageTable>>]>,
    places: Mutex<Places>,
    /// Held exclusively by the coroutine that splits or merges nodes.
    structure: HybridLatch,
    /// Shared by coroutines that change entries, held exclusively while the tree is written.
    writers: HybridLatch,
    entries: AtomicI64,
    /// Nodes of each level.
    level_counts: [AtomicU32; LEVELS_MAX],
    /// Levels below this one are waited for.
    waits_below: AtomicU8,
    /// What the durable tree's directory consists of: the ids of each of its levels.
    directory: Mutex<Vec<Vec<PageId>>>,
    memory: Mutex<Vec<Reservation>>,
    /// The last to go: its places are in use as long as the pool has pages of the tree.
    pub(crate) space: Arc<dyn Space>,
}

/// What a lookup comes to: an error is large, and is moved at each level.
pub(crate) type Looked<T> = Result<T, Box<IndexError>>;

/// A node that a descent has come to. Nothing read of it counts before its page was validated.
pub(crate) struct Visit<'a> {
    pub(crate) page: OptimisticPage<'a>,
    pub(crate) number: u32,
    /// Keeps a page that was read from leaving before it was looked at.
    guard: Option<PageGuard>,
}

impl Visit<'_> {
    pub(crate) fn node(&self) -> Node<OptimisticPage<'_>> {
        Node(self.page)
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn chunk_of(number: u32) -> (usize, usize) {
    let shifted = number + CHUNK_FIRST;
    let chunk = (shifted / CHUNK_FIRST).ilog2();
    (chunk as usize, (shifted - (CHUNK_FIRST << chunk)) as usize)
}

impl Tree {
    /// An empty tree, all of it in memory.
    ///
    /// # Errors
    /// [`IndexError::Space`], [`IndexError::Buffer`] and [`IndexError::Memory`] if there is no place or memory for a node.
    ///
    /// # Panics
    /// If the form has no possible size of nodes.
    pub async fn create(
        pool: Arc<BufferPool>,
        space: Arc<dyn Space>,
        form: TreeForm,
    ) -> Result<Tree, IndexError> {
        let tree = Tree::without_nodes(pool, space, form);
        let root = NodeImage::new(form.node_bytes, 0, form.row_flags(), None, None);
        let number = tree.make_node(&root).await?;
        assert_eq!(number, ROOT, "the first number is the root's");
        tree.note_nodes(0, 1);
        Ok(tree)
    }

    pub(crate) fn without_nodes(
        pool: Arc<BufferPool>,
        space: Arc<dyn Space>,
        form: TreeForm,
    ) -> Tree {
        let fits = is_page_size(form.node_bytes) && form.node_bytes <= NODE_BYTES_MAX;
        assert!(fits, "nodes of {} bytes", form.node_bytes);
        Tree {
            pool,
            form,
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            places: Mutex::new(Places::default()),
            structure: HybridLatch::new(),
            writers: HybridLatch::new(),
            entries: AtomicI64::new(0),
            level_counts: std::array::from_fn(|_| AtomicU32::new(0)),
            waits_below: AtomicU8::new(0),
            directory: Mutex::new(Vec::new()),
            memory: Mutex::new(Vec::new()),
            space,
        }
    }

    /// What its entries are.
    pub fn form(&self) -> TreeForm {
        self.form
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        u64::try_from(self.entries.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.level_counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum()
    }

    /// Number of levels.
    pub fn height(&self) -> usize {
        let has_nodes = |count: &AtomicU32| count.load(Ordering::Relaxed) > 0;
        self.level_counts.iter().take_while(|count| has_nodes(count)).count()
    }

    /// The share of the nodes that is in memory, 0 to 1, of up to `sampled` nodes that are looked at.
    pub fn hot_share(&self, sampled: u64) -> f64 {
        let nodes = self.nodes().max(1);
        let step = nodes.div_ceil(sampled.max(1)).max(1);
        let (mut looked_at, mut hot) = (0_u64, 0_u64);
        for number in (0..nodes).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let Some((table, page)) = u32::try_from(number).ok().and_then(|of| self.slot(of))
            else {
                break;
            };
            looked_at += 1;
            let is_hot = matches!(table.swip(page).state(), weft_buffer::SwipState::Hot(_));
            hot += u64::from(is_hot);
        }
        hot as f64 / looked_at.max(1) as f64
    }

    pub(crate) fn places(&self) -> MutexGuard<'_, Places> {
        locked(&self.places)
    }

    /// The table that a node is in, and its page there.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> Option<(&Arc<PageTable>, usize)> {
        if number >= u32::MAX - CHUNK_FIRST {
            return None;
        }
        let (chunk, page) = chunk_of(number);
        Some((self.chunks.get(chunk)?.get()?, page))
    }

    /// The table of a node that is about to be, and its page there.
    async fn slot_to_be(&self, number: u32) -> Result<(&Arc<PageTable>, usize), IndexError> {
        let (chunk, page) = chunk_of(number);
        let Some(cell) = self.chunks.get(chunk) else {
            let reason = "an index has so many nodes that there are no numbers left".into();
            return Err(IndexError::Space { reason });
        };
        if cell.get().is_none() {
            let numbers = u64::from(CHUNK_FIRST) << chunk;
            let memory = self.pool.ledger().reserve(numbers * NUMBER_BYTES).await?;
            let vacant = PageId::vacant(self.form.node_bytes);
            let table = PageTable::with_check((0..numbers).map(|_| vacant), check_node);
            table.keep_alive(Arc::new(self.space.clone()));
            // Another may have been first.
            if cell.set(table).is_ok() {
                locked(&self.memory).push(memory);
            }
        }
        Ok((cell.get().expect("it was made"), page))
    }

    /// Makes a node of its image, at a new place; nothing leads to it yet.
    pub(crate) async fn make_node(&self, image: &NodeImage) -> Result<u32, IndexError> {
        let number = self.places().take_number();
        let made = self.make_node_numbered(number, image).await;
        if made.is_err() {
            self.places().unused.push(number);
        }
        made.map(|()| number)
    }

    pub(crate) async fn make_node_numbered(
        &self,
        number: u32,
        image: &NodeImage,
    ) -> Result<(), IndexError> {
        image.assert_whole();
        let (table, page) = self.slot_to_be(number).await?;
        let id = self.space.allocate(self.form.node_bytes)?;
        if let Err(error) = self.pool.create(table, page, id, image.bytes()).await {
            self.space.release(id);
            return Err(error.into());
        }
        self.places().note_moved(number, None);
        Ok(())
    }

    /// Counts nodes that have come, or gone.
    pub(crate) fn note_nodes(&self, level: u8, change: i32) {
        self.level_counts[usize::from(level)].fetch_add(change as u32, Ordering::Relaxed);
        let mut bytes = 0;
        let mut waits_below = 0;
        for (level, count) in self.level_counts.iter().enumerate().rev() {
            bytes += u64::from(count.load(Ordering::Relaxed)) * self.form.node_bytes as u64;
            if bytes > CACHED_BYTES {
                waits_below = level + 1;
                break;
            }
        }
        self.waits_below.store(waits_below as u8, Ordering::Relaxed);
    }

    pub(crate) fn note_entries(&self, change: i64) {
        self.entries.fetch_add(change, Ordering::Relaxed);
    }

    /// True if a node of this level is perhaps in no cache.
    #[inline]
    pub(crate) fn is_waited_for(&self, level: u8) -> bool {
        level < self.waits_below.load(Ordering::Relaxed)
    }

    pub(crate) fn top_level(&self) -> u8 {
        (self.height().max(1) - 1) as u8
    }

    /// Comes to a node, with one of the two waits.
    async fn visit<M: Mode>(&self, mode: M, number: u32, level: u8) -> Looked<Visit<'_>> {
        let Some((table, page)) = self.slot(number) else {
            return Err(self.damaged(format!("there is no node {number}")).into());
        };
        if M::PREFETCHES && self.is_waited_for(level) && self.pool.prefetch_page(table, page, LINES)
        {
            mode.pause().await;
        }
        match self.pool.try_optimistic(table, page) {
            Some(page) => Ok(Visit { page, number, guard: None }),
            // A box, so that coroutines that find all in memory are small: this one waits for a device.
            None => Box::pin(self.visit_cold(number, table, page)).await,
        }
    }

    /// Comes to a node that is cold, or that a coroutine holds exclusively.
    async fn visit_cold(
        &self,
        number: u32,
        table: &Arc<PageTable>,
        page: usize,
    ) -> Looked<Visit<'_>> {
        loop {
            let guard = self.pool.fix(table, page).await.map_err(IndexError::from)?;
            if let Some(page) = self.pool.try_optimistic(table, page) {
                return Ok(Visit { page, number, guard: Some(guard) });
            }
        }
    }

    pub(crate) fn damaged(&self, reason: String) -> IndexError {
        IndexError::Damaged { low: "the first key".into(), high: "the last".into(), reason }
    }

    /// Looks for the place of a key in a node: what is asked for ahead depends on the node's hints.
    #[inline]
    async fn search<M: Mode>(
        &self,
        mode: M,
        visit: &Visit<'_>,
        level: u8,
        key: &[u8],
    ) -> (usize, bool) {
        let node = visit.node();
        let suffix = key.get(node.prefix_len()..).unwrap_or(&[]);
        let head = head_of(suffix);
        let (low, high) = node.narrow(head);
        if M::PREFETCHES && self.is_waited_for(level) {
            for line in (low * 8 / 64)..=(high * 8 / 64) {
                visit.page.prefetch_line(SLOTS_AT + line * 64);
            }
            mode.pause().await;
        }
        node.lower_bound_in(low, high, head, suffix)
    }

    /// Comes to the leaf that a key is for.
    pub(crate) async fn leaf_of<M: Mode>(&self, mode: M, key: &[u8]) -> Looked<Visit<'_>> {
        if M::IS_FLAT {
            if let Some(leaf) = self.leaf_of_flat(mode, key).await {
                return Ok(leaf);
            }
            return Box::pin(self.node_of(mode, 0, key)).await;
        }
        self.node_of(mode, 0, key).await
    }

    /// Comes to the node of a level that a key is for, or to the root if that is lower.
    pub(crate) async fn node_of<M: Mode>(
        &self,
        mode: M,
        wanted: u8,
        key: &[u8],
    ) -> Looked<Visit<'_>> {
        let mut settled = None;
        'anew: loop {
            let mut at = self.visit(mode, ROOT, u8::MAX).await?;
            loop {
                let level = at.node().level();
                if level <= wanted {
                    if at.page.validate() {
                        return Ok(at);
                    }
                    continue 'anew;
                }
                let (index, is_equal) = M::call(self.search(mode, &at, level, key)).await;
                let index = if is_equal { index } else { index.saturating_sub(1) };
                let child = at.node().child(index);
                if !at.page.validate() {
                    continue 'anew;
                }
                // Who waits for memory holds none.
                at.guard = None;
                let next = match M::call(self.visit(mode, child, level - 1)).await {
                    Ok(next) => next,
                    // Perhaps the child went meanwhile: then it does not while no coroutine merges nodes.
                    Err(_) if settled.is_none() => {
                        settled = Some(Box::pin(self.structure.shared()).await);
                        continue 'anew;
                    }
                    Err(error) => return Err(error),
                };
                if !at.page.validate() && !next.node().covers(level - 1, key) {
                    continue 'anew;
                }
                if next.node().level() != level - 1 && next.page.validate() {
                    return Err(self.damaged(format!("node {child} is of another level")).into());
                }
                at = next;
            }
        }
    }

    /// The id of the row with this key; of several the least.
    ///
    /// # Errors
    /// [`IndexError::Buffer`] if a page cannot be read or is damaged, [`IndexError::Damaged`] if nodes do not fit together.
    pub async fn get(&self, key: &[u8]) -> Result<Option<u64>, IndexError> {
        self.get_in(Coroutines, key).await
    }

    /// As [`Tree::get`], in another mode.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub async fn get_in<M: Mode>(&self, mode: M, key: &[u8]) -> Result<Option<u64>, IndexError> {
        if M::IS_FLAT && self.form.is_unique {
            match self.look_up_flat(mode, key).await {
                Some(found) => return Ok(found),
                // A box: it is rare that a page is not in memory, or nodes change meanwhile.
                None => return Ok(Box::pin(self.look_up(mode, key)).await?),
            }
        }
        self.look_up(mode, key).await.map_err(|error| *error)
    }

    async fn look_up_in<M: Mode>(&self, mode: M, key: &[u8]) -> Looked<Option<u64>> {
        if M::IS_FLAT
            && self.form.is_unique
            && let Some(found) = self.look_up_flat(mode, key).await
        {
            return Ok(found);
        }
        Box::pin(self.look_up(mode, key)).await
    }

    async fn look_up<M: Mode>(&self, mode: M, key: &[u8]) -> Looked<Option<u64>> {
        if !self.form.is_unique {
            return Ok(Box::pin(self.first_of(key)).await?);
        }
        loop {
            let leaf = M::call(self.node_of(mode, 0, key)).await?;
            let (index, is_equal) = M::call(self.search(mode, &leaf, 0, key)).await;
            let node = leaf.node();
            if is_equal && M::PREFETCHES && self.is_waited_for(0) {
                leaf.page.prefetch_line(node.slot(index).record_at);
                mode.pause().await;
            }
            let row = is_equal.then(|| node.row(index));
            if leaf.page.validate() {
                return Ok(row);
            }
        }
    }

    /// The id of the first row with this key.
    async fn first_of(&self, key: &[u8]) -> Result<Option<u64>, IndexError> {
        let mut range = self.range(Some(key), None, range::Direction::Forwards);
        let first = range.next().await?;
        Ok(first.filter(|entry| entry.key == key).map(|entry| entry.row))
    }

    /// As [`Tree::get`] for each of the keys, up to `width` of them at a time: while the memory or the page
    /// of one comes, the others go on. The rows come in the order of the keys.
    ///
    /// # Errors
    /// As [`Tree::get`]: the first that comes.
    pub async fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        width: usize,
    ) -> Result<Vec<Option<u64>>, IndexError> {
        let paused = Cell::new(false);
        self.multi_get_in(keys, width, &paused, Interleaved(&paused)).await
    }

    /// As [`Tree::multi_get`], in another mode; `paused` is what its pauses set.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub async fn multi_get_in<K: AsRef<[u8]>, M: Mode>(
        &self,
        keys: &[K],
        width: usize,
        paused: &Cell<bool>,
        mode: M,
    ) -> Result<Vec<Option<u64>>, IndexError> {
        let mut rows = vec![None; keys.len()];
        let mut failed = None;
        let mut numbered = keys.iter().enumerate();
        let next = || {
            let (index, key) = numbered.next()?;
            Some((index, self.look_up_in(mode, key.as_ref())))
        };
        let done = |index: usize, row| match row {
            Ok(row) => rows[index] = row,
            Err(error) => _ = failed.get_or_insert(error),
        };
        Interleave::new(width.min(keys.len()), paused, next, done).await;
        failed.map_or(Ok(rows), |error: Box<IndexError>| Err(*error))
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({:?}, {} entries in {} nodes)", self.form, self.len(), self.nodes())
    }
}
