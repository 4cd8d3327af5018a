//! Ids of the rows of a range, some at a time: what a short range costs is a descent and its entries.
//!
//! A [`Range`](super::range::Range) copies a leaf to give its entries one by one; this looks at a leaf as a lookup does, optimistically,
//! takes some ids out of it, and comes back for the next ones by their keys. The first time it takes few: who breaks off
//! early has not paid for more.

use std::ops;

use super::Tree;
use super::mode::Mode;
use super::range::Direction;
use crate::error::IndexError;
use crate::node::{Node, NodeBytes};

/// Entries that are taken at first, and at most; each time there are four times as many.
const TAKEN_FIRST: usize = 16;
const TAKEN_MAX: usize = 256;
/// Leaves that are read ahead of a range that has come some way.
const AHEAD_MAX: usize = 32;

/// The rows of a tree whose keys are in a range, in order.
pub struct RangeRows<'a, M> {
    tree: &'a Tree,
    mode: M,
    direction: Direction,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    is_over: bool,
    /// The next leaf of a range that goes backwards is the one below `high`, where none with that key in it may be.
    is_below: bool,
    taken_max: usize,
    leaves_seen: usize,
    rows: Vec<u64>,
    /// Keys of the rows, one after the other, and where each one ends; of a unique tree there are none.
    keys: Vec<u8>,
    ends: Vec<usize>,
}

impl Tree {
    /// As [`Tree::range`], of ids of rows, in a mode.
    pub fn range_rows<M: Mode>(
        &self,
        mode: M,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        direction: Direction,
    ) -> RangeRows<'_, M> {
        RangeRows {
            tree: self,
            mode,
            direction,
            low: low.unwrap_or_default().to_vec(),
            high: high.map(<[u8]>::to_vec),
            is_over: high.is_some_and(|high| low.unwrap_or_default() >= high),
            is_below: high.is_none(),
            taken_max: TAKEN_FIRST,
            leaves_seen: 0,
            rows: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
        }
    }
}

/// What a look at a leaf has given.
struct Taken {
    /// A bound for what is still to come; `None` if that is nothing.
    next: Option<Vec<u8>>,
    /// The leaf has no more of the range.
    is_used_up: bool,
}

impl<M: Mode> RangeRows<'_, M> {
    /// Comes to the next rows; false after the last.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub async fn next(&mut self) -> Result<bool, IndexError> {
        loop {
            self.rows.clear();
            if self.is_over {
                return Ok(false);
            }
            let taken = match self.direction {
                Direction::Forwards => M::call(self.take_forwards()).await?,
                Direction::Backwards if self.is_below => {
                    let image = self.tree.leaf_below(self.high.as_deref()).await?;
                    self.take(image.node())
                }
                Direction::Backwards => M::call(self.take_backwards()).await?,
            };
            let Taken { next, is_used_up } = taken;
            self.is_over = next.is_none();
            self.is_below = is_used_up;
            self.taken_max = (4 * self.taken_max).min(TAKEN_MAX);
            if let Some(next) = next {
                if is_used_up {
                    self.leaves_seen += 1;
                    let ahead = (2 * self.leaves_seen).min(AHEAD_MAX);
                    // A box: ranges are short as a rule.
                    Box::pin(self.tree.read_ahead(&next, self.direction, ahead)).await?;
                }
                match self.direction {
                    Direction::Forwards => self.low = next,
                    Direction::Backwards => self.high = Some(next),
                }
            }
            if !self.rows.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Ids of the rows that it has come to, in the order of the range.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// The key of one of them, without its id.
    ///
    /// # Panics
    /// If the tree is unique, in which each row has one key, or if there is no such row.
    pub fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[index] - 8]
    }

    async fn take_forwards(&mut self) -> Result<Taken, IndexError> {
        let tree = self.tree;
        loop {
            let leaf = tree.leaf_of(self.mode, &self.low).await?;
            let node = leaf.node();
            if M::PREFETCHES && tree.is_waited_for(0) {
                let (start, _) = M::call(tree.search(self.mode, &leaf, 0, &self.low)).await;
                self.ask_for(node, start..start + self.taken_max);
                self.mode.pause().await;
            }
            let taken = self.take(node);
            if leaf.page.validate() {
                return Ok(taken);
            }
        }
    }

    async fn take_backwards(&mut self) -> Result<Taken, IndexError> {
        let tree = self.tree;
        loop {
            let high = self.high.as_deref().unwrap_or_default();
            let leaf = tree.leaf_of(self.mode, high).await?;
            let node = leaf.node();
            if M::PREFETCHES && tree.is_waited_for(0) {
                let (end, _) = M::call(tree.search(self.mode, &leaf, 0, high)).await;
                self.ask_for(node, end.saturating_sub(self.taken_max)..end);
                self.mode.pause().await;
            }
            let taken = self.take(node);
            if leaf.page.validate() {
                return Ok(taken);
            }
        }
    }

    /// Asks for the records of slots: what lies beside each other is asked for once.
    fn ask_for(&self, node: Node<weft_buffer::OptimisticPage<'_>>, slots: ops::Range<usize>) {
        let mut last = usize::MAX;
        for slot in slots.start..slots.end.min(node.count()) {
            let line = node.slot(slot).record_at / 64;
            if line != last {
                node.0.prefetch_line(line * 64);
                last = line;
            }
        }
    }

    /// Takes what a leaf has next.
    fn take<B: NodeBytes>(&mut self, node: Node<B>) -> Taken {
        self.rows.clear();
        self.keys.clear();
        self.ends.clear();
        let count = node.count();
        let start = node.lower_bound_of(&self.low).min(count);
        let end = self.high.as_deref().map_or(count, |high| node.lower_bound_of(high)).min(count);
        let forwards = self.direction == Direction::Forwards;
        let slots = match forwards {
            true => start..end.min(start + self.taken_max),
            false => start.max(end.saturating_sub(self.taken_max))..end,
        };
        if forwards {
            slots.clone().for_each(|slot| self.take_entry(node, slot));
        } else {
            slots.clone().rev().for_each(|slot| self.take_entry(node, slot));
        }
        if slots.len() < end.saturating_sub(start) {
            let last = if forwards { slots.end - 1 } else { slots.start };
            let mut bound = node.key(last);
            if forwards {
                bound.push(0);
            }
            return Taken { next: Some(bound), is_used_up: false };
        }
        let next = match forwards {
            true => node.high().filter(|end| self.high.as_ref().is_none_or(|high| end < high)),
            false => node.low().filter(|start| *start > self.low),
        };
        Taken { next, is_used_up: true }
    }

    fn take_entry<B: NodeBytes>(&mut self, node: Node<B>, slot: usize) {
        if self.tree.form.is_unique {
            self.rows.push(node.row(slot));
            return;
        }
        node.append_key(slot, &mut self.keys);
        let row = self.keys.last_chunk::<8>().map_or(0, |row| u64::from_be_bytes(*row));
        self.rows.push(row);
        self.ends.push(self.keys.len());
    }
}
