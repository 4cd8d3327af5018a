//! Query 1 with AVX-512: 64 tuples are classified at a time by byte comparisons, then summed eight at
//! a time with one masked addition per group and sum, all sixteen sums in registers.

use std::arch::x86_64::*;

use weft_rt::Ahead;

use super::lineitem_page::Q1Page;
use super::q1::LAST_SHIPDATE;
use super::q1_lanes::{
    CHARGE, DISC_PRICE, DISCOUNT, DISCOUNT_SHIFT, FACTOR_LIMIT, Lanes, PRICE, QUANTITY, VALUE_LIMIT,
};

/// How far ahead of the columns to prefetch, in bytes: the hardware's streams stop at 4 KiB borders.
const PREFETCH_BYTES: usize = 1536;

/// Lines of other memory to ask for with every eight tuples, which take 304 bytes themselves.
const AHEAD_LINES: usize = 5;

/// Whether the machine has the instructions.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("bmi2")
}

/// Adds a page to `lanes`; `false` (and nothing added) if it must go to the exact path.
///
/// # Panics
/// If the machine lacks the instructions.
pub(super) fn add_page(page: &Q1Page<'_>, ahead: Ahead, lanes: &mut Lanes) -> bool {
    assert!(is_available(), "the machine has no AVX-512");
    // SAFETY: the features that `sum_page` is compiled for were just detected.
    unsafe { sum_page(page, ahead, lanes) }
}

/// Sums of one group: quantity with discount, price, discounted price, charge.
type GroupSums = [__m512i; 4];

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,popcnt,bmi2")]
fn sum_page(page: &Q1Page<'_>, mut ahead: Ahead, lanes: &mut Lanes) -> bool {
    let n = page.tuple_count();
    let columns = [page.quantity, page.extendedprice, page.discount, page.tax];
    assert!(columns.iter().all(|column| column.len() == n));
    assert!(page.shipdate.len() == n && page.returnflag.len() == n && page.linestatus.len() == n);
    let mut sums: [GroupSums; 4] = [[_mm512_setzero_si512(); 4]; 4];
    let mut counts = [0u64; 4];
    let mut values = _mm512_setzero_si512();
    let mut factors = _mm512_setzero_si512();
    let mut unknown = 0u64;

    let mut base = 0;
    while base < n {
        let rows = (n - base).min(64);
        let valid = u64::MAX >> (64 - rows);
        // SAFETY: `base + rows <= n`, the length of the three columns; masked-off bytes are not read.
        let (masks, unclassified) = unsafe { classify(page, base, valid) };
        unknown |= unclassified;
        for (count, mask) in counts.iter_mut().zip(masks) {
            *count += u64::from(mask.count_ones());
        }
        let mut step = 0;
        while step < rows {
            let live = (valid >> step) as __mmask8;
            ahead.prefetch(AHEAD_LINES);
            // SAFETY: lane i of `live` is set only if `base + step + i < n`; others are not read.
            let [quantity, price, discount, tax] =
                unsafe { columns.map(|column| load(column, base + step, live)) };
            values = _mm512_ternarylogic_epi64::<0xFE>(values, quantity, price);
            factors = _mm512_ternarylogic_epi64::<0xFE>(factors, discount, tax);
            let hundred = _mm512_set1_epi64(100);
            let disc_price = _mm512_mul_epi32(price, _mm512_sub_epi64(hundred, discount));
            let charge = _mm512_mul_epi32(disc_price, _mm512_add_epi64(hundred, tax));
            let packed = _mm512_add_epi64(quantity, _mm512_slli_epi64::<DISCOUNT_SHIFT>(discount));
            for (sum, mask) in sums.iter_mut().zip(masks) {
                let mask = (mask >> step) as __mmask8;
                sum[0] = _mm512_mask_add_epi64(sum[0], mask, sum[0], packed);
                sum[1] = _mm512_mask_add_epi64(sum[1], mask, sum[1], price);
                sum[2] = _mm512_mask_add_epi64(sum[2], mask, sum[2], disc_price);
                sum[3] = _mm512_mask_add_epi64(sum[3], mask, sum[3], charge);
            }
            step += 8;
        }
        base += 64;
    }

    let beyond = _mm512_cmpge_epu64_mask(values, _mm512_set1_epi64(VALUE_LIMIT as i64))
        | _mm512_cmpge_epu64_mask(factors, _mm512_set1_epi64(FACTOR_LIMIT as i64));
    if beyond != 0 || unknown != 0 {
        return false;
    }
    commit(&sums, &counts, lanes);
    true
}

