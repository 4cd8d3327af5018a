//! By how many bits of the hash tuples are partitioned where memory is short. A page is filled for each partition, so with more of
//! them pages become small: those of a few tuples take more to write and read than what there is to be had, and as much memory as
//! full ones when they come back.

use crate::tuple::materializer::PARTITIONS;

/// Most bits that lead to a partition.
pub(crate) const BITS_MAX: u32 = PARTITIONS.ilog2();
/// Least bits.
const BITS_MIN: u32 = 3;

/// Memory for each partition: for pages of half the size, as others are on their way to disk.
const PARTITION_BYTES: u64 = 32 << 10;

/// There are about so many partitions for each worker at least.
const PARTITIONS_PER_WORKER: usize = 4;

/// What does not fit is partitioned into so many parts for each part of it that would, so that one fits beside the one that is
/// worked on.
const PARTS: u64 = 4;

/// Bits for what is `times` as much as fits into memory of so many bytes, which is also what there is for pages.
pub(crate) fn bits_anew(times: u64, memory_bytes: u64) -> u32 {
    let needed = times.saturating_mul(PARTS).checked_next_power_of_two();
    needed.map_or(u64::BITS, u64::ilog2).min(suitable(memory_bytes)).clamp(BITS_MIN, BITS_MAX)
}

/// Bits for tuples of which nobody knows yet how many they are, by workers that may come to have so much memory each for them, and
/// none of whom is to wait long for the others in the end.
pub(crate) fn bits_first(memory_bytes: u64, workers: usize) -> u32 {
    let least = (PARTITIONS_PER_WORKER * workers).next_power_of_two().ilog2();
    suitable(memory_bytes).max(least).clamp(BITS_MIN, BITS_MAX)
}

fn suitable(memory_bytes: u64) -> u32 {
    (memory_bytes / PARTITION_BYTES).max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_as_many_as_are_needed_and_suitable() {
        // Ample memory.
        assert_eq!(bits_anew(2, 1 << 30), 3);
        assert_eq!(bits_anew(9, 1 << 30), 6);
        assert_eq!(bits_anew(1000, 1 << 30), 8);
        assert_eq!(bits_anew(u64::MAX, u64::MAX), 8);
        assert_eq!(bits_first(8 << 20, 2), 8);
        // Little.
        assert_eq!(bits_anew(100, 1 << 20), 5);
        assert_eq!(bits_anew(100, 100), 3);
        assert_eq!((bits_first(1 << 20, 2), bits_first(0, 1), bits_first(0, 100)), (5, 3, 8));
    }
}
