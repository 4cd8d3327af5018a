//! Functions over Arrow arrays: their inputs are gathered, their result is scattered.

use std::sync::Arc;

use arrow_array::{ArrayRef, UInt32Array};

use crate::arrow::{ArrowColumn, ColumnBuilder};
use crate::error::{ExecError, Result};
use crate::for_lane;
use crate::lane::Lane;
use crate::program::{Function, Register};
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::Vector;

/// A column is kept for its strings if it has so many times their bytes, or less.
const KEPT_TIMES: usize = 2;

/// `out = function(inputs)` for the tuples that are selected: others could make it fail.
pub(crate) fn run(
    registers: &mut Registers,
    function: &Arc<dyn Function>,
    inputs: &[Register],
    out: Register,
) -> Result<()> {
    let selected = registers.selected();
    if selected.count() == 0 {
        return Ok(());
    }
    let mut result = evaluate(registers, &**function, inputs, selected)?;
    if let Selected::Some(rows) = selected {
        // Back to the places of their tuples; between them lies whatever comes first.
        let mut places = vec![0; registers.rows()];
        for (number, row) in rows.iter().enumerate() {
            places[usize::from(*row)] = number as u32;
        }
        result = arrow_select::take::take(&result, &UInt32Array::from(places), None)?;
    }
    registers.write(out, |registers, out| {
        let column = ArrowColumn::new(&result, out.lane())?;
        column.load(0, registers.rows(), out)?;
        keep(column, 0..registers.rows(), out);
        Ok(())
    })
}

/// What a function gives for some rows: as many values.
pub(crate) fn evaluate(
    registers: &Registers,
    function: &dyn Function,
    inputs: &[Register],
    rows: Selected<'_>,
) -> Result<ArrayRef> {
    let arrays = gathered(registers, function, inputs).map(|(mut builder, vector)| {
        builder.append(vector, rows);
        builder
    });
    call(function, arrays.collect(), rows.count())
}

/// For each input, where it is to be gathered, and what it is.
pub(crate) fn gathered<'a>(
    registers: &'a Registers,
    function: &'a dyn Function,
    inputs: &'a [Register],
) -> impl Iterator<Item = (ColumnBuilder, &'a Vector)> {
    inputs.iter().zip(function.input_types()).map(|(input, data_type)| {
        let vector = registers.vector(*input);
        (ColumnBuilder::new(data_type, vector.lane()), vector)
    })
}

/// What a function gives for so many rows, whose inputs were gathered.
pub(crate) fn call(
    function: &dyn Function,
    inputs: Vec<ColumnBuilder>,
    rows: usize,
) -> Result<ArrayRef> {
    let arrays: Vec<ArrayRef> =
        inputs.into_iter().map(ColumnBuilder::finish).collect::<Result<_>>()?;
    let result = function.call(&arrays, rows)?;
    if result.len() != rows {
        let problem = format!("{} gave {} values for {rows} rows", function.name(), result.len());
        return Err(ExecError::Function(problem.into()));
    }
    Ok(result)
}

/// Writes the values of a column into some rows, as many; `scratch` is used on the way.
///
/// # Errors
/// As [`ArrowColumn::load`].
pub(crate) fn scatter(
    column: ArrowColumn,
    rows: &[u16],
    scratch: &mut Vector,
    out: &mut Vector,
) -> Result<()> {
    column.load(0, rows.len(), scratch)?;
    for (number, row) in rows.iter().enumerate() {
        out.validity.set(usize::from(*row), scratch.validity.is_valid(number));
    }
    for_lane!(out.lane(), T => {
        let values = scratch.values::<T>();
        let out = out.values_mut::<T>();
        for (value, row) in values.iter().zip(rows) {
            out[usize::from(*row)] = *value;
        }
    });
    keep(column, rows.iter().map(|row| usize::from(*row)), out);
    Ok(())
}

/// The strings of some rows of a vector stay, which are a column's: with the column, unless it has much more than them.
fn keep(column: ArrowColumn, rows: impl Iterator<Item = usize> + Clone, vector: &mut Vector) {
    if vector.lane() != Lane::Str {
        return;
    }
    let long =
        rows.filter(|row| !vector.value::<Str>(*row).is_none_or(|string| string.is_inline()));
    let bytes: usize = long.clone().map(|row| vector.values::<Str>()[row].len()).sum();
    if bytes == 0 {
        return;
    }
    if column.string_bytes() <= KEPT_TIMES * bytes {
        vector.arena.keep(column);
        return;
    }
    let long: Vec<usize> = long.collect();
    for row in long {
        let string = vector.values::<Str>()[row];
        // SAFETY: it is not null, and the column is still there.
        let kept = vector.arena.add(unsafe { string.bytes() });
        vector.values_mut::<Str>()[row] = kept;
    }
}
