//! Pages: page ids, and the 16-byte header with its checksum.
//!
//! A page is any multiple of 4 KiB up to 1 MiB (DESIGN, Storage). It starts with a [`PageHeader`];
//! the checksum covers every byte of the page behind itself, so that a flipped bit, a torn write and
//! a read that landed at the wrong offset are all noticed at the first physical read. Everything is
//! little-endian.

use std::fmt;

/// Bytes of the header at the start of every page.
pub const PAGE_HEADER_BYTES: usize = 16;

/// The unit of page sizes and offsets in bytes, and so the smallest page.
pub const PAGE_UNIT_BYTES: usize = 4096;

/// Bytes of the largest page.
pub const PAGE_BYTES_MAX: usize = 256 * PAGE_UNIT_BYTES;

/// True if a page may have `bytes` bytes: a multiple of 4 KiB from 4 KiB to 1 MiB.
pub const fn is_page_size(bytes: usize) -> bool {
    bytes > 0 && bytes <= PAGE_BYTES_MAX && bytes.is_multiple_of(PAGE_UNIT_BYTES)
}

/// Where a page lies: device, offset in that device and length, in 63 bits.
///
/// From the top: one zero bit (a swip's state lives there), 8 bits of device, 8 bits of length in
/// units of 4 KiB less one, 47 bits of offset in units of 4 KiB (512 PiB a device).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(u64);

const OFFSET_BITS: u32 = 47;
const UNITS_BITS: u32 = 8;
const VACANT_OFFSET: u64 = ((1 << OFFSET_BITS) - 1) * 4096;

impl PageId {
    /// The page of `bytes` bytes at byte `offset` of `device`.
    ///
    /// # Panics
    /// If the offset is not a multiple of 4 KiB or does not fit, or if `bytes` is not a page's size
    /// (see [`is_page_size`]).
    pub const fn new(device: u8, offset: u64, bytes: usize) -> PageId {
        assert!(is_page_size(bytes), "a page is a multiple of 4 KiB up to 1 MiB");
        assert!(offset.is_multiple_of(4096), "a page's offset is a multiple of 4 KiB");
        let (unit, units) = (offset / 4096, (bytes / PAGE_UNIT_BYTES) as u64);
        assert!(unit < 1 << OFFSET_BITS, "a page's offset is below 512 PiB");
        let device = (device as u64) << (OFFSET_BITS + UNITS_BITS);
        PageId(device | ((units - 1) << OFFSET_BITS) | unit)
    }

    /// The id with these bits, as [`PageId::to_bits`] gave them; `None` if no page has them.
    pub const fn from_bits(bits: u64) -> Option<PageId> {
        if bits >> 63 == 0 { Some(PageId(bits)) } else { None }
    }

    /// The id as an integer below 2^63.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The id of a page of `bytes` bytes that has no place: see [`PageId::is_vacant`].
    ///
    /// # Panics
    /// If `bytes` is not a page's size.
    pub const fn vacant(bytes: usize) -> PageId {
        PageId::new(u8::MAX, VACANT_OFFSET, bytes)
    }

    /// True of the ids that stand for a page that does not exist: a table may have such, to be made later.
    /// They are the last place of the last device.
    pub const fn is_vacant(self) -> bool {
        self.device() == u8::MAX && self.offset() == VACANT_OFFSET
    }

    /// Number of the device in its database or data set.
    pub const fn device(self) -> u8 {
        (self.0 >> (OFFSET_BITS + UNITS_BITS)) as u8
    }

    /// Byte offset in the device.
    pub const fn offset(self) -> u64 {
        (self.0 & ((1 << OFFSET_BITS) - 1)) * 4096
    }

    /// Bytes of the page, header included.
    pub const fn bytes(self) -> usize {
        self.units() * PAGE_UNIT_BYTES
    }

    /// Bytes of the page in units of 4 KiB, 1 to 256.
    pub const fn units(self) -> usize {
        self.length_byte() as usize + 1
    }

    /// The length as the header has it: units of 4 KiB less one.
    const fn length_byte(self) -> u8 {
        (self.0 >> OFFSET_BITS) as u8
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kib, offset, device) = (self.bytes() / 1024, self.offset(), self.device());
        write!(f, "page of {kib} KiB at byte {offset} of device {device}")
    }
}

/// The first 16 bytes of every page.
///
/// | bytes | content |
/// | --- | --- |
/// | 0..4 | CRC-32C of bytes 4 to the end of the page |
/// | 4..6 | tuples in the page |
/// | 6 | what kind of page this is, a number of the owner's choice |
/// | 7 | length of the page in units of 4 KiB, less one |
/// | 8..16 | page id |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Tuples in the page.
    pub tuple_count: u16,
    /// What kind of page this is; the owner of the file chooses the numbers.
    pub kind: u8,
    /// Where the page belongs.
    pub id: PageId,
}

