//! The driver of a simulated disk, for one worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clock::{SPIN_NS, SimClock, make_sleeps_precise};
use super::disk::SimDisk;
use super::dma::Job;
use super::inbox::{Copied, Inbox};
use super::options::SimMode;
use super::random::Random;
use super::transfer::Transfer;
use crate::io::arena::Arena;
use crate::io::driver::{Completion, Driver, Notify, Request, Submitted};

/// What a reap that finds nothing takes in virtual time, so that coroutines which poll rather than
/// wait see their requests complete too.
const VIRTUAL_POLL_NS: u64 = 100;

/// Executes requests on a [`SimDisk`]. Several workers may share one disk, each with a driver.
pub(crate) struct SimDriver {
    disk: SimDisk,
    inbox: Arc<Inbox>,
    /// Submitted since the last flush.
    accepted: Vec<Request>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Modelled completion times with the number of the request and its slot, earliest first.
    due: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Slots whose time has come, but whose copy is not done.
    late: Vec<u32>,
    /// Copies that the DMA thread has not finished yet.
    copying: usize,
    in_flight: usize,
    requests: u64,
    random: Random,
    jobs: Vec<Job>,
    copied: Vec<Copied>,
}

struct Slot {
    key: u32,
    stage: Stage,
}

enum Stage {
    /// Performed when its time has come (virtual clock).
    Begun(Transfer),
    /// With the DMA thread (real clock).
    Copying,
    Copied(io::Result<usize>),
}

impl SimDriver {
    /// The driver of the worker with this number.
    ///
    /// # Errors
    /// The system's error if it has no threads left.
    pub(crate) fn new(disk: SimDisk, worker: usize) -> io::Result<SimDriver> {
        if disk.clock().kind == SimClock::Real {
            make_sleeps_precise();
            if disk.options().mode == SimMode::Async {
                disk.dma()?;
            }
        }
        let seed = disk.options().model.seed;
        Ok(SimDriver {
            disk,
            inbox: Arc::new(Inbox::default()),
            accepted: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            late: Vec::new(),
            copying: 0,
            in_flight: 0,
            requests: 0,
            random: Random::new(seed, 1_000_000 + worker as u64),
            jobs: Vec::new(),
            copied: Vec::new(),
        })
    }

    fn is_real(&self) -> bool {
        self.disk.clock().kind == SimClock::Real
    }

    /// Executes a request in place, which takes as long as the model says.
    fn execute(&mut self, request: Request) -> io::Result<usize> {
        let end = self.disk.schedule(&request, self.disk.clock().now_ns());
        let plan = self.disk.plan(&request);
        let result = Transfer::begin(request, plan).perform();
        self.disk.clock().pass_until(end);
        result
    }

