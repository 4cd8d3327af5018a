//! The filter of query 14: which lineitems were shipped in September 1995.
//!
//! One tuple in 84 is; so the vectors only compare, 64 dates to a bit mask, and the rare set bits are
//! walked one by one.

use super::day_number;

/// First ship date of the month, 1995-09-01, in days.
pub const FIRST_SHIPDATE: i32 = day_number(1995, 9, 1);
/// Day after the last ship date of the month, 1995-10-01, in days.
pub const END_SHIPDATE: i32 = day_number(1995, 10, 1);

/// How dates are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKernel {
    /// 16 dates a comparison.
    Avx512,
    /// 8 dates a comparison.
    Avx2,
    /// Plain Rust.
    Portable,
}

impl FilterKernel {
    /// The kernels that this machine can run, the fastest first.
    pub fn available() -> Vec<FilterKernel> {
        let mut available = vec![FilterKernel::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                available.insert(0, FilterKernel::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                available.insert(0, FilterKernel::Avx512);
            }
        }
        available
    }
}

/// Appends to `rows` the positions in `shipdate` (days since 1970-01-01) of the lineitems that query
/// 14 counts, in ascending order, with the kernel given or, if it is `None`, the machine's fastest.
///
/// # Panics
/// If there are 2^32 dates or more (filter a morsel at a time), or the machine lacks the kernel.
pub fn ship_month_rows(shipdate: &[i32], kernel: Option<FilterKernel>, rows: &mut Vec<u32>) {
    assert!(u32::try_from(shipdate.len()).is_ok(), "row numbers have 32 bits");
    let available = FilterKernel::available();
    let kernel = kernel.unwrap_or(available[0]);
    assert!(available.contains(&kernel), "{kernel:?} needs instructions that this machine lacks");
    match kernel {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the feature was just detected.
        FilterKernel::Avx512 => unsafe { x86::rows_avx512(shipdate, rows) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the feature was just detected.
        FilterKernel::Avx2 => unsafe { x86::rows_avx2(shipdate, rows) },
        _ => rows_portable(shipdate, 0, rows),
    }
}

fn rows_portable(shipdate: &[i32], first: usize, rows: &mut Vec<u32>) {
    for (block, dates) in shipdate.chunks(64).enumerate() {
        let mask = dates.iter().enumerate().fold(0, |mask, (i, date)| {
            mask | u64::from((FIRST_SHIPDATE..END_SHIPDATE).contains(date)) << i
        });
        push_rows(mask, first + 64 * block, rows);
    }
}

#[inline]
fn push_rows(mut mask: u64, base: usize, rows: &mut Vec<u32>) {
    while mask != 0 {
        rows.push(base as u32 + mask.trailing_zeros());
        mask &= mask - 1;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{END_SHIPDATE, FIRST_SHIPDATE, push_rows, rows_portable};

    /// Dates ahead to prefetch.
    const PREFETCH_DATES: usize = 512;

    #[target_feature(enable = "avx512f")]
    pub(super) fn rows_avx512(shipdate: &[i32], rows: &mut Vec<u32>) {
        let first = _mm512_set1_epi32(FIRST_SHIPDATE);
        let days = _mm512_set1_epi32(END_SHIPDATE - FIRST_SHIPDATE);
        let (blocks, rest) = shipdate.as_chunks::<64>();
        for (block, dates) in blocks.iter().enumerate() {
            let mut mask = 0;
            for quarter in 0..4 {
                let start = dates.as_ptr().wrapping_add(16 * quarter);
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(PREFETCH_DATES).cast());
                // SAFETY: the block has 64 dates, 16 from `16 * quarter` on.
                let date = unsafe { _mm512_loadu_epi32(start) };
                // As unsigned numbers, days before the month are beyond its end.
                let offset = _mm512_sub_epi32(date, first);
                mask |= u64::from(_mm512_cmplt_epu32_mask(offset, days)) << (16 * quarter);
            }
            push_rows(mask, 64 * block, rows);
        }
        rows_portable(rest, 64 * blocks.len(), rows);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn rows_avx2(shipdate: &[i32], rows: &mut Vec<u32>) {
        let before = _mm256_set1_epi32(FIRST_SHIPDATE - 1);
        let end = _mm256_set1_epi32(END_SHIPDATE);
        let (blocks, rest) = shipdate.as_chunks::<64>();
        for (block, dates) in blocks.iter().enumerate() {
            let mut mask = 0;
            for eighth in 0..8 {
                let start = dates.as_ptr().wrapping_add(8 * eighth);
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(PREFETCH_DATES).cast());
                // SAFETY: the block has 64 dates, 8 from `8 * eighth` on.
                let date = unsafe { _mm256_loadu_si256(start.cast()) };
                let within = _mm256_and_si256(
                    _mm256_cmpgt_epi32(date, before),
                    _mm256_cmpgt_epi32(end, date),
                );
                let bits = _mm256_movemask_ps(_mm256_castsi256_ps(within)) as u32;
                mask |= u64::from(bits) << (8 * eighth);
            }
            push_rows(mask, 64 * block, rows);
        }
        rows_portable(rest, 64 * blocks.len(), rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dates: &[i32]) {
        let expected: Vec<u32> = (0..dates.len() as u32)
            .filter(|&i| (FIRST_SHIPDATE..END_SHIPDATE).contains(&dates[i as usize]))
            .collect();
        for kernel in FilterKernel::available() {
            let mut rows = vec![7];
            ship_month_rows(dates, Some(kernel), &mut rows);
            assert_eq!(rows[0], 7, "{kernel:?} keeps what was there");
            assert_eq!(rows[1..], expected, "{kernel:?}");
        }
    }

    #[test]
    fn kernels_agree_at_every_length_and_on_extremes() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        for seed in [1, 2, seed] {
            let mut random = fastrand::Rng::with_seed(seed);
            for length in (0..200).chain([1000, 4096]) {
                check(&(0..length).map(|_| random.i32(9300..9500)).collect::<Vec<_>>());
                check(&(0..length).map(|_| random.i32(..)).collect::<Vec<_>>());
            }
        }
        let edges = [
            i32::MIN,
            i32::MAX,
            0,
            FIRST_SHIPDATE - 1,
            FIRST_SHIPDATE,
            END_SHIPDATE - 1,
            END_SHIPDATE,
            i32::MIN + FIRST_SHIPDATE,
        ];
        check(&edges.repeat(20));
        check(&[FIRST_SHIPDATE; 130]);
    }
}
