//! The spill area: pieces of memory go to disk and come back.
//!
//! A piece begins with a header of [`HEADER_BYTES`], in which the area writes what it checks the piece by when it is read:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 3 | CRC-32C of all that follows |
//! | 4 to 7 | 0 |
//! | 8 to 15 | the address: device, offset and size |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use weft_buffer::page::checksum;
use weft_rt::io::{File, IoBuf};
use weft_rt::{JoinHandle, spawn_local};

use super::address::{Address, PIECE_UNITS_MAX};
use super::spill_file::{Quota, SpillFile};
use crate::device::DEVICES_MAX;
use crate::directory::Directory;
use crate::error::{Result, StoreError, is_no_space};
use crate::extent::{Extent, UNIT_BYTES};

/// Bytes at the front of a piece that are the area's.
pub const HEADER_BYTES: usize = 16;

/// A place on disk for what does not fit in memory. Clones are the same area.
#[derive(Clone, Debug)]
pub struct SpillArea {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Vec<SpillFile>,
    quota: Quota,
    /// The file that the next piece goes to, if it has room.
    next: AtomicUsize,
    used_bytes: AtomicU64,
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

/// What an area has and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Bytes of the pieces that it holds.
    pub used_bytes: u64,
    /// Bytes that its files take on disk.
    pub file_bytes: u64,
    /// Bytes that were written to it.
    pub written_bytes: u64,
    /// Bytes that were read from it.
    pub read_bytes: u64,
}

/// A piece on disk. Its space is free again when this is dropped.
#[derive(Debug)]
pub struct Spilled {
    area: SpillArea,
    file: File,
    address: Address,
}

/// What became of a write: the piece, its memory, and what was held meanwhile.
#[derive(Debug)]
pub struct Written<H> {
    /// The piece, if all went well.
    pub spilled: Result<Spilled>,
    /// What was written.
    pub buffer: IoBuf,
    /// What was to be held until then.
    pub held: H,
}

impl SpillArea {
    /// An area in these directories, whose files may take `limit_bytes` together. Nothing is made before it is needed.
    ///
    /// # Panics
    /// If there are no directories, or more than devices can be told apart.
    pub fn new(directories: Vec<Directory>, limit_bytes: u64) -> SpillArea {
        assert!((1..=DEVICES_MAX).contains(&directories.len()), "directories");
        let quota =
            Quota { limit_bytes: AtomicU64::new(limit_bytes), taken_bytes: AtomicU64::new(0) };
        let shared = Shared {
            files: directories.into_iter().map(SpillFile::new).collect(),
            quota,
            next: AtomicUsize::new(0),
            used_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        };
        SpillArea { shared: Arc::new(shared) }
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
            read_bytes: count(&self.shared.read_bytes),
        }
    }

    /// Writes a piece, by a task of its own on this worker, which goes on if nobody waits for it, so that its place is not
    /// given to others before. `held` is dropped no sooner than the write has ended. What lies in the first
    /// [`HEADER_BYTES`] is replaced.
    ///
    /// What is written is an error of [`StoreError::SpillLimit`] or [`StoreError::SpillFull`] if there is no room, and of
    /// [`StoreError::File`] if the device fails.
    ///
    /// # Panics
    /// If this is no worker; if the length is no multiple of 4 KiB, or beyond 4 GiB.
    pub fn write<H: 'static>(&self, buffer: IoBuf, held: H) -> JoinHandle<Written<H>> {
        let area = self.clone();
        spawn_local(async move {
            let (spilled, buffer) = area.write_now(buffer).await;
            Written { spilled, buffer, held }
        })
    }

    async fn write_now(&self, mut buffer: IoBuf) -> (Result<Spilled>, IoBuf) {
        let bytes = buffer.len() as u64;
        let units = bytes / UNIT_BYTES;
        assert!(bytes.is_multiple_of(UNIT_BYTES), "a piece of {bytes} bytes");
        assert!(units <= PIECE_UNITS_MAX, "a piece of {bytes} bytes");
        let spilled = match self.take(units).await {
            Ok(spilled) => spilled,
            Err(error) => return (Err(error), buffer),
        };
        let extent = spilled.address.extent();
        buffer[..8].fill(0);
        buffer[8..16].copy_from_slice(&spilled.address.bits().to_le_bytes());
        let crc = checksum(&buffer[4..]);
        buffer[..4].copy_from_slice(&crc.to_le_bytes());
        let (result, buffer) = spilled.file.write(buffer, extent.offset()).await;
        let result = match result {
            Ok(_) => {
                self.shared.written_bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(spilled)
            }
            Err(error) if is_no_space(&error) => {
                Err(self.shared.files[usize::from(extent.device)].full(bytes, error))
            }
            Err(error) => Err(error.into()),
        };
        (result, buffer)
    }

    /// Takes space on the next device that has it.
    async fn take(&self, units: u64) -> Result<Spilled> {
        let shared = &*self.shared;
        let first = shared.next.fetch_add(1, Ordering::Relaxed);
        let mut full = None;
        for turn in 0..shared.files.len() {
            let device = first.wrapping_add(turn) % shared.files.len();
            match shared.files[device].take(units, &shared.quota).await {
                Ok((file, start)) => {
                    let extent = Extent { device: device as u8, start, units };
                    shared.used_bytes.fetch_add(extent.bytes(), Ordering::Relaxed);
                    return Ok(Spilled { area: self.clone(), file, address: Address::of(extent) });
                }
                Err(error @ StoreError::SpillFull { .. }) => full = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(full.expect("an area has directories"))
    }
}

impl Spilled {
    /// Bytes of the piece, a multiple of 4 KiB.
    pub fn bytes(&self) -> usize {
        self.address.extent().bytes() as usize
    }

    /// Reads the piece into a buffer of as many bytes. On a worker.
    ///
    /// # Errors
    /// [`StoreError::File`] if the device fails, [`StoreError::SpillDamaged`] if the bytes are not those that were written.
    ///
    /// # Panics
    /// If the buffer is of another length.
    pub async fn read(&self, buffer: IoBuf) -> Result<IoBuf> {
        let extent = self.address.extent();
        assert_eq!(buffer.len() as u64, extent.bytes(), "a buffer for the piece");
        let (result, buffer) = self.file.read_exact(buffer, extent.offset()).await;
        result?;
        self.area.shared.read_bytes.fetch_add(extent.bytes(), Ordering::Relaxed);
        let is_right = buffer[..4] == checksum(&buffer[4..]).to_le_bytes()
            && buffer[8..16] == self.address.bits().to_le_bytes();
        if !is_right {
            let path = self.file.path().into();
            return Err(StoreError::SpillDamaged { path, offset: extent.offset() });
        }
        Ok(buffer)
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let Extent { device, start, units } = self.address.extent();
        let shared = &*self.area.shared;
        shared.used_bytes.fetch_sub(units * UNIT_BYTES, Ordering::Relaxed);
        shared.files[usize::from(device)].give_back(start, units, &shared.quota);
    }
}
