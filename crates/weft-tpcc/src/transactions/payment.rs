//! Payment (clause 2.5.2): a customer, found by number or by last name, pays at a district.

use weft_index::Mode;
use weft_txn::Transaction;

use super::{alter, customer};
use crate::database::Database;
use crate::error::Result;
use crate::inputs::{Pay, Whom};
use crate::rows::{
    Customer, District, History, Warehouse, customer_key, district_key, warehouse_key,
};

pub(crate) async fn run<M: Mode>(
    database: &Database,
    transaction: &mut Transaction<'_, M>,
    pay: &Pay,
) -> Result<()> {
    let Pay { w, d, customer_w, customer_d, whom, amount, now } = *pay;
    let (mut w_name, mut d_name) = ([0; 10], [0; 10]);
    let paid_to_warehouse = |warehouse: &mut Warehouse| {
        warehouse.w_ytd += amount;
        w_name = warehouse.w_name;
    };
    alter(transaction, &database.warehouse, &warehouse_key(w), paid_to_warehouse).await?;
    let paid_to_district = |district: &mut District| {
        district.d_ytd += amount;
        d_name = district.d_name;
    };
    alter(transaction, &database.district, &district_key(w, d), paid_to_district).await?;
    let c = match whom {
        Whom::Number(c) => c,
        Whom::Named(_) => {
            let of = (customer_w, customer_d);
            customer(database, transaction, of, whom, |customer| customer.c_id).await?
        }
    };
    let paid = |customer: &mut Customer| {
        customer.c_balance -= amount;
        customer.c_ytd_payment += amount;
        customer.c_payment_cnt += 1;
        if customer.c_credit == *b"BC" {
            note_payment(customer, pay);
        }
    };
    let key = customer_key(customer_w, customer_d, c);
    alter(transaction, &database.customer, &key, paid).await?;
    let mut h_data = [b' '; 24];
    h_data[..10].copy_from_slice(&w_name);
    h_data[14..].copy_from_slice(&d_name);
    let history = History {
        h_c_w_id: customer_w,
        h_c_d_id: customer_d,
        h_c_id: c,
        h_w_id: w,
        h_d_id: d,
        h_date: now,
        h_amount: amount,
        h_data,
    };
    transaction.insert(&database.history, bytemuck::bytes_of(&history)).await?;
    Ok(())
}

/// Puts what was paid in front of what is known of a customer of bad credit.
fn note_payment(customer: &mut Customer, pay: &Pay) {
    let Customer { c_id, c_d_id, c_w_id, .. } = *customer;
    let Pay { d, w, amount, .. } = *pay;
    let note = format!("{c_id} {c_d_id} {c_w_id} {d} {w} {amount}|");
    let data = customer.c_data.as_flattened_mut();
    let len = data.len();
    data.copy_within(..len - note.len(), note.len());
    data[..note.len()].copy_from_slice(note.as_bytes());
}
