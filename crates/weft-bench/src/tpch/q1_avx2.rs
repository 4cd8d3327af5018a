//! Query 1 with AVX2: 32 tuples are classified at a time by byte comparisons; then four tuples at a
//! time are computed, transposed so that a vector holds all sums of one tuple, and each vector is
//! added to its group's. Four copies of the sums, one per position, keep the additions independent.

use std::arch::x86_64::*;

use weft_rt::Ahead;

use super::lineitem_page::Q1Page;
use super::q1::LAST_SHIPDATE;
use super::q1_lanes::{
    CHARGE, DISC_PRICE, DISCOUNT, DISCOUNT_SHIFT, FACTOR_LIMIT, GROUPS, Lanes, PRICE, QUANTITY,
    VALUE_LIMIT, add_page_portable,
};

/// Tuples classified together.
const BLOCK: usize = 32;

/// How far ahead of the columns to prefetch, in bytes.
const PREFETCH_BYTES: usize = 1024;

/// Lines of other memory to ask for with every block, which takes 1,216 bytes itself.
const AHEAD_LINES: usize = 20;

/// Slot of the tuples that the query does not count; slots 0 to 3 are the groups.
const IGNORED: u8 = 4;

/// Whether the machine has the instructions.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

/// Adds a page to `lanes`; `false` (and nothing added) if it must go to the exact path.
///
/// # Panics
/// If the machine lacks the instructions.
pub(super) fn add_page(page: &Q1Page<'_>, ahead: Ahead, lanes: &mut Lanes) -> bool {
    assert!(is_available(), "the machine has no AVX2");
    // SAFETY: the features that `sum_page` is compiled for were just detected.
    unsafe { sum_page(page, ahead, lanes) }
}

/// Sums by position in a step of four tuples and by slot (the other slots round up to a power of two).
type Sums = [[__m256i; 8]; 4];

#[target_feature(enable = "avx2,popcnt")]
fn sum_page(page: &Q1Page<'_>, mut ahead: Ahead, lanes: &mut Lanes) -> bool {
    let n = page.tuple_count();
    let columns = [page.quantity, page.extendedprice, page.discount, page.tax];
    assert!(columns.iter().all(|column| column.len() == n));
    assert!(page.shipdate.len() == n && page.returnflag.len() == n && page.linestatus.len() == n);
    let mut sums: Sums = [[_mm256_setzero_si256(); 8]; 4];
    let mut counts = [0u64; 4];
    let mut values = _mm256_setzero_si256();
    let mut factors = _mm256_setzero_si256();
    let mut unknown = 0;
    let blocks_end = n - n % BLOCK;

    for base in (0..blocks_end).step_by(BLOCK) {
        ahead.prefetch(AHEAD_LINES);
        // SAFETY: `base + 32 <= n`, the length of the three columns.
        let (slots, unclassified) = unsafe { classify(page, base, &mut counts) };
        unknown |= unclassified;
        for (step, slots) in slots.chunks_exact(4).enumerate() {
            // SAFETY: `base + 4 * step + 4 <= base + 32 <= n`, the length of every column.
            let [quantity, price, discount, tax] =
                unsafe { columns.map(|column| load(column, base + 4 * step)) };
            values = _mm256_or_si256(values, _mm256_or_si256(quantity, price));
            factors = _mm256_or_si256(factors, _mm256_or_si256(discount, tax));
            let hundred = _mm256_set1_epi64x(100);
            let disc_price = _mm256_mul_epi32(price, _mm256_sub_epi64(hundred, discount));
            let charge = _mm256_mul_epi32(disc_price, _mm256_add_epi64(hundred, tax));
            let packed = _mm256_add_epi64(
                quantity,
                _mm256_slli_epi64::<{ DISCOUNT_SHIFT as i32 }>(discount),
            );
            let tuples = transpose(packed, price, disc_price, charge);
            for ((sums, tuple), slot) in sums.iter_mut().zip(tuples).zip(slots) {
                let sum = &mut sums[usize::from(slot & 7)];
                *sum = _mm256_add_epi64(*sum, tuple);
            }
        }
    }

    let [values, factors] = [values, factors].map(|vector| to_array(vector));
    let all = |lanes: [i64; 4]| lanes.into_iter().fold(0, |or, lane| or | lane as u64);
    if all(values) >= VALUE_LIMIT || all(factors) >= FACTOR_LIMIT || unknown != 0 {
        return false;
    }
    // The rest first: it may still refuse the page, and has added nothing then.
    add_page_portable(&rows_from(page, blocks_end), lanes) && {
        commit(&sums, &counts, lanes);
        true
    }
}

/// Four values of a column from `row` on, and prefetches what comes later.
///
/// # Safety
/// The column has four rows from `row` on.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(column: &[i64], row: usize) -> __m256i {
    let start = column.as_ptr().wrapping_add(row);
    _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(PREFETCH_BYTES));
    // SAFETY: the caller vouches for the four rows.
    unsafe { _mm256_loadu_si256(start.cast()) }
}

