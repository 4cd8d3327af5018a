//! The sums of query 1 as its fast kernels keep them, and the portable kernel.
//!
//! A kernel looks at one page and adds it to [`Lanes`], or refuses it and leaves the lanes alone. It
//! takes pages whose values are as small as TPC-H's (every price below 2^24 hundredths, so that all
//! products fit 32-bit by 32-bit multiplications) and whose lineitems up to the query's date belong
//! to TPC-H's four groups; it learns whether that holds while it computes. What it refuses goes to
//! the exact path of [`Q1State`](super::Q1State).

use super::lineitem_page::Q1Page;
use super::q1::LAST_SHIPDATE;

/// The groups (returnflag, linestatus) that TPC-H has.
pub(super) const GROUPS: [(u8, u8); 4] = [(b'A', b'F'), (b'N', b'F'), (b'N', b'O'), (b'R', b'F')];

/// Exclusive limit of price and quantity for the fast kernels: a price below it times 1 less the
/// discount (100 hundredths at most) fits an `i32`, so that it can be multiplied again.
pub(super) const VALUE_LIMIT: u64 = 1 << 24;

/// Exclusive limit of discount and tax for the fast kernels.
pub(super) const FACTOR_LIMIT: u64 = 1 << 7;

/// Bits by which a discount is shifted up to share an addition with a quantity. A page has fewer than
/// 2^16 tuples, so the quantities stay below 2^40 and the discounts below 2^23.
pub(super) const DISCOUNT_SHIFT: u32 = 40;

/// Tuples that lanes may take before an `i64` could overflow: a charge is below 2^24 · 100 · 227.
const TUPLES_MAX: u64 = i64::MAX as u64 / ((1 << 24) * 100 * 227) - u16::MAX as u64;

/// Which sum a lane array is.
pub(super) const QUANTITY: usize = 0;
pub(super) const DISCOUNT: usize = 1;
pub(super) const PRICE: usize = 2;
pub(super) const DISC_PRICE: usize = 3;
pub(super) const CHARGE: usize = 4;

/// Sums of many pages, spread over eight lanes each so that a kernel adds its vectors as they are.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Lanes {
    /// By group and sum.
    pub(super) sums: [[[i64; 8]; 5]; 4],
    /// Tuples, by group.
    pub(super) counts: [u64; 4],
    tuples: u64,
}

impl Lanes {
    pub(super) const EMPTY: Lanes = Lanes { sums: [[[0; 8]; 5]; 4], counts: [0; 4], tuples: 0 };

    /// Counts the tuples of a page about to be added; `false` if the lanes must be emptied before.
    pub(super) fn has_room_for(&mut self, tuples: usize) -> bool {
        let total = self.tuples + tuples as u64;
        let room = total <= TUPLES_MAX;
        if room {
            self.tuples = total;
        }
        room
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.tuples == 0
    }

    /// The sum `which` of `group` over all lanes.
    pub(super) fn total(&self, group: usize, which: usize) -> i128 {
        self.sums[group][which].iter().map(|&lane| i128::from(lane)).sum()
    }
}

/// The page's sums in plain Rust; `false` if the page must go to the exact path.
pub(super) fn add_page_portable(page: &Q1Page<'_>, lanes: &mut Lanes) -> bool {
    // Slots 0 to 3 are the groups, 4 takes unknown groups, 5 tuples after the query's date.
    let mut sums = [[0i64; 4]; 8];
    let mut counts = [0u64; 8];
    let (mut values, mut factors) = (0u64, 0u64);
    let n = page.tuple_count();
    let (quantity, price) = (&page.quantity[..n], &page.extendedprice[..n]);
    let (discount, tax) = (&page.discount[..n], &page.tax[..n]);
    let (date, flag, status) = (&page.shipdate[..n], &page.returnflag[..n], &page.linestatus[..n]);
    for i in 0..n {
        let group = GROUP_OF[usize::from(FLAG_CLASS[usize::from(flag[i])])
            + usize::from(STATUS_CLASS[usize::from(status[i])])];
        let slot = usize::from(if date[i] <= LAST_SHIPDATE { group } else { 5 }) & 7;
        values |= (price[i] | quantity[i]) as u64;
        factors |= (discount[i] | tax[i]) as u64;
        let disc_price = price[i].wrapping_mul(100i64.wrapping_sub(discount[i]));
        let charge = disc_price.wrapping_mul(100i64.wrapping_add(tax[i]));
        let packed = quantity[i].wrapping_add(discount[i] << DISCOUNT_SHIFT);
        let sum = &mut sums[slot];
        sum[0] = sum[0].wrapping_add(packed);
        sum[1] = sum[1].wrapping_add(price[i]);
        sum[2] = sum[2].wrapping_add(disc_price);
        sum[3] = sum[3].wrapping_add(charge);
        counts[slot] += 1;
    }
    if values >= VALUE_LIMIT || factors >= FACTOR_LIMIT || counts[4] > 0 {
        return false;
    }
    for (group, sum) in sums.iter().enumerate().take(GROUPS.len()) {
        let into = &mut lanes.sums[group];
        into[QUANTITY][0] += sum[0] & ((1 << DISCOUNT_SHIFT) - 1);
        into[DISCOUNT][0] += sum[0] >> DISCOUNT_SHIFT;
        into[PRICE][0] += sum[1];
        into[DISC_PRICE][0] += sum[2];
        into[CHARGE][0] += sum[3];
        lanes.counts[group] += counts[group];
    }
    true
}

/// Flags and statuses mapped to small numbers whose sum indexes [`GROUP_OF`].
const FLAG_CLASS: [u8; 256] = {
    let mut class = [9; 256];
    class[b'A' as usize] = 0;
    class[b'N' as usize] = 3;
    class[b'R' as usize] = 6;
    class
};
const STATUS_CLASS: [u8; 256] = {
    let mut class = [2; 256];
    class[b'F' as usize] = 0;
    class[b'O' as usize] = 1;
    class
};
const GROUP_OF: [u8; 12] = [0, 4, 4, 1, 2, 4, 3, 4, 4, 4, 4, 4];
