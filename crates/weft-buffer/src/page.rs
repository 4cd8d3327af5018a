//! Pages: size classes, page ids, and the 16-byte header with its checksum.
//!
//! A page is a power of two of bytes from 4 KiB to 1 MiB (DESIGN, Storage). It starts with a
//! [`PageHeader`]; the checksum covers every byte of the page behind itself, so that a flipped bit,
//! a torn write and a read that landed at the wrong offset are all noticed at the first physical
//! read. Everything is little-endian.

use std::fmt;

/// Bytes of the header at the start of every page.
pub const PAGE_HEADER_BYTES: usize = 16;

/// A page's size: a power of two from 4 KiB (class 0) to 1 MiB (class 8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// 4 KiB, the smallest page and the unit of alignment.
    pub const MIN: SizeClass = SizeClass(0);
    /// 1 MiB, the largest page.
    pub const MAX: SizeClass = SizeClass(8);

    /// The class with pages of exactly `bytes` bytes; `None` if there is none.
    pub fn from_bytes(bytes: usize) -> Option<SizeClass> {
        (bytes.is_power_of_two()
            && (SizeClass::MIN.bytes()..=SizeClass::MAX.bytes()).contains(&bytes))
        .then(|| SizeClass((bytes.trailing_zeros() - 12) as u8))
    }

    /// The class with this number (0 to 8); `None` beyond.
    pub const fn from_index(index: u8) -> Option<SizeClass> {
        if index <= SizeClass::MAX.0 { Some(SizeClass(index)) } else { None }
    }

    /// The class's number, 0 to 8.
    pub const fn index(self) -> u8 {
        self.0
    }

    /// Bytes of a page of this class.
    pub const fn bytes(self) -> usize {
        4096 << self.0
    }
}

impl fmt::Debug for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.bytes() / 1024)
    }
}

/// Where a page lies: device, offset in that device and size class, in 63 bits.
///
/// From the top: one zero bit (a swip's state lives there), 8 bits of device, 4 bits of size class,
/// 51 bits of offset in units of 4 KiB (8 EiB a device).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(u64);

const OFFSET_BITS: u32 = 51;
const CLASS_BITS: u32 = 4;

impl PageId {
    /// The page at byte `offset` of `device`.
    ///
    /// # Panics
    /// If the offset is not a multiple of 4 KiB or does not fit.
    pub fn new(device: u8, offset: u64, class: SizeClass) -> PageId {
        assert!(offset.is_multiple_of(4096), "page offset {offset} is not a multiple of 4 KiB");
        let unit = offset / 4096;
        assert!(unit < 1 << OFFSET_BITS, "page offset {offset} does not fit a page id");
        PageId(
            (u64::from(device) << (OFFSET_BITS + CLASS_BITS))
                | (u64::from(class.0) << OFFSET_BITS)
                | unit,
        )
    }

    /// The id with these bits, as [`PageId::to_bits`] gave them; `None` if no page has them.
    pub fn from_bits(bits: u64) -> Option<PageId> {
        let class = (bits >> OFFSET_BITS) & ((1 << CLASS_BITS) - 1);
        (bits >> 63 == 0 && class <= u64::from(SizeClass::MAX.0)).then_some(PageId(bits))
    }

    /// The id as an integer below 2^63.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Number of the device in its database or data set.
    pub const fn device(self) -> u8 {
        (self.0 >> (OFFSET_BITS + CLASS_BITS)) as u8
    }

    /// Byte offset in the device.
    pub const fn offset(self) -> u64 {
        (self.0 & ((1 << OFFSET_BITS) - 1)) * 4096
    }

    /// The page's size class.
    pub const fn class(self) -> SizeClass {
        SizeClass(((self.0 >> OFFSET_BITS) & ((1 << CLASS_BITS) - 1)) as u8)
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page at byte {} of device {} ({:?})", self.offset(), self.device(), self.class())
    }
}

/// The first 16 bytes of every page.
///
/// | bytes | content |
/// | --- | --- |
/// | 0..4 | CRC-32C of bytes 4 to the end of the page |
/// | 4..6 | tuples in the page |
/// | 6 | what kind of page this is, a number of the owner's choice |
/// | 7 | size class |
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
    /// The checksum fits a header that no writer of ours makes.
    #[error("the page's header is impossible (size class {class}, page id {id:#x})")]
    Header {
        /// Size class in the header.
        class: u8,
        /// Page id in the header.
        id: u64,
    },
}

/// Writes the header and the checksum: the last thing done to a page before it is written.
///
/// # Panics
/// If `page` is not exactly as long as `header.id` says.
pub fn seal(page: &mut [u8], header: PageHeader) {
    assert_eq!(page.len(), header.id.class().bytes(), "page length and size class differ");
    page[4..6].copy_from_slice(&header.tuple_count.to_le_bytes());
    page[6] = header.kind;
    page[7] = header.id.class().index();
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
    assert_eq!(page.len(), expected.class().bytes(), "page length and size class differ");
    let stored = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
    let computed = checksum(&page[4..]);
    if stored != computed {
        return Err(PageError::Checksum { stored, computed });
    }
    let id = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
    if PageId::from_bits(id).is_none_or(|id| id.class().index() != page[7]) {
        return Err(PageError::Header { class: page[7], id });
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
        let mut page: Vec<u8> = (0..id.class().bytes()).map(|i| (i * 31) as u8).collect();
        seal(&mut page, PageHeader { tuple_count: 7, kind: 3, id });
        page
    }

    #[test]
    fn page_ids_keep_their_parts() {
        for class in (0..=8).filter_map(SizeClass::from_index) {
            for device in [0, 1, 255] {
                for offset in [0, 4096, (1 << 51) * 4096 - 4096] {
                    let id = PageId::new(device, offset, class);
                    assert_eq!((id.device(), id.offset(), id.class()), (device, offset, class));
                    assert_eq!(PageId::from_bits(id.to_bits()), Some(id));
                }
            }
        }
        assert_eq!(PageId::from_bits(1 << 63), None);
        assert_eq!(PageId::from_bits(9 << OFFSET_BITS), None);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let id = PageId::new(1, 8192, SizeClass::MIN);
        let good = page(id);
        assert_eq!(verify(&good, id), Ok(PageHeader { tuple_count: 7, kind: 3, id }));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(verify(&bad, id), Err(PageError::Checksum { .. })), "bit {bit}");
        }
    }

    #[test]
    fn a_page_of_another_place_is_noticed() {
        let id = PageId::new(0, 4096, SizeClass::MIN);
        let other = PageId::new(0, 8192, SizeClass::MIN);
        assert!(matches!(verify(&page(other), id), Err(PageError::Misplaced { .. })));
    }
}
