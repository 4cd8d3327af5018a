//! Tests of the key encoding: bytes of keys compare as the values they were made of.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::types::{
    Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int64Type,
    TimestampMicrosecondType, UInt32Type,
};
use arrow_array::{
    Array, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow_buffer::{IntervalMonthDayNano, i256};
use arrow_ord::ord::make_comparator;
use arrow_schema::{Field, SortOptions};

use super::*;

fn primitive<T: arrow_array::ArrowPrimitiveType>(
    random: &mut fastrand::Rng,
    rows: usize,
    value: impl Fn(&mut fastrand::Rng) -> T::Native,
) -> ArrayRef {
    let values = (0..rows).map(|_| random.u8(..5).gt(&0).then(|| value(random)));
    Arc::new(PrimitiveArray::<T>::from_iter(values.collect::<Vec<_>>()))
}

/// Bytes of few kinds, so that texts begin with each other, are equal, and hold the bytes that are escaped.
fn text(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = random.usize(..6);
    (0..len).map(|_| [0, 1, b'a', b'b', 127][random.usize(..5)]).collect()
}

fn column(random: &mut fastrand::Rng, rows: usize) -> ArrayRef {
    let some = |random: &mut fastrand::Rng| random.u8(..5) > 0;
    match random.u8(..12) {
        0 => primitive::<Int16Type>(random, rows, |random| random.i16(-3..4)),
        1 => primitive::<Int64Type>(random, rows, |random| {
            [i64::MIN, -1, 0, 1, 255, 256, i64::MAX][random.usize(..7)]
        }),
        2 => {
            primitive::<UInt32Type>(random, rows, |random| [0, 1, 256, u32::MAX][random.usize(..4)])
        }
        // The kinds of NaN and zero have a test of their own.
        3 => primitive::<Float64Type>(random, rows, |random| {
            [f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN]
                [random.usize(..8)]
        }),
        4 => primitive::<Float32Type>(random, rows, |random| random.f32() - 0.5),
        5 => primitive::<Decimal128Type>(random, rows, |random| random.i128(-70_000..70_000)),
        6 => primitive::<Decimal256Type>(random, rows, |random| {
            i256::from_parts(random.u128(..4), random.i128(-2..2))
        }),
        7 => primitive::<TimestampMicrosecondType>(random, rows, |random| random.i64(-300..300)),
        8 => {
            let values = (0..rows).map(|_| some(random).then(|| random.bool()));
            Arc::new(BooleanArray::from(values.collect::<Vec<_>>()))
        }
        9 => {
            let texts = (0..rows)
                .map(|_| some(random).then(|| String::from_utf8(text(random)).expect("ASCII")));
            let texts: Vec<_> = texts.collect();
            if random.bool() {
                Arc::new(StringArray::from(texts))
            } else {
                Arc::new(StringViewArray::from_iter(texts))
            }
        }
        10 => {
            let values: Vec<_> = (0..rows).map(|_| some(random).then(|| text(random))).collect();
            Arc::new(BinaryArray::from_iter(values))
        }
        _ => {
            let value = |random: &mut fastrand::Rng| [random.u8(..3), random.u8(254..)];
            let values: Vec<_> = (0..rows).map(|_| some(random).then(|| value(random))).collect();
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), 2)
                    .unwrap(),
            )
        }
    }
}

#[test]
fn keys_sort_as_rows_do() {
    let seeds = [1, 2, 3, fastrand::u64(..)];
    for seed in seeds {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..200 {
            let rows = 40;
            let arrays: Vec<_> =
                (0..random.usize(1..4)).map(|_| column(&mut random, rows)).collect();
            let columns: Vec<_> = arrays
                .iter()
                .map(|array| KeyColumn {
                    data_type: array.data_type().clone(),
                    is_nullable: array.null_count() > 0 || random.bool(),
                    is_descending: random.bool(),
                    nulls_first: random.bool(),
                })
                .collect();
            let comparators: Vec<_> = arrays
                .iter()
                .zip(&columns)
                .map(|(array, column)| {
                    let options = SortOptions {
                        descending: column.is_descending,
                        nulls_first: column.nulls_first,
                    };
                    make_comparator(array, array, options).unwrap()
                })
                .collect();
            let mut keys = Keys::new();
            KeyEncoder::new(columns.clone()).unwrap().encode(&arrays, &mut keys).unwrap();
            for a in 0..rows {
                for b in 0..rows {
                    let expected = comparators
                        .iter()
                        .map(|compare| compare(a, b))
                        .find(|order| order.is_ne())
                        .unwrap_or(Ordering::Equal);
                    assert_eq!(
                        keys.get(a).cmp(keys.get(b)),
                        expected,
                        "{columns:?} {arrays:?} {a} {b}"
                    );
                }
            }
        }
    }
}

