//! lag, lead, nth_value and ntile with arguments that rows have themselves.

use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::physical_plan::windows::WindowUDFExpr;
use weft_exec::Lane;
use weft_exec::window::{Given, Kind, Shift};

use super::expressions::{Expr, literal};
use super::term::in_one_lane;
use super::window::Call;
use super::window_frame;
use super::window_function::{Fields, Own};
use crate::window_arguments::{Of, Varying};

/// The engine's function; `None` if only DataFusion finds its frames, or if it is none of these.
///
/// # Errors
/// Those of its arguments.
pub(super) fn varying(
    call: &Call,
    function: &WindowUDFExpr,
    fields: &mut Fields<'_, '_>,
) -> DfResult<Option<Own>> {
    let Some(Varying { of, ignores_nulls, .. }) = function.fun().inner().downcast_ref() else {
        return Ok(None);
    };
    let (of, ignores_nulls) = (*of, *ignores_nulls);
    if of == Of::Ntile {
        let [parts] = function.args() else { return internal_err!("ntile has one argument") };
        let kind = Kind::Ntile(Given::Field(fields.of(parts)?));
        return Ok(Some((kind, Vec::new(), Lane::of(call.field()?.data_type()))));
    }
    let [argument, number, rest @ ..] = function.args() else {
        return internal_err!("the function has two arguments");
    };
    let mut term = fields.term(argument)?;
    if of == Of::Nth {
        let Some(frame) = window_frame::frame(call, fields)? else { return Ok(None) };
        let kind = Kind::Nth { row: Given::Field(fields.of(number)?), ignores_nulls, frame };
        return Ok(Some((kind, vec![fields.field(&term)], term.lane)));
    }
    let default = match rest.first() {
        None => None,
        Some(default) => {
            let default = fields.term(default)?;
            let default = {
                let (of_argument, default) = in_one_lane(fields.code.program, term, default);
                term = of_argument;
                default
            };
            if default.lane != term.lane {
                return Ok(None);
            }
            Some(Given::Field(fields.field(&default)))
        }
    };
    let back = distance(number, fields)?;
    let shift = Shift { back, is_ahead: of == Of::Lead, ignores_nulls, default };
    Ok(Some((Kind::Shift(shift), vec![fields.field(&term)], term.lane)))
}

/// How far away another row is.
fn distance(number: &Expr, fields: &mut Fields<'_, '_>) -> DfResult<Given<i64>> {
    match literal(number) {
        Some(ScalarValue::Int64(Some(number))) => Ok(Given::Constant(*number)),
        _ => Ok(Given::Field(fields.of(number)?)),
    }
}
