//! What terminals enter: the inputs of transactions (clauses 2.4.1 to 2.8.1), drawn before a transaction begins, so that one that is
//! run again has the same.

use crate::database::{DISTRICTS, Database};
use crate::random;
use crate::rows::Name;
use crate::variant::Workload;

/// Most lines of an order.
pub(crate) const LINES_MAX: usize = 15;
/// The number of an item that is not there.
pub(crate) const UNUSED_ITEM: u32 = 0;

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A customer orders some items.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer asks for the last order.
    OrderStatus,
    /// The oldest order of each district is delivered.
    Delivery,
    /// Items of the last orders of which there is little in stock.
    StockLevel,
    /// Q2*: the least stock of each supplier of a region, which grows if it is small.
    Query2,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [
        Kind::NewOrder,
        Kind::Payment,
        Kind::OrderStatus,
        Kind::Delivery,
        Kind::StockLevel,
        Kind::Query2,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new-order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order-status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock-level",
            Kind::Query2 => "query2",
        }
    }
}

/// Who a customer is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    Number(u16),
    /// Of several of a last name the one in the middle.
    Named(Name),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) item: u32,
    pub(crate) supply_w: u16,
    pub(crate) quantity: u8,
}

/// A new order.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) w: u16,
    pub(crate) d: u8,
    pub(crate) c: u16,
    pub(crate) count: usize,
    pub(crate) lines: [Line; LINES_MAX],
    pub(crate) now: u64,
}

/// A payment at a district by a customer of perhaps another one.
#[derive(Clone, Debug)]
pub(crate) struct Pay {
    pub(crate) w: u16,
    pub(crate) d: u8,
    pub(crate) customer_w: u16,
    pub(crate) customer_d: u8,
    pub(crate) whom: Whom,
    pub(crate) amount: i64,
    pub(crate) now: u64,
}

/// The input of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    NewOrder(Box<Order>),
    Payment(Box<Pay>),
    OrderStatus { w: u16, d: u8, whom: Whom },
    Delivery { w: u16, carrier: u8, now: u64 },
    StockLevel { w: u16, d: u8, threshold: i16 },
    Query2 { region: u8 },
}

impl Database {
    /// Draws a transaction; `now` is what it takes for the time.
    pub(crate) fn draw(
        &self,
        workload: Workload,
        random: &mut fastrand::Rng,
        now: u64,
    ) -> (Kind, Input) {
        let mut left = random.u32(..100);
        let mut kind = Kind::NewOrder;
        for &(of, percent) in workload.mix() {
            kind = of;
            if left < percent {
                break;
            }
            left -= percent;
        }
        (kind, self.input(kind, random, now))
    }

    /// Draws the input of a transaction of a kind.
    pub(crate) fn input(&self, kind: Kind, random: &mut fastrand::Rng, now: u64) -> Input {
        let w = random.u16(1..=self.scale.warehouses);
        let d = random.u8(1..=DISTRICTS);
        match kind {
            Kind::NewOrder => Input::NewOrder(Box::new(self.order(random, w, d, now))),
            Kind::Payment => {
                let is_remote = self.scale.warehouses > 1 && random.u8(..100) < 15;
                let (customer_w, customer_d) = match is_remote {
                    true => (self.other_warehouse(random, w), random.u8(1..=DISTRICTS)),
                    false => (w, d),
                };
                let (whom, amount) = (self.whom(random), random.i64(100..=500_000));
                Input::Payment(Box::new(Pay { w, d, customer_w, customer_d, whom, amount, now }))
            }
            Kind::OrderStatus => Input::OrderStatus { w, d, whom: self.whom(random) },
            Kind::Delivery => Input::Delivery { w, carrier: random.u8(1..=10), now },
            Kind::StockLevel => Input::StockLevel { w, d, threshold: random.i16(10..=20) },
            Kind::Query2 => Input::Query2 { region: random.u8(..5) },
        }
    }

    fn other_warehouse(&self, random: &mut fastrand::Rng, w: u16) -> u16 {
        let other = random.u16(1..self.scale.warehouses);
        if other >= w { other + 1 } else { other }
    }

    fn whom(&self, random: &mut fastrand::Rng) -> Whom {
        if random.u8(..100) < 60 {
            let last = self.scale.last_name();
            let number = random::last_of_run(random, &self.constants, last);
            Whom::Named(random::last_name(number))
        } else {
            Whom::Number(random::customer(random, &self.constants, self.scale.customers))
        }
    }

    fn order(&self, random: &mut fastrand::Rng, w: u16, d: u8, now: u64) -> Order {
        let c = random::customer(random, &self.constants, self.scale.customers);
        let count = random.usize(5..=LINES_MAX);
        let mut lines = [Line::default(); LINES_MAX];
        for line in &mut lines[..count] {
            let item = random::item(random, &self.constants, self.scale.items);
            let is_remote = self.scale.warehouses > 1 && random.u8(..100) == 0;
            let supply_w = if is_remote { self.other_warehouse(random, w) } else { w };
            *line = Line { item, supply_w, quantity: random.u8(1..=10) };
        }
        // One of a hundred orders names an item that is not there, and is rolled back.
        if random.u8(..100) == 0 {
            lines[count - 1].item = UNUSED_ITEM;
        }
        Order { w, d, c, count, lines, now }
    }
}
