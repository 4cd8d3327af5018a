//! Ranges of a tree, in either direction, with leaves read ahead.
//!
//! A range looks at one leaf at a time, of which it makes a copy: nothing is held between two entries. What
//! comes after a leaf is found by the leaf's fence. The node above says which leaves come then: some of
//! them are read meanwhile, as tasks of the worker.

use std::sync::Arc;

use weft_rt::{spawn_begun, try_worker_index};

use super::mode::Coroutines;
use super::{ROOT, Tree};
use crate::error::IndexError;
use crate::node::Node;
use crate::node::image::NodeImage;

/// Leaves that are read ahead of a range that has come some way.
const AHEAD_MAX: usize = 32;

/// Which way a range goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the least key to the greatest.
    Forwards,
    /// From the greatest key to the least.
    Backwards,
}

/// One row of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its id.
    pub row: u64,
    /// What the tree has of it beside that.
    pub included: Vec<u8>,
}

/// The rows of a tree whose keys are in a range, in order.
pub struct Range<'a> {
    tree: &'a Tree,
    direction: Direction,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    leaf: Option<NodeImage>,
    /// Slots of the leaf that are still to come.
    slots: std::ops::Range<usize>,
    /// Where the next leaf begins, or ends; `None` when there is none.
    fence: Option<Option<Vec<u8>>>,
    leaves_seen: usize,
    entry: Entry,
}

