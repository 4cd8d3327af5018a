//! What goes wrong on a simulated disk, by schedule or by chance.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::file::SECTOR_BYTES;
use super::random::Random;
use crate::io::driver::Operation;

/// What can happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this errno and has no effect.
    Error(i32),
    /// A read or write transfers only some of its sectors of 512 bytes, but at least one. Requests
    /// of one sector are spared.
    Short,
    /// A crash before the next sync tears this write, for certain. Invisible otherwise.
    Torn,
    /// One bit of what is read is wrong.
    BitFlip,
}

impl Fault {
    /// The call was interrupted by a signal.
    pub const INTERRUPTED: Fault = Fault::Error(libc::EINTR);
    /// The device has no resources at the moment.
    pub const AGAIN: Fault = Fault::Error(libc::EAGAIN);
    /// The device failed.
    pub const IO: Fault = Fault::Error(libc::EIO);
}

/// When a fault happens, among the requests that its rule is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultWhen {
    /// To each with this probability.
    Chance(f64),
    /// To this one, counted from 0.
    Nth(u64),
    /// To this one, counted from 0, and all later ones.
    From(u64),
}

/// One fault and when it happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRule {
    /// Only to requests of this kind; to all if none.
    pub operation: Option<Operation>,
    /// When.
    pub when: FaultWhen,
    /// What.
    pub fault: Fault,
    /// Only to requests to files whose directory has this name; to all if none.
    pub directory: Option<&'static str>,
}

impl FaultRule {
    fn new(operation: Operation, when: FaultWhen, fault: Fault) -> FaultRule {
        FaultRule { operation: Some(operation), when, fault, directory: None }
    }

    /// The same, only to requests to files whose directory has this name.
    pub fn in_directory(self, name: &'static str) -> FaultRule {
        FaultRule { directory: Some(name), ..self }
    }

    fn is_about(&self, operation: Operation, path: &Path) -> bool {
        let is_in = |name: &str| {
            path.parent().and_then(Path::file_name).is_some_and(|directory| directory == name)
        };
        self.operation.is_none_or(|kind| kind == operation) && self.directory.is_none_or(is_in)
    }

    /// To the request number `n` of this kind, counted from 0.
    pub fn nth(operation: Operation, n: u64, fault: Fault) -> FaultRule {
        FaultRule::new(operation, FaultWhen::Nth(n), fault)
    }

    /// To the request number `n` of this kind, counted from 0, and to all later ones.
    pub fn from(operation: Operation, n: u64, fault: Fault) -> FaultRule {
        FaultRule::new(operation, FaultWhen::From(n), fault)
    }

    /// To each request of this kind with this probability.
    pub fn chance(operation: Operation, probability: f64, fault: Fault) -> FaultRule {
        FaultRule::new(operation, FaultWhen::Chance(probability), fault)
    }
}

/// What a crash makes of an unsynced write or directory change; kept with the remaining odds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrashOdds {
    /// Probability that nothing of it is found.
    pub lost: f64,
    /// Probability that each of its sectors may or may not be found.
    pub torn: f64,
}

/// Everything that goes wrong on a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct SimFaults {
    /// Faults of single requests.
    pub rules: Vec<FaultRule>,
    /// Bytes that fit on the disk, by the ends of its files; beyond, `ENOSPC`.
    pub capacity_bytes: Option<u64>,
    /// The power fails at the mutation with this number, counted from 0.
    pub power_fails_at: Option<u64>,
    /// What a crash makes of what is not durable.
    pub crash_odds: CrashOdds,
}

impl SimFaults {
    /// Nothing goes wrong.
    pub fn none() -> SimFaults {
        SimFaults {
            rules: Vec::new(),
            capacity_bytes: None,
            power_fails_at: None,
            crash_odds: CrashOdds { lost: 1.0 / 3.0, torn: 1.0 / 3.0 },
        }
    }

    /// With one more rule.
    pub fn with(mut self, rule: FaultRule) -> SimFaults {
        self.rules.push(rule);
        self
    }

    /// The disk holds only so many bytes.
    pub fn disk_full_after(mut self, bytes: u64) -> SimFaults {
        self.capacity_bytes = Some(bytes);
        self
    }

    /// Lets `n` mutations begin; at the next one the power fails: it and everything after it, and
    /// whatever is in flight, fails with `EIO`, and a crash may find any part of it on the disk.
    /// Mutations are writes, allocations, syncs and changes of directories, so that every point
    /// between two of them is reached by some `n`.
    pub fn crash_after_write(mut self, n: u64) -> SimFaults {
        self.power_fails_at = Some(n);
        self
    }
}

/// What is to happen to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// It reports this errno.
    pub(crate) error: Option<i32>,
    /// The power fails as it begins: it reports an error, but may reach the device.
    pub(crate) cut: bool,
    /// It transfers only so many bytes.
    pub(crate) bytes_max: Option<u64>,
    /// A crash tears it.
    pub(crate) torn: bool,
    /// Random number that picks the wrong bit.
    pub(crate) bit_flip: Option<u64>,
}

