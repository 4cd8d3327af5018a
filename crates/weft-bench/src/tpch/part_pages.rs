//! One part of a table as pages in memory: the unit of work of the generation.
//!
//! ("Part" is tpchgen's word for a contiguous slice of a table's rows; the TPC-H table of the same
//! name is always written [`Table::Part`] here.) Each part starts a new page, so that a generation
//! that stopped can continue after any part.

use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    LineItem, LineItemGenerator, OrderGenerator, Part, PartGenerator, PartGeneratorIterator,
};
use tpchgen::text::TextPool;

use super::layout::{Table, Tuple};
use super::lineitem_page::{Q1Tuple, Q14Tuple};
use super::part_page::PartTuple;
use crate::size_class::SizeClass;

/// Orders in a part of lineitem: about 300,000 rows, 11 MB of query 1's columns.
const ORDERS_PER_PART: i64 = 75_000;
/// Rows in a part of [`Table::Part`]: about 9 MB.
const PARTS_PER_PART: i64 = 50_000;

/// Bytes of the text pool that comments are cut from; dbgen's size, which fixes the comments.
const TEXT_POOL_BYTES: i32 = 300 * 1024 * 1024;
/// A pool for when no comment is used: no other column depends on its size.
const TINY_TEXT_POOL_BYTES: i32 = 64 * 1024;

/// What tpchgen needs, for the rows of one scale factor.
pub(super) struct RowSource {
    scale_factor: f64,
    text_pool: TextPool,
}

impl RowSource {
    /// A source of all columns; making its text pool takes seconds and 300 MB.
    pub(super) fn with_comments(scale_factor: f64) -> RowSource {
        RowSource::new(scale_factor, TEXT_POOL_BYTES)
    }

    /// A source whose comments are wrong, and nothing else.
    pub(super) fn without_comments(scale_factor: f64) -> RowSource {
        RowSource::new(scale_factor, TINY_TEXT_POOL_BYTES)
    }

    fn new(scale_factor: f64, pool_bytes: i32) -> RowSource {
        let text_pool = TextPool::new(pool_bytes, Distributions::static_default());
        RowSource { scale_factor, text_pool }
    }

    /// The lineitems of part number `part` (from 0) of `parts`.
    pub(super) fn lineitems(&self, part: u32, parts: u32) -> impl Iterator<Item = LineItem<'_>> {
        LineItemGenerator::new_with_distributions_and_text_pool(
            self.scale_factor,
            part as i32 + 1,
            parts as i32,
            Distributions::static_default(),
            &self.text_pool,
        )
        .into_iter()
    }

    /// The rows of [`Table::Part`] in part number `part` (from 0) of `parts`.
    pub(super) fn parts(&self, part: u32, parts: u32) -> PartGeneratorIterator<'_> {
        PartGenerator::new_with_distributions_and_text_pool(
            self.scale_factor,
            part as i32 + 1,
            parts as i32,
            Distributions::static_default(),
            &self.text_pool,
        )
        .into_iter()
    }
}

/// How many parts a table is divided into.
pub(super) fn part_count(table: Table, scale_factor: f64) -> u32 {
    let units = match table {
        Table::LineitemQ1 | Table::LineitemQ14 => {
            OrderGenerator::calculate_row_count(scale_factor, 1, 1) / ORDERS_PER_PART
        }
        Table::Part => PartGenerator::calculate_row_count(scale_factor, 1, 1) / PARTS_PER_PART,
    };
    units.clamp(1, i32::MAX.into()) as u32
}

/// The rows of a table: exact for [`Table::Part`], about right for lineitem (four per order).
pub(super) fn expected_rows(table: Table, scale_factor: f64) -> u64 {
    let rows = match table {
        Table::LineitemQ1 | Table::LineitemQ14 => {
            4 * OrderGenerator::calculate_row_count(scale_factor, 1, 1)
        }
        Table::Part => PartGenerator::calculate_row_count(scale_factor, 1, 1),
    };
    rows as u64
}

/// Pages in memory, in order, not yet sealed: where they will lie depends on the parts before.
pub(super) struct PartPages {
    words: Vec<u64>,
    page_words: usize,
    tuple_counts: Vec<usize>,
}