/// The slot of each of 32 tuples from `base` on; adds to the groups' counts; the second value is not
/// zero if a tuple that the query counts has no slot.
///
/// # Safety
/// The columns have 32 rows from `base` on.
#[target_feature(enable = "avx2,popcnt")]
#[inline]
unsafe fn classify(page: &Q1Page<'_>, base: usize, counts: &mut [u64; 4]) -> ([u8; 32], i32) {
    let dates = page.shipdate.as_ptr().wrapping_add(base).cast::<__m256i>();
    let flags = page.returnflag.as_ptr().wrapping_add(base).cast::<__m256i>();
    let statuses = page.linestatus.as_ptr().wrapping_add(base).cast::<__m256i>();
    for line in 0..2 {
        let ahead = PREFETCH_BYTES + 64 * line;
        _mm_prefetch::<_MM_HINT_T0>(dates.cast::<i8>().wrapping_add(ahead));
    }
    _mm_prefetch::<_MM_HINT_T0>(flags.cast::<i8>().wrapping_add(PREFETCH_BYTES / 2));
    _mm_prefetch::<_MM_HINT_T0>(statuses.cast::<i8>().wrapping_add(PREFETCH_BYTES / 2));
    // SAFETY: 32 flags, 32 statuses and four times eight dates, which the caller vouches for.
    let (flag, status, date) = unsafe {
        let date = [0, 1, 2, 3].map(|i| _mm256_loadu_si256(dates.wrapping_add(i)));
        (_mm256_loadu_si256(flags), _mm256_loadu_si256(statuses), date)
    };
    let last = _mm256_set1_epi32(LAST_SHIPDATE);
    let [a, b, c, d] = date.map(|date| _mm256_cmpgt_epi32(date, last));
    // Packing works within 128-bit halves; the permutation puts groups of four back in order.
    let late = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let late = _mm256_permutevar8x32_epi32(late, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    let mut slots = _mm256_and_si256(late, _mm256_set1_epi8(IGNORED as i8));
    let mut classified = late;
    for (slot, (count, (f, s))) in counts.iter_mut().zip(GROUPS).enumerate() {
        let f = _mm256_cmpeq_epi8(flag, _mm256_set1_epi8(f as i8));
        let s = _mm256_cmpeq_epi8(status, _mm256_set1_epi8(s as i8));
        let member = _mm256_andnot_si256(late, _mm256_and_si256(f, s));
        *count += u64::from(_mm256_movemask_epi8(member).count_ones());
        let slot = _mm256_set1_epi8(slot as i8);
        slots = _mm256_or_si256(slots, _mm256_and_si256(member, slot));
        classified = _mm256_or_si256(classified, member);
    }
    let mut bytes = [0; 32];
    // SAFETY: 32 bytes fit the array.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), slots) };
    (bytes, !_mm256_movemask_epi8(classified))
}

/// Four vectors of four tuples' values into four tuples' vectors of values.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> [__m256i; 4] {
    let (ab_02, ab_13) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (cd_02, cd_13) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    [
        _mm256_permute2x128_si256::<0x20>(ab_02, cd_02),
        _mm256_permute2x128_si256::<0x20>(ab_13, cd_13),
        _mm256_permute2x128_si256::<0x31>(ab_02, cd_02),
        _mm256_permute2x128_si256::<0x31>(ab_13, cd_13),
    ]
}

/// Adds the sums of a page.
#[target_feature(enable = "avx2")]
#[inline]
fn commit(sums: &Sums, counts: &[u64; 4], lanes: &mut Lanes) {
    for (group, count) in counts.iter().enumerate() {
        let into = &mut lanes.sums[group];
        for (position, sums) in sums.iter().enumerate() {
            let [packed, price, disc_price, charge] = to_array(sums[group]);
            into[QUANTITY][position] += packed & ((1 << DISCOUNT_SHIFT) - 1);
            into[DISCOUNT][position] += packed >> DISCOUNT_SHIFT;
            into[PRICE][position] += price;
            into[DISC_PRICE][position] += disc_price;
            into[CHARGE][position] += charge;
        }
        lanes.counts[group] += count;
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn to_array(vector: __m256i) -> [i64; 4] {
    let mut array = [0; 4];
    // SAFETY: four `i64` are 32 bytes.
    unsafe { _mm256_storeu_si256(array.as_mut_ptr().cast(), vector) };
    array
}

/// The page without its first `start` rows.
fn rows_from<'a>(page: &Q1Page<'a>, start: usize) -> Q1Page<'a> {
    Q1Page {
        quantity: &page.quantity[start..],
        extendedprice: &page.extendedprice[start..],
        discount: &page.discount[start..],
        tax: &page.tax[start..],
        shipdate: &page.shipdate[start..],
        returnflag: &page.returnflag[start..],
        linestatus: &page.linestatus[start..],
    }
}
