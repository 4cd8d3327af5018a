//! The twelve consistency conditions of the specification (clause 3.3.2), and that indexes of a table lead to the same rows.
//!
//! All of it is read by one transaction, so it holds while others run, too. Numbers are those of the clause.

use std::ops::ControlFlow;
use std::sync::Arc;

use weft_index::{Direction, after_prefix};
use weft_txn::{Table, Transaction, TransactionOptions};

use crate::database::{DISTRICTS, Database};
use crate::error::{Result, TpccError};
use crate::rows::{
    Customer, District, History, NewOrder, Order, OrderLine, Row, Warehouse, district_key, row,
    warehouse_key,
};

/// What the rows of the history table say.
struct Payments {
    customers: usize,
    to_warehouses: Vec<i64>,
    to_districts: Vec<i64>,
    by_customers: Vec<i64>,
}

/// What the lines of an order say.
#[derive(Clone, Copy, Default)]
struct Lines {
    count: u32,
    delivered: u32,
    amount: i64,
}

fn fails<T>(condition: u32, details: String) -> Result<T> {
    Err(TpccError::Inconsistent { condition, details })
}

/// Fails unless two numbers are equal.
fn same<T: PartialEq + std::fmt::Display>(
    condition: u32,
    place: impl FnOnce() -> String,
    (left, is): (&str, T),
    (right, expected): (&str, T),
) -> Result<()> {
    if is == expected {
        return Ok(());
    }
    fails(condition, format!("in {}, {left} is {is}, and {right} is {expected}", place()))
}

fn district_of(w: u16, d: u8) -> usize {
    (usize::from(w) - 1) * usize::from(DISTRICTS) + usize::from(d) - 1
}

/// Checks all conditions: to be called on a worker.
///
/// # Errors
/// [`TpccError::Inconsistent`] for the first one that does not hold, and errors of reading.
pub async fn check(database: &Database) -> std::result::Result<(), TpccError> {
    let mut context = database.engine.context()?;
    let transaction = context.begin(TransactionOptions::default());
    let check = Check { database, transaction: &transaction };
    let payments = check.payments().await?;
    for w in 1..=database.scale.warehouses {
        check.warehouse(w, &payments).await?;
    }
    check.indexes().await?;
    transaction.rollback().await;
    Ok(())
}

struct Check<'a, 'c> {
    database: &'a Database,
    transaction: &'a Transaction<'c>,
}

impl Check<'_, '_> {
    /// What `look` makes of each row whose key in an index begins with `prefix`.
    async fn each<R: Row, T>(
        &self,
        (table, index): (&Arc<Table>, usize),
        prefix: &[u8],
        look: impl Fn(&R) -> T,
    ) -> Result<Vec<T>> {
        let mut seen = Vec::new();
        let visit = |_, bytes: &[u8]| {
            seen.push(look(row(bytes)));
            ControlFlow::Continue(())
        };
        let high = after_prefix(prefix);
        let (low, high) = (Some(prefix), high.as_deref());
        self.transaction.scan(table, index, low, high, Direction::Forwards, visit).await?;
        Ok(seen)
    }

    /// Adds up the history, which has no index.
    async fn payments(&self) -> Result<Payments> {
        let Database { scale, history, .. } = self.database;
        let customers = usize::from(scale.customers);
        let districts = usize::from(scale.warehouses) * usize::from(DISTRICTS);
        let mut payments = Payments {
            customers,
            to_warehouses: vec![0; usize::from(scale.warehouses)],
            to_districts: vec![0; districts],
            by_customers: vec![0; districts * customers],
        };
        for id in 0..history.row_end() {
            let Some(bytes) = self.transaction.get_row(history, id).await? else { continue };
            let paid = row::<History>(&bytes);
            payments.to_warehouses[usize::from(paid.h_w_id) - 1] += paid.h_amount;
            payments.to_districts[district_of(paid.h_w_id, paid.h_d_id)] += paid.h_amount;
            let of = district_of(paid.h_c_w_id, paid.h_c_d_id) * customers;
            payments.by_customers[of + usize::from(paid.h_c_id) - 1] += paid.h_amount;
        }
        Ok(payments)
    }

    async fn warehouse(&self, w: u16, payments: &Payments) -> Result<()> {
        let place = || format!("warehouse {w}");
        let Database { warehouse, district, .. } = self.database;
        let prefix = warehouse_key(w);
        let ytd = self.each((warehouse, 0), &prefix, |row: &Warehouse| row.w_ytd).await?;
        let [w_ytd] = ytd[..] else {
            return fails(1, format!("{} rows of {}", ytd.len(), place()));
        };
        let districts: Vec<District> =
            self.each((district, 0), &prefix, |row: &District| *row).await?;
        same(1, place, ("the number of districts", districts.len()), ("it", DISTRICTS.into()))?;
        let d_ytd: i64 = districts.iter().map(|row| row.d_ytd).sum();
        same(1, place, ("W_YTD", w_ytd), ("the sum of D_YTD", d_ytd))?;
        let paid = payments.to_warehouses[usize::from(w) - 1];
        same(8, place, ("W_YTD", w_ytd), ("the sum of H_AMOUNT", paid))?;
        for district in &districts {
            self.district(district, payments).await?;
        }
        Ok(())
    }