fn keys_of(array: ArrayRef) -> Keys {
    let mut keys = Keys::new();
    let column = KeyColumn::new(array.data_type().clone(), false);
    KeyEncoder::new(vec![column]).unwrap().encode(&[array], &mut keys).unwrap();
    keys
}

#[test]
fn there_is_one_zero_and_one_nan() {
    let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63 | 1);
    let values = vec![f64::NEG_INFINITY, -0.0, 0.0, f64::INFINITY, f64::NAN, negative_nan];
    let keys = keys_of(Arc::new(Float64Array::from(values)));
    let order: Vec<_> = (1..6).map(|row| keys.get(row - 1).cmp(keys.get(row))).collect();
    use Ordering::{Equal, Less};
    assert_eq!(order, [Less, Equal, Less, Less, Equal]);
}

#[test]
fn intervals_sort_by_length() {
    let interval = |months, days, nanoseconds| IntervalMonthDayNano { months, days, nanoseconds };
    let hour = 3_600_000_000_000;
    let values = vec![
        interval(-1, 0, 0),
        interval(0, -29, 0),
        interval(0, 0, 0),
        interval(0, 1, 0),
        interval(0, 0, 24 * hour),
        interval(0, 0, 25 * hour),
        interval(0, 30, 0),
        interval(1, 0, 0),
        interval(i32::MAX, i32::MAX, i64::MAX),
    ];
    let array = IntervalMonthDayNanoArray::from(values);
    let keys = keys_of(Arc::new(array));
    use Ordering::{Equal, Less};
    let order: Vec<_> = (1..9).map(|row| keys.get(row - 1).cmp(keys.get(row))).collect();
    assert_eq!(order, [Less, Less, Less, Equal, Less, Less, Equal, Less]);
}

#[test]
fn the_form_on_disk_stays() {
    let mut keys = Keys::new();
    let columns = vec![
        KeyColumn::new(DataType::Int64, false),
        KeyColumn {
            is_descending: true,
            nulls_first: true,
            ..KeyColumn::new(DataType::Utf8, true)
        },
    ];
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, -2])),
        Arc::new(StringArray::from(vec![Some("a\0"), None])),
    ];
    KeyEncoder::new(columns).unwrap().encode(&arrays, &mut keys).unwrap();
    let first = [0x80, 0, 0, 0, 0, 0, 0, 1, 1, !b'a', 255, 0, 255, 255];
    assert_eq!(keys.get(0), first);
    assert_eq!(keys.get(1), [0x7f, 255, 255, 255, 255, 255, 255, 254, 0]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    let error = KeyEncoder::new(vec![KeyColumn::new(list, true)]).unwrap_err();
    assert!(error.to_string().contains("have no order"), "{error}");
    let encoder = KeyEncoder::new(vec![KeyColumn::new(DataType::Int64, false)]).unwrap();
    let arrays: [ArrayRef; 3] = [
        Arc::new(Int64Array::from(vec![Some(1), None])),
        Arc::new(StringArray::from(vec!["a"])),
        Arc::new(Int64Array::from(vec![1])),
    ];
    for wrong in [&arrays[..1], &arrays[1..2], &arrays[1..]] {
        let error = encoder.encode(wrong, &mut Keys::new()).unwrap_err();
        assert!(error.to_string().contains("do not fit the key"), "{error}");
    }
}

#[test]
fn prefixes_end_where_their_keys_do() {
    assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
    assert_eq!(after_prefix(&[1, 255, 255]), Some(vec![2]));
    assert_eq!(after_prefix(&[255]), None);
    assert_eq!(after_prefix(&[]), None);
}
