//! Writing the values of registers into tuples, as they lie in memory or on disk: of some hundred tuples one field after the other, then of
//! the next ones.

use std::ops::Range;

use super::codebook::Coder;
use super::dense::{Dense, append};
use super::layout::{HASH_OFFSET, Layout};
use super::materializer::Materializer;
use super::page::Slot;
use crate::copies::copy_exactly;
use crate::for_lane;
use crate::lane::{Lane, Value, for_narrow};
use crate::program::Register;
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;

/// Rows whose fields are all written before those of others: so many that their tuples stay in the first cache meanwhile.
const BLOCK_ROWS: usize = 256;

/// Some of the rows that are selected.
#[derive(Clone)]
struct Block<'a> {
    rows: Selected<'a>,
    /// Which of them.
    numbers: Range<usize>,
}

impl Block<'_> {
    #[inline(always)]
    fn for_each(&self, work: impl FnMut(usize)) {
        self.rows.for_each_of(self.numbers.clone(), work);
    }
}

impl Materializer {
    /// Writes hashes and fields of rows into the slots from `first_slot` on: as in memory, or as on disk.
    pub(super) fn write(
        &mut self,
        registers: &Registers,
        rows: Selected<'_>,
        hashes: &[u64],
        fields: &[Register],
        first_slot: usize,
        dense: Option<&Dense>,
    ) {
        let (layout, coders) = (&self.layout, &self.coders);
        let writing = Writing { layout, coders, registers, hashes, fields, dense };
        let slots = &mut self.slots[first_slot..][..rows.count()];
        for start in (0..rows.count()).step_by(BLOCK_ROWS) {
            let numbers = start..(start + BLOCK_ROWS).min(rows.count());
            let block = Block { rows, numbers: numbers.clone() };
            writing.block(&block, &mut slots[numbers]);
        }
    }
}

/// What rows are written from, and how.
struct Writing<'a> {
    layout: &'a Layout,
    coders: &'a [Option<Coder>],
    registers: &'a Registers,
    hashes: &'a [u64],
    fields: &'a [Register],
    dense: Option<&'a Dense>,
}

impl Writing<'_> {
    /// Writes a block, a field of all tuples after the other.
    fn block(&self, block: &Block<'_>, slots: &mut [Slot]) {
        debug_assert_eq!(slots.len(), block.numbers.len(), "a slot for each row");
        debug_assert_eq!(
            self.fields.len(),
            self.layout.fields().len(),
            "a register for each field"
        );
        let placed = |offset| self.dense.map_or(offset, |dense| dense.place(offset));
        let hash_offset = placed(HASH_OFFSET);
        write_values(slots, block, self.hashes, hash_offset, |hash| hash);
        let fields = self.layout.fields().iter().zip(self.fields).zip(self.coders);
        for ((field, register), coder) in fields {
            let vector = self.registers.vector(*register);
            if let Some((byte, bit)) = field.null_place() {
                let (byte, is_first) = (placed(byte), bit == 1);
                let mut slots = slots.iter();
                block.for_each(|row| {
                    let null = if vector.validity.is_valid(row) { 0 } else { bit };
                    let Some(slot) = slots.next() else { return };
                    // SAFETY: the byte lies in the tuple; its first bit comes first, so it is initialized by then.
                    unsafe {
                        let place = slot.tuple.add(byte);
                        let others = if is_first { 0 } else { place.read() };
                        place.write(others | null);
                    }
                });
            } else {
                debug_assert!(!vector.validity.has_nulls(), "a null in a field that has none");
            }
            if field.lane == Lane::Str {
                match self.dense {
                    None => write_strings(slots, block, vector, field.offset),
                    Some(_) => append_strings(slots, block, vector),
                }
                continue;
            }
            let offset = placed(field.offset);
            if let Some(coder) = coder {
                write_values(slots, block, coder.numbers(), offset, |number| number);
            } else if field.lane == field.register_lane {
                for_lane!(field.lane, T => write_values(slots, block, vector.values::<T>(), offset, |value| value));
            } else {
                for_narrow!(field.register_lane, field.lane, T, S => {
                    let values = vector.values::<T>();
                    block.for_each(|row| debug_assert!(
                        !vector.validity.is_valid(row) || T::from(values[row] as S) == values[row],
                        "narrow values"
                    ));
                    write_values(slots, block, values, offset, |value| value as S);
                });
            }
        }
    }
}

fn write_values<T: Value, S: Value>(
    slots: &[Slot],
    block: &Block<'_>,
    values: &[T],
    offset: usize,
    stored: impl Fn(T) -> S,
) {
    let mut slots = slots.iter();
    block.for_each(|row| {
        let Some(slot) = slots.next() else { return };
        // SAFETY: the field lies in the slot, which is this tuple's own.
        unsafe { slot.tuple.add(offset).cast::<S>().write_unaligned(stored(values[row])) };
    });
}

fn write_strings(slots: &mut [Slot], block: &Block<'_>, vector: &crate::Vector, offset: usize) {
    let strings = vector.values::<Str>();
    let mut slots = slots.iter_mut();
    block.for_each(|row| {
        let Some(slot) = slots.next() else { return };
        let mut string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
        if !string.is_inline() {
            // SAFETY: a register's strings are alive; `long_bytes` counted this one when the slot was made.
            unsafe {
                let bytes = string.bytes();
                copy_exactly(bytes.as_ptr(), slot.strings, bytes.len());
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
fn append_strings(slots: &mut [Slot], block: &Block<'_>, vector: &crate::Vector) {
    let strings = vector.values::<Str>();
    let mut slots = slots.iter_mut();
    block.for_each(|row| {
        let Some(slot) = slots.next() else { return };
        let string = if vector.validity.is_valid(row) { strings[row] } else { Str::EMPTY };
        // SAFETY: a register's strings are alive; there is room for all of a tuple's, which were counted when the slot was
        // made.
        slot.strings = unsafe { append(string, slot.strings) };
    });
}
