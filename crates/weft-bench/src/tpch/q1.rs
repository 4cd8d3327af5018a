//! TPC-H query 1 on pages: filter by ship date, group by return flag and line status, sum exactly.
//!
//! All arithmetic is on integers: quantities, prices, discounts and taxes in hundredths, discounted
//! prices in 10^-4, charges in 10^-6. Pages go through one of three kernels (AVX-512, AVX2,
//! portable), which hold their sums in 64 bits per page and in lanes over pages; totals are 128 bits
//! wide. A page that the kernels refuse (unknown groups, values beyond TPC-H's) takes an exact path.

use std::collections::BTreeMap;

use weft_rt::Ahead;

use super::day_number;
use super::error::TpchError;
use super::lineitem_page::{Q1Page, Q1Tuple};
use super::q1_lanes::{self, GROUPS, Lanes, add_page_portable};

/// The last ship date that the query counts, 1998-09-02 (1998-12-01 less 90 days), in days.
pub const LAST_SHIPDATE: i32 = day_number(1998, 9, 2);

/// How pages are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Q1Kernel {
    /// 512-bit vectors, one masked addition per group and sum.
    Avx512,
    /// 256-bit vectors, transposed to one addition per tuple.
    Avx2,
    /// Plain Rust, one tuple at a time.
    Portable,
}

impl Q1Kernel {
    /// The kernels that this machine can run, the fastest first.
    pub fn available() -> Vec<Q1Kernel> {
        [Q1Kernel::Avx512, Q1Kernel::Avx2, Q1Kernel::Portable]
            .into_iter()
            .filter(|kernel| kernel.is_available())
            .collect()
    }

    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Q1Kernel::Avx512 => super::q1_avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            Q1Kernel::Avx2 => super::q1_avx2::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Q1Kernel::Avx512 | Q1Kernel::Avx2 => false,
            Q1Kernel::Portable => true,
        }
    }

    /// Adds a page to `lanes`; `false` if it must go to the exact path. The kernel is available: the
    /// state checked it.
    fn add_page(self, page: &Q1Page<'_>, ahead: Ahead, lanes: &mut Lanes) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Q1Kernel::Avx512 => super::q1_avx512::add_page(page, ahead, lanes),
            #[cfg(target_arch = "x86_64")]
            Q1Kernel::Avx2 => super::q1_avx2::add_page(page, ahead, lanes),
            #[cfg(not(target_arch = "x86_64"))]
            Q1Kernel::Avx512 | Q1Kernel::Avx2 => unreachable!("not available on this machine"),
            Q1Kernel::Portable => add_page_portable(page, lanes),
        }
    }
}

/// Exact sums of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Q1Sums {
    /// Sum of l_quantity in hundredths.
    pub quantity: i128,
    /// Sum of l_extendedprice in hundredths.
    pub base_price: i128,
    /// Sum of l_discount in hundredths.
    pub discount: i128,
    /// Sum of l_extendedprice · (1 - l_discount) in 10^-4.
    pub disc_price: i128,
    /// Sum of l_extendedprice · (1 - l_discount) · (1 + l_tax) in 10^-6.
    pub charge: i128,
    /// Tuples.
    pub count: u64,
}

impl Q1Sums {
    /// The sums of one tuple; `None` if a product does not fit 128 bits.
    pub fn of(tuple: &Q1Tuple) -> Option<Q1Sums> {
        let base_price = i128::from(tuple.extendedprice);
        let disc_price = base_price.checked_mul(100 - i128::from(tuple.discount))?;
        Some(Q1Sums {
            quantity: tuple.quantity.into(),
            base_price,
            discount: tuple.discount.into(),
            disc_price,
            charge: disc_price.checked_mul(100 + i128::from(tuple.tax))?,
            count: 1,
        })
    }

    /// Both sums together; `None` if one does not fit 128 bits.
    pub fn plus(&self, other: &Q1Sums) -> Option<Q1Sums> {
        Some(Q1Sums {
            quantity: self.quantity.checked_add(other.quantity)?,
            base_price: self.base_price.checked_add(other.base_price)?,
            discount: self.discount.checked_add(other.discount)?,
            disc_price: self.disc_price.checked_add(other.disc_price)?,
            charge: self.charge.checked_add(other.charge)?,
            count: self.count + other.count,
        })
    }
}

