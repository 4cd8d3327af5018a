//! Writing the values of registers into tuples, a field of all tuples after the other: as they lie in memory, or on disk.

use super::dense::{Dense, append};
use super::layout::HASH_OFFSET;
use super::materializer::{Materializer, at};
use super::page::Slot;
use crate::for_lane;
use crate::lane::{Lane, Value, for_narrow};
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;

impl Materializer {
    /// Writes hashes and fields of rows into the slots from `first_slot` on, a field of all tuples after the other: as in memory, or
    /// as on disk.
    pub(super) fn write(
        &mut self,
        registers: &Registers,
        rows: Selected<'_>,
        hashes: &[u64],
        fields: &[Register],
        first_slot: usize,
        dense: Option<&Dense>,
    ) {
        let layout = self.layout.clone();
        let placed = |offset| dense.map_or(offset, |dense| dense.place(offset));
        let hash_offset = placed(HASH_OFFSET);
        let slots = &mut self.slots[first_slot..][..rows.count()];
        let mut number = 0;
        rows.for_each(|row| {
            // SAFETY: the slot is this tuple's own, of the layout's bytes.
            unsafe {
                slots[number].tuple.add(hash_offset).cast::<u64>().write_unaligned(hashes[row])
            };
            number += 1;
        });
        for (field_number, (field, register)) in layout.fields().iter().zip(fields).enumerate() {
            let vector = registers.vector(*register);
            if let Some((byte, bit)) = field.null_place() {
                let (byte, is_first) = (placed(byte), bit == 1);
                let mut number = 0;
                rows.for_each(|row| {
                    let null = if vector.validity.is_valid(row) { 0 } else { bit };
                    // SAFETY: the byte lies in the tuple; its first bit comes first, so it is initialized by then.
                    unsafe {
                        let place = slots[number].tuple.add(byte);
                        let others = if is_first { 0 } else { place.read() };
                        place.write(others | null);
                    }
                    number += 1;
                });
            } else {
                debug_assert!(!vector.validity.has_nulls(), "a null in a field that has none");
            }
            if field.lane == Lane::Str {
                match dense {
                    None => write_strings(slots, rows, vector, field.offset),
                    Some(_) => append_strings(slots, rows, vector),
                }
                continue;
            }
            let offset = placed(field.offset);
            if let Some(coder) = &self.coders[field_number] {
                write_values(slots, rows, coder.numbers(), offset, |number| number);
            } else if field.lane == field.register_lane {
                for_lane!(field.lane, T => write_values(slots, rows, vector.values::<T>(), offset, |value| value));
            } else {
                for_narrow!(field.register_lane, field.lane, T, S => {
                    let values = vector.values::<T>();
                    let fits = |row: usize| {
                        !vector.validity.is_valid(row) || T::from(values[row] as S) == values[row]
                    };
                    debug_assert!((0..rows.count()).all(|number| fits(at(rows, number))), "narrow values");
                    write_values(slots, rows, values, offset, |value| value as S);
                });
            }
        }
    }
}

fn write_values<T: Value, S: Value>(
    slots: &[Slot],
    rows: Selected<'_>,
    values: &[T],
    offset: usize,
    stored: impl Fn(T) -> S,
) {
    let mut number = 0;
    rows.for_each(|row| {
        // SAFETY: the field lies in the slot, which is this tuple's own.
        unsafe { slots[number].tuple.add(offset).cast::<S>().write_unaligned(stored(values[row])) };
        number += 1;
    });
}

fn write_strings(slots: &mut [Slot], rows: Selected<'_>, vector: &crate::Vector, offset: usize) {
    let strings = vector.values::<Str>();
    let mut number = 0;
    rows.for_each(|row| {
        let slot = &mut slots[number];
        number += 1;
        let mut string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
        if !string.is_inline() {
            // SAFETY: a register's strings are alive; `long_bytes` counted this one when the slot was made.
            unsafe {
                let bytes = string.bytes();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.strings, bytes.len());
                let distance = slot.strings.offset_from(slot.tuple) as u64;
                slot.strings = slot.strings.add(bytes.len());
                string = string.packed(distance);
            }
        }
        // SAFETY: the field lies in the slot, which is this tuple's own.
        unsafe { slot.tuple.add(offset).cast::<Str>().write_unaligned(string) };
    });
}

/// Appends a string to each of the tuples, as on disk.
fn append_strings(slots: &mut [Slot], rows: Selected<'_>, vector: &crate::Vector) {
    let strings = vector.values::<Str>();
    let mut number = 0;
    rows.for_each(|row| {
        let slot = &mut slots[number];
        number += 1;
        let string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
        // SAFETY: a register's strings are alive; there is room for all of a tuple's, which were counted when the slot was
        // made.
        slot.strings = unsafe { append(string, slot.strings) };
    });
}