impl Tree {
    /// The rows whose keys are not below `low`, and below `high`: all of them where that is `None`.
    pub fn range(
        &self,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        direction: Direction,
    ) -> Range<'_> {
        let start = match direction {
            Direction::Forwards => low,
            Direction::Backwards => high,
        };
        Range {
            tree: self,
            direction,
            fence: Some(start.map(<[u8]>::to_vec)),
            low: low.map(<[u8]>::to_vec),
            high: high.map(<[u8]>::to_vec),
            leaf: None,
            slots: 0..0,
            leaves_seen: 0,
            entry: Entry::default(),
        }
    }

    /// A copy of the leaf that holds the keys just below `below`, or of the last one.
    pub(crate) async fn leaf_below(&self, below: Option<&[u8]>) -> Result<NodeImage, IndexError> {
        let mut settled = None;
        loop {
            match self.try_leaf_below(below).await {
                Ok(Some(image)) => return Ok(image),
                Ok(None) => {}
                Err(_) if settled.is_none() => settled = Some(self.structure.shared().await),
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Tree::leaf_below`]; `None` if nodes were split or merged meanwhile.
    async fn try_leaf_below(&self, below: Option<&[u8]>) -> Result<Option<NodeImage>, IndexError> {
        let (mut number, mut expected) = (ROOT, None);
        loop {
            let Some((table, page)) = self.slot(number) else {
                return Err(self.damaged(format!("there is no node {number}")));
            };
            let guard = self.pool.fix(table, page).await?;
            let node = Node(&guard[..]);
            let level = expected.unwrap_or(node.level());
            if !node.covers_below(level, below) {
                return Ok(None);
            }
            if level == 0 {
                return Ok(Some(NodeImage::of(&guard)));
            }
            let slots = below.map_or(node.count(), |below| node.lower_bound(below).0);
            number = node.child(slots.saturating_sub(1));
            expected = Some(level - 1);
        }
    }

    /// A copy of the leaf that a key is for.
    pub(crate) async fn copy_of(&self, key: &[u8]) -> Result<NodeImage, IndexError> {
        loop {
            let number = self.leaf_of(Coroutines, key).await?.number;
            let Some((table, page)) = self.slot(number) else { continue };
            // The page may have gone, or may be another leaf's.
            if let Ok(guard) = self.pool.fix_for_scan(table, page).await
                && Node(&guard[..]).covers(0, key)
            {
                return Ok(NodeImage::of(&guard));
            }
        }
    }

    /// Begins to read up to `leaves` leaves beside the one that a key is for.
    pub(crate) async fn read_ahead(
        &self,
        key: &[u8],
        direction: Direction,
        leaves: usize,
    ) -> Result<(), IndexError> {
        if self.top_level() == 0 || try_worker_index().is_none() {
            return Ok(());
        }
        let visit = self.node_of(Coroutines, 1, key).await?;
        let node = visit.node();
        let (slot, count) = (node.child_slot(key), node.count());
        let slots = match direction {
            Direction::Forwards => slot + 1..count.min(slot + 1 + leaves),
            Direction::Backwards => slot.saturating_sub(leaves)..slot,
        };
        let numbers: Vec<u32> = slots.map(|slot| node.child(slot)).collect();
        if node.level() != 1 || !visit.page.validate() {
            return Ok(());
        }
        for number in numbers {
            let Some((table, page)) = self.slot(number) else { continue };
            if let weft_buffer::SwipState::Cold(_) = table.swip(page).state() {
                let (pool, table) = (self.pool.clone(), Arc::clone(table));
                // What is wrong with it, who comes to it hears.
                drop(spawn_begun(async move { drop(pool.fix_for_scan(&table, page).await) }));
            }
        }
        Ok(())
    }
}

impl Range<'_> {
    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub async fn next(&mut self) -> Result<Option<&Entry>, IndexError> {
        loop {
            let next = match self.direction {
                Direction::Forwards => self.slots.next(),
                Direction::Backwards => self.slots.next_back(),
            };
            if let (Some(index), Some(leaf)) = (next, &self.leaf) {
                let node = leaf.node();
                self.entry.key.clear();
                node.append_key(index, &mut self.entry.key);
                self.entry.row = node.row(index);
                if !self.tree.form.is_unique {
                    let at = self.entry.key.len().saturating_sub(8);
                    let row = self.entry.key.split_off(at);
                    self.entry.row = row.try_into().map_or(0, u64::from_be_bytes);
                }
                self.entry.included.clear();
                node.append_included(index, &mut self.entry.included);
                return Ok(Some(&self.entry));
            }
            let Some(fence) = self.fence.take() else { return Ok(None) };
            self.go_to(fence).await?;
        }
    }

    async fn go_to(&mut self, fence: Option<Vec<u8>>) -> Result<(), IndexError> {
        let ahead = if self.leaves_seen == 0 { 0 } else { (2 * self.leaves_seen).min(AHEAD_MAX) };
        self.leaves_seen += 1;
        let image = match self.direction {
            Direction::Forwards => self.tree.copy_of(fence.as_deref().unwrap_or_default()).await?,
            Direction::Backwards => self.tree.leaf_below(fence.as_deref()).await?,
        };
        let node = image.node();
        let bound =
            |key: &Option<Vec<u8>>, none| key.as_ref().map_or(none, |key| node.lower_bound_of(key));
        let start = match (&self.direction, &fence) {
            (Direction::Forwards, Some(fence)) => node.lower_bound_of(fence),
            _ => 0,
        };
        let end = match (&self.direction, &fence) {
            (Direction::Backwards, Some(fence)) => node.lower_bound_of(fence),
            _ => node.count(),
        };
        self.slots = start.max(bound(&self.low, 0))..end.min(bound(&self.high, node.count()));
        let next = match self.direction {
            Direction::Forwards => {
                let end = node.high();
                end.filter(|end| self.high.as_ref().is_none_or(|high| end < high))
            }
            Direction::Backwards => {
                let start = node.low();
                start.filter(|start| self.low.as_ref().is_none_or(|low| start > low))
            }
        };
        if ahead > 0 && next.is_some() {
            let key = node.low().unwrap_or_default();
            self.tree.read_ahead(&key, self.direction, ahead).await?;
        }
        self.fence = next.map(Some);
        self.leaf = Some(image);
        Ok(())
    }
}

impl Node<&[u8]> {
    /// True if the node is one of this level, and holds the keys just below `below`, or the last ones.
    fn covers_below(self, level: u8, below: Option<&[u8]>) -> bool {
        let (low, high) = (self.low(), self.high());
        self.is_alive()
            && self.level() == level
            && match below {
                // Below the first key there is none: the first leaf does.
                Some(below) => {
                    low.is_none_or(|low| low.as_slice() < below)
                        && high.is_none_or(|high| below <= high.as_slice())
                }
                None => high.is_none(),
            }
    }
}
