use super::*;
use crate::program::CastFailure;

/// An integer, or a float.
enum Number {
    Integer(i128),
    Float(f64),
}

fn number(value: &Constant) -> Number {
    Number::Integer(match value {
        Constant::Bool(value) => (*value).into(),
        Constant::I8(value) => (*value).into(),
        Constant::I16(value) => (*value).into(),
        Constant::I32(value) => (*value).into(),
        Constant::I64(value) => (*value).into(),
        Constant::U8(value) => (*value).into(),
        Constant::U16(value) => (*value).into(),
        Constant::U32(value) => (*value).into(),
        Constant::U64(value) => (*value).into(),
        Constant::I128(value) => *value,
        Constant::F32(value) => return Number::Float((*value).into()),
        Constant::F64(value) => return Number::Float(*value),
        Constant::Str(_) => unreachable!("a number"),
    })
}

/// The integer that a float becomes; one that has no place in any lane if there is none.
fn truncated(value: f64) -> Option<i128> {
    let end = 2f64.powi(127);
    (value >= -end && value < end).then_some(value as i128)
}

fn expected(value: &Constant, into: Lane) -> Option<Constant> {
    let value = number(value);
    match (into, &value) {
        (Lane::Bool, Number::Integer(value)) => return Some(Constant::Bool(*value != 0)),
        (Lane::Bool, Number::Float(value)) => return Some(Constant::Bool(*value != 0.0)),
        (Lane::F32, Number::Integer(value)) => return Some(Constant::F32(*value as f32)),
        (Lane::F32, Number::Float(value)) => return Some(Constant::F32(*value as f32)),
        (Lane::F64, Number::Integer(value)) => return Some(Constant::F64(*value as f64)),
        (Lane::F64, Number::Float(value)) => return Some(Constant::F64(*value)),
        _ => {}
    }
    let integer = match value {
        Number::Integer(value) => value,
        Number::Float(value) => truncated(value)?,
    };
    Some(match into {
        Lane::I8 => Constant::I8(integer.try_into().ok()?),
        Lane::I16 => Constant::I16(integer.try_into().ok()?),
        Lane::I32 => Constant::I32(integer.try_into().ok()?),
        Lane::I64 => Constant::I64(integer.try_into().ok()?),
        Lane::U8 => Constant::U8(integer.try_into().ok()?),
        Lane::U16 => Constant::U16(integer.try_into().ok()?),
        Lane::U32 => Constant::U32(integer.try_into().ok()?),
        Lane::U64 => Constant::U64(integer.try_into().ok()?),
        Lane::I128 => Constant::I128(integer),
        into => unreachable!("{into}"),
    })
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
