//! Merging by units: sorted segments are cut at the same keys, so that each unit has a part of every segment, and units can
//! be merged on their own, by all workers.
//!
//! Which keys those are is found from samples of all segments. Among equal keys, those of the first segments come first,
//! so that units have about the same size whatever keys there are.

use std::cmp::Ordering;
use std::ops::Range;

use super::digit::Digit;
use super::entries::Entry;
use super::groups::sort_groups;
use super::order::Order;
use crate::pace::Pace;

/// Entries in their order.
pub(super) trait Segment {
    /// How many.
    fn count(&self) -> usize;

    /// The `number`th.
    fn entry(&self, number: usize) -> Entry;
}

/// A place in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) entry: Entry,
    pub(super) segment: usize,
    pub(super) number: usize,
}

impl Place {
    /// Which one comes first.
    ///
    /// # Safety
    /// As [`Entry::compare`].
    pub(super) unsafe fn compare(&self, other: &Place, order: &Order) -> Ordering {
        // SAFETY: as the caller promises.
        let ordering = unsafe { self.entry.compare(&other.entry, order) };
        ordering.then(self.segment.cmp(&other.segment)).then(self.number.cmp(&other.number))
    }

    /// How many entries of a segment come before this place, which is one of its own if the segment has the number.
    ///
    /// # Safety
    /// As [`Entry::compare`].
    pub(super) unsafe fn before(
        &self,
        segment: &impl Segment,
        number: usize,
        order: &Order,
    ) -> usize {
        if number == self.segment {
            return self.number;
        }
        let (mut low, mut high) = (0, segment.count());
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: as the caller promises.
            let ordering = unsafe { segment.entry(middle).compare(&self.entry, order) };
            let is_before = ordering.then(number.cmp(&self.segment)).is_lt();
            if is_before { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Entries of a unit for each segment, at least: else it takes longer to cut than to merge.
const PER_SEGMENT: usize = 16;

/// Cuts segments into units of about `unit` entries, or more if there are many segments: for each unit, the range of each segment. Units are in their order.
///
/// # Safety
/// The entries are of tuples that are alive, and of the order's layout.
pub(super) unsafe fn cut<S: Segment>(
    segments: &[S],
    unit: usize,
    order: &Order,
) -> Vec<Vec<Range<usize>>> {
    let count: usize = segments.iter().map(Segment::count).sum();
    let unit = unit.max(PER_SEGMENT * segments.len());
    let units = count.div_ceil(unit);
    let mut ranges = vec![Vec::with_capacity(segments.len()); units];
    if units <= 1 {
        ranges.iter_mut().for_each(|unit| unit.extend(segments.iter().map(|s| 0..s.count())));
        return ranges;
    }
    // As many entries of a segment may come before the first sample of a unit as there are between two.
    let stride = (unit / (2 * segments.len())).max(1);
    let mut samples: Vec<Place> = Vec::with_capacity(count / stride);
    for (number, segment) in segments.iter().enumerate() {
        let places = (stride - 1..segment.count()).step_by(stride);
        samples.extend(places.map(|place| Place {
            entry: segment.entry(place),
            segment: number,
            number: place,
        }));
    }
    // SAFETY: as the caller promises.
    samples.sort_unstable_by(|a, b| unsafe { a.compare(b, order) });
    let mut starts = vec![0; segments.len()];
    for (number, ranges) in ranges.iter_mut().enumerate() {
        let next = samples.get((number + 1) * samples.len() / units);
        let is_last = number + 1 == units;
        for (at, (segment, start)) in segments.iter().zip(&mut starts).enumerate() {
            let end = match next.filter(|_| !is_last) {
                // SAFETY: as the caller promises.
                Some(next) => unsafe { next.before(segment, at, order) },
                None => segment.count(),
            };
            ranges.push(*start..end.max(*start));
            *start = end.max(*start);
        }
    }
    ranges
}

/// Merges sorted segments that lie one behind the other.
///
/// # Safety
/// The entries are of tuples that are alive, and of the order's layout.
pub(super) async unsafe fn merge_neighbours(entries: &mut [Entry], order: &Order) {
    // It finds the segments by itself.
    entries.sort_by_key(|entry| entry.bits);
    if !order.is_exact() {
        // SAFETY: as the caller promises.
        unsafe {
            sort_groups(entries, &Digit::of_headers(order), order, &mut Pace::default()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;

    use super::*;
    use crate::tuple::Layout;

    impl Segment for &[Entry] {
        fn count(&self) -> usize {
            self.len()
        }

        fn entry(&self, number: usize) -> Entry {
            self[number]
        }
    }

    #[test]
    fn units_follow_each_other_and_are_of_a_size() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let order = Order::new(Arc::new(Layout::new(&[])), Vec::new());
        assert!(order.is_exact(), "tuples are not looked at");
        for _ in 0..300 {
            let keys = [1, 3, 1 << 40][random.usize(..3)];
            let segments: Vec<Vec<Entry>> = (0..random.usize(1..12))
                .map(|_| {
                    let count = random.usize(..600);
                    let mut bits: Vec<u64> = (0..count).map(|_| random.u64(..keys)).collect();
                    bits.sort_unstable();
                    bits.into_iter().map(|bits| Entry { bits, tuple: random.u64(..) }).collect()
                })
                .collect();
            let slices: Vec<&[Entry]> = segments.iter().map(Vec::as_slice).collect();
            let unit = random.usize(1..400);
            // SAFETY: the order does not look at tuples.
            let units = unsafe { cut(&slices, unit, &order) };
            let mut merged = Vec::new();
            for ranges in units {
                let mut entries: Vec<Entry> = Vec::new();
                for (segment, range) in slices.iter().zip(ranges) {
                    entries.extend(&segment[range]);
                }
                let most = 2 * unit.max(PER_SEGMENT * slices.len());
                assert!(entries.len() <= most, "{} {unit}", entries.len());
                // SAFETY: as above.
                unsafe { block_on(merge_neighbours(&mut entries, &order)) };
                merged.extend(entries);
            }
            assert!(merged.is_sorted_by_key(|entry| entry.bits));
            let mut all: Vec<(u64, u64)> =
                segments.iter().flatten().map(|entry| (entry.bits, entry.tuple)).collect();
            let mut got: Vec<(u64, u64)> =
                merged.iter().map(|entry| (entry.bits, entry.tuple)).collect();
            all.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, all);
        }
    }
}
