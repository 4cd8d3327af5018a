//! What a pipeline puts aside at a probe whose build side is on disk in part, or at a grace join: tuples that lead to
//! partitions on disk, or to any partition, with everything that is needed of them from there on. All workers put tuples aside
//! while the pipeline's source has some; when all have been, they take units of them, until none is left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_rt::memory::Reservation;

use super::grace::Partitioned;
use super::probe::Probe;
use super::serving::{try_working_memory, working_bytes};
use super::spilled::{Partition, Spilled};
use super::unit::{Side, Unit};
use super::{BUILD, Nulls, PROBE, fan_out};
use crate::lane::Lane;
use crate::pace::Pace;
use crate::profile::{Fact, Facts};
use crate::program::Register;
use crate::query::{Context, PartitionMode};
use crate::spill::writer::{SPARE_BYTES, Spills};
use crate::spill::{Assured, Settled, SpillMode};
use crate::tuple::{Layout, Materialized, Materializer, Storage};

/// What the workers of a pipeline put aside at one of its steps.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) probe: Probe,
    pub(super) spilled: Arc<Spilled>,
    /// How the tuples lie, and the registers of their fields.
    pub(super) layout: Arc<Layout>,
    pub(super) fields: Vec<Register>,
    /// Any tuple of the build side may make it unknown whether another one matches: every tuple of the probe side meets all
    /// of them.
    pub(super) is_whole: bool,
    /// No tuple of the probe side meets any before it is served: a grace join.
    pub(super) is_grace: bool,
    /// What the workers share to spill tuples of the probe side.
    pub(super) spills: Spills,
    /// What they put tuples aside with, and serve units with, whatever others have.
    pub(super) assured: Arc<Assured>,
    /// What each worker begins with: nobody may lack it because others have come first.
    begun: Mutex<Vec<Begun>>,
    state: Mutex<State>,
    /// Tuples that were put aside, and units of them that were served.
    tuples: AtomicU64,
    units_served: AtomicU64,
    workers: usize,
    _settled: Settled,
}

/// What a worker begins with.
#[derive(Debug)]
pub(super) struct Begun {
    /// Where it puts tuples.
    pub(super) storing: Materializer,
    /// Memory for serving, of [`working_bytes`], if there was as much.
    pub(super) working: Option<Reservation>,
}

#[derive(Debug)]
enum State {
    /// What those have put aside that have no more, by partition, until all have.
    Gathering(Vec<Vec<Side>>),
    /// What is left to be served, the last first.
    Serving(Vec<Unit>),
}

impl Aside {
    /// For a probe in a program whose registers are of these lanes; `None` if nothing of its build side is on disk, and it is
    /// no grace join.
    pub(super) fn new(probe: &Probe, lanes: &[Lane], context: &Context) -> Option<Aside> {
        let spilled = probe.join.spilled()?.clone();
        let mut fields = probe.keys.clone();
        match probe.kind.expands() {
            true => fields.extend(probe.carried.iter().map(|(from, _)| *from)),
            false => fields.extend(&probe.kept),
        }
        if let Some(residual) = &probe.residual {
            fields.extend(residual.inputs.iter().map(|(from, _)| *from));
        }
        fields.sort_unstable();
        fields.dedup();
        let as_known = |field: &Register| {
            let known = probe.storage.iter().find(|(register, ..)| register == field);
            let (_, is_nullable, storage) =
                known.copied().unwrap_or((*field, true, Storage::Whole));
            (lanes[field.index()], is_nullable, storage)
        };
        let lanes: Vec<(Lane, bool, Storage)> = fields.iter().map(as_known).collect();
        let keys = probe.join.keys();
        let is_unknown = keys.iter().any(|key| key.nulls == Nulls::Unknown);
        let (layout, spills) = (Arc::new(Layout::compact(&lanes)), Spills::new(context)?);
        spilled.keep_promise();
        // Before some is held back.
        let working: Vec<Option<Reservation>> =
            (0..context.workers).map(|_| try_working_memory(&spills)).collect();
        let assured = Assured::new(&spills);
        let begin = |working| {
            let (ledger, always) = (&spills.ledger, PartitionMode::Always);
            // What it is assured of is for serving later: then it has none of that any more.
            let storing = Materializer::new(layout.clone(), PROBE, ledger, always, false)
                .spilling(spills.clone())
                .keeping(assured.reserve_or_none(SPARE_BYTES))
                .assured(assured.clone(), assured.bytes().saturating_sub(SPARE_BYTES))
                .partitioned(spilled.probe_bits);
            Begun { storing, working }
        };
        let begun: Vec<Begun> = working.into_iter().map(begin).collect();
        let working_bytes = begun.len() as u64 * working_bytes(&spills);
        Some(Aside {
            probe: probe.clone(),
            spilled,
            layout,
            fields,
            is_grace: probe.join.partitioned().is_some(),
            is_whole: is_unknown && (keys.len() > 1 || probe.residual.is_some()),
            _settled: Settled::new(&spills.spilling, working_bytes),
            assured,
            spills,
            begun: Mutex::new(begun),
            state: Mutex::new(State::Gathering(Vec::new())),
            tuples: AtomicU64::new(0),
            units_served: AtomicU64::new(0),
            workers: context.workers,
        })
    }

