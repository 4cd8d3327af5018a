//! Who uses which part of the data files.
//!
//! What is free when a database is opened is what its manifest does not name, so that nothing is lost by a
//! crash. From then on: an [`Allocation`] gives its space back when it is dropped, unless it was committed;
//! space that a commit frees waits until every snapshot from before it is gone.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use weft_rt::io::{File, FileError};
use weft_rt::memory::Ledger;

use crate::error::{Result, StoreError, is_no_space, is_unsupported};
use crate::extent::{Extent, FreeSet, UNIT_BYTES, UNITS_MAX};

/// Files grow by an eighth, but by at least and at most so many units.
const GROW_UNITS: (u64, u64) = ((1 << 20) / UNIT_BYTES, (256 << 20) / UNIT_BYTES);

/// One data file and what is free in it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) file: File,
    /// Written to since the last sync.
    dirty: AtomicBool,
    state: Mutex<DeviceState>,
    /// One grows the file at a time: a budget of 1.
    growing: Ledger,
}

#[derive(Debug)]
struct DeviceState {
    free: FreeSet,
    end: u64,
}

impl Device {
    /// A device with `live` extents, sorted and disjoint, and everything else free.
    pub(crate) fn new(file: File, live: &[Extent]) -> Result<Device> {
        let end = file.size()? / UNIT_BYTES;
        let mut free = FreeSet::default();
        let mut at = 1;
        for extent in live {
            if extent.start > at {
                free.insert(at, extent.start - at);
            }
            at = extent.end();
        }
        if end > at {
            free.insert(at, end - at);
        }
        let state = Mutex::new(DeviceState { free, end });
        Ok(Device { file, dirty: AtomicBool::new(false), state, growing: Ledger::new(1) })
    }

    fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something was written.
    pub(crate) fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Makes everything written so far durable, if anything was.
    pub(crate) async fn sync(&self) -> Result<()> {
        if self.dirty.swap(false, Ordering::AcqRel) {
            self.file.sync().await?;
        }
        Ok(())
    }

    /// Takes `units` in a row; the file grows if they are not free.
    async fn take(&self, units: u64) -> Result<u64> {
        if let Some(start) = self.state().free.take(units) {
            return Ok(start);
        }
        let _growing = self.growing.reserve(1).await?;
        loop {
            // Somebody else may have grown the file meanwhile,
            if let Some(start) = self.state().free.take(units) {
                return Ok(start);
            }
            if let Err(error) = self.grow(units).await {
                // or given something back.
                return self.state().free.take(units).ok_or(error);
            }
        }
    }

    /// Lengthens the file so that its end has `units` free units.
    async fn grow(&self, units: u64) -> Result<()> {
        let (end, tail) = {
            let state = self.state();
            (state.end, state.free.tail(state.end))
        };
        let needed = units - tail.min(units);
        if needed == 0 {
            // It was given back just now.
            return Ok(());
        }
        let step = (end / 8).clamp(GROW_UNITS.0, GROW_UNITS.1).max(needed);
        let fits = |added: u64| {
            let grows = !self.file.is_block_device();
            grows && end.checked_add(added).is_some_and(|end| end <= UNITS_MAX)
        };
        let mut last = None;
        // A device that is nearly full may have room for what is needed and no more.
        for added in [step, needed] {
            if !fits(added) {
                continue;
            }
            match self.file.allocate(end * UNIT_BYTES, added * UNIT_BYTES).await {
                Err(error) if is_no_space(&error) => last = Some(error),
                Err(error) if !is_unsupported(&error) => return Err(error.into()),
                // Where the system does not help, space is taken when it is written to.
                _ => {
                    let mut state = self.state();
                    state.free.insert(end, added);
                    state.end = end + added;
                    return Ok(());
                }
            }
        }
        let source = last.unwrap_or_else(|| self.no_room(end, needed));
        Err(StoreError::DiskFull {
            path: self.file.path().into(),
            needed_bytes: needed * UNIT_BYTES,
            source: Box::new(source),
        })
    }

    /// What the system would say if it was asked for units from `end` on that there cannot be.
    fn no_room(&self, end: u64, units: u64) -> FileError {
        FileError::Transfer {
            operation: "allocate",
            path: self.file.path().into(),
            offset: end * UNIT_BYTES,
            len: units * UNIT_BYTES,
            source: match self.file.is_block_device() {
                true => ErrorKind::StorageFull.into(),
                false => ErrorKind::FileTooLarge.into(),
            },
        }
    }
}

/// The space of all devices.
#[derive(Debug)]
pub(crate) struct Space {
    devices: RwLock<Vec<Arc<Device>>>,
    next: AtomicUsize,
    /// Bytes written to all devices.
    written: AtomicU64,
    snapshots: Mutex<Snapshots>,
}

/// Which generations are looked at, and what waits for them.
#[derive(Debug, Default)]
struct Snapshots {
    pins: BTreeMap<u64, usize>,
    /// Extents by the generation that no longer has them.
    freed: BTreeMap<u64, Vec<Extent>>,
}

