//! The rows of the nine tables of TPC-C, and of the three that Q2* adds, with their keys.
//!
//! Rows are plain bytes, fields at fixed places without gaps: a field is read where it lies. Amounts of money are cents, rates are
//! ten-thousandths, times are microseconds since the run began; 0 stands for NULL in `o_carrier_id` and `ol_delivery_d`. Strings
//! have their greatest length, filled up with zeros. Keys are the fields of the primary keys as big-endian numbers, of as many bytes
//! as the values need: short keys have most of their comparisons decided by what a node of the index has beside each other.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use weft_txn::RowKeys;

/// Bytes of a last or first name.
pub(crate) const NAME_BYTES: usize = 16;

/// A name.
pub(crate) type Name = [u8; NAME_BYTES];

/// A string of 50 bytes.
pub(crate) type Text50 = [[u8; 25]; 2];

/// Name, streets, city, state and zip code of a warehouse, a district or a supplier.
#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Address {
    pub(crate) street_1: [u8; 20],
    pub(crate) street_2: [u8; 20],
    pub(crate) city: [u8; 20],
    pub(crate) state: [u8; 2],
    pub(crate) zip: [u8; 9],
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Warehouse {
    pub(crate) w_id: u16,
    pub(crate) w_tax: u32,
    pub(crate) w_ytd: i64,
    pub(crate) w_name: [u8; 10],
    pub(crate) w_address: Address,
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct District {
    pub(crate) d_w_id: u16,
    pub(crate) d_id: u8,
    pub(crate) d_tax: u32,
    pub(crate) d_ytd: i64,
    pub(crate) d_next_o_id: u32,
    pub(crate) d_name: [u8; 10],
    pub(crate) d_address: Address,
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Customer {
    pub(crate) c_w_id: u16,
    pub(crate) c_d_id: u8,
    pub(crate) c_id: u16,
    pub(crate) c_balance: i64,
    pub(crate) c_ytd_payment: i64,
    pub(crate) c_payment_cnt: u32,
    pub(crate) c_delivery_cnt: u32,
    pub(crate) c_discount: u32,
    pub(crate) c_credit: [u8; 2],
    pub(crate) c_last: Name,
    pub(crate) c_first: Name,
    pub(crate) c_middle: [u8; 2],
    pub(crate) c_credit_lim: i64,
    pub(crate) c_since: u64,
    pub(crate) c_phone: [u8; 16],
    pub(crate) c_address: Address,
    pub(crate) c_data: [[u8; 25]; 20],
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct History {
    pub(crate) h_c_w_id: u16,
    pub(crate) h_c_d_id: u8,
    pub(crate) h_c_id: u16,
    pub(crate) h_w_id: u16,
    pub(crate) h_d_id: u8,
    pub(crate) h_date: u64,
    pub(crate) h_amount: i64,
    pub(crate) h_data: [u8; 24],
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct NewOrder {
    pub(crate) no_w_id: u16,
    pub(crate) no_d_id: u8,
    pub(crate) no_o_id: u32,
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Order {
    pub(crate) o_w_id: u16,
    pub(crate) o_d_id: u8,
    pub(crate) o_id: u32,
    pub(crate) o_c_id: u16,
    pub(crate) o_entry_d: u64,
    pub(crate) o_carrier_id: u8,
    pub(crate) o_ol_cnt: u8,
    pub(crate) o_all_local: u8,
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct OrderLine {
    pub(crate) ol_w_id: u16,
    pub(crate) ol_d_id: u8,
    pub(crate) ol_o_id: u32,
    pub(crate) ol_number: u8,
    pub(crate) ol_i_id: u32,
    pub(crate) ol_supply_w_id: u16,
    pub(crate) ol_delivery_d: u64,
    pub(crate) ol_quantity: u8,
    pub(crate) ol_amount: i64,
    pub(crate) ol_dist_info: [u8; 24],
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Item {
    pub(crate) i_id: u32,
    pub(crate) i_im_id: u32,
    pub(crate) i_price: i64,
    pub(crate) i_name: [u8; 24],
    pub(crate) i_data: Text50,
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Stock {
    pub(crate) s_w_id: u16,
    pub(crate) s_i_id: u32,
    pub(crate) s_quantity: i16,
    pub(crate) s_ytd: u32,
    pub(crate) s_order_cnt: u16,
    pub(crate) s_remote_cnt: u16,
    pub(crate) s_dist: [[u8; 24]; 10],
    pub(crate) s_data: Text50,
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Region {
    pub(crate) r_regionkey: u8,
    pub(crate) r_name: [u8; 25],
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Nation {
    pub(crate) n_nationkey: u8,
    pub(crate) n_regionkey: u8,
    pub(crate) n_name: [u8; 25],
}

#[repr(C, packed)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Supplier {
    pub(crate) su_suppkey: u32,
    pub(crate) su_nationkey: u8,
    pub(crate) su_acctbal: i64,
    pub(crate) su_name: [u8; 25],
    pub(crate) su_address: Address,
    pub(crate) su_phone: [u8; 15],
}

/// The row that bytes are.
///
/// # Panics
/// If they are of another length.
#[inline]
pub(crate) fn row<R: Pod>(bytes: &[u8]) -> &R {
    bytemuck::from_bytes(bytes)
}

/// Appends the bytes of a row with its changes to `changed`.
#[inline]
pub(crate) fn change<R: Pod>(bytes: &[u8], changed: &mut Vec<u8>, change: impl FnOnce(&mut R)) {
    let start = changed.len();
    changed.extend_from_slice(bytes);
    change(bytemuck::from_bytes_mut(&mut changed[start..]));
}

/// A table of such rows.
pub(crate) trait Row: Pod + Send + Sync {
    /// Its name.
    const TABLE: &'static str;
    /// Its id in the engine and the log.
    const ID: u32;
    /// Whether it has a primary index.
    const IS_KEYED: bool = true;
    /// Secondary indexes.
    const SECONDARY: usize = 0;

    /// Appends the key in an index.
    fn append_key(&self, index: usize, key: &mut Vec<u8>);
}

/// Makes the keys of rows of a kind.
pub(crate) struct KeysOf<R>(PhantomData<fn() -> R>);

impl<R> KeysOf<R> {
    pub(crate) fn new() -> KeysOf<R> {
        KeysOf(PhantomData)
    }
}

impl<R: Row> RowKeys for KeysOf<R> {
    fn append_key(&self, index: usize, bytes: &[u8], key: &mut Vec<u8>) {
        row::<R>(bytes).append_key(index, key);
    }
}

/// Puts big-endian bytes of numbers one behind the other.
macro_rules! joined {
    ($len:literal, $($part:expr),+) => {{
        let mut key = [0; $len];
        let mut at = 0;
        $(
            let part = $part;
            key[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
        )+
        debug_assert_eq!(at, $len);
        key
    }};
}

/// Numbers below 2^24.
fn three_bytes(number: u32) -> [u8; 3] {
    let [high, rest @ ..] = number.to_be_bytes();
    assert_eq!(high, 0, "{number} does not fit in three bytes of a key");
    rest
}

pub(crate) fn warehouse_key(w: u16) -> [u8; 2] {
    w.to_be_bytes()
}

pub(crate) fn district_key(w: u16, d: u8) -> [u8; 3] {
    joined!(3, w.to_be_bytes(), [d])
}

pub(crate) fn customer_key(w: u16, d: u8, c: u16) -> [u8; 5] {
    joined!(5, w.to_be_bytes(), [d], c.to_be_bytes())
}

/// What the keys of customers of a last name begin with in the index on names.
pub(crate) fn customers_named(w: u16, d: u8, last: &Name) -> [u8; 19] {
    joined!(19, w.to_be_bytes(), [d], *last)
}

/// The key of an order, and of the entry for it in the table of new orders.
pub(crate) fn order_key(w: u16, d: u8, o: u32) -> [u8; 7] {
    joined!(7, w.to_be_bytes(), [d], o.to_be_bytes())
}

/// What the keys of the orders of a customer begin with in the index on customers.
pub(crate) fn orders_of(w: u16, d: u8, c: u16) -> [u8; 5] {
    customer_key(w, d, c)
}

pub(crate) fn order_line_key(w: u16, d: u8, o: u32, number: u8) -> [u8; 8] {
    joined!(8, w.to_be_bytes(), [d], o.to_be_bytes(), [number])
}

pub(crate) fn item_key(i: u32) -> [u8; 3] {
    three_bytes(i)
}

pub(crate) fn stock_key(w: u16, i: u32) -> [u8; 5] {
    joined!(5, w.to_be_bytes(), three_bytes(i))
}

pub(crate) fn supplier_key(su: u32) -> [u8; 3] {
    three_bytes(su)
}

impl Row for Warehouse {
    const TABLE: &'static str = "warehouse";
    const ID: u32 = 1;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&warehouse_key(self.w_id));
    }
}

impl Row for District {
    const TABLE: &'static str = "district";
    const ID: u32 = 2;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&district_key(self.d_w_id, self.d_id));
    }
}

impl Row for Customer {
    const TABLE: &'static str = "customer";
    const ID: u32 = 3;
    const SECONDARY: usize = 1;

    fn append_key(&self, index: usize, key: &mut Vec<u8>) {
        if index == 0 {
            key.extend_from_slice(&customer_key(self.c_w_id, self.c_d_id, self.c_id));
        } else {
            let (last, first) = (self.c_last, self.c_first);
            key.extend_from_slice(&customers_named(self.c_w_id, self.c_d_id, &last));
            key.extend_from_slice(&first);
        }
    }
}

impl Row for History {
    const TABLE: &'static str = "history";
    const ID: u32 = 4;
    const IS_KEYED: bool = false;

    fn append_key(&self, _: usize, _: &mut Vec<u8>) {}
}

impl Row for NewOrder {
    const TABLE: &'static str = "new_order";
    const ID: u32 = 5;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&order_key(self.no_w_id, self.no_d_id, self.no_o_id));
    }
}

impl Row for Order {
    const TABLE: &'static str = "orders";
    const ID: u32 = 6;
    const SECONDARY: usize = 1;

    fn append_key(&self, index: usize, key: &mut Vec<u8>) {
        let o = self.o_id;
        if index == 0 {
            key.extend_from_slice(&order_key(self.o_w_id, self.o_d_id, o));
        } else {
            key.extend_from_slice(&orders_of(self.o_w_id, self.o_d_id, self.o_c_id));
            key.extend_from_slice(&o.to_be_bytes());
        }
    }
}

impl Row for OrderLine {
    const TABLE: &'static str = "order_line";
    const ID: u32 = 7;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        let (w, d, o) = (self.ol_w_id, self.ol_d_id, self.ol_o_id);
        key.extend_from_slice(&order_line_key(w, d, o, self.ol_number));
    }
}

impl Row for Item {
    const TABLE: &'static str = "item";
    const ID: u32 = 8;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&item_key(self.i_id));
    }
}

impl Row for Stock {
    const TABLE: &'static str = "stock";
    const ID: u32 = 9;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&stock_key(self.s_w_id, self.s_i_id));
    }
}

impl Row for Region {
    const TABLE: &'static str = "region";
    const ID: u32 = 10;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.push(self.r_regionkey);
    }
}

impl Row for Nation {
    const TABLE: &'static str = "nation";
    const ID: u32 = 11;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.push(self.n_nationkey);
    }
}

impl Row for Supplier {
    const TABLE: &'static str = "supplier";
    const ID: u32 = 12;

    fn append_key(&self, _: usize, key: &mut Vec<u8>) {
        key.extend_from_slice(&supplier_key(self.su_suppkey));
    }
}
