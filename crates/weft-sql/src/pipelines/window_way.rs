//! Which row lag, lead, first_value, last_value and nth_value take. DataFusion may have turned them round together with
//! the order of the rows; it says so, and whether rows with null count, only by what the functions do. So they are tried.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::physical_expr::window::StandardWindowFunctionExpr;
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::expressions::literal;

/// The farthest row that a function is tried with.
const DISTANCE_MAX: usize = 128 << 10;

/// The first value that functions are tried with: nobody has it for a default.
const FIRST_VALUE: i64 = -0x7e57_ab1e_c0de;

/// Which row, and whether rows with null count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// How many rows before the row; or in a frame the number of the row, from 1 on, or from -1 on backwards.
    pub(super) distance: i64,
    pub(super) ignores_nulls: bool,
}

impl Way {
    /// The way of lag or lead; `None` if it cannot be told.
    ///
    /// # Errors
    /// If the function cannot be called at all.
    pub(super) fn of_shift(function: &WindowUDFExpr) -> DfResult<Option<Way>> {
        let Some(rows) = distance(function) else { return Ok(None) };
        if rows == 0 {
            return Ok(Some(Way { distance: 0, ignores_nulls: false }));
        }
        if function.create_evaluator()?.is_causal() {
            // Told of one row only, it knows none that counts, if nulls do not.
            let taken = taken(function, rows + 1, &[])?;
            return Ok(Some(Way { distance: rows as i64, ignores_nulls: taken != value(0) }));
        }
        let taken = taken(function, rows + 2, &[1])?;
        Ok(Some(Way { distance: -(rows as i64), ignores_nulls: taken == value(rows + 1) }))
    }

    /// The way of a function over frames; `None` if it cannot be told.
    ///
    /// # Errors
    /// If the function cannot be called at all.
    pub(super) fn of_nth(function: &WindowUDFExpr) -> DfResult<Option<Way>> {
        let Some(number) = distance(function) else { return Ok(None) };
        if number == 0 {
            return Ok(Some(Way { distance: 0, ignores_nulls: false }));
        }
        let rows = 3 * number + 7;
        let is_forward = taken(function, rows, &[])? == value(number - 1);
        let distance = if is_forward { number as i64 } else { -(number as i64) };
        let ignoring = if is_forward { number } else { rows - 1 - number };
        let ignores_nulls = taken(function, rows, &[0, rows - 1])? == value(ignoring);
        Ok(Some(Way { distance, ignores_nulls }))
    }
}

/// How far away the row is that a function takes, in some direction.
fn distance(function: &WindowUDFExpr) -> Option<usize> {
    let Some(argument) = function.args().get(1) else { return Some(1) };
    let ScalarValue::Int64(Some(distance)) = literal(argument)?.cast_to(&DataType::Int64).ok()?
    else {
        return None;
    };
    usize::try_from(distance.unsigned_abs()).ok().filter(|distance| *distance <= DISTANCE_MAX)
}

/// The value of a row.
fn value(row: usize) -> ScalarValue {
    ScalarValue::Int64(Some(FIRST_VALUE + row as i64))
}

/// What a function takes for the last row, or the first one if it looks ahead, of so many with nulls at some places.
fn taken(function: &WindowUDFExpr, rows: usize, nulls: &[usize]) -> DfResult<ScalarValue> {
    let value = |row| (!nulls.contains(&row)).then_some(FIRST_VALUE + row as i64);
    let values: ArrayRef = Arc::new(Int64Array::from_iter((0..rows).map(value)));
    function.create_evaluator()?.evaluate(&[values], &(0..rows))
}
