//! Extents: runs of 4 KiB units of a device, and sets of them.

use std::collections::BTreeMap;

use crate::wire::{Reader, WireResult, Writer, wrong};

/// Bytes of a unit, in which space is counted.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// Units that a device can have: what the offset of a page id can say.
pub(crate) const UNITS_MAX: u64 = 1 << 47;

/// `units` units of a device from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) device: u8,
    pub(crate) start: u64,
    pub(crate) units: u64,
}

impl Extent {
    /// The unit behind the last one.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.units
    }

    /// Byte offset of the first unit.
    pub(crate) fn offset(&self) -> u64 {
        self.start * UNIT_BYTES
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.units * UNIT_BYTES
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u8(self.device);
        writer.u64(self.start);
        writer.u64(self.units);
    }

    /// Reads an extent that lies behind the header of its device.
    pub(crate) fn read(reader: &mut Reader<'_>) -> WireResult<Extent> {
        let extent = Extent { device: reader.u8()?, start: reader.u64()?, units: reader.u64()? };
        let end = extent.start.checked_add(extent.units);
        if extent.start == 0 || extent.units == 0 || end.is_none_or(|end| end > UNITS_MAX) {
            return wrong(format!("an impossible extent: {extent:?}"));
        }
        Ok(extent)
    }
}

/// Sorts extents and joins those that touch each other.
pub(crate) fn coalesce(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len().min(64));
    for extent in extents {
        match joined.last_mut() {
            Some(last) if last.device == extent.device && last.end() == extent.start => {
                last.units += extent.units;
            }
            _ => joined.push(extent),
        }
    }
    joined
}

/// Free units of one device.
#[derive(Debug, Default)]
pub(crate) struct FreeSet {
    /// Length by start; none touches another.
    by_start: BTreeMap<u64, u64>,
    units: u64,
}

impl FreeSet {
    /// Units in the set.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Adds units that are not in the set.
    ///
    /// # Panics
    /// If one of them is in it: space would be given out twice.
    pub(crate) fn insert(&mut self, start: u64, units: u64) {
        let (mut start, mut end) = (start, start + units);
        self.units += units;
        if let Some((&before, &len)) = self.by_start.range(..=start).next_back() {
            assert!(before + len <= start, "space at unit {start} was given back twice");
            if before + len == start {
                self.by_start.remove(&before);
                start = before;
            }
        }
        if let Some((&after, &len)) = self.by_start.range(start..).next() {
            assert!(end <= after, "space at unit {start} was given back twice");
            if after == end {
                self.by_start.remove(&after);
                end = after + len;
            }
        }
        self.by_start.insert(start, end - start);
    }

    /// Takes `units` in a row from the lowest place where they are free.
    pub(crate) fn take(&mut self, units: u64) -> Option<u64> {
        if self.units < units {
            return None;
        }
        let (&start, &len) = self.by_start.iter().find(|(_, len)| **len >= units)?;
        self.by_start.remove(&start);
        if len > units {
            self.by_start.insert(start + units, len - units);
        }
        self.units -= units;
        Some(start)
    }

    /// Takes `most` units in a row from the lowest place where they are free, or else of the longest run all, if that has `least`; gives
    /// where they begin and how many they are.
    pub(crate) fn take_some(&mut self, least: u64, most: u64) -> Option<(u64, u64)> {
        if self.units < least {
            return None;
        }
        let mut longest = 0;
        for len in self.by_start.values() {
            longest = longest.max(*len);
            if longest >= most {
                break;
            }
        }
        let units = longest.min(most);
        (units >= least).then(|| self.take(units).map(|start| (start, units))).flatten()
    }

    /// Units in a row at the very end of `..end`.
    pub(crate) fn tail(&self, end: u64) -> u64 {
        match self.by_start.last_key_value() {
            Some((start, len)) if start + len == end => *len,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_extents_become_one() {
        let extent = |device, start, units| Extent { device, start, units };
        let joined =
            coalesce(vec![extent(1, 5, 1), extent(0, 8, 2), extent(0, 5, 3), extent(0, 1, 2)]);
        assert_eq!(joined, [extent(0, 1, 2), extent(0, 5, 5), extent(1, 5, 1)]);
    }

    #[test]
    fn free_sets_agree_with_a_bitmap() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut set, mut map) = (FreeSet::default(), vec![false; 300]);
        let mut taken: Vec<(u64, u64)> = vec![(0, 300)];
        for _ in 0..5_000 {
            if random.bool() && !taken.is_empty() {
                let (start, units) = taken.swap_remove(random.usize(..taken.len()));
                let first = random.u64(1..=units);
                set.insert(start, first);
                map[start as usize..(start + first) as usize].fill(true);
                if first < units {
                    taken.push((start + first, units - first));
                }
            } else {
                let units = random.u64(1..20);
                let row =
                    |start: usize| map[start..start + units as usize].iter().all(|free| *free);
                let expected = (0..=300 - units as usize).find(|start| row(*start));
                let start = set.take(units);
                assert_eq!(start, expected.map(|start| start as u64));
                if let Some(start) = start {
                    map[start as usize..(start + units) as usize].fill(false);
                    taken.push((start, units));
                }
            }
            if random.u8(..) < 40 {
                let (least, most) = (random.u64(1..10), random.u64(10..30));
                let runs = map.split(|free| !*free).map(<[bool]>::len);
                let longest = (runs.max().unwrap_or(0) as u64).min(most);
                let some = set.take_some(least, most);
                assert_eq!(some.map(|(_, units)| units), (longest >= least).then_some(longest));
                if let Some((start, units)) = some {
                    assert!(map[start as usize..(start + units) as usize].iter().all(|free| *free));
                    map[start as usize..(start + units) as usize].fill(false);
                    taken.push((start, units));
                }
            }
            let free = map.iter().filter(|free| **free).count();
            assert_eq!(set.units(), free as u64);
            let tail = map.iter().rev().take_while(|free| **free).count();
            assert_eq!(set.tail(300), tail as u64);
        }
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_our_bug() {
        let mut set = FreeSet::default();
        set.insert(4, 4);
        set.insert(6, 1);
    }
}
