//! The tables as relations of columns, for queries that read most of them: what transactions change, analytics scans.
//!
//! Columns are made of the rows that a snapshot has, some thousands of ids at a time. Amounts are decimals with two digits, rates
//! with four; 0 in `o_carrier_id` and `ol_delivery_d` is NULL; strings have no zeros behind them.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use arrow_array::builder::{
    Decimal128Builder, Int32Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use weft_index::Prefetching;
use weft_txn::{Snapshot, Table};

use crate::database::{DISTRICTS, Database, SUPPLIERS};
use crate::error::Result;
use crate::rows::{
    Customer, District, History, Item, Nation, NewOrder, Order, OrderLine, Region, Row, Stock,
    Supplier, Warehouse, row,
};

/// Digits of amounts and of rates.
const MONEY: (u8, i8) = (14, 2);
const RATE: (u8, i8) = (5, 4);

/// How the values of a column are taken from rows.
enum Values<R> {
    Number(fn(&R) -> i32),
    /// NULL where it is 0.
    NumberOrNull(fn(&R) -> i32),
    /// Cents.
    Money(fn(&R) -> i64),
    /// Ten-thousandths.
    Rate(fn(&R) -> u32),
    /// Microseconds.
    Time(fn(&R) -> u64),
    /// NULL where it is 0.
    TimeOrNull(fn(&R) -> u64),
    Text(fn(&R) -> &[u8]),
}

/// A column that is being made.
enum Builder<R> {
    Number(fn(&R) -> i32, bool, Int32Builder),
    Money(fn(&R) -> i64, Decimal128Builder),
    Rate(fn(&R) -> u32, Decimal128Builder),
    Time(fn(&R) -> u64, bool, TimestampMicrosecondBuilder),
    Text(fn(&R) -> &[u8], StringBuilder),
}

impl<R> Values<R> {
    fn data_type(&self) -> DataType {
        match self {
            Values::Number(_) | Values::NumberOrNull(_) => DataType::Int32,
            Values::Money(_) => DataType::Decimal128(MONEY.0, MONEY.1),
            Values::Rate(_) => DataType::Decimal128(RATE.0, RATE.1),
            Values::Time(_) | Values::TimeOrNull(_) => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            Values::Text(_) => DataType::Utf8,
        }
    }

    fn builder(&self, rows: usize) -> Builder<R> {
        let decimal = || Decimal128Builder::with_capacity(rows).with_data_type(self.data_type());
        match *self {
            Values::Number(of) => Builder::Number(of, false, Int32Builder::with_capacity(rows)),
            Values::NumberOrNull(of) => {
                Builder::Number(of, true, Int32Builder::with_capacity(rows))
            }
            Values::Money(of) => Builder::Money(of, decimal()),
            Values::Rate(of) => Builder::Rate(of, decimal()),
            Values::Time(of) => {
                Builder::Time(of, false, TimestampMicrosecondBuilder::with_capacity(rows))
            }
            Values::TimeOrNull(of) => {
                Builder::Time(of, true, TimestampMicrosecondBuilder::with_capacity(rows))
            }
            Values::Text(of) => Builder::Text(of, StringBuilder::with_capacity(rows, 16 * rows)),
        }
    }
}

impl<R> Builder<R> {
    fn append(&mut self, row: &R) {
        match self {
            Builder::Number(of, or_null, builder) => {
                let number = of(row);
                builder.append_option((number != 0 || !*or_null).then_some(number));
            }
            Builder::Money(of, builder) => builder.append_value(of(row).into()),
            Builder::Rate(of, builder) => builder.append_value(of(row).into()),
            Builder::Time(of, or_null, builder) => {
                let time = of(row) as i64;
                builder.append_option((time != 0 || !*or_null).then_some(time));
            }
            Builder::Text(of, builder) => builder.append_value(text(of(row))),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Builder::Number(_, _, mut builder) => Arc::new(builder.finish()),
            Builder::Money(_, mut builder) | Builder::Rate(_, mut builder) => {
                Arc::new(builder.finish())
            }
            Builder::Time(_, _, mut builder) => Arc::new(builder.finish()),
            Builder::Text(_, mut builder) => Arc::new(builder.finish()),
        }
    }
}

/// The text of bytes that zeros fill up. All strings are letters, digits and the like.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

