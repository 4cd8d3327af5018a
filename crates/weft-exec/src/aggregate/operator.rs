//! The operator: what its sink, which gathers, and its source, which gives the groups, have in common.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::future::BoxFuture;
use weft_rt::sync::latch::HybridLatch;

use super::functions::Aggregate;
use super::gathered::Gathered;
use super::groups::{Groups, Output};
use super::memory::Memory;
use super::no_groups::NoGroups;
use super::preaggregate::Preaggregation;
use super::states::States;
use crate::error::Result;
use crate::lane::Lane;
use crate::pipeline::{LocalSink, Sink, Source};
use crate::profile::Facts;
use crate::program::{Constant, Program, Register};
use crate::query::{Context, PartitionMode};
use crate::spill::fan::BITS_MAX;
use crate::spill::writer::Spills;
use crate::tuple::Materialized;

/// What errors call the operator.
pub(super) const OPERATOR: &str = "an aggregation";

/// Where a group's keys are found.
#[derive(Clone, Debug)]
pub struct Keys {
    pub(super) registers: Vec<Register>,
    /// Where the sink puts the hash of them all, if it needs that.
    pub(super) hash: Register,
}

impl Keys {
    /// The keys that are in these registers of `program`, which gets another one for the sink's use.
    pub fn new(program: &mut Program, registers: Vec<Register>) -> Keys {
        Keys { registers, hash: program.register(Lane::U64) }
    }

    /// A register for each key.
    pub fn registers(&self) -> &[Register] {
        &self.registers
    }
}

/// An aggregation: pipeline breaker with a sink, and a source after it.
#[derive(Debug)]
pub struct Aggregation {
    pub(super) states: States,
    /// Number of keys.
    pub(super) keys: usize,
    /// Each row is stored once for each of these.
    pub(super) sets: Vec<Keys>,
    /// What the aggregates read.
    arguments: Vec<Register>,
    /// Keys of groups that there are even if there are no rows.
    always: Vec<Vec<Option<Constant>>>,
    /// What its workers share to spill, once there is one; nothing if it cannot.
    spills: OnceLock<Option<Spills>>,
    pub(super) parts: Mutex<Vec<Part>>,
    /// Of those who merge a unit that can only grow.
    pub(super) turn: HybridLatch,
    pub(super) gathered: OnceLock<Arc<Gathered>>,
}

/// What a worker leaves.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) groups: Materialized,
    /// What lies behind the groups. The reservation of the groups is for this, too.
    pub(super) memory: Memory,
}

impl Aggregation {
    /// Aggregates without GROUP BY, over registers of `program`: one row, even over no input.
    ///
    /// # Panics
    /// If an aggregate's arguments or result are not of lanes that it has.
    pub fn without_keys(program: &Program, aggregates: &[Aggregate]) -> Arc<Aggregation> {
        Arc::new(Aggregation {
            states: States::new(&program.registers, &[], aggregates),
            arguments: arguments(aggregates),
            keys: 0,
            sets: Vec::new(),
            always: vec![Vec::new()],
            spills: OnceLock::new(),
            parts: Mutex::default(),
            turn: HybridLatch::new(),
            gathered: OnceLock::new(),
        })
    }

    /// Aggregates of groups of rows with the same `keys`, each of a lane, which may be null or not. Rows are stored once
    /// for each of `sets`: there is one, but for GROUPING SETS.
    ///
    /// `always` has the keys of the groups that there are even over no input: those of a grouping set without keys.
    ///
    /// # Panics
    /// If there are no keys or no sets; if registers are not of the lanes that they should be of.
    pub fn by_keys(
        program: &Program,
        keys: &[(Lane, bool)],
        sets: Vec<Keys>,
        aggregates: &[Aggregate],
        always: Vec<Vec<Option<Constant>>>,
    ) -> Arc<Aggregation> {
        assert!(!keys.is_empty() && !sets.is_empty(), "keys");
        for set in &sets {
            let lanes = set.registers.iter().map(|key| program.registers[key.index()]);
            assert!(lanes.eq(keys.iter().map(|(lane, _)| *lane)), "registers of the keys' lanes");
        }
        Arc::new(Aggregation {
            states: States::new(&program.registers, keys, aggregates),
            arguments: arguments(aggregates),
            keys: keys.len(),
            sets,
            always,
            spills: OnceLock::new(),
            parts: Mutex::default(),
            turn: HybridLatch::new(),
            gathered: OnceLock::new(),
        })
    }

