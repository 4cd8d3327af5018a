//! What arithmetic does to two numbers: one type for each operator, in two forms. The *plain* ones follow IEEE 754 or
//! wrap; the *checked* ones wrap too, and ring if the result has no place.

use super::alarm::{Any, Factors, Sign};
use super::map::Operation;

macro_rules! operators {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
    )*};
}

operators!(
    /// a + b
    Add,
    /// a - b
    Subtract,
    /// a · b
    Multiply,
    /// a / b of floats
    Divide,
    /// What is left of a / b, of floats
    Remainder,
    /// a & b
    BitAnd,
    /// a | b
    BitOr,
    /// a ^ b
    BitXor,
    /// a + b, checked
    CheckedAdd,
    /// a - b, checked
    CheckedSubtract,
    /// a · b, checked; rings for products, too, that are just large
    CheckedMultiply,
    /// a · b, checked exactly
    ExactMultiply,
    /// a / b, checked
    CheckedDivide,
    /// What is left of a / b, checked
    CheckedRemainder
);

macro_rules! operation {
    ($name:ident, $value:ty, $alarm:ty, |$a:ident, $b:ident, $trace:pat_param| $body:expr) => {
        impl Operation<$value, $value> for $name {
            type Out = $value;
            type Alarm = $alarm;

            #[inline(always)]
            fn apply(self, $a: $value, $b: $value, $trace: &mut $alarm) -> $value {
                $body
            }
        }
    };
}

macro_rules! floats {
    ($($value:ty),*) => {$(
        operation!(Add, $value, (), |a, b, _| a + b);
        operation!(Subtract, $value, (), |a, b, _| a - b);
        operation!(Multiply, $value, (), |a, b, _| a * b);
        operation!(Divide, $value, (), |a, b, _| a / b);
        operation!(Remainder, $value, (), |a, b, _| a % b);
    )*};
}
floats!(f32, f64);

macro_rules! integers {
    ($($value:ident),*) => {$(
        operation!(Add, $value, (), |a, b, _| a.wrapping_add(b));
        operation!(Subtract, $value, (), |a, b, _| a.wrapping_sub(b));
        operation!(Multiply, $value, (), |a, b, _| a.wrapping_mul(b));
        operation!(BitAnd, $value, (), |a, b, _| a & b);
        operation!(BitOr, $value, (), |a, b, _| a | b);
        operation!(BitXor, $value, (), |a, b, _| a ^ b);
        operation!(ExactMultiply, $value, bool, |a, b, trace| {
            let (product, overflows) = a.overflowing_mul(b);
            *trace |= overflows;
            product
        });
        operation!(CheckedRemainder, $value, bool, |a, b, trace| {
            *trace |= b == 0;
            a.wrapping_rem(if b == 0 { 1 } else { b })
        });
    )*};
}
integers!(i32, i64, u32, u64, i128);

macro_rules! signed {
    ($($value:ident),*) => {$(
        operation!(CheckedAdd, $value, Sign<$value>, |a, b, trace| {
            let sum = a.wrapping_add(b);
            trace.0 |= (a ^ sum) & (b ^ sum);
            sum
        });
        operation!(CheckedSubtract, $value, Sign<$value>, |a, b, trace| {
            let difference = a.wrapping_sub(b);
            trace.0 |= (a ^ b) & (a ^ difference);
            difference
        });
    )*};
}
signed!(i32, i64, i128);

macro_rules! unsigned {
    ($($value:ident),*) => {$(
        operation!(CheckedAdd, $value, Any<$value>, |a, b, trace| {
            let sum = a.wrapping_add(b);
            trace.0 |= $value::from(sum < a);
            sum
        });
        operation!(CheckedSubtract, $value, Any<$value>, |a, b, trace| {
            trace.0 |= $value::from(a < b);
            a.wrapping_sub(b)
        });
        operation!(CheckedDivide, $value, bool, |a, b, trace| {
            *trace |= b == 0;
            a / if b == 0 { 1 } else { b }
        });
    )*};
}
unsigned!(u32, u64);

macro_rules! signed_quotients {
    ($($value:ident),*) => {$(
        operation!(CheckedDivide, $value, bool, |a, b, trace| {
            *trace |= (b == 0) | ((b == -1) & (a == $value::MIN));
            a.wrapping_div(if b == 0 { 1 } else { b })
        });
    )*};
}
signed_quotients!(i32, i64);

operation!(CheckedDivide, i128, bool, |a, b, trace| {
    // Most decimals have 64 bits, for which processors have an instruction.
    if let (Ok(a), Ok(b)) = (i64::try_from(a), i64::try_from(b))
        && b != 0
        && a != i64::MIN
    {
        return (a / b).into();
    }
    *trace |= (b == 0) | ((b == -1) & (a == i128::MIN));
    a.wrapping_div(if b == 0 { 1 } else { b })
});

operation!(CheckedMultiply, i32, Any<i64>, |a, b, trace| {
    let product = i64::from(a) * i64::from(b);
    trace.0 |= product ^ i64::from(product as i32);
    product as i32
});
operation!(CheckedMultiply, u32, Any<u64>, |a, b, trace| {
    let product = u64::from(a) * u64::from(b);
    trace.0 |= product >> 32;
    product as u32
});
operation!(CheckedMultiply, i64, Factors<i64>, |a, b, trace| {
    trace.0 |= a ^ a >> 63;
    trace.1 |= b ^ b >> 63;
    a.wrapping_mul(b)
});
operation!(CheckedMultiply, u64, Factors<u64>, |a, b, trace| {
    trace.0 |= a;
    trace.1 |= b;
    a.wrapping_mul(b)
});
operation!(CheckedMultiply, i128, Any<i128>, |a, b, trace| {
    // Right for factors of 64 bits, as most are; else it rings.
    trace.0 |= a ^ i128::from(a as i64) | b ^ i128::from(b as i64);
    i128::from(a as i64) * i128::from(b as i64)
});
