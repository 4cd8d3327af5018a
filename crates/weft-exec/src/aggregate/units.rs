//! Units that nobody works on yet. They are taken in turn, those in memory first. Who waits for memory that they have, and
//! cannot spill anything itself, gets it: units go to disk from the end, as the ledger's caches give back what others lack.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use weft_rt::cancel::CancelToken;
use weft_rt::memory::{Cache, Ledger, Reservation};
use weft_rt::sync::parking_lot::ParkingLot;
use weft_rt::{WorkerRef, sleep};

use super::operator::OPERATOR;
use super::unit::Unit;
use crate::error::{ExecError, Result};
use crate::spill::writer::{SPARE_BYTES, SpilledPage, Spills, Writer};
use crate::tuple::Layout;

/// How long somebody waits for memory before a unit is spilled: most waits end sooner.
const GRACE: Duration = Duration::from_millis(2);

/// Units in turn.
#[derive(Debug)]
pub(super) struct Units {
    queue: Mutex<VecDeque<Unit>>,
    layout: Arc<Layout>,
    /// What they can be spilled by.
    giver: Option<Giver>,
}

#[derive(Debug)]
struct Giver {
    spills: Spills,
    worker: WorkerRef,
    cancel: CancelToken,
    itself: Weak<Units>,
    /// A task spills units, or nothing can be spilled any more.
    is_giving: AtomicBool,
}

impl Units {
    /// All units. On a worker.
    pub(super) fn new(
        units: Vec<Unit>,
        layout: Arc<Layout>,
        spills: Option<Spills>,
        cancel: &CancelToken,
    ) -> Arc<Units> {
        let spills = spills.filter(|_| units.iter().any(Unit::holds_pages));
        let units = Arc::new_cyclic(|itself| {
            let giver = spills.zip(WorkerRef::current()).map(|(spills, worker)| Giver {
                spills,
                worker,
                cancel: cancel.clone(),
                itself: itself.clone(),
                is_giving: AtomicBool::new(false),
            });
            Units { queue: Mutex::new(units.into()), layout, giver }
        });
        if let Some(Giver { spills: Spills { ledger, .. }, .. }) = &units.giver {
            let cache: Arc<dyn Cache> = units.clone();
            ledger.add_cache(Arc::downgrade(&cache));
            // Who waits already has asked the others.
            units.give_back(ledger.shortage());
        }
        units
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Unit>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self) -> usize {
        (&raw const self.queue).addr()
    }

    /// The next one, of which there are enough for all who ask.
    pub(super) async fn take(&self) -> Unit {
        loop {
            if let Some(unit) = self.queue().pop_front() {
                return unit;
            }
            // The last one is being spilled.
            let is_empty = || self.queue().is_empty();
            ParkingLot::global().park(self.key(), is_empty).await;
        }
    }

    /// The next one, if `needs` gives the bytes that it needs, and these are free.
    pub(super) fn take_with(
        &self,
        ledger: &Ledger,
        needs: impl FnOnce(&Unit) -> Option<u64>,
    ) -> Option<(Unit, Reservation)> {
        let (unit, bytes) = {
            let mut queue = self.queue();
            let bytes = needs(queue.front()?)?;
            (queue.pop_front()?, bytes)
        };
        // Not with the lock: the ledger asks caches for what it lacks, of which this is one.
        let Some(memory) = ledger.try_reserve(bytes) else {
            self.queue().push_front(unit);
            ParkingLot::global().unpark_all(self.key());
            return None;
        };
        Some((unit, memory))
    }

    /// The last ones in memory, so many that what they have is worth being written.
    fn take_to_spill(&self) -> Vec<Unit> {
        let mut queue = self.queue();
        let (mut places, mut bytes) = (Vec::new(), 0);
        for (place, unit) in queue.iter().enumerate().rev() {
            if bytes >= SPARE_BYTES {
                break;
            }
            if unit.holds_pages() {
                places.push(place);
                bytes += unit.held_bytes();
            }
        }
        if bytes < SPARE_BYTES {
            return Vec::new();
        }
        // From the back on, so that places stay what they are.
        places.into_iter().filter_map(|place| queue.remove(place)).collect()
    }

