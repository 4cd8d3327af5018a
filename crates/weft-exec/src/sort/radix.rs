//! Sorting entries by their bits where they are, on one worker: radix sort in place (American flag sort; McIlroy, Bostic,
//! McIlroy, 1993), from the first bit on in which entries differ, until what is left fits into a core's cache.

use std::ops::Range;

use super::entries::{Entry, PIECE};
use crate::pace::Pace;

/// Bits that tell buckets apart.
const BUCKET_BITS: u32 = 8;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// Entries that are moved before others may run.
const MOVED_MAX: usize = PIECE / 2;

/// Sorts entries by their bits.
pub(super) async fn sort_by_bits(entries: &mut [Entry], pace: &mut Pace) {
    let mut unsorted: Vec<Range<usize>> = std::iter::once(0..entries.len()).collect();
    while let Some(range) = unsorted.pop() {
        let part = &mut entries[range.clone()];
        if part.len() <= PIECE {
            part.sort_unstable_by_key(|entry| entry.bits);
            pace.keep().await;
            continue;
        }
        let Some(shift) = shift_of(part, pace).await else { continue };
        let ends = scatter(part, shift, pace).await;
        let mut start = 0;
        for end in ends {
            if end - start > 1 {
                unsorted.push(range.start + start..range.start + end);
            }
            start = end;
        }
    }
}

fn bucket_of(entry: &Entry, shift: u32) -> usize {
    (entry.bits >> shift) as usize % BUCKETS
}

/// How many bits are behind those that tell buckets apart; all bits before these are the same. `None` if all bits are.
async fn shift_of(entries: &[Entry], pace: &mut Pace) -> Option<u32> {
    let mut differing = 0;
    for piece in entries.chunks(PIECE) {
        differing = piece.iter().fold(differing, |all, entry| all | entry.bits ^ entries[0].bits);
        pace.keep().await;
    }
    let bits = u64::BITS - differing.leading_zeros();
    (bits > 0).then(|| bits.saturating_sub(BUCKET_BITS))
}

/// Moves entries to their buckets; returns where each of these ends.
async fn scatter(entries: &mut [Entry], shift: u32, pace: &mut Pace) -> Vec<usize> {
    let mut counts = vec![0; BUCKETS];
    for piece in entries.chunks(PIECE) {
        piece.iter().for_each(|entry| counts[bucket_of(entry, shift)] += 1);
        pace.keep().await;
    }
    let mut end = 0;
    let mut next = Vec::with_capacity(BUCKETS);
    let mut ends = counts;
    for count in &mut ends {
        next.push(end);
        end += *count;
        *count = end;
    }
    let mut moved = 0;
    for bucket in 0..BUCKETS {
        while next[bucket] < ends[bucket] {
            // The entry that is in somebody's place goes to its own, whose entry then goes to its own, and so on.
            let mut entry = entries[next[bucket]];
            loop {
                let own = bucket_of(&entry, shift);
                let place = next[own];
                next[own] += 1;
                moved += 1;
                if own == bucket {
                    entries[place] = entry;
                    break;
                }
                std::mem::swap(&mut entries[place], &mut entry);
                if moved >= MOVED_MAX {
                    moved = 0;
                    pace.keep().await;
                }
            }
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn entries_are_sorted_by_their_bits() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for count in [0, 1, 2, 1000, PIECE, PIECE + 1, 5 * PIECE] {
            for mask in [u64::MAX, 0, 1, 1 << 63, 0xff0, 0x00f0_0000_0000_0f01, 0x7 << 61] {
                let base = random.u64(..) & !mask;
                let mut entries: Vec<Entry> = (0..count)
                    .map(|tuple| Entry { bits: base | random.u64(..) & mask, tuple: tuple as u64 })
                    .collect();
                let mut sorted = entries.clone();
                block_on(sort_by_bits(&mut entries, &mut Pace::default()));
                assert!(entries.is_sorted_by_key(|entry| entry.bits));
                let key = |entry: &Entry| (entry.bits, entry.tuple);
                sorted.sort_unstable_by_key(key);
                entries.sort_unstable_by_key(key);
                assert_eq!(entries, sorted);
            }
        }
    }
}
