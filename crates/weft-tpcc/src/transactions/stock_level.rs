//! Stock-Level (clause 2.8.2): how many items of the last 20 orders of a district are short in stock.

use std::hint::black_box;
use std::ops::ControlFlow;

use weft_index::{Direction, Mode};
use weft_txn::Transaction;

use super::{WIDTH, missing, see};
use crate::database::Database;
use crate::error::Result;
use crate::rows::{District, OrderLine, Stock, district_key, order_key, row, stock_key};

/// Orders that are looked at.
const ORDERS: u32 = 20;

pub(crate) async fn run<M: Mode>(
    database: &Database,
    transaction: &Transaction<'_, M>,
    (w, d): (u16, u8),
    threshold: i16,
    is_multi_key: bool,
) -> Result<()> {
    let next = |district: &District| district.d_next_o_id;
    let next = see!(District: transaction, &database.district, &district_key(w, d), next)?;
    let mut items = Vec::new();
    let each = |_, bytes: &[u8]| {
        items.push(row::<OrderLine>(bytes).ol_i_id);
        ControlFlow::Continue(())
    };
    let (low, high) = (order_key(w, d, next.saturating_sub(ORDERS)), order_key(w, d, next));
    let bounds = (Some(&low[..]), Some(&high[..]));
    let (table, forwards) = (&database.order_line, Direction::Forwards);
    transaction.scan(table, 0, bounds.0, bounds.1, forwards, each).await?;
    items.sort_unstable();
    items.dedup();
    let mut short = 0;
    if is_multi_key {
        let keys: Vec<_> = items.iter().map(|&item| stock_key(w, item)).collect();
        let found = transaction.multi_get(&database.stock, &keys, WIDTH).await?;
        for (bytes, key) in found.into_iter().zip(&keys) {
            let bytes = bytes.ok_or_else(|| missing::<Stock>(key))?;
            short += u32::from(row::<Stock>(&bytes).s_quantity < threshold);
        }
    } else {
        for item in items {
            let is_short = |stock: &Stock| stock.s_quantity < threshold;
            let key = stock_key(w, item);
            short += u32::from(see!(Stock: transaction, &database.stock, &key, is_short)?);
        }
    }
    black_box(short);
    Ok(())
}
