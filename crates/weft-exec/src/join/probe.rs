//! The step of a pipeline's program that looks tuples up in a finished build side.

use std::sync::Arc;

use futures::future::LocalBoxFuture;

use super::Join;
use super::aside::Aside;
use super::hybrid::HybridProbe;
use super::state::ProbeState;
use crate::error::Result;
use crate::expand::{Expand, Expansion};
use crate::lane::Lane;
use crate::pace::{Pace, at_once};
use crate::program::{Program, Register};
use crate::query::Context;
use crate::registers::Registers;
use crate::tuple::Storage;

/// Looks the selected tuples up.
///
/// Afterwards [`Kind::Inner`] and [`Kind::Outer`] leave only `tuples` and the registers that something was `carried` to,
/// and there may be any number of matches for a tuple: the steps that follow run for one batch of matches after the other.
/// With the other kinds tuples keep their places, and registers what they have, or those at least that are `kept`.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The build side, whose pipeline has ended before.
    pub join: Arc<Join>,
    /// The hash of the keys, as on the build side, of [`Lane::U64`](crate::Lane::U64).
    pub hash: Register,
    /// The keys, in the order and of the lanes of the join's.
    pub keys: Vec<Register>,
    /// What becomes of the tuples.
    pub kind: Kind,
    /// For inner and outer joins: what is needed of the probe side from here on, each register once, and where it goes.
    /// What it was carried from means nothing afterwards.
    pub carried: Vec<(Register, Register)>,
    /// For the other kinds: the registers that are needed from here on. If the build side is on disk in part, tuples may come
    /// later, out of order, and other registers mean nothing then.
    pub kept: Vec<Register>,
    /// What is known of registers of the probe side whose tuples may be put aside: whether they may be null, and how their values may
    /// lie in tuples. Any may be null, and lies there as it is, of which nothing is said.
    pub storage: Vec<(Register, bool, Storage)>,
    /// For inner and outer joins: where the addresses of matches go, of [`Lane::U64`](crate::Lane::U64); 0 for no match.
    pub tuples: Option<Register>,
    /// Tuples of the build side that have matched are marked, for a [`Remainder`](super::Remainder) to go through later.
    pub marks_build: bool,
    /// What else must hold for a pair to be a match. (For an inner join that does not mark, a filter afterwards does as
    /// well, and better.)
    pub residual: Option<Arc<Residual>>,
}

/// What becomes of the tuples of the probe side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each goes on with each of its matches.
    Inner,
    /// As `Inner`; those without a match go on with the address 0.
    Outer,
    /// Those with a match stay selected.
    Semi,
    /// Those without a match stay selected, unless it is [unknown](super::Nulls::Unknown) whether they have one.
    Anti,
    /// All go on.
    Mark {
        /// Whether there is a match, null if that is [unknown](super::Nulls::Unknown).
        out: Register,
    },
    /// None goes on: only marks on the build side are wanted.
    Nothing,
}

impl Kind {
    /// True if matches go on, and not only tuples of the probe side.
    pub fn expands(self) -> bool {
        matches!(self, Kind::Inner | Kind::Outer)
    }
}

/// A condition on pairs of tuples with equal keys.
#[derive(Debug)]
pub struct Residual {
    /// Keeps the pairs at hand that match: it filters them. It has no step that expands.
    pub program: Arc<Program>,
    /// Registers of the probe, and the program's that they are copied to.
    pub inputs: Vec<(Register, Register)>,
    /// The program's register for the addresses of the build side's tuples.
    pub tuples: Register,
}

impl Probe {
    /// The registers that it reads, or puts aside.
    pub(super) fn registers_read(&self) -> Vec<Register> {
        let residual = self.residual.iter().flat_map(|residual| &residual.inputs);
        let moved = self.carried.iter().chain(residual).map(|(from, _)| *from);
        let stored = self.storage.iter().map(|(register, ..)| *register);
        let read = self.keys.iter().chain(&self.kept).copied();
        read.chain([self.hash]).chain(moved).chain(stored).collect()
    }

    /// True if it takes long to take tuples through it, so that others are to be let run.
    pub(super) fn takes_long(&self) -> bool {
        self.residual.is_some() || self.looks_for_unknown()
    }

    /// True if tuples of the build side are gone through one by one for whether it is [unknown](super::unknown) that a tuple matches.
    pub(super) fn looks_for_unknown(&self) -> bool {
        self.join.has_unknown() && (self.keys.len() > 1 || self.residual.is_some())
    }
}

impl Expand for Probe {
    fn reads(&self) -> Option<Vec<Register>> {
        Some(self.registers_read())
    }

    fn announce(&self) {
        self.join.announce_probe();
    }

    fn expansion(&self, context: &Context) -> Box<dyn Expansion> {
        Box::new(Probing { probe: self.clone(), state: ProbeState::new(self, context) })
    }

    fn hybrid(&self, lanes: &[Lane], context: &Context) -> Option<Arc<dyn Expand>> {
        let aside = Aside::new(self, lanes, context)?;
        Some(Arc::new(HybridProbe::new(aside)))
    }
}

/// A worker's part of it.
struct Probing {
    probe: Probe,
    state: ProbeState,
}

impl Probing {
    async fn first_batch(&mut self, registers: &mut Registers, pace: &mut Pace) -> Result<bool> {
        self.state.begin(&self.probe, self.probe.join.table(), registers, pace).await
    }

    async fn next_batch(&mut self, registers: &mut Registers, pace: &mut Pace) -> Result<bool> {
        self.state.next(&self.probe, self.probe.join.table(), registers, pace).await
    }
}

impl Expansion for Probing {
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
}
