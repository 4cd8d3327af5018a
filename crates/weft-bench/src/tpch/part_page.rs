//! The part pages of query 14: tuples as the generator hands them over, and the view that reads a
//! page in place.

use super::layout::{ColumnWriter, Columns, LayoutError, Table, Tuple};

/// Maximal bytes of the strings: name, mfgr, brand, type, container, comment.
const STRING_MAXIMA: [usize; 6] = [55, 25, 10, 25, 10, 23];

/// Bytes that the strings of one tuple take, length bytes included.
pub(super) const STRING_BYTES: usize = 6 + 55 + 25 + 10 + 25 + 10 + 23;

/// A part. The strings must not be longer than their columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTuple<'a> {
    /// p_retailprice in hundredths.
    pub retailprice: i64,
    /// p_partkey.
    pub partkey: u32,
    /// p_size.
    pub size: i32,
    /// p_name, at most 55 bytes.
    pub name: String,
    /// p_mfgr, at most 25 bytes.
    pub mfgr: String,
    /// p_brand, at most 10 bytes.
    pub brand: String,
    /// p_type, at most 25 bytes.
    pub r#type: &'a str,
    /// p_container, at most 10 bytes.
    pub container: &'a str,
    /// p_comment, at most 23 bytes.
    pub comment: &'a str,
}

impl Tuple for PartTuple<'_> {
    const TABLE: Table = Table::Part;

    fn write_page(tuples: &[PartTuple<'_>], page: &mut [u8]) {
        let [name, mfgr, brand, r#type, container, comment] = STRING_MAXIMA;
        let mut columns = ColumnWriter::of(Self::TABLE, page, tuples.len());
        columns.values(tuples.iter().map(|t| t.retailprice));
        columns.values(tuples.iter().map(|t| t.partkey));
        columns.values(tuples.iter().map(|t| t.size));
        columns.strings(name, tuples.iter().map(|t| t.name.as_str()));
        columns.strings(mfgr, tuples.iter().map(|t| t.mfgr.as_str()));
        columns.strings(brand, tuples.iter().map(|t| t.brand.as_str()));
        columns.strings(r#type, tuples.iter().map(|t| t.r#type));
        columns.strings(container, tuples.iter().map(|t| t.container));
        columns.strings(comment, tuples.iter().map(|t| t.comment));
    }
}

/// A column of strings, each a length byte and room for the longest.
#[derive(Clone, Copy, Debug)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    width: usize,
}

impl<'a> Strings<'a> {
    /// The strings in `bytes`, `width` bytes each, length byte included.
    pub(super) fn new(bytes: &'a [u8], width: usize) -> Strings<'a> {
        Strings { bytes, width }
    }

    /// The string at `row`; a length byte beyond the column's width counts as the width.
    ///
    /// # Panics
    /// If the page has no such row.
    pub fn get(&self, row: usize) -> &'a [u8] {
        let place = &self.bytes[row * self.width..][..self.width];
        &place[1..=usize::from(place[0]).min(self.width - 1)]
    }
}

/// A page of `part`, read in place. All columns have the same length.
#[derive(Clone, Copy, Debug)]
pub struct PartPage<'a> {
    /// p_retailprice in hundredths.
    pub retailprice: &'a [i64],
    /// p_partkey.
    pub partkey: &'a [u32],
    /// p_size.
    pub size: &'a [i32],
    /// p_name.
    pub name: Strings<'a>,
    /// p_mfgr.
    pub mfgr: Strings<'a>,
    /// p_brand.
    pub brand: Strings<'a>,
    /// p_type.
    pub r#type: Strings<'a>,
    /// p_container.
    pub container: Strings<'a>,
    /// p_comment.
    pub comment: Strings<'a>,
}

impl<'a> PartPage<'a> {
    /// The columns of `page`.
    ///
    /// # Errors
    /// [`LayoutError`] if the bytes are no page of this table. The checksum is not looked at.
    pub fn new(page: &'a [u8]) -> Result<PartPage<'a>, LayoutError> {
        let [name, mfgr, brand, r#type, container, comment] = STRING_MAXIMA;
        let mut columns = Columns::of(Table::Part, page)?;
        Ok(PartPage {
            retailprice: columns.values(),
            partkey: columns.values(),
            size: columns.values(),
            name: columns.strings(name),
            mfgr: columns.strings(mfgr),
            brand: columns.strings(brand),
            r#type: columns.strings(r#type),
            container: columns.strings(container),
            comment: columns.strings(comment),
        })
    }

    /// Whether query 14 counts the part at `row` as a promotion (`p_type LIKE 'PROMO%'`).
    ///
    /// # Panics
    /// If the page has no such row.
    pub fn is_promo(&self, row: usize) -> bool {
        self.r#type.get(row).starts_with(b"PROMO")
    }
}
