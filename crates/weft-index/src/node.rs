//! Nodes: the pages of a tree, as a search sees them.
//!
//! A node is a slotted page (`docs/FILE_FORMAT.md`, Indexes). What all its keys begin with is kept once (the
//! prefix). A slot has the next four bytes of its key (the head), so that most comparisons touch nothing
//! else; sixteen of the heads are repeated beside each other (the hints), so that a search begins with one
//! cache line and goes on in two. (Graefe, "Modern B-Tree Techniques", 2011; LeanStore's nodes.)
//!
//! A node is read as an [`OptimisticPage`], which may be anything, or as the bytes of a page that is held.
//! Nothing here relies on what it reads: a slot that leads nowhere gives zeros.

pub(crate) mod check;
pub(crate) mod image;

use std::cmp::Ordering;

use weft_buffer::OptimisticPage;

/// Kinds of pages in their headers.
pub(crate) const KIND_NODE: u8 = 0x20;
pub(crate) const KIND_DIRECTORY: u8 = 0x21;

/// Byte 19 of each node: one that is no more, and a page that is none, have another.
pub(crate) const ALIVE: u8 = 0xb7;

/// What a node has: a lowest key, and a key that all are below.
pub(crate) const HAS_LOW: u8 = 1;
pub(crate) const HAS_HIGH: u8 = 2;
/// Its rows have a length and included bytes.
pub(crate) const HAS_INCLUDED: u8 = 4;
/// Its rows have an id beside the key.
pub(crate) const HAS_ROW: u8 = 8;

pub(crate) const LEVEL_AT: usize = 16;
pub(crate) const FLAGS_AT: usize = 17;
pub(crate) const ALIVE_AT: usize = 19;
pub(crate) const COUNT_AT: usize = 20;
pub(crate) const PREFIX_AT: usize = 22;
pub(crate) const HEAP_AT: usize = 24;
pub(crate) const DEAD_AT: usize = 28;
pub(crate) const LOW_AT: usize = 32;
pub(crate) const LOW_LEN_AT: usize = 36;
pub(crate) const HIGH_LEN_AT: usize = 38;
pub(crate) const HIGH_AT: usize = 40;
pub(crate) const HINTS_AT: usize = 64;
pub(crate) const SLOTS_AT: usize = 128;

pub(crate) const HINTS: usize = 16;
pub(crate) const SLOT_BYTES: usize = 8;
pub(crate) const HEAD_BYTES: usize = 4;
/// Fewer slots are searched without hints.
const HINTED_MIN: usize = 2 * (HINTS + 1);

/// Where the bytes of a node are read from. What is asked for beyond its end is 0.
pub(crate) trait NodeBytes: Copy {
    /// The four bytes at `at`, a multiple of four.
    fn u32_at(self, at: usize) -> u32;

    #[inline]
    fn u16_at(self, at: usize) -> u16 {
        (self.u32_at(at & !3) >> (8 * (at & 2))) as u16
    }

    #[inline]
    fn u8_at(self, at: usize) -> u8 {
        (self.u32_at(at & !3) >> (8 * (at & 3))) as u8
    }
}

impl NodeBytes for &[u8] {
    #[inline]
    fn u32_at(self, at: usize) -> u32 {
        let word = self.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        word.map_or(0, u32::from_le_bytes)
    }
}

impl NodeBytes for OptimisticPage<'_> {
    #[inline]
    fn u32_at(self, at: usize) -> u32 {
        OptimisticPage::u32_at(&self, at)
    }
}

/// The first four bytes of a suffix as a number that sorts as they do, zeros behind its end.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<HEAD_BYTES>() {
        Some(head) => u32::from_be_bytes(*head),
        None => {
            let mut head = [0; HEAD_BYTES];
            head[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(head)
        }
    }
}

/// Between which hints a head lies: what narrows a search.
pub(crate) fn hint_distance(count: usize) -> usize {
    count / (HINTS + 1)
}

/// A node, to be searched.
#[derive(Clone, Copy)]
pub(crate) struct Node<B>(pub(crate) B);

/// One slot: where its record lies, and how long the suffix of its key is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) head: u32,
    pub(crate) record_at: usize,
    pub(crate) suffix_len: usize,
}

