//! The spill area: pieces of memory go to disk and come back.
//!
//! A piece begins with a header of [`HEADER_BYTES`], in which the area writes what it checks the piece by when it is read:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 3 | CRC-32C of all that follows |
//! | 4 to 7 | 0 |
//! | 8 to 15 | the address: device, offset and size |
//! | 16 to 23 | if it is compressed: bytes of what follows |

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use weft_buffer::page::checksum;
use weft_rt::io::{File, IoBuf};
use weft_rt::{JoinHandle, spawn_local, transfers, woke_at};

use super::address::{Address, PIECE_UNITS_MAX};
use super::meter::{Meter, Moment, OnItsWay, Rate};
use super::place::SpillPlace;
use super::scheme::{LEVELS, Levels, Scheme};
use super::spill_file::{Quota, SpillFile};
use super::thread_time::thread_time;
use crate::device::DEVICES_MAX;
use crate::error::{Result, StoreError, is_no_space};
use crate::extent::{Extent, UNIT_BYTES};

/// Bytes at the front of a piece that are the area's.
pub const HEADER_BYTES: usize = 16;

/// Where the body of a compressed piece begins.
const BODY_AT: usize = HEADER_BYTES + 8;

/// Of the memory that pieces are compressed to, what a thread keeps for the next one.
const BODY_KEPT_BYTES: usize = 256 << 10;

