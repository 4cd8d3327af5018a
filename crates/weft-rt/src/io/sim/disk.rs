//! A simulated disk: files in memory on devices that follow a model.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use super::clock::Clock;
use super::content::{CONTENT_BYTES_MAX, Content};
use super::directory::Directory;
use super::dma::Dma;
use super::faults::{FaultState, Plan, SimFaults};
use super::file::SimFile;
use super::model::DeviceTiming;
use super::options::SimOptions;
use super::placement::Placement;
use super::random::Random;
use crate::io::driver::{Operation, Request};
use crate::io::file::{Backing, File};

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// An array of simulated devices and the files on it; clones share it.
///
/// Its drivers also serve the operating system's files: the bytes are the file's, the time that a
/// request takes is the model's. Faults of single requests apply to them, the disk's capacity and
/// [`crash`](SimDisk::crash) do not.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    id: u64,
    options: SimOptions,
    clock: Clock,
    devices: Vec<Mutex<DeviceTiming>>,
    faults: FaultState,
    directory: Mutex<Directory>,
    allocated_bytes: Arc<Mutex<u64>>,
    dma: OnceLock<Dma>,
    late_copies: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn power_lost() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl SimDisk {
    /// An empty disk.
    ///
    /// # Panics
    /// If the options contradict themselves: a model that no device could follow, or a stripe or
    /// limit of 0.
    pub fn new(options: SimOptions) -> SimDisk {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        SimDisk::with_directory(id, options, Directory::default(), 0)
    }

    fn with_directory(
        id: u64,
        options: SimOptions,
        directory: Directory,
        allocated_bytes: u64,
    ) -> SimDisk {
        let model = &options.model;
        model.check();
        assert!(options.stripe_bytes > 0, "stripes of 0 bytes");
        assert!(options.in_flight_max > 0, "a driver that accepts nothing");
        let devices = (0..model.devices).map(|at| Mutex::new(DeviceTiming::new(model, at)));
        let shared = Shared {
            id,
            clock: Clock::new(options.clock),
            devices: devices.collect(),
            faults: FaultState::new(options.faults.clone(), model.seed),
            directory: Mutex::new(directory),
            allocated_bytes: Arc::new(Mutex::new(allocated_bytes)),
            dma: OnceLock::new(),
            late_copies: AtomicU64::new(0),
            options,
        };
        SimDisk { shared: Arc::new(shared) }
    }

    /// The disk's settings; faults as they were at first.
    pub fn options(&self) -> &SimOptions {
        &self.shared.options
    }

    /// The time on the disk's clock.
    pub fn now(&self) -> Instant {
        self.clock().instant(self.clock().now_ns())
    }

    /// Replaces the faults; all counts start at 0. The power stays as it is.
    pub fn set_faults(&self, faults: SimFaults) {
        self.shared.faults.replace(faults);
    }

    /// How many requests each rule has been about since the faults were set, in the order of the rules: the numbers for which
    /// [`FaultRule::nth`](super::FaultRule::nth) makes a difference.
    pub fn requests_seen(&self) -> Vec<u64> {
        self.shared.faults.seen()
    }

    /// Writes, allocations, syncs and changes of directories begun since the faults were set: the
    /// numbers for which [`SimFaults::crash_after_write`] makes a difference.
    pub fn mutations(&self) -> u64 {
        self.shared.faults.mutations()
    }

    /// Bytes allocated, by the ends of the files, of those without names as long as they are open.
    pub fn allocated_bytes(&self) -> u64 {
        *lock(&self.shared.allocated_bytes)
    }

    /// Requests that were complete by the model before the copying thread was done with them (real
    /// clock). Where it is more than a few of a benchmark's requests, the machine's own memory set
    /// the speed and not the model: use a slower model.
    pub fn late_copies(&self) -> u64 {
        self.shared.late_copies.load(Ordering::Relaxed)
    }

    pub(crate) fn count_late_copy(&self) {
        self.shared.late_copies.fetch_add(1, Ordering::Relaxed);
    }

    /// A new file of `len` zeros, striped over all devices. Its name is volatile until
    /// [`sync_directory`](SimDisk::sync_directory); its zeros are not.
    ///
    /// # Errors
    /// `AlreadyExists`; `ENOSPC` or `EFBIG` if it does not fit; `EIO` if the power is off.
    pub fn create(&self, name: impl AsRef<Path>, len: u64) -> io::Result<File> {
        self.create_on(name, len, self.placement())
    }

    /// The same with a chosen placement, for example one data file per device.
    ///
    /// # Errors
    /// As for [`create`](SimDisk::create).
    ///
    /// # Panics
    /// If the placement names devices that the disk does not have, or stripes of 0 bytes.
    pub fn create_on(
        &self,
        name: impl AsRef<Path>,
        len: u64,
        placement: Placement,
    ) -> io::Result<File> {
        self.insert(name.as_ref(), Content::zeroed(len)?, placement)
    }

    /// A new file with the bytes of the operating system's file at `path`, striped over all
    /// devices.
    ///
    /// # Errors
    /// As for [`create`](SimDisk::create), and those of reading `path`.
    pub fn load_from(&self, name: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<File> {
        let content = Content::read_from(fs::File::open(path)?)?;
        self.insert(name.as_ref(), content, self.placement())
    }

    fn placement(&self) -> Placement {
        Placement::striped(self.shared.devices.len(), self.options().stripe_bytes)
    }

    fn insert(&self, name: &Path, content: Content, placement: Placement) -> io::Result<File> {
        let end = placement.first_device + placement.devices;
        assert!(
            placement.devices > 0 && placement.stripe_bytes > 0 && end <= self.shared.devices.len(),
            "{placement:?} on an array of {} devices",
            self.shared.devices.len(),
        );
        let made = self.shared.faults.plan_directory_change()?;
        let len = content.len();
        let file = SimFile::new(self.shared.id, placement, content, self.options().volatile_writes);
        let file = Arc::new(file);
        if !self.take_space(len) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        if let Err(error) = lock(&self.shared.directory).create(name, file.clone()) {
            self.give_space(len);
            return Err(error);
        }
        if made { Ok(File::simulated(name.to_path_buf(), file)) } else { Err(power_lost()) }
    }

    /// A new, empty file without a name, striped over all devices: it is gone when it is closed. `label` is what errors call it.
    ///
    /// # Errors
    /// `EIO` if the power is off.
    pub fn create_unnamed(&self, label: impl AsRef<Path>) -> io::Result<File> {
        if !self.shared.faults.plan_directory_change()? {
            return Err(power_lost());
        }
        let (content, placement) = (Content::zeroed(0)?, self.placement());
        let file = SimFile::new(self.shared.id, placement, content, self.options().volatile_writes);
        let file = file.counted_while_open(self.shared.allocated_bytes.clone());
        Ok(File::simulated(label.as_ref().to_path_buf(), Arc::new(file)))
    }

    /// A handle on an existing file.
    ///
    /// # Errors
    /// `NotFound`; `EIO` if the power is off.
    pub fn open(&self, name: impl AsRef<Path>) -> io::Result<File> {
        self.check_power()?;
        let name = name.as_ref();
        let file = lock(&self.shared.directory).get(name)?;
        Ok(File::simulated(name.to_path_buf(), file))
    }

    /// Gives a file another name, in place of the file that has it, if any. Volatile until the
    /// directory of the new name is synced.
    ///
    /// # Errors
    /// `NotFound`; `EIO` if the power is off.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let made = self.shared.faults.plan_directory_change()?;
        let replaced = lock(&self.shared.directory).rename(from.as_ref(), to.as_ref())?;
        if let Some(file) = replaced {
            self.release(&file);
        }
        if made { Ok(()) } else { Err(power_lost()) }
    }

    /// Removes a name; open handles keep the file. Volatile until the directory is synced.
    ///
    /// # Errors
    /// `NotFound`; `EIO` if the power is off.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let made = self.shared.faults.plan_directory_change()?;
        let file = lock(&self.shared.directory).remove(name.as_ref())?;
        self.release(&file);
        if made { Ok(()) } else { Err(power_lost()) }
    }

    /// The names of the files in `directory` itself, in order; of the top with `""`.
    ///
    /// # Errors
    /// `EIO` if the power is off.
    pub fn list(&self, directory: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
        self.check_power()?;
        Ok(lock(&self.shared.directory).list(directory.as_ref()))
    }

    /// Makes the creations, renames and removals in `directory` durable; those at the top with
    /// `""`. The bytes of the files are another matter: they need a sync of each file.
    ///
    /// # Errors
    /// `EIO` if the power is off.
    pub fn sync_directory(&self, directory: impl AsRef<Path>) -> io::Result<()> {
        if !self.shared.faults.plan_directory_change()? {
            return Err(power_lost());
        }
        lock(&self.shared.directory).sync(directory.as_ref());
        Ok(())
    }

    /// The disk as it is found after a loss of power at this moment, which `seed` determines: what
    /// was synced is there; of the rest, each write is lost, kept or torn, each change of a
    /// directory lost or kept. The new disk has the same options but no faults; this one is off.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let faults = &self.shared.faults;
        faults.cut_power();
        let odds = faults.crash_odds();
        let mut random = Random::new(seed, 2);
        let options = SimOptions { faults: SimFaults::none(), ..self.options().clone() };
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let found = lock(&self.shared.directory).after_crash(odds.lost, &mut random);
        let mut allocated_bytes = 0;
        let files = found.into_iter().map(|(name, file)| {
            let content = file.after_crash(odds, &mut random);
            allocated_bytes += content.len();
            let file = SimFile::new(id, file.placement(), content, options.volatile_writes);
            (name, Arc::new(file))
        });
        let directory = Directory::of(files.collect());
        SimDisk::with_directory(id, options, directory, allocated_bytes)
    }

    fn check_power(&self) -> io::Result<()> {
        if self.is_powered() { Ok(()) } else { Err(power_lost()) }
    }

    /// False from the power failure on.
    pub(crate) fn is_powered(&self) -> bool {
        self.shared.faults.is_powered()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The thread that copies in the background; started by the first call.
    ///
    /// # Errors
    /// The system's error if it has no threads left.
    pub(crate) fn dma(&self) -> io::Result<&Dma> {
        if self.shared.dma.get().is_none() {
            // Of two that race here one is superfluous, and ends at once.
            self.shared.dma.set(Dma::start()?).ok();
        }
        Ok(self.shared.dma.get().expect("just set"))
    }

    /// Takes `bytes` of the capacity; false if there are not as many left.
    fn take_space(&self, bytes: u64) -> bool {
        self.take_of(&mut lock(&self.shared.allocated_bytes), bytes)
    }

    fn take_of(&self, allocated: &mut u64, bytes: u64) -> bool {
        let capacity = self.shared.faults.capacity_bytes().unwrap_or(u64::MAX);
        let fits = allocated.checked_add(bytes).filter(|total| *total <= capacity);
        *allocated = fits.unwrap_or(*allocated);
        fits.is_some()
    }

    /// Takes what a file needs of the capacity to end at `end`; false if there is not as much left.
    fn lengthen(&self, file: &SimFile, end: u64) -> bool {
        // Held meanwhile, as requests that lengthen the same file come at once.
        let mut allocated = lock(&self.shared.allocated_bytes);
        let growth = file.growth(end);
        if growth == 0 {
            return true;
        }
        let fits = self.take_of(&mut allocated, growth);
        if fits {
            file.allocated_end.store(end, Ordering::Relaxed);
        }
        fits
    }

    fn give_space(&self, bytes: u64) {
        *lock(&self.shared.allocated_bytes) -= bytes;
    }

    fn release(&self, file: &SimFile) {
        if !file.unlinked.swap(true, Ordering::Relaxed) {
            self.give_space(file.allocated_end.load(Ordering::Relaxed));
        }
    }

    /// What is to happen to a request that begins now.
    pub(crate) fn plan(&self, request: &Request) -> Plan {
        // A vectored read is one read.
        let operation = match request.operation {
            Operation::ReadVectored => Operation::Read,
            other => other,
        };
        let mut plan = self.shared.faults.plan(operation, request.len, request.file.path());
        let Backing::Sim(file) = request.file.backing() else { return plan };
        if file.disk() != self.shared.id {
            // A handle from before a crash, or of another disk.
            plan = Plan { error: Some(libc::ESTALE), ..Plan::default() };
        }
        let grows = matches!(request.operation, Operation::Write | Operation::Allocate);
        if grows && plan.error.is_none() {
            let end = request.offset.saturating_add(request.len);
            if end > CONTENT_BYTES_MAX {
                plan.error = Some(libc::EFBIG);
                return plan;
            }
            if !self.lengthen(file, end) {
                plan.error = Some(libc::ENOSPC);
            }
        }
        plan
    }

    /// When a request that begins at `now_ns` is complete, as the model has it.
    pub(crate) fn schedule(&self, request: &Request, now_ns: u64) -> u64 {
        let model = &self.options().model;
        let placement = match request.file.backing() {
            Backing::Sim(file) => file.placement(),
            Backing::Os(_) => self.placement(),
        };
        let (latency, len) = match request.operation {
            Operation::Read | Operation::ReadVectored => (model.read_latency, request.len),
            Operation::Write => (model.write_latency, request.len),
            Operation::Sync | Operation::Allocate => (model.write_latency, 0),
        };
        let mut end = now_ns;
        placement.for_each_piece(request.offset, len, |device, bytes| {
            // A handle of another disk may name devices that this one does not have.
            let device = &self.shared.devices[device % self.shared.devices.len()];
            end = end.max(lock(device).schedule(model, now_ns, latency, bytes));
        });
        end
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({} devices)", self.shared.devices.len())
    }
}
