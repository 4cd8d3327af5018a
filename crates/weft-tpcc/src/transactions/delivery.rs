//! Delivery (clause 2.7.4): the oldest new order of each district of a warehouse is delivered, in one transaction.

use std::ops::ControlFlow;

use weft_index::{Direction, Mode};
use weft_txn::Transaction;

use super::{alter, alter_row, missing, visit};
use crate::database::{DISTRICTS, Database};
use crate::error::Result;
use crate::rows::{Customer, NewOrder, Order, OrderLine, customer_key, district_key, order_key};

pub(crate) async fn run<M: Mode>(
    database: &Database,
    transaction: &mut Transaction<'_, M>,
    w: u16,
    carrier: u8,
    now: u64,
) -> Result<()> {
    let mut lines = Vec::new();
    for d in 1..=DISTRICTS {
        let mut oldest = None;
        let each = |row, new_order: &NewOrder| {
            oldest = Some((row, new_order.no_o_id));
            ControlFlow::Break(())
        };
        let prefix = district_key(w, d);
        visit(transaction, (&database.new_order, 0), &prefix, Direction::Forwards, each).await?;
        // A district may have none.
        let Some((row, o)) = oldest else { continue };
        if !transaction.remove_row(&database.new_order, row).await? {
            return Err(missing::<NewOrder>((w, d, o)));
        }
        let mut c = 0;
        let deliver = |order: &mut Order| {
            order.o_carrier_id = carrier;
            c = order.o_c_id;
        };
        alter(transaction, &database.orders, &order_key(w, d, o), deliver).await?;
        let mut amount = 0;
        lines.clear();
        let each = |row, line: &OrderLine| {
            lines.push(row);
            amount += line.ol_amount;
            ControlFlow::Continue(())
        };
        let prefix = order_key(w, d, o);
        visit(transaction, (&database.order_line, 0), &prefix, Direction::Forwards, each).await?;
        for &line in &lines {
            let deliver = |line: &mut OrderLine| line.ol_delivery_d = now;
            alter_row(transaction, &database.order_line, line, deliver).await?;
        }
        let deliver = |customer: &mut Customer| {
            customer.c_balance += amount;
            customer.c_delivery_cnt += 1;
        };
        alter(transaction, &database.customer, &customer_key(w, d, c), deliver).await?;
    }
    Ok(())
}