/// A column's name, and where its values come from.
type Column<R> = (&'static str, Values<R>);

/// A kind of row as columns.
trait Analytic: Row {
    fn columns() -> Vec<Column<Self>>;
}

/// What makes a batch of the rows with some ids: columns by number.
type MakeBatch = for<'s> fn(
    &'s Relation,
    &'s Snapshot,
    Range<u64>,
    &'s [usize],
) -> Pin<Box<dyn Future<Output = Result<RecordBatch>> + 's>>;

/// A table as a relation. Clones are the same one.
#[derive(Clone)]
pub struct Relation {
    database: Database,
    table: Arc<Table>,
    name: &'static str,
    schema: SchemaRef,
    make: MakeBatch,
}

impl Relation {
    fn of<R: Analytic + 'static>(database: &Database, table: &Arc<Table>) -> Relation {
        let field = |(name, values): Column<R>| {
            let is_nullable = matches!(values, Values::NumberOrNull(_) | Values::TimeOrNull(_));
            Field::new(name, values.data_type(), is_nullable)
        };
        let fields: Vec<Field> = R::columns().into_iter().map(field).collect();
        Relation {
            database: database.clone(),
            table: table.clone(),
            name: R::TABLE,
            schema: Arc::new(Schema::new(fields)),
            make: |relation, snapshot, ids, columns| {
                Box::pin(relation.make_batch::<R>(snapshot, ids, columns))
            },
        }
    }

    /// The table's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// No row that a snapshot of now has has this id or a larger one.
    pub fn end(&self) -> u64 {
        self.table.row_end()
    }

    /// Rows, at most: as many as there have been.
    pub fn rows(&self) -> u64 {
        self.end()
    }

    /// About how many distinct values the column of a number has, if it is a key, or one of few values that the specification names.
    pub fn distinct_values(&self, column: usize) -> Option<u64> {
        /// Ends of names, with the number of values.
        const FEW: [(&str, u64); 10] = [
            ("_d_id", DISTRICTS as u64),
            ("suppkey", SUPPLIERS as u64),
            ("nationkey", 25),
            ("n_name", 25),
            ("regionkey", 5),
            ("r_name", 5),
            ("ol_number", 15),
            ("ol_cnt", 11),
            ("carrier_id", 10),
            ("ol_quantity", 10),
        ];
        let name = self.schema.fields().get(column)?.name();
        if let Some((_, values)) = FEW.iter().find(|(end, _)| name.ends_with(end)) {
            return Some(*values);
        }
        let (_, key) = name
            .rsplit_once("_id")
            .and_then(|(key, _)| key.rsplit_once('_').or(Some(("", key))))?;
        let scale = self.database.scale();
        match key {
            "w" => Some(scale.warehouses.into()),
            "d" => Some(DISTRICTS.into()),
            "c" => Some(scale.customers.into()),
            "i" => Some(scale.items.into()),
            "o" => {
                let districts = u64::from(scale.warehouses) * u64::from(DISTRICTS);
                Some(self.database.orders.row_end().div_ceil(districts))
            }
            _ => None,
        }
    }

    /// The rows with these ids that a snapshot has, with the columns of these numbers in their order. To be called on a worker.
    ///
    /// # Errors
    /// [`TpccError`](crate::TpccError) if as many transactions run as there may be.
    ///
    /// # Panics
    /// If there is no column of a number, or the snapshot is of another database.
    pub async fn batch(
        &self,
        snapshot: &Snapshot,
        ids: Range<u64>,
        columns: &[usize],
    ) -> Result<RecordBatch> {
        (self.make)(self, snapshot, ids, columns).await
    }

    async fn make_batch<R: Analytic>(
        &self,
        snapshot: &Snapshot,
        ids: Range<u64>,
        columns: &[usize],
    ) -> Result<RecordBatch> {
        let rows = (ids.end.saturating_sub(ids.start)) as usize;
        let all = R::columns();
        let mut builders: Vec<Builder<R>> =
            columns.iter().map(|&column| all[column].1.builder(rows)).collect();
        let mut count = 0;
        let mut context = self.database.engine.context()?;
        let transaction = snapshot.begin(&mut context, Prefetching);
        let visit = |_, bytes: &[u8]| {
            let row = row::<R>(bytes);
            builders.iter_mut().for_each(|builder| builder.append(row));
            count += 1;
        };
        transaction.scan_rows(&self.table, ids, visit).await?;
        transaction.commit().await?;
        let schema = Arc::new(self.schema.project(columns).expect("columns that are there"));
        let arrays = builders.into_iter().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options);
        Ok(batch.expect("columns of the schema's types"))
    }
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relation({})", self.name)
    }
}