    /// The sink of the pipeline that computes keys and arguments.
    pub fn sink(self: &Arc<Aggregation>) -> Box<dyn Sink> {
        Box::new(AggregationSink { operator: self.clone() })
    }

    /// The source of a pipeline that comes after the sink's, a column for each output. It can be read once.
    pub fn source(self: &Arc<Aggregation>, outputs: Vec<Output>) -> Box<dyn Source> {
        Box::new(Groups::new(self.clone(), outputs))
    }

    /// What workers share to spill; nothing if the query has no place to spill to.
    pub(super) fn spills(&self, context: &Context) -> Option<Spills> {
        self.spills.get_or_init(|| Spills::new(context)).clone()
    }

    /// Bits of the hash that lead to a partition, once groups are partitioned: as many as there is memory for, unless that is to
    /// be measured.
    pub(super) fn partition_bits(&self, context: &Context) -> u32 {
        match self.spills(context) {
            Some(spills) if context.partition != PartitionMode::Always => {
                self.limited_bits(spills.partition_bits())
            }
            _ => BITS_MAX,
        }
    }

    /// So many bits, or all if groups have lists or sets: a few groups of a partition together may be more than fits into memory.
    pub(super) fn limited_bits(&self, bits: u32) -> u32 {
        if self.states.layout.behind().is_empty() { bits } else { BITS_MAX }
    }

    /// Takes what a worker has gathered.
    pub(super) fn hand_over(&self, part: Part) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }
}

/// The registers that aggregates read.
fn arguments(aggregates: &[Aggregate]) -> Vec<Register> {
    let of = |aggregate: &Aggregate| {
        let Aggregate { arguments, filter, hash, order, .. } = aggregate;
        let others = filter.iter().chain(hash).chain(order);
        arguments.iter().chain(others).copied().collect::<Vec<_>>()
    };
    aggregates.iter().flat_map(of).collect()
}

#[derive(Debug)]
struct AggregationSink {
    operator: Arc<Aggregation>,
}

impl Sink for AggregationSink {
    fn reads(&self) -> Option<Vec<Register>> {
        let keys = self.operator.sets.iter().flat_map(|set| &set.registers);
        Some(keys.chain(&self.operator.arguments).copied().collect())
    }

    fn local(&self, context: &Context, _: usize) -> Result<Box<dyn LocalSink>> {
        Ok(if self.operator.sets.is_empty() {
            Box::new(NoGroups::new(self.operator.clone(), context))
        } else {
            Box::new(Preaggregation::new(self.operator.clone(), context))
        })
    }

    fn keeps_tuples(&self) -> bool {
        true
    }

    fn facts(&self) -> Facts {
        self.operator.gathered.get().map(|gathered| gathered.facts()).unwrap_or_default()
    }

    fn finish<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operator = self.operator.clone();
            let parts =
                std::mem::take(&mut *operator.parts.lock().unwrap_or_else(PoisonError::into_inner));
            let (gathering, of_query) = (operator.clone(), context.clone());
            let gather = move || async move {
                Gathered::new(&gathering, parts, &gathering.always, &of_query).await
            };
            let gathered = context.on_a_worker(gather).await?;
            let is_first = operator.gathered.set(Arc::new(gathered)).is_ok();
            assert!(is_first, "a sink ends once");
            Ok(())
        })
    }
}
