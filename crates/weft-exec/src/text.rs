//! Strings as 16-byte views: length, the first four bytes, and either the rest or where all of it lies.
//!
//! Up to twelve bytes a view is bit for bit Arrow's. A longer one has, where Arrow has a buffer's number and an offset,
//! an address ([`Str`]), so that views of any origin mix in a vector and are gathered without knowing whose they are.
//! On a tuple's page there is the distance from the tuple instead ([`Str::packed`]), so that pages may be moved, and
//! written to a device and read back.
//!
//! A view owns nothing. Whoever puts one into a register keeps its bytes alive: a vector holds its Arrow buffers or its
//! arena, and an operator the pages that its program gathers from.

use std::cmp::Ordering;
use std::fmt;

/// Most bytes that a view holds itself.
pub const INLINE_BYTES_MAX: usize = 12;

/// A string, or any bytes, that somebody else owns unless it is short.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(transparent)]
pub struct Str(u128);

const LENGTH_MASK: u128 = u32::MAX as u128;

impl Str {
    /// Most bytes of a string.
    pub const BYTES_MAX: usize = u32::MAX as usize;

    /// The empty string.
    pub const EMPTY: Str = Str(0);

    /// A view of `bytes`, which is valid as long as they are.
    ///
    /// # Panics
    /// If there are 4 GiB of them or more.
    pub fn new(bytes: &[u8]) -> Str {
        let length = u32::try_from(bytes.len()).expect("less than 4 GiB");
        let mut view = [0; 16];
        view[..4].copy_from_slice(&length.to_le_bytes());
        if bytes.len() <= INLINE_BYTES_MAX {
            view[4..4 + bytes.len()].copy_from_slice(bytes);
        } else {
            view[4..8].copy_from_slice(&bytes[..4]);
            view[8..].copy_from_slice(&(bytes.as_ptr() as u64).to_le_bytes());
        }
        Str(u128::from_le_bytes(view))
    }

    /// A view with the bits that Arrow has for a string of up to [`INLINE_BYTES_MAX`] bytes.
    pub fn from_inline(bits: u128) -> Str {
        debug_assert!((bits & LENGTH_MASK) as usize <= INLINE_BYTES_MAX);
        Str(bits)
    }

    /// [`Str::new`] of `bytes[start..end]`, faster where there are more bytes than that.
    ///
    /// # Panics
    /// If there are not so many bytes, or 4 GiB of them are to be viewed.
    #[inline]
    pub fn within(bytes: &[u8], start: usize, end: usize) -> Str {
        let viewed = &bytes[start..end];
        let Some(window) = bytes.get(start..start + INLINE_BYTES_MAX) else {
            return Str::new(viewed);
        };
        let length = u32::try_from(viewed.len()).expect("less than 4 GiB");
        let mut first = [0; 16];
        first[..INLINE_BYTES_MAX].copy_from_slice(window);
        let first = u128::from_le_bytes(first);
        let kept = first & ((1 << (8 * length.min(INLINE_BYTES_MAX as u32))) - 1);
        let inline = u128::from(length) | kept << 32;
        let long = u128::from(length)
            | u128::from(first as u32) << 32
            | u128::from(viewed.as_ptr() as u64) << 64;
        Str(if length as usize <= INLINE_BYTES_MAX { inline } else { long })
    }

    /// A view of a longer string at `address`, given its length and first four bytes ([`Str::head`]).
    pub fn at(head: u64, address: *const u8) -> Str {
        debug_assert!((head as u32) as usize > INLINE_BYTES_MAX);
        Str(u128::from(head) | u128::from(address as u64) << 64)
    }

    /// The bits: Arrow's, if the string is short.
    pub fn bits(self) -> u128 {
        self.0
    }

    /// Number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "a view is a value, not a collection")]
    pub fn len(self) -> usize {
        (self.0 & LENGTH_MASK) as usize
    }

    /// True if the view holds all of its bytes.
    pub fn is_inline(self) -> bool {
        self.len() <= INLINE_BYTES_MAX
    }

    /// Length and first four bytes: equal strings have equal heads.
    pub fn head(self) -> u64 {
        self.0 as u64
    }

    /// Where a longer string lies.
    pub(crate) fn address(self) -> *const u8 {
        self.tail() as *const u8
    }

