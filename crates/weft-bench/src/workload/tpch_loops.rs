//! TPC-H queries 1 and 6 as loops written by hand over decoded columns: what the execution engine is measured against.
//!
//! Columns are as a scan with narrow decimals gives them: decimals in 64 bits (hundredths), days in 32, strings as views.
//! A loop is compiled for several generations of processors, as the engine's kernels are.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Date32Type, Decimal64Type};
use weft_codec::dispatch::{Kernel, dispatch};

use crate::tpch::day_number;
use crate::tpch::q1::{LAST_SHIPDATE, Q1Groups, Q1Sums};

/// Groups that a batch is summed into at first: both flags in five bits each.
const SLOTS: usize = 1 << 10;

/// A query by hand: the columns that it needs, and its sums.
pub trait ByHand: Default {
    /// The columns, in the order in which [`add`](ByHand::add) expects them.
    const COLUMNS: &'static [&'static str];

    /// Adds the rows of a batch.
    fn add(&mut self, batch: &RecordBatch);

    /// The answer as text, a row each; of query 1 without the averages.
    fn rows(&self) -> Vec<Vec<String>>;
}

/// Query 1: sums by return flag and line status of all but the last rows.
#[derive(Clone, Debug, Default)]
pub struct Query1 {
    groups: Q1Groups,
}

/// Query 6: what discounts cost in 1994.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query6 {
    revenue: i128,
}

impl ByHand for Query1 {
    const COLUMNS: &'static [&'static str] = &[
        "l_returnflag",
        "l_linestatus",
        "l_quantity",
        "l_extendedprice",
        "l_discount",
        "l_tax",
        "l_shipdate",
    ];

    fn add(&mut self, batch: &RecordBatch) {
        let columns = Loop1 {
            flags: batch.column(0).as_string_view().views(),
            states: batch.column(1).as_string_view().views(),
            quantities: hundredths(batch, 2),
            prices: hundredths(batch, 3),
            discounts: hundredths(batch, 4),
            taxes: hundredths(batch, 5),
            days: days(batch, 6),
        };
        for (slot, sums) in dispatch(columns).iter().enumerate().filter(|(_, sums)| sums.count > 0)
        {
            let letter = |bits: usize| (bits as u8 & 31) | 64;
            let group = self.groups.entry((letter(slot >> 5), letter(slot))).or_default();
            let add = Q1Sums {
                quantity: sums.quantity.into(),
                base_price: sums.price.into(),
                discount: sums.discount.into(),
                disc_price: sums.discounted.into(),
                charge: sums.charge.into(),
                count: sums.count,
            };
            *group = group.plus(&add).expect("sums of TPC-H fit 128 bits");
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(&(flag, status), sums): (&(u8, u8), &Q1Sums)| {
            vec![
                char::from(flag).to_string(),
                char::from(status).to_string(),
                decimal(sums.quantity, 2),
                decimal(sums.base_price, 2),
                decimal(sums.disc_price, 4),
                decimal(sums.charge, 6),
                sums.count.to_string(),
            ]
        };
        self.groups.iter().map(row).collect()
    }
}

impl ByHand for Query6 {
    const COLUMNS: &'static [&'static str] =
        &["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"];

    fn add(&mut self, batch: &RecordBatch) {
        let columns = Loop6 {
            quantities: hundredths(batch, 0),
            prices: hundredths(batch, 1),
            discounts: hundredths(batch, 2),
            days: days(batch, 3),
        };
        self.revenue += i128::from(dispatch(columns));
    }

    fn rows(&self) -> Vec<Vec<String>> {
        vec![vec![decimal(self.revenue, 4)]]
    }
}

/// Sums of a batch, which fit 64 bits: a charge is below 2^37, a batch has 65,536 rows at most.
#[derive(Clone, Copy, Debug, Default)]
struct BatchSums {
    quantity: i64,
    price: i64,
    discounted: i64,
    charge: i64,
    discount: i64,
    count: u64,
}

struct Loop1<'a> {
    flags: &'a [u128],
    states: &'a [u128],
    quantities: &'a [i64],
    prices: &'a [i64],
    discounts: &'a [i64],
    taxes: &'a [i64],
    days: &'a [i32],
}

impl Kernel for Loop1<'_> {
    type Output = Vec<BatchSums>;

    #[inline(always)]
    fn run(self) -> Vec<BatchSums> {
        let mut sums = vec![BatchSums::default(); SLOTS];
        let rows = self.days.len();
        let (flags, states) = (&self.flags[..rows], &self.states[..rows]);
        let (quantities, prices) = (&self.quantities[..rows], &self.prices[..rows]);
        let (discounts, taxes) = (&self.discounts[..rows], &self.taxes[..rows]);
        // A short string lies in its view, behind 32 bits of length.
        let bits = |view: u128| (view >> 32) as usize & 31;
        for row in 0..rows {
            if self.days[row] > LAST_SHIPDATE {
                continue;
            }
            let slot = bits(flags[row]) << 5 | bits(states[row]);
            let (price, discount) = (prices[row], discounts[row]);
            let discounted = price * (100 - discount);
            let group = &mut sums[slot];
            group.quantity += quantities[row];
            group.price += price;
            group.discounted += discounted;
            group.charge += discounted * (100 + taxes[row]);
            group.discount += discount;
            group.count += 1;
        }
        sums
    }
}

struct Loop6<'a> {
    quantities: &'a [i64],
    prices: &'a [i64],
    discounts: &'a [i64],
    days: &'a [i32],
}

impl Kernel for Loop6<'_> {
    type Output = i64;

    #[inline(always)]
    fn run(self) -> i64 {
        let (first, end) = (day_number(1994, 1, 1), day_number(1995, 1, 1));
        let rows = self.days.len();
        let (quantities, prices) = (&self.quantities[..rows], &self.prices[..rows]);
        let discounts = &self.discounts[..rows];
        let mut revenue = 0;
        for row in 0..rows {
            let is_wanted = (self.days[row] >= first)
                & (self.days[row] < end)
                & (discounts[row] >= 5)
                & (discounts[row] <= 7)
                & (quantities[row] < 2_400);
            revenue += prices[row] * discounts[row] * i64::from(is_wanted);
        }
        revenue
    }
}

/// A column of decimals.
///
/// # Panics
/// If it is none in 64 bits.
fn hundredths(batch: &RecordBatch, column: usize) -> &[i64] {
    batch.column(column).as_primitive::<Decimal64Type>().values()
}

/// A column of dates.
///
/// # Panics
/// If it is none.
fn days(batch: &RecordBatch, column: usize) -> &[i32] {
    batch.column(column).as_primitive::<Date32Type>().values()
}

/// A decimal with so many digits behind its point.
fn decimal(value: i128, digits: u32) -> String {
    let one = 10_i128.pow(digits);
    let sign = if value < 0 { "-" } else { "" };
    let (whole, part) = (value.abs() / one, value.abs() % one);
    format!("{sign}{whole}.{part:0digits$}", digits = digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_all_their_digits() {
        assert_eq!(decimal(1_234_005, 4), "123.4005");
        assert_eq!(decimal(-7, 2), "-0.07");
    }
}
