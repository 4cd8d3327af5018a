//! Lookups of what is in memory, on any thread: without a coroutine, so that nothing can be waited for.
//!
//! The descent is that of `tree.rs`. Where that would wait, for a page or for a coroutine that changes one, this one gives up, and
//! its caller has a worker look the key up.

use super::{ROOT, Tree, Visit};
use crate::node::head_of;

/// Descents that other coroutines' changes may spoil before a lookup gives up.
const ATTEMPTS: usize = 4;

/// What a lookup that waits for nothing has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// The id of the row with the key.
    Row(u64),
    /// No row has the key.
    NoRow,
    /// A page on the way is not in memory, is being changed, or is not what it should be: [`Tree::get`] tells.
    Unknown,
}

impl Tree {
    /// The row with this key, as far as that can be told without waiting. On any thread. Of a tree whose keys need not be
    /// unique nothing can be told.
    pub fn get_resident(&self, key: &[u8]) -> Resident {
        self.look_up_resident(key, None)
    }

    /// As [`Tree::get_resident`], and puts what the entry of the row includes into `included`.
    pub fn get_resident_entry(&self, key: &[u8], included: &mut Vec<u8>) -> Resident {
        self.look_up_resident(key, Some(included))
    }

    fn look_up_resident(&self, key: &[u8], mut included: Option<&mut Vec<u8>>) -> Resident {
        if !self.form.is_unique {
            return Resident::Unknown;
        }
        let attempt = |_| match self.descend_resident(key, included.as_deref_mut()) {
            Descent::Ended(found) => Some(found),
            Descent::Spoilt => None,
        };
        (0..ATTEMPTS).find_map(attempt).unwrap_or(Resident::Unknown)
    }

    fn visit_resident(&self, number: u32) -> Option<Visit<'_>> {
        let (table, page) = self.slot(number)?;
        let page = self.pool.try_optimistic(table, page)?;
        Some(Visit { page, number, guard: None })
    }

    fn descend_resident(&self, key: &[u8], included: Option<&mut Vec<u8>>) -> Descent {
        let Some(mut at) = self.visit_resident(ROOT) else {
            return Descent::Ended(Resident::Unknown);
        };
        loop {
            let node = at.node();
            let level = node.level();
            let suffix = key.get(node.prefix_len()..).unwrap_or(&[]);
            let head = head_of(suffix);
            let (low, high) = node.narrow(head);
            let (index, is_equal) = node.lower_bound_in(low, high, head, suffix);
            if level == 0 {
                let row = is_equal.then(|| node.row(index));
                if let (Some(included), true) = (included, is_equal) {
                    included.clear();
                    node.append_included(index, included);
                }
                return match at.page.validate() {
                    true => Descent::Ended(row.map_or(Resident::NoRow, Resident::Row)),
                    false => Descent::Spoilt,
                };
            }
            let child = node.child(if is_equal { index } else { index.saturating_sub(1) });
            if !at.page.validate() {
                return Descent::Spoilt;
            }
            let Some(next) = self.visit_resident(child) else {
                return Descent::Ended(Resident::Unknown);
            };
            if !at.page.validate() && !next.node().covers(level - 1, key) {
                return Descent::Spoilt;
            }
            if next.node().level() != level - 1 {
                return match next.page.validate() {
                    true => Descent::Ended(Resident::Unknown),
                    false => Descent::Spoilt,
                };
            }
            at = next;
        }
    }
}

/// How a descent has ended.
enum Descent {
    Ended(Resident),
    /// A node was changed while it was read.
    Spoilt,
}