/// Why a page's bytes cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The bytes are not those that were written.
    #[error("checksum mismatch: stored {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// Checksum in the page's header.
        stored: u32,
        /// Checksum of the bytes read.
        computed: u32,
    },
    /// A whole page, but of another place, size or kind.
    #[error("this is a valid page, but not the expected one: found {found:?}")]
    Misplaced {
        /// The header found.
        found: PageHeader,
    },
    /// A whole page of the right place, which does not hold what its table's pages do.
    #[error("its content is impossible: {reason}")]
    Content {
        /// What is wrong.
        reason: &'static str,
    },
    /// The checksum fits a header that no writer of ours makes.
    #[error("the page's header is impossible (length {units} x 4 KiB, page id {id:#x})")]
    Header {
        /// Length in the header, in units of 4 KiB.
        units: usize,
        /// Page id in the header.
        id: u64,
    },
}

/// Writes the header and the checksum: the last thing done to a page before it is written.
///
/// # Panics
/// If `page` is not exactly as long as `header.id` says.
pub fn seal(page: &mut [u8], header: PageHeader) {
    assert_eq!(page.len(), header.id.bytes(), "bytes of the page and of its id");
    page[4..6].copy_from_slice(&header.tuple_count.to_le_bytes());
    page[6] = header.kind;
    page[7] = header.id.length_byte();
    page[8..16].copy_from_slice(&header.id.to_bits().to_le_bytes());
    let crc = checksum(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the header of a page whose checksum was verified before.
///
/// # Panics
/// If `page` is shorter than a header or was not sealed.
pub fn header(page: &[u8]) -> PageHeader {
    let id = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
    PageHeader {
        tuple_count: u16::from_le_bytes([page[4], page[5]]),
        kind: page[6],
        id: PageId::from_bits(id).expect("header of a verified page"),
    }
}

/// Checks the checksum and that this is the page `expected`.
///
/// # Errors
/// [`PageError`] if the bytes were damaged, or are another page's.
pub fn verify(page: &[u8], expected: PageId) -> Result<PageHeader, PageError> {
    assert_eq!(page.len(), expected.bytes(), "bytes of the page and of its id");
    let stored = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
    let computed = checksum(&page[4..]);
    if stored != computed {
        return Err(PageError::Checksum { stored, computed });
    }
    let id = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
    if PageId::from_bits(id).is_none_or(|id| id.length_byte() != page[7]) {
        return Err(PageError::Header { units: usize::from(page[7]) + 1, id });
    }
    let found = header(page);
    if found.id == expected { Ok(found) } else { Err(PageError::Misplaced { found }) }
}

/// CRC-32C, as the checksum of every page: hardware-accelerated where the machine has carry-less
/// multiplication.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(id: PageId) -> Vec<u8> {
        let mut page: Vec<u8> = (0..id.bytes()).map(|i| (i * 31) as u8).collect();
        seal(&mut page, PageHeader { tuple_count: 7, kind: 3, id });
        page
    }

    #[test]
    fn page_ids_keep_their_parts() {
        for units in [1, 2, 3, 37, 255, 256] {
            for device in [0, 1, 255] {
                for offset in [0, 4096, (1 << 47) * 4096 - 4096] {
                    let id = PageId::new(device, offset, units * 4096);
                    let parts = (id.device(), id.offset(), id.units(), id.bytes());
                    assert_eq!(parts, (device, offset, units, units * 4096));
                    assert_eq!(PageId::from_bits(id.to_bits()), Some(id));
                }
            }
        }
        assert_eq!(PageId::from_bits(1 << 63), None);
    }

    #[test]
    fn pages_are_multiples_of_the_unit() {
        for bytes in [0, 1, 4095, 5000, 6 << 10, (1 << 20) + 4096, usize::MAX] {
            assert!(!is_page_size(bytes), "{bytes}");
        }
        assert!((1..=256).all(|units| is_page_size(units * 4096)));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let id = PageId::new(1, 8192, 4096);
        let good = page(id);
        assert_eq!(verify(&good, id), Ok(PageHeader { tuple_count: 7, kind: 3, id }));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(verify(&bad, id), Err(PageError::Checksum { .. })), "bit {bit}");
        }
    }

    #[test]
    fn a_page_of_another_place_or_length_is_noticed() {
        let id = PageId::new(0, 4096, 4096);
        let other = PageId::new(0, 8192, 4096);
        assert!(matches!(verify(&page(other), id), Err(PageError::Misplaced { .. })));
        let mut wrong = page(id);
        wrong[7] = 5;
        let crc = checksum(&wrong[4..]);
        wrong[..4].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(verify(&wrong, id), Err(PageError::Header { units: 6, .. })));
    }
}