    /// True if marks of the build side's tuples are looked at in the end.
    pub(super) fn keeps_marks(&self) -> bool {
        self.spilled.keeps_marks
    }

    /// True if all tuples of the probe side are to be spilled, as some of the build side were.
    pub(super) fn spills_all(&self) -> bool {
        self.spills.spilling.options().mode == SpillMode::All
            && self.spilled.partitions().iter().any(Partition::is_on_disk)
    }

    /// The partitions of a grace join.
    ///
    /// # Panics
    /// If it is none.
    pub(super) fn partitioned(&self) -> &Partitioned {
        self.probe.join.partitioned().expect("a grace join")
    }

    /// Bytes that a worker needs to serve units whose build sides come back whole.
    pub(super) fn served_bytes(&self) -> u64 {
        if self.is_whole {
            return 0;
        }
        let partitions = self.spilled.partitions().iter();
        let disk_bytes: Vec<u64> = partitions.map(|partition| partition.on_disk.bytes).collect();
        fan_out::served_bytes(&disk_bytes, self.spilled.probe_bits, self.spills.part_bytes(1))
    }

    /// What a worker begins with.
    ///
    /// # Panics
    /// If all have begun.
    pub(super) fn begin(&self) -> Begun {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).pop();
        begun.expect("each worker begins once")
    }

    /// Takes what a worker has put aside; gives how many tuples that is. Who comes last makes units of what all have.
    pub(super) async fn hand_over(&self, part: Materialized) -> u64 {
        let sides = Side::by_partition(part, self.spilled.probe_bits, &self.spills.spilling).await;
        let tuples = sides.iter().map(Side::tuples).sum::<usize>() as u64;
        self.tuples.fetch_add(tuples, Ordering::Relaxed);
        let parts = match &mut *self.state() {
            State::Gathering(parts) => {
                parts.push(sides);
                (parts.len() == self.workers).then(|| std::mem::take(parts))
            }
            State::Serving(_) => unreachable!("each worker hands over once"),
        };
        if let Some(parts) = parts {
            let units = self.units(parts).await;
            *self.state() = State::Serving(units);
        }
        tuples
    }

    /// What was put aside, and in how many pieces it was served.
    pub(super) fn facts(&self) -> Facts {
        vec![
            Fact::count("tuples put aside", self.tuples.load(Ordering::Relaxed)),
            Fact::count("units served", self.units_served.load(Ordering::Relaxed)),
        ]
    }

    /// The next unit.
    ///
    /// # Panics
    /// If not all workers have handed over what they have.
    pub(super) fn take(&self) -> Option<Unit> {
        let mut state = self.state();
        let State::Serving(units) = &mut *state else { unreachable!("all have handed over") };
        let unit = units.pop();
        self.units_served.fetch_add(u64::from(unit.is_some()), Ordering::Relaxed);
        unit
    }

    /// Something of the next unit, if there is one for each worker beside it. Some have been taken.
    pub(super) fn of_next<T>(&self, of: impl FnOnce(&Unit) -> T) -> Option<T> {
        match &*self.state() {
            State::Serving(units) if units.len() > self.workers => units.last().map(of),
            State::Serving(_) | State::Gathering(_) => None,
        }
    }

    /// The next unit, if it is as wanted and there is one for each worker beside it. Some have been taken.
    pub(super) fn take_if(&self, is_wanted: impl FnOnce(&Unit) -> bool) -> Option<Unit> {
        let mut state = self.state();
        let State::Serving(units) = &mut *state else { return None };
        let is_taken = units.len() > self.workers && units.last().is_some_and(is_wanted);
        let unit = if is_taken { units.pop() } else { None };
        self.units_served.fetch_add(u64::from(is_taken), Ordering::Relaxed);
        unit
    }

    /// Adds units, the last of which is to be served first.
    pub(super) fn give(&self, more: Vec<Unit>) {
        if let State::Serving(units) = &mut *self.state() {
            units.extend(more);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of what all workers have put aside, by partition. Called once.
    async fn units(&self, parts: Vec<Vec<Side>>) -> Vec<Unit> {
        let mut pace = Pace::default();
        let mut parts = parts.into_iter();
        let Some(mut probes) = parts.next() else { return Vec::new() };
        for sides in parts {
            for (all, side) in probes.iter_mut().zip(sides) {
                all.merge(side);
                pace.keep().await;
            }
        }
        let skipped_bits = self.spilled.probe_bits;
        let builds = self.builds(&mut pace).await;
        // Not before: others take what nobody else needs.
        self.probe.join.end_probe();
        let is_heavy = self.probe.keys.is_empty();
        let pairs = builds.into_iter().zip(probes);
        if self.is_whole {
            let ledger = &self.spills.ledger;
            let (mut build, mut probe) = (Side::new(ledger), Side::new(ledger));
            for (a, b) in pairs {
                build.merge(a);
                probe.merge(b);
                pace.keep().await;
            }
            let unit = Unit { skipped_bits, in_memory: None, is_heavy: true, build, probe };
            return Vec::from_iter((unit.probe.tuples() > 0).then_some(unit));
        }
        let mut units = Vec::new();
        for (number, (build, probe)) in pairs.enumerate() {
            if probe.tuples() > 0 {
                let in_memory = (self.is_grace && build.spilled.is_empty()).then_some(number);
                units.push(Unit { skipped_bits, in_memory, is_heavy, build, probe });
            } else {
                pace.drop_all(build.spilled).await;
            }
            pace.keep().await;
        }
        // Those that have the most in memory are served first.
        units.sort_by_key(|unit| unit.probe.reservation.bytes());
        log::debug!(
            "{BUILD}: {} partitions are on disk or in pairs, and have tuples to be looked up",
            units.len()
        );
        units
    }

    /// What there is on disk of the build side for each partition of the probe side.
    async fn builds(&self, pace: &mut Pace) -> Vec<Side> {
        let partitions = self.spilled.partitions();
        let is_last = self.probe.join.is_last_probe();
        let mut builds = Vec::new();
        for partitions in partitions.chunks(partitions.len() >> self.spilled.probe_bits) {
            let mut side = Side::new(&self.spills.ledger);
            for partition in partitions {
                side.spilled.extend(match is_last {
                    true => partition.take(),
                    false => partition.pages(),
                });
                side.on_disk.merge(partition.on_disk);
                pace.keep().await;
            }
            builds.push(side);
        }
        builds
    }
}