    /// Spills some units; false if there are none, or it went wrong.
    async fn spill_some(&self, giver: &Giver) -> bool {
        let mut units = self.take_to_spill();
        if units.is_empty() {
            return false;
        }
        let mut lent = giver.spills.ledger.empty();
        for unit in &mut units {
            lent.merge(unit.lend(SPARE_BYTES - lent.bytes()));
        }
        let writer = Writer::with_spare(OPERATOR, giver.spills.clone(), lent);
        let result = self.spill(&mut units, writer).await;
        let is_written = result.is_ok();
        if let Err(error) = result {
            // Whoever waits for memory will say that there is none.
            log::warn!("groups of an aggregation are not written: {error}");
            let text = error.to_string();
            let mut error = Some(error);
            for unit in units.iter_mut().filter(|unit| unit.has_sent()) {
                let same = || ExecError::Function(text.clone().into());
                unit.fail(error.take().unwrap_or_else(same));
            }
        }
        self.queue().extend(units);
        ParkingLot::global().unpark_all(self.key());
        is_written
    }

    async fn spill(&self, units: &mut [Unit], mut writer: Writer) -> Result<()> {
        for (number, unit) in units.iter_mut().enumerate() {
            unit.write(&self.layout, &mut writer, number).await?;
        }
        writer.settle().await?;
        let mut written: Vec<Vec<SpilledPage>> = units.iter().map(|_| Vec::new()).collect();
        for page in writer.finish() {
            written[page.partition].push(page);
        }
        for (unit, spilled) in units.iter_mut().zip(written) {
            unit.be_spilled(spilled);
        }
        Ok(())
    }