    fn begin_accepted(&mut self) -> io::Result<()> {
        if self.accepted.is_empty() {
            return Ok(());
        }
        let now = self.disk.clock().now_ns();
        let mut accepted = std::mem::take(&mut self.accepted);
        for request in accepted.drain(..) {
            let end = self.disk.schedule(&request, now);
            let plan = self.disk.plan(&request);
            let transfer = Transfer::begin(request, plan);
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            });
            let key = transfer.key();
            let stage = if self.is_real() {
                self.jobs.push(Job { transfer, slot, inbox: self.inbox.clone() });
                Stage::Copying
            } else {
                Stage::Begun(transfer)
            };
            self.slots[slot as usize] = Some(Slot { key, stage });
            self.due.push(Reverse((end, self.requests, slot)));
            self.requests += 1;
        }
        self.accepted = accepted;
        if !self.jobs.is_empty() {
            self.copying += self.jobs.len();
            self.disk.dma()?.send(&mut self.jobs);
        }
        Ok(())
    }

    /// Notes which copies are done.
    fn collect_copied(&mut self) {
        if self.copying == 0 {
            return;
        }
        self.inbox.take_copied(&mut self.copied);
        self.copying -= self.copied.len();
        for (slot, result) in self.copied.drain(..) {
            let slot = self.slots[slot as usize].as_mut().expect("copied for a request");
            slot.stage = Stage::Copied(result);
        }
    }

    fn is_copying(&self, slot: u32) -> bool {
        let slot = self.slots[slot as usize].as_ref().expect("a slot in flight");
        matches!(slot.stage, Stage::Copying)
    }

    /// Moves what is due but still being copied out of the way.
    fn set_late_aside(&mut self, now: u64) {
        while let Some(Reverse((end, _, slot))) = self.due.peek().copied()
            && end <= now
            && self.is_copying(slot)
        {
            self.due.pop();
            self.late.push(slot);
            self.disk.count_late_copy();
        }
    }

    /// Takes the result of a request whose time has come.
    fn finish(&mut self, slot: u32) -> Completion {
        let Slot { key, stage } = self.slots[slot as usize].take().expect("a slot in flight");
        self.free.push(slot);
        self.in_flight -= 1;
        let powered = self.disk.is_powered();
        let result = match stage {
            Stage::Copying => unreachable!("not copied yet"),
            _ if !powered => Err(io::Error::from_raw_os_error(libc::EIO)),
            Stage::Begun(transfer) => transfer.perform(),
            Stage::Copied(result) => result,
        };
        Completion { key, result }
    }

    /// True if a reap would return something now.
    fn has_ready(&mut self, now: u64) -> bool {
        self.collect_copied();
        self.set_late_aside(now);
        self.due.peek().is_some_and(|Reverse((end, _, _))| *end <= now)
            || self.late.iter().any(|slot| !self.is_copying(*slot))
    }

    /// The next completion or the deadline, whichever comes first.
    fn next_event(&self, deadline: Option<Instant>) -> Option<u64> {
        let due = self.due.peek().map(|Reverse((end, _, _))| *end);
        let deadline = deadline.map(|deadline| self.disk.clock().ns_of(deadline));
        due.into_iter().chain(deadline).min()
    }

    fn wait_virtually(&mut self, deadline: Option<Instant>) {
        let now = self.disk.clock().now_ns();
        if self.has_ready(now) || self.inbox.take_ring() {
            return;
        }
        match self.next_event(deadline) {
            Some(event) => self.disk.clock().advance_to(event),
            None => {
                while !self.inbox.take_ring() {
                    self.inbox.sleep(None, false);
                }
            }
        }
    }

    fn wait_really(&mut self, deadline: Option<Instant>) {
        let deadline_ns = deadline.map(|deadline| self.disk.clock().ns_of(deadline));
        loop {
            let now = self.disk.clock().now_ns();
            if self.has_ready(now)
                || self.inbox.take_ring()
                || deadline_ns.is_some_and(|deadline| deadline <= now)
            {
                return;
            }
            let for_copy = !self.late.is_empty();
            let Some(event) = self.next_event(deadline) else {
                self.inbox.sleep(None, for_copy);
                continue;
            };
            let left = event.saturating_sub(now);
            if left > SPIN_NS {
                self.inbox.sleep(Some(Duration::from_nanos(left - SPIN_NS)), for_copy);
            } else {
                let called = || self.inbox.is_rung() || (for_copy && self.inbox.has_copied());
                while !called() && self.disk.clock().now_ns() < event {
                    hint::spin_loop();
                }
            }
        }
    }
}

impl Driver for SimDriver {
    fn submit(&mut self, request: Request) -> Submitted {
        if self.disk.options().mode == SimMode::Blocking {
            return Submitted::Done(self.execute(request));
        }
        if self.in_flight == self.disk.options().in_flight_max {
            return Submitted::Full;
        }
        self.in_flight += 1;
        self.accepted.push(request);
        Submitted::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        self.begin_accepted()
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let now = self.disk.clock().now_ns();
        let before = done.len();
        self.collect_copied();
        for slot in std::mem::take(&mut self.late) {
            match self.is_copying(slot) {
                true => self.late.push(slot),
                false => done.push(self.finish(slot)),
            }
        }
        loop {
            self.set_late_aside(now);
            match self.due.peek() {
                Some(Reverse((end, _, slot))) if *end <= now => {
                    let slot = *slot;
                    self.due.pop();
                    done.push(self.finish(slot));
                }
                _ => break,
            }
        }
        if self.disk.options().reorder {
            self.random.shuffle(&mut done[before..]);
        }
        if done.len() == before && !self.is_real() {
            self.disk.clock().advance_to(now + VIRTUAL_POLL_NS);
        }
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.begin_accepted()?;
        if self.is_real() {
            self.wait_really(deadline);
        } else {
            self.wait_virtually(deadline);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn notifier(&self) -> Arc<dyn Notify> {
        self.inbox.clone()
    }

    fn register(&mut self, _: &Arc<Arena>) -> bool {
        false
    }

    fn now(&self) -> Instant {
        self.disk.now()
    }
}

impl Drop for SimDriver {
    fn drop(&mut self) {
        // What was accepted has its effect; the modelled time need not pass. If the copying thread
        // cannot be had, nothing was handed to it either.
        self.begin_accepted().ok();
        while self.copying > 0 {
            self.collect_copied();
            if self.copying > 0 {
                self.inbox.sleep(None, true);
            }
        }
        while let Some(Reverse((_, _, slot))) = self.due.pop() {
            self.finish(slot);
        }
    }
}
