//! The transactions, each a coroutine over single keys that is the same for every variant (clauses 2.4.2 to 2.8.2, and Q2*).
//!
//! With `is_multi_key` New-Order, Stock-Level and Q2* look many keys up at a time where the paper's *Hybrid* does (section 5.8).

pub(crate) mod delivery;
pub(crate) mod new_order;
pub(crate) mod order_status;
pub(crate) mod payment;
pub(crate) mod query2;
pub(crate) mod stock_level;

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use weft_index::{Boxed, Coroutines, Direction, Mode, after_prefix};
use weft_txn::{Table, Transaction, TransactionOptions};

use crate::database::Database;
use crate::error::{Result, TpccError};
use crate::inputs::{Input, Kind, Whom};
use crate::rows::{Customer, Row, change, customer_key, customers_named, row};

/// Keys that are looked up at a time by what looks many up.
const WIDTH: usize = 16;

/// How a transaction ends that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is to be committed.
    Done,
    /// Its input says that it is to be rolled back.
    Refused,
}

/// What a table lacks.
#[cold]
fn missing<R: Row>(key: impl Debug) -> TpccError {
    TpccError::Missing { table: R::TABLE, key: format!("{key:?}") }
}

/// What a closure sees in the row of a key: `see!(Row: transaction, table, key, look)`. No function, which would be a coroutine between
/// the transaction and the engine, to be gone through each time that the transaction goes on.
macro_rules! see {
    ($row:ty: $transaction:expr, $table:expr, $key:expr, $look:expr) => {
        match $transaction.get($table, $key).await? {
            Some(bytes) => Ok($look($crate::rows::row::<$row>(&bytes))),
            None => Err($crate::transactions::missing::<$row>($key)),
        }
    };
}
use see;

/// Changes the row of a key.
async fn alter<R: Row, M: Mode>(
    transaction: &mut Transaction<'_, M>,
    table: &Arc<Table>,
    key: &[u8],
    mut with: impl FnMut(&mut R),
) -> Result<()> {
    let change = |bytes: &[u8], changed: &mut Vec<u8>| {
        change(bytes, changed, &mut with);
        true
    };
    match transaction.update_with(table, key, change).await? {
        true => Ok(()),
        false => Err(missing::<R>(key)),
    }
}

/// Changes the row with an id.
async fn alter_row<R: Row, M: Mode>(
    transaction: &mut Transaction<'_, M>,
    table: &Arc<Table>,
    row: u64,
    mut with: impl FnMut(&mut R),
) -> Result<()> {
    let change = |bytes: &[u8], changed: &mut Vec<u8>| {
        change(bytes, changed, &mut with);
        true
    };
    match transaction.update_row(table, row, change).await? {
        true => Ok(()),
        false => Err(missing::<R>(row)),
    }
}

/// Gives rows to `visit` whose keys in an index begin with `prefix`, until it breaks off.
async fn visit<R: Row, M: Mode>(
    transaction: &Transaction<'_, M>,
    (table, index): (&Arc<Table>, usize),
    prefix: &[u8],
    direction: Direction,
    mut visit: impl FnMut(u64, &R) -> ControlFlow<()>,
) -> Result<u64> {
    let high = after_prefix(prefix);
    let each = |id, bytes: &[u8]| visit(id, row(bytes));
    let scan = transaction.scan(table, index, Some(prefix), high.as_deref(), direction, each);
    Ok(scan.await?)
}

