//! Functions over Arrow arrays: their inputs are gathered, their result is scattered.

use std::sync::Arc;

use arrow_array::{ArrayRef, UInt32Array};

use crate::arrow::{ArrowColumn, ColumnBuilder};
use crate::error::{ExecError, Result};
use crate::lane::Lane;
use crate::program::{Function, Register};
use crate::registers::Registers;
use crate::selection::Selected;
use crate::text::Str;
use crate::vector::Vector;

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
    let arrays = inputs.iter().zip(function.input_types()).map(|(input, data_type)| {
        let vector = registers.vector(*input);
        let mut builder = ColumnBuilder::new(data_type, vector.lane());
        builder.append(vector, selected);
        builder.finish()
    });
    let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
    let mut result = function.call(&arrays, selected.count())?;
    if result.len() != selected.count() {
        let problem = format!(
            "{} gave {} values for {} rows",
            function.name(),
            result.len(),
            selected.count()
        );
        return Err(ExecError::Function(problem.into()));
    }
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
        if out.lane() == Lane::Str {
            keep_strings(registers.rows(), out);
        }
        Ok(())
    })
}

/// Copies the long strings of a vector, so that whatever owns them may go.
fn keep_strings(rows: usize, vector: &mut Vector) {
    for row in 0..rows {
        let Some(string) = vector.value::<Str>(row).filter(|string| !string.is_inline()) else {
            continue;
        };
        // SAFETY: it is not null, and its owner has not gone yet.
        let kept = vector.arena.add(unsafe { string.bytes() });
        vector.values_mut::<Str>()[row] = kept;
    }
}
