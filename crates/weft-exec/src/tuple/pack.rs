//! Tuples without addresses: strings that states keep behind addresses ([`KeptString`]) are packed, that is, they lie on
//! the tuple's page like all others, so that the tuple can be written to disk. Unpacked again they are views of that page.
//! Lists and sets are packed with them (`behind`).

use super::layout::{HASH_OFFSET, KeptString, Layout};
use super::page::{Page, Slot};
use crate::copies::copy_exactly;
use crate::text::Str;

/// Where the strings are that a tuple's states keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Behind addresses.
    Live,
    /// On the tuple's page.
    Packed,
}

/// # Safety
/// There is a tuple at the address, and a string at the offset.
unsafe fn string_at(tuple: *const u8, offset: usize) -> Str {
    // SAFETY: as promised.
    unsafe { tuple.add(offset).cast::<Str>().read_unaligned() }
}

/// Bytes of all long strings of a tuple.
///
/// # Safety
/// There is a tuple of the layout at the address.
pub(crate) unsafe fn long_bytes(layout: &Layout, tuple: *const u8) -> usize {
    // SAFETY: as promised.
    unsafe { string_bytes(layout, tuple, true) }
}

/// The same, with those that its states keep or without.
///
/// # Safety
/// As [`long_bytes`].
pub(super) unsafe fn string_bytes(layout: &Layout, tuple: *const u8, with_kept: bool) -> usize {
    let kept = if with_kept { layout.kept() } else { &[] };
    let kept = kept.iter().map(|kept| kept.offset);
    // SAFETY: the fields lie in the tuple.
    let bytes = |offset| Layout::long_bytes(unsafe { string_at(tuple, offset) });
    layout.strings_on_page().chain(kept).map(bytes).sum()
}

/// Copies a tuple, packed, of a layout without lists and sets.
///
/// # Safety
/// There is a tuple of the layout and that form at `tuple`, and `slot` has room for it and for all [`long_bytes`], which nobody
/// else uses.
pub(crate) unsafe fn pack(layout: &Layout, tuple: *const u8, form: Form, slot: Slot) {
    // SAFETY: as promised.
    unsafe {
        std::ptr::copy_nonoverlapping(tuple, slot.tuple, layout.bytes());
        pack_strings(layout, tuple, form, slot, true);
    }
}

/// Packs the strings of a tuple that was copied, those that its states keep if there are any.
///
/// # Safety
/// As [`pack`]; the copy is in the slot. Without what states keep it has states without rows.
pub(super) unsafe fn pack_strings(
    layout: &Layout,
    tuple: *const u8,
    form: Form,
    slot: Slot,
    with_kept: bool,
) {
    let mut place = slot.strings;
    let mut store = |offset: usize, is_packed: bool| {
        // SAFETY: the field lies in the tuple.
        let string = unsafe { string_at(tuple, offset) };
        if string.is_inline() {
            return;
        }
        let string = if is_packed { string.unpacked(tuple) } else { string };
        // SAFETY: the string is alive, the slot has room for it, and the field lies in the slot's tuple.
        unsafe {
            let bytes = string.bytes();
            copy_exactly(bytes.as_ptr(), place, bytes.len());
            let distance = place.offset_from(slot.tuple) as u64;
            slot.tuple.add(offset).cast::<Str>().write_unaligned(string.packed(distance));
            place = place.add(bytes.len());
        }
    };
    layout.strings_on_page().for_each(|offset| store(offset, true));
    let kept = if with_kept { layout.kept() } else { &[] };
    for KeptString { offset, room_offset } in kept {
        store(*offset, form == Form::Packed);
        // SAFETY: the field lies in the slot's tuple.
        unsafe { slot.tuple.add(*room_offset).cast::<u64>().write_unaligned(0) };
    }
}

/// Makes what a packed tuple's states keep views of its page, which stay valid as long as that is.
///
/// # Safety
/// There is a packed tuple of the layout at the address, and nobody else uses it.
pub(crate) unsafe fn unpack(layout: &Layout, tuple: *mut u8) {
    for kept in layout.kept() {
        // SAFETY: the field lies in the tuple.
        unsafe {
            let string = string_at(tuple, kept.offset).unpacked(tuple);
            tuple.add(kept.offset).cast::<Str>().write_unaligned(string);
        }
    }
    // SAFETY: as promised.
    layout.behind().iter().for_each(|behind| unsafe { behind.unpack(tuple) });
}

/// Forgets the tuples of a page whose hashes are not to be kept; the others move together. Nothing is kept behind addresses.
///
/// # Safety
/// The page has tuples of the layout, and nobody refers to them.
pub(crate) unsafe fn retain(layout: &Layout, page: &mut Page, keep: impl Fn(u64) -> bool) {
    debug_assert!(!layout.keeps(), "strings lie on the page");
    let mut kept = 0;
    for number in 0..page.tuples() {
        let (from, to) = (page.tuple(number), page.tuple(kept));
        // SAFETY: a tuple begins with its hash.
        if !keep(unsafe { from.add(HASH_OFFSET).cast::<u64>().read() }) {
            continue;
        }
        kept += 1;
        if from == to {
            continue;
        }
        // SAFETY: both are tuples of the page, and the one at `to` was moved or is forgotten.
        unsafe { std::ptr::copy_nonoverlapping(from, to, layout.bytes()) };
        for offset in layout.strings_on_page() {
            // SAFETY: the field lies in the tuple, and its string stays where it is.
            unsafe {
                let string = string_at(to, offset);
                if !string.is_inline() {
                    let string = string.unpacked(from);
                    let distance = string.bytes().as_ptr().offset_from(to) as u64;
                    to.add(offset).cast::<Str>().write_unaligned(string.packed(distance));
                }
            }
        }
    }
    page.keep_first(kept);
}
