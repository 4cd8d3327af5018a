//! Order-Status (clause 2.6.2): the last order of a customer, with its lines.

use std::hint::black_box;
use std::ops::ControlFlow;

use weft_index::{Direction, Mode};
use weft_txn::Transaction;

use super::{customer, missing, visit};
use crate::database::Database;
use crate::error::Result;
use crate::inputs::Whom;
use crate::rows::{Order, OrderLine, order_key, orders_of};

pub(crate) async fn run<M: Mode>(
    database: &Database,
    transaction: &Transaction<'_, M>,
    (w, d): (u16, u8),
    whom: Whom,
) -> Result<()> {
    let (c, balance) = customer(database, transaction, (w, d), whom, |customer| {
        (customer.c_id, customer.c_balance)
    })
    .await?;
    black_box(balance);
    let mut last = None;
    let each = |_, order: &Order| {
        last = Some(*order);
        ControlFlow::Break(())
    };
    let prefix = orders_of(w, d, c);
    visit(transaction, (&database.orders, 1), &prefix, Direction::Backwards, each).await?;
    let last = last.ok_or_else(|| missing::<Order>(prefix))?;
    let mut lines = 0;
    let each = |_, line: &OrderLine| {
        black_box((line.ol_i_id, line.ol_supply_w_id, line.ol_quantity));
        black_box((line.ol_amount, line.ol_delivery_d));
        lines += 1;
        ControlFlow::Continue(())
    };
    let prefix = order_key(w, d, last.o_id);
    visit(transaction, (&database.order_line, 0), &prefix, Direction::Forwards, each).await?;
    if lines != last.o_ol_cnt {
        return Err(missing::<OrderLine>((w, d, { last.o_id }, lines)));
    }
    Ok(())
}
