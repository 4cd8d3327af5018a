//! Tuples as they lie on disk if they have strings: without the chain, without what views have beside a string, each right behind the
//! other. A string of a tuple in memory takes sixteen bytes for its view, and on disk one for its length.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | the hash |
//! | … | bits for nulls, and all fields but strings, as in memory |
//! | 1 or 5 | of each string, its length: a byte, or 255 and four bytes |
//! | … | the string |

use std::ops::Range;

use super::layout::{HASH_OFFSET, HEADER_BYTES, Layout, NEXT_OFFSET};
use super::pack::Form;
use crate::copies::copy_exactly;
use crate::lane::Lane;
use crate::text::{INLINE_BYTES_MAX, Str};

/// Stands for a length of four bytes that follow.
const LONG: u8 = u8::MAX;

/// Bytes that are copied at once where there is room for them, even if fewer are needed.
const STRIDE: usize = 16;

/// How tuples of a layout lie on disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dense {
    tuple_bytes: usize,
    /// What is copied as it is: bytes from the tuple's address, and how many.
    runs: Vec<(usize, usize)>,
    /// Bytes of all runs.
    run_bytes: usize,
    strings: Vec<StringPlace>,
}

/// Where a tuple has a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StringPlace {
    offset: usize,
    /// Where the room is that a state has for it.
    room_offset: Option<usize>,
}

/// What a tuple takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DenseSize {
    /// On disk.
    pub(crate) bytes: usize,
    /// In memory, beside [`Layout::bytes`].
    pub(crate) long_bytes: usize,
}

