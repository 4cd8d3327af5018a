//! Nodes as a change makes them: in memory of their own, to be put in a page's place at once.

use std::cell::RefCell;

use super::check::check_node;
use super::{
    ALIVE, ALIVE_AT, COUNT_AT, DEAD_AT, FLAGS_AT, HAS_HIGH, HAS_INCLUDED, HAS_LOW, HAS_ROW,
    HEAD_BYTES, HEAP_AT, HIGH_AT, HIGH_LEN_AT, HINTS, HINTS_AT, KIND_NODE, LEVEL_AT, LOW_AT,
    LOW_LEN_AT, Node, NodeBytes, PREFIX_AT, SLOT_BYTES, SLOTS_AT, head_of, hint_distance,
    record_bytes,
};

/// The form of a tree's rows, as flags of its leaves.
pub(crate) const ROW_FLAGS: u8 = HAS_ROW | HAS_INCLUDED;

/// What stands beside a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Child(u32),
    Row { row: u64, included: &'a [u8] },
}

/// Pages that a thread keeps for images to come.
const SPARE_PAGES_MAX: usize = 4;

thread_local! {
    /// What images have left that are no more: each change of an entry makes one.
    static SPARE_PAGES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A node that is being made or changed.
pub(crate) struct NodeImage {
    page: Vec<u8>,
}

impl Drop for NodeImage {
    fn drop(&mut self) {
        let mut page = std::mem::take(&mut self.page);
        // A thread that ends keeps none any more.
        _ = SPARE_PAGES.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_PAGES_MAX {
                page.clear();
                spare.push(page);
            }
        });
    }
}

/// An empty vector with room for a page, as a rule.
fn spare_page() -> Vec<u8> {
    SPARE_PAGES.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Number of bytes that two keys begin with alike.
pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is above `below` and not above `above`, which is above it.
pub(crate) fn separator<'a>(below: &[u8], above: &'a [u8]) -> &'a [u8] {
    debug_assert!(below < above);
    &above[..shared_len(below, above) + 1]
}

impl NodeImage {
    /// An empty node of `page_bytes` bytes between two fences.
    pub(crate) fn new(
        page_bytes: usize,
        level: u8,
        row_flags: u8,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> NodeImage {
        let mut page = spare_page();
        page.resize(page_bytes, 0);
        let mut image = NodeImage { page };
        image.page[6] = KIND_NODE;
        image.page[LEVEL_AT] = level;
        image.page[ALIVE_AT] = ALIVE;
        let mut flags = if level == 0 { row_flags & ROW_FLAGS } else { 0 };
        image.put_u32(HEAP_AT, page_bytes as u32);
        if let Some(low) = low {
            flags |= HAS_LOW;
            let at = image.put_bytes(low);
            image.put_u32(LOW_AT, at as u32);
            image.put_u16(LOW_LEN_AT, low.len() as u16);
        }
        if let Some(high) = high {
            flags |= HAS_HIGH;
            let at = image.put_bytes(high);
            image.put_u32(HIGH_AT, at as u32);
            image.put_u16(HIGH_LEN_AT, high.len() as u16);
        }
        let prefix_len = low.zip(high).map_or(0, |(low, high)| shared_len(low, high));
        image.put_u16(PREFIX_AT, prefix_len as u16);
        image.page[FLAGS_AT] = flags;
        image
    }

    /// The image of a page that is held.
    pub(crate) fn of(page: &[u8]) -> NodeImage {
        let mut copy = spare_page();
        copy.extend_from_slice(page);
        NodeImage { page: copy }
    }

    /// The bytes of the page.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.page
    }

