//! Numbers in generated code: arithmetic with its checks, casts, decimals. Each function gives a value and, if there may be none, a
//! truth value of 8 bits that is 1 where there is none.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use weft_exec::lane::Lane;
use weft_exec::program::{Arithmetic, Overflow};

use crate::emit::{Emit, is_signed, type_of};
use crate::helpers::Helper;

/// A value, and where there is none.
type Checked = (Value, Option<Value>);

impl Emit<'_> {
    pub(crate) fn arithmetic(
        &mut self,
        op: Arithmetic,
        lane: Lane,
        a: Value,
        b: Value,
        overflow: Overflow,
    ) -> Checked {
        if matches!(lane, Lane::F32 | Lane::F64) {
            let value = match op {
                Arithmetic::Add => self.b.ins().fadd(a, b),
                Arithmetic::Subtract => self.b.ins().fsub(a, b),
                Arithmetic::Multiply => self.b.ins().fmul(a, b),
                Arithmetic::Divide => self.b.ins().fdiv(a, b),
                op => unreachable!("{op:?} of floats has no code"),
            };
            return (value, None);
        }
        let is_checked = overflow == Overflow::Error;
        match op {
            Arithmetic::BitAnd => (self.b.ins().band(a, b), None),
            Arithmetic::BitOr => (self.b.ins().bor(a, b), None),
            Arithmetic::BitXor => (self.b.ins().bxor(a, b), None),
            Arithmetic::Add if !is_checked => (self.b.ins().iadd(a, b), None),
            Arithmetic::Subtract if !is_checked => (self.b.ins().isub(a, b), None),
            Arithmetic::Multiply if !is_checked => (self.b.ins().imul(a, b), None),
            Arithmetic::Add => self.add(lane, a, b),
            Arithmetic::Subtract => self.subtract(lane, a, b),
            Arithmetic::Multiply => self.multiply(lane, a, b),
            Arithmetic::Divide | Arithmetic::Remainder if lane == Lane::I128 => {
                self.divide_wide(op, a, b)
            }
            Arithmetic::Divide | Arithmetic::Remainder => self.divide(op, lane, a, b),
        }
    }

    fn add(&mut self, lane: Lane, a: Value, b: Value) -> Checked {
        match lane {
            Lane::I128 => {
                let sum = self.b.ins().iadd(a, b);
                let (x, y) = (self.b.ins().bxor(a, sum), self.b.ins().bxor(b, sum));
                let wrong = self.b.ins().band(x, y);
                (sum, Some(self.is_negative(wrong)))
            }
            lane if is_signed(lane) => {
                let (sum, fails) = self.b.ins().sadd_overflow(a, b);
                (sum, Some(fails))
            }
            _ => {
                let sum = self.b.ins().iadd(a, b);
                let fails = self.b.ins().icmp(IntCC::UnsignedLessThan, sum, a);
                (sum, Some(fails))
            }
        }
    }

    fn subtract(&mut self, lane: Lane, a: Value, b: Value) -> Checked {
        match lane {
            Lane::I128 => {
                let difference = self.b.ins().isub(a, b);
                let (x, y) = (self.b.ins().bxor(a, b), self.b.ins().bxor(a, difference));
                let wrong = self.b.ins().band(x, y);
                (difference, Some(self.is_negative(wrong)))
            }
            lane if is_signed(lane) => {
                let (difference, fails) = self.b.ins().ssub_overflow(a, b);
                (difference, Some(fails))
            }
            _ => {
                let difference = self.b.ins().isub(a, b);
                let fails = self.b.ins().icmp(IntCC::UnsignedLessThan, a, b);
                (difference, Some(fails))
            }
        }
    }

    fn multiply(&mut self, lane: Lane, a: Value, b: Value) -> Checked {
        if lane == Lane::I128 {
            return self.multiply_wide(a, b);
        }
        let (product, fails) = match is_signed(lane) {
            true => self.b.ins().smul_overflow(a, b),
            false => self.b.ins().umul_overflow(a, b),
        };
        (product, Some(fails))
    }

    /// Most factors have 64 bits, whose product always has a place; for others a function is asked.
    fn multiply_wide(&mut self, a: Value, b: Value) -> Checked {
        let (fits_a, fits_b) = (self.is_short(a), self.is_short(b));
        let fits = self.b.ins().band(fits_a, fits_b);
        let (short, long, end) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let (value, fails) = (self.b.declare_var(types::I128), self.b.declare_var(types::I8));
        self.b.set_cold_block(long);
        self.b.ins().brif(fits, short, &[], long, &[]);

        self.b.switch_to_block(short);
        let (low_a, low_b) =
            (self.b.ins().ireduce(types::I64, a), self.b.ins().ireduce(types::I64, b));
        let (wide_a, wide_b) =
            (self.b.ins().sextend(types::I128, low_a), self.b.ins().sextend(types::I128, low_b));
        let product = self.b.ins().imul(wide_a, wide_b);
        let no = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(value, product);
        self.b.def_var(fails, no);
        self.b.ins().jump(end, &[]);

        self.b.switch_to_block(long);
        let product = self.b.ins().imul(a, b);
        let overflows = self.call_wide(Helper::ProductOverflows, a, b);
        let overflows = self.b.ins().ireduce(types::I8, overflows[0]);
        self.b.def_var(value, product);
        self.b.def_var(fails, overflows);
        self.b.ins().jump(end, &[]);

        self.b.switch_to_block(end);
        (self.b.use_var(value), Some(self.b.use_var(fails)))
    }

    fn divide(&mut self, op: Arithmetic, lane: Lane, a: Value, b: Value) -> Checked {
        let by_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        let one = self.b.ins().iconst(type_of(lane), 1);
        if !is_signed(lane) {
            let divisor = self.b.ins().select(by_zero, one, b);
            let value = match op {
                Arithmetic::Divide => self.b.ins().udiv(a, divisor),
                _ => self.b.ins().urem(a, divisor),
            };
            return (value, Some(by_zero));
        }
        let by_minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
        if op == Arithmetic::Remainder {
            // Nothing is left of a division by -1, as by 1.
            let is_special = self.b.ins().bor(by_zero, by_minus_one);
            let divisor = self.b.ins().select(is_special, one, b);
            return (self.b.ins().srem(a, divisor), Some(by_zero));
        }
        let least = if lane == Lane::I32 { i64::from(i32::MIN) } else { i64::MIN };
        let of_least = self.b.ins().icmp_imm_s(IntCC::Equal, a, least);
        let overflows = self.b.ins().band(by_minus_one, of_least);
        let fails = self.b.ins().bor(by_zero, overflows);
        let divisor = self.b.ins().select(fails, one, b);
        (self.b.ins().sdiv(a, divisor), Some(fails))
    }

    /// Most decimals have 64 bits, for which processors have an instruction.
    fn divide_wide(&mut self, op: Arithmetic, a: Value, b: Value) -> Checked {
        let (low_b, high_b) = self.b.ins().isplit(b);
        let zero = self.b.ins().bor(low_b, high_b);
        let by_zero = self.b.ins().icmp_imm_s(IntCC::Equal, zero, 0);
        let low_a = self.b.ins().ireduce(types::I64, a);
        let (fits_a, fits_b) = (self.is_short(a), self.is_short(b));
        let is_least = self.b.ins().icmp_imm_s(IntCC::Equal, low_a, i64::MIN);
        let fits = self.b.ins().band(fits_a, fits_b);
        let special = self.b.ins().bor(is_least, by_zero);
        let special = self.b.ins().bxor_imm_s(special, 1);
        let fits = self.b.ins().band(fits, special);
        let (short, long, end) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let (value, fails) = (self.b.declare_var(types::I128), self.b.declare_var(types::I8));
        self.b.set_cold_block(long);
        self.b.ins().brif(fits, short, &[], long, &[]);

        self.b.switch_to_block(short);
        let quotient = match op {
            Arithmetic::Divide => self.b.ins().sdiv(low_a, low_b),
            _ => self.b.ins().srem(low_a, low_b),
        };
        let quotient = self.b.ins().sextend(types::I128, quotient);
        let no = self.b.ins().iconst(types::I8, 0);
        self.b.def_var(value, quotient);
        self.b.def_var(fails, no);
        self.b.ins().jump(end, &[]);

        self.b.switch_to_block(long);
        let helper = match op {
            Arithmetic::Divide => Helper::Quotient,
            _ => Helper::Rest,
        };
        let halves = self.call_wide(helper, a, b);
        let quotient = self.b.ins().iconcat(halves[0], halves[1]);
        self.b.def_var(value, quotient);
        let overflows = match op {
            Arithmetic::Divide => {
                let overflows = self.call_wide(Helper::QuotientOverflows, a, b);
                self.b.ins().ireduce(types::I8, overflows[0])
            }
            _ => self.b.ins().iconst(types::I8, 0),
        };
        let no_value = self.b.ins().bor(by_zero, overflows);
        self.b.def_var(fails, no_value);
        self.b.ins().jump(end, &[]);

        self.b.switch_to_block(end);
        (self.b.use_var(value), Some(self.b.use_var(fails)))
    }

    /// Calls a function with two integers of 128 bits.
    fn call_wide(&mut self, helper: Helper, a: Value, b: Value) -> Vec<Value> {
        let ((a, a_high), (b, b_high)) = (self.b.ins().isplit(a), self.b.ins().isplit(b));
        self.call(helper, &[a, a_high, b, b_high])
    }

    /// 1 where an integer of 128 bits is one of 64.
    fn is_short(&mut self, a: Value) -> Value {
        let (low, high) = self.b.ins().isplit(a);
        let sign = self.b.ins().sshr_imm_s(low, 63);
        self.b.ins().icmp(IntCC::Equal, high, sign)
    }

    /// 1 where an integer is negative.
    fn is_negative(&mut self, a: Value) -> Value {
        let a = match self.b.func.dfg.value_type(a) {
            types::I128 => self.b.ins().isplit(a).1,
            _ => a,
        };
        self.b.ins().icmp_imm_s(IntCC::SignedLessThan, a, 0)
    }

    pub(crate) fn negate(&mut self, lane: Lane, a: Value, overflow: Overflow) -> Checked {
        if matches!(lane, Lane::F32 | Lane::F64) {
            return (self.b.ins().fneg(a), None);
        }
        let zero = self.zero(lane);
        self.arithmetic(Arithmetic::Subtract, lane, zero, a, overflow)
    }

    /// A float with one zero and one NaN.
    pub(crate) fn canonical(&mut self, lane: Lane, a: Value) -> Value {
        let zero = self.zero(lane);
        let nan = match lane {
            Lane::F32 => self.b.ins().f32const(f32::NAN),
            _ => self.b.ins().f64const(f64::NAN),
        };
        // -0.0 + 0.0 is 0.0.
        let sum = self.b.ins().fadd(a, zero);
        let is_nan = self.is_nan(a);
        self.b.ins().select(is_nan, nan, sum)
    }

    /// A decimal with more digits behind the point, or less.
    pub(crate) fn rescale(&mut self, lanes: (Lane, Lane), a: Value, digits: i8) -> Checked {
        let count = u32::from(digits.unsigned_abs());
        if lanes == (Lane::I64, Lane::I64)
            && let Some(power) = i64::checked_pow(10, count)
        {
            return match digits < 0 {
                true => (self.over(a, power), None),
                false => {
                    let fails = self.is_outside(
                        Lane::I64,
                        a,
                        (i64::MIN / power).into(),
                        (i64::MAX / power).into(),
                    );
                    (self.b.ins().imul_imm_s(a, power), Some(fails))
                }
            };
        }
        let wide = match lanes.0 {
            Lane::I64 => self.b.ins().sextend(types::I128, a),
            _ => a,
        };
        let (scaled, fails) = match digits < 0 {
            true => (self.over_wide(wide, count), None),
            false => self.times_wide(lanes.0, wide, count),
        };
        if lanes.1 == Lane::I128 {
            return (scaled, fails);
        }
        let fits = self.is_short(scaled);
        let narrowed = self.b.ins().bxor_imm_s(fits, 1);
        let fails = match fails {
            Some(fails) => self.b.ins().bor(fails, narrowed),
            None => narrowed,
        };
        (self.b.ins().ireduce(types::I64, scaled), Some(fails))
    }

    fn times_wide(&mut self, from: Lane, a: Value, digits: u32) -> Checked {
        let power = i128::pow(10, digits.min(38));
        let factor = self.wide(power);
        let product = self.b.ins().imul(a, factor);
        if from == Lane::I64 && i64::try_from(power).is_ok() {
            return (product, None);
        }
        let fails = self.is_outside(Lane::I128, a, i128::MIN / power, i128::MAX / power);
        (product, Some(fails))
    }

    /// Divided by a power of ten, half away from zero.
    fn over(&mut self, a: Value, power: i64) -> Value {
        let divisor = self.b.ins().iconst(types::I64, power);
        let (quotient, rest) = (self.b.ins().sdiv(a, divisor), self.b.ins().srem(a, divisor));
        let half = power / 2;
        let up = self.b.ins().icmp_imm_s(IntCC::SignedGreaterThanOrEqual, rest, half);
        let down = self.b.ins().icmp_imm_s(IntCC::SignedLessThanOrEqual, rest, -half);
        let (up, down) =
            (self.b.ins().uextend(types::I64, up), self.b.ins().uextend(types::I64, down));
        let quotient = self.b.ins().iadd(quotient, up);
        self.b.ins().isub(quotient, down)
    }

    fn over_wide(&mut self, a: Value, digits: u32) -> Value {
        let fits = self.is_short(a);
        let (short, long, end) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let value = self.b.declare_var(types::I128);
        self.b.set_cold_block(long);
        match i64::checked_pow(10, digits) {
            Some(power) => {
                self.b.ins().brif(fits, short, &[], long, &[]);
                self.b.switch_to_block(short);
                let low = self.b.ins().ireduce(types::I64, a);
                let quotient = self.over(low, power);
                let quotient = self.b.ins().sextend(types::I128, quotient);
                self.b.def_var(value, quotient);
                self.b.ins().jump(end, &[]);
            }
            None => {
                self.b.ins().jump(long, &[]);
                self.b.switch_to_block(short);
                let none = self.wide(0);
                self.b.def_var(value, none);
                self.b.ins().jump(end, &[]);
            }
        }
        self.b.switch_to_block(long);
        let (low, high) = self.b.ins().isplit(a);
        let digits = self.b.ins().iconst(types::I64, i64::from(digits));
        let halves = self.call(Helper::Rounded, &[low, high, digits]);
        let quotient = self.b.ins().iconcat(halves[0], halves[1]);
        self.b.def_var(value, quotient);
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        self.b.use_var(value)
    }

    /// 1 where an integer is less than one number or more than another.
    fn is_outside(&mut self, lane: Lane, a: Value, low: i128, high: i128) -> Value {
        let (low, high) = match lane {
            Lane::I128 => (self.wide(low), self.wide(high)),
            lane => (
                self.b.ins().iconst(type_of(lane), low as i64),
                self.b.ins().iconst(type_of(lane), high as i64),
            ),
        };
        let less = self.b.ins().icmp(IntCC::SignedLessThan, a, low);
        let more = self.b.ins().icmp(IntCC::SignedGreaterThan, a, high);
        self.b.ins().bor(less, more)
    }

    /// 1 where a decimal has more digits; `None` if none has.
    pub(crate) fn has_more_digits(&mut self, lane: Lane, a: Value, digits: u8) -> Option<Value> {
        let end = match lane {
            Lane::I64 => i128::from(i64::checked_pow(10, digits.into())?),
            _ => i128::checked_pow(10, digits.into())?,
        };
        Some(self.is_outside(lane, a, 1 - end, end - 1))
    }

    pub(crate) fn cast(&mut self, from: Lane, into: Lane, a: Value) -> Checked {
        let is_float = |lane| matches!(lane, Lane::F32 | Lane::F64);
        match (from, into) {
            (from, into) if from == into && !is_float(from) => (a, None),
            (from, Lane::Bool) if is_float(from) => {
                let zero = self.zero(from);
                (self.b.ins().fcmp(FloatCC::NotEqual, a, zero), None)
            }
            (from, Lane::Bool) => {
                let zero = self.zero(from);
                (self.b.ins().icmp(IntCC::NotEqual, a, zero), None)
            }
            (Lane::F32, Lane::F64) => (self.b.ins().fpromote(types::F64, a), None),
            (Lane::F64, Lane::F32) => (self.b.ins().fdemote(types::F32, a), None),
            (from, into) if is_float(from) && is_float(into) => (a, None),
            (from, into) if is_float(into) => (self.float_of(from, into, a), None),
            (from, into) if is_float(from) => self.cast_float(from, into, a),
            (from, into) => self.integer_of(from, into, a),
        }
    }

    fn float_of(&mut self, from: Lane, into: Lane, a: Value) -> Value {
        let float = type_of(into);
        match from {
            Lane::I128 => {
                let (low, high) = self.b.ins().isplit(a);
                let helper = match into {
                    Lane::F32 => Helper::ToF32,
                    _ => Helper::ToF64,
                };
                self.call(helper, &[low, high])[0]
            }
            Lane::U64 => self.b.ins().fcvt_from_uint(float, a),
            from => {
                let whole = self.extended(from, Lane::I64, a);
                self.b.ins().fcvt_from_sint(float, whole)
            }
        }
    }

    fn cast_float(&mut self, from: Lane, into: Lane, a: Value) -> Checked {
        let whole = self.b.ins().trunc(a);
        let bits = 8 * into.width() as i32;
        let (least, end) = match is_signed(into) {
            true => (-f64::powi(2.0, bits - 1), f64::powi(2.0, bits - 1)),
            false => (0.0, f64::powi(2.0, bits)),
        };
        let (least, end) = match from {
            Lane::F32 => (self.b.ins().f32const(least as f32), self.b.ins().f32const(end as f32)),
            _ => (self.b.ins().f64const(least), self.b.ins().f64const(end)),
        };
        let is_enough = self.b.ins().fcmp(FloatCC::GreaterThanOrEqual, whole, least);
        let is_less = self.b.ins().fcmp(FloatCC::LessThan, whole, end);
        let fits = self.b.ins().band(is_enough, is_less);
        let fails = self.b.ins().bxor_imm_s(fits, 1);
        let value = match into {
            Lane::U64 => self.b.ins().fcvt_to_uint_sat(types::I64, whole),
            _ => self.b.ins().fcvt_to_sint_sat(types::I64, whole),
        };
        let value = match type_of(into) {
            types::I64 => value,
            narrow => self.b.ins().ireduce(narrow, value),
        };
        (value, Some(fails))
    }

    /// An integer, or truth value, in a lane that is at least as wide.
    fn extended(&mut self, from: Lane, into: Lane, a: Value) -> Value {
        let (narrow, wide) = (type_of(from), type_of(into));
        match (narrow == wide, is_signed(from)) {
            (true, _) => a,
            (false, true) => self.b.ins().sextend(wide, a),
            (false, false) => self.b.ins().uextend(wide, a),
        }
    }

    fn integer_of(&mut self, from: Lane, into: Lane, a: Value) -> Checked {
        if from.width() < into.width() || from == Lane::Bool {
            let value = self.extended(from, into, a);
            let may_fail = is_signed(from) && !is_signed(into);
            return (value, may_fail.then(|| self.is_negative(a)));
        }
        let value = match from.width() == into.width() {
            true => a,
            false => self.b.ins().ireduce(type_of(into), a),
        };
        // Right if it is the same number again, with the same sign.
        let back = self.extended(into, from, value);
        let differs = self.b.ins().icmp(IntCC::NotEqual, back, a);
        let fails = match (is_signed(from), is_signed(into)) {
            (true, true) | (false, false) => differs,
            (true, false) => {
                let is_negative = self.is_negative(a);
                self.b.ins().bor(differs, is_negative)
            }
            (false, true) => {
                let is_negative = self.is_negative(value);
                self.b.ins().bor(differs, is_negative)
            }
        };
        (value, Some(fails))
    }
}