    /// Spills units as long as somebody lacks memory.
    async fn spill_missing(&self, giver: &Giver) {
        let ledger = &giver.spills.ledger;
        loop {
            sleep(GRACE).await;
            while ledger.shortage() > 0 && !giver.cancel.is_cancelled() {
                if !self.spill_some(giver).await {
                    // Never again.
                    return;
                }
            }
            giver.is_giving.store(false, Ordering::SeqCst);
            let is_done = ledger.shortage() == 0 || giver.cancel.is_cancelled();
            if is_done || giver.is_giving.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }
}

impl Cache for Units {
    fn give_back(&self, bytes: u64) {
        let Some(giver) = &self.giver else { return };
        if bytes == 0 || giver.cancel.is_cancelled() || self.queue().is_empty() {
            return;
        }
        let Some(units) = giver.itself.upgrade() else { return };
        if giver.is_giving.swap(true, Ordering::SeqCst) {
            return;
        }
        // The query ends when this has.
        let task = giver.spills.tasks.count();
        let started = giver.worker.spawn(move || async move {
            if let Some(giver) = &units.giver {
                units.spill_missing(giver).await;
            }
            drop((units, task));
        });
        if started.is_none() {
            log::debug!("the worker that could spill groups has ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_rt::io::DriverKind;
    use weft_rt::io::sim::{Fault, FaultRule, Operation, SimDisk, SimFaults, SimOptions};
    use weft_rt::{Runtime, RuntimeOptions};
    use weft_store::Directory;
    use weft_store::spill::SpillArea;

    use super::*;
    use crate::lane::Lane;
    use crate::query::Context;
    use crate::spill::Spilling;
    use crate::spill::frozen::Freezing;
    use crate::tuple::Page;

    const PAGE_BYTES: usize = 64 << 10;

    /// The ledger asks units, as a cache, for what a unit that is to be taken lacks.
    #[test]
    fn a_unit_without_memory_stays_in_its_place() {
        let disk = SimDisk::new(SimOptions::testing(1));
        let driver = DriverKind::Sim(disk.clone());
        let options = RuntimeOptions { workers: 1, driver, ..RuntimeOptions::default() };
        let runtime = Arc::new(Runtime::new(&options).unwrap());
        let mut context = Context::new(runtime.clone(), Ledger::new(1 << 20));
        let area = SpillArea::new(vec![Directory::Sim(disk, "spill".into())], 1 << 40);
        context.spilling = Some(Spilling::new(area));
        let work = move || async move {
            let ledger = &context.ledger;
            let layout = Arc::new(Layout::new(&[(Lane::U64, false)]));
            let unit = |groups| {
                let mut unit = Unit::new(8, ledger);
                unit.hold(ledger.try_reserve(PAGE_BYTES as u64).unwrap());
                unit.pages.push(Page::new(PAGE_BYTES, layout.bytes()));
                unit.groups = groups;
                unit
            };
            let spills = Spills::new(&context);
            let units = Units::new(vec![unit(1), unit(2)], layout.clone(), spills, &context.cancel);
            assert!(units.take_with(ledger, |_| Some(1000 << 10)).is_none());
            assert!(units.take_with(ledger, |_| None).is_none());
            let (unit, memory) = units.take_with(ledger, |_| Some(500 << 10)).unwrap();
            assert_eq!((unit.groups, memory.bytes()), (1, 500 << 10));
        };
        runtime.spawn_on(0, work).wait().unwrap();
    }

    /// Of what was retained there is no copy: a unit that could not be written fails whoever takes it.
    #[test]
    fn a_unit_that_was_written_in_part_is_an_error() {
        for fails in [false, true] {
            let disk = SimDisk::new(SimOptions::testing(1));
            let driver = DriverKind::Sim(disk.clone());
            let options = RuntimeOptions { workers: 1, driver, ..RuntimeOptions::default() };
            let runtime = Arc::new(Runtime::new(&options).unwrap());
            let mut context = Context::new(runtime.clone(), Ledger::new(1 << 20));
            let area = SpillArea::new(vec![Directory::Sim(disk.clone(), "spill".into())], 1 << 40);
            context.spilling = Some(Spilling::new(area));
            let work = move || async move {
                let ledger = &context.ledger;
                let layout = Arc::new(Layout::new(&[(Lane::U64, false)]));
                let spills = Spills::new(&context).unwrap();
                let mut writer = Writer::new(OPERATOR, spills.clone());
                writer.retain(true);
                for _ in 0..2 {
                    let mut page = Freezing::new(PAGE_BYTES, PAGE_BYTES, &layout);
                    page.slot(0).unwrap();
                    writer.write(3, page, ledger.try_reserve(PAGE_BYTES as u64).unwrap());
                }
                let (mut retained, mut in_memory) = (Unit::new(8, ledger), Unit::new(8, ledger));
                retained.spilled.extend(writer.finish());
                in_memory.hold(ledger.try_reserve(PAGE_BYTES as u64).unwrap());
                in_memory.pages.push(Page::new(PAGE_BYTES, layout.bytes()));
                assert!(retained.holds_pages() && !retained.is_on_disk());
                let units = vec![in_memory, retained];
                let units = Units::new(units, layout, Some(spills), &context.cancel);
                if fails {
                    let rule = FaultRule::from(Operation::Write, 0, Fault::IO);
                    disk.set_faults(SimFaults::none().with(rule));
                }
                let giver = units.giver.as_ref().unwrap();
                assert_eq!(units.spill_some(giver).await, !fails);
                let (mut in_memory, mut retained) = (units.take().await, units.take().await);
                assert!(in_memory.check().is_ok());
                assert_eq!(retained.check().is_err(), fails);
                assert_eq!((retained.tuples() == 2, retained.is_on_disk()), (!fails, !fails));
            };
            runtime.spawn_on(0, work).wait().unwrap();
        }
    }
}
