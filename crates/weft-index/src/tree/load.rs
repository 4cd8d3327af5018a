//! Loading: a tree made from its leaves upwards, of rows that come in the order of their keys.

use std::sync::Arc;

use weft_buffer::BufferPool;

use super::places::Space;
use super::{LEVELS_MAX, ROOT, Tree, TreeForm};
use crate::error::IndexError;
use crate::node::image::{NodeImage, Value, separator, shared_len};
use crate::node::{SLOT_BYTES, SLOTS_AT, fixed_bytes, record_bytes};

/// Makes a tree of sorted rows. Nodes are full, apart from the last of each level.
pub struct BulkLoad {
    tree: Tree,
    /// The node of each level that is being filled, from the leaf upwards.
    open: Vec<OpenNode>,
    last: Option<(Vec<u8>, u64)>,
    rows: i64,
}

/// Entries of a node that is not full yet.
#[derive(Default)]
struct OpenNode {
    low: Option<Vec<u8>>,
    keys: Vec<u8>,
    entries: Vec<OpenEntry>,
    /// Bytes of the keys' suffixes and records, with a prefix of so many bytes.
    entry_bytes: usize,
    prefix_len: usize,
}

/// An entry: where its key ends, and its value.
struct OpenEntry {
    key_end: usize,
    child: u32,
    row: u64,
    included: Vec<u8>,
}

impl OpenNode {
    fn key(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.entries[index - 1].key_end };
        &self.keys[start..self.entries[index].key_end]
    }

    fn push(&mut self, key: &[u8], entry: OpenEntry) {
        self.keys.extend_from_slice(key);
        self.entries.push(OpenEntry { key_end: self.keys.len(), ..entry });
    }

    fn bytes_with(&self, fixed: usize, prefix_len: usize) -> usize {
        let bytes = |index: usize| {
            let suffix_len = self.key(index).len().saturating_sub(prefix_len);
            SLOT_BYTES + record_bytes(fixed, suffix_len, self.entries[index].included.len())
        };
        (0..self.entries.len()).map(bytes).sum()
    }

    /// The node with some of the entries; `None` if they do not fit.
    fn image(
        &self,
        form: &TreeForm,
        level: u8,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        slots: std::ops::Range<usize>,
    ) -> Option<NodeImage> {
        let mut image = NodeImage::new(form.node_bytes, level, form.row_flags(), low, high);
        for index in slots {
            let OpenEntry { child, row, included, .. } = &self.entries[index];
            let value = match level {
                0 => Value::Row { row: *row, included },
                _ => Value::Child(*child),
            };
            if !image.push(self.key(index), value) {
                return None;
            }
        }
        image.make_hints();
        Some(image)
    }

    /// As many nodes as some of the entries need, with the fences that they begin with.
    fn divide(
        &self,
        form: &TreeForm,
        level: u8,
        low: Option<Vec<u8>>,
        high: Option<Vec<u8>>,
        slots: std::ops::Range<usize>,
        parts: &mut Vec<(Option<Vec<u8>>, NodeImage)>,
    ) {
        let whole = self.image(form, level, low.as_deref(), high.as_deref(), slots.clone());
        if let Some(image) = whole {
            parts.push((low, image));
            return;
        }
        assert!(slots.len() > 1, "an entry fits in a node");
        let middle = slots.start.midpoint(slots.end);
        let between = match level {
            0 => separator(self.key(middle - 1), self.key(middle)).to_vec(),
            _ => self.key(middle).to_vec(),
        };
        self.divide(form, level, low, Some(between.clone()), slots.start..middle, parts);
        self.divide(form, level, Some(between), high, middle..slots.end, parts);
    }
}

impl BulkLoad {
    /// Begins an empty tree.
    ///
    /// # Panics
    /// As [`Tree::create`].
    pub fn new(pool: Arc<BufferPool>, space: Arc<dyn Space>, form: TreeForm) -> BulkLoad {
        let tree = Tree::without_nodes(pool, space, form);
        let root = tree.places().take_number();
        assert_eq!(root, ROOT, "the first number is the root's");
        BulkLoad { tree, open: vec![OpenNode::default()], last: None, rows: 0 }
    }

    /// Adds a row, which comes after all before.
    ///
    /// # Errors
    /// [`IndexError::Order`] if it does not, [`IndexError::TooLong`], and as [`Tree::create`].
    pub async fn push(&mut self, key: &[u8], row: u64, included: &[u8]) -> Result<(), IndexError> {
        let key = self.tree.form.full_key(key, row);
        self.tree.check_length(&key, included)?;
        if let Some((last, other)) = &self.last
            && *last >= key
        {
            return Err(IndexError::Order { row, other: *other });
        }
        if !self.has_room(0, &key, included.len()) {
            let last = &self.last.as_ref().expect("a full node has entries").0;
            let fence = separator(last, &key).to_vec();
            self.close(0, fence).await?;
        }
        let entry = OpenEntry { key_end: 0, child: 0, row, included: included.to_vec() };
        self.open[0].push(&key, entry);
        self.last = Some((key, row));
        self.rows += 1;
        Ok(())
    }

