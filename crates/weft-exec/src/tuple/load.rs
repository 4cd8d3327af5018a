//! Reading a field of many tuples: [`Step::Load`](crate::program::Step::Load), and whoever else goes through tuples by
//! their addresses.
//!
//! The loops have no branch per tuple, so that the processor has many cache misses under way at once. The address 0 is
//! that of no tuple, whose fields are null (an outer join has such).

use super::codebook::Known;
use super::dense::{Dense, next_strings};
use super::layout::{Field, Layout};
use crate::for_lane;
use crate::lane::{Lane, Value, for_narrow};
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::{VECTOR_ROWS_MAX, Vector};

/// What is read instead of a tuple that there is none of: as large as any field.
static NOTHING: [u64; 2] = [0; 2];

/// Puts the field number `field` of the tuples at `tuples` into `out`, for the rows that are `selected`. Strings refer
/// to the tuples' pages, or to the layout.
///
/// # Safety
/// Each of those addresses is 0, or that of a tuple of `layout` that nobody writes to, but for its header.
///
/// # Panics
/// If `out` is not of the field's lane, or there are more rows than addresses.
pub unsafe fn load(
    tuples: &[u64],
    selected: Selected<'_>,
    layout: &Layout,
    field: usize,
    out: &mut Vector,
) {
    let place = |offset: usize| offset;
    let mut has_zero = false;
    selected.for_each(|row| has_zero |= tuples[row] == 0);
    // SAFETY: as the caller promises.
    unsafe {
        if is_string(layout, field) {
            let offset = layout.field(field).offset;
            load_strings(tuples, selected, offset, out.values_mut());
        } else {
            load_fixed(tuples, selected, (layout, field), place, has_zero, out);
        }
        load_validity(tuples, selected, layout.field(field), place, has_zero, out);
    }
}

/// Puts the field number `field` of all `tuples`, which lie in `bytes` as on disk, into `out`. `strings` are the places of
/// their next strings in there, which are moved behind those that are read. Strings refer to the bytes, or to the layout.
///
/// # Safety
/// Each of those addresses is that of a tuple of `layout`, which has that `dense` form.
///
/// # Panics
/// If `out` is not of the field's lane. Strings are to be loaded in the order of their fields, each once: others are found else.
pub(crate) unsafe fn load_dense(
    tuples: &[u64],
    bytes: &[u8],
    strings: &mut [usize],
    (layout, dense): (&Layout, &Dense),
    field: usize,
    out: &mut Vector,
) {
    let (all, place) = (Selected::All(tuples.len()), |offset| dense.place(offset));
    // SAFETY: as the caller promises.
    unsafe {
        if is_string(layout, field) {
            next_strings(bytes, strings, out.values_mut());
        } else {
            load_fixed(tuples, all, (layout, field), place, false, out);
        }
        load_validity(tuples, all, layout.field(field), place, false, out);
    }
}

/// True if a field is a string that lies in tuples as such.
fn is_string(layout: &Layout, field: usize) -> bool {
    layout.field(field).lane == Lane::Str
}

/// Puts a field into `out` that is no string, or one that is stored as its number. `place` says where in tuples what lies that
/// the layout has elsewhere. If no address `has_zero`, none is asked whether it is.
///
/// # Safety
/// As [`load`].
unsafe fn load_fixed(
    tuples: &[u64],
    selected: Selected<'_>,
    (layout, number): (&Layout, usize),
    place: impl Fn(usize) -> usize,
    has_zero: bool,
    out: &mut Vector,
) {
    let field = layout.field(number);
    let offset = place(field.offset);
    // SAFETY: as the caller promises; without a 0 among them all are tuples.
    unsafe {
        match (field.lane, has_zero) {
            _ if field.is_coded() => {
                let known = layout.codebook(number).known();
                load_coded(tuples, selected, offset, &known, out.values_mut());
            }
            (lane, _) if lane != field.register_lane => {
                for_narrow!(field.register_lane, lane, T, S => {
                    load_values::<S, T, true>(tuples, selected, offset, out.values_mut(), T::from);
                });
            }
            (lane, false) => {
                for_lane!(lane, T => load_values::<T, T, false>(tuples, selected, offset, out.values_mut(), same));
            }
            (lane, true) => {
                for_lane!(lane, T => load_values::<T, T, true>(tuples, selected, offset, out.values_mut(), same));
            }
        }
    }
}

fn same<T>(value: T) -> T {
    value
}

/// Values that lie in tuples as `S`.
///
/// # Safety
/// As [`load`]; an address is 0 only if there `MAY_BE_ZERO`.
unsafe fn load_values<S: Value, T: Value, const MAY_BE_ZERO: bool>(
    tuples: &[u64],
    selected: Selected<'_>,
    offset: usize,
    out: &mut [T],
    widened: impl Fn(S) -> T,
) {
    selected.for_each(|row| {
        let tuple = tuples[row];
        let mut place = tuple.wrapping_add(offset as u64) as *const S;
        if MAY_BE_ZERO && tuple == 0 {
            place = NOTHING.as_ptr().cast();
        }
        // SAFETY: a field of a tuple, or as many zeros.
        out[row] = widened(unsafe { place.read_unaligned() });
    });
}

/// Strings that lie in tuples as their numbers.
///
/// # Safety
/// As [`load`]; all of the numbers are `known`.
unsafe fn load_coded(
    tuples: &[u64],
    selected: Selected<'_>,
    offset: usize,
    known: &Known<'_>,
    out: &mut [Str],
) {
    selected.for_each(|row| {
        let place = match tuples[row] {
            0 => NOTHING.as_ptr().cast(),
            tuple => (tuple + offset as u64) as *const u16,
        };
        // SAFETY: a field of a tuple, or the zeros of the empty string's number.
        out[row] = known.string(unsafe { place.read_unaligned() });
    });
}

/// # Safety
/// As [`load`].
unsafe fn load_strings(tuples: &[u64], selected: Selected<'_>, offset: usize, out: &mut [Str]) {
    selected.for_each(|row| {
        let tuple = tuples[row];
        let place = match tuple {
            0 => NOTHING.as_ptr().cast(),
            tuple => (tuple + offset as u64) as *const Str,
        };
        // SAFETY: a field of a tuple, or the zeros of an empty string.
        out[row] = unsafe { place.read_unaligned() }.unpacked(tuple as *const u8);
    });
}

/// # Safety
/// As [`load`].
unsafe fn load_validity(
    tuples: &[u64],
    selected: Selected<'_>,
    field: &Field,
    place: impl Fn(usize) -> usize,
    has_zero: bool,
    out: &mut Vector,
) {
    let null_place = field.null_place().map(|(byte, bit)| (place(byte), bit));
    if null_place.is_none() && !has_zero {
        return out.validity.set_all();
    }
    let mut nulls = [0u64; VECTOR_ROWS_MAX / 64];
    let mut any = 0;
    selected.for_each(|row| {
        let tuple = tuples[row];
        let is_null = match (tuple, null_place) {
            (0, _) => true,
            (_, None) => false,
            // SAFETY: a byte of a tuple.
            (tuple, Some((byte, bit))) => unsafe {
                (tuple as *const u8).add(byte).read() & bit != 0
            },
        };
        any |= u64::from(is_null);
        nulls[row / 64] |= u64::from(is_null) << (row % 64);
    });
    if any == 0 {
        return out.validity.set_all();
    }
    for (word, nulls) in out.validity.words_mut().iter_mut().zip(&nulls) {
        *word = !nulls;
    }
}
