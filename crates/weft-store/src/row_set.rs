//! Sets of row ids.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

/// Ids in one part of a set: their upper bits are the part's number.
const PART_IDS: u64 = 1 << 16;

/// Ids that a part lists; of more it has bits.
const LISTED_MAX: usize = 2048;

/// A set of row ids of one table. It takes 8 KiB for each 65,536 consecutive ids of which more than 2,048 are in it, and two
/// bytes for each id elsewhere. Copies share the parts in which they do not differ.
#[derive(Clone, Debug, Default)]
pub struct RowSet {
    parts: BTreeMap<u64, Arc<Part>>,
    len: u64,
    /// Bytes of the parts.
    bytes: u64,
}

#[derive(Clone)]
enum Part {
    /// The lower bits of the ids, ascending.
    Listed(Vec<u16>),
    /// A bit for each id of the part.
    Bits(Box<[u64]>),
}

impl fmt::Debug for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Part")
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match self {
            Part::Listed(ids) => ids.capacity() as u64 * 2 + 64,
            Part::Bits(_) => PART_IDS / 8 + 64,
        }
    }

    fn insert(&mut self, id: u16) -> bool {
        match self {
            Part::Listed(ids) => {
                let Err(at) = ids.binary_search(&id) else { return false };
                if ids.len() == LISTED_MAX {
                    let mut bits = vec![0; PART_IDS as usize / 64].into_boxed_slice();
                    ids.iter().for_each(|id| set_bit(&mut bits, *id));
                    set_bit(&mut bits, id);
                    *self = Part::Bits(bits);
                } else {
                    ids.insert(at, id);
                }
                true
            }
            Part::Bits(bits) => {
                let is_new = !has_bit(bits, id);
                set_bit(bits, id);
                is_new
            }
        }
    }

    fn contains(&self, id: u16) -> bool {
        match self {
            Part::Listed(ids) => ids.binary_search(&id).is_ok(),
            Part::Bits(bits) => has_bit(bits, id),
        }
    }

    /// Calls `each` with the ids of a range.
    fn each_within(&self, range: Range<usize>, mut each: impl FnMut(u16)) {
        match self {
            Part::Listed(ids) => {
                let first = ids.partition_point(|id| usize::from(*id) < range.start);
                let ids = ids[first..].iter().take_while(|id| usize::from(**id) < range.end);
                ids.for_each(|id| each(*id));
            }
            Part::Bits(bits) => {
                let ids = range.map(|id| id as u16).filter(|id| has_bit(bits, *id));
                ids.for_each(each);
            }
        }
    }

    /// The ids, ascending.
    fn ids(&self) -> Vec<u16> {
        match self {
            Part::Listed(ids) => ids.clone(),
            Part::Bits(bits) => (0..=u16::MAX).filter(|id| has_bit(bits, *id)).collect(),
        }
    }
}

fn has_bit(bits: &[u64], id: u16) -> bool {
    bits[usize::from(id) / 64] >> (id % 64) & 1 == 1
}

fn set_bit(bits: &mut [u64], id: u16) {
    bits[usize::from(id) / 64] |= 1 << (id % 64);
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
        self.bytes
    }

    /// Adds an id; false if it was there already.
    pub fn insert(&mut self, id: u64) -> bool {
        let mut before = 0;
        let part = match self.parts.entry(id / PART_IDS) {
            Entry::Occupied(part) => {
                let part = part.into_mut();
                before = part.bytes();
                part
            }
            Entry::Vacant(part) => part.insert(Arc::new(Part::Listed(Vec::new()))),
        };
        let is_new = Arc::make_mut(part).insert((id % PART_IDS) as u16);
        self.bytes += part.bytes();
        self.bytes -= before;
        self.len += u64::from(is_new);
        is_new
    }

    /// True if an id is in the set.
    pub fn contains(&self, id: u64) -> bool {
        self.parts.get(&(id / PART_IDS)).is_some_and(|part| part.contains((id % PART_IDS) as u16))
    }

    /// The ids, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().flat_map(|(number, part)| {
            part.ids().into_iter().map(move |id| number * PART_IDS + u64::from(id))
        })
    }

    /// The last id.
    pub(crate) fn last(&self) -> Option<u64> {
        let (number, part) = self.parts.last_key_value()?;
        part.ids().into_iter().next_back().map(|id| number * PART_IDS + u64::from(id))
    }

    /// Calls `each` with the ids of a range, ascending.
    pub(crate) fn each_within(&self, range: Range<u64>, mut each: impl FnMut(u64)) {
        if range.is_empty() {
            return;
        }
        for (number, part) in self.parts.range(range.start / PART_IDS..=(range.end - 1) / PART_IDS)
        {
            let first = number * PART_IDS;
            let (from, to) = (range.start.max(first) - first, range.end.min(first + PART_IDS));
            let within = from as usize..(to - first) as usize;
            part.each_within(within, |id| each(first + u64::from(id)));
        }
    }

    /// A bit for each of the `rows` from `first` on that is set if it is in the set; `None` if none is.
    pub(crate) fn among(&self, first: u64, rows: usize) -> Option<BooleanBuffer> {
        let mut bits = BooleanBufferBuilder::new(0);
        self.each_within(first..first + rows as u64, |id| {
            if bits.is_empty() {
                bits.append_n(rows, false);
            }
            bits.set_bit((id - first) as usize, true);
        });
        (!bits.is_empty()).then(|| bits.finish())
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
        assert_eq!(set.iter().collect::<Vec<_>>(), ids);
        assert_eq!((set.last(), RowSet::default().last()), (Some(1 << 40), None));
    }

    #[test]
    fn few_ids_take_little_memory_and_many_have_a_bit_each() {
        let mut set = RowSet::default();
        assert!((0..LISTED_MAX as u64).all(|id| set.insert(id * 7)));
        assert!(set.bytes() < 2 * PART_IDS / 8, "{} bytes", set.bytes());
        assert!((0..PART_IDS).all(|id| set.insert(id) != (id % 7 == 0 && id < 7 * 2048)));
        assert!((0..PART_IDS).all(|id| set.contains(id)));
        assert!(!set.contains(PART_IDS));
        assert_eq!((set.len(), set.bytes()), (PART_IDS, PART_IDS / 8 + 64));
        let copy = set.clone();
        assert!(copy.iter().eq(0..PART_IDS));
    }
}
