//! The probe of a build side that is on disk in part, as in a hybrid hash join (Spilly, section 4.5): tuples that lead to
//! partitions in memory are looked up at once, others are put aside, to be served when there are no more. So is every tuple of a
//! grace join (`grace`).

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use weft_rt::memory::Reservation;

use super::aside::{Aside, Begun};
use super::keys;
use super::probe::Probe;
use super::serving::{Serving, try_working_memory, working_memory};
use super::state::ProbeState;
use crate::error::Result;
use crate::expand::{Expand, Expansion};
use crate::pace::{Pace, at_once};
use crate::profile::Facts;
use crate::program::Register;
use crate::query::Context;
use crate::registers::Registers;
use crate::selection::Selection;
use crate::tuple::Materializer;
use crate::vector::Vector;

/// The step, in one pipeline.
#[derive(Debug)]
pub(super) struct HybridProbe {
    aside: Arc<Aside>,
}

impl HybridProbe {
    pub(super) fn new(aside: Aside) -> HybridProbe {
        HybridProbe { aside: Arc::new(aside) }
    }
}

impl Expand for HybridProbe {
    fn reads(&self) -> Option<Vec<Register>> {
        Some(self.aside.probe.registers_read())
    }

    fn facts(&self) -> Facts {
        self.aside.facts()
    }

    fn expansion(&self, context: &Context) -> Box<dyn Expansion> {
        let probe = self.aside.probe.clone();
        let Begun { storing, working } = self.aside.begin();
        Box::new(Hybrid {
            state: ProbeState::new(&probe, context),
            probe,
            storing: Some(storing),
            aside: self.aside.clone(),
            rows: Selection::default(),
            serving: None,
            working,
            vector_rows: context.vector_rows,
        })
    }
}

/// A worker's part of it.
struct Hybrid {
    probe: Probe,
    state: ProbeState,
    aside: Arc<Aside>,
    /// Where tuples are put aside, as long as there may be some.
    storing: Option<Materializer>,
    /// The rows that are put aside, or those that are not.
    rows: Selection,
    /// When those are being served.
    serving: Option<Serving>,
    /// For serving; taken before memory is filled with what is put aside.
    working: Option<Reservation>,
    vector_rows: usize,
}

impl Hybrid {
    /// Keeps those of the rows that lead to a partition on disk (or to any, in a grace join), or those that do not.
    fn keep(&self, rows: &mut Selection, registers: &Registers, on_disk: bool) {
        if self.aside.is_whole {
            return rows.retain(|_| on_disk);
        }
        let (hashes, spilled) = (registers.values::<u64>(self.probe.hash), &self.aside.spilled);
        let is_grace = self.aside.is_grace;
        let join_keys = self.probe.join.keys();
        let vectors: Vec<&Vector> =
            self.probe.keys.iter().map(|register| registers.vector(*register)).collect();
        if keys::has_null(&vectors, join_keys) {
            // What matches nothing anyway need not wait.
            rows.retain(|row| {
                let is_on_disk = (is_grace || spilled.has(hashes[row]))
                    && keys::can_match(&vectors, join_keys, row);
                is_on_disk == on_disk
            });
        } else if is_grace {
            rows.retain(|_| on_disk);
        } else {
            rows.retain(|row| spilled.has(hashes[row]) == on_disk);
        }
    }

    async fn first_batch(&mut self, registers: &mut Registers, pace: &mut Pace) -> Result<bool> {
        match &self.serving {
            None => self.state.begin(&self.probe, self.probe.join.table(), registers, pace).await,
            Some(serving) => serving.begin(&mut self.state, registers, pace).await,
        }
    }

    async fn next_batch(&mut self, registers: &mut Registers, pace: &mut Pace) -> Result<bool> {
        let table = match &self.serving {
            None => self.probe.join.table(),
            Some(serving) => serving.table(),
        };
        self.state.next(&self.probe, table, registers, pace).await
    }
}

impl Expansion for Hybrid {
    fn begin(&mut self, registers: &mut Registers) -> Result<bool> {
        at_once(self.first_batch(registers, &mut Pace::unbroken()))
    }

    fn next(&mut self, registers: &mut Registers) -> Result<bool> {
        at_once(self.next_batch(registers, &mut Pace::unbroken()))
    }

    fn takes_long(&self) -> bool {
        self.probe.takes_long()
    }

    fn begin_in_turns<'a>(
        &'a mut self,
        registers: &'a mut Registers,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(self.first_batch(registers, pace))
    }

    fn next_in_turns<'a>(
        &'a mut self,
        registers: &'a mut Registers,
        pace: &'a mut Pace,
    ) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(self.next_batch(registers, pace))
    }

    fn puts_aside(&mut self, registers: &Registers) -> bool {
        if self.storing.is_none() {
            return false;
        }
        let mut rows = std::mem::take(&mut self.rows);
        rows.copy_from(&registers.selection);
        self.keep(&mut rows, registers, true);
        self.rows = rows;
        self.rows.count() > 0
    }

    fn put_aside<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.working.is_none() {
                // Nobody may come to give it back as long as this pipeline reads: if it is not free it can wait.
                self.working = try_working_memory(&self.aside.spills);
            }
            let storing = self.storing.as_mut().expect("tuples may be put aside");
            std::mem::swap(&mut registers.selection, &mut self.rows);
            storing.store(registers, self.probe.hash, &self.aside.fields).await?;
            let mut others = std::mem::take(&mut self.rows);
            self.keep(&mut others, registers, false);
            registers.selection.copy_from(&others);
            self.rows = others;
            Ok(())
        })
    }

    fn hand_over(&mut self) -> LocalBoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let Some(mut storing) = self.storing.take() else { return Ok(0) };
            storing.spill_excess().await?;
            storing.make_room_for(self.aside.served_bytes()).await?;
            if self.aside.spills_all() || storing.must_spill_all() {
                self.aside.spills.mask.add_all(1 << self.aside.spilled.probe_bits);
                storing.spill_all().await?;
            }
            if storing.needs_assured() {
                // Serving needs it.
                storing.spill_while(|| self.aside.assured.is_in_use()).await?;
            }
            storing.settle().await?;
            Ok(self.aside.hand_over(storing.finish()).await)
        })
    }

    fn serve<'a>(&'a mut self, registers: &'a mut Registers) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            if self.serving.is_none() {
                let working = match self.working.take() {
                    Some(working) => working,
                    None => working_memory(&self.aside).await?,
                };
                self.serving = Some(Serving::new(self.aside.clone(), self.vector_rows, working));
            }
            let serving = self.serving.as_mut().expect("it was just made");
            serving.next(&mut self.state, registers).await
        })
    }
}
