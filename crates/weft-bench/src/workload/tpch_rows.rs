//! TPC-H rows of `tpchgen` as Arrow record batches, with the column types of the specification.
//!
//! The text pool that comments are cut from takes 300 MB. It belongs to a [`TpchSource`] and goes with
//! it, so that what is measured afterwards does not carry it along; this is why the crate
//! `tpchgen-arrow`, which keeps a global one, is not used.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    StringViewBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;

/// Bytes of the text pool; dbgen's size, which fixes the comments.
const TEXT_POOL_BYTES: i32 = 300 * 1024 * 1024;

/// The eight tables of TPC-H, smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TpchTable {
    /// Five regions.
    Region,
    /// 25 nations.
    Nation,
    /// 10,000 per unit of scale.
    Supplier,
    /// 150,000 per unit of scale.
    Customer,
    /// 200,000 per unit of scale.
    Part,
    /// 800,000 per unit of scale.
    Partsupp,
    /// 1,500,000 per unit of scale.
    Orders,
    /// About 6,000,000 per unit of scale.
    Lineitem,
}

impl TpchTable {
    /// All tables, smallest first.
    pub const ALL: [TpchTable; 8] = [
        TpchTable::Region,
        TpchTable::Nation,
        TpchTable::Supplier,
        TpchTable::Customer,
        TpchTable::Part,
        TpchTable::Partsupp,
        TpchTable::Orders,
        TpchTable::Lineitem,
    ];

    /// The table's name.
    pub fn name(self) -> &'static str {
        match self {
            TpchTable::Region => "region",
            TpchTable::Nation => "nation",
            TpchTable::Supplier => "supplier",
            TpchTable::Customer => "customer",
            TpchTable::Part => "part",
            TpchTable::Partsupp => "partsupp",
            TpchTable::Orders => "orders",
            TpchTable::Lineitem => "lineitem",
        }
    }

    /// Rows at a scale factor: exact but for lineitem, which has four per order on average.
    pub fn rows(self, scale: f64) -> u64 {
        let rows = match self {
            TpchTable::Region => 5,
            TpchTable::Nation => 25,
            TpchTable::Supplier => SupplierGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Customer => CustomerGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Part => PartGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Partsupp => 4 * PartGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Orders => OrderGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Lineitem => 4 * OrderGenerator::calculate_row_count(scale, 1, 1),
        };
        rows as u64
    }
}

/// Makes the rows of one scale factor.
pub struct TpchSource {
    scale: f64,
    text_pool: TextPool,
}

/// Rows of a table as text and numbers, column by column.
struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

/// Makes a batch of rows: each column's name is the field that it is read from.
macro_rules! batch {
    ($rows:expr, { $($column:ident: $kind:ident),* $(,)? }) => {{
        let rows: Vec<_> = $rows.collect();
        let mut columns = Columns { fields: Vec::new(), arrays: Vec::new() };
        $(columns.$kind(stringify!($column), rows.iter().map(|row| &row.$column));)*
        columns.finish()
    }};
}

impl TpchSource {
    /// A source of rows; making its text pool takes seconds and 300 MB.
    pub fn new(scale: f64) -> TpchSource {
        let text_pool = TextPool::new(TEXT_POOL_BYTES, Distributions::static_default());
        TpchSource { scale, text_pool }
    }

