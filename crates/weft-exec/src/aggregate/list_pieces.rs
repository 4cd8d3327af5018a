//! Lists without addresses: a part of a list is one chunk on its tuple's page, and the strings of its values and keys behind it.

use super::kept::Keep;
use super::list::{Chain, Chunk, HEADER_BYTES};
use super::state::Tuple;
use crate::text::Str;
use crate::tuple::Layout;
use crate::tuple::behind::{ALIGNMENT, Behind, Cursor, Part};
use crate::tuple::pack::Form;

impl<T: Keep> Chain<T> {
    /// The chunk of a place.
    fn chunk_at(place: Cursor) -> Chunk {
        Chunk(place.address as *mut u8)
    }

    /// Where the strings of a value lie, if it is one, and of its key.
    fn strings(&self, chunk: Chunk, capacity: usize, at: usize) -> [Option<*mut Str>; 2] {
        let (value, key, _) = self.places(chunk, capacity, at);
        [T::IS_STRING.then(|| value.cast::<Str>()), self.is_ordered.then_some(key)]
    }

    /// Calls `work` with each of the next `count` values: its chunk, the chunk's capacity, and its number there. Returns the place
    /// after them. Ends before if that says so.
    ///
    /// # Safety
    /// There are so many values from there on.
    unsafe fn walk(
        mut from: Cursor,
        count: usize,
        mut work: impl FnMut(Chunk, usize, usize) -> bool,
    ) -> Cursor {
        for _ in 0..count {
            let mut chunk = Chain::<T>::chunk_at(from);
            // SAFETY: as promised; the header of a chunk was written.
            unsafe {
                while from.at == chunk.length().read() as usize {
                    chunk = Chunk(chunk.next().read() as *mut u8);
                    (from.address, from.at) = (chunk.0 as u64, 0);
                }
                if !work(chunk, chunk.capacity().read() as usize, from.at) {
                    break;
                }
            }
            from.at += 1;
            from.left -= 1;
        }
        from
    }
}

impl<T: Keep> Behind for Chain<T> {
    unsafe fn start(&self, tuple: *const u8, form: Form) -> Cursor {
        // SAFETY: as promised; it is only read.
        let list = unsafe { Tuple::at(tuple.cast_mut()) };
        let left = self.count.get(list) as usize;
        let mut address = self.first.get(list);
        if form == Form::Packed && address != 0 {
            address += tuple as u64;
        }
        Cursor { address, at: 0, left, is_start: true }
    }

    unsafe fn part(&self, _: *const u8, _: Form, from: Cursor, room_bytes: usize) -> Part {
        if from.left == 0 {
            return Part { next: from, ..Part::default() };
        }
        let value_bytes = self.chunk_bytes(1) - HEADER_BYTES;
        let most = (room_bytes.saturating_sub(HEADER_BYTES) / value_bytes).max(1).min(from.left);
        let (mut values, mut bytes) = (0, HEADER_BYTES);
        let next = if T::IS_STRING || self.is_ordered {
            let measure = |chunk, capacity, at| {
                let strings = self.strings(chunk, capacity, at).into_iter().flatten();
                // SAFETY: the chunk has strings there.
                let strings = strings.map(|place| unsafe { place.read_unaligned() });
                let more = value_bytes + strings.map(Layout::long_bytes).sum::<usize>();
                if values > 0 && bytes + more > room_bytes {
                    return false;
                }
                values += 1;
                bytes += more;
                true
            };
            // SAFETY: as promised; there are more than those.
            unsafe { Chain::<T>::walk(from, most, measure) }
        } else {
            (values, bytes) = (most, HEADER_BYTES + most * value_bytes);
            // SAFETY: as above.
            unsafe { Chain::<T>::walk(from, most, |_, _, _| true) }
        };
        Part { from, values, bytes: bytes.next_multiple_of(ALIGNMENT), next }
    }

    unsafe fn pack(&self, tuple: *const u8, form: Form, part: &Part, to: *mut u8, place: *mut u8) {
        let chunk = Chunk(place);
        let mut strings = place.wrapping_add(self.chunk_bytes(part.values));
        let mut packed = 0;
        let mut copy = |from: Chunk, capacity, at| {
            let (value, key, valid) = self.places(chunk, part.values, packed);
            let old = self.places(from, capacity, at);
            // SAFETY: the value lies in the chunk that it comes from, and has a place in the other.
            unsafe {
                value.write_unaligned(old.0.read_unaligned());
                if self.is_ordered {
                    key.write_unaligned(old.1.read_unaligned());
                }
                valid.write(old.2.read());
            }
            for place in self.strings(chunk, part.values, packed).into_iter().flatten() {
                // SAFETY: the string is alive, and there is room for it as was measured.
                unsafe { strings = pack_string(place, tuple, form, to, strings) };
            }
            packed += 1;
            true
        };
        // SAFETY: as promised, there are so many values, and room for a chunk of them.
        unsafe {
            chunk.next().write(0);
            chunk.length().write(part.values as u32);
            chunk.capacity().write(part.values as u32);
            Chain::<T>::walk(part.from, part.values, &mut copy);
            let list = Tuple::at(to);
            let distance = place.offset_from(to) as u64;
            self.first.set(list, distance);
            self.last.set(list, distance);
            self.count.set(list, part.values as u64);
        }
    }

    unsafe fn unpack(&self, tuple: *mut u8) {
        // SAFETY: as promised.
        let list = unsafe { Tuple::at(tuple) };
        if self.count.get(list) == 0 {
            return;
        }
        let address = self.first.get(list) + tuple as u64;
        self.first.set(list, address);
        self.last.set(list, address);
        if !T::IS_STRING && !self.is_ordered {
            return;
        }
        let chunk = Chunk(address as *mut u8);
        // SAFETY: a packed list is one chunk.
        unsafe {
            let capacity = chunk.capacity().read() as usize;
            for at in 0..capacity {
                for place in self.strings(chunk, capacity, at).into_iter().flatten() {
                    place.write_unaligned(place.read_unaligned().unpacked(tuple));
                }
            }
        }
    }
}

/// Packs the string at `place`, which was copied from a tuple in this form, for the tuple at `to`. Returns where the next one goes.
///
/// # Safety
/// The string is alive, `place` is its place's alone, and there is room for its bytes at `strings`.
pub(super) unsafe fn pack_string(
    place: *mut Str,
    tuple: *const u8,
    form: Form,
    to: *mut u8,
    strings: *mut u8,
) -> *mut u8 {
    // SAFETY: as promised.
    unsafe {
        let string = place.read_unaligned();
        if string.is_inline() {
            return strings;
        }
        let string = if form == Form::Packed { string.unpacked(tuple) } else { string };
        let bytes = string.bytes();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), strings, bytes.len());
        place.write_unaligned(string.packed(strings.offset_from(to) as u64));
        strings.add(bytes.len())
    }
}
