//! The finished groups as a source: a morsel merges a unit and gives its groups, keys and results of aggregates as
//! registers.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::memory::Ledger;

use super::gathered::{Gathered, Loose};
use super::keys;
use super::merge::{Merged, Step, merge};
use super::operator::Aggregation;
use super::unit::Unit;
use crate::error::Result;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;

/// A column of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A key.
    Key(usize),
    /// The result of an aggregate.
    Aggregate(usize),
}

/// The source of an aggregation's groups.
#[derive(Debug)]
pub(super) struct Groups {
    operator: Arc<Aggregation>,
    outputs: Vec<Output>,
    opened: OnceLock<Opened>,
}

#[derive(Clone, Debug)]
struct Opened {
    ledger: Ledger,
    gathered: Arc<Gathered>,
}

impl Groups {
    pub(super) fn new(operator: Arc<Aggregation>, outputs: Vec<Output>) -> Groups {
        for output in &outputs {
            match output {
                Output::Key(key) => assert!(*key < operator.keys, "no key {key}"),
                Output::Aggregate(aggregate) => {
                    assert!(*aggregate < operator.states.outcomes.len(), "no {aggregate}");
                }
            }
        }
        Groups { operator, outputs, opened: OnceLock::new() }
    }
}

impl Source for Groups {
    fn tuples(&self) -> u64 {
        self.opened.get().map_or(0, |opened| opened.gathered.groups())
    }

    fn facts(&self) -> Facts {
        self.opened.get().map(|opened| opened.gathered.merge_facts()).unwrap_or_default()
    }

    fn open<'a>(&'a self, context: &'a Context) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let gathered = self.operator.gathered.get().expect("the sink has ended").clone();
            let opened = Opened { ledger: context.ledger.clone(), gathered };
            assert!(self.opened.set(opened).is_ok(), "a source is opened once");
            Ok(())
        })
    }

    fn morsel(&self, _: usize) -> Option<Box<dyn Morsel>> {
        let opened = self.opened.get().expect("the source is open");
        opened.gathered.has_another().then(|| -> Box<dyn Morsel> {
            Box::new(UnitMorsel {
                operator: self.operator.clone(),
                outputs: self.outputs.clone(),
                opened: opened.clone(),
                units: None,
            })
        })
    }

    fn depth(&self, _: &Context) -> usize {
        1
    }
}

struct UnitMorsel {
    operator: Arc<Aggregation>,
    outputs: Vec<Output>,
    opened: Opened,
    /// The one to be merged, when it was taken, or what is left of it.
    units: Option<Vec<Unit>>,
}

impl Morsel for UnitMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        Box::pin(async move {
            let Opened { ledger, gathered } = &self.opened;
            let units = match &mut self.units {
                Some(units) => units,
                none => none.insert(vec![gathered.take().await]),
            };
            while let Some(unit) = units.pop() {
                match merge(&self.operator, unit, gathered.spills(), ledger).await? {
                    Step::Split(parts) => {
                        gathered.note_split();
                        units.extend(parts);
                    }
                    Step::Merged(merged) => {
                        gathered.note_table(merged.table_bytes);
                        let groups: Box<dyn Tuples> = Box::new(UnitGroups {
                            operator: self.operator.clone(),
                            _loose: gathered.loose().clone(),
                            outputs: self.outputs.clone(),
                            merged: RefCell::new(merged),
                        });
                        return Ok(Some(groups));
                    }
                }
            }
            Ok(None)
        })
    }
}

struct UnitGroups {
    operator: Arc<Aggregation>,
    /// Has tuples of several units.
    _loose: Arc<Loose>,
    outputs: Vec<Output>,
    /// Some results need memory while they are made.
    merged: RefCell<Merged>,
}

impl Tuples for UnitGroups {
    fn rows(&self) -> usize {
        self.merged.borrow().groups.len()
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let merged = &mut *self.merged.borrow_mut();
        let groups = &merged.groups[start..start + rows];
        let states = &self.operator.states;
        for (output, register) in self.outputs.iter().zip(inputs) {
            let vector = registers.vector_mut(*register);
            match output {
                Output::Key(key) => keys::load(states.layout.field(*key), groups, vector),
                Output::Aggregate(aggregate) => {
                    let outcome = &states.outcomes[*aggregate];
                    assert_eq!(outcome.lane(), vector.lane(), "a register of another lane");
                    // Where all results are null none is written.
                    vector.make_room();
                    outcome.write(groups, vector, &mut merged.memory)?;
                }
            }
        }
        let debt_bytes = merged.memory.take_debt();
        if !merged.reservation.try_grow(debt_bytes) {
            // Nobody can wait here; what DISTINCT aggregates need to finish is small beside what they have gathered.
            log::debug!("{debt_bytes} bytes for results of aggregates are beyond the budget");
        }
        Ok(())
    }
}
