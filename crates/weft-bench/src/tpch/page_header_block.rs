//! The first 4 KiB of a page file: what it holds, and how far its generation got.
//!
//! | bytes | content (little-endian) |
//! | --- | --- |
//! | 0..8 | magic `WEFTPAGE` |
//! | 8..12 | version of this format |
//! | 12 | table (the page kind) |
//! | 13 | page size class |
//! | 14..16 | number of this stripe, from 0 |
//! | 16..18 | stripes of the table |
//! | 18 | 1 if complete, 0 while being generated |
//! | 24..32 | scale factor, IEEE double |
//! | 32..40 | set id: equal in all stripes generated with the same parameters |
//! | 40..48 | pages of the table, over all stripes |
//! | 48..56 | rows of the table |
//! | 56..60 | parts that generation is divided into |
//! | 60..64 | parts done: pages and rows count exactly these |
//! | 64..96 | generator and its version, padded with zeros |
//! | 4092..4096 | CRC-32C of bytes 0..4092 |
//!
//! All other bytes are zero. The header is rewritten in place after each part, when the part's pages
//! are on disk.

use std::path::Path;

use weft_buffer::page::checksum;

use super::error::TpchError;
use super::layout::Table;
use crate::size_class::SizeClass;

/// Bytes of the block.
pub(super) const HEADER_BLOCK_BYTES: usize = 4096;

/// The generator whose data the files hold.
pub(super) const GENERATOR: &str = "tpchgen 4.0";

const MAGIC: &[u8; 8] = b"WEFTPAGE";
const VERSION: u32 = 2;
const CRC_AT: usize = HEADER_BLOCK_BYTES - 4;

/// The block's content.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HeaderBlock {
    pub(super) table: Table,
    pub(super) class: SizeClass,
    pub(super) stripe: u16,
    pub(super) stripe_count: u16,
    pub(super) is_complete: bool,
    pub(super) scale_factor: f64,
    pub(super) set_id: u64,
    pub(super) pages: u64,
    pub(super) rows: u64,
    pub(super) parts: u32,
    pub(super) parts_done: u32,
    pub(super) generator: String,
}

impl HeaderBlock {
    /// The block's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; HEADER_BLOCK_BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(self.generator.len() <= 32, "the generator's name has at most 32 bytes");
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &[self.table.kind(), self.class.index()]);
        put(14, &self.stripe.to_le_bytes());
        put(16, &self.stripe_count.to_le_bytes());
        put(18, &[self.is_complete.into()]);
        put(24, &self.scale_factor.to_le_bytes());
        put(32, &self.set_id.to_le_bytes());
        put(40, &self.pages.to_le_bytes());
        put(48, &self.rows.to_le_bytes());
        put(56, &self.parts.to_le_bytes());
        put(60, &self.parts_done.to_le_bytes());
        put(64, self.generator.as_bytes());
        let crc = checksum(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Reads a block that was found at the start of `path`.
    ///
    /// # Errors
    /// [`TpchError::Foreign`], [`TpchError::Version`] or [`TpchError::HeaderDamaged`].
    pub(super) fn decode(block: &[u8], path: &Path) -> Result<HeaderBlock, TpchError> {
        if block.len() < HEADER_BLOCK_BYTES || &block[..8] != MAGIC {
            return Err(TpchError::Foreign { path: path.to_owned() });
        }
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"));
        let u16_at = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let damaged = |reason| TpchError::HeaderDamaged { path: path.to_owned(), reason };
        // The checksum first: a damaged version number is damage, not another version.
        if checksum(&block[..CRC_AT]) != u32_at(CRC_AT) {
            return Err(damaged("checksum mismatch"));
        }
        if u32_at(8) != VERSION {
            let (found, expected) = (u32_at(8), VERSION);
            return Err(TpchError::Version { path: path.to_owned(), found, expected });
        }
        let generator = block[64..96].split(|&byte| byte == 0).next().unwrap_or_default();
        let header = HeaderBlock {
            table: Table::ALL
                .into_iter()
                .find(|table| table.kind() == block[12])
                .ok_or_else(|| damaged("unknown table"))?,
            class: SizeClass::from_index(block[13]).ok_or_else(|| damaged("unknown page size"))?,
            stripe: u16_at(14),
            stripe_count: u16_at(16),
            is_complete: block[18] != 0,
            scale_factor: f64::from_bits(u64_at(24)),
            set_id: u64_at(32),
            pages: u64_at(40),
            rows: u64_at(48),
            parts: u32_at(56),
            parts_done: u32_at(60),
            generator: String::from_utf8_lossy(generator).into_owned(),
        };
        let is_sane = header.stripe < header.stripe_count
            && header.stripe_count <= 256
            && header.parts_done <= header.parts
            && (!header.is_complete || header.parts_done == header.parts)
            && header.pages < 1 << 40;
        if is_sane { Ok(header) } else { Err(damaged("impossible numbers")) }
    }

    /// Byte offset of the first page: after this block, and a multiple of the page size.
    pub(super) fn data_start(&self) -> u64 {
        data_start(self.class)
    }

    /// Bytes of this stripe's file.
    pub(super) fn file_bytes(&self) -> u64 {
        let (count, stripe) = (u64::from(self.stripe_count), u64::from(self.stripe));
        let pages = (self.pages + count - 1 - stripe) / count;
        self.data_start() + pages * self.class.bytes() as u64
    }
}

/// Byte offset of the first page in files of this page size.
pub(super) fn data_start(class: SizeClass) -> u64 {
    HEADER_BLOCK_BYTES.next_multiple_of(class.bytes()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> HeaderBlock {
        HeaderBlock {
            table: Table::Part,
            class: SizeClass::MIN,
            stripe: 1,
            stripe_count: 3,
            is_complete: false,
            scale_factor: 0.1,
            set_id: 77,
            pages: 8,
            rows: 190,
            parts: 4,
            parts_done: 2,
            generator: GENERATOR.to_owned(),
        }
    }

    #[test]
    fn roundtrip_and_every_flipped_bit() {
        let path = Path::new("x.pages");
        let block = header().encode();
        assert_eq!(HeaderBlock::decode(&block, path).expect("a header"), header());
        for bit in 0..8 * HEADER_BLOCK_BYTES {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = HeaderBlock::decode(&bad, path).expect_err("a damaged header");
            match error {
                TpchError::Foreign { .. } => assert!(bit < 64),
                TpchError::HeaderDamaged { .. } => assert!(bit >= 64),
                other => panic!("{other}"),
            }
        }
        assert!(matches!(HeaderBlock::decode(b"", path), Err(TpchError::Foreign { .. })));
    }

    #[test]
    fn pages_are_dealt_round_robin() {
        let bytes = |stripe| HeaderBlock { stripe, ..header() }.file_bytes() / 4096 - 1;
        assert_eq!([bytes(0), bytes(1), bytes(2)], [3, 3, 2]);
    }
}
