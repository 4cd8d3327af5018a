//! The lineitem pages of queries 1 and 14: their tuples as the generator hands them over, and the
//! views that read a page in place.

use super::layout::{ColumnWriter, Columns, LayoutError, Table, Tuple};

/// What query 1 needs of a lineitem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q1Tuple {
    /// l_quantity in hundredths.
    pub quantity: i64,
    /// l_extendedprice in hundredths.
    pub extendedprice: i64,
    /// l_discount in hundredths.
    pub discount: i64,
    /// l_tax in hundredths.
    pub tax: i64,
    /// l_shipdate in days since 1970-01-01.
    pub shipdate: i32,
    /// l_returnflag.
    pub returnflag: u8,
    /// l_linestatus.
    pub linestatus: u8,
}

impl Tuple for Q1Tuple {
    const TABLE: Table = Table::LineitemQ1;

    fn write_page(tuples: &[Q1Tuple], page: &mut [u8]) {
        let mut columns = ColumnWriter::of(Self::TABLE, page, tuples.len());
        columns.values(tuples.iter().map(|t| t.quantity));
        columns.values(tuples.iter().map(|t| t.extendedprice));
        columns.values(tuples.iter().map(|t| t.discount));
        columns.values(tuples.iter().map(|t| t.tax));
        columns.values(tuples.iter().map(|t| t.shipdate));
        columns.values(tuples.iter().map(|t| t.returnflag));
        columns.values(tuples.iter().map(|t| t.linestatus));
    }
}

/// A page of `lineitem_q1`, read in place. All columns have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Q1Page<'a> {
    /// l_quantity in hundredths.
    pub quantity: &'a [i64],
    /// l_extendedprice in hundredths.
    pub extendedprice: &'a [i64],
    /// l_discount in hundredths.
    pub discount: &'a [i64],
    /// l_tax in hundredths.
    pub tax: &'a [i64],
    /// l_shipdate in days since 1970-01-01.
    pub shipdate: &'a [i32],
    /// l_returnflag.
    pub returnflag: &'a [u8],
    /// l_linestatus.
    pub linestatus: &'a [u8],
}

impl<'a> Q1Page<'a> {
    /// The columns of `page`.
    ///
    /// # Errors
    /// [`LayoutError`] if the bytes are no page of this table. The checksum is not looked at.
    pub fn new(page: &'a [u8]) -> Result<Q1Page<'a>, LayoutError> {
        let mut columns = Columns::of(Table::LineitemQ1, page)?;
        Ok(Q1Page {
            quantity: columns.values(),
            extendedprice: columns.values(),
            discount: columns.values(),
            tax: columns.values(),
            shipdate: columns.values(),
            returnflag: columns.values(),
            linestatus: columns.values(),
        })
    }

    /// Tuples in the page.
    pub fn tuple_count(&self) -> usize {
        self.quantity.len()
    }

    /// The tuple at `row`.
    ///
    /// # Panics
    /// If the page has no such row.
    pub fn tuple(&self, row: usize) -> Q1Tuple {
        Q1Tuple {
            quantity: self.quantity[row],
            extendedprice: self.extendedprice[row],
            discount: self.discount[row],
            tax: self.tax[row],
            shipdate: self.shipdate[row],
            returnflag: self.returnflag[row],
            linestatus: self.linestatus[row],
        }
    }
}

/// What query 14 needs of a lineitem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q14Tuple {
    /// l_extendedprice in hundredths.
    pub extendedprice: i64,
    /// l_discount in hundredths.
    pub discount: i64,
    /// l_partkey.
    pub partkey: u32,
    /// l_shipdate in days since 1970-01-01.
    pub shipdate: i32,
}

impl Tuple for Q14Tuple {
    const TABLE: Table = Table::LineitemQ14;

    fn write_page(tuples: &[Q14Tuple], page: &mut [u8]) {
        let mut columns = ColumnWriter::of(Self::TABLE, page, tuples.len());
        columns.values(tuples.iter().map(|t| t.extendedprice));
        columns.values(tuples.iter().map(|t| t.discount));
        columns.values(tuples.iter().map(|t| t.partkey));
        columns.values(tuples.iter().map(|t| t.shipdate));
    }
}

/// A page of `lineitem_q14`, read in place. All columns have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Q14Page<'a> {
    /// l_extendedprice in hundredths.
    pub extendedprice: &'a [i64],
    /// l_discount in hundredths.
    pub discount: &'a [i64],
    /// l_partkey.
    pub partkey: &'a [u32],
    /// l_shipdate in days since 1970-01-01.
    pub shipdate: &'a [i32],
}

impl<'a> Q14Page<'a> {
    /// The columns of `page`.
    ///
    /// # Errors
    /// [`LayoutError`] if the bytes are no page of this table. The checksum is not looked at.
    pub fn new(page: &'a [u8]) -> Result<Q14Page<'a>, LayoutError> {
        let mut columns = Columns::of(Table::LineitemQ14, page)?;
        Ok(Q14Page {
            extendedprice: columns.values(),
            discount: columns.values(),
            partkey: columns.values(),
            shipdate: columns.values(),
        })
    }
}