impl Space {
    pub(crate) fn new(devices: Vec<Device>) -> Arc<Space> {
        let devices = devices.into_iter().map(Arc::new).collect();
        Arc::new(Space {
            devices: RwLock::new(devices),
            next: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            snapshots: Mutex::default(),
        })
    }

    fn snapshots(&self) -> MutexGuard<'_, Snapshots> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn device(&self, number: u8) -> Option<Arc<Device>> {
        let devices = self.devices.read().unwrap_or_else(PoisonError::into_inner);
        devices.get(usize::from(number)).cloned()
    }

    pub(crate) fn add_device(&self, device: Device) {
        let mut devices = self.devices.write().unwrap_or_else(PoisonError::into_inner);
        devices.push(Arc::new(device));
    }

    /// Counts `bytes` as written.
    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes of all data files.
    pub(crate) fn bytes(&self) -> u64 {
        self.devices().iter().map(|device| device.state().end * UNIT_BYTES).sum()
    }

    /// Bytes that nobody uses, in all data files.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.devices().iter().map(|device| device.state().free.units() * UNIT_BYTES).sum()
    }

    /// Takes `units` in a row on the device whose turn it is; on another one if that is full.
    pub(crate) async fn allocate(self: &Arc<Self>, units: u64) -> Result<Allocation> {
        let devices = self.devices();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut full = None;
        for turn in 0..devices.len() {
            let number = first.wrapping_add(turn) % devices.len();
            match devices[number].take(units).await {
                Ok(start) => {
                    let extent = Extent { device: number as u8, start, units };
                    return Ok(Allocation::new(self, extent));
                }
                Err(error) if error.is_disk_full() => full = full.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(full.expect("a database has a device"))
    }

    /// Takes up to `most` units in a row of what is free of one device now, if they are `least`; it does not grow.
    pub(crate) fn take_free(
        self: &Arc<Self>,
        device: u8,
        (least, most): (u64, u64),
    ) -> Option<Allocation> {
        let (start, units) = self.device(device)?.state().free.take_some(least, most)?;
        let extent = Extent { device, start, units };
        Some(Allocation::new(self, extent))
    }

    /// Units of a device that are free.
    pub(crate) fn free_units(&self, device: u8) -> u64 {
        self.device(device).map_or(0, |device| device.state().free.units())
    }

    /// The error where so many units of a block device are wanted, and not free.
    ///
    /// # Panics
    /// If there is no such device.
    pub(crate) fn no_room(&self, device: u8, units: u64) -> FileError {
        let device = self.device(device).expect("a device of the database");
        let end = device.state().end;
        device.no_room(end, units)
    }

    fn release(&self, extent: Extent) {
        if let Some(device) = self.device(extent.device) {
            device.state().free.insert(extent.start, extent.units);
        }
    }

    /// Notes that generation `generation` no longer has these extents.
    pub(crate) fn free_after(&self, generation: u64, extents: Vec<Extent>) {
        self.snapshots().freed.entry(generation).or_default().extend(extents);
        self.reclaim();
    }

    /// Keeps the space of a generation from being reused.
    pub(crate) fn pin(self: &Arc<Self>, generation: u64) -> Pin {
        *self.snapshots().pins.entry(generation).or_default() += 1;
        Pin { space: self.clone(), generation }
    }

    /// Releases what no generation that is looked at has.
    fn reclaim(&self) {
        let mut reusable = Vec::new();
        let mut snapshots = self.snapshots();
        let oldest = snapshots.pins.keys().next().copied().unwrap_or(u64::MAX);
        while let Some(entry) = snapshots.freed.first_entry()
            && *entry.key() <= oldest
        {
            reusable.extend(entry.remove());
        }
        drop(snapshots);
        reusable.into_iter().for_each(|extent| self.release(extent));
    }
}

/// Space that was taken, and goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    space: Arc<Space>,
    extent: Extent,
    is_kept: AtomicBool,
}

impl Allocation {
    fn new(space: &Arc<Space>, extent: Extent) -> Allocation {
        Allocation { space: space.clone(), extent, is_kept: AtomicBool::new(false) }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Leaves the space to the database, which names it from now on.
    pub(crate) fn keep(&self) -> Extent {
        self.is_kept.store(true, Ordering::Release);
        self.extent
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !*self.is_kept.get_mut() {
            self.space.release(self.extent);
        }
    }
}

/// A generation that somebody looks at.
#[derive(Debug)]
pub(crate) struct Pin {
    space: Arc<Space>,
    generation: u64,
}

impl Clone for Pin {
    fn clone(&self) -> Pin {
        self.space.pin(self.generation)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut snapshots = self.space.snapshots();
        let count = snapshots.pins.get_mut(&self.generation).expect("pinned");
        *count -= 1;
        let last = *count == 0;
        if last {
            snapshots.pins.remove(&self.generation);
        }
        drop(snapshots);
        if last {
            self.space.reclaim();
        }
    }
}
