//! The finished groups as a source: a morsel merges a unit and gives its groups, keys and results of aggregates as
//! registers. While they are passed on, the next unit that was packed comes back and is merged, if there is memory for both.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, LocalBoxFuture};
use weft_rt::cancel::CancelToken;
use weft_rt::memory::Ledger;

use super::gathered::{Gathered, Loose};
use super::keys;
use super::merge::{Merged, Step, merge, merge_within, needed_bytes};
use super::operator::Aggregation;
use super::state::{Outcome, Tuple};
use super::unit::Unit;
use super::units::Units;
use crate::error::Result;
use crate::pace::Pace;
use crate::pipeline::{Morsel, Source, Tuples};
use crate::profile::{Facts, Measuring, Wait, waiting};
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::spill::{Assured, Settled};
use crate::tasks::Ahead;
use crate::vector::Vector;

/// Of a worker's share, what the next unit may take while groups are passed on.
const AHEAD_SHARE: u64 = 4;
/// And of the budget, so that what all have ahead leaves room for others.
const AHEAD_PART: u64 = 4;

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
    /// What workers merge units with that were spilled, once there are any.
    assured: Arc<OnceLock<Arc<Assured>>>,
    measuring: Option<Measuring>,
    cancel: CancelToken,
    workers: usize,
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
            let (ledger, measuring) = (context.ledger.clone(), context.measuring.clone());
            let (cancel, workers) = (context.cancel.clone(), context.workers);
            let assured = Arc::new(OnceLock::new());
            if let Some(spills) = gathered.spills().filter(|_| gathered.has_spilled()) {
                assured.get_or_init(|| Assured::new(spills));
            }
            let opened = Opened { ledger, gathered, assured, measuring, cancel, workers };
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
                has_begun: false,
                parts: Vec::new(),
                ahead: None,
            })
        })
    }

    fn depth(&self, _: &Context) -> usize {
        1
    }
}

/// What is left of a unit that was partitioned anew.
struct Parts {
    units: Arc<Units>,
    count: usize,
}

struct UnitMorsel {
    operator: Arc<Aggregation>,
    outputs: Vec<Output>,
    opened: Opened,
    /// The unit that it was made for was taken.
    has_begun: bool,
    /// Parts of units that were partitioned anew, those of the last one last.
    parts: Vec<Parts>,
    /// The unit after it, which comes back and is merged meanwhile.
    ahead: Option<Ahead<Step>>,
}

impl UnitMorsel {
    /// Takes what has become of a unit. It goes to disk if others need its memory.
    fn add_parts(&mut self, parts: Vec<Unit>) {
        let Opened { gathered, cancel, .. } = &self.opened;
        let layout = self.operator.states.layout.clone();
        let (count, spills) = (parts.len(), gathered.spills().cloned());
        self.parts.push(Parts { units: Units::new(parts, layout, spills, cancel), count });
    }

    /// What becomes of the next unit; `None` after the last.
    async fn step(&mut self) -> Result<Option<Step>> {
        let Opened { ledger, gathered, assured, .. } = &self.opened;
        self.parts.retain(|parts| parts.count > 0);
        if let Some(ahead) = self.ahead.take() {
            return waiting(Wait::Device, ahead.result()).await.map(Some);
        }
        let unit = match self.parts.last_mut() {
            Some(parts) => {
                parts.count -= 1;
                parts.units.take().await
            }
            None if self.has_begun => return Ok(None),
            None => gathered.take().await,
        };
        self.has_begun = true;
        let spills = gathered.spills().filter(|_| !unit.spilled.is_empty());
        let spills = spills.map(|spills| (spills, assured.get_or_init(|| Assured::new(spills))));
        merge(&self.operator, unit, spills, ledger).await.map(Some)
    }

    /// Begins with the next unit that was packed, by a task of this worker's that goes on while it passes on the groups of the one
    /// before, so that neither the device nor the worker waits for the other. `None` if there is not memory for all of it,
    /// beside that of others.
    fn begin_ahead(&mut self) -> Option<Ahead<Step>> {
        let Opened { ledger, gathered, measuring, workers, assured, .. } = &self.opened;
        self.parts.retain(|parts| parts.count > 0);
        let spills = gathered.spills()?.clone();
        let operator = self.operator.clone();
        let bytes_max = (spills.share().bytes() / AHEAD_SHARE).min(spills.part_bytes(AHEAD_PART));
        let needs = |unit: &Unit| {
            let bytes = needed_bytes(&operator, unit);
            (!unit.spilled.is_empty() && bytes <= bytes_max).then_some(bytes)
        };
        let (unit, memory) = match self.parts.last_mut() {
            Some(parts) => {
                let taken = parts.units.take_with(ledger, needs)?;
                parts.count -= 1;
                taken
            }
            None => gathered.take_with(*workers, ledger, needs)?,
        };
        let settled = Settled::new(&spills.spilling, memory.bytes());
        let tasks = spills.tasks.clone();
        let assured = assured.get_or_init(|| Assured::new(&spills)).clone();
        let merged = async move {
            merge_within(&operator, unit, (&spills, assured.of(0)), memory, settled).await
        };
        // Nobody waits for it yet.
        Some(tasks.spawn_ahead(measuring.clone(), waiting(Wait::Other, merged)))
    }
}

