//! Q2*: of each supplier of a region the stock of which there is least; where that is little, it grows.
//!
//! This is the second query of the CH-benCHmark as ERMIA has it, which CoroBase measures: a supplier has the stock of which the
//! warehouse times the item is the supplier's number, modulo 10,000; what of it is least, and whose item has no `b` in its data, is
//! filled up by 50 if it is below 15. Its size grows with the suppliers that it looks at and with the warehouses.

use std::ops::ControlFlow;

use weft_index::{Direction, Mode};
use weft_txn::Transaction;

use super::{WIDTH, alter, missing, see, visit};
use crate::database::{Database, SUPPLIERS};
use crate::error::Result;
use crate::rows::{Item, Nation, Stock, Supplier, item_key, row, stock_key, supplier_key};

/// Less stock than this is filled up, by so much.
const LITTLE: i16 = 15;
const FILL: i16 = 50;

/// Where the stock of a supplier lies: warehouses and items.
pub(super) fn stock_of(supplier: u32, database: &Database) -> impl Iterator<Item = (u16, u32)> {
    let (warehouses, items) = (database.scale.warehouses, database.scale.items);
    (1..=warehouses).flat_map(move |w| {
        // The items i with w * i = supplier (mod SUPPLIERS), if there are any: every step-th from the first.
        let (factor, inverse) = gcd_and_inverse(u32::from(w) % SUPPLIERS, SUPPLIERS);
        let step = SUPPLIERS / factor;
        let first = match supplier.is_multiple_of(factor) {
            true => (u64::from(supplier / factor) * u64::from(inverse) % u64::from(step)) as u32,
            false => items + 1,
        };
        (first..=items).step_by(step as usize).filter(|&i| i > 0).map(move |i| (w, i))
    })
}

/// The greatest common divisor g of two numbers, and x with a * x = g (mod b).
fn gcd_and_inverse(a: u32, b: u32) -> (u32, u32) {
    let (mut old, mut new) = ((i64::from(a), 1), (i64::from(b), 0));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    (old.0 as u32, old.1.rem_euclid(i64::from(b)) as u32)
}

pub(crate) async fn run<M: Mode>(
    database: &Database,
    transaction: &mut Transaction<'_, M>,
    region: u8,
    is_multi_key: bool,
) -> Result<()> {
    let mut nations = 0_u32;
    let each = |_, nation: &Nation| {
        nations |= u32::from(nation.n_regionkey == region) << nation.n_nationkey;
        ControlFlow::Continue(())
    };
    visit(transaction, (&database.nation, 0), &[], Direction::Forwards, each).await?;
    for su in 0..database.scale.suppliers {
        let is_wanted = |supplier: &Supplier| nations >> supplier.su_nationkey & 1 == 1;
        let key = supplier_key(su);
        if !see!(Supplier: transaction, &database.supplier, &key, is_wanted)? {
            continue;
        }
        let least = match is_multi_key {
            true => least_at_once(database, transaction, su).await?,
            false => {
                let mut least: Option<(i16, u16, u32)> = None;
                for (w, i) in stock_of(su, database) {
                    let quantity = |stock: &Stock| stock.s_quantity;
                    let key = stock_key(w, i);
                    let quantity = see!(Stock: transaction, &database.stock, &key, quantity)?;
                    if least.is_none_or(|(least, ..)| quantity < least) {
                        least = Some((quantity, w, i));
                    }
                }
                least
            }
        };
        let Some((quantity, w, i)) = least else { continue };
        let is_wanted = |item: &Item| !item.i_data.as_flattened().contains(&b'b');
        let is_wanted = see!(Item: transaction, &database.item, &item_key(i), is_wanted)?;
        if is_wanted && quantity < LITTLE {
            let fill = |stock: &mut Stock| stock.s_quantity += FILL;
            alter(transaction, &database.stock, &stock_key(w, i), fill).await?;
        }
    }
    Ok(())
}

/// The least stock of a supplier, how much, in which warehouse and of which item, with many keys at a time.
async fn least_at_once<M: Mode>(
    database: &Database,
    transaction: &Transaction<'_, M>,
    supplier: u32,
) -> Result<Option<(i16, u16, u32)>> {
    let places: Vec<(u16, u32)> = stock_of(supplier, database).collect();
    let keys: Vec<_> = places.iter().map(|&(w, i)| stock_key(w, i)).collect();
    let found = transaction.multi_get(&database.stock, &keys, WIDTH).await?;
    let mut least: Option<(i16, u16, u32)> = None;
    for ((bytes, key), (w, i)) in found.into_iter().zip(&keys).zip(places) {
        let bytes = bytes.ok_or_else(|| missing::<Stock>(key))?;
        let quantity = row::<Stock>(&bytes).s_quantity;
        if least.is_none_or(|(least, ..)| quantity < least) {
            least = Some((quantity, w, i));
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_are_found() {
        for a in [1, 2, 3, 7, 10, 16, 25, 100, 4999, 9999] {
            let (factor, inverse) = gcd_and_inverse(a, SUPPLIERS);
            assert_eq!((SUPPLIERS % factor, a % factor), (0, 0));
            assert_eq!(u64::from(a) * u64::from(inverse) % u64::from(SUPPLIERS), u64::from(factor));
        }
    }
}
