use super::*;
use crate::program::Overflow;

/// 10^digits, or something larger than any number.
fn power(digits: u32) -> Option<i128> {
    10i128.checked_pow(digits)
}

/// The decimal with more or fewer digits, if it has a place in 128 bits.
fn rescaled(value: i128, digits: i8) -> Option<i128> {
    let power = power(digits.unsigned_abs().into());
    if digits >= 0 {
        return power.map_or((value == 0).then_some(0), |power| value.checked_mul(power));
    }
    let Some(power) = power else { return Some(0) };
    let up = i128::from(value.unsigned_abs() % power.unsigned_abs() * 2 >= power.unsigned_abs());
    Some(value / power + up * value.signum())
}

fn integer(value: &Constant) -> i128 {
    match value {
        Constant::I64(value) => (*value).into(),
        Constant::I128(value) => *value,
        _ => unreachable!("a decimal"),
    }
}

fn decimal(value: i128, lane: Lane) -> Option<Constant> {
    match lane {
        Lane::I64 => Some(Constant::I64(value.try_into().ok()?)),
        _ => Some(Constant::I128(value)),
    }
}

#[test]
fn digits_are_added_and_taken_away() {
    for from in [Lane::I64, Lane::I128] {
        for into in [Lane::I64, Lane::I128] {
            for digits in [-40, -39, -38, -20, -19, -18, -5, -2, -1, 0, 1, 2, 5, 18, 19, 38, 39] {
                let overflow = Overflow::Error;
                let step = |inputs: &[Register], out| Step::Rescale {
                    a: inputs[0],
                    digits,
                    out,
                    overflow,
                };
                check(&[from], into, step, |inputs| {
                    let Some(value) = &inputs[0] else { return Ok(None) };
                    let value = rescaled(integer(value), digits).ok_or(())?;
                    decimal(value, into).map(Some).ok_or(())
                });
            }
        }
    }
}

#[test]
fn halves_are_rounded_away_from_zero() {
    for (value, expected) in [(15, 2), (14, 1), (-15, -2), (-14, -1), (5, 1), (-5, -1), (4, 0)] {
        assert_eq!(rescaled(value, -1), Some(expected));
    }
}

#[test]
fn digits_are_counted() {
    for lane in [Lane::I64, Lane::I128] {
        for digits in [1u8, 4, 10, 17, 18, 19, 20, 37, 38] {
            // The step writes nothing: what it lets pass is copied before.
            let mut random = fastrand::Rng::with_seed(digits.into());
            for wild in [false, true] {
                for is_selected in [false, true] {
                    let value = random_value(&mut random, lane, wild);
                    let mut registers = Registers::of(&[lane]);
                    registers.begin(3);
                    let column = vec![Some(value.clone()), None, Some(value.clone())];
                    load(&mut random, &mut registers, Register(0), &column, &[true; 3]);
                    registers.selection.retain(|row| row == 1 || is_selected);
                    let step = Step::Digits { a: Register(0), digits };
                    let result = crate::kernels::run(&step, &mut registers);
                    let fits = power(digits.into())
                        .is_none_or(|end| integer(&value).unsigned_abs() < end.unsigned_abs());
                    assert_eq!(result.is_ok(), fits || !is_selected, "{value:?} {digits}");
                }
            }
        }
    }
}