    pub(crate) fn node(&self) -> Node<&[u8]> {
        Node(&self.page)
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Appends to the heap, which grows downwards, by whole words.
    fn put_bytes(&mut self, bytes: &[u8]) -> usize {
        let at = self.heap_at() - bytes.len().next_multiple_of(4);
        self.page[at..at + bytes.len()].copy_from_slice(bytes);
        self.put_u32(HEAP_AT, at as u32);
        at
    }

    fn heap_at(&self) -> usize {
        self.page.as_slice().u32_at(HEAP_AT) as usize
    }

    fn dead_bytes(&self) -> usize {
        self.page.as_slice().u32_at(DEAD_AT) as usize
    }

    /// Bytes between slots and heap, and those in the heap that are in no use.
    pub(crate) fn free_bytes(&self) -> usize {
        self.heap_at() - SLOTS_AT - self.node().count() * SLOT_BYTES + self.dead_bytes()
    }

    /// Bytes that an entry takes.
    pub(crate) fn entry_bytes(&self, key: &[u8], value: Value<'_>) -> usize {
        let node = self.node();
        let suffix_len = key.len().saturating_sub(node.prefix_len());
        let included = match value {
            Value::Row { included, .. } => included.len(),
            Value::Child(_) => 0,
        };
        SLOT_BYTES + record_bytes(node.fixed_bytes(), suffix_len, included)
    }

    /// Puts an entry into the place of slot `index`; false if there is no room for it. The key is between
    /// the fences and belongs there; the first of an inner node is left out.
    pub(crate) fn insert(&mut self, index: usize, key: &[u8], value: Value<'_>) -> bool {
        let done = self.insert_unhinted(index, key, value);
        if done {
            self.make_hints();
        }
        done
    }

    /// As [`NodeImage::insert`] at the end; [`NodeImage::make_hints`] is to follow.
    pub(crate) fn push(&mut self, key: &[u8], value: Value<'_>) -> bool {
        self.insert_unhinted(self.node().count(), key, value)
    }

    fn insert_unhinted(&mut self, index: usize, key: &[u8], value: Value<'_>) -> bool {
        let is_first_child = matches!(value, Value::Child(_)) && index == 0;
        let prefix_len = self.node().prefix_len();
        let key = if is_first_child { &key[..prefix_len.min(key.len())] } else { key };
        let suffix = key.get(prefix_len..).unwrap_or(&[]);
        let bytes = self.entry_bytes(key, value);
        if bytes > self.free_bytes() {
            return false;
        }
        let count = self.node().count();
        if bytes > self.free_bytes() - self.dead_bytes() {
            self.compact();
        }
        let (fixed, tail) = (self.node().fixed_bytes(), suffix.get(HEAD_BYTES..).unwrap_or(&[]));
        let record_at = self.heap_at() - (bytes - SLOT_BYTES);
        self.page[record_at..record_at + bytes - SLOT_BYTES].fill(0);
        self.put_u32(HEAP_AT, record_at as u32);
        match value {
            Value::Child(number) => self.put_u32(record_at, number),
            Value::Row { row, included } => {
                let flags = self.node().flags();
                if flags & HAS_ROW != 0 {
                    self.page[record_at..record_at + 8].copy_from_slice(&row.to_le_bytes());
                }
                if flags & HAS_INCLUDED != 0 {
                    self.put_u32(record_at + fixed - 4, included.len() as u32);
                    let at = record_at + fixed + tail.len().next_multiple_of(4);
                    self.page[at..at + included.len()].copy_from_slice(included);
                }
            }
        }
        self.page[record_at + fixed..record_at + fixed + tail.len()].copy_from_slice(tail);
        let at = SLOTS_AT + index * SLOT_BYTES;
        self.page.copy_within(at..SLOTS_AT + count * SLOT_BYTES, at + SLOT_BYTES);
        self.put_u32(at, head_of(suffix));
        self.put_u16(at + 4, (record_at / 4) as u16);
        self.put_u16(at + 6, suffix.len() as u16);
        self.set_count(count + 1);
        true
    }

    fn set_count(&mut self, count: usize) {
        self.put_u16(COUNT_AT, count as u16);
        self.put_u16(4, count as u16);
    }

    /// Takes the entry of slot `index` away. Not the first child.
    pub(crate) fn remove(&mut self, index: usize) {
        let (count, bytes) = (self.node().count(), self.node().record_bytes(index));
        let at = SLOTS_AT + index * SLOT_BYTES;
        let end = SLOTS_AT + count * SLOT_BYTES;
        self.page.copy_within(at + SLOT_BYTES..end, at);
        self.page[end - SLOT_BYTES..end].fill(0);
        let dead_bytes = self.dead_bytes() + bytes;
        self.put_u32(DEAD_AT, dead_bytes as u32);
        self.set_count(count - 1);
        self.make_hints();
    }

    /// Repeats the heads that a search begins with.
    pub(crate) fn make_hints(&mut self) {
        let distance = hint_distance(self.node().count());
        for index in 0..HINTS {
            let hint =
                if distance == 0 { 0 } else { self.node().slot((index + 1) * distance).head };
            self.put_u32(HINTS_AT + 4 * index, hint);
        }
    }

    /// Moves the records together.
    fn compact(&mut self) {
        let node = self.node();
        let (low, high) = (node.low(), node.high());
        *self = self.between(low.as_deref(), high.as_deref(), 0, node.count()).expect("it fitted");
    }

    /// A node between these fences with the entries of slots `from..to`; `None` if they do not fit.
    pub(crate) fn between(
        &self,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        from: usize,
        to: usize,
    ) -> Option<NodeImage> {
        let node = self.node();
        let mut image =
            NodeImage::new(self.page.len(), node.level(), node.flags() & ROW_FLAGS, low, high);
        image.append(self, from, to).then_some(())?;
        image.make_hints();
        Some(image)
    }

    /// Appends the entries of slots `from..to` of another node; false if they do not fit.
    fn append(&mut self, other: &NodeImage, from: usize, to: usize) -> bool {
        let node = other.node();
        let (mut key, mut included) = (Vec::new(), Vec::new());
        (from..to).all(|index| {
            key.clear();
            node.append_key(index, &mut key);
            if node.level() > 0 {
                if index == 0 {
                    key = node.low().unwrap_or_default();
                }
                return self.push(&key, Value::Child(node.child(index)));
            }
            included.clear();
            node.append_included(index, &mut included);
            self.push(&key, Value::Row { row: node.row(index), included: &included })
        })
    }

    /// Divides the node into two, and gives the key that the right one begins with. If it is the last one of its level
    /// and `appends`, the right one has as little as it may, so that nodes are full which are made in the
    /// order of their keys. There are two entries at least.
    pub(crate) fn split(&self, appends: bool) -> (NodeImage, Vec<u8>, NodeImage) {
        let node = self.node();
        let (count, is_leaf) = (node.count(), node.level() == 0);
        let at = if appends && node.flags() & HAS_HIGH == 0 {
            count - 1
        } else {
            let used = |index| SLOT_BYTES + node.record_bytes(index);
            let half = (0..count).map(used).sum::<usize>() / 2;
            let mut before = 0;
            let middle = (0..count).find(|&index| {
                before += used(index);
                before > half
            });
            middle.unwrap_or(count / 2).clamp(1, count - 1)
        };
        let right_key = node.key(at);
        let between =
            if is_leaf { separator(&node.key(at - 1), &right_key).to_vec() } else { right_key };
        let (low, high) = (node.low(), node.high());
        let left = self.between(low.as_deref(), Some(&between), 0, at);
        let right = self.between(Some(&between), high.as_deref(), at, count);
        let (left, right) = left.zip(right).expect("a part fits where the whole did");
        (left, between, right)
    }

    /// The node together with the one after it, if one can hold both.
    pub(crate) fn merged(&self, right: &NodeImage) -> Option<NodeImage> {
        let (low, high) = (self.node().low(), right.node().high());
        let mut image = self.between(low.as_deref(), high.as_deref(), 0, self.node().count())?;
        image.append(right, 0, right.node().count()).then_some(())?;
        image.make_hints();
        Some(image)
    }

    /// Whether what was made is a node.
    pub(crate) fn assert_whole(&self) {
        debug_assert_eq!(check_node(&self.page), Ok(()));
    }
}
