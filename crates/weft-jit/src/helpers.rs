//! Functions that generated code calls: what processors have no instructions for. None of them panics.

use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::CallConv;

/// A function, by its place in [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    /// Whether the product of two integers of 128 bits is too large.
    ProductOverflows,
    /// a / b
    Quotient,
    /// Whether a / b is too large.
    QuotientOverflows,
    /// What is left of a / b.
    Rest,
    /// a / 10^digits, half away from zero.
    Rounded,
    ToF32,
    ToF64,
}

/// The addresses of all helpers, in the order of [`Helper`].
pub(crate) struct Table([*const (); 7]);

// SAFETY: the addresses are those of functions, which any thread may call.
unsafe impl Sync for Table {}

pub(crate) static TABLE: Table = Table([
    product_overflows as *const (),
    quotient as *const (),
    quotient_overflows as *const (),
    rest as *const (),
    rounded as *const (),
    to_f32 as *const (),
    to_f64 as *const (),
]);

impl Table {
    pub(crate) fn address(&'static self) -> u64 {
        self.0.as_ptr() as u64
    }
}

impl Helper {
    pub(crate) fn signature(self, call: CallConv) -> Signature {
        let mut signature = Signature::new(call);
        let (parameters, results): (usize, &[_]) = match self {
            Helper::ProductOverflows | Helper::QuotientOverflows => (4, &[types::I64]),
            Helper::Quotient | Helper::Rest => (4, &[types::I64, types::I64]),
            Helper::Rounded => (3, &[types::I64, types::I64]),
            Helper::ToF32 => (2, &[types::F32]),
            Helper::ToF64 => (2, &[types::F64]),
        };
        signature.params.extend((0..parameters).map(|_| AbiParam::new(types::I64)));
        signature.returns.extend(results.iter().map(|result| AbiParam::new(*result)));
        signature
    }
}

/// An integer of 128 bits as two registers.
#[repr(C)]
struct Halves {
    low: u64,
    high: u64,
}

impl From<i128> for Halves {
    fn from(number: i128) -> Halves {
        Halves { low: number as u64, high: (number >> 64) as u64 }
    }
}

fn wide(low: u64, high: u64) -> i128 {
    (u128::from(high) << 64 | u128::from(low)) as i128
}

extern "C" fn product_overflows(a: u64, a_high: u64, b: u64, b_high: u64) -> u64 {
    wide(a, a_high).overflowing_mul(wide(b, b_high)).1.into()
}

/// Of what is not zero; else of 1.
fn divisor(b: i128) -> i128 {
    if b == 0 { 1 } else { b }
}

extern "C" fn quotient(a: u64, a_high: u64, b: u64, b_high: u64) -> Halves {
    wide(a, a_high).wrapping_div(divisor(wide(b, b_high))).into()
}

extern "C" fn quotient_overflows(a: u64, a_high: u64, b: u64, b_high: u64) -> u64 {
    u64::from(wide(a, a_high) == i128::MIN && wide(b, b_high) == -1)
}

extern "C" fn rest(a: u64, a_high: u64, b: u64, b_high: u64) -> Halves {
    wide(a, a_high).wrapping_rem(divisor(wide(b, b_high))).into()
}

extern "C" fn rounded(a: u64, a_high: u64, digits: u64) -> Halves {
    let a = wide(a, a_high);
    let Some(power) = i128::checked_pow(10, digits as u32) else { return 0.into() };
    let (half, rest) = (power / 2, a % power);
    (a / power + i128::from(rest >= half) - i128::from(rest <= -half)).into()
}

extern "C" fn to_f32(a: u64, a_high: u64) -> f32 {
    wide(a, a_high) as f32
}

extern "C" fn to_f64(a: u64, a_high: u64) -> f64 {
    wide(a, a_high) as f64
}