/// The id and the number of a customer, and what `look` sees of it.
async fn customer<M: Mode, T>(
    database: &Database,
    transaction: &Transaction<'_, M>,
    (w, d): (u16, u8),
    whom: Whom,
    look: impl Fn(&Customer) -> T,
) -> Result<T> {
    let name = match whom {
        Whom::Number(c) => {
            let key = customer_key(w, d, c);
            return see!(Customer: transaction, &database.customer, &key, look);
        }
        Whom::Named(name) => name,
    };
    let prefix = customers_named(w, d, &name);
    let mut found = Vec::new();
    let each = |_, customer: &Customer| {
        found.push(look(customer));
        ControlFlow::Continue(())
    };
    visit(transaction, (&database.customer, 1), &prefix, Direction::Forwards, each).await?;
    // The one at n/2, rounded up, of n in the order of first names.
    match found.len() {
        0 => Err(missing::<Customer>(prefix)),
        count => Ok(found.swap_remove(count.div_ceil(2) - 1)),
    }
}

/// Bytes of the coroutines of the transactions, as they lie in a batch.
#[derive(Clone, Copy, Debug)]
pub struct FrameBytes {
    /// The kind of transaction.
    pub kind: Kind,
    /// With calls flattened into it: CoroBase.
    pub flat: usize,
    /// With a box of its own for each nested call: CoroBase-FN. The boxes come on top.
    pub boxed: usize,
}

/// An operation of the engine, and the bytes of its coroutine: flat, and boxed.
pub type OperationBytes = (&'static str, usize, usize);

/// Bytes of the coroutines of each kind of transaction, and those of the engine's operations (section 5.10) by name: flat, and boxed.
///
/// # Errors
/// [`TpccError`] if the engine runs too many transactions.
pub fn frame_bytes(
    database: &Database,
) -> std::result::Result<(Vec<FrameBytes>, Vec<OperationBytes>), TpccError> {
    let mut random = fastrand::Rng::with_seed(0);
    let inputs: Vec<(Kind, Input)> =
        Kind::ALL.into_iter().map(|kind| (kind, database.input(kind, &mut random, 0))).collect();
    let flat = frames_in(database, &inputs, Coroutines)?;
    let boxed = frames_in(database, &inputs, Boxed(Coroutines))?;
    let kinds = Kind::ALL.into_iter().zip(flat.0.iter().zip(&boxed.0));
    let kinds = kinds.map(|(kind, (&flat, &boxed))| FrameBytes { kind, flat, boxed }).collect();
    let operations = flat.1.into_iter().zip(boxed.1);
    let operations = operations.map(|((name, flat), (_, boxed))| (name, flat, boxed)).collect();
    Ok((kinds, operations))
}

/// Bytes of the coroutines of transactions and of operations, in a mode.
type Frames = (Vec<usize>, Vec<(&'static str, usize)>);

fn frames_in<M: Mode>(database: &Database, inputs: &[(Kind, Input)], mode: M) -> Result<Frames> {
    let mut context = database.engine.context()?;
    let mut transaction = context.begin_in(mode, TransactionOptions::default());
    let transactions = inputs
        .iter()
        .map(|(_, input)| match input {
            Input::NewOrder(order) => {
                size_of_val(&new_order::run(database, &mut transaction, order, false))
            }
            Input::Payment(pay) => size_of_val(&payment::run(database, &mut transaction, pay)),
            Input::OrderStatus { w, d, whom } => {
                size_of_val(&order_status::run(database, &transaction, (*w, *d), *whom))
            }
            Input::Delivery { w, carrier, now } => {
                size_of_val(&delivery::run(database, &mut transaction, *w, *carrier, *now))
            }
            Input::StockLevel { w, d, threshold } => {
                let of = (*w, *d);
                size_of_val(&stock_level::run(database, &transaction, of, *threshold, false))
            }
            Input::Query2 { region } => {
                size_of_val(&query2::run(database, &mut transaction, *region, false))
            }
        })
        .collect();
    let table = &database.item;
    let read = size_of_val(&transaction.get(table, &[0; 3]));
    let update = size_of_val(&transaction.update(table, &[0; 3], &[0; 3]));
    let insert = size_of_val(&transaction.insert(table, &[0; 3]));
    Ok((transactions, vec![("read", read), ("update", update), ("insert", insert)]))
}
