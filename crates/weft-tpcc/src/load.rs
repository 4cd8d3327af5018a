//! The initial population (clause 4.3.3), warehouse by warehouse.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use weft_rt::Runtime;
use weft_txn::{Context, Table, Transaction, TransactionOptions};

use crate::database::{DISTRICTS, Database, SUPPLIERS};
use crate::error::{Result, TpccError};
use crate::random;
use crate::rows::{
    Customer, District, History, Item, Nation, NewOrder, Order, OrderLine, Region, Stock, Supplier,
    Warehouse,
};

/// Rows of a transaction of the load.
const ROWS_PER_TRANSACTION: u32 = 1000;
/// Regions and nations are those of TPC-H: each nation's number and that of its region.
const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
const NATIONS: [(&str, u8); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];

/// Inserts rows, some per transaction.
struct Loader<'c> {
    context: &'c mut Context,
    options: TransactionOptions,
}

impl Loader<'_> {
    /// Inserts the rows that `make` makes of the numbers from `first` to `last`.
    async fn rows<R: bytemuck::Pod>(
        &mut self,
        table: &Arc<Table>,
        numbers: std::ops::RangeInclusive<u32>,
        mut make: impl FnMut(u32) -> R,
    ) -> Result<()> {
        let end = *numbers.end();
        let mut next = *numbers.start();
        while next <= end {
            let mut transaction = self.context.begin(self.options);
            let last = end.min(next + ROWS_PER_TRANSACTION - 1);
            for number in next..=last {
                insert(&mut transaction, table, &make(number)).await?;
            }
            transaction.commit().await?;
            next = last + 1;
        }
        Ok(())
    }
}

async fn insert<R: bytemuck::Pod>(
    transaction: &mut Transaction<'_>,
    table: &Arc<Table>,
    row: &R,
) -> Result<()> {
    transaction.insert(table, bytemuck::bytes_of(row)).await?;
    Ok(())
}

fn named<const N: usize>(name: &str) -> [u8; N] {
    let mut padded = [0; N];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}