impl Morsel for UnitMorsel {
    fn next(&mut self) -> LocalBoxFuture<'_, Result<Option<Box<dyn Tuples>>>> {
        Box::pin(async move {
            while let Some(step) = self.step().await? {
                match step {
                    Step::Split(parts) => {
                        self.opened.gathered.note_split();
                        self.add_parts(parts);
                    }
                    Step::Merged(merged) => {
                        self.ahead = self.begin_ahead();
                        let gathered = &self.opened.gathered;
                        gathered.note_table(merged.table_bytes);
                        let groups: Box<dyn Tuples> = Box::new(UnitGroups {
                            operator: self.operator.clone(),
                            _loose: gathered.loose().clone(),
                            outputs: self.outputs.clone(),
                            merged: RefCell::new(*merged),
                            ready: RefCell::default(),
                        });
                        return Ok(Some(groups));
                    }
                }
            }
            Ok(None)
        })
    }
}

/// Values of which the results of a vector's groups are made at most in one go.
pub(super) const LONG_VALUES: u64 = 16 << 10;

struct UnitGroups {
    operator: Arc<Aggregation>,
    /// Has tuples of several units.
    _loose: Arc<Loose>,
    outputs: Vec<Output>,
    /// Some results need memory while they are made.
    merged: RefCell<Merged>,
    /// Results of the groups that are loaded next, for each output, if they take long.
    ready: RefCell<Vec<Option<Vector>>>,
}

impl UnitGroups {
    /// The aggregates whose results take long, by their outputs.
    fn long(&self, groups: &[Tuple]) -> Vec<(usize, &dyn Outcome)> {
        let states = &self.operator.states;
        let outcome = |(at, output): (usize, &Output)| match output {
            Output::Aggregate(aggregate) => Some((at, &*states.outcomes[*aggregate])),
            Output::Key(_) => None,
        };
        let outcomes = self.outputs.iter().enumerate().filter_map(outcome);
        let is_long = |(_, outcome): &(usize, &dyn Outcome)| {
            let mut values = 0;
            groups.iter().any(|group| {
                values += outcome.values(*group);
                values >= LONG_VALUES
            })
        };
        outcomes.filter(is_long).collect()
    }
}

impl Tuples for UnitGroups {
    fn rows(&self) -> usize {
        self.merged.borrow().groups.len()
    }

    fn close(self: Box<Self>) -> Option<LocalBoxFuture<'static, ()>> {
        self.merged.into_inner().free()
    }

    fn prepare(&self, start: usize, rows: usize) -> Option<LocalBoxFuture<'_, Result<()>>> {
        if self.operator.states.layout.behind().is_empty() {
            return None;
        }
        let merged = self.merged.borrow();
        let groups = &merged.groups[start..start + rows];
        let long = self.long(groups);
        if long.is_empty() {
            return None;
        }
        let groups = groups.to_vec();
        drop(merged);
        Some(Box::pin(async move {
            let mut memory = std::mem::take(&mut self.merged.borrow_mut().memory);
            let mut pace = Pace::default();
            let mut ready: Vec<Option<Vector>> = self.outputs.iter().map(|_| None).collect();
            for (at, outcome) in long {
                let mut results = Vector::new(outcome.lane());
                results.make_room();
                outcome.write_in_turns(&groups, &mut results, &mut memory, &mut pace).await?;
                ready[at] = Some(results);
            }
            self.merged.borrow_mut().memory = memory;
            *self.ready.borrow_mut() = ready;
            Ok(())
        }))
    }

    fn load(
        &self,
        start: usize,
        rows: usize,
        inputs: &[Register],
        registers: &mut Registers,
    ) -> Result<()> {
        let mut ready = std::mem::take(&mut *self.ready.borrow_mut());
        let merged = &mut *self.merged.borrow_mut();
        let groups = &merged.groups[start..start + rows];
        let states = &self.operator.states;
        for (at, (output, register)) in self.outputs.iter().zip(inputs).enumerate() {
            let vector = registers.vector_mut(*register);
            match output {
                Output::Key(key) => keys::load(states.layout.field(*key), groups, vector),
                Output::Aggregate(aggregate) => {
                    let outcome = &states.outcomes[*aggregate];
                    assert_eq!(outcome.lane(), vector.lane(), "a register of another lane");
                    if let Some(results) = ready.get_mut(at).and_then(Option::take) {
                        *vector = results;
                        continue;
                    }
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
