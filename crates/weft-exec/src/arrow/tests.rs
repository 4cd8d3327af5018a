//! Arrays of every type go into registers and come back.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringDictionaryBuilder};
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::*;
use crate::lane::Lane;
use crate::registers::Registers;
use crate::vector::VECTOR_ROWS_MAX;

const ROWS: usize = 3000;

/// Loads pieces of an array and builds them again, all rows and some.
fn check(array: &ArrayRef) {
    let lane = Lane::of(array.data_type());
    check_in(array, lane);
}

fn check_in(array: &ArrayRef, lane: Lane) {
    let context = format!("{} in {lane}", array.data_type());
    let array = array.slice(3, array.len() - 3);
    let column = ArrowColumn::new(&array, lane).expect(&context);
    let mut registers = Registers::of(&[lane]);
    let register = crate::program::Register(0);
    for (start, rows) in [(0, VECTOR_ROWS_MAX), (1, 900), (64, 1), (777, 7), (array.len() - 5, 5)] {
        for one_in in [1, 3] {
            registers.begin(rows);
            registers.selection.retain(|row| row % one_in == 0);
            column.load(start, rows, registers.vector_mut(register)).expect(&context);
            let mut builder = ColumnBuilder::new(array.data_type(), lane);
            for _ in 0..2 {
                builder.append(registers.vector(register), registers.selected());
            }
            let actual = builder.finish().expect(&context);
            let rows = (start..start + rows).step_by(one_in).map(|row| row as u32);
            let rows = UInt32Array::from_iter_values(rows.clone().chain(rows));
            let expected = arrow_select::take::take(&array, &rows, None).expect("rows");
            assert_eq!(actual.data_type(), expected.data_type());
            // Dictionaries may differ where what they say does not.
            let plain = |array: &ArrayRef| match array.as_any_dictionary_opt() {
                Some(array) => {
                    arrow_select::take::take(array.values(), array.keys(), None).expect("values")
                }
                None => array.clone(),
            };
            assert_eq!(
                &plain(&actual),
                &plain(&expected),
                "{context}: from {start} one in {one_in}"
            );
        }
    }
}

use arrow_array::cast::AsArray;

fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(29)
}

/// Numbers of the type, with and without nulls.
fn check_numbers<T: ArrowPrimitiveType>(
    data_type: DataType,
    value: impl Fn(&mut fastrand::Rng) -> T::Native,
) {
    let mut random = random();
    let values: Vec<T::Native> = (0..ROWS).map(|_| value(&mut random)).collect();
    let nulls: NullBuffer = (0..ROWS).map(|_| random.u8(..) < 200).collect();
    for nulls in [None, Some(nulls)] {
        let array = PrimitiveArray::<T>::new(values.clone().into(), nulls)
            .with_data_type(data_type.clone());
        check(&(Arc::new(array) as ArrayRef));
    }
}

#[test]
fn numbers() {
    use arrow_schema::{IntervalUnit, TimeUnit};
    check_numbers::<Int8Type>(DataType::Int8, |random| random.i8(..));
    check_numbers::<UInt16Type>(DataType::UInt16, |random| random.u16(..));
    check_numbers::<Int64Type>(DataType::Int64, |random| random.i64(..));
    check_numbers::<Float64Type>(DataType::Float64, |random| random.f64());
    check_numbers::<Float16Type>(DataType::Float16, |random| {
        <Float16Type as ArrowPrimitiveType>::Native::from_bits(random.u16(..0x7c00))
    });
    check_numbers::<Date32Type>(DataType::Date32, |random| random.i32(..));
    let zone = Some(Arc::from("+01:00"));
    check_numbers::<TimestampMicrosecondType>(
        DataType::Timestamp(TimeUnit::Microsecond, zone),
        |random| random.i64(..),
    );
    check_numbers::<Decimal128Type>(DataType::Decimal128(15, 2), |random| {
        random.i64(..1 << 49).into()
    });
    check_numbers::<Decimal128Type>(DataType::Decimal128(38, 2), |random| random.i128(..) / 4);
    check_numbers::<Decimal64Type>(DataType::Decimal64(12, 2), |random| random.i64(..1 << 39));
    check_numbers::<Decimal256Type>(DataType::Decimal256(50, 2), |random| {
        arrow_buffer::i256::from_i128(random.i128(..))
    });
    check_numbers::<IntervalMonthDayNanoType>(
        DataType::Interval(IntervalUnit::MonthDayNano),
        |random| IntervalMonthDayNano::new(random.i32(..), random.i32(..), random.i64(..)),
    );
}

