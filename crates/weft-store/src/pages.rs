//! Blocks on pages: what is encoded, in pages that the buffer pool can read.
//!
//! A block (or a segment of a directory) is cut into pages of 1 MiB and a last one that is as short as it
//! can be; they lie one behind the other. The checksum that the directory keeps is made of the pages' own,
//! so that a page from an earlier use of the same place is noticed, too.

use futures::future::join_all;
use weft_buffer::page::{self, PAGE_BYTES_MAX, PAGE_HEADER_BYTES, PageHeader, PageId};
use weft_rt::io::IoBuf;

use crate::error::{Result, StoreError};
use crate::extent::{Extent, UNIT_BYTES};
use crate::space::Space;
use crate::wire::{Reader, WireResult, Writer, wrong};

/// Bytes that the longest page carries.
const PAYLOAD_BYTES_MAX: usize = PAGE_BYTES_MAX - PAGE_HEADER_BYTES;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PageKind {
    /// A part of a block of a column.
    Block = 1,
    /// A part of a segment of a table's directory.
    Segment = 2,
    /// A part of the statistics of a table.
    Statistics = 3,
}

/// Where some bytes are stored, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) device: u8,
    /// First unit of 4 KiB.
    pub(crate) start: u64,
    /// Bytes without the pages' headers; not 0.
    pub(crate) bytes: u32,
    /// Made of the checksums of the pages.
    pub(crate) checksum: u32,
}

/// Lengths of the pages that `bytes` bytes take.
fn page_lens(bytes: usize) -> impl Iterator<Item = usize> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        let payload = left.min(PAYLOAD_BYTES_MAX);
        left -= payload;
        (payload > 0).then(|| (payload + PAGE_HEADER_BYTES).next_multiple_of(UNIT_BYTES as usize))
    })
}

/// Units of 4 KiB that `bytes` bytes take.
pub(crate) fn units_of(bytes: usize) -> u64 {
    page_lens(bytes).map(|len| len as u64 / UNIT_BYTES).sum()
}

fn mix(checksum: u32, page: u32) -> u32 {
    checksum.rotate_left(1) ^ page
}

impl Stored {
    /// The units that it occupies.
    pub(crate) fn extent(&self) -> Extent {
        let units = units_of(self.bytes as usize);
        Extent { device: self.device, start: self.start, units }
    }

    /// Its pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageId> + use<> {
        let (device, mut offset) = (self.device, self.start * UNIT_BYTES);
        page_lens(self.bytes as usize).map(move |len| {
            let id = PageId::new(device, offset, len);
            offset += len as u64;
            id
        })
    }

    /// Puts together the payloads of its pages, which are verified already, and checks that they are
    /// those that were written.
    ///
    /// # Errors
    /// If they are not.
    pub(crate) fn check<'a>(
        &self,
        kind: PageKind,
        pages: impl Iterator<Item = &'a [u8]>,
    ) -> WireResult<()> {
        let mut checksum = 0;
        for page in pages {
            let found = page::header(page).kind;
            if found != kind as u8 {
                return wrong(format!("a page of kind {found} where {kind:?} is expected"));
            }
            let crc = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
            checksum = mix(checksum, crc);
        }
        if checksum != self.checksum {
            return wrong("these are pages of an earlier use of this place: a write was lost");
        }
        Ok(())
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u8(self.device);
        writer.u64(self.start);
        writer.u32(self.bytes);
        writer.u32(self.checksum);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> WireResult<Stored> {
        let (device, start) = (reader.u8()?, reader.u64()?);
        let stored = Stored { device, start, bytes: reader.u32()?, checksum: reader.u32()? };
        if start == 0 || start >= crate::extent::UNITS_MAX - (1 << 21) || stored.bytes == 0 {
            return wrong(format!("bytes at an impossible place: {stored:?}"));
        }
        Ok(stored)
    }
}

/// Pages of one allocation on their way to the device: sealed in buffers of up to 1 MiB.
#[derive(Debug)]
pub(crate) struct PageRun {
    extent: Extent,
    buffers: Vec<IoBuf>,
    /// The next page goes into this buffer at this byte.
    buffer: usize,
    within: usize,
    /// The next page's unit.
    at: u64,
}

impl PageRun {
    /// Room for things of these lengths in bytes, which are to be pushed in this order.
    pub(crate) fn new(extent: Extent, lens: impl Iterator<Item = usize>) -> PageRun {
        let mut sizes: Vec<usize> = Vec::new();
        for page in lens.flat_map(page_lens) {
            match sizes.last_mut() {
                Some(size) if *size + page <= PAGE_BYTES_MAX => *size += page,
                _ => sizes.push(page),
            }
        }
        debug_assert_eq!(sizes.iter().sum::<usize>() as u64, extent.bytes());
        let buffers = sizes.into_iter().map(IoBuf::zeroed).collect();
        PageRun { extent, buffers, buffer: 0, within: 0, at: extent.start }
    }

    /// Seals `bytes` into the next pages; returns where they will be stored.
    ///
    /// # Panics
    /// If there are none, 2^32 or more, or more than there is room for.
    pub(crate) fn push(&mut self, bytes: &[u8], kind: PageKind) -> Stored {
        let len = u32::try_from(bytes.len()).expect("blocks are shorter than 4 GiB");
        assert!(len > 0, "nothing to store");
        let mut stored =
            Stored { device: self.extent.device, start: self.at, bytes: len, checksum: 0 };
        for (id, payload) in stored.pages().zip(bytes.chunks(PAYLOAD_BYTES_MAX)) {
            if self.within == self.buffers[self.buffer].len() {
                (self.buffer, self.within) = (self.buffer + 1, 0);
            }
            let page = &mut self.buffers[self.buffer][self.within..self.within + id.bytes()];
            page[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + payload.len()].copy_from_slice(payload);
            page::seal(page, PageHeader { tuple_count: 0, kind: kind as u8, id });
            let crc = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
            stored.checksum = mix(stored.checksum, crc);
            self.within += id.bytes();
        }
        self.at += stored.extent().units;
        stored
    }

    /// The pages, one behind the other.
    pub(crate) fn pages(&self) -> &[IoBuf] {
        &self.buffers
    }

    /// Writes all pages, on a worker, and returns when no request is in flight any more; gives the pages again.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`] or the device's first error.
    pub(crate) async fn write(self, space: &Space) -> Result<Vec<IoBuf>> {
        let device = space.device(self.extent.device).expect("the space was taken there");
        let mut offset = self.extent.offset();
        let writes = self.buffers.into_iter().map(|buffer| {
            let at = offset;
            offset += buffer.len() as u64;
            device.file.write(buffer, at)
        });
        let results = join_all(writes).await;
        device.mark_dirty();
        space.note_written(self.extent.bytes());
        let written = results.into_iter().map(|(result, buffer)| {
            let needed_bytes = buffer.len() as u64;
            let failed = |error| StoreError::of_write(error, device.file.path(), needed_bytes);
            result.map_err(failed).map(|_| buffer)
        });
        written.collect()
    }
}
