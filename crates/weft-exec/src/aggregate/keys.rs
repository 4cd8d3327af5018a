//! Keys of groups: written to tuples, and compared with those of rows and of other tuples, one key of all rows after the
//! other. Nulls are equal to each other, and so are 0.0 and -0.0, and all NaN.

use std::cmp::Ordering;

use super::fold::Ordered;
use super::state::Tuple;
use crate::copies::copy_exactly;
use crate::for_lane;
use crate::lane::Lane;
use crate::program::Register;
use crate::registers::Registers;
use crate::text::Str;
use crate::tuple::{Field, Layout};

/// Values that keys have.
pub(super) trait Key: Ordered {
    /// True if both are the same group's.
    #[inline(always)]
    fn same(self, other: Self) -> bool {
        self.order(other) == Ordering::Equal
    }

    /// As it is used, from what lies in a tuple.
    #[inline(always)]
    fn unpacked(self, _: Tuple) -> Self {
        self
    }
}

macro_rules! keys {
    ($($value:ty),*) => {$( impl Key for $value {} )*};
}
keys!(crate::lane::Bool, i8, i16, i32, i64, u8, u16, u32, u64, i128, f32, f64);

impl Key for Str {
    #[inline(always)]
    fn same(self, other: Str) -> bool {
        // SAFETY: strings of registers and those of tuples in memory are alive.
        unsafe { self.equals(&other) }
    }

    #[inline(always)]
    fn unpacked(self, tuple: Tuple) -> Str {
        Str::unpacked(self, tuple.address())
    }
}

#[inline(always)]
fn read<T: Key>(field: &Field, tuple: Tuple) -> T {
    // SAFETY: the field lies in the tuple, which is there (`Tuple::at`).
    let value = unsafe { tuple.address().add(field.offset).cast::<T>().read_unaligned() };
    value.unpacked(tuple)
}

#[inline(always)]
pub(super) fn is_null(field: &Field, tuple: Tuple) -> bool {
    // SAFETY: null bits lie in the tuple, which is there (`Tuple::at`).
    field.null_place().is_some_and(|(byte, bit)| unsafe { *tuple.address().add(byte) } & bit != 0)
}

/// Keeps of `same` what is true, and where the key of `rows` is that of the tuple at the same place.
pub(super) fn compare_rows(
    layout: &Layout,
    registers: &Registers,
    keys: &[Register],
    rows: &[u16],
    tuples: &[Tuple],
    same: &mut [bool],
) {
    for (field, register) in layout.fields().iter().zip(keys) {
        for_lane!(field.lane, T => compare_column::<T>(field, registers, *register, rows, tuples, same));
    }
}

fn compare_column<T: Key>(
    field: &Field,
    registers: &Registers,
    register: Register,
    rows: &[u16],
    tuples: &[Tuple],
    same: &mut [bool],
) {
    let vector = registers.vector(register);
    let values = vector.values::<T>();
    let places = rows.iter().zip(tuples).zip(same);
    if field.null_bit.is_none() {
        for ((row, tuple), same) in places {
            *same &= values[usize::from(*row)].same(read(field, *tuple));
        }
    } else if !vector.validity.has_nulls() {
        for ((row, tuple), same) in places {
            let is_same = values[usize::from(*row)].same(read(field, *tuple));
            *same &= is_same && !is_null(field, *tuple);
        }
    } else {
        for ((row, tuple), same) in places {
            let row = usize::from(*row);
            let (is_valid, is_null) = (vector.validity.is_valid(row), is_null(field, *tuple));
            *same &= is_valid != is_null && (is_null || values[row].same(read(field, *tuple)));
        }
    }
}

/// As [`compare_rows`], for two tuples each.
pub(super) fn compare_tuples(
    layout: &Layout,
    keys: usize,
    left: &[Tuple],
    right: &[Tuple],
    same: &mut [bool],
) {
    for field in &layout.fields()[..keys] {
        for_lane!(field.lane, T => {
            for ((left, right), same) in left.iter().zip(right).zip(same.iter_mut()) {
                let nulls = (is_null(field, *left), is_null(field, *right));
                *same &= nulls.0 == nulls.1
                    && (nulls.0 || read::<T>(field, *left).same(read(field, *right)));
            }
        });
    }
}

/// Bytes that the long strings of a row's keys take.
pub(super) fn long_bytes(
    layout: &Layout,
    registers: &Registers,
    keys: &[Register],
    row: usize,
) -> usize {
    let bytes = |(field, register): (&Field, &Register)| {
        let is_string = field.lane == Lane::Str;
        let string = if is_string { registers.vector(*register).value::<Str>(row) } else { None };
        string.map_or(0, Layout::long_bytes)
    };
    layout.fields().iter().zip(keys).map(bytes).sum()
}

/// Writes a value into a key's field of a tuple whose null bit is not set. The bytes of a long string go to `strings`, and
/// what is behind them is given back.
///
/// # Safety
/// There is room for them, and the tuple is one of the field's layout.
#[inline(always)]
pub(super) unsafe fn write<T: Key>(
    field: &Field,
    tuple: Tuple,
    value: Option<T>,
    strings: *mut u8,
) -> *mut u8 {
    let address = tuple.address();
    let Some(value) = value else {
        let (byte, bit) = field.null_place().expect("a null in a key that has none");
        // SAFETY: null bits lie in the tuple.
        unsafe { *address.add(byte) |= bit };
        return strings;
    };
    let place = address.wrapping_add(field.offset).cast::<T>();
    if T::LANE != Lane::Str {
        // SAFETY: the field lies in the tuple.
        unsafe { place.write_unaligned(value) };
        return strings;
    }
    let string: Str = bytemuck::cast(value);
    // SAFETY: a string is alive; there is room for its bytes, and the field lies in the tuple.
    unsafe {
        if string.is_inline() {
            place.cast::<Str>().write_unaligned(string);
            return strings;
        }
        let bytes = string.bytes();
        copy_exactly(bytes.as_ptr(), strings, bytes.len());
        let distance = strings.offset_from(address) as u64;
        place.cast::<Str>().write_unaligned(string.packed(distance));
        strings.add(bytes.len())
    }
}

/// Writes the keys of rows into new tuples, and their long strings to the places in `strings`.
///
/// # Safety
/// The tuples are of the layout, begun; at `strings` there is room for [`long_bytes`].
pub(super) unsafe fn write_rows(
    layout: &Layout,
    registers: &Registers,
    keys: &[Register],
    rows: &[u16],
    tuples: &[Tuple],
    strings: &mut [*mut u8],
) {
    for (field, register) in layout.fields().iter().zip(keys) {
        let vector = registers.vector(*register);
        for_lane!(field.lane, T => {
            let values = vector.values::<T>();
            for ((row, tuple), strings) in rows.iter().zip(tuples).zip(strings.iter_mut()) {
                let row = usize::from(*row);
                let value = vector.validity.is_valid(row).then(|| values[row]);
                // SAFETY: as promised.
                *strings = unsafe { write(field, *tuple, value, *strings) };
            }
        });
    }
}

/// Writes a key of some tuples into the first rows of a register's vector. Long strings stay where they are.
pub(super) fn load(field: &Field, tuples: &[Tuple], out: &mut crate::Vector) {
    for_lane!(field.lane, T => {
        for (tuple, value) in tuples.iter().zip(out.values_mut::<T>()) {
            *value = read(field, *tuple);
        }
    });
    out.validity.set_all();
    if field.null_bit.is_some() {
        for (at, tuple) in tuples.iter().enumerate() {
            if is_null(field, *tuple) {
                out.validity.set(at, false);
            }
        }
    }
}