impl Dense {
    /// For tuples of a layout with strings.
    pub(super) fn new(layout: &Layout) -> Dense {
        let kept = |offset| layout.kept().iter().find(|kept| kept.offset == offset);
        let strings = layout.fields().iter().filter(|field| field.lane == Lane::Str);
        let strings: Vec<StringPlace> = strings
            .map(|field| {
                let room_offset = kept(field.offset).map(|kept| kept.room_offset);
                StringPlace { offset: field.offset, room_offset }
            })
            .collect();
        let mut is_copied = vec![false; layout.bytes()];
        is_copied[HASH_OFFSET..NEXT_OFFSET].fill(true);
        let nulls = layout.fields().iter().filter(|field| field.null_bit.is_some()).count();
        is_copied[HEADER_BYTES..HEADER_BYTES + nulls.div_ceil(8)].fill(true);
        for field in layout.fields() {
            let is_room = strings.iter().any(|string| string.room_offset == Some(field.offset));
            is_copied[field.offset..][..field.lane.width()]
                .fill(field.lane != Lane::Str && !is_room);
        }
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..layout.bytes()).filter(|at| is_copied[*at]) {
            match runs.last_mut() {
                Some((start, bytes)) if *start + *bytes == at => *bytes += 1,
                _ => runs.push((at, 1)),
            }
        }
        let run_bytes = runs.iter().map(|(_, bytes)| bytes).sum();
        Dense { tuple_bytes: layout.bytes(), runs, run_bytes, strings }
    }

    /// Where a byte of a tuple lies on disk, from the tuple's begin on; one that is copied as it is.
    ///
    /// # Panics
    /// If it is not.
    pub(super) fn place(&self, offset: usize) -> usize {
        let mut place = 0;
        for (start, bytes) in &self.runs {
            if (*start..start + bytes).contains(&offset) {
                return place + offset - start;
            }
            place += bytes;
        }
        panic!("byte {offset} is of no run");
    }

    /// Bytes that a tuple takes on disk, but for its strings.
    pub(crate) fn run_bytes(&self) -> usize {
        self.run_bytes
    }

    /// What a tuple takes. It is never more on disk than in memory.
    ///
    /// # Safety
    /// There is a tuple of the layout at the address.
    #[inline(always)]
    pub(crate) unsafe fn size(&self, tuple: *const u8) -> DenseSize {
        let mut size = DenseSize { bytes: self.run_bytes, long_bytes: 0 };
        for string in &self.strings {
            // SAFETY: the field lies in the tuple.
            let string = unsafe { tuple.add(string.offset).cast::<Str>().read_unaligned() };
            let length = string.len();
            size.bytes += appended_bytes(length);
            size.long_bytes += Layout::long_bytes(string);
        }
        size
    }

    /// Writes a tuple to the front of `out`.
    ///
    /// # Safety
    /// There is a tuple of the layout, in that form, at the address, with all of its strings.
    ///
    /// # Panics
    /// If `out` has not as many bytes as [`Dense::size`] says.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, tuple: *const u8, form: Form, size: DenseSize, out: &mut [u8]) {
        assert!(out.len() >= size.bytes, "room for a tuple");
        let out = out.as_mut_ptr_range();
        let mut place = out.start;
        for (offset, bytes) in &self.runs {
            // SAFETY: a run lies in the tuple, and there is room for it.
            unsafe {
                copy_short(tuple.add(*offset), place, *bytes);
                place = place.add(*bytes);
            }
        }
        for StringPlace { offset, room_offset } in &self.strings {
            // SAFETY: the field lies in the tuple.
            let string = unsafe { tuple.add(*offset).cast::<Str>().read_unaligned() };
            let length = string.len();
            // SAFETY: there is room for length and string. A short one lies in the view, and what is copied beyond it is
            // overwritten or lies beyond what counts; a long one is where the tuple says.
            unsafe {
                if length < LONG.into() {
                    place.write(length as u8);
                    place = place.add(1);
                } else {
                    place.write(LONG);
                    place.add(1).cast::<[u8; 4]>().write((length as u32).to_le_bytes());
                    place = place.add(5);
                }
                let room = out.end.offset_from(place) as usize;
                if length > INLINE_BYTES_MAX {
                    let is_packed = room_offset.is_none() || form == Form::Packed;
                    let string = if is_packed { string.unpacked(tuple) } else { string };
                    copy_exactly(string.address(), place, length);
                } else if room >= STRIDE {
                    let view = (string.bits() >> u32::BITS).to_le_bytes();
                    place.cast::<[u8; STRIDE]>().write(view);
                } else {
                    std::ptr::copy_nonoverlapping(string.bytes().as_ptr(), place, length);
                }
                place = place.add(length);
            }
        }
        // SAFETY: both are of the same buffer.
        debug_assert_eq!(unsafe { place.offset_from(out.start) } as usize, size.bytes);
    }

    /// Finds where tuples begin in `bytes`, the first at `at`: sets as many `places` as are wanted. Where the next one begins.
    ///
    /// # Panics
    /// If there are not so many.
    pub(crate) fn find(&self, bytes: &[u8], mut at: usize, places: &mut [usize]) -> usize {
        for place in places {
            *place = at;
            at += self.run_bytes;
            for _ in &self.strings {
                at = string_at(bytes, at).end;
            }
        }
        assert!(at <= bytes.len(), "all of the last tuple");
        at
    }

    /// The hash of the tuple that is first in `bytes`.
    #[inline(always)]
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        // It is the first of what is copied.
        u64::from_le_bytes(*bytes.first_chunk().expect("a tuple begins with its hash"))
    }

    /// Where the strings of tuples begin, given where these do.
    pub(crate) fn skip_runs(&self, places: &mut [usize]) {
        places.iter_mut().for_each(|place| *place += self.run_bytes);
    }

    /// Makes tuples of what was written, one behind the other from `tuples` on, whose long strings lie from there on down where
    /// `memory` ends.
    ///
    /// # Panics
    /// If these are not so many tuples, or there is not room for them.
    pub(crate) fn thaw(&self, mut from: &[u8], tuples: usize, memory: &mut [u8]) {
        let front = tuples * self.tuple_bytes;
        assert!(front <= memory.len(), "room for {tuples} tuples");
        let memory = memory.as_mut_ptr_range();
        // SAFETY: within the memory, as was just seen.
        let strings_begin = unsafe { memory.start.add(front) };
        let mut strings = strings_begin;
        for number in 0..tuples {
            // SAFETY: there is room for so many tuples.
            let tuple = unsafe { memory.start.add(number * self.tuple_bytes) };
            let (runs, rest) = from.split_at(self.run_bytes);
            let mut run = runs.as_ptr();
            let is_roomy = number + 1 < tuples && rest.len() >= STRIDE;
            for (offset, bytes) in &self.runs {
                // SAFETY: a run lies in the tuple, and the bytes of all runs are there. Up to a stride more is there, too, and what that
                // is copied to is written to later, if another tuple comes behind this one.
                unsafe {
                    if is_roomy && self.tuple_bytes >= STRIDE {
                        copy_strides(run, tuple.add(*offset), *bytes);
                    } else {
                        copy_short(run, tuple.add(*offset), *bytes);
                    }
                    run = run.add(*bytes);
                }
            }
            // SAFETY: the header lies in the tuple.
            unsafe { tuple.add(NEXT_OFFSET).cast::<u64>().write(0) };
            from = rest;
            for StringPlace { offset, room_offset } in &self.strings {
                let Range { start: at, end } = string_at(from, 0);
                let length = end - at;
                let mut string = Str::within(from, at, end);
                if length > INLINE_BYTES_MAX {
                    // SAFETY: both are of the same memory.
                    let room = unsafe { memory.end.offset_from(strings) } as usize;
                    assert!(length <= room, "room for a string");
                    // SAFETY: there are so many bytes, and so much room, as was just seen.
                    unsafe {
                        copy(&from[at..], strings, length, room);
                        string = string.packed(strings.offset_from(tuple) as u64);
                        strings = strings.add(length);
                    }
                }
                from = &from[end..];
                // SAFETY: the fields lie in the tuple.
                unsafe {
                    tuple.add(*offset).cast::<Str>().write_unaligned(string);
                    if let Some(room_offset) = room_offset {
                        tuple.add(*room_offset).cast::<u64>().write_unaligned(0);
                    }
                }
            }
        }
    }
}