/// The faults of a disk at work.
#[derive(Debug)]
pub(crate) struct FaultState {
    /// Whether the schedule needs to be looked at for a request.
    scheduled: AtomicBool,
    powered: AtomicBool,
    mutations: AtomicU64,
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    faults: SimFaults,
    /// Requests that each rule has seen.
    seen: Vec<u64>,
    random: Random,
}

fn is_mutation(operation: Operation) -> bool {
    operation != Operation::Read
}

impl FaultState {
    pub(crate) fn new(faults: SimFaults, seed: u64) -> FaultState {
        let schedule =
            Schedule { faults: SimFaults::none(), seen: Vec::new(), random: Random::new(seed, 1) };
        let state = FaultState {
            scheduled: AtomicBool::new(false),
            powered: AtomicBool::new(true),
            mutations: AtomicU64::new(0),
            schedule: Mutex::new(schedule),
        };
        state.replace(faults);
        state
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts another schedule, with all counts at 0.
    pub(crate) fn replace(&self, faults: SimFaults) {
        let mut schedule = self.schedule();
        let scheduled = !faults.rules.is_empty() || faults.power_fails_at.is_some();
        schedule.seen = vec![0; faults.rules.len()];
        schedule.faults = faults;
        self.mutations.store(0, Ordering::Relaxed);
        self.scheduled.store(scheduled, Ordering::Relaxed);
    }

    pub(crate) fn capacity_bytes(&self) -> Option<u64> {
        self.schedule().faults.capacity_bytes
    }

    pub(crate) fn crash_odds(&self) -> CrashOdds {
        self.schedule().faults.crash_odds
    }

    /// Requests that each rule has been about since the schedule started.
    pub(crate) fn seen(&self) -> Vec<u64> {
        self.schedule().seen.clone()
    }

    /// Mutations since the schedule started.
    pub(crate) fn mutations(&self) -> u64 {
        self.mutations.load(Ordering::Relaxed)
    }

    pub(crate) fn is_powered(&self) -> bool {
        self.powered.load(Ordering::Acquire)
    }

    pub(crate) fn cut_power(&self) {
        self.powered.store(false, Ordering::Release);
    }

    /// Counts a mutation; false if the power is off, or fails with this very one (`cut`).
    fn count_mutation(&self, power_fails_at: Option<u64>, cut: &mut bool) -> bool {
        if !self.is_powered() {
            return false;
        }
        let number = self.mutations.fetch_add(1, Ordering::Relaxed);
        *cut = power_fails_at.is_some_and(|fails_at| number >= fails_at);
        if *cut {
            self.cut_power();
        }
        !*cut
    }

    /// A change of a directory begins. True if it is to be made, false if it may or may not be on
    /// the disk after a crash because the power failed at this moment.
    ///
    /// # Errors
    /// `EIO` if the power is off.
    pub(crate) fn plan_directory_change(&self) -> io::Result<bool> {
        let mut cut = false;
        if self.count_mutation(self.schedule().faults.power_fails_at, &mut cut) {
            Ok(true)
        } else if cut {
            Ok(false)
        } else {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }

    /// What is to happen to a request that begins now.
    pub(crate) fn plan(&self, operation: Operation, len: u64, path: &Path) -> Plan {
        let mut plan = Plan::default();
        let mut schedule = self.scheduled.load(Ordering::Relaxed).then(|| self.schedule());
        let fails_at = schedule.as_ref().and_then(|schedule| schedule.faults.power_fails_at);
        let powered = match is_mutation(operation) {
            true => self.count_mutation(fails_at, &mut plan.cut),
            false => self.is_powered(),
        };
        if !powered {
            plan.error = Some(libc::EIO);
        } else if let Some(schedule) = &mut schedule {
            schedule.draw(operation, len, path, &mut plan);
        }
        plan
    }
}

impl Schedule {
    fn draw(&mut self, operation: Operation, len: u64, path: &Path, plan: &mut Plan) {
        for (rule, seen) in self.faults.rules.iter().zip(&mut self.seen) {
            if !rule.is_about(operation, path) {
                continue;
            }
            let happens = match rule.when {
                FaultWhen::Nth(n) => *seen == n,
                FaultWhen::From(n) => *seen >= n,
                FaultWhen::Chance(probability) => self.random.chance(probability),
            };
            *seen += 1;
            if !happens {
                continue;
            }
            let transfers = matches!(operation, Operation::Read | Operation::Write);
            let sectors = len.div_ceil(SECTOR_BYTES);
            match rule.fault {
                Fault::Error(errno) => plan.error = Some(errno),
                Fault::Short if transfers && sectors > 1 => {
                    plan.bytes_max = Some((1 + self.random.below(sectors - 1)) * SECTOR_BYTES);
                }
                Fault::Torn => plan.torn = true,
                Fault::BitFlip => plan.bit_flip = Some(self.random.next()),
                Fault::Short => {}
            }
        }
    }
}
