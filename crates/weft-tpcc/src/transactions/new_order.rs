//! New-Order (clause 2.4.2): an order of 5 to 15 items, out of stock.

use std::hint::black_box;

use weft_index::Mode;
use weft_txn::Transaction;

use super::{Outcome, WIDTH, alter, alter_row, missing, see};
use crate::database::Database;
use crate::error::Result;
use crate::inputs::{self, LINES_MAX};
use crate::random::is_original;
use crate::rows::{
    Customer, District, Item, NewOrder, Order, OrderLine, Stock, Warehouse, customer_key,
    district_key, item_key, row, stock_key, warehouse_key,
};

/// What an order needs to know of an item.
#[derive(Clone, Copy, Default)]
struct Price {
    cents: i64,
    is_original: bool,
}

impl From<&Item> for Price {
    fn from(item: &Item) -> Price {
        Price { cents: item.i_price, is_original: is_original(&{ item.i_data }) }
    }
}

pub(crate) async fn run<M: Mode>(
    database: &Database,
    transaction: &mut Transaction<'_, M>,
    order: &inputs::Order,
    is_multi_key: bool,
) -> Result<Outcome> {
    let inputs::Order { w, d, c, now, .. } = *order;
    let lines = &order.lines[..order.count];
    let tax = |warehouse: &Warehouse| warehouse.w_tax;
    let w_tax = see!(Warehouse: transaction, &database.warehouse, &warehouse_key(w), tax)?;
    let (mut o, mut d_tax) = (0, 0);
    let take_number = |district: &mut District| {
        (o, d_tax) = (district.d_next_o_id, district.d_tax);
        district.d_next_o_id += 1;
    };
    alter(transaction, &database.district, &district_key(w, d), take_number).await?;
    let discount = |customer: &Customer| customer.c_discount;
    let discount =
        see!(Customer: transaction, &database.customer, &customer_key(w, d, c), discount)?;
    let order = Order {
        o_w_id: w,
        o_d_id: d,
        o_id: o,
        o_c_id: c,
        o_entry_d: now,
        o_carrier_id: 0,
        o_ol_cnt: lines.len() as u8,
        o_all_local: u8::from(lines.iter().all(|line| line.supply_w == w)),
    };
    transaction.insert(&database.orders, bytemuck::bytes_of(&order)).await?;
    let new_order = NewOrder { no_w_id: w, no_d_id: d, no_o_id: o };
    transaction.insert(&database.new_order, bytemuck::bytes_of(&new_order)).await?;

    let mut prices = [None; LINES_MAX];
    let mut stocks = [None; LINES_MAX];
    if is_multi_key {
        look_up(database, transaction, lines, &mut prices, &mut stocks).await?;
    }
    let mut total = 0;
    for (at, line) in lines.iter().enumerate() {
        let price = match prices[at] {
            Some(price) => price,
            None => match transaction.get(&database.item, &item_key(line.item)).await? {
                Some(bytes) => Price::from(row::<Item>(&bytes)),
                None => return Ok(Outcome::Refused),
            },
        };
        let quantity = i16::from(line.quantity);
        let mut dist_info = [0; 24];
        let mut is_brand = false;
        let take = |stock: &mut Stock| {
            let left = stock.s_quantity - quantity;
            stock.s_quantity = if left >= 10 { left } else { left + 91 };
            stock.s_ytd += u32::from(line.quantity);
            stock.s_order_cnt = stock.s_order_cnt.wrapping_add(1);
            stock.s_remote_cnt = stock.s_remote_cnt.wrapping_add(u16::from(line.supply_w != w));
            dist_info = stock.s_dist[usize::from(d) - 1];
            is_brand = price.is_original && is_original(&{ stock.s_data });
        };
        match stocks[at] {
            Some(id) => alter_row(transaction, &database.stock, id, take).await?,
            None => {
                let key = stock_key(line.supply_w, line.item);
                alter(transaction, &database.stock, &key, take).await?;
            }
        }
        let amount = i64::from(line.quantity) * price.cents;
        total += amount;
        let order_line = OrderLine {
            ol_w_id: w,
            ol_d_id: d,
            ol_o_id: o,
            ol_number: at as u8 + 1,
            ol_i_id: line.item,
            ol_supply_w_id: line.supply_w,
            ol_delivery_d: 0,
            ol_quantity: line.quantity,
            ol_amount: amount,
            ol_dist_info: dist_info,
        };
        transaction.insert(&database.order_line, bytemuck::bytes_of(&order_line)).await?;
        black_box(is_brand);
    }
    let discounted = total * i64::from(10_000 - discount) / 10_000;
    black_box(discounted * i64::from(10_000 + w_tax + d_tax) / 10_000);
    Ok(Outcome::Done)
}

/// Looks up all items of an order, and their stock, at a time. An item that is not there leaves its place empty.
async fn look_up<M: Mode>(
    database: &Database,
    transaction: &Transaction<'_, M>,
    lines: &[inputs::Line],
    prices: &mut [Option<Price>; LINES_MAX],
    stocks: &mut [Option<u64>; LINES_MAX],
) -> Result<()> {
    let items = lines.iter().map(|line| item_key(line.item));
    let items: Vec<_> = items.collect();
    let found = transaction.multi_get(&database.item, &items, WIDTH).await?;
    for (price, found) in prices.iter_mut().zip(found) {
        *price = found.map(|bytes| Price::from(row::<Item>(&bytes)));
    }
    let keys = lines.iter().zip(prices.iter()).filter(|(_, price)| price.is_some());
    let keys: Vec<_> = keys.map(|(line, _)| stock_key(line.supply_w, line.item)).collect();
    let found = transaction.multi_find(&database.stock, &keys, WIDTH).await?;
    let places = stocks.iter_mut().zip(prices).filter(|(_, price)| price.is_some());
    for (((stock, _), found), key) in places.zip(found).zip(&keys) {
        *stock = Some(found.ok_or_else(|| missing::<Stock>(key))?);
    }
    Ok(())
}
