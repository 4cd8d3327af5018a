//! Sets of row ids.

use std::collections::BTreeMap;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

/// Ids in one part of a set: their upper bits are the part's number.
const PART_IDS: u64 = 1 << 16;

/// A set of row ids of one table. It takes 8 KiB for each 65,536 consecutive ids of which some are in it.
#[derive(Debug, Default)]
pub struct RowSet {
    parts: BTreeMap<u64, Part>,
    len: u64,
}

struct Part(BooleanBufferBuilder);

impl std::fmt::Debug for Part {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Part")
    }
}

impl RowSet {
    /// The number of ids.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the set takes in memory.
    pub fn bytes(&self) -> u64 {
        self.parts.len() as u64 * (PART_IDS / 8 + 64)
    }

    /// Adds an id; false if it was there already.
    pub fn insert(&mut self, id: u64) -> bool {
        let part = self.parts.entry(id / PART_IDS).or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(PART_IDS as usize);
            bits.append_n(PART_IDS as usize, false);
            Part(bits)
        });
        let bit = (id % PART_IDS) as usize;
        let is_new = !part.0.get_bit(bit);
        part.0.set_bit(bit, true);
        self.len += u64::from(is_new);
        is_new
    }

    /// The number of ids of the `rows` from `first` on, and a bit for each of them that is set if it is in the set; `None` if
    /// none is.
    pub(crate) fn among(&self, first: u64, rows: usize) -> Option<BooleanBuffer> {
        let end = first + rows as u64;
        let mut bits = BooleanBufferBuilder::new(rows);
        let mut any = false;
        for (number, part) in self.parts.range(first / PART_IDS..=(end - 1) / PART_IDS) {
            let part_first = number * PART_IDS;
            let (from, to) = (first.max(part_first), end.min(part_first + PART_IDS));
            bits.append_n((from - first) as usize - bits.len(), false);
            for id in from..to {
                let is_in = part.0.get_bit((id - part_first) as usize);
                any |= is_in;
                bits.append(is_in);
            }
        }
        bits.append_n(rows - bits.len(), false);
        any.then(|| bits.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_over_the_ends_of_parts() {
        let mut set = RowSet::default();
        let ids = [3, 65_535, 65_536, 70_000, 1 << 40];
        assert!(ids.iter().all(|id| set.insert(*id)));
        assert!(!set.insert(70_000));
        assert_eq!(set.len(), 5);
        let among = |first, rows| -> Option<Vec<usize>> {
            set.among(first, rows).map(|bits| bits.set_indices().collect())
        };
        assert_eq!(among(0, 3), None);
        assert_eq!(among(0, 65_536), Some(vec![3, 65_535]));
        assert_eq!(among(65_530, 10_000), Some(vec![5, 6, 4_470]));
        assert_eq!(among((1 << 40) - 100_000, 200_000), Some(vec![100_000]));
        assert_eq!(among(200_000, 65_536), None);
    }
}