/// Sums by (l_returnflag, l_linestatus).
pub type Q1Groups = BTreeMap<(u8, u8), Q1Sums>;

/// Adds `sums` to a group.
pub(super) fn add_to_group(
    groups: &mut Q1Groups,
    key: (u8, u8),
    sums: &Q1Sums,
) -> Result<(), TpchError> {
    let group = groups.entry(key).or_default();
    *group = group.plus(sums).ok_or(TpchError::Overflow { query: 1 })?;
    Ok(())
}

/// A row of the query's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Q1Row {
    /// l_returnflag.
    pub returnflag: u8,
    /// l_linestatus.
    pub linestatus: u8,
    /// sum_qty in hundredths.
    pub sum_qty: i128,
    /// sum_base_price in hundredths.
    pub sum_base_price: i128,
    /// sum_disc_price in 10^-4.
    pub sum_disc_price: i128,
    /// sum_charge in 10^-6.
    pub sum_charge: i128,
    /// avg_qty.
    pub avg_qty: f64,
    /// avg_price.
    pub avg_price: f64,
    /// avg_disc.
    pub avg_disc: f64,
    /// count_order.
    pub count_order: u64,
}

/// The result of the query: one row per group, ordered by flag and status.
pub fn rows(groups: &Q1Groups) -> Vec<Q1Row> {
    let average = |sum: i128, count: u64| sum as f64 / 100.0 / count as f64;
    groups
        .iter()
        .map(|(&(returnflag, linestatus), sums)| Q1Row {
            returnflag,
            linestatus,
            sum_qty: sums.quantity,
            sum_base_price: sums.base_price,
            sum_disc_price: sums.disc_price,
            sum_charge: sums.charge,
            avg_qty: average(sums.quantity, sums.count),
            avg_price: average(sums.base_price, sums.count),
            avg_disc: average(sums.discount, sums.count),
            count_order: sums.count,
        })
        .collect()
}

/// The running sums of one worker.
#[derive(Clone, Debug)]
pub struct Q1State {
    kernel: Q1Kernel,
    lanes: Lanes,
    groups: Q1Groups,
    exact_pages: u64,
}

impl Default for Q1State {
    fn default() -> Q1State {
        Q1State::new()
    }
}

impl Q1State {
    /// Empty sums, with the fastest kernel of this machine.
    pub fn new() -> Q1State {
        Q1State::with_kernel(Q1Kernel::available()[0])
    }

    /// Empty sums, with a kernel of the caller's choice.
    ///
    /// # Panics
    /// If this machine cannot run the kernel.
    pub fn with_kernel(kernel: Q1Kernel) -> Q1State {
        assert!(kernel.is_available(), "{kernel:?} needs instructions that this machine lacks");
        Q1State { kernel, lanes: Lanes::EMPTY, groups: Q1Groups::new(), exact_pages: 0 }
    }

    /// Adds the tuples of a page, and asks for the memory `ahead` meanwhile.
    ///
    /// # Errors
    /// [`TpchError::Overflow`] if a sum leaves 128 bits, which no TPC-H data can cause; the state is
    /// of no use after that.
    pub fn add_page(&mut self, page: Q1Page<'_>, ahead: Ahead) -> Result<(), TpchError> {
        if !self.lanes.has_room_for(page.tuple_count()) {
            self.flush()?;
            assert!(self.lanes.has_room_for(page.tuple_count()), "empty lanes take any page");
        }
        if self.kernel.add_page(&page, ahead, &mut self.lanes) {
            Ok(())
        } else {
            self.add_exactly(page)
        }
    }

    /// Adds the sums of another worker.
    ///
    /// # Errors
    /// As [`Q1State::add_page`].
    pub fn merge(&mut self, mut other: Q1State) -> Result<(), TpchError> {
        self.exact_pages += other.exact_pages;
        for (key, sums) in other.groups()? {
            add_to_group(&mut self.groups, *key, sums)?;
        }
        Ok(())
    }

