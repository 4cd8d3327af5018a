//! A lookup as a state machine written by hand: the upper bound that coroutines are measured against.
//!
//! Asynchronous Memory Access Chaining (Kocberber, Falsafi, Grot, VLDB 2016), as CoroBase's AMAC-MK: the
//! same steps and the same prefetches as [`Tree::get`], with the states between them in an array. It knows no
//! device: what is not in memory, or changes meanwhile, goes to the coroutine.

use weft_buffer::OptimisticPage;

use super::mode::Prefetching;
use super::{LINES, ROOT, Tree};
use crate::error::IndexError;
use crate::node::{Node, SLOTS_AT, head_of};

/// Where one lookup has come to.
enum Stage<'a> {
    Idle,
    /// Its node's first lines were asked for.
    Node {
        number: u32,
        level: u8,
        parent: Option<OptimisticPage<'a>>,
    },
    /// As were the slots.
    Slots {
        page: OptimisticPage<'a>,
        level: u8,
        low: usize,
        high: usize,
    },
    /// As was the record.
    Record {
        page: OptimisticPage<'a>,
        index: usize,
    },
}

struct Lookup<'a> {
    key: usize,
    stage: Stage<'a>,
}

/// What a step came to.
enum Step {
    Waits,
    Found(Option<u64>),
    /// This is nothing that the machine knows.
    Gives,
}

impl Tree {
    /// As [`Tree::multi_get`] of a unique tree, by a state machine.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub async fn multi_get_amac<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        width: usize,
    ) -> Result<Vec<Option<u64>>, IndexError> {
        let mut rows = vec![None; keys.len()];
        let mut rest = Vec::new();
        let mut next = 0;
        let width = width.clamp(1, keys.len().max(1));
        let mut lookups: Vec<Lookup<'_>> =
            (0..width).map(|_| Lookup { key: 0, stage: Stage::Idle }).collect();
        let mut live = 0;
        loop {
            for lookup in &mut lookups {
                loop {
                    if let Stage::Idle = lookup.stage {
                        if next == keys.len() {
                            break;
                        }
                        lookup.key = next;
                        lookup.stage =
                            Stage::Node { number: ROOT, level: self.top_level(), parent: None };
                        next += 1;
                        live += 1;
                    }
                    match self.step(lookup, keys[lookup.key].as_ref()) {
                        Step::Waits => break,
                        Step::Found(row) => rows[lookup.key] = row,
                        Step::Gives => rest.push(lookup.key),
                    }
                    lookup.stage = Stage::Idle;
                    live -= 1;
                }
            }
            if live == 0 && next == keys.len() {
                break;
            }
        }
        for key in rest {
            rows[key] = self.get_in(Prefetching, keys[key].as_ref()).await?;
        }
        Ok(rows)
    }

    /// Goes on until memory has to be waited for.
    #[inline]
    fn step<'a>(&'a self, lookup: &mut Lookup<'a>, key: &[u8]) -> Step {
        loop {
            match lookup.stage {
                Stage::Idle => return Step::Gives,
                Stage::Node { number, level, parent } => {
                    let Some((table, page)) = self.slot(number) else { return Step::Gives };
                    let Some(page) = self.pool.try_optimistic(table, page) else {
                        return Step::Gives;
                    };
                    if parent.is_some_and(|parent| !parent.validate()) {
                        return Step::Gives;
                    }
                    let node = Node(page);
                    let suffix = key.get(node.prefix_len()..).unwrap_or(&[]);
                    let (low, high) = node.narrow(head_of(suffix));
                    lookup.stage = Stage::Slots { page, level, low, high };
                    if self.is_waited_for(level) {
                        for line in (low * 8 / 64)..=(high * 8 / 64) {
                            page.prefetch_line(SLOTS_AT + line * 64);
                        }
                        return Step::Waits;
                    }
                }
                Stage::Slots { page, level, low, high } => {
                    let node = Node(page);
                    let suffix = key.get(node.prefix_len()..).unwrap_or(&[]);
                    let head = head_of(suffix);
                    let (index, is_equal) = node.lower_bound_in(low, high, head, suffix);
                    if node.level() == 0 {
                        if !is_equal {
                            return if page.validate() { Step::Found(None) } else { Step::Gives };
                        }
                        lookup.stage = Stage::Record { page, index };
                        if self.is_waited_for(0) {
                            page.prefetch_line(node.slot(index).record_at);
                            return Step::Waits;
                        }
                        continue;
                    }
                    let child = node.child(if is_equal { index } else { index.saturating_sub(1) });
                    let level = level.saturating_sub(1);
                    if !page.validate() {
                        return Step::Gives;
                    }
                    lookup.stage = Stage::Node { number: child, level, parent: Some(page) };
                    if self.is_waited_for(level)
                        && let Some((table, page)) = self.slot(child)
                        && self.pool.prefetch_page(table, page, LINES)
                    {
                        return Step::Waits;
                    }
                }
                Stage::Record { page, index } => {
                    let row = Node(page).row(index);
                    return if page.validate() { Step::Found(Some(row)) } else { Step::Gives };
                }
            }
        }
    }
}
