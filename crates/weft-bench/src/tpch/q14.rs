//! TPC-H query 14 as an index-nested-loop join: lineitem columns in memory, filtered by ship month;
//! each hit looks its part up in the [`PartIndex`], reads the part's page, and is added to the sums.

use super::error::TpchError;
use super::lineitem_page::Q14Page;
use super::page_file::PageTable;
use super::part_index::PartIndex;
use super::q14_filter::ship_month_rows;

/// Exclusive limit of |l_extendedprice| and |l_discount| in hundredths: below it no sum over fewer than
/// 2^46 rows leaves 128 bits.
const VALUE_LIMIT: u64 = 1 << 40;

/// The columns of lineitem that query 14 reads, in memory. All have the same length.
#[derive(Debug, Default)]
pub struct LineitemColumns {
    /// l_partkey.
    pub partkey: Vec<u32>,
    /// l_extendedprice in hundredths.
    pub extendedprice: Vec<i64>,
    /// l_discount in hundredths.
    pub discount: Vec<i64>,
    /// l_shipdate in days since 1970-01-01.
    pub shipdate: Vec<i32>,
}

impl LineitemColumns {
    /// Reads them all from a `lineitem_q14` table.
    ///
    /// # Errors
    /// [`TpchError`] if a page cannot be read or holds values that TPC-H cannot have.
    pub fn load(lineitem: &PageTable) -> Result<LineitemColumns, TpchError> {
        let rows = lineitem.rows as usize;
        let mut columns = LineitemColumns {
            partkey: Vec::with_capacity(rows),
            extendedprice: Vec::with_capacity(rows),
            discount: Vec::with_capacity(rows),
            shipdate: Vec::with_capacity(rows),
        };
        lineitem.for_each_page(|_, bytes| {
            let page = Q14Page::new(bytes)?;
            columns.partkey.extend_from_slice(page.partkey);
            columns.extendedprice.extend_from_slice(page.extendedprice);
            columns.discount.extend_from_slice(page.discount);
            columns.shipdate.extend_from_slice(page.shipdate);
            Ok(())
        })?;
        for (name, column) in
            [("l_extendedprice", &columns.extendedprice), ("l_discount", &columns.discount)]
        {
            if let Some(&value) = column.iter().find(|value| value.unsigned_abs() >= VALUE_LIMIT) {
                let path = lineitem.stripes[0].clone();
                return Err(TpchError::Value { path, column: name, value });
            }
        }
        Ok(columns)
    }

    /// Rows in memory.
    pub fn len(&self) -> usize {
        self.shipdate.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shipdate.is_empty()
    }
}

/// The sums of query 14, in 10^-4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Q14Sum {
    /// Sum of l_extendedprice · (1 - l_discount) over promotion parts.
    pub promo: i128,
    /// The same over all parts.
    pub total: i128,
}

impl Q14Sum {
    /// Adds a lineitem: price and discount in hundredths, and whether its part is a promotion.
    #[inline]
    pub fn add(&mut self, extendedprice: i64, discount: i64, is_promo: bool) {
        let revenue = i128::from(extendedprice) * (100 - i128::from(discount));
        self.total += revenue;
        self.promo += if is_promo { revenue } else { 0 };
    }

    /// Adds the sums of another worker.
    pub fn merge(&mut self, other: Q14Sum) {
        self.promo += other.promo;
        self.total += other.total;
    }

    /// promo_revenue: the share of promotions in percent; `None` (SQL's NULL) without any lineitem.
    pub fn promo_revenue_percent(&self) -> Option<f64> {
        (self.total != 0).then(|| 100.0 * self.promo as f64 / self.total as f64)
    }
}

/// The reference result of query 14.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Q14Reference {
    /// promo_revenue in percent; `None` without any lineitem.
    pub promo_revenue_percent: Option<f64>,
    /// The exact sums, where they are known (the official answer has only the percentage).
    pub sum: Option<Q14Sum>,
}

/// Compares a result with the reference: the sums exactly if known, the percentage to 1e-12 relative.
///
/// # Errors
/// [`TpchError::WrongAnswer`] if they differ.
pub fn check(found: &Q14Sum, expected: &Q14Reference) -> Result<(), TpchError> {
    let wrong = |what: &str, found: String, expected: String| {
        Err(TpchError::WrongAnswer { query: 14, what: what.to_owned(), found, expected })
    };
    if let Some(sum) = expected.sum.filter(|sum| sum != found) {
        return wrong("the sums (10^-4)", format!("{found:?}"), format!("{sum:?}"));
    }
    let percent = found.promo_revenue_percent();
    let close = match (percent, expected.promo_revenue_percent) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 1e-12 * expected.abs(),
        (found, expected) => found == expected,
    };
    if close {
        Ok(())
    } else {
        let expected = expected.promo_revenue_percent;
        wrong("promo_revenue", format!("{percent:?}"), format!("{expected:?}"))
    }
}

/// How often the query reads each of `pages` part pages, to choose which to cache for a wanted share
/// of cached accesses.
///
/// # Panics
/// If the index names pages beyond `pages`. Lineitems without a part are not counted.
pub fn part_page_accesses(lineitem: &LineitemColumns, index: &PartIndex, pages: usize) -> Vec<u32> {
    let mut accesses = vec![0; pages];
    let mut rows = Vec::new();
    // A morsel at a time, as row numbers have 32 bits.
    for (dates, keys) in lineitem.shipdate.chunks(1 << 20).zip(lineitem.partkey.chunks(1 << 20)) {
        rows.clear();
        ship_month_rows(dates, None, &mut rows);
        for entry in rows.iter().filter_map(|&row| index.get(keys[row as usize])) {
            accesses[entry.page as usize] += 1;
        }
    }
    accesses
}