impl<B: NodeBytes> Node<B> {
    /// 0 for a leaf, and one more than its children's for others.
    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.0.u8_at(LEVEL_AT)
    }

    pub(crate) fn flags(self) -> u8 {
        self.0.u8_at(FLAGS_AT)
    }

    pub(crate) fn is_alive(self) -> bool {
        self.0.u8_at(ALIVE_AT) == ALIVE
    }

    /// Number of slots.
    #[inline]
    pub(crate) fn count(self) -> usize {
        usize::from(self.0.u16_at(COUNT_AT))
    }

    #[inline]
    pub(crate) fn prefix_len(self) -> usize {
        usize::from(self.0.u16_at(PREFIX_AT))
    }

    pub(crate) fn slot(self, index: usize) -> Slot {
        let at = SLOTS_AT + index * SLOT_BYTES;
        let place = self.0.u32_at(at + 4);
        Slot {
            head: self.0.u32_at(at),
            record_at: (place & 0xffff) as usize * 4,
            suffix_len: (place >> 16) as usize,
        }
    }

    /// Bytes of a record before the rest of its suffix: the number of the child, or the row's id and the
    /// length of what is included.
    pub(crate) fn fixed_bytes(self) -> usize {
        fixed_bytes(self.level(), self.flags())
    }

    /// Bytes from `at` on, as many as `len` says or there are.
    fn bytes(self, at: usize, len: usize) -> impl Iterator<Item = u8> {
        (at..at.saturating_add(len)).map(move |at| self.0.u8_at(at))
    }

    /// The lowest key that the node may hold; `None` if there is none.
    pub(crate) fn low(self) -> Option<Vec<u8>> {
        self.fence(HAS_LOW, LOW_AT, LOW_LEN_AT)
    }

    /// The lowest key above all that the node may hold; `None` if there is none.
    pub(crate) fn high(self) -> Option<Vec<u8>> {
        self.fence(HAS_HIGH, HIGH_AT, HIGH_LEN_AT)
    }

    fn fence(self, flag: u8, at: usize, len_at: usize) -> Option<Vec<u8>> {
        (self.flags() & flag != 0).then(|| {
            let (at, len) = (self.0.u32_at(at) as usize, usize::from(self.0.u16_at(len_at)));
            self.bytes(at, len).collect()
        })
    }

    /// True if the node is one of this level, and `key` is for it.
    pub(crate) fn covers(self, level: u8, key: &[u8]) -> bool {
        let order = |at: usize, len_at: usize| {
            let (at, len) = (self.0.u32_at(at) as usize, usize::from(self.0.u16_at(len_at)));
            self.bytes(at, len).cmp(key.iter().copied())
        };
        let flags = self.flags();
        self.is_alive()
            && self.level() == level
            && (flags & HAS_LOW == 0 || order(LOW_AT, LOW_LEN_AT).is_le())
            && (flags & HAS_HIGH == 0 || order(HIGH_AT, HIGH_LEN_AT).is_gt())
    }

    /// As [`Node::lower_bound`], of any key.
    pub(crate) fn lower_bound_of(self, key: &[u8]) -> usize {
        let order = |at: usize, len_at: usize| {
            let (at, len) = (self.0.u32_at(at) as usize, usize::from(self.0.u16_at(len_at)));
            self.bytes(at, len).cmp(key.iter().copied())
        };
        let flags = self.flags();
        if flags & HAS_LOW != 0 && order(LOW_AT, LOW_LEN_AT).is_ge() {
            return 0;
        }
        if flags & HAS_HIGH != 0 && order(HIGH_AT, HIGH_LEN_AT).is_le() {
            return self.count();
        }
        self.lower_bound(key).0
    }

    /// The slots among which the first one is that is not below a key with this head.
    #[inline]
    pub(crate) fn narrow(self, head: u32) -> (usize, usize) {
        let count = self.count();
        if count < HINTED_MIN {
            return (0, count);
        }
        let distance = hint_distance(count);
        let (mut below, mut not_above) = (0, 0);
        for index in 0..HINTS {
            let hint = self.0.u32_at(HINTS_AT + 4 * index);
            below += usize::from(hint < head);
            not_above += usize::from(hint <= head);
        }
        // Hint number i is the head of slot (i + 1) * distance.
        let end = if not_above == HINTS { count } else { (not_above + 1) * distance };
        (below * distance, end)
    }

    /// The first slot whose key is not below `key`, which is for this node, and whether it is that key.
    #[inline]
    pub(crate) fn lower_bound(self, key: &[u8]) -> (usize, bool) {
        let suffix = key.get(self.prefix_len()..).unwrap_or(&[]);
        let head = head_of(suffix);
        let (low, high) = self.narrow(head);
        self.lower_bound_in(low, high, head, suffix)
    }

    /// As [`Node::lower_bound`], among these slots.
    #[inline]
    pub(crate) fn lower_bound_in(
        self,
        mut low: usize,
        mut high: usize,
        head: u32,
        suffix: &[u8],
    ) -> (usize, bool) {
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, head, suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    #[inline]
    fn compare(self, index: usize, head: u32, suffix: &[u8]) -> Ordering {
        let at = SLOTS_AT + index * SLOT_BYTES;
        match self.0.u32_at(at).cmp(&head) {
            Ordering::Equal => self.compare_tails(index, suffix),
            order => order,
        }
    }

    /// Compares suffixes that have the same head.
    fn compare_tails(self, index: usize, suffix: &[u8]) -> Ordering {
        let slot = self.slot(index);
        if slot.suffix_len > HEAD_BYTES && suffix.len() > HEAD_BYTES {
            let at = slot.record_at + self.fixed_bytes();
            let words = slot.suffix_len.min(suffix.len()).saturating_sub(HEAD_BYTES).div_ceil(4);
            for word in 0..words {
                let found = self.0.u32_at(at + 4 * word).swap_bytes();
                let wanted = head_of(suffix.get(4 * (word + 1)..).unwrap_or(&[]));
                if found != wanted {
                    return found.cmp(&wanted);
                }
            }
        }
        // One is zeros longer than the other, or they are alike.
        slot.suffix_len.cmp(&suffix.len())
    }

    /// The slot of the child that `key` is for. The first one has no key of its own.
    #[inline]
    pub(crate) fn child_slot(self, key: &[u8]) -> usize {
        let (index, is_equal) = self.lower_bound(key);
        if is_equal { index } else { index.saturating_sub(1) }
    }

    /// The number of the child of a slot.
    #[inline]
    pub(crate) fn child(self, index: usize) -> u32 {
        self.0.u32_at(self.slot(index).record_at)
    }

    /// The id of the row of a slot; 0 if the rows' ids are part of the keys.
    #[inline]
    pub(crate) fn row(self, index: usize) -> u64 {
        if self.flags() & HAS_ROW == 0 {
            return 0;
        }
        let at = self.slot(index).record_at;
        u64::from(self.0.u32_at(at)) | u64::from(self.0.u32_at(at + 4)) << 32
    }

    /// Appends the key of a slot.
    pub(crate) fn append_key(self, index: usize, key: &mut Vec<u8>) {
        let slot = self.slot(index);
        key.extend(self.bytes(self.0.u32_at(LOW_AT) as usize, self.prefix_len()));
        let head = slot.head.to_be_bytes();
        key.extend_from_slice(&head[..slot.suffix_len.min(HEAD_BYTES)]);
        if slot.suffix_len > HEAD_BYTES {
            let at = slot.record_at + self.fixed_bytes();
            key.extend(self.bytes(at, slot.suffix_len - HEAD_BYTES));
        }
    }

    pub(crate) fn key(self, index: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.append_key(index, &mut key);
        key
    }

    /// Where the included bytes of a slot begin, and how many they are.
    pub(crate) fn included(self, index: usize) -> (usize, usize) {
        let slot = self.slot(index);
        if self.flags() & HAS_INCLUDED == 0 {
            return (0, 0);
        }
        let fixed = self.fixed_bytes();
        let tail = slot.suffix_len.saturating_sub(HEAD_BYTES).next_multiple_of(4);
        let len = self.0.u32_at(slot.record_at + fixed - 4) as usize;
        (slot.record_at + fixed + tail, len)
    }

    pub(crate) fn append_included(self, index: usize, included: &mut Vec<u8>) {
        let (at, len) = self.included(index);
        // A length beyond what a page holds is damage, and is cut.
        included.extend(self.bytes(at, len.min(usize::from(u16::MAX) * 4)));
    }

    /// Bytes of the record of a slot.
    pub(crate) fn record_bytes(self, index: usize) -> usize {
        let (_, included) = self.included(index);
        record_bytes(self.fixed_bytes(), self.slot(index).suffix_len, included)
    }
}

/// As [`Node::fixed_bytes`].
pub(crate) fn fixed_bytes(level: u8, flags: u8) -> usize {
    if level > 0 {
        return 4;
    }
    let row = if flags & HAS_ROW == 0 { 0 } else { 8 };
    row + if flags & HAS_INCLUDED == 0 { 0 } else { 4 }
}

/// Bytes of a record: a multiple of four, so that each of its parts is read by words.
pub(crate) fn record_bytes(fixed: usize, suffix_len: usize, included_len: usize) -> usize {
    let tail = suffix_len.saturating_sub(HEAD_BYTES).next_multiple_of(4);
    fixed + tail + included_len.next_multiple_of(4)
}
