use super::*;
use crate::program::{Arithmetic, Overflow};

macro_rules! check_integers {
    ($type:ident, $lane:ident) => {{
        use Arithmetic::*;
        for op in [Add, Subtract, Multiply, Divide, Remainder, BitAnd, BitOr, BitXor] {
            for overflow in [Overflow::Error, Overflow::Impossible] {
                let step = |inputs: &[Operand], out| {
                    let (a, b) = (inputs[0].clone(), inputs[1].clone());
                    Step::Arithmetic { op, a, b, out, overflow }
                };
                check_operands(&[Lane::$lane; 2], Lane::$lane, step, |inputs| {
                    let [Some(Constant::$lane(a)), Some(Constant::$lane(b))] = inputs else {
                        return Ok(None);
                    };
                    let (a, b) = (*a, *b);
                    let checked = match op {
                        Add => $type::checked_add(a, b),
                        Subtract => $type::checked_sub(a, b),
                        Multiply => $type::checked_mul(a, b),
                        Divide => $type::checked_div(a, b),
                        Remainder if b == 0 => None,
                        Remainder => Some($type::wrapping_rem(a, b)),
                        BitAnd => Some(a & b),
                        BitOr => Some(a | b),
                        BitXor => Some(a ^ b),
                    };
                    let wrapped = match op {
                        _ if overflow == Overflow::Error => None,
                        Add => Some($type::wrapping_add(a, b)),
                        Subtract => Some($type::wrapping_sub(a, b)),
                        Multiply => Some($type::wrapping_mul(a, b)),
                        _ => None,
                    };
                    checked.or(wrapped).map(|value| Some(Constant::$lane(value))).ok_or(())
                });
            }
        }
        for overflow in [Overflow::Error, Overflow::Impossible] {
            let step = |inputs: &[Register], out| Step::Negate { a: inputs[0], out, overflow };
            check(&[Lane::$lane], Lane::$lane, step, |inputs| {
                let [Some(Constant::$lane(a))] = inputs else { return Ok(None) };
                let value = match overflow {
                    Overflow::Error => a.checked_neg().ok_or(())?,
                    Overflow::Impossible => a.wrapping_neg(),
                };
                Ok(Some(Constant::$lane(value)))
            });
        }
    }};
}

#[test]
fn integers() {
    check_integers!(i32, I32);
    check_integers!(i64, I64);
    check_integers!(u32, U32);
    check_integers!(u64, U64);
    check_integers!(i128, I128);
}

macro_rules! check_floats {
    ($type:ident, $lane:ident) => {{
        use Arithmetic::*;
        for op in [Add, Subtract, Multiply, Divide, Remainder] {
            let step = |inputs: &[Operand], out| {
                let (a, b) = (inputs[0].clone(), inputs[1].clone());
                Step::Arithmetic { op, a, b, out, overflow: Overflow::Error }
            };
            check_operands(&[Lane::$lane; 2], Lane::$lane, step, |inputs| {
                let [Some(Constant::$lane(a)), Some(Constant::$lane(b))] = inputs else {
                    return Ok(None);
                };
                Ok(Some(Constant::$lane(match op {
                    Add => a + b,
                    Subtract => a - b,
                    Multiply => a * b,
                    Divide => a / b,
                    _ => a % b,
                })))
            });
        }
        let step = |inputs: &[Register], out| Step::Negate {
            a: inputs[0],
            out,
            overflow: Overflow::Error,
        };
        check(&[Lane::$lane], Lane::$lane, step, |inputs| {
            let [Some(Constant::$lane(a))] = inputs else { return Ok(None) };
            Ok(Some(Constant::$lane(-a)))
        });
        let step = |inputs: &[Register], out| Step::Canonical { a: inputs[0], out };
        check(&[Lane::$lane], Lane::$lane, step, |inputs| {
            let [Some(Constant::$lane(a))] = inputs else { return Ok(None) };
            Ok(Some(Constant::$lane(if a.is_nan() { $type::NAN } else { a + 0.0 })))
        });
    }};
}

#[test]
fn floats() {
    check_floats!(f32, F32);
    check_floats!(f64, F64);
}

#[test]
fn products_close_to_the_end() {
    // Around 2^63, where the sizes of factors say little.
    let factors =
        [1i64 << 31, 1 << 32, (1 << 32) - 1, -(1 << 31), -(1 << 32), 3_037_000_499, 3_037_000_500];
    for a in factors {
        for b in factors {
            let mut registers = Registers::of(&[Lane::I64; 3]);
            registers.begin(1);
            let [x, y, out] = [0, 1, 2].map(Register);
            registers.vector_mut(x).values_mut()[0] = a;
            registers.vector_mut(y).values_mut()[0] = b;
            let (x, y) = (Operand::Register(x), Operand::Register(y));
            let (op, overflow) = (Arithmetic::Multiply, Overflow::Error);
            let step = Step::Arithmetic { op, a: x, b: y, out, overflow };
            let result = crate::kernels::run(&step, &mut registers);
            match a.checked_mul(b) {
                Some(product) => {
                    assert_eq!(datum(&registers, out, 0), Some(Constant::I64(product)))
                }
                None => {
                    let message = result.expect_err("too large").to_string();
                    assert!(message.contains(&format!("{a} * {b} overflows")), "{message}");
                }
            }
        }
    }
}

#[test]
fn one_nan() {
    let mut registers = Registers::of(&[Lane::F64; 2]);
    registers.begin(3);
    let [a, out] = [0, 1].map(Register);
    registers.vector_mut(a).values_mut()[..3].copy_from_slice(&[-f64::NAN, f64::NAN, -0.0]);
    crate::kernels::run(&Step::Canonical { a, out }, &mut registers).expect("cannot fail");
    let bits = registers.vector(out).values::<f64>()[..3].iter().map(|value| value.to_bits());
    assert!(bits.eq([f64::NAN, f64::NAN, 0.0].map(f64::to_bits)));
}
