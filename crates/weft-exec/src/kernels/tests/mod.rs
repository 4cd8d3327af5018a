//! Every kernel against the same done to one row at a time: random and extreme values, nulls, vectors of several sizes,
//! many and few and no rows selected, constants on either side.

mod arithmetic;
mod call;
mod cast;
mod compare;
mod date;
mod decimal;
mod hash;
mod text;

use std::sync::Arc;

use arrow_buffer::Buffer;
use bytemuck::cast_slice;

use crate::for_lane;
use crate::lane::{Lane, Value};
use crate::program::{Constant, Operand, Register, Step};
use crate::registers::Registers;
use crate::text::Str;
use crate::vector::VECTOR_ROWS_MAX;

/// A value, or null.
pub(super) type Datum = Option<Constant>;

/// What a row becomes; an error if the step has to fail.
pub(super) type Expected = Result<Datum, ()>;

/// How random columns look.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    /// Of 256 rows.
    selected: u16,
    /// Of 256 rows.
    nulls: u16,
    /// Of 256 values, those that are extreme.
    wild: u16,
}

const SHAPES: [Shape; 16] = [
    Shape { rows: VECTOR_ROWS_MAX, selected: 256, nulls: 0, wild: 0 },
    Shape { rows: VECTOR_ROWS_MAX, selected: 10, nulls: 100, wild: 8 },
    Shape { rows: 200, selected: 256, nulls: 60, wild: 0 },
    Shape { rows: 200, selected: 256, nulls: 256, wild: 256 },
    Shape { rows: 200, selected: 250, nulls: 0, wild: 1 },
    Shape { rows: 200, selected: 200, nulls: 5, wild: 0 },
    Shape { rows: 200, selected: 10, nulls: 0, wild: 0 },
    Shape { rows: 200, selected: 0, nulls: 20, wild: 256 },
    Shape { rows: 100, selected: 256, nulls: 20, wild: 256 },
    Shape { rows: 100, selected: 20, nulls: 0, wild: 100 },
    Shape { rows: 67, selected: 128, nulls: 30, wild: 10 },
    Shape { rows: 7, selected: 256, nulls: 0, wild: 256 },
    Shape { rows: 7, selected: 128, nulls: 60, wild: 128 },
    Shape { rows: 1, selected: 256, nulls: 0, wild: 128 },
    Shape { rows: 1, selected: 256, nulls: 128, wild: 256 },
    Shape { rows: 1, selected: 256, nulls: 0, wild: 256 },
];

/// Checks a step whose inputs may be constants.
pub(super) fn check_operands(
    inputs: &[Lane],
    out: Lane,
    step: impl Fn(&[Operand], Register) -> Step,
    expected: impl Fn(&[Datum]) -> Expected,
) {
    for constants in 0..1 << inputs.len() {
        check_some(inputs, constants, out, &step, &expected);
    }
}

/// Checks a step that reads registers.
pub(super) fn check(
    inputs: &[Lane],
    out: Lane,
    step: impl Fn(&[Register], Register) -> Step,
    expected: impl Fn(&[Datum]) -> Expected,
) {
    let step = |operands: &[Operand], out| {
        let registers: Vec<Register> = operands.iter().map(register).collect();
        step(&registers, out)
    };
    check_some(inputs, 0, out, &step, &expected);
}

fn register(operand: &Operand) -> Register {
    match operand {
        Operand::Register(register) => *register,
        Operand::Constant(_) => unreachable!("a register"),
    }
}

