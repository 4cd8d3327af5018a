//! The way down as one coroutine: what CoroBase flattens by hand (section 4.3).
//!
//! An `async fn` that awaits another resumes it by a call and a jump to where it was, at each level of calls; with several
//! descents that take turns, these jumps are not foreseen. So the usual descent, of nodes that are in memory and do not change
//! meanwhile, is one function here that calls no other that suspends. Whatever else comes up, it gives up for the descent that knows all.

use weft_buffer::OptimisticPage;

use super::mode::Mode;
use super::{LINES, ROOT, Tree, Visit};
use crate::node::{Node, SLOTS_AT, head_of};

/// Asks for the slots that a search looks at.
#[inline]
fn ask_for_slots(page: OptimisticPage<'_>, low: usize, high: usize) {
    for line in (low * 8 / 64)..=(high * 8 / 64) {
        page.prefetch_line(SLOTS_AT + line * 64);
    }
}

impl Tree {
    /// The id of the row of a key in a unique tree; `None` if a page is not in memory, or nodes have changed meanwhile.
    pub(super) async fn look_up_flat<M: Mode>(&self, mode: M, key: &[u8]) -> Option<Option<u64>> {
        let (mut number, mut level) = (ROOT, self.top_level());
        let mut parent: Option<OptimisticPage<'_>> = None;
        loop {
            let (table, page) = self.slot(number)?;
            let page = self.pool.try_optimistic(table, page)?;
            if parent.is_some_and(|parent| !parent.validate()) {
                return None;
            }
            let suffix = key.get(Node(page).prefix_len()..).unwrap_or(&[]);
            let (low, high) = Node(page).narrow(head_of(suffix));
            if self.is_waited_for(level) {
                ask_for_slots(page, low, high);
                mode.pause().await;
            }
            let node = Node(page);
            let suffix = key.get(node.prefix_len()..).unwrap_or(&[]);
            let (index, is_equal) = node.lower_bound_in(low, high, head_of(suffix), suffix);
            if node.level() == 0 {
                if !is_equal {
                    return page.validate().then_some(None);
                }
                if self.is_waited_for(0) {
                    page.prefetch_line(node.slot(index).record_at);
                    mode.pause().await;
                }
                let row = Node(page).row(index);
                return page.validate().then_some(Some(row));
            }
            let child = node.child(if is_equal { index } else { index.saturating_sub(1) });
            if !page.validate() {
                return None;
            }
            (number, level, parent) = (child, level.saturating_sub(1), Some(page));
            if self.is_waited_for(level)
                && let Some((table, page)) = self.slot(number)
                && self.pool.prefetch_page(table, page, LINES)
            {
                mode.pause().await;
            }
        }
    }

    /// The leaf that a key is for; `None` as for [`Tree::look_up_flat`].
    pub(super) async fn leaf_of_flat<M: Mode>(&self, mode: M, key: &[u8]) -> Option<Visit<'_>> {
        let (mut number, mut level) = (ROOT, self.top_level());
        let mut parent: Option<OptimisticPage<'_>> = None;
        loop {
            let (table, page) = self.slot(number)?;
            let page = self.pool.try_optimistic(table, page)?;
            if parent.is_some_and(|parent| !parent.validate()) {
                return None;
            }
            if Node(page).level() == 0 {
                return page.validate().then_some(Visit { page, number, guard: None });
            }
            let suffix = key.get(Node(page).prefix_len()..).unwrap_or(&[]);
            let (low, high) = Node(page).narrow(head_of(suffix));
            if self.is_waited_for(level) {
                ask_for_slots(page, low, high);
                mode.pause().await;
            }
            let node = Node(page);
            let suffix = key.get(node.prefix_len()..).unwrap_or(&[]);
            let (index, is_equal) = node.lower_bound_in(low, high, head_of(suffix), suffix);
            let child = node.child(if is_equal { index } else { index.saturating_sub(1) });
            if !page.validate() {
                return None;
            }
            (number, level, parent) = (child, level.saturating_sub(1), Some(page));
            if self.is_waited_for(level)
                && let Some((table, page)) = self.slot(number)
                && self.pool.prefetch_page(table, page, LINES)
            {
                mode.pause().await;
            }
        }
    }
}