impl PartPages {
    /// Lays all tuples out in pages, each full but the last; `see` gets every tuple too.
    fn fill<T: Tuple>(
        class: SizeClass,
        tuples: impl Iterator<Item = T>,
        mut see: impl FnMut(&T),
    ) -> PartPages {
        let page_words = class.bytes() / 8;
        let capacity = T::TABLE.capacity(class);
        let mut pages = PartPages { words: Vec::new(), page_words, tuple_counts: Vec::new() };
        let mut staged = Vec::with_capacity(capacity);
        let mut tuples = tuples.inspect(|tuple| see(tuple));
        loop {
            staged.clear();
            staged.extend(tuples.by_ref().take(capacity));
            if staged.is_empty() {
                return pages;
            }
            let start = pages.words.len();
            pages.words.resize(start + page_words, 0);
            T::write_page(&staged, bytemuck::cast_slice_mut(&mut pages.words[start..]));
            pages.tuple_counts.push(staged.len());
        }
    }

    /// A part of `lineitem_q1`.
    pub(super) fn of_q1(
        source: &RowSource,
        class: SizeClass,
        (part, parts): (u32, u32),
        see: impl FnMut(&Q1Tuple),
    ) -> PartPages {
        PartPages::fill(class, source.lineitems(part, parts).map(|row| q1_tuple(&row)), see)
    }

    /// A part of `lineitem_q14`.
    pub(super) fn of_q14(
        source: &RowSource,
        class: SizeClass,
        (part, parts): (u32, u32),
        see: impl FnMut(&Q14Tuple),
    ) -> PartPages {
        PartPages::fill(class, source.lineitems(part, parts).map(|row| q14_tuple(&row)), see)
    }

    /// A part of [`Table::Part`].
    pub(super) fn of_part(
        source: &RowSource,
        class: SizeClass,
        (part, parts): (u32, u32),
    ) -> PartPages {
        PartPages::fill(class, source.parts(part, parts).map(part_tuple), |_| ())
    }

    /// Rows in all pages.
    pub(super) fn rows(&self) -> u64 {
        self.tuple_counts.iter().map(|&count| count as u64).sum()
    }

    /// The pages, each with its number of tuples.
    pub(super) fn pages_mut(&mut self) -> impl Iterator<Item = (&mut [u8], usize)> {
        self.words
            .chunks_exact_mut(self.page_words)
            .map(bytemuck::cast_slice_mut)
            .zip(self.tuple_counts.iter().copied())
    }
}

/// Query 1's columns of a row.
pub(super) fn q1_tuple(row: &LineItem<'_>) -> Q1Tuple {
    Q1Tuple {
        quantity: row.l_quantity * 100,
        extendedprice: row.l_extendedprice.into_inner(),
        discount: row.l_discount.into_inner(),
        tax: row.l_tax.into_inner(),
        shipdate: row.l_shipdate.to_unix_epoch(),
        returnflag: row.l_returnflag.as_bytes()[0],
        linestatus: row.l_linestatus.as_bytes()[0],
    }
}

/// Query 14's columns of a row.
pub(super) fn q14_tuple(row: &LineItem<'_>) -> Q14Tuple {
    Q14Tuple {
        extendedprice: row.l_extendedprice.into_inner(),
        discount: row.l_discount.into_inner(),
        partkey: u32::try_from(row.l_partkey).expect("at most 2 billion parts at scale 10000"),
        shipdate: row.l_shipdate.to_unix_epoch(),
    }
}

fn part_tuple(row: Part<'_>) -> PartTuple<'_> {
    PartTuple {
        retailprice: row.p_retailprice.into_inner(),
        partkey: u32::try_from(row.p_partkey).expect("at most 2 billion parts at scale 10000"),
        size: row.p_size,
        name: row.p_name.to_string(),
        mfgr: row.p_mfgr.to_string(),
        brand: row.p_brand.to_string(),
        r#type: row.p_type,
        container: row.p_container,
        comment: row.p_comment,
    }
}
