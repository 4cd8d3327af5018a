//! Blocks: what is written to the log, and to checkpoints, at a time.
//!
//! A block is a multiple of 4 KiB: 64 bytes of head (magic, checksum, length, number, the timestamps that the records
//! are behind and up to), then for each transaction its timestamp, the length of its records, and the records.
//! The checksum is of all of the block, so a block that was not written as a whole is none.

use weft_rt::io::{File, IoBuf};

use super::Records;
use crate::error::Result;

/// Direct I/O goes by so many bytes.
pub(crate) const SECTOR_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"WEFTLOG1";
const HEAD_BYTES: usize = 64;
const CHECKSUM_AT: usize = 8;
const LEN_AT: usize = 16;
const SEQUENCE_AT: usize = 24;
const AFTER_AT: usize = 32;
const AT_AT: usize = 40;
/// Before each transaction's records.
const PART_BYTES: usize = 8 + 8;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Blocks are numbered in the order in which they were written.
    pub(crate) sequence: u64,
    /// The timestamp of the block before.
    pub(crate) after: u64,
    /// All that was committed behind that and up to this timestamp is in the block.
    pub(crate) at: u64,
}

fn put(buffer: &mut [u8], at: usize, value: u64) {
    buffer[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The block with these records.
pub(crate) fn encode(head: Head, records: &[Records]) -> IoBuf {
    let len: usize = records.iter().map(|(_, redo)| PART_BYTES + redo.len()).sum();
    let mut buffer = IoBuf::zeroed((HEAD_BYTES + len).next_multiple_of(SECTOR_BYTES));
    buffer[..8].copy_from_slice(&MAGIC);
    put(&mut buffer, LEN_AT, len as u64);
    put(&mut buffer, SEQUENCE_AT, head.sequence);
    put(&mut buffer, AFTER_AT, head.after);
    put(&mut buffer, AT_AT, head.at);
    let mut end = HEAD_BYTES;
    for (at, redo) in records {
        put(&mut buffer, end, *at);
        put(&mut buffer, end + 8, redo.len() as u64);
        end += PART_BYTES;
        buffer[end..end + redo.len()].copy_from_slice(redo);
        end += redo.len();
    }
    let checksum = crc_fast::crc32_iscsi(&buffer);
    put(&mut buffer, CHECKSUM_AT, checksum.into());
    buffer
}

/// A block that was read.
pub(crate) struct Block {
    pub(crate) head: Head,
    bytes: IoBuf,
    len: usize,
}

impl Block {
    /// The transactions' timestamps and records.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = &self.bytes[HEAD_BYTES..HEAD_BYTES + self.len];
        std::iter::from_fn(move || {
            let (part, behind) = rest.split_at_checked(PART_BYTES)?;
            let (redo, behind) = behind.split_at_checked(usize::try_from(number(part, 8)).ok()?)?;
            rest = behind;
            Some((number(part, 0), redo))
        })
    }

    /// Bytes that it takes in its file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Reads the block at an offset; `None` if there is no whole one.
pub(crate) async fn read(file: &File, offset: u64, end: u64) -> Result<Option<Block>> {
    if offset + SECTOR_BYTES as u64 > end {
        return Ok(None);
    }
    let (result, first) = file.read_exact(IoBuf::zeroed(SECTOR_BYTES), offset).await;
    result?;
    if first[..8] != MAGIC {
        return Ok(None);
    }
    let room = end - offset - HEAD_BYTES as u64;
    let len = number(&first, LEN_AT);
    if len > room {
        return Ok(None);
    }
    let len = len as usize;
    let block_bytes = (HEAD_BYTES + len).next_multiple_of(SECTOR_BYTES);
    if block_bytes as u64 > end - offset {
        return Ok(None);
    }
    let mut bytes = first;
    if block_bytes > SECTOR_BYTES {
        let (result, all) = file.read_exact(IoBuf::zeroed(block_bytes), offset).await;
        result?;
        bytes = all;
    }
    let checksum = number(&bytes, CHECKSUM_AT);
    put(&mut bytes, CHECKSUM_AT, 0);
    if u64::from(crc_fast::crc32_iscsi(&bytes)) != checksum {
        return Ok(None);
    }
    let head = Head {
        sequence: number(&bytes, SEQUENCE_AT),
        after: number(&bytes, AFTER_AT),
        at: number(&bytes, AT_AT),
    };
    Ok(Some(Block { head, bytes, len }))
}
