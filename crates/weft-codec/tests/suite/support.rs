//! Seeded columns of every physical type, in shapes that each encoding is made for.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, StringViewArray, cast::AsArray, types::*};
use arrow_array::{ArrowPrimitiveType, BinaryViewArray, PrimitiveArray};
use arrow_schema::{DataType, IntervalUnit};
use fastrand::Rng;
use weft_codec::{Physical, Scalar};

/// How the values of a column follow each other.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    Constant,
    Random,
    Narrow,
    Sorted,
    FewDistinct,
    Runs,
    Extremes,
}

pub const SHAPES: [Shape; 7] = [
    Shape::Constant,
    Shape::Random,
    Shape::Narrow,
    Shape::Sorted,
    Shape::FewDistinct,
    Shape::Runs,
    Shape::Extremes,
];

pub const TYPES: [Physical; 14] = [
    Physical::Boolean,
    Physical::Int8,
    Physical::Int16,
    Physical::Int32,
    Physical::Int64,
    Physical::UInt8,
    Physical::UInt16,
    Physical::UInt32,
    Physical::UInt64,
    Physical::Int128,
    Physical::Float32,
    Physical::Float64,
    Physical::Utf8,
    Physical::Binary,
];

/// 128 random bits a row, in the given shape.
fn numbers(rng: &mut Rng, shape: Shape, rows: usize) -> Vec<i128> {
    let base = rng.i128(..) >> rng.u32(0..128);
    let mut last = base;
    (0..rows)
        .map(|_| {
            last = match shape {
                Shape::Constant => base,
                Shape::Random => rng.i128(..),
                Shape::Narrow => base.wrapping_add(rng.i128(0..1000)),
                Shape::Sorted => last.wrapping_add(rng.i128(0..16)),
                Shape::FewDistinct => base.wrapping_mul(rng.i128(1..9)),
                Shape::Runs if rng.u8(..) > 0 => last,
                Shape::Runs => rng.i128(..),
                Shape::Extremes => {
                    [0, 1, -1, i128::MIN, i128::MAX, i64::MIN.into(), i64::MAX.into()]
                        [rng.usize(..7)]
                }
            };
            last
        })
        .collect()
}

fn float(rng: &mut Rng, shape: Shape, number: i128) -> f64 {
    match shape {
        Shape::Extremes => match rng.u8(..9) {
            0 => -0.0,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => f64::NAN,
            4 => f64::from_bits(0xfff8_0000_dead_beef),
            5 => f64::MIN_POSITIVE / 2.0,
            6 => f64::MAX,
            _ => f64::from(rng.u16(..)) / 100.0,
        },
        Shape::Random => f64::from_bits(number as u64),
        Shape::Narrow if rng.u8(..20) == 0 => rng.f64(),
        _ => f64::from(number as i32) / 100.0,
    }
}

fn string(rng: &mut Rng, shape: Shape, number: i128) -> String {
    match shape {
        Shape::Extremes => match rng.u8(..4) {
            0 => String::new(),
            1 => "wide ünïcödé 価格 ".repeat(rng.usize(..4)),
            2 if rng.u8(..) == 0 => "long ".repeat(rng.usize(..4000)),
            _ => "\0".repeat(rng.usize(..20)),
        },
        Shape::Random => (0..rng.usize(..24)).map(|_| rng.char(..)).collect(),
        Shape::Narrow => format!("http://example.org/item/{}?page={}", number as u16, rng.u8(..)),
        _ => format!("{number}"),
    }
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: &[bool]) -> ArrayRef {
    let rows = values.into_iter().zip(nulls);
    Arc::new(PrimitiveArray::<T>::from_iter(rows.map(|(value, null)| (!null).then_some(value))))
}

