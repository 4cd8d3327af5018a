use std::cmp::Ordering;

use super::*;
use crate::program::Comparison;

fn order_floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).expect("numbers"),
        (a, b) => a.cmp(&b),
    }
}

fn order(a: &Constant, b: &Constant) -> Ordering {
    match (a, b) {
        (Constant::Bool(a), Constant::Bool(b)) => a.cmp(b),
        (Constant::I8(a), Constant::I8(b)) => a.cmp(b),
        (Constant::I16(a), Constant::I16(b)) => a.cmp(b),
        (Constant::I32(a), Constant::I32(b)) => a.cmp(b),
        (Constant::I64(a), Constant::I64(b)) => a.cmp(b),
        (Constant::U8(a), Constant::U8(b)) => a.cmp(b),
        (Constant::U16(a), Constant::U16(b)) => a.cmp(b),
        (Constant::U32(a), Constant::U32(b)) => a.cmp(b),
        (Constant::U64(a), Constant::U64(b)) => a.cmp(b),
        (Constant::I128(a), Constant::I128(b)) => a.cmp(b),
        (Constant::F32(a), Constant::F32(b)) => order_floats((*a).into(), (*b).into()),
        (Constant::F64(a), Constant::F64(b)) => order_floats(*a, *b),
        (Constant::Str(a), Constant::Str(b)) => a.cmp(b),
        _ => unreachable!("values of one lane"),
    }
}

#[test]
fn values_of_all_lanes() {
    use Comparison::*;
    for lane in Lane::ALL {
        for op in
            [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual, NotDistinct, Distinct]
        {
            let step = |inputs: &[Operand], out| Step::Compare {
                op,
                a: inputs[0].clone(),
                b: inputs[1].clone(),
                out,
            };
            check_operands(&[lane; 2], Lane::Bool, step, |inputs| {
                let order = match inputs {
                    [Some(a), Some(b)] => Some(order(a, b)),
                    [a, b] if op == NotDistinct => return Ok(Some(Constant::Bool(a == b))),
                    [a, b] if op == Distinct => return Ok(Some(Constant::Bool(a != b))),
                    _ => None,
                };
                let truth = order.map(|order| match op {
                    Equal | NotDistinct => order.is_eq(),
                    NotEqual | Distinct => order.is_ne(),
                    Less => order.is_lt(),
                    LessOrEqual => order.is_le(),
                    Greater => order.is_gt(),
                    GreaterOrEqual => order.is_ge(),
                });
                Ok(truth.map(Constant::Bool))
            });
        }
    }
}

fn truth(value: &Datum) -> Option<bool> {
    value.as_ref().map(|value| *value == Constant::Bool(true))
}

#[test]
fn three_truth_values() {
    let and = |inputs: &[Register], out| Step::And { a: inputs[0], b: inputs[1], out };
    check(&[Lane::Bool; 2], Lane::Bool, and, |inputs| {
        Ok(match (truth(&inputs[0]), truth(&inputs[1])) {
            (Some(false), _) | (_, Some(false)) => Some(Constant::Bool(false)),
            (Some(true), Some(true)) => Some(Constant::Bool(true)),
            _ => None,
        })
    });
    let or = |inputs: &[Register], out| Step::Or { a: inputs[0], b: inputs[1], out };
    check(&[Lane::Bool; 2], Lane::Bool, or, |inputs| {
        Ok(match (truth(&inputs[0]), truth(&inputs[1])) {
            (Some(true), _) | (_, Some(true)) => Some(Constant::Bool(true)),
            (Some(false), Some(false)) => Some(Constant::Bool(false)),
            _ => None,
        })
    });
    let not = |inputs: &[Register], out| Step::Not { a: inputs[0], out };
    check(&[Lane::Bool], Lane::Bool, not, |inputs| {
        Ok(truth(&inputs[0]).map(|truth| Constant::Bool(!truth)))
    });
}

#[test]
fn nulls() {
    for lane in Lane::ALL {
        for negated in [false, true] {
            let step = |inputs: &[Register], out| Step::IsNull { a: inputs[0], negated, out };
            check(&[lane], Lane::Bool, step, |inputs| {
                Ok(Some(Constant::Bool(inputs[0].is_none() != negated)))
            });
        }
    }
}

#[test]
fn values_that_are_copied() {
    for lane in Lane::ALL {
        let step = |inputs: &[Operand], out| Step::Assign { a: inputs[0].clone(), out };
        check_operands(&[lane], lane, step, |inputs| Ok(inputs[0].clone()));
        let value = random_value(&mut fastrand::Rng::with_seed(5), lane, true);
        for value in [Some(value), None] {
            let step = |_: &[Register], out| Step::Fill { value: value.clone(), out };
            check(&[], lane, step, |_| Ok(value.clone()));
        }
    }
}