impl Database {
    /// All tables as relations.
    pub fn relations(&self) -> Vec<Relation> {
        vec![
            Relation::of::<Warehouse>(self, &self.warehouse),
            Relation::of::<District>(self, &self.district),
            Relation::of::<Customer>(self, &self.customer),
            Relation::of::<History>(self, &self.history),
            Relation::of::<NewOrder>(self, &self.new_order),
            Relation::of::<Order>(self, &self.orders),
            Relation::of::<OrderLine>(self, &self.order_line),
            Relation::of::<Item>(self, &self.item),
            Relation::of::<Stock>(self, &self.stock),
            Relation::of::<Region>(self, &self.region),
            Relation::of::<Nation>(self, &self.nation),
            Relation::of::<Supplier>(self, &self.supplier),
        ]
    }
}

use Values::{Money, Number, NumberOrNull, Rate, Text, Time, TimeOrNull};

impl Analytic for Warehouse {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("w_id", Number(|row| row.w_id.into())),
            ("w_name", Text(|row| &row.w_name)),
            ("w_street_1", Text(|row| &row.w_address.street_1)),
            ("w_street_2", Text(|row| &row.w_address.street_2)),
            ("w_city", Text(|row| &row.w_address.city)),
            ("w_state", Text(|row| &row.w_address.state)),
            ("w_zip", Text(|row| &row.w_address.zip)),
            ("w_tax", Rate(|row| row.w_tax)),
            ("w_ytd", Money(|row| row.w_ytd)),
        ]
    }
}

impl Analytic for District {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("d_id", Number(|row| row.d_id.into())),
            ("d_w_id", Number(|row| row.d_w_id.into())),
            ("d_name", Text(|row| &row.d_name)),
            ("d_street_1", Text(|row| &row.d_address.street_1)),
            ("d_street_2", Text(|row| &row.d_address.street_2)),
            ("d_city", Text(|row| &row.d_address.city)),
            ("d_state", Text(|row| &row.d_address.state)),
            ("d_zip", Text(|row| &row.d_address.zip)),
            ("d_tax", Rate(|row| row.d_tax)),
            ("d_ytd", Money(|row| row.d_ytd)),
            ("d_next_o_id", Number(|row| row.d_next_o_id as i32)),
        ]
    }
}

impl Analytic for Customer {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("c_id", Number(|row| row.c_id.into())),
            ("c_d_id", Number(|row| row.c_d_id.into())),
            ("c_w_id", Number(|row| row.c_w_id.into())),
            ("c_first", Text(|row| &row.c_first)),
            ("c_middle", Text(|row| &row.c_middle)),
            ("c_last", Text(|row| &row.c_last)),
            ("c_street_1", Text(|row| &row.c_address.street_1)),
            ("c_street_2", Text(|row| &row.c_address.street_2)),
            ("c_city", Text(|row| &row.c_address.city)),
            ("c_state", Text(|row| &row.c_address.state)),
            ("c_zip", Text(|row| &row.c_address.zip)),
            ("c_phone", Text(|row| &row.c_phone)),
            ("c_since", Time(|row| row.c_since)),
            ("c_credit", Text(|row| &row.c_credit)),
            ("c_credit_lim", Money(|row| row.c_credit_lim)),
            ("c_discount", Rate(|row| row.c_discount)),
            ("c_balance", Money(|row| row.c_balance)),
            ("c_ytd_payment", Money(|row| row.c_ytd_payment)),
            ("c_payment_cnt", Number(|row| row.c_payment_cnt as i32)),
            ("c_delivery_cnt", Number(|row| row.c_delivery_cnt as i32)),
            ("c_data", Text(|row| row.c_data.as_flattened())),
        ]
    }
}

impl Analytic for History {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("h_c_id", Number(|row| row.h_c_id.into())),
            ("h_c_d_id", Number(|row| row.h_c_d_id.into())),
            ("h_c_w_id", Number(|row| row.h_c_w_id.into())),
            ("h_d_id", Number(|row| row.h_d_id.into())),
            ("h_w_id", Number(|row| row.h_w_id.into())),
            ("h_date", Time(|row| row.h_date)),
            ("h_amount", Money(|row| row.h_amount)),
            ("h_data", Text(|row| &row.h_data)),
        ]
    }
}

