use super::*;
use crate::program::CastFailure;

/// The integer that a float becomes, if a lane has one.
fn truncated(value: f64) -> Option<i128> {
    let end = 2f64.powi(127);
    (value >= -end && value < end).then_some(value as i128)
}

fn expected(value: &Constant, into: Lane) -> Option<Constant> {
    // Not by way of 64 bits, which would round twice.
    if let (Some(integer), Lane::F32) = (value.integer(), into) {
        return Some(Constant::F32(integer as f32));
    }
    let (integer, float) = match value {
        Constant::Bool(value) => (Some((*value).into()), f64::from(u8::from(*value))),
        Constant::F32(value) => (truncated((*value).into()), (*value).into()),
        Constant::F64(value) => (truncated(*value), *value),
        value => (value.integer(), value.integer().expect("a number") as f64),
    };
    match into {
        Lane::Bool => Some(Constant::Bool(float != 0.0)),
        Lane::F32 => Some(Constant::F32(float as f32)),
        Lane::F64 => Some(Constant::F64(float)),
        into => Constant::of_integer(integer?, into),
    }
}

#[test]
fn numbers() {
    let lanes = || Lane::ALL.into_iter().filter(|lane| *lane != Lane::Str);
    for from in lanes() {
        for into in lanes() {
            for failure in [CastFailure::Error, CastFailure::Null] {
                let step = |inputs: &[Register], out| Step::Cast { a: inputs[0], out, failure };
                check(&[from], into, step, |inputs| {
                    let Some(value) = &inputs[0] else { return Ok(None) };
                    match (expected(value, into), failure) {
                        (None, CastFailure::Error) => Err(()),
                        (value, _) => Ok(value),
                    }
                });
            }
        }
    }
}

#[test]
fn negative_fractions_fit_into_unsigned_integers() {
    assert_eq!(expected(&Constant::F64(-0.9), Lane::U8), Some(Constant::U8(0)));
    assert_eq!(expected(&Constant::F64(-1.0), Lane::U8), None);
    assert_eq!(expected(&Constant::F64(255.9), Lane::U8), Some(Constant::U8(255)));
    assert_eq!(expected(&Constant::F64(f64::NAN), Lane::I128), None);
}