    /// The sums by group.
    ///
    /// # Errors
    /// As [`Q1State::add_page`].
    pub fn groups(&mut self) -> Result<&Q1Groups, TpchError> {
        self.flush()?;
        Ok(&self.groups)
    }

    /// The result of the query over all pages added.
    ///
    /// # Errors
    /// As [`Q1State::add_page`].
    pub fn rows(&mut self) -> Result<Vec<Q1Row>, TpchError> {
        Ok(rows(self.groups()?))
    }

    /// Pages that took the slow exact path; 0 on TPC-H data.
    pub fn exact_pages(&self) -> u64 {
        self.exact_pages
    }

    /// The path for pages that the kernels refuse: any flags, any values.
    #[cold]
    fn add_exactly(&mut self, page: Q1Page<'_>) -> Result<(), TpchError> {
        self.exact_pages += 1;
        for row in 0..page.tuple_count() {
            let tuple = page.tuple(row);
            if tuple.shipdate <= LAST_SHIPDATE {
                let sums = Q1Sums::of(&tuple).ok_or(TpchError::Overflow { query: 1 })?;
                let key = (tuple.returnflag, tuple.linestatus);
                add_to_group(&mut self.groups, key, &sums)?;
            }
        }
        Ok(())
    }

    /// Moves the lanes' sums to the 128-bit sums.
    fn flush(&mut self) -> Result<(), TpchError> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        let lanes = std::mem::replace(&mut self.lanes, Lanes::EMPTY);
        for (group, key) in GROUPS.into_iter().enumerate() {
            if lanes.counts[group] == 0 {
                continue;
            }
            let sums = Q1Sums {
                quantity: lanes.total(group, q1_lanes::QUANTITY),
                base_price: lanes.total(group, q1_lanes::PRICE),
                discount: lanes.total(group, q1_lanes::DISCOUNT),
                disc_price: lanes.total(group, q1_lanes::DISC_PRICE),
                charge: lanes.total(group, q1_lanes::CHARGE),
                count: lanes.counts[group],
            };
            add_to_group(&mut self.groups, key, &sums)?;
        }
        Ok(())
    }
}

/// Compares a result with the reference: sums and counts exactly, averages to 1e-6 relative.
///
/// # Errors
/// [`TpchError::WrongAnswer`] naming the first difference.
pub fn check(found: &[Q1Row], expected: &[Q1Row]) -> Result<(), TpchError> {
    let wrong = |what: String, found: String, expected: String| {
        Err(TpchError::WrongAnswer { query: 1, what, found, expected })
    };
    if found.len() != expected.len() {
        let (found, expected) = (found.len().to_string(), expected.len().to_string());
        return wrong("the number of groups".to_owned(), found, expected);
    }
    for (f, e) in found.iter().zip(expected) {
        let group = format!("{}{}", char::from(e.returnflag), char::from(e.linestatus));
        let exact = [
            ("returnflag", f.returnflag.into(), e.returnflag.into()),
            ("linestatus", f.linestatus.into(), e.linestatus.into()),
            ("sum_qty (hundredths)", f.sum_qty, e.sum_qty),
            ("sum_base_price (hundredths)", f.sum_base_price, e.sum_base_price),
            ("sum_disc_price (10^-4)", f.sum_disc_price, e.sum_disc_price),
            ("sum_charge (10^-6)", f.sum_charge, e.sum_charge),
            ("count_order", f.count_order.into(), e.count_order.into()),
        ];
        if let Some((name, found, expected)) = exact.into_iter().find(|(_, f, e)| f != e) {
            return wrong(format!("{group} {name}"), found.to_string(), expected.to_string());
        }
        let averages = [
            ("avg_qty", f.avg_qty, e.avg_qty),
            ("avg_price", f.avg_price, e.avg_price),
            ("avg_disc", f.avg_disc, e.avg_disc),
        ];
        let close = |f: f64, e: f64| (f - e).abs() <= 1e-6 * e.abs();
        if let Some((name, found, expected)) = averages.into_iter().find(|&(_, f, e)| !close(f, e))
        {
            return wrong(format!("{group} {name}"), found.to_string(), expected.to_string());
        }
    }
    Ok(())
}
