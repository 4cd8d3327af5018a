//! Casts of numbers.

use super::map::{Operation, Same, cheapest, map};
use super::number::{Number, To};
use crate::error::{ExecError, Result};
use crate::lane::{Bool, Lane, Value};
use crate::program::{CastFailure, Register};
use crate::registers::Registers;
use crate::vector::Vector;

#[derive(Clone, Copy)]
struct Cast<B>(std::marker::PhantomData<B>);

impl<A: To<B>, B: Number> Operation<A, ()> for Cast<B> {
    type Out = B;
    type Alarm = bool;

    #[inline(always)]
    fn apply(self, a: A, _: (), trace: &mut bool) -> B {
        let (value, fails) = a.to();
        *trace |= fails;
        value
    }
}

/// `out` is `a` in the lane of `out`.
pub(crate) fn run(
    registers: &mut Registers,
    a: Register,
    out: Register,
    failure: CastFailure,
) -> Result<()> {
    registers.write(out, |registers, out| match registers.vector(a).lane() {
        Lane::Bool => to_any::<Bool>(registers, a, out, failure),
        Lane::I8 => to_any::<i8>(registers, a, out, failure),
        Lane::I16 => to_any::<i16>(registers, a, out, failure),
        Lane::I32 => to_any::<i32>(registers, a, out, failure),
        Lane::I64 => to_any::<i64>(registers, a, out, failure),
        Lane::U8 => to_any::<u8>(registers, a, out, failure),
        Lane::U16 => to_any::<u16>(registers, a, out, failure),
        Lane::U32 => to_any::<u32>(registers, a, out, failure),
        Lane::U64 => to_any::<u64>(registers, a, out, failure),
        Lane::I128 => to_any::<i128>(registers, a, out, failure),
        Lane::F32 => to_any::<f32>(registers, a, out, failure),
        Lane::F64 => to_any::<f64>(registers, a, out, failure),
        Lane::Str => unreachable!("a cast of strings is a function"),
    })
}

/// A number that can be cast to any.
trait ToAny:
    To<Bool>
    + To<i8>
    + To<i16>
    + To<i32>
    + To<i64>
    + To<u8>
    + To<u16>
    + To<u32>
    + To<u64>
    + To<i128>
    + To<f32>
    + To<f64>
{
}

macro_rules! to_any {
    ($($value:ty)*) => {$(
        impl ToAny for $value {}
    )*};
}
to_any!(Bool i8 i16 i32 i64 u8 u16 u32 u64 i128 f32 f64);

fn to_any<A: ToAny>(
    registers: &Registers,
    a: Register,
    out: &mut Vector,
    failure: CastFailure,
) -> Result<()> {
    match out.lane() {
        Lane::Bool => cast::<A, Bool>(registers, a, out, failure),
        Lane::I8 => cast::<A, i8>(registers, a, out, failure),
        Lane::I16 => cast::<A, i16>(registers, a, out, failure),
        Lane::I32 => cast::<A, i32>(registers, a, out, failure),
        Lane::I64 => cast::<A, i64>(registers, a, out, failure),
        Lane::U8 => cast::<A, u8>(registers, a, out, failure),
        Lane::U16 => cast::<A, u16>(registers, a, out, failure),
        Lane::U32 => cast::<A, u32>(registers, a, out, failure),
        Lane::U64 => cast::<A, u64>(registers, a, out, failure),
        Lane::I128 => cast::<A, i128>(registers, a, out, failure),
        Lane::F32 => cast::<A, f32>(registers, a, out, failure),
        Lane::F64 => cast::<A, f64>(registers, a, out, failure),
        Lane::Str => unreachable!("a cast to a string is a function"),
    }
}

fn cast<A: To<B>, B: Number>(
    registers: &Registers,
    a: Register,
    out: &mut Vector,
    failure: CastFailure,
) -> Result<()> {
    let a = registers.vector(a);
    let values = a.values::<A>();
    let rows = cheapest(registers, 32 / size_of::<A>().max(size_of::<B>()));
    let rang = map(Cast(std::marker::PhantomData), values, Same(()), rows, out.values_mut::<B>());
    out.validity.copy_from(&a.validity);
    if !rang {
        return Ok(());
    }
    registers.selected().try_for_each(|row| {
        let (_, fails) = values[row].to();
        if fails && a.validity.is_valid(row) {
            match failure {
                CastFailure::Null => out.validity.set(row, false),
                CastFailure::Error => {
                    let value = values[row].to_string();
                    return Err(ExecError::Cast { value, into: <B as Value>::LANE.to_string() });
                }
            }
        }
        Ok(())
    })
}
