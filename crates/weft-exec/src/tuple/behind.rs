//! What a state keeps behind a tuple and is more than a string: a list or a set, which may be larger than any page. A tuple is
//! packed in pieces for it: the first has the states, each has a part of every list and set, and all are tuples of the
//! same keys, so that whoever merges tuples of a group puts them together again.

use std::fmt;

use super::layout::Layout;
use super::pack::{Form, long_bytes, pack_strings, string_bytes};
use super::page::Slot;
use crate::pace::Pace;

/// About so many bytes of lists and sets go with a piece: a few pieces fill a page on disk.
const PIECE_BYTES: usize = 15 << 10;

/// What parts of lists and sets are aligned to, on whichever page they lie.
pub(crate) const ALIGNMENT: usize = 8;

/// A place of a list or set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Of the chunk or table; 0 if there is none.
    pub(crate) address: u64,
    /// The number of a value there.
    pub(crate) at: usize,
    /// Values from there on.
    pub(crate) left: usize,
    /// Nothing comes before.
    pub(crate) is_start: bool,
}

/// Some values of a list or set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) from: Cursor,
    /// How many.
    pub(crate) values: usize,
    /// Bytes that they take, packed; 0 if there is nothing to pack. A multiple of [`ALIGNMENT`].
    pub(crate) bytes: usize,
    /// What comes after.
    pub(crate) next: Cursor,
}

/// A list or set behind tuples of a layout.
pub(crate) trait Behind: fmt::Debug + Send + Sync {
    /// Where it begins.
    ///
    /// # Safety
    /// There is a complete tuple of the layout at the address, in that form.
    unsafe fn start(&self, tuple: *const u8, form: Form) -> Cursor;

    /// Values from a place on, which take about `room_bytes`: one at least, if there is one.
    ///
    /// # Safety
    /// As [`Behind::start`], which has given the place, or a part of the same tuple has.
    unsafe fn part(&self, tuple: *const u8, form: Form, from: Cursor, room_bytes: usize) -> Part;

    /// Packs a part at `place`, and makes it all that the tuple at `to` has.
    ///
    /// # Safety
    /// As [`Behind::part`], which has given the part. There is a tuple at `to`, and room for the part's bytes behind it, aligned,
    /// which nobody else uses.
    unsafe fn pack(&self, tuple: *const u8, form: Form, part: &Part, to: *mut u8, place: *mut u8);

    /// Makes the distances of a packed tuple addresses, which stay valid as long as its page is.
    ///
    /// # Safety
    /// There is a packed tuple of the layout at the address, and nobody else uses it.
    unsafe fn unpack(&self, tuple: *mut u8);
}

/// The pieces of a tuple, one after the other.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    layout: &'a Layout,
    tuple: *const u8,
    form: Form,
    /// Of each list and set, the part that the piece has.
    parts: Vec<Part>,
    /// Pieces so far.
    count: usize,
}

impl<'a> Pieces<'a> {
    /// Those of a tuple.
    ///
    /// # Safety
    /// As long as this is used there is a complete tuple of the layout, in that form, which nobody writes to.
    pub(crate) unsafe fn new(layout: &'a Layout, tuple: *const u8, form: Form) -> Pieces<'a> {
        // SAFETY: as promised.
        let start = |behind: &std::sync::Arc<dyn Behind>| unsafe { behind.start(tuple, form) };
        let part = |next| Part { next, ..Part::default() };
        let parts = layout.behind().iter().map(start).map(part).collect();
        Pieces { layout, tuple, form, parts, count: 0 }
    }

    /// Goes on to the next piece; returns the bytes that it takes behind the tuple.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let is_first = self.count == 0;
        if !is_first && self.parts.iter().all(|part| part.next.left == 0) {
            return None;
        }
        self.count += 1;
        let mut room_bytes = PIECE_BYTES;
        let mut bytes = 0;
        for (behind, part) in self.layout.behind().iter().zip(&mut self.parts) {
            // SAFETY: as `new` was promised.
            *part = unsafe { behind.part(self.tuple, self.form, part.next, room_bytes) };
            room_bytes = room_bytes.saturating_sub(part.bytes);
            bytes += part.bytes;
        }
        // SAFETY: as `new` was promised.
        let strings = unsafe { string_bytes(self.layout, self.tuple, is_first) };
        let alignment = if self.parts.is_empty() { 1 } else { ALIGNMENT };
        Some((bytes + strings).next_multiple_of(alignment))
    }

    /// Packs the piece.
    ///
    /// # Safety
    /// `slot` has room for a tuple, and for as many bytes as [`Pieces::next`] has said, which nobody else uses.
    pub(crate) unsafe fn pack(&self, slot: Slot) {
        let is_first = self.count == 1;
        let mut place = slot.strings;
        // SAFETY: as promised.
        unsafe {
            std::ptr::copy_nonoverlapping(self.tuple, slot.tuple, self.layout.bytes());
            if !is_first {
                self.layout.begin_states(slot.tuple);
            }
            for (behind, part) in self.layout.behind().iter().zip(&self.parts) {
                if part.bytes > 0 {
                    behind.pack(self.tuple, self.form, part, slot.tuple, place);
                    place = place.add(part.bytes);
                }
            }
            let slot = Slot { tuple: slot.tuple, strings: place };
            pack_strings(self.layout, self.tuple, self.form, slot, is_first);
        }
    }
}

/// How much tuples take when they are packed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    /// All of them.
    pub(crate) bytes: usize,
    /// The largest piece, which lies on one page, or several that fit on one.
    pub(crate) largest_bytes: usize,
}

impl Sizes {
    fn add(&mut self, piece_bytes: usize) {
        self.bytes += piece_bytes;
        self.largest_bytes = self.largest_bytes.max(piece_bytes);
    }

    /// Tuples that fit on a page together.
    pub(super) fn add_page(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.largest_bytes = self.largest_bytes.max(bytes);
    }
}

/// Bytes of all pieces of a tuple.
///
/// # Safety
/// There is a complete tuple of the layout, in that form, which nobody writes to until this has ended.
pub(crate) async unsafe fn measure_pieces(
    layout: &Layout,
    tuple: *const u8,
    form: Form,
    sizes: &mut Sizes,
    pace: &mut Pace,
) {
    if layout.behind().is_empty() {
        // SAFETY: as promised.
        sizes.add(layout.bytes() + unsafe { long_bytes(layout, tuple) });
        return;
    }
    // SAFETY: as promised.
    let mut pieces = unsafe { Pieces::new(layout, tuple, form) };
    while let Some(behind) = pieces.next() {
        sizes.add(layout.bytes() + behind);
        pace.keep().await;
    }
}