fn check_some(
    inputs: &[Lane],
    constants: usize,
    out: Lane,
    step: &impl Fn(&[Operand], Register) -> Step,
    expected: &impl Fn(&[Datum]) -> Expected,
) {
    let seed = fastrand::u64(..);
    for seed in [1, seed] {
        let mut random = fastrand::Rng::with_seed(seed);
        for shape in SHAPES {
            let context = format!("seed {seed}, {shape:?}, constants {constants:b}");
            check_shape(&mut random, shape, inputs, constants, out, step, expected, &context);
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "of the functions before")]
fn check_shape(
    random: &mut fastrand::Rng,
    shape: Shape,
    inputs: &[Lane],
    constants: usize,
    out: Lane,
    step: &impl Fn(&[Operand], Register) -> Step,
    expected: &impl Fn(&[Datum]) -> Expected,
    context: &str,
) {
    let mut lanes = inputs.to_vec();
    lanes.push(out);
    let out = Register(inputs.len() as u16);
    let mut registers = Registers::of(&lanes);
    registers.begin(shape.rows);
    registers.selection.retain(|_| random.u16(..256) < shape.selected);
    let selected = registers.selection.clone();
    let mut is_selected = vec![false; shape.rows];
    selected.selected().for_each(|row| is_selected[row] = true);

    let mut operands = Vec::new();
    let mut columns: Vec<Vec<Datum>> = Vec::new();
    for (number, lane) in inputs.iter().enumerate() {
        if constants >> number & 1 == 1 {
            let value = random_value(random, *lane, shape.wild > 100);
            columns.push(vec![Some(value.clone()); shape.rows]);
            operands.push(Operand::Constant(value));
        } else {
            let column: Vec<Datum> = (0..shape.rows)
                .map(|_| {
                    let wild = random.u16(..256) < shape.wild;
                    let value = random_value(random, *lane, wild);
                    (random.u16(..256) >= shape.nulls).then_some(value)
                })
                .collect();
            let register = Register(number as u16);
            load(random, &mut registers, register, &column, &is_selected);
            columns.push(column);
            operands.push(Operand::Register(register));
        }
    }
    let step = step(&operands, out);
    let context = format!("{context}: {step:?}");
    let result = crate::kernels::run(&step, &mut registers);

    let mut fails = false;
    let mut wanted = Vec::new();
    selected.selected().for_each(|row| {
        let inputs: Vec<Datum> = columns.iter().map(|column| column[row].clone()).collect();
        match expected(&inputs) {
            Ok(value) => wanted.push((row, inputs, value)),
            Err(()) => fails = true,
        }
    });
    assert_eq!(result.is_err(), fails, "{context}: {result:?}");
    if fails {
        return;
    }
    for (row, inputs, wanted) in wanted {
        let value = datum(&registers, out, row);
        assert!(
            same(&value, &wanted),
            "{context}: row {row}: {inputs:?} gives {value:?}, not {wanted:?}"
        );
    }
}

/// Puts a column into a register. What is null or not selected becomes as bad as it may be.
pub(super) fn load(
    random: &mut fastrand::Rng,
    registers: &mut Registers,
    register: Register,
    column: &[Datum],
    is_selected: &[bool],
) {
    let vector = registers.vector_mut(register);
    let is_shared = random.bool();
    for_lane!(vector.lane(), T => {
        let values: Vec<T> = column
            .iter()
            .zip(is_selected)
            .map(|(value, selected)| match value {
                Some(value) if *selected => value.value(),
                _ => poison::<T>(random),
            })
            .collect();
        if is_shared {
            vector.share::<T>(Buffer::from(cast_slice::<T, u8>(&values)));
        } else {
            vector.values_mut::<T>()[..values.len()].copy_from_slice(&values);
        }
    });
    vector.validity.set_all();
    for (row, value) in column.iter().enumerate() {
        vector.validity.set(row, value.is_some());
    }
}

/// Something that no step may stumble over: a string that is nowhere, an extreme number.
fn poison<T: Value>(random: &mut fastrand::Rng) -> T {
    if T::LANE == Lane::Str {
        let nowhere: u128 = 100 | 8 << 64;
        return bytemuck::cast(nowhere);
    }
    random_value(random, T::LANE, true).value()
}

/// The value of a row.
pub(super) fn datum(registers: &Registers, register: Register, row: usize) -> Datum {
    let vector = registers.vector(register);
    vector.validity.is_valid(row).then(|| match vector.lane() {
        Lane::Bool => Constant::Bool(vector.values::<crate::lane::Bool>()[row].get()),
        Lane::I8 => Constant::I8(vector.values()[row]),
        Lane::I16 => Constant::I16(vector.values()[row]),
        Lane::I32 => Constant::I32(vector.values()[row]),
        Lane::I64 => Constant::I64(vector.values()[row]),
        Lane::U8 => Constant::U8(vector.values()[row]),
        Lane::U16 => Constant::U16(vector.values()[row]),
        Lane::U32 => Constant::U32(vector.values()[row]),
        Lane::U64 => Constant::U64(vector.values()[row]),
        Lane::I128 => Constant::I128(vector.values()[row]),
        Lane::F32 => Constant::F32(vector.values()[row]),
        Lane::F64 => Constant::F64(vector.values()[row]),
        // SAFETY: only asked for rows that are selected, whose strings the columns of the test own.
        Lane::Str => Constant::Str(unsafe { vector.values::<Str>()[row].bytes() }.into()),
    })
}

/// True if both are the same, bit for bit but for NaN.
fn same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Some(Constant::F32(a)), Some(Constant::F32(b))) => {
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
        }
        (Some(Constant::F64(a)), Some(Constant::F64(b))) => {
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
        }
        (a, b) => a == b,
    }
}

