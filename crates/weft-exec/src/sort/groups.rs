//! Groups: neighbours among entries that have the same bits, whose tuples are told apart by further digits of their keys.
//!
//! All groups of a few thousand entries that go on at the same place in the keys take their next digit together, so that the
//! cache misses on the way to tuples, and to their strings, overlap. Each group is then sorted by the digit, which
//! leaves smaller groups, until there are none or the keys have ended.

use std::collections::BTreeMap;
use std::ops::Range;

use super::digit::{BATCH, Digit, Position};
use super::entries::{Entry, PIECE};
use super::order::Order;
use super::radix::sort_by_bits;
use crate::pace::Pace;

/// Batches whose digits are loaded before others may run.
pub(super) const BATCHES: usize = 8;

/// In a group of at most so many entries, what they have in common is skipped at once.
const SKIPPING_MAX: usize = 256;

/// Entries that have the same bits: numbers of the first, and of the one behind the last.
type Group = Range<u32>;

/// Cuts entries that are sorted by their bits into parts of at most `most`, or of a single group, so that no group is in two.
pub(super) async fn cut_between_groups(
    entries: &[Entry],
    most: usize,
    pace: &mut Pace,
) -> Vec<Range<usize>> {
    let mut parts = Vec::with_capacity(entries.len().div_ceil(most));
    let mut start = 0;
    while start < entries.len() {
        let mut end = entries.len().min(start + most);
        if end < entries.len() {
            let bits = entries[end].bits;
            end = start + entries[start..end].partition_point(|entry| entry.bits < bits);
            if end == start {
                end += entries[start..].partition_point(|entry| entry.bits <= bits);
            }
        }
        parts.push(start..end);
        start = end;
        pace.keep().await;
    }
    parts
}

/// Sorts entries by their keys that are sorted by their bits, which are those of a digit. They keep these bits.
///
/// # Safety
/// They are of tuples of the order's layout, which are alive, and nobody writes to but to their headers.
pub(super) async unsafe fn sort_groups(
    entries: &mut [Entry],
    digit: &Digit,
    order: &Order,
    pace: &mut Pace,
) {
    let mut positions: BTreeMap<Position, Vec<Group>> = BTreeMap::new();
    let mut kept = Vec::new();
    let mut of_digit = Groups::of(0..entries.len());
    while let Some(group) = of_digit.next(entries, pace).await {
        let bits = entries[group.start as usize].bits;
        if let Some(position) = digit.next(bits) {
            kept.push((group.clone(), bits));
            positions.entry(position).or_default().push(group);
        }
    }
    // Entries that were loaded or sorted since others could run: there may be many positions with a few groups each.
    let mut done = 0;
    // Those that are left behind the most come first, so that others wait for them and go on with them.
    while let Some((position, groups)) = positions.pop_first() {
        let digit = Digit::at(order, position);
        // SAFETY: as the caller promises.
        unsafe { load(entries, &groups, &digit, &mut done, pace).await };
        for group in groups {
            let part = &mut entries[range(&group)];
            if part.len() > PIECE {
                sort_by_bits(part, pace).await;
            } else {
                part.sort_unstable_by_key(|entry| entry.bits);
            }
            let mut smaller = Groups::of(range(&group));
            while let Some(smaller) = smaller.next(entries, pace).await {
                let part = &entries[range(&smaller)];
                let position = if smaller == group && part.len() <= SKIPPING_MAX {
                    // SAFETY: as the caller promises.
                    unsafe { digit.next_of(part) }
                } else {
                    digit.next(part[0].bits)
                };
                if let Some(position) = position {
                    positions.entry(position).or_default().push(smaller);
                }
            }
            done += group.len();
            if done >= BATCHES * BATCH {
                done = 0;
                pace.keep().await;
            }
        }
    }
    for (group, bits) in kept {
        for piece in entries[range(&group)].chunks_mut(PIECE) {
            piece.iter_mut().for_each(|entry| entry.bits = bits);
            if piece.len() == PIECE {
                pace.keep().await;
            }
        }
    }
}

/// Puts a digit of each entry of groups in place of its bits. Counts them in `done`, and others may run now and then.
///
/// # Safety
/// As [`sort_groups`].
async unsafe fn load(
    entries: &mut [Entry],
    groups: &[Group],
    digit: &Digit,
    done: &mut usize,
    pace: &mut Pace,
) {
    let mut batch = Batch::default();
    for group in groups {
        for number in range(group) {
            let tuple = entries[number].tuple;
            digit.prefetch(tuple);
            if batch.add(tuple, number) {
                // SAFETY: as the caller promises.
                unsafe { batch.load(digit, entries) };
                *done += BATCH;
                if *done >= BATCHES * BATCH {
                    *done = 0;
                    pace.keep().await;
                }
            }
        }
    }
    // SAFETY: as the caller promises.
    unsafe { batch.load(digit, entries) };
}

/// Entries whose digits are loaded together.
struct Batch {
    count: usize,
    tuples: [u64; BATCH],
    numbers: [u32; BATCH],
    digits: [u64; BATCH],
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { count: 0, tuples: [0; BATCH], numbers: [0; BATCH], digits: [0; BATCH] }
    }
}

impl Batch {
    /// True if it is full then.
    fn add(&mut self, tuple: u64, entry: usize) -> bool {
        self.tuples[self.count] = tuple;
        self.numbers[self.count] = number(entry);
        self.count += 1;
        self.count == BATCH
    }

    /// # Safety
    /// As [`sort_groups`].
    unsafe fn load(&mut self, digit: &Digit, entries: &mut [Entry]) {
        let count = std::mem::take(&mut self.count);
        // SAFETY: as the caller promises.
        unsafe { digit.load(&self.tuples[..count], &mut self.digits[..count]) };
        for (number, digit) in self.numbers[..count].iter().zip(&self.digits) {
            entries[*number as usize].bits = *digit;
        }
    }
}

fn number(entry: usize) -> u32 {
    u32::try_from(entry).expect("groups of less than 64 GiB of entries")
}

fn range(group: &Group) -> Range<usize> {
    group.start as usize..group.end as usize
}

/// The groups of a range of entries that is sorted by their bits.
struct Groups {
    left: Range<usize>,
    /// Groups gone through since others could run.
    passed: usize,
}

impl Groups {
    fn of(range: Range<usize>) -> Groups {
        Groups { left: range, passed: 0 }
    }

    /// The next one that has more than one entry.
    async fn next(&mut self, entries: &[Entry], pace: &mut Pace) -> Option<Group> {
        while self.left.start < self.left.end {
            let first = self.left.start;
            let end = end_of_group(&entries[..self.left.end], first);
            self.left.start = end;
            self.passed += 1;
            if self.passed == PIECE {
                self.passed = 0;
                pace.keep().await;
            }
            if end - first > 1 {
                return Some(number(first)..number(end));
            }
        }
        None
    }
}

/// Where the group of an entry ends, which is the first of its group.
#[inline]
fn end_of_group(entries: &[Entry], first: usize) -> usize {
    /// Most groups are small.
    const NEAR: usize = 16;
    let bits = entries[first].bits;
    let mut end = first + 1;
    while end < entries.len() && entries[end].bits == bits {
        end += 1;
        if end - first == NEAR {
            return end + entries[end..].partition_point(|entry| entry.bits == bits);
        }
    }
    end
}
