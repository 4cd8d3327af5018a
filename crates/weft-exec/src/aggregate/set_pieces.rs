//! DISTINCT sets without addresses: a part of a set is a table without free slots on its tuple's page, and the strings of its values
//! and keys behind it.

use super::distinct::{Distinct, HEADER_BYTES, Table};
use super::fold::Ordered;
use super::kept::Keep;
use super::list_pieces::pack_string;
use super::state::Tuple;
use crate::text::Str;
use crate::tuple::Layout;
use crate::tuple::behind::{ALIGNMENT, Behind, Cursor, Part};
use crate::tuple::pack::Form;

impl<T: Keep + Ordered> Distinct<T> {
    /// Where the strings of a slot lie: of the value, if it is one, and of its key.
    fn strings(&self, slot: *mut u8) -> [Option<*mut Str>; 2] {
        let value = slot.wrapping_add(size_of::<u64>());
        let key = value.wrapping_add(size_of::<T>());
        [T::IS_STRING.then(|| value.cast()), self.order.map(|_| key.cast())]
    }

    /// Calls `work` with each slot of the next values, as long as that says so. Returns the place after them.
    ///
    /// # Safety
    /// The place is one of a table.
    unsafe fn walk(&self, mut from: Cursor, mut work: impl FnMut(*mut u8) -> bool) -> Cursor {
        let table = Table(from.address as *mut u64);
        while from.left > 0 {
            let slot = self.slot(table, from.at as u64);
            // SAFETY: a slot of the table, as there are more values; it begins with a hash.
            if unsafe { slot.cast::<u64>().read() } != 0 {
                if !work(slot) {
                    break;
                }
                from.left -= 1;
            }
            from.at += 1;
        }
        from.is_start = false;
        from
    }
}

impl<T: Keep + Ordered> Behind for Distinct<T> {
    unsafe fn start(&self, tuple: *const u8, form: Form) -> Cursor {
        // SAFETY: as promised; it is only read.
        let set = unsafe { Tuple::at(tuple.cast_mut()) };
        let mut address = self.table.get(set);
        if address == 0 {
            return Cursor::default();
        }
        if form == Form::Packed {
            address += tuple as u64;
        }
        // SAFETY: it is the address of a table.
        let left = unsafe { Table(address as *mut u64).len() } as usize;
        Cursor { address, at: 0, left, is_start: true }
    }

    unsafe fn part(&self, _: *const u8, _: Form, from: Cursor, room_bytes: usize) -> Part {
        if from.left == 0 && !from.is_start {
            return Part { next: from, ..Part::default() };
        }
        let slot_bytes = self.slot_bytes();
        let (mut values, mut bytes) = (0, HEADER_BYTES);
        let measure = |slot| {
            let strings = self.strings(slot).into_iter().flatten();
            // SAFETY: the slot has strings there.
            let strings = strings.map(|place| unsafe { place.read_unaligned() });
            let more = slot_bytes + strings.map(Layout::long_bytes).sum::<usize>();
            if values > 0 && bytes + more > room_bytes {
                return false;
            }
            values += 1;
            bytes += more;
            true
        };
        // SAFETY: as promised.
        let next = unsafe { self.walk(from, measure) };
        Part { from, values, bytes: bytes.next_multiple_of(ALIGNMENT), next }
    }

    unsafe fn pack(&self, tuple: *const u8, form: Form, part: &Part, to: *mut u8, place: *mut u8) {
        let table = Table(place.cast());
        let mut packed = 0;
        let mut strings = self.slot(table, part.values as u64);
        let copy = |from: *mut u8| {
            if packed == part.values as u64 {
                return false;
            }
            let slot = self.slot(table, packed);
            // SAFETY: both are slots of tables, and there is room for the strings as was measured.
            unsafe {
                std::ptr::copy_nonoverlapping(from, slot, self.slot_bytes());
                for place in self.strings(slot).into_iter().flatten() {
                    strings = pack_string(place, tuple, form, to, strings);
                }
            }
            packed += 1;
            true
        };
        // SAFETY: as promised, there are so many values, and room for a table of them.
        unsafe {
            let has_null = part.from.is_start && Table(part.from.address as *mut u64).has_null();
            let count = part.values as u64;
            table.0.cast::<[u64; 4]>().write([count, count, has_null.into(), 0]);
            self.walk(part.from, copy);
            self.table.set(Tuple::at(to), place.offset_from(to) as u64);
        }
    }

    unsafe fn unpack(&self, tuple: *mut u8) {
        // SAFETY: as promised.
        let set = unsafe { Tuple::at(tuple) };
        let distance = self.table.get(set);
        if distance == 0 {
            return;
        }
        self.table.set(set, distance + tuple as u64);
        if !T::IS_STRING && self.order.is_none() {
            return;
        }
        let table = Table((distance + tuple as u64) as *mut u64);
        // SAFETY: a packed set is a table without free slots.
        unsafe {
            for at in 0..table.len() {
                for place in self.strings(self.slot(table, at)).into_iter().flatten() {
                    place.write_unaligned(place.read_unaligned().unpacked(tuple));
                }
            }
        }
    }
}