#[test]
fn decimals_change_their_lane() {
    let values = || (0..ROWS).map(|row| (row % 7 != 0).then_some(row as i64 * 1001 - 5));
    let narrow: ArrayRef = Arc::new(
        values().collect::<Decimal64Array>().with_precision_and_scale(18, 2).expect("a decimal"),
    );
    check_in(&narrow, Lane::I64);
    let wide: ArrayRef = Arc::new(
        values()
            .map(|value| value.map(i128::from))
            .collect::<Decimal128Array>()
            .with_precision_and_scale(38, 2)
            .expect("a decimal"),
    );
    check_in(&wide, Lane::I64);
    check_in(&wide, Lane::I128);
    let large: ArrayRef = Arc::new(Decimal128Array::from(vec![None, Some(1 << 64), Some(1)]));
    let column = ArrowColumn::new(&large, Lane::I64).expect("decimals");
    let mut vector = crate::Vector::new(Lane::I64);
    let message = column.load(0, 3, &mut vector).expect_err("too large").to_string();
    assert!(message.contains("18446744073709551616"), "{message}");
    column.load(2, 1, &mut vector).expect("small enough");
}

#[test]
fn texts() {
    let mut random = random();
    for (shortest, longest) in [(0, 12), (0, 30), (13, 40)] {
        let texts: Vec<Option<String>> = (0..ROWS)
            .map(|_| {
                let length = random.usize(shortest..=longest);
                let text: String =
                    (0..length).map(|_| random.choice(['a', 'b', 'é']).expect("one")).collect();
                (random.u8(..) < 220).then_some(text)
            })
            .collect();
        let bytes = || texts.iter().map(|text| text.as_ref().map(String::as_bytes));
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter(&texts)),
            Arc::new(LargeStringArray::from_iter(&texts)),
            Arc::new(StringViewArray::from_iter(&texts)),
            Arc::new(BinaryArray::from_iter(bytes())),
            Arc::new(LargeBinaryArray::from_iter(bytes())),
            Arc::new(BinaryViewArray::from_iter(bytes())),
        ];
        arrays.iter().for_each(check);
        // Views of several buffers.
        let halves: Vec<StringViewArray> =
            texts.chunks(ROWS / 3).map(StringViewArray::from_iter).collect();
        let halves: Vec<&dyn Array> = halves.iter().map(|half| half as &dyn Array).collect();
        check(&arrow_select::concat::concat(&halves).expect("views"));
    }
    let fixed = (0..ROWS).map(|row| (row % 5 != 0).then_some([row as u8; 14]));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 14).expect("14 bytes");
    check(&(Arc::new(fixed) as ArrayRef));
}

#[test]
fn truths_and_nothing() {
    let mut random = random();
    let truths: BooleanArray = (0..ROWS)
        .map(|_| random.choice([None, Some(false), Some(true)]))
        .map(|truth| truth.flatten())
        .collect();
    check(&(Arc::new(truths) as ArrayRef));
    check(&(Arc::new(NullArray::new(ROWS)) as ArrayRef));
}

#[test]
fn dictionaries_are_what_they_stand_for() {
    let mut random = random();
    let mut builder = StringDictionaryBuilder::<Int16Type>::new();
    for _ in 0..ROWS {
        match random.usize(..50) {
            0 => builder.append_null(),
            n => builder.append_value(format!("{n} {}", "of these".repeat(n % 3))),
        }
    }
    let texts: ArrayRef = Arc::new(builder.finish());
    assert_eq!(Lane::of(texts.data_type()), Lane::Str);
    assert!(!Lane::is_row_encoded(texts.data_type()));
    check(&texts);
    let keys = (0..ROWS).map(|row| (row % 9 != 0).then_some((row % 5) as i8));
    let values = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(5)]));
    let numbers: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(keys.collect(), values));
    assert_eq!(Lane::of(numbers.data_type()), Lane::I64);
    check(&numbers);
    let many = (0..ROWS).map(|row| row.to_string());
    let many: ArrayRef = Arc::new(StringArray::from_iter_values(many));
    let column = ArrowColumn::new(&many, Lane::Str).expect("text");
    let mut vector = crate::Vector::new(Lane::Str);
    column.load(0, 1000, &mut vector).expect("text");
    let small = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let mut builder = ColumnBuilder::new(&small, Lane::Str);
    builder.append(&vector, crate::selection::Selected::All(1000));
    assert!(builder.finish().is_err(), "a thousand values, and 128 keys");
}

#[test]
fn lists_are_row_encoded() {
    let mut builder = ListBuilder::new(Int32Builder::new());
    for row in 0..ROWS {
        (0..row % 4).for_each(|n| builder.values().append_option((n != 2).then_some(row as i32)));
        builder.append(row % 11 != 0);
    }
    check(&(Arc::new(builder.finish()) as ArrayRef));
}
