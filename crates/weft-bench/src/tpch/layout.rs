//! The page layouts of the experiments: PAX with fixed arrays (seed 000, section 3).
//!
//! A page is the 16-byte header of `weft_buffer`, then one array per column, each sized by the page's
//! *capacity*, so that a column starts at the same place in every page of a table. Columns of 8-byte
//! values come first, then 4, then 1: every array is aligned to its values. A page whose bytes start
//! at an address that is a multiple of 8 is read in place, without a copy.
//!
//! | table | columns in order | bytes a tuple |
//! | --- | --- | --- |
//! | `lineitem_q1` | quantity, extendedprice, discount, tax: `i64` hundredths; shipdate: `i32` days; returnflag, linestatus: `u8` | 38 |
//! | `lineitem_q14` | extendedprice, discount: `i64` hundredths; partkey: `u32`; shipdate: `i32` days | 24 |
//! | `part` | retailprice: `i64` hundredths; partkey: `u32`; size: `i32`; name 55, mfgr 25, brand 10, type 25, container 10, comment 23: a length byte and that many bytes each | 170 |

use weft_buffer::page::{self, PAGE_HEADER_BYTES, PageHeader, PageId};

use super::part_page::{self, Strings};
use crate::size_class::SizeClass;

// The arrays are read in place, so the machine must order bytes as the format does.
const _: () = assert!(cfg!(target_endian = "little"), "page files are little-endian");

/// The tables of the experiments, each with its own page layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// The columns of lineitem that query 1 reads.
    LineitemQ1,
    /// The columns of lineitem that query 14 reads.
    LineitemQ14,
    /// The whole part table.
    Part,
}

impl Table {
    /// Every table.
    pub const ALL: [Table; 3] = [Table::LineitemQ1, Table::LineitemQ14, Table::Part];

    /// The name that its files carry.
    pub const fn name(self) -> &'static str {
        match self {
            Table::LineitemQ1 => "lineitem_q1",
            Table::LineitemQ14 => "lineitem_q14",
            Table::Part => "part",
        }
    }

    /// The page kind in its page headers and its number in file headers.
    pub const fn kind(self) -> u8 {
        match self {
            Table::LineitemQ1 => 1,
            Table::LineitemQ14 => 2,
            Table::Part => 3,
        }
    }

    /// Bytes of all columns of one tuple.
    pub const fn bytes_per_tuple(self) -> usize {
        match self {
            Table::LineitemQ1 => 4 * 8 + 4 + 2,
            Table::LineitemQ14 => 2 * 8 + 2 * 4,
            Table::Part => 8 + 2 * 4 + part_page::STRING_BYTES,
        }
    }

    /// Tuples that fit a page of `class`.
    pub const fn capacity(self, class: SizeClass) -> usize {
        (class.bytes() - PAGE_HEADER_BYTES) / self.bytes_per_tuple()
    }
}

/// Why bytes are not a page of the expected table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Not the size of any page, or not at an address that is a multiple of 8.
    #[error(
        "{bytes} bytes at this address are no page (a power of two from 4 KiB to 1 MiB, 8-byte aligned)"
    )]
    Shape {
        /// Length of the slice.
        bytes: usize,
    },
    /// A page of another table.
    #[error("page kind {found} where {expected} was expected")]
    Kind {
        /// Kind in the header.
        found: u8,
        /// Kind of the table.
        expected: u8,
    },
    /// More tuples than fit.
    #[error("the page claims {found} tuples and has room for {capacity}")]
    TupleCount {
        /// Count in the header.
        found: usize,
        /// Room in the page.
        capacity: usize,
    },
}

/// Hands out the columns of a page one after the other.
pub(super) struct Columns<'a> {
    rest: &'a [u8],
    capacity: usize,
    tuple_count: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn of(table: Table, page: &'a [u8]) -> Result<Columns<'a>, LayoutError> {
        let class = SizeClass::from_bytes(page.len())
            .filter(|_| page.as_ptr().addr().is_multiple_of(8))
            .ok_or(LayoutError::Shape { bytes: page.len() })?;
        // Read here rather than with `page::header`, which trusts a page that was verified before.
        let (tuple_count, kind) = (usize::from(u16::from_le_bytes([page[4], page[5]])), page[6]);
        if kind != table.kind() {
            return Err(LayoutError::Kind { found: kind, expected: table.kind() });
        }
        let capacity = table.capacity(class);
        if tuple_count > capacity {
            return Err(LayoutError::TupleCount { found: tuple_count, capacity });
        }
        Ok(Columns { rest: &page[PAGE_HEADER_BYTES..], capacity, tuple_count })
    }

    fn bytes(&mut self, width: usize) -> &'a [u8] {
        let (column, rest) = self.rest.split_at(self.capacity * width);
        self.rest = rest;
        &column[..self.tuple_count * width]
    }

    pub(super) fn values<T: bytemuck::AnyBitPattern>(&mut self) -> &'a [T] {
        bytemuck::cast_slice(self.bytes(size_of::<T>()))
    }

    /// Strings, each a length byte and `maximum` bytes.
    pub(super) fn strings(&mut self, maximum: usize) -> Strings<'a> {
        Strings::new(self.bytes(1 + maximum), 1 + maximum)
    }
}