thread_local! {
    /// Processor time in which this thread has compressed pieces.
    static COMPRESSING: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// Where a piece is compressed to, before it is known how long it will be.
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A place on disk for what does not fit in memory. Clones are the same area.
#[derive(Clone, Debug)]
pub struct SpillArea {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// A file for each device, by its number; devices may join.
    files: RwLock<Vec<Arc<SpillFile>>>,
    quota: Quota,
    /// The file that the next piece goes to, if it has room.
    next: AtomicUsize,
    used_bytes: AtomicU64,
    written_bytes: AtomicU64,
    raw_bytes: AtomicU64,
    level_bytes: [AtomicU64; LEVELS],
    read_bytes: AtomicU64,
    /// What all workers had moved when the last piece had been.
    moved_bytes: AtomicU64,
    compression: Costs,
    decompression: Costs,
    writes: Meter,
    reads: Meter,
}

impl Shared {
    /// A piece has ended well: when its worker woke if it slept until then, nobody knows when otherwise.
    fn end(&self, piece: OnItsWay<'_>, bytes: u64) {
        let moved = transfers();
        piece.end(bytes, woke_at().map(|at| Moment { at, moved }));
        self.moved_bytes.fetch_max(moved.bytes, Ordering::Relaxed);
    }
}

/// Bytes, before compression, that were compressed or came back, and the processor time that it took.
#[derive(Debug, Default)]
struct Costs {
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Costs {
    /// Does what it counts for so many bytes.
    fn count<T>(&self, bytes: usize, compute: impl FnOnce() -> T) -> (T, Duration) {
        let began = thread_time();
        let result = compute();
        let took = thread_time().saturating_sub(began);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        (result, took)
    }

    fn get(&self) -> SpillCosts {
        SpillCosts {
            bytes: self.bytes.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

/// What an area has and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Bytes of the pieces that it holds.
    pub used_bytes: u64,
    /// Bytes that it has on disk, used or not.
    pub file_bytes: u64,
    /// Bytes that were written to it.
    pub written_bytes: u64,
    /// Bytes that these were before they were compressed.
    pub raw_bytes: u64,
    /// The same by how they were compressed.
    pub level_bytes: Levels,
    /// Bytes that were read from it.
    pub read_bytes: u64,
    /// What compressing took.
    pub compression: SpillCosts,
    /// What it took to get what was compressed back.
    pub decompression: SpillCosts,
}

/// What compression costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillCosts {
    /// Bytes, as they were before compression. Those that it did not make smaller count.
    pub bytes: u64,
    /// Processor time.
    pub time: Duration,
}

/// How fast the devices of an area are, as far as they were busy of late; `None` if they never were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpillRates {
    /// To disk.
    pub written: Option<Rate>,
    /// From there.
    pub read: Option<Rate>,
    /// All that was moved so far.
    pub moved: Moved,
}

/// Bytes that were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// By all workers, whatever for, when the last piece of the area had been.
    pub all_bytes: u64,
    /// Of those, what was written to the area.
    pub written_bytes: u64,
    /// And what was read from there.
    pub read_bytes: u64,
    /// What was written, before it was compressed.
    pub raw_bytes: u64,
}

impl Moved {
    /// What was moved since.
    pub fn since(self, before: Moved) -> Moved {
        Moved {
            all_bytes: self.all_bytes.saturating_sub(before.all_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            raw_bytes: self.raw_bytes.saturating_sub(before.raw_bytes),
        }
    }
}

/// A piece on disk. Its space is free again when this is dropped.
#[derive(Debug)]
pub struct Spilled {
    area: SpillArea,
    /// Its device's file, and what that is on disk.
    of: Arc<SpillFile>,
    file: File,
    address: Address,
    /// Bytes of the piece in memory.
    raw_bytes: usize,
    /// How it was compressed, if it was.
    scheme: Scheme,
    /// A device may still write to its place.
    is_on_its_way: bool,
}

/// What became of a write.
#[derive(Debug)]
pub struct Written<K = ()> {
    /// The piece, if all went well.
    pub spilled: Result<Spilled>,
    /// Processor time that it took to compress it.
    pub compressing: Duration,
    /// What was to be kept until the piece is gone, if nobody looks after the write.
    pub kept: K,
}

impl SpillArea {
    /// An area in these places, of which it may take `limit_bytes` together. Nothing is made before it is needed.
    ///
    /// # Panics
    /// If there are no places, or more than devices can be told apart.
    pub fn new(places: Vec<impl Into<SpillPlace>>, limit_bytes: u64) -> SpillArea {
        assert!((1..=DEVICES_MAX).contains(&places.len()), "places");
        let quota =
            Quota { limit_bytes: AtomicU64::new(limit_bytes), taken_bytes: AtomicU64::new(0) };
        let shared = Shared {
            files: RwLock::new(places.into_iter().map(new_file).collect()),
            quota,
            next: AtomicUsize::new(0),
            used_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            raw_bytes: AtomicU64::new(0),
            level_bytes: Default::default(),
            read_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            compression: Costs::default(),
            decompression: Costs::default(),
            writes: Meter::default(),
            reads: Meter::default(),
        };
        SpillArea { shared: Arc::new(shared) }
    }

    /// One more place, which pieces go to from now on; none if there are as many as devices can be told apart.
    pub fn add(&self, place: impl Into<SpillPlace>) {
        let mut files = self.shared.files.write().unwrap_or_else(PoisonError::into_inner);
        if files.len() < DEVICES_MAX {
            files.push(new_file(place));
        }
    }

    /// The files of all devices.
    fn files(&self) -> Vec<Arc<SpillFile>> {
        self.shared.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes how much its files may take. What they have they keep as long as it is used.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.shared.quota.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// What it has and has done.
    pub fn stats(&self) -> SpillStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpillStats {
            used_bytes: count(&self.shared.used_bytes),
            file_bytes: count(&self.shared.quota.taken_bytes),
            written_bytes: count(&self.shared.written_bytes),
            raw_bytes: count(&self.shared.raw_bytes),
            level_bytes: std::array::from_fn(|level| count(&self.shared.level_bytes[level])),
            read_bytes: count(&self.shared.read_bytes),
            compression: self.shared.compression.get(),
            decompression: self.shared.decompression.get(),
        }
    }

    /// How fast its devices are.
    pub fn rates(&self) -> SpillRates {
        let Shared { writes, reads, .. } = &*self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let moved = Moved {
            all_bytes: count(&self.shared.moved_bytes),
            written_bytes: count(&self.shared.written_bytes),
            read_bytes: count(&self.shared.read_bytes),
            raw_bytes: count(&self.shared.raw_bytes),
        };
        SpillRates { written: writes.rate(), read: reads.rate(), moved }
    }

    /// Writes a piece, compressed by a scheme where that makes it smaller, by a task of its own on this worker, which goes on if nobody waits for it, so that its place is not
    /// given to others before. `held` is dropped when the write has ended, whoever looks after it. What lies in the first
    /// [`HEADER_BYTES`] is replaced.
    ///
    /// What is written is an error of [`StoreError::SpillLimit`] or [`StoreError::SpillFull`] if there is no room, and of
    /// [`StoreError::SpillFailed`] if the device fails.
    ///
    /// # Panics
    /// If this is no worker; if the length is no multiple of 4 KiB, or beyond 4 GiB.
    pub fn write<H: 'static>(&self, buffer: IoBuf, scheme: Scheme, held: H) -> JoinHandle<Written> {
        self.write_keeping(buffer, scheme, held, ())
    }

    /// As [`SpillArea::write`]; `kept` is dropped later than the piece if nobody looks after the write.
    ///
    /// # Panics
    /// As [`SpillArea::write`].
    pub fn write_keeping<H: 'static, K: 'static>(
        &self,
        buffer: IoBuf,
        scheme: Scheme,
        held: H,
        kept: K,
    ) -> JoinHandle<Written<K>> {
        let area = self.clone();
        spawn_local(async move {
            let (buffer, raw_bytes, scheme, compressing) = area.compress(buffer, scheme);
            let spilled = area.write_now(buffer, raw_bytes, scheme).await;
            drop(held);
            Written { spilled, compressing, kept }
        })
    }

    /// What is to be written for a piece, its length, how it was compressed, and the time that it took.
    fn compress(&self, raw: IoBuf, scheme: Scheme) -> (IoBuf, usize, Scheme, Duration) {
        let raw_bytes = raw.len();
        assert!((raw_bytes as u64).is_multiple_of(UNIT_BYTES), "a piece of {raw_bytes} bytes");
        assert!(raw_bytes as u64 / UNIT_BYTES <= PIECE_UNITS_MAX, "a piece of {raw_bytes} bytes");
        if scheme == Scheme::Off {
            return (raw, raw_bytes, scheme, Duration::ZERO);
        }
        let compress = || compressed(&raw, scheme);
        let (compressed, took) = self.shared.compression.count(raw_bytes, compress);
        COMPRESSING.set(COMPRESSING.get() + took);
        match compressed {
            Some(buffer) => (buffer, raw_bytes, scheme, took),
            None => (raw, raw_bytes, Scheme::Off, took),
        }
    }

    async fn write_now(
        &self,
        mut buffer: IoBuf,
        raw_bytes: usize,
        scheme: Scheme,
    ) -> Result<Spilled> {
        let bytes = buffer.len() as u64;
        let mut spilled = self.take(bytes / UNIT_BYTES).await?;
        (spilled.raw_bytes, spilled.scheme) = (raw_bytes, scheme);
        let extent = spilled.address.extent();
        buffer[..8].fill(0);
        buffer[8..16].copy_from_slice(&spilled.address.bits().to_le_bytes());
        let crc = checksum(&buffer[4..]);
        buffer[..4].copy_from_slice(&crc.to_le_bytes());
        let on_its_way = self.shared.writes.begin(Moment::now());
        spilled.is_on_its_way = true;
        let (result, _) = spilled.file.write(buffer, extent.offset()).await;
        spilled.is_on_its_way = false;
        match result {
            Ok(_) => {
                self.shared.end(on_its_way, bytes);
                self.shared.written_bytes.fetch_add(bytes, Ordering::Relaxed);
                self.shared.raw_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
                let of_level = &self.shared.level_bytes[spilled.scheme.level()];
                of_level.fetch_add(raw_bytes as u64, Ordering::Relaxed);
                Ok(spilled)
            }
            Err(error) if is_no_space(&error) => Err(spilled.of.full(bytes, error)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes space on the next device that has it, or may get it; in places of the last resort if none has.
    async fn take(&self, units: u64) -> Result<Spilled> {
        let shared = &*self.shared;
        let files = self.files();
        let first = shared.next.fetch_add(1, Ordering::Relaxed);
        let turns = (0..files.len()).map(|turn| first.wrapping_add(turn) % files.len());
        let (last, others): (Vec<usize>, Vec<usize>) =
            turns.partition(|device| files[*device].is_last_resort());
        let mut lacking = None;
        for device in others.into_iter().chain(last) {
            match files[device].take(units, &shared.quota).await {
                Ok((file, start)) => {
                    let extent = Extent { device: device as u8, start, units };
                    shared.used_bytes.fetch_add(extent.bytes(), Ordering::Relaxed);
                    let (area, address) = (self.clone(), Address::of(extent));
                    let (raw_bytes, scheme) = (extent.bytes() as usize, Scheme::Off);
                    let (of, is_on_its_way) = (files[device].clone(), false);
                    let spilled =
                        Spilled { area, of, file, address, raw_bytes, scheme, is_on_its_way };
                    return Ok(spilled);
                }
                // A higher limit helps if only some of the disks are full.
                Err(error @ StoreError::SpillLimit { .. }) => lacking = Some(error),
                Err(error @ StoreError::SpillFull { .. }) => {
                    lacking.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(lacking.expect("an area has places"))
    }
}

fn new_file(place: impl Into<SpillPlace>) -> Arc<SpillFile> {
    Arc::new(SpillFile::new(place.into()))
}

/// Processor time that this thread has used for anything but compressing pieces.
pub fn operator_time() -> Duration {
    thread_time().saturating_sub(COMPRESSING.get())
}

/// The device fails.
pub(super) fn failed(error: impl Into<StoreError>) -> StoreError {
    StoreError::SpillFailed { source: Box::new(error.into()) }
}

/// What is written instead of a piece: room for the header, the length, and what the scheme makes of the piece. `None` if that
/// is not smaller.
fn compressed(raw: &IoBuf, scheme: Scheme) -> Option<IoBuf> {
    let largest = raw.len().checked_sub(UNIT_BYTES as usize).filter(|largest| *largest > 0)?;
    BODY.with_borrow_mut(|body| {
        if body.len() < largest {
            body.resize(largest, 0);
        }
        let bytes = scheme.compress(&raw[HEADER_BYTES..], &mut body[..largest - BODY_AT]);
        let buffer = bytes.map(|bytes| {
            let whole = (BODY_AT + bytes).next_multiple_of(UNIT_BYTES as usize);
            let mut buffer = IoBuf::zeroed(whole);
            buffer[HEADER_BYTES..BODY_AT].copy_from_slice(&(bytes as u64).to_le_bytes());
            buffer[BODY_AT..BODY_AT + bytes].copy_from_slice(&body[..bytes]);
            buffer
        });
        if body.len() > BODY_KEPT_BYTES {
            *body = Vec::new();
        }
        buffer
    })
}

impl Spilled {
    /// Bytes of the piece in memory, a multiple of 4 KiB.
    pub fn bytes(&self) -> usize {
        self.raw_bytes
    }

    /// How it is compressed, if it is.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Bytes of the piece on disk, a multiple of 4 KiB.
    pub fn written_bytes(&self) -> usize {
        self.address.extent().bytes() as usize
    }

    /// Reads the piece into a buffer of as many bytes. On a worker.
    ///
    /// # Errors
    /// [`StoreError::SpillFailed`] if the device fails, [`StoreError::SpillDamaged`] if the bytes are not those that were written.
    ///
    /// # Panics
    /// If the buffer is of another length.
    pub async fn read(&self, buffer: IoBuf) -> Result<IoBuf> {
        self.read_with(|_| buffer).await
    }

    /// The same into a buffer that is made for so many bytes when it is needed: for a compressed piece, when that is back.
    ///
    /// # Errors
    /// As [`Spilled::read`].
    ///
    /// # Panics
    /// As [`Spilled::read`].
    pub async fn read_with(&self, make: impl FnOnce(usize) -> IoBuf) -> Result<IoBuf> {
        let make = || {
            let buffer = make(self.raw_bytes);
            assert_eq!(buffer.len(), self.raw_bytes, "a buffer for the piece");
            buffer
        };
        if self.scheme == Scheme::Off {
            return self.read_written(make()).await;
        }
        // Beside the piece for a moment, and smaller.
        let read = self.read_written(IoBuf::to_be_filled(self.written_bytes())).await?;
        let mut buffer = make();
        let bytes = u64::from_le_bytes(read[HEADER_BYTES..BODY_AT].try_into().expect("8 bytes"));
        let compressed = read.get(BODY_AT..).and_then(|body| body.get(..bytes as usize));
        let decompress = || {
            compressed.is_some_and(|body| self.scheme.decompress(body, &mut buffer[HEADER_BYTES..]))
        };
        let costs = &self.area.shared.decompression;
        let (is_right, _) = costs.count(self.raw_bytes, decompress);
        if is_right { Ok(buffer) } else { Err(self.damaged()) }
    }

    fn damaged(&self) -> StoreError {
        let path = self.file.path().into();
        StoreError::SpillDamaged { path, offset: self.address.extent().offset() }
    }

    async fn read_written(&self, buffer: IoBuf) -> Result<IoBuf> {
        let extent = self.address.extent();
        let on_its_way = self.area.shared.reads.begin(Moment::now());
        let (result, buffer) = self.file.read_exact(buffer, extent.offset()).await;
        result.map_err(failed)?;
        self.area.shared.end(on_its_way, extent.bytes());
        self.area.shared.read_bytes.fetch_add(extent.bytes(), Ordering::Relaxed);
        let is_right = buffer[..4] == checksum(&buffer[4..]).to_le_bytes()
            && buffer[8..16] == self.address.bits().to_le_bytes();
        if is_right { Ok(buffer) } else { Err(self.damaged()) }
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let Extent { start, units, .. } = self.address.extent();
        let shared = &*self.area.shared;
        shared.used_bytes.fetch_sub(units * UNIT_BYTES, Ordering::Relaxed);
        if self.is_on_its_way {
            // The worker has failed. Nobody gets a place that its ring still writes to.
            return;
        }
        self.of.give_back(start, units, &shared.quota);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece with a long text, which does not become smaller.
    #[test]
    fn no_large_buffer_is_kept_for_compression() {
        let mut raw = IoBuf::zeroed(8 * BODY_KEPT_BYTES);
        fastrand::Rng::with_seed(5).fill(&mut raw);
        assert!(compressed(&raw, Scheme::Lz4).is_none());
        assert!(BODY.with_borrow(|body| body.len() <= BODY_KEPT_BYTES));
    }
}