    async fn district(&self, district: &District, payments: &Payments) -> Result<()> {
        let District { d_w_id: w, d_id: d, d_next_o_id: next, d_ytd, .. } = *district;
        let place = || format!("district {d} of warehouse {w}");
        let database = self.database;
        let prefix = district_key(w, d);
        let paid = payments.to_districts[district_of(w, d)];
        same(9, place, ("D_YTD", d_ytd), ("the sum of H_AMOUNT", paid))?;

        let number = |row: &NewOrder| row.no_o_id;
        let new_orders: Vec<u32> = self.each((&database.new_order, 0), &prefix, number).await?;
        let orders: Vec<Order> =
            self.each((&database.orders, 0), &prefix, |row: &Order| *row).await?;
        let last = orders.last().map_or(0, |order| order.o_id);
        same(2, place, ("D_NEXT_O_ID - 1", next - 1), ("the greatest O_ID", last))?;
        if let (Some(first), Some(last)) = (new_orders.first(), new_orders.last()) {
            same(2, place, ("D_NEXT_O_ID - 1", next - 1), ("the greatest NO_O_ID", *last))?;
            let (span, rows) = ((last - first + 1) as usize, new_orders.len());
            same(3, place, ("the span of NO_O_ID", span), ("the number of new orders", rows))?;
        }
        let delivered = orders.len() - new_orders.len();
        let at_least = database.scale.delivered() as usize;
        if delivered < at_least {
            let details = format!(
                "in {}, {delivered} orders are no new orders, fewer than {at_least}",
                place()
            );
            return fails(11, details);
        }

        let lines = self.lines(&orders, &prefix).await?;
        let count: u32 = orders.iter().map(|order| u32::from(order.o_ol_cnt)).sum();
        let rows = lines.iter().map(|lines| lines.count).sum();
        same(4, place, ("the sum of O_OL_CNT", count), ("the number of order lines", rows))?;
        let mut delivered = vec![0; payments.customers];
        let mut expected_new = new_orders.iter().peekable();
        for (order, lines) in orders.iter().zip(&lines) {
            let Order { o_id, o_c_id, o_carrier_id, o_ol_cnt, .. } = *order;
            let place = || format!("order {o_id} of district {d} of warehouse {w}");
            let is_new = expected_new.next_if_eq(&&o_id).is_some();
            same(
                5,
                place,
                ("NULL of O_CARRIER_ID", o_carrier_id == 0),
                ("that it is new", is_new),
            )?;
            let count = u32::from(o_ol_cnt);
            same(6, place, ("O_OL_CNT", count), ("the number of lines", lines.count))?;
            let expected = if o_carrier_id == 0 { 0 } else { count };
            same(7, place, ("the number of delivered lines", lines.delivered), ("it", expected))?;
            if o_carrier_id > 0 {
                delivered[usize::from(o_c_id) - 1] += lines.amount;
            }
        }
        if let Some(o) = expected_new.next() {
            return fails(5, format!("in {}, the new order {o} is no order", place()));
        }
        self.customers((w, d), payments, &delivered).await
    }

    /// The lines of each of the orders of a district.
    async fn lines(&self, orders: &[Order], prefix: &[u8]) -> Result<Vec<Lines>> {
        let mut lines = vec![Lines::default(); orders.len()];
        let look =
            |row: &OrderLine| (row.ol_o_id, row.ol_number, row.ol_delivery_d > 0, row.ol_amount);
        let mut at = 0;
        for (o, number, is_delivered, amount) in
            self.each((&self.database.order_line, 0), prefix, look).await?
        {
            while orders.get(at).is_some_and(|order| { order.o_id } < o) {
                at += 1;
            }
            if orders.get(at).is_none_or(|order| { order.o_id } != o) {
                return fails(6, format!("line {number} of an order {o} that is not there"));
            }
            let lines = &mut lines[at];
            lines.count += 1;
            lines.delivered += u32::from(is_delivered);
            lines.amount += amount;
        }
        Ok(lines)
    }

    async fn customers(
        &self,
        (w, d): (u16, u8),
        payments: &Payments,
        delivered: &[i64],
    ) -> Result<()> {
        let look = |row: &Customer| (row.c_id, row.c_balance, row.c_ytd_payment);
        let prefix = district_key(w, d);
        let customers = self.each((&self.database.customer, 0), &prefix, look).await?;
        let first = district_of(w, d) * payments.customers;
        for (c, balance, paid) in customers {
            let place = || format!("customer {c} of district {d} of warehouse {w}");
            let at = usize::from(c) - 1;
            let expected = delivered[at] - payments.by_customers[first + at];
            let what = ("C_BALANCE", "OL_AMOUNT delivered less H_AMOUNT");
            same(10, place, (what.0, balance), (what.1, expected))?;
            let what = ("C_BALANCE + C_YTD_PAYMENT", "OL_AMOUNT delivered");
            same(12, place, (what.0, balance + paid), (what.1, delivered[at]))?;
        }
        Ok(())
    }

    /// Secondary indexes have the rows that primary ones have.
    async fn indexes(&self) -> Result<()> {
        let customer = |row: &Customer| (row.c_w_id, row.c_d_id, row.c_id);
        self.same_rows(&self.database.customer, customer).await?;
        let order = |row: &Order| (row.o_w_id, row.o_d_id, row.o_id);
        self.same_rows(&self.database.orders, order).await
    }

    async fn same_rows<R: Row, T: Ord>(
        &self,
        table: &Arc<Table>,
        look: impl Fn(&R) -> T,
    ) -> Result<()> {
        let mut by_primary = self.each((table, 0), &[], &look).await?;
        let mut by_secondary = self.each((table, 1), &[], &look).await?;
        by_primary.sort_unstable();
        by_secondary.sort_unstable();
        if by_primary == by_secondary {
            return Ok(());
        }
        let (rows, others) = (by_primary.len(), by_secondary.len());
        let table = R::TABLE;
        fails(0, format!("the indexes of {table} lead to {rows} and {others} rows, not the same"))
    }
}