/// Eight values of a column from `row` on, and prefetches what comes later.
///
/// # Safety
/// The column has all rows whose lanes are set in `live`.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[inline]
unsafe fn load(column: &[i64], row: usize, live: __mmask8) -> __m512i {
    let start = column.as_ptr().wrapping_add(row);
    _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(PREFETCH_BYTES));
    if live == 0xFF {
        // SAFETY: the caller vouches for all eight rows.
        unsafe { _mm512_loadu_epi64(start) }
    } else {
        // SAFETY: the caller vouches for the rows in `live`, the others are not read.
        unsafe { _mm512_maskz_loadu_epi64(live, start) }
    }
}

/// Which of 64 tuples from `base` on belong to each group, and which to none though the query counts
/// them.
///
/// # Safety
/// The columns have all rows whose bits are set in `valid`.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[inline]
unsafe fn classify(page: &Q1Page<'_>, base: usize, valid: u64) -> ([u64; 4], u64) {
    let flags = page.returnflag.as_ptr().wrapping_add(base).cast::<i8>();
    let statuses = page.linestatus.as_ptr().wrapping_add(base).cast::<i8>();
    // SAFETY: masked loads read only rows in `valid`, which the caller vouches for.
    let (flag, status) = unsafe {
        (_mm512_maskz_loadu_epi8(valid, flags), _mm512_maskz_loadu_epi8(valid, statuses))
    };
    let last = _mm512_set1_epi32(LAST_SHIPDATE);
    let mut counted = 0;
    for quarter in 0..4 {
        let live = (valid >> (16 * quarter)) as __mmask16;
        let dates = page.shipdate.as_ptr().wrapping_add(base + 16 * quarter);
        // SAFETY: as above.
        let date = unsafe { _mm512_maskz_loadu_epi32(live, dates) };
        counted |= u64::from(_mm512_mask_cmple_epi32_mask(live, date, last)) << (16 * quarter);
    }
    _mm_prefetch::<_MM_HINT_T0>(flags.wrapping_add(PREFETCH_BYTES / 2));
    _mm_prefetch::<_MM_HINT_T0>(statuses.wrapping_add(PREFETCH_BYTES / 2));
    let dates = page.shipdate.as_ptr().wrapping_add(base).cast::<i8>();
    for line in 0..4 {
        _mm_prefetch::<_MM_HINT_T0>(dates.wrapping_add(PREFETCH_BYTES + 64 * line));
    }
    let is = |bytes: __m512i, byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte as i8));
    let finished = is(status, b'F') & counted;
    let ordered = is(status, b'O') & counted;
    let (n_flag, af, rf) = (is(flag, b'N'), is(flag, b'A') & finished, is(flag, b'R') & finished);
    let (nf, no) = (n_flag & finished, n_flag & ordered);
    ([af, nf, no, rf], counted & !(af | nf | no | rf))
}

/// Adds the sums of a page, vectors to lanes.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[inline]
fn commit(sums: &[GroupSums; 4], counts: &[u64; 4], lanes: &mut Lanes) {
    let low = _mm512_set1_epi64((1 << DISCOUNT_SHIFT) - 1);
    for (group, sum) in sums.iter().enumerate() {
        let into = &mut lanes.sums[group];
        add_lanes(&mut into[QUANTITY], _mm512_and_si512(sum[0], low));
        add_lanes(&mut into[DISCOUNT], _mm512_srli_epi64::<DISCOUNT_SHIFT>(sum[0]));
        add_lanes(&mut into[PRICE], sum[1]);
        add_lanes(&mut into[DISC_PRICE], sum[2]);
        add_lanes(&mut into[CHARGE], sum[3]);
        lanes.counts[group] += counts[group];
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl")]
#[inline]
fn add_lanes(lanes: &mut [i64; 8], vector: __m512i) {
    let place = lanes.as_mut_ptr();
    // SAFETY: eight `i64` are 64 bytes, which this reference may read and write.
    unsafe {
        _mm512_storeu_epi64(place, _mm512_add_epi64(_mm512_loadu_epi64(place), vector));
    }
}