impl Database {
    /// Loads what belongs to no warehouse: items, suppliers, nations, regions.
    async fn load_shared(&self, options: TransactionOptions, seed: u64) -> Result<()> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut context = self.engine.context()?;
        let mut loader = Loader { context: &mut context, options };
        let items = |i| Item {
            i_id: i,
            i_im_id: random.u32(1..=10_000),
            i_price: random.i64(100..=10_000),
            i_name: random::letters(&mut random, 14),
            i_data: random::data(&mut random),
        };
        loader.rows(&self.item, 1..=self.scale.items, items).await?;
        let regions = |r: u32| Region { r_regionkey: r as u8, r_name: named(REGIONS[r as usize]) };
        loader.rows(&self.region, 0..=REGIONS.len() as u32 - 1, regions).await?;
        let nations = |n: u32| {
            let (name, region) = NATIONS[n as usize];
            Nation { n_nationkey: n as u8, n_regionkey: region, n_name: named(name) }
        };
        loader.rows(&self.nation, 0..=NATIONS.len() as u32 - 1, nations).await?;
        let suppliers = |su: u32| Supplier {
            su_suppkey: su,
            su_nationkey: (su as usize % NATIONS.len()) as u8,
            su_acctbal: random.i64(-99_999..=999_999),
            su_name: named(&format!("Supplier#{su:09}")),
            su_address: random::address(&mut random),
            su_phone: random::digits(&mut random),
        };
        loader.rows(&self.supplier, 0..=SUPPLIERS - 1, suppliers).await
    }

    /// Loads a warehouse with all that belongs to it.
    async fn load_warehouse(&self, w: u16, options: TransactionOptions, seed: u64) -> Result<()> {
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(w) << 32);
        let mut context = self.engine.context()?;
        let mut loader = Loader { context: &mut context, options };
        let warehouse = |_| Warehouse {
            w_id: w,
            w_tax: random.u32(..=2000),
            w_ytd: i64::from(DISTRICTS) * i64::from(self.scale.customers) * 1000,
            w_name: random::letters(&mut random, 6),
            w_address: random::address(&mut random),
        };
        loader.rows(&self.warehouse, 1..=1, warehouse).await?;
        let stock = |i| Stock {
            s_w_id: w,
            s_i_id: i,
            s_quantity: random.i16(10..=100),
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_dist: std::array::from_fn(|_| random::letters(&mut random, 24)),
            s_data: random::data(&mut random),
        };
        loader.rows(&self.stock, 1..=self.scale.items, stock).await?;
        for d in 1..=DISTRICTS {
            self.load_district(&mut loader, &mut random, w, d).await?;
        }
        Ok(())
    }

    async fn load_district(
        &self,
        loader: &mut Loader<'_>,
        random: &mut fastrand::Rng,
        w: u16,
        d: u8,
    ) -> Result<()> {
        let (scale, constants) = (self.scale, self.constants);
        let customers = u32::from(scale.customers);
        let district = |_| District {
            d_w_id: w,
            d_id: d,
            d_tax: random.u32(..=2000),
            d_ytd: i64::from(customers) * 1000,
            d_next_o_id: customers + 1,
            d_name: random::letters(random, 6),
            d_address: random::address(random),
        };
        loader.rows(&self.district, 1..=1, district).await?;
        let customer = |c: u32| {
            let name = match c {
                1..=1000 => c - 1,
                _ => random::last_of_load(random, &constants, scale.last_name()),
            };
            let mut c_data = [[0; 25]; 20];
            let len = random.usize(300..=500);
            random::fill_letters(random, &mut c_data.as_flattened_mut()[..len]);
            Customer {
                c_w_id: w,
                c_d_id: d,
                c_id: c as u16,
                c_balance: -1000,
                c_ytd_payment: 1000,
                c_payment_cnt: 1,
                c_delivery_cnt: 0,
                c_discount: random.u32(..=5000),
                c_credit: if random.u8(..10) == 0 { *b"BC" } else { *b"GC" },
                c_last: random::last_name(name),
                c_first: random::letters(random, 8),
                c_middle: *b"OE",
                c_credit_lim: 5_000_000,
                c_since: 0,
                c_phone: random::digits(random),
                c_address: random::address(random),
                c_data,
            }
        };
        loader.rows(&self.customer, 1..=customers, customer).await?;
        let history = |c: u32| History {
            h_c_w_id: w,
            h_c_d_id: d,
            h_c_id: c as u16,
            h_w_id: w,
            h_d_id: d,
            h_date: 0,
            h_amount: 1000,
            h_data: random::letters(random, 12),
        };
        loader.rows(&self.history, 1..=customers, history).await?;
        self.load_orders(loader, random, w, d).await
    }

    async fn load_orders(
        &self,
        loader: &mut Loader<'_>,
        random: &mut fastrand::Rng,
        w: u16,
        d: u8,
    ) -> Result<()> {
        let (scale, delivered) = (self.scale, self.scale.delivered());
        let mut customers: Vec<u16> = (1..=scale.customers).collect();
        random.shuffle(&mut customers);
        let orders: Vec<Order> = (1..=u32::from(scale.customers))
            .map(|o| Order {
                o_w_id: w,
                o_d_id: d,
                o_id: o,
                o_c_id: customers[o as usize - 1],
                o_entry_d: 1,
                o_carrier_id: if o <= delivered { random.u8(1..=10) } else { 0 },
                o_ol_cnt: random.u8(5..=15),
                o_all_local: 1,
            })
            .collect();
        let order = |o: u32| orders[o as usize - 1];
        loader.rows(&self.orders, 1..=u32::from(scale.customers), order).await?;
        let new_order = |o| NewOrder { no_w_id: w, no_d_id: d, no_o_id: o };
        loader.rows(&self.new_order, delivered + 1..=u32::from(scale.customers), new_order).await?;
        let lines: Vec<(u32, u8)> = orders
            .iter()
            .flat_map(|order| (1..=order.o_ol_cnt).map(|number| (order.o_id, number)))
            .collect();
        let line = |at: u32| {
            let (o, number) = lines[at as usize];
            let is_delivered = o <= delivered;
            OrderLine {
                ol_w_id: w,
                ol_d_id: d,
                ol_o_id: o,
                ol_number: number,
                ol_i_id: random.u32(1..=scale.items),
                ol_supply_w_id: w,
                ol_delivery_d: u64::from(is_delivered),
                ol_quantity: 5,
                ol_amount: if is_delivered { 0 } else { random.i64(1..=999_999) },
                ol_dist_info: random::letters(random, 24),
            }
        };
        loader.rows(&self.order_line, 0..=lines.len() as u32 - 1, line).await
    }
}

/// Loads all of an empty database by some workers of a runtime, from outside of it.
///
/// # Errors
/// [`TpccError`] if there is too little memory, or rows are there already.
pub fn load(
    runtime: &Runtime,
    database: &Database,
    threads: usize,
    options: TransactionOptions,
) -> std::result::Result<(), TpccError> {
    let seed = database.seed;
    let shared = database.clone();
    runtime.block_on(move || async move { shared.load_shared(options, seed).await })??;
    let next = Arc::new(AtomicU16::new(1));
    let workers: Vec<_> = (0..threads)
        .map(|worker| {
            let (database, next) = (database.clone(), next.clone());
            runtime.spawn_on(worker, move || async move {
                loop {
                    let w = next.fetch_add(1, Ordering::Relaxed);
                    if w > database.scale.warehouses {
                        return Ok(());
                    }
                    database.load_warehouse(w, options, seed).await?;
                }
            })
        })
        .collect();
    workers.into_iter().try_for_each(|worker| worker.wait()?)
}