impl Analytic for NewOrder {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("no_o_id", Number(|row| row.no_o_id as i32)),
            ("no_d_id", Number(|row| row.no_d_id.into())),
            ("no_w_id", Number(|row| row.no_w_id.into())),
        ]
    }
}

impl Analytic for Order {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("o_id", Number(|row| row.o_id as i32)),
            ("o_d_id", Number(|row| row.o_d_id.into())),
            ("o_w_id", Number(|row| row.o_w_id.into())),
            ("o_c_id", Number(|row| row.o_c_id.into())),
            ("o_entry_d", Time(|row| row.o_entry_d)),
            ("o_carrier_id", NumberOrNull(|row| row.o_carrier_id.into())),
            ("o_ol_cnt", Number(|row| row.o_ol_cnt.into())),
            ("o_all_local", Number(|row| row.o_all_local.into())),
        ]
    }
}

impl Analytic for OrderLine {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("ol_o_id", Number(|row| row.ol_o_id as i32)),
            ("ol_d_id", Number(|row| row.ol_d_id.into())),
            ("ol_w_id", Number(|row| row.ol_w_id.into())),
            ("ol_number", Number(|row| row.ol_number.into())),
            ("ol_i_id", Number(|row| row.ol_i_id as i32)),
            ("ol_supply_w_id", Number(|row| row.ol_supply_w_id.into())),
            ("ol_delivery_d", TimeOrNull(|row| row.ol_delivery_d)),
            ("ol_quantity", Number(|row| row.ol_quantity.into())),
            ("ol_amount", Money(|row| row.ol_amount)),
            ("ol_dist_info", Text(|row| &row.ol_dist_info)),
        ]
    }
}

impl Analytic for Item {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("i_id", Number(|row| row.i_id as i32)),
            ("i_im_id", Number(|row| row.i_im_id as i32)),
            ("i_name", Text(|row| &row.i_name)),
            ("i_price", Money(|row| row.i_price)),
            ("i_data", Text(|row| row.i_data.as_flattened())),
        ]
    }
}

impl Analytic for Stock {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("s_i_id", Number(|row| row.s_i_id as i32)),
            ("s_w_id", Number(|row| row.s_w_id.into())),
            ("s_quantity", Number(|row| row.s_quantity.into())),
            ("s_dist_01", Text(|row| &row.s_dist[0])),
            ("s_dist_02", Text(|row| &row.s_dist[1])),
            ("s_dist_03", Text(|row| &row.s_dist[2])),
            ("s_dist_04", Text(|row| &row.s_dist[3])),
            ("s_dist_05", Text(|row| &row.s_dist[4])),
            ("s_dist_06", Text(|row| &row.s_dist[5])),
            ("s_dist_07", Text(|row| &row.s_dist[6])),
            ("s_dist_08", Text(|row| &row.s_dist[7])),
            ("s_dist_09", Text(|row| &row.s_dist[8])),
            ("s_dist_10", Text(|row| &row.s_dist[9])),
            ("s_ytd", Number(|row| row.s_ytd as i32)),
            ("s_order_cnt", Number(|row| row.s_order_cnt.into())),
            ("s_remote_cnt", Number(|row| row.s_remote_cnt.into())),
            ("s_data", Text(|row| row.s_data.as_flattened())),
        ]
    }
}

impl Analytic for Region {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("r_regionkey", Number(|row| row.r_regionkey.into())),
            ("r_name", Text(|row| &row.r_name)),
        ]
    }
}

impl Analytic for Nation {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("n_nationkey", Number(|row| row.n_nationkey.into())),
            ("n_name", Text(|row| &row.n_name)),
            ("n_regionkey", Number(|row| row.n_regionkey.into())),
        ]
    }
}

impl Analytic for Supplier {
    fn columns() -> Vec<Column<Self>> {
        vec![
            ("su_suppkey", Number(|row| row.su_suppkey as i32)),
            ("su_name", Text(|row| &row.su_name)),
            ("su_address", Text(|row| &row.su_address.street_1)),
            ("su_nationkey", Number(|row| row.su_nationkey.into())),
            ("su_phone", Text(|row| &row.su_phone)),
            ("su_acctbal", Money(|row| row.su_acctbal)),
        ]
    }
}
