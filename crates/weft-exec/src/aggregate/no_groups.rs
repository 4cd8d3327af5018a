//! Aggregates without GROUP BY: one tuple per worker, no table.

use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::memory::Memory;
use super::operator::{Aggregation, OPERATOR, Part};
use super::state::{Feed, Narrowed, Tuple};
use crate::error::Result;
use crate::pipeline::{Flow, LocalSink};
use crate::query::Context;
use crate::registers::Registers;
use crate::tuple::budget::Budget;
use crate::tuple::materialized::StoredPage;
use crate::tuple::{Materialized, Page};

/// A worker's part of an aggregation without keys.
#[derive(Debug)]
pub(super) struct NoGroups {
    operator: Arc<Aggregation>,
    budget: Budget,
    /// Has the one tuple.
    page: Page,
    tuple: Tuple,
    memory: Memory,
    narrowed: Narrowed,
}

impl NoGroups {
    pub(super) fn new(operator: Arc<Aggregation>, context: &Context) -> NoGroups {
        let bytes = operator.states.layout.bytes();
        let mut page = Page::new(bytes, bytes);
        let slot = page.slot(0).expect("room for one");
        // SAFETY: the slot is this tuple's own, and lives as long as the page; hash and keys are 0.
        let tuple = unsafe { operator.states.begin(slot.tuple) };
        let mut memory = Memory::default();
        memory.owe(bytes as u64);
        NoGroups {
            operator,
            budget: Budget::new(OPERATOR, &context.ledger),
            page,
            tuple,
            memory,
            narrowed: Narrowed::default(),
        }
    }
}

impl LocalSink for NoGroups {
    fn push<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<Flow>> {
        Box::pin(async move {
            let mut feed = Feed { registers, memory: &mut self.memory };
            let rows = registers.selected();
            for fed in &self.operator.states.states {
                fed.add_to_one(self.tuple, rows, &mut feed, &mut self.narrowed)?;
            }
            self.budget.reserve(self.memory.take_debt()).await?;
            Ok(Flow::More)
        })
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let NoGroups { operator, mut budget, page, mut memory, .. } = *self;
            budget.reserve(memory.take_debt()).await?;
            let groups = Materialized {
                layout: operator.states.layout.clone(),
                pages: vec![StoredPage { partition: None, writer: None, page }],
                spilled: Vec::new(),
                sketch: None,
                reservation: budget.finish(),
            };
            operator.hand_over(Part { groups, memory });
            Ok(())
        })
    }
}