    fn tail(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The first four bytes so that they compare as the string does; zeros follow a shorter one.
    pub fn prefix(self) -> u32 {
        ((self.0 >> 32) as u32).swap_bytes()
    }

    /// The bytes.
    ///
    /// # Safety
    /// Those that the view was made of must be alive as long as the result is used, and unchanged.
    pub unsafe fn bytes(&self) -> &[u8] {
        let length = self.len();
        if length <= INLINE_BYTES_MAX {
            let view: &[u8; 16] = bytemuck::cast_ref(&self.0);
            return &view[4..4 + length];
        }
        // SAFETY: a longer view is only made of that many bytes at that address, alive as the caller promises.
        unsafe { std::slice::from_raw_parts(self.tail() as *const u8, length) }
    }

    /// The eight bytes from a place on, so that they compare as the string does; zeros follow a shorter one.
    ///
    /// # Safety
    /// As [`Str::bytes`].
    #[inline]
    pub unsafe fn eight_from(self, start: usize) -> u64 {
        let length = self.len();
        if length <= INLINE_BYTES_MAX {
            // Zeros are behind it in the view, too.
            let rest = (self.0 >> 32).checked_shr(8 * start.min(16) as u32).unwrap_or(0);
            return (rest as u64).swap_bytes();
        }
        // A longer one has eight bytes that end where it does.
        let first = start.min(length - 8);
        // SAFETY: the string has so many bytes, as the caller promises.
        let bytes = unsafe { (self.tail() as *const u8).add(first).cast::<[u8; 8]>().read() };
        u64::from_be_bytes(bytes).checked_shl(8 * (start - first).min(8) as u32).unwrap_or(0)
    }

    /// The address of a byte, if the view does not hold it; else any. There may be no such byte.
    pub(crate) fn address_of(self, byte: usize) -> *const u8 {
        (self.tail() as *const u8).wrapping_add(byte)
    }

    /// True if both are the same bytes.
    ///
    /// # Safety
    /// As [`Str::bytes`], for both.
    pub unsafe fn equals(&self, other: &Str) -> bool {
        if self.0 == other.0 {
            return true;
        }
        // SAFETY: as the caller promises.
        self.head() == other.head() && !self.is_inline() && unsafe { self.bytes() == other.bytes() }
    }

    /// The order of their bytes, which for UTF-8 is that of code points.
    ///
    /// # Safety
    /// As [`Str::bytes`], for both.
    pub unsafe fn compare(&self, other: &Str) -> Ordering {
        self.prefix().cmp(&other.prefix()).then_with(|| {
            // SAFETY: as the caller promises.
            unsafe { self.bytes().cmp(other.bytes()) }
        })
    }

    /// As it lies in a tuple whose long bytes are `distance` bytes behind the tuple's address.
    pub fn packed(self, distance: u64) -> Str {
        debug_assert!(!self.is_inline(), "a short string lies in the tuple itself");
        Str(u128::from(self.head()) | u128::from(distance) << 64)
    }

    /// As it is used, from what lies in the tuple at `tuple`.
    pub fn unpacked(self, tuple: *const u8) -> Str {
        if self.is_inline() {
            return self;
        }
        let address = (tuple as u64).wrapping_add(self.tail());
        Str(u128::from(self.head()) | u128::from(address) << 64)
    }
}

impl Default for Str {
    fn default() -> Str {
        Str::EMPTY
    }
}

/// Of the views, not of what they view.
impl PartialEq for Str {
    fn eq(&self, other: &Str) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Str({} bytes, {:#x})", self.len(), self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// None needed: the bytes live as long as the test.
    fn check(a: &[u8], b: &[u8]) {
        let (x, y) = (Str::new(a), Str::new(b));
        // SAFETY: `a` and `b` outlive the views.
        unsafe {
            assert_eq!(x.bytes(), a);
            assert_eq!(x.equals(&y), a == b, "{a:?} = {b:?}");
            assert_eq!(x.compare(&y), a.cmp(b), "{a:?} <=> {b:?}");
            for start in 0..=a.len() + 9 {
                let mut eight = a[start.min(a.len())..].to_vec();
                eight.resize(8.max(eight.len()), 0);
                assert_eq!(x.eight_from(start).to_be_bytes(), eight[..8], "{a:?} from {start}");
            }
        }
    }

    #[test]
    fn views_compare_as_their_bytes() {
        let texts: Vec<Vec<u8>> = [
            &b""[..],
            b"\0",
            b"\0\0",
            b"a",
            b"ab",
            b"abc",
            b"abcd",
            b"abcd\0",
            b"abcde",
            b"abcdefghijkl",
            b"abcdefghijklm",
            b"abcdefghijkln",
            b"abcdefghijklmnopqrstuvwxyz",
            b"\xff\xff\xff\xff\xff",
        ]
        .iter()
        .map(|text| text.to_vec())
        .collect();
        for a in &texts {
            for b in &texts {
                check(a, b);
                check(a, &b.clone());
            }
        }
    }

    #[test]
    fn pieces_are_viewed() {
        let text = b"a text of some length, cut at all places";
        for start in 0..=text.len() {
            for end in start..=text.len() {
                assert_eq!(Str::within(text, start, end), Str::new(&text[start..end]));
            }
        }
    }

    #[test]
    fn a_long_string_moves_with_its_tuple() {
        let text = b"a string of more than twelve bytes";
        let mut page = vec![0u8; 128];
        page[64..64 + text.len()].copy_from_slice(text);
        let stored = Str::new(text).packed(64 - 8);
        let moved = page.clone();
        for page in [&page, &moved] {
            let view = stored.unpacked(&page[8]);
            // SAFETY: the page outlives the view.
            assert_eq!(unsafe { view.bytes() }, text);
        }
        let short = Str::new(b"short");
        assert_eq!(short.unpacked(page.as_ptr()), short);
    }
}
