//! Tickets: queries that GetFlightInfo has described, and whose rows DoGet computes. A ticket is taken once.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use tonic::{Code, Status};

use super::error::with_sqlstate;
use super::prepared::Statement;

/// Tickets of a client at a time, at most: the oldest makes way for another.
const TICKETS_MAX: usize = 1000;

/// Bytes of the texts, and of the rows of parameters, of a client's tickets, at most.
const TICKET_BYTES_MAX: usize = 80 << 20;

/// The longest text of a statement, in bytes.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// A query whose rows are not asked for yet.
pub(super) struct Query {
    pub(super) statement: Statement,
    /// The columns that its client was told of.
    pub(super) columns: SchemaRef,
}

/// The tickets of one session, by the numbers of their handles: the oldest has the least.
#[derive(Default)]
pub(super) struct Tickets {
    by_number: BTreeMap<u64, Query>,
    bytes: usize,
}

impl Tickets {
    /// Adds a ticket, for which the oldest ones make way.
    pub(super) fn add(&mut self, number: u64, query: Query) {
        self.bytes += query.statement.bytes();
        self.by_number.insert(number, query);
        while self.by_number.len() > TICKETS_MAX
            || self.bytes > TICKET_BYTES_MAX && self.by_number.len() > 1
        {
            let Some((_, oldest)) = self.by_number.pop_first() else { return };
            self.bytes -= oldest.statement.bytes();
        }
    }

    /// Takes a ticket away; `None` if there is none of this number.
    pub(super) fn take(&mut self, number: u64) -> Option<Query> {
        let found = self.by_number.remove(&number)?;
        self.bytes -= found.statement.bytes();
        Some(found)
    }

    pub(super) fn clear(&mut self) {
        *self = Tickets::default();
    }
}

/// Refuses texts of statements that are too long to be kept.
///
/// # Errors
/// `ResourceExhausted`.
pub(super) fn check_text(sql: &str) -> Result<(), Status> {
    if sql.len() > TEXT_BYTES_MAX {
        let message = format!(
            "the statement has {} bytes: one has {TEXT_BYTES_MAX} at most; ingest or bind rows instead",
            sql.len()
        );
        return Err(with_sqlstate(Code::ResourceExhausted, "54000", &message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;

    use super::*;

    fn query(bytes: usize) -> Query {
        let statement = Statement { sql: "x".repeat(bytes).into(), transaction: None, bound: None };
        Query { statement, columns: Arc::new(Schema::empty()) }
    }

    #[test]
    fn a_ticket_is_taken_once_and_the_oldest_make_way() {
        let mut tickets = Tickets::default();
        for number in 0..=TICKETS_MAX as u64 {
            tickets.add(number, query(1));
        }
        assert!(tickets.take(0).is_none());
        assert!(tickets.take(1).is_some() && tickets.take(1).is_none());
        let large = TICKET_BYTES_MAX / 2;
        for number in 2000..2003 {
            tickets.add(number, query(large));
        }
        assert!(tickets.take(2000).is_none() && tickets.take(1000).is_none());
        assert!(tickets.take(2001).is_some() && tickets.take(2002).is_some());
        assert_eq!((tickets.bytes, tickets.by_number.len()), (0, 0));
    }
}
