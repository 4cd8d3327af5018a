//! The page sizes of the experiments: powers of two.

use std::fmt;

/// A page's size in an experiment: a power of two from 4 KiB (class 0) to 1 MiB (class 8).
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