/// Where the string is whose length is written at `at`.
#[inline(always)]
fn string_at(bytes: &[u8], at: usize) -> Range<usize> {
    let (start, length) = match bytes[at] {
        LONG => {
            let length = bytes[at + 1..at + 5].try_into().expect("4 bytes");
            (at + 5, u32::from_le_bytes(length) as usize)
        }
        length => (at + 1, usize::from(length)),
    };
    start..start + length
}

/// Reads the next string of each tuple, which is at its place in `bytes`, and moves the place behind it. The strings refer to
/// the bytes.
///
/// # Panics
/// If there are not so many bytes.
pub(crate) fn next_strings(bytes: &[u8], places: &mut [usize], out: &mut [Str]) {
    for (place, string) in places.iter_mut().zip(out) {
        let Range { start, end } = string_at(bytes, *place);
        *string = Str::within(bytes, start, end);
        *place = end;
    }
}

/// Bytes that a string of this length takes on disk.
#[inline(always)]
pub(super) fn appended_bytes(length: usize) -> usize {
    length + if length < LONG.into() { 1 } else { 5 }
}

/// Writes a string as it is on disk; returns where it ends. Nothing behind that is written to: the next tuple may be there.
///
/// # Safety
/// It lies in memory or in its view, and there is room for [`appended_bytes`].
#[inline(always)]
pub(super) unsafe fn append(string: Str, place: *mut u8) -> *mut u8 {
    let length = string.len();
    // SAFETY: as promised.
    unsafe {
        let place = if length < LONG.into() {
            place.write(length as u8);
            place.add(1)
        } else {
            place.write(LONG);
            place.add(1).cast::<[u8; 4]>().write((length as u32).to_le_bytes());
            place.add(5)
        };
        copy_exactly(string.bytes().as_ptr(), place, length);
        place.add(length)
    }
}

/// Copies `bytes`, and less than a stride more.
///
/// # Safety
/// There are so many at `from`, and room for them at `to`; they do not overlap.
#[inline(always)]
unsafe fn copy_strides(from: *const u8, to: *mut u8, bytes: usize) {
    for at in (0..bytes).step_by(STRIDE) {
        // SAFETY: as promised.
        unsafe {
            let piece = from.add(at).cast::<[u8; STRIDE]>().read();
            to.add(at).cast::<[u8; STRIDE]>().write(piece);
        }
    }
}

/// Copies the first `length` bytes of `from`, and maybe some more than that where there is `room` for them.
///
/// # Safety
/// `from` has so many bytes, and `to` has room for `room`, which are at least as many and are not those of `from`.
#[inline(always)]
unsafe fn copy(from: &[u8], to: *mut u8, length: usize, room: usize) {
    let whole = length.next_multiple_of(STRIDE);
    // SAFETY: as the caller promises; more than `length` only if there are so many on both sides.
    unsafe {
        if whole <= from.len() && whole <= room {
            for at in (0..whole).step_by(STRIDE) {
                let piece = from.as_ptr().add(at).cast::<[u8; STRIDE]>().read();
                to.add(at).cast::<[u8; STRIDE]>().write(piece);
            }
        } else {
            std::ptr::copy_nonoverlapping(from.as_ptr(), to, length);
        }
    }
}