    /// True if the open node of a level can be closed before something that follows `key`, with `key` in it.
    fn has_room(&mut self, level: usize, key: &[u8], included_len: usize) -> bool {
        let form = self.tree.form;
        let fixed = fixed_bytes(level as u8, form.row_flags());
        let node = &mut self.open[level];
        // What the fences begin with alike is what the key does at least, or the node is closed before it.
        let prefix_len = node.low.as_deref().map_or(0, |low| shared_len(low, key));
        if prefix_len != node.prefix_len || node.entries.is_empty() {
            node.prefix_len = prefix_len;
            node.entry_bytes = node.bytes_with(fixed, prefix_len);
        }
        let suffix_len = key.len().saturating_sub(prefix_len);
        let bytes = SLOT_BYTES + record_bytes(fixed, suffix_len, included_len);
        let low_len = node.low.as_ref().map_or(0, Vec::len);
        // The fence above may be as long as the longest key.
        let fences = low_len.next_multiple_of(4) + key.len().max(16).next_multiple_of(4) + 8;
        let room = node.entry_bytes + bytes + fences + SLOTS_AT <= form.node_bytes;
        if room {
            node.entry_bytes += bytes;
        }
        room
    }

    /// Makes the open node of a level, which ends at a fence, and goes on with the next one.
    async fn close(&mut self, level: usize, fence: Vec<u8>) -> Result<(), IndexError> {
        let mut node = std::mem::take(&mut self.open[level]);
        self.open[level].low = Some(fence.clone());
        let low = node.low.take();
        self.make(level, node, low, Some(fence)).await
    }

    /// Makes one node of these entries, or several if they do not fit without what they would begin with alike.
    async fn make(
        &mut self,
        level: usize,
        node: OpenNode,
        low: Option<Vec<u8>>,
        high: Option<Vec<u8>>,
    ) -> Result<(), IndexError> {
        let mut parts = Vec::new();
        node.divide(&self.tree.form, level as u8, low, high, 0..node.entries.len(), &mut parts);
        for (low, image) in parts {
            let number = self.tree.make_node(&image).await?;
            self.tree.note_nodes(level as u8, 1);
            Box::pin(self.push_child(level + 1, low.unwrap_or_default(), number)).await?;
        }
        Ok(())
    }

    async fn push_child(
        &mut self,
        level: usize,
        key: Vec<u8>,
        child: u32,
    ) -> Result<(), IndexError> {
        if level >= LEVELS_MAX {
            return Err(IndexError::Space { reason: "it has too many levels".into() });
        }
        if self.open.len() == level {
            self.open.push(OpenNode::default());
        }
        if !self.has_room(level, &key, 0) {
            self.close(level, key.clone()).await?;
        }
        self.open[level].push(&key, OpenEntry { key_end: 0, child, row: 0, included: Vec::new() });
        Ok(())
    }

    /// The tree of all rows.
    ///
    /// # Errors
    /// As [`Tree::create`].
    pub async fn finish(mut self) -> Result<Tree, IndexError> {
        match self.close_all().await {
            Ok(()) => Ok(self.tree),
            Err(error) => {
                self.abandon().await?;
                Err(error)
            }
        }
    }

    /// Gives the tree up: none of its pages is on its way to a device after that.
    ///
    /// # Errors
    /// As [`Tree::settle_writes`].
    pub async fn abandon(self) -> Result<(), IndexError> {
        self.tree.settle_writes().await
    }

    async fn close_all(&mut self) -> Result<(), IndexError> {
        let mut level = 0;
        loop {
            let node = &self.open[level];
            let is_top = level + 1 == self.open.len();
            let low = node.low.clone();
            if is_top {
                let count = node.entries.len();
                let form = self.tree.form;
                let image = node.image(&form, level as u8, None, None, 0..count);
                if let Some(image) = image.filter(|_| low.is_none()) {
                    self.tree.make_node_numbered(ROOT, &image).await?;
                    self.tree.note_nodes(level as u8, 1);
                    self.tree.note_entries(self.rows);
                    return Ok(());
                }
            }
            let mut node = std::mem::take(&mut self.open[level]);
            node.low = None;
            self.make(level, node, low, None).await?;
            level += 1;
        }
    }
}