macro_rules! integer {
    ($random:expr, $wild:expr, $type:ident, $lane:ident, $tame:expr) => {{
        let edge =
            [0, 1, 2, 3, 10, (1 as $type).wrapping_neg(), $type::MAX / 2][$random.usize(..7)];
        Constant::$lane(match ($wild, $random.u8(..4)) {
            (false, _) => $random.$type($tame),
            (true, 0) => $type::MIN.wrapping_add(edge),
            (true, 1) => $type::MAX.wrapping_sub(edge),
            (true, 2) => edge,
            (true, _) => $random.$type(..),
        })
    }};
}

/// A small value that nothing is too large for, or a wild one.
pub(super) fn random_value(random: &mut fastrand::Rng, lane: Lane, wild: bool) -> Constant {
    const FLOATS: [f64; 14] = [
        0.0,
        -0.0,
        0.5,
        -1.5,
        1e9,
        2147483647.5,
        -2147483648.9,
        9223372036854775807.0,
        -9.3e18,
        1.8e19,
        1e39,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    match lane {
        Lane::Bool => Constant::Bool(random.bool()),
        Lane::I8 => integer!(random, wild, i8, I8, 1..12),
        Lane::I16 => integer!(random, wild, i16, I16, 1..120),
        Lane::I32 => integer!(random, wild, i32, I32, 1..1000),
        Lane::I64 => integer!(random, wild, i64, I64, 1..100_000),
        Lane::U8 => integer!(random, wild, u8, U8, 1..12),
        Lane::U16 => integer!(random, wild, u16, U16, 1..120),
        Lane::U32 => integer!(random, wild, u32, U32, 1..1000),
        Lane::U64 => integer!(random, wild, u64, U64, 1..100_000),
        Lane::I128 => integer!(random, wild, i128, I128, 1..100_000_000_000),
        Lane::F32 if wild => Constant::F32(FLOATS[random.usize(..FLOATS.len())] as f32),
        Lane::F32 => Constant::F32(random.i32(-1000..1000) as f32 / 8.0),
        Lane::F64 if wild => Constant::F64(FLOATS[random.usize(..FLOATS.len())]),
        Lane::F64 => Constant::F64(f64::from(random.i32(-1000..1000)) / 8.0),
        Lane::Str => {
            let letters: &[&str] = if wild {
                &["a", "b", "ß", "€", "🦀", "%", "_", "\\", "\0"]
            } else {
                &["a", "b"]
            };
            let length = if random.bool() { random.usize(..5) } else { random.usize(10..16) };
            let text: String =
                (0..length).map(|_| letters[random.usize(..letters.len())]).collect();
            Constant::Str(Arc::from(text.into_bytes()))
        }
    }
}