/// Puts columns into a page one after the other.
pub(super) struct ColumnWriter<'a> {
    rest: &'a mut [u8],
    capacity: usize,
}

impl<'a> ColumnWriter<'a> {
    pub(super) fn of(table: Table, page: &'a mut [u8], tuple_count: usize) -> ColumnWriter<'a> {
        let class = SizeClass::from_bytes(page.len()).expect("a page's length");
        let capacity = table.capacity(class);
        assert!(tuple_count <= capacity, "{tuple_count} tuples do not fit {capacity} places");
        page.fill(0);
        ColumnWriter { rest: &mut page[PAGE_HEADER_BYTES..], capacity }
    }

    fn column(&mut self, width: usize) -> &'a mut [u8] {
        let (column, rest) = std::mem::take(&mut self.rest).split_at_mut(self.capacity * width);
        self.rest = rest;
        column
    }

    pub(super) fn values<T: bytemuck::Pod>(&mut self, values: impl Iterator<Item = T>) {
        let column: &mut [T] = bytemuck::cast_slice_mut(self.column(size_of::<T>()));
        column.iter_mut().zip(values).for_each(|(place, value)| *place = value);
    }

    pub(super) fn strings<'s>(&mut self, maximum: usize, strings: impl Iterator<Item = &'s str>) {
        for (place, string) in self.column(1 + maximum).chunks_exact_mut(1 + maximum).zip(strings) {
            assert!(string.len() <= maximum, "{string:?} is longer than {maximum} bytes");
            place[0] = string.len() as u8;
            place[1..=string.len()].copy_from_slice(string.as_bytes());
        }
    }
}

/// A tuple of one of the tables, as the generator hands it over.
pub trait Tuple: Sized {
    /// Its table.
    const TABLE: Table;

    /// Lays `tuples` out in `page`, all but the page header ([`seal`] writes that).
    ///
    /// # Panics
    /// If `page` is no page, is not aligned to 8 bytes, or has no room for the tuples.
    fn write_page(tuples: &[Self], page: &mut [u8]);
}

/// Writes the header of a page that [`Tuple::write_page`] filled: the last step before writing it.
pub fn seal(table: Table, page: &mut [u8], tuple_count: usize, id: PageId) {
    let class = SizeClass::from_bytes(id.bytes()).expect("a power of two");
    assert!(tuple_count <= table.capacity(class), "tuples beyond the page's capacity");
    page::seal(page, PageHeader { tuple_count: tuple_count as u16, kind: table.kind(), id });
}

#[cfg(test)]
mod tests {
    use super::super::lineitem_page::{Q1Page, Q14Page, Q14Tuple};
    use super::*;

    #[test]
    fn capacities_are_the_papers() {
        assert_eq!(
            Table::LineitemQ1.capacity(SizeClass::from_bytes(65536).expect("a class")),
            1724
        );
        assert_eq!(Table::Part.capacity(SizeClass::MIN), 24);
        assert_eq!(Table::Part.bytes_per_tuple(), 170);
    }

    #[test]
    fn impossible_pages_are_errors() {
        let mut words = vec![0u64; 512];
        let page: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let tuple = Q14Tuple { extendedprice: 1, discount: 2, partkey: 3, shipdate: 4 };
        Q14Tuple::write_page(&[tuple; 5], page);
        seal(Table::LineitemQ14, page, 5, PageId::new(0, 4096, 4096));
        assert_eq!(Q14Page::new(page).expect("a page").partkey, [3; 5]);
        assert_eq!(Q1Page::new(page).err(), Some(LayoutError::Kind { found: 2, expected: 1 }));
        assert_eq!(Q14Page::new(&page[..4095]).err(), Some(LayoutError::Shape { bytes: 4095 }));
        page[4..6].copy_from_slice(&170u16.to_le_bytes());
        assert_eq!(Q14Page::new(page).expect("a full page").partkey.len(), 170);
        page[4..6].copy_from_slice(&171u16.to_le_bytes());
        let expected = LayoutError::TupleCount { found: 171, capacity: 170 };
        assert_eq!(Q14Page::new(page).err(), Some(expected));
        let mut longer = vec![0u64; 513];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut longer);
        assert_eq!(Q14Page::new(&bytes[4..4100]).err(), Some(LayoutError::Shape { bytes: 4096 }));
    }
}
