//! Into how many partitions tuples of the probe side are put aside. A page is filled for each of them, so with fewer of them
//! pages are larger, or need less memory; but their build sides are larger when they come back.

use crate::spill::fan::BITS_MAX;
use crate::tuple::materializer::PAGE_BYTES_MIN;

/// What a worker needs for a partition to write pages of 64 KiB.
const PROBE_BYTES: u64 = 128 << 10;
/// What it needs for pages that are not much too small.
const PROBE_BYTES_MIN: u64 = 32 << 10;

/// There are about so many partitions for each worker at least, so that none waits long for others in the end.
const PARTITIONS_PER_WORKER: usize = 4;

/// Units of which a worker has the build sides in memory at once.
const UNITS_SERVED: u64 = 2;

/// There are as many partitions as [`PROBE_BYTES`] each take of this part of the memory.
const AMPLE: u64 = 8;
/// If more are needed, so that their build sides fit, as many as [`PROBE_BYTES_MIN`] each take of this part.
const MOST: u64 = 2;

/// Bits of the hash that lead to a partition of the probe side, no more than lead to one of the build side, which has so many bytes on
/// disk in each of them, and workers that have so much memory together.
pub(super) fn probe_bits(disk_bytes: &[u64], memory_bytes: u64, workers: usize) -> u32 {
    let workers_bytes = |page_bytes: u64, bits: u32| (page_bytes * workers as u64) << bits;
    let bits_max = disk_bytes.len().ilog2();
    // Half of a worker's memory, as a directory comes with the tuples.
    let unit_bytes_max = memory_bytes / workers as u64 / 2;
    let fits = |bits: &u32| {
        let mut units = disk_bytes.chunks(disk_bytes.len() >> bits);
        units.all(|unit| unit.iter().sum::<u64>() <= unit_bytes_max)
    };
    let least = (PARTITIONS_PER_WORKER * workers).next_power_of_two().ilog2().clamp(1, bits_max);
    let most = (least..=bits_max).rev();
    let finds = |page_bytes, part: u64| {
        let is_there = |bits: &u32| workers_bytes(page_bytes, *bits) <= memory_bytes / part;
        most.clone().find(is_there).unwrap_or(least)
    };
    let needed = (least..=bits_max).find(fits).unwrap_or(bits_max);
    needed.min(finds(PROBE_BYTES_MIN, MOST)).max(finds(PROBE_BYTES, AMPLE))
}

/// True if so much memory suffices workers for two small pages of each of all partitions.
pub(super) fn suits_all_partitions(memory_bytes: u64, workers: usize) -> bool {
    ((2 * PAGE_BYTES_MIN * workers) as u64) << BITS_MAX <= memory_bytes / MOST
}

/// Bytes that workers should have of so much memory for what they put aside, and then for units whose build sides come back.
pub(super) fn probe_bytes(disk_bytes: &[u64], bits: u32, memory_bytes: u64, workers: usize) -> u64 {
    let aside_bytes = (PROBE_BYTES * workers as u64) << bits;
    let served_bytes = served_bytes(disk_bytes, bits, memory_bytes / workers as u64);
    aside_bytes.max(served_bytes * workers as u64).min(memory_bytes / MOST)
}

/// Bytes that a worker, which has so much memory, needs beside what it has put aside so that units come back whole, one while
/// another is served, with their directories. Those do not count for which there is too little anyway.
pub(super) fn served_bytes(disk_bytes: &[u64], bits: u32, memory_bytes: u64) -> u64 {
    let units = disk_bytes.chunks(disk_bytes.len() >> bits).map(|unit| unit.iter().sum::<u64>());
    let with_directory = units.map(|bytes| bytes + bytes / 4);
    let fits = |bytes: &u64| UNITS_SERVED * bytes <= memory_bytes / MOST;
    UNITS_SERVED * with_directory.filter(fits).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_as_many_as_memory_is_for() {
        const PARTITIONS: usize = 256;
        let bytes = |each: u64| [each; PARTITIONS];
        // Ample memory.
        assert_eq!(probe_bits(&bytes(1 << 20), 1 << 30, 2), 8);
        assert_eq!(probe_bits(&bytes(1 << 20), 128 << 20, 2), 6);
        // As many as are needed.
        assert_eq!(probe_bits(&bytes(64 << 10), 8 << 20, 2), 3);
        assert_eq!(probe_bits(&bytes(256 << 10), 8 << 20, 2), 5);
        // More would be needed.
        assert_eq!(probe_bits(&bytes(1 << 20), 2 << 20, 2), 4);
        assert_eq!(probe_bits(&bytes(1 << 20), 0, 2), 3);
        // Only one is on disk.
        let mut one = bytes(0);
        one[7] = 2 << 20;
        // Memory for two units, but not for the one that is too large.
        assert_eq!(served_bytes(&bytes(1 << 20), 8, 64 << 20), 5 << 19);
        let mut skewed = bytes(1 << 20);
        skewed[3] = 1 << 30;
        assert_eq!(served_bytes(&skewed, 8, 64 << 20), 5 << 19);
        assert_eq!(served_bytes(&one, 8, 1 << 20), 0);
        assert_eq!(probe_bytes(&bytes(1 << 30), 3, 64 << 20, 2), 2 << 20);
        assert_eq!(probe_bytes(&bytes(1 << 20), 8, 8 << 20, 2), 4 << 20);
        assert_eq!(probe_bits(&one, 8 << 20, 2), 3);
        assert_eq!(probe_bits(&one, 8 << 20, 64), 8);
    }
}