/// Copies few bytes without a call.
///
/// # Safety
/// There are so many at `from`, and room for them at `to`; they do not overlap.
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
    let mut at = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while at + 8 <= bytes {
            to.add(at).cast::<[u8; 8]>().write(from.add(at).cast::<[u8; 8]>().read());
            at += 8;
        }
        if at + 4 <= bytes {
            to.add(at).cast::<[u8; 4]>().write(from.add(at).cast::<[u8; 4]>().read());
            at += 4;
        }
        while at < bytes {
            to.add(at).write(from.add(at).read());
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::cast_slice;

    use super::super::load::{load, load_dense};
    use super::super::pack::{long_bytes, unpack};
    use super::super::page::Page;
    use super::*;
    use crate::for_lane;
    use crate::selection::Selected;
    use crate::vector::Vector;

    const TUPLES: usize = 300;

    /// Tuples with texts of this length at most, all fields of which depend on their number alone.
    fn page(layout: &Layout, texts: &[Vec<Vec<u8>>]) -> Page {
        let mut page = Page::new(16 << 20, layout.bytes());
        for (number, texts) in texts.iter().enumerate() {
            let long: usize = texts.iter().map(|text| Layout::long_bytes(Str::new(text))).sum();
            let slot = page.slot(long).unwrap();
            let mut place = slot.strings;
            let mut texts = texts.iter();
            // SAFETY: the slot is of the layout, and has room for the strings.
            unsafe {
                std::ptr::write_bytes(slot.tuple, number as u8, layout.bytes());
                for field in layout.fields().iter().filter(|field| field.lane == Lane::Str) {
                    let text = texts.next().unwrap();
                    let mut string = Str::new(text);
                    if !string.is_inline() {
                        std::ptr::copy_nonoverlapping(text.as_ptr(), place, text.len());
                        string = string.packed(place.offset_from(slot.tuple) as u64);
                        place = place.add(text.len());
                    }
                    slot.tuple.add(field.offset).cast::<Str>().write_unaligned(string);
                }
            }
        }
        page
    }

    fn check(layout: &Layout, text_bytes_max: usize) {
        let mut random = fastrand::Rng::with_seed(layout.bytes() as u64);
        let strings = layout.fields().iter().filter(|field| field.lane == Lane::Str).count();
        let mut text = || -> Vec<u8> {
            (0..random.usize(0..=text_bytes_max)).map(|_| random.u8(..)).collect()
        };
        let texts: Vec<Vec<Vec<u8>>> =
            (0..TUPLES).map(|_| (0..strings).map(|_| text()).collect()).collect();
        let page = page(layout, &texts);
        let dense = Dense::new(layout);
        let mut out = vec![0; 16 << 20];
        let (mut at, mut long) = (0, 0);
        for number in 0..page.tuples() {
            // SAFETY: the tuples are complete.
            unsafe {
                let tuple = page.tuple(number);
                let size = dense.size(tuple);
                assert_eq!(size.long_bytes, long_bytes(layout, tuple));
                assert!(size.bytes + 8 <= layout.bytes() + size.long_bytes);
                // Room for it and not more, as where a page ends.
                dense.put(tuple, Form::Packed, size, &mut out[at..][..size.bytes]);
                at += size.bytes;
                long += size.long_bytes;
            }
        }
        let (some, all) = (TUPLES / 3, &out[..at]);
        let mut places = [0; TUPLES];
        let next = dense.find(all, 0, &mut places[..some]);
        assert_eq!(dense.find(all, next, &mut places[some..]), at);
        let addresses = places.map(|place| all[place..].as_ptr() as u64);
        dense.skip_runs(&mut places);
        let strings_at = places;
        let fields =
            layout.fields().iter().enumerate().filter(|(_, field)| field.lane == Lane::Str);
        for (string, (field, _)) in fields.enumerate() {
            let mut loaded = Vector::new(Lane::Str);
            let form = (layout, &dense);
            // SAFETY: tuples of the layout.
            unsafe { load_dense(&addresses, all, &mut places, form, field, &mut loaded) };
            for (loaded, texts) in loaded.values::<Str>().iter().zip(&texts) {
                // SAFETY: what it refers to is there.
                assert_eq!(unsafe { loaded.bytes() }, texts[string]);
            }
        }
        let mut memory = vec![0u64; (TUPLES * layout.bytes() + long).div_ceil(8)];
        let memory = bytemuck::cast_slice_mut(&mut memory);
        dense.thaw(&out[..at], TUPLES, memory);
        if layout.kept().is_empty() {
            check_fields(layout, (&addresses, memory), (&dense, all, strings_at));
        }
        for (number, texts) in texts.iter().enumerate() {
            let tuple = memory[number * layout.bytes()..].as_mut_ptr();
            // SAFETY: tuples of the layout.
            unsafe {
                unpack(layout, tuple);
                assert_eq!(tuple.read(), number as u8, "hash");
                assert_eq!(tuple.add(NEXT_OFFSET).cast::<u64>().read(), 0, "chain");
                let mut texts = texts.iter();
                let rooms: Vec<usize> = layout.kept().iter().map(|kept| kept.room_offset).collect();
                for field in layout.fields() {
                    let place = tuple.add(field.offset);
                    if field.lane == Lane::Str {
                        let is_kept = layout.kept().iter().any(|kept| kept.offset == field.offset);
                        let string = place.cast::<Str>().read_unaligned();
                        let string = if is_kept { string } else { string.unpacked(tuple) };
                        assert_eq!(string.bytes(), texts.next().unwrap());
                    } else {
                        let byte = if rooms.contains(&field.offset) { 0 } else { number as u8 };
                        let field = std::slice::from_raw_parts(place, field.lane.width());
                        assert!(field.iter().all(|it| *it == byte), "a field");
                    }
                    if let Some((byte, _)) = field.null_place() {
                        assert_eq!(tuple.add(byte).read(), number as u8, "nulls");
                    }
                }
            }
        }
    }

    /// Fields are the same, loaded from tuples as on disk, at these addresses, and from `memory`.
    fn check_fields(
        layout: &Layout,
        (addresses, memory): (&[u64; TUPLES], &[u8]),
        (dense, bytes, mut strings): (&Dense, &[u8], [usize; TUPLES]),
    ) {
        let tuple = |number: usize| memory[number * layout.bytes()..].as_ptr() as u64;
        let tuples: [u64; TUPLES] = std::array::from_fn(tuple);
        for (number, field) in layout.fields().iter().enumerate() {
            let mut vectors = [(); 2].map(|()| Vector::new(field.register_lane));
            let [here, there] = &mut vectors;
            // SAFETY: tuples of the layout.
            unsafe {
                load(&tuples, Selected::All(TUPLES), layout, number, here);
                load_dense(addresses, bytes, &mut strings, (layout, dense), number, there);
            }
            let [here, there] = &vectors;
            for row in 0..TUPLES {
                assert_eq!(here.validity.is_valid(row), there.validity.is_valid(row), "row {row}");
            }
            if field.lane != Lane::Str {
                for_lane!(field.register_lane, T => {
                    let [here, there] = [here, there].map(|it| &it.values::<T>()[..TUPLES]);
                    assert!(cast_slice::<T, u8>(here) == cast_slice::<T, u8>(there), "{field:?}");
                });
            }
        }
    }

    #[test]
    fn tuples_come_back() {
        let fields = [
            (Lane::Str, true),
            (Lane::I16, false),
            (Lane::I128, true),
            (Lane::Str, false),
            (Lane::U64, false),
            (Lane::Bool, true),
            (Lane::Str, true),
            (Lane::I32, true),
            (Lane::F64, true),
            (Lane::U8, true),
            (Lane::I64, true),
            (Lane::Str, true),
            (Lane::I16, true),
        ];
        for count in 1..=fields.len() {
            for bytes in [0, 5, 12, 13, 40, 300, 3000] {
                let layout = Layout::new(&fields[..count]);
                check(&layout, bytes);
                if count > 4 {
                    check(&layout.keeping(&[(3, 4)]), bytes);
                }
            }
        }
    }
}