    /// Part `number` (from 0) of `parts` of a table, a contiguous slice of its rows.
    ///
    /// # Errors
    /// [`ArrowError`] if columns do not fit together, which would be a bug.
    pub fn part(
        &self,
        table: TpchTable,
        number: u32,
        parts: u32,
    ) -> Result<RecordBatch, ArrowError> {
        let (scale, part, parts) = (self.scale, number as i32 + 1, parts as i32);
        let (words, pool) = (Distributions::static_default(), &self.text_pool);
        match table {
            TpchTable::Region => batch!(
                RegionGenerator::new_with_distributions_and_text_pool(words, pool).iter(),
                { r_regionkey: long, r_name: text, r_comment: text }
            ),
            TpchTable::Nation => batch!(
                NationGenerator::new_with_distributions_and_text_pool(words, pool).iter(),
                { n_nationkey: long, n_name: text, n_regionkey: long, n_comment: text }
            ),
            TpchTable::Supplier => batch!(
                SupplierGenerator::new_with_distributions_and_text_pool(
                    scale, part, parts, words, pool
                )
                .iter(),
                {
                    s_suppkey: long, s_name: text, s_address: text, s_nationkey: long,
                    s_phone: text, s_acctbal: decimal, s_comment: text,
                }
            ),
            TpchTable::Customer => batch!(
                CustomerGenerator::new_with_distributions_and_text_pool(
                    scale, part, parts, words, pool
                )
                .iter(),
                {
                    c_custkey: long, c_name: text, c_address: text, c_nationkey: long,
                    c_phone: text, c_acctbal: decimal, c_mktsegment: text, c_comment: text,
                }
            ),
            TpchTable::Part => batch!(
                PartGenerator::new_with_distributions_and_text_pool(scale, part, parts, words, pool)
                    .iter(),
                {
                    p_partkey: long, p_name: text, p_mfgr: text, p_brand: text, p_type: text,
                    p_size: int, p_container: text, p_retailprice: decimal, p_comment: text,
                }
            ),
            TpchTable::Partsupp => batch!(
                PartSuppGenerator::new_with_text_pool(scale, part, parts, pool).iter(),
                {
                    ps_partkey: long, ps_suppkey: long, ps_availqty: int, ps_supplycost: decimal,
                    ps_comment: text,
                }
            ),
            TpchTable::Orders => batch!(
                OrderGenerator::new_with_distributions_and_text_pool(
                    scale, part, parts, words, pool
                )
                .iter(),
                {
                    o_orderkey: long, o_custkey: long, o_orderstatus: text, o_totalprice: decimal,
                    o_orderdate: date, o_orderpriority: text, o_clerk: text, o_shippriority: int,
                    o_comment: text,
                }
            ),
            TpchTable::Lineitem => batch!(
                LineItemGenerator::new_with_distributions_and_text_pool(
                    scale, part, parts, words, pool
                )
                .iter(),
                {
                    l_orderkey: long, l_partkey: long, l_suppkey: long, l_linenumber: int,
                    l_quantity: whole, l_extendedprice: decimal, l_discount: decimal,
                    l_tax: decimal, l_returnflag: text, l_linestatus: text, l_shipdate: date,
                    l_commitdate: date, l_receiptdate: date, l_shipinstruct: text,
                    l_shipmode: text, l_comment: text,
                }
            ),
        }
    }
}

/// The kinds of columns. TPC-H has no nulls.
impl Columns {
    fn push(&mut self, name: &str, array: ArrayRef) {
        self.fields.push(Field::new(name, array.data_type().clone(), false));
        self.arrays.push(array);
    }

    fn long<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a i64>) {
        self.push(name, Arc::new(Int64Array::from_iter_values(values.copied())));
    }

    fn int<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a i32>) {
        self.push(name, Arc::new(Int32Array::from_iter_values(values.copied())));
    }

    fn decimal<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a TPCHDecimal>) {
        self.hundredths(name, values.map(|value| value.into_inner()));
    }

    /// Whole numbers that the specification has as decimals.
    fn whole<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a i64>) {
        self.hundredths(name, values.map(|value| value * 100));
    }

    fn hundredths(&mut self, name: &str, values: impl Iterator<Item = i64>) {
        let array = Decimal128Array::from_iter_values(values.map(i128::from))
            .with_data_type(DataType::Decimal128(15, 2));
        self.push(name, Arc::new(array));
    }

    fn date<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a TPCHDate>) {
        let days = values.map(|value| value.to_unix_epoch());
        self.push(name, Arc::new(Date32Array::from_iter_values(days)));
    }

    fn text<'a, T: std::fmt::Display + 'a>(
        &mut self,
        name: &str,
        values: impl Iterator<Item = &'a T>,
    ) {
        let mut builder = StringViewBuilder::new();
        let mut buffer = String::new();
        for value in values {
            buffer.clear();
            write!(buffer, "{value}").expect("writing to a string succeeds");
            builder.append_value(&buffer);
        }
        let array: StringViewArray = builder.finish();
        self.push(name, Arc::new(array));
    }

    fn finish(self) -> Result<RecordBatch, ArrowError> {
        let schema: SchemaRef = Arc::new(Schema::new(self.fields));
        RecordBatch::try_new(schema, self.arrays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_rows_of_the_whole() {
        let source = TpchSource::new(0.001);
        for table in TpchTable::ALL {
            let whole = source.part(table, 0, 1).unwrap();
            if table != TpchTable::Lineitem {
                assert_eq!(whole.num_rows() as u64, table.rows(0.001), "{}", table.name());
            }
            if table.rows(0.001) < 100 {
                continue;
            }
            let parts: Vec<RecordBatch> =
                (0..3).map(|number| source.part(table, number, 3).unwrap()).collect();
            let joined = arrow::compute::concat_batches(&whole.schema(), &parts).unwrap();
            assert_eq!(joined, whole, "{}", table.name());
        }
    }
}