/// A column of `rows` rows, a share of them null.
pub fn column(
    rng: &mut Rng,
    physical: Physical,
    shape: Shape,
    rows: usize,
    null_share: f64,
) -> ArrayRef {
    let numbers = numbers(rng, shape, rows);
    let nulls: Vec<bool> = (0..rows).map(|_| rng.f64() < null_share).collect();
    let nulls = &nulls;
    macro_rules! integers {
        ($arrow:ty, $native:ty) => {
            primitive::<$arrow>(numbers.iter().map(|&number| number as $native).collect(), nulls)
        };
    }
    match physical {
        Physical::Boolean => {
            let rows = numbers.iter().zip(nulls);
            Arc::new(BooleanArray::from_iter(rows.map(|(n, null)| (!null).then_some(n & 1 == 1))))
        }
        Physical::Int8 => integers!(Int8Type, i8),
        Physical::Int16 => integers!(Int16Type, i16),
        Physical::Int32 => integers!(Int32Type, i32),
        Physical::Int64 => integers!(Int64Type, i64),
        Physical::UInt8 => integers!(UInt8Type, u8),
        Physical::UInt16 => integers!(UInt16Type, u16),
        Physical::UInt32 => integers!(UInt32Type, u32),
        Physical::UInt64 => integers!(UInt64Type, u64),
        Physical::Int128 => {
            let array = PrimitiveArray::<Decimal128Type>::from_iter(
                numbers.iter().zip(nulls).map(|(&n, null)| (!null).then_some(n)),
            );
            Arc::new(array.with_precision_and_scale(38, 0).expect("a decimal"))
        }
        Physical::Float32 => {
            let floats = numbers.iter().map(|&number| float(rng, shape, number) as f32);
            primitive::<Float32Type>(floats.collect(), nulls)
        }
        Physical::Float64 => {
            let floats = numbers.iter().map(|&number| float(rng, shape, number));
            primitive::<Float64Type>(floats.collect(), nulls)
        }
        Physical::Utf8 => {
            let strings = numbers.iter().map(|&number| string(rng, shape, number));
            Arc::new(StringViewArray::from_iter(
                strings.zip(nulls).map(|(string, null)| (!null).then_some(string)),
            ))
        }
        Physical::Binary => {
            let bytes = numbers.iter().map(|&number| string(rng, shape, number).into_bytes());
            Arc::new(BinaryViewArray::from_iter(
                bytes.zip(nulls).map(|(bytes, null)| (!null).then_some(bytes)),
            ))
        }
        other => panic!("no column of {other}: see `any_array`"),
    }
}

/// What a row of an array holds.
pub fn scalar(array: &dyn Array, row: usize) -> Scalar {
    if array.is_null(row) {
        return Scalar::Null;
    }
    match array.data_type() {
        DataType::Boolean => Scalar::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Scalar::Int(array.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => Scalar::Int(array.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => Scalar::Int(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Scalar::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => Scalar::UInt(array.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => Scalar::UInt(array.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => Scalar::UInt(array.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => Scalar::UInt(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Decimal128(..) => {
            Scalar::Int128(array.as_primitive::<Decimal128Type>().value(row))
        }
        DataType::Float32 => Scalar::Float32(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => Scalar::Float64(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8View => Scalar::Bytes(array.as_string_view().value(row).into()),
        DataType::BinaryView => Scalar::Bytes(array.as_binary_view().value(row).into()),
        DataType::Utf8 => Scalar::Bytes(array.as_string::<i32>().value(row).into()),
        DataType::LargeUtf8 => Scalar::Bytes(array.as_string::<i64>().value(row).into()),
        DataType::Binary => Scalar::Bytes(array.as_binary::<i32>().value(row).into()),
        DataType::FixedSizeBinary(_) => {
            Scalar::Bytes(array.as_fixed_size_binary().value(row).into())
        }
        DataType::Null => Scalar::Null,
        DataType::Decimal32(..) => {
            Scalar::Int(array.as_primitive::<Decimal32Type>().value(row).into())
        }
        DataType::Decimal64(..) => Scalar::Int(array.as_primitive::<Decimal64Type>().value(row)),
        DataType::Interval(IntervalUnit::YearMonth) => {
            Scalar::Int(array.as_primitive::<IntervalYearMonthType>().value(row).into())
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = array.as_primitive::<IntervalDayTimeType>().value(row);
            let nanoseconds = i64::from(value.milliseconds) * 1_000_000;
            Scalar::Interval { months: 0, days: value.days, nanoseconds }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let (months, days, nanoseconds) = (value.months, value.days, value.nanoseconds);
            Scalar::Interval { months, days, nanoseconds }
        }
        DataType::List(_) => Scalar::List(scalars(&array.as_list::<i32>().value(row))),
        DataType::LargeList(_) => Scalar::List(scalars(&array.as_list::<i64>().value(row))),
        DataType::FixedSizeList(..) => {
            Scalar::List(scalars(&array.as_fixed_size_list().value(row)))
        }
        DataType::Map(..) => Scalar::List(scalars(&array.as_map().value(row))),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns();
            Scalar::Struct(columns.iter().map(|column| scalar(column, row)).collect())
        }
        other => panic!("no physical type: {other}"),
    }
}

fn scalars(array: &dyn Array) -> Vec<Scalar> {
    (0..array.len()).map(|row| scalar(array, row)).collect()
}

/// Floats as their bits, so that every NaN is itself.
pub fn bits(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Float32(value) => Scalar::UInt(value.to_bits().into()),
        Scalar::Float64(value) => Scalar::UInt(value.to_bits()),
        other => other,
    }
}

/// Fixed seeds and a fresh one.
pub fn seeds() -> Vec<u64> {
    let seeds = vec![1, 2, fastrand::u64(..)];
    println!("seeds: {seeds:?}");
    seeds
}
