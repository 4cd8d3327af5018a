//! Every type, nested at random, comes back: as a whole, as selected rows, and row by row.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, NullArray, PrimitiveArray, StringViewArray};
use arrow_array::{ArrowPrimitiveType, types::*};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, IntervalUnit};
use fastrand::Rng;
use weft_codec::{
    Block, Compression, Error, MAX_ROWS, MAX_VALUES, Op, Options, Physical, RANGE_ROWS,
};
use weft_codec::{Predicate, Scalar, encode, zone};

use crate::nested::{any_array, any_type};
use crate::support::{SHAPES, bits, column, scalar, seeds};

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd(1)];

fn check(rng: &mut Rng, array: &ArrayRef, options: &Options, what: &str) {
    let bytes = encode(array, options).expect(what);
    let block = Block::open(&bytes).expect(what);
    let decoded = block.decode_as(array.data_type()).expect(what);
    decoded.to_data().validate_full().expect(what);
    assert_eq!(&decoded, array, "{what}");
    let natural = block.decode().expect(what);
    assert_eq!(natural.len(), array.len(), "{what}");
    check_dictionary(&block, &natural, what);
    assert_eq!(natural.data_type(), &block.data_type().expect(what), "{what}");
    for share in [0.01, 0.1, 0.6] {
        let mask = BooleanBuffer::collect_bool(array.len(), |_| rng.f64() < share);
        let selected = block.decode_selected(&mask, array.data_type()).expect(what);
        selected.to_data().validate_full().expect(what);
        let mask = BooleanArray::new(mask, None);
        let expected = arrow_select::filter::filter(array, &mask).expect(what);
        assert_eq!(&selected, &expected, "{what}: {share} selected");
    }
    check_ranges(rng, &block, array, what);
    for _ in 0..8.min(array.len()) {
        let row = rng.usize(..array.len());
        let (value, expected) = (block.value(row).expect(what), scalar(array, row));
        assert_eq!(format!("{value:?}"), format!("{expected:?}"), "{what}: row {row}");
        let mut written = Vec::new();
        value.write(&mut written);
        let read = Scalar::read(&mut &written[..]).expect(what);
        assert_eq!(format!("{read:?}"), format!("{value:?}"), "{what}: row {row}");
    }
    let nulls = array.logical_null_count();
    let null = block.filter(&Predicate::IsNull).expect(what);
    let some = block.filter(&Predicate::IsNotNull).expect(what);
    assert_eq!(null.count_set_bits(), nulls, "{what}");
    assert_eq!(some.count_set_bits(), array.len() - nulls, "{what}");
    assert_eq!(zone(array).null_count, nulls as u64, "{what}");
    assert!(block.describe().expect(what).lines().count() > 0, "{what}");
}

/// Ranges have the rows that lie there, and none lie beyond the end.
fn check_ranges(rng: &mut Rng, block: &Block<'_>, array: &ArrayRef, what: &str) {
    block.is_divisible().expect(what);
    let rows = array.len();
    for _ in 0..3 {
        let start = rng.usize(..=rows / RANGE_ROWS) * RANGE_ROWS;
        let len = rng.usize(..=rows - start);
        let range = block.decode_range(start..start + len, array.data_type()).expect(what);
        range.to_data().validate_full().expect(what);
        assert_eq!(&range, &array.slice(start, len), "{what}: {len} rows from {start} on");
    }
    let beyond = block.decode_range(0..rows + 1, array.data_type());
    assert!(matches!(beyond, Err(Error::NoSuchRow { .. })), "{what}");
}

/// Numbers are decoded a range at a time wherever that pays: so are most of their encodings.
#[test]
fn ranges_of_long_blocks_are_their_rows() {
    let mut rng = Rng::with_seed(11);
    let run_length = |rng: &mut Rng, longest: usize| -> Vec<i64> {
        let mut values = Vec::new();
        while values.len() < MAX_ROWS {
            let len = rng.usize(1..=longest).min(MAX_ROWS - values.len());
            values.extend(std::iter::repeat_n(rng.i64(..), len));
        }
        values
    };
    let columns = [
        ("runs", run_length(&mut rng, 11), true),
        ("long runs", run_length(&mut rng, 3000), true),
        ("packed", (0..MAX_ROWS).map(|_| rng.i64(-700..9_000)).collect(), true),
        ("ascending", (0..MAX_ROWS as i64).map(|row| row * row).collect(), true),
        ("plain", (0..MAX_ROWS).map(|_| rng.i64(..)).collect(), true),
        ("a few", (0..MAX_ROWS).map(|_| rng.i64(0..9) << 55).collect(), true),
        ("many", (0..MAX_ROWS).map(|_| rng.i64(0..9_000) << 40).collect(), false),
    ];
    for (what, values, divisible) in columns {
        let array: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from(values));
        check_long(&mut rng, &array, divisible, what);
    }
}

/// A long block's ranges are its rows; gives the tree of its encodings.
fn check_long(rng: &mut Rng, array: &ArrayRef, divisible: bool, what: &str) -> String {
    let options = Options { compression: Compression::None, ..Options::default() };
    let bytes = encode(array, &options).expect(what);
    let block = Block::open(&bytes).expect(what);
    let tree = block.describe().expect(what);
    assert_eq!(block.is_divisible().expect(what), divisible, "{what}: {tree}");
    for start in (0..MAX_ROWS).step_by(8 * RANGE_ROWS) {
        let range = block.decode_range(start..start + 8 * RANGE_ROWS, array.data_type());
        let expected = array.slice(start, 8 * RANGE_ROWS);
        assert_eq!(&range.expect(what), &expected, "{what}: from {start} on, {tree}");
    }
    for _ in 0..20 {
        check_ranges(rng, &block, array, what);
    }
    tree
}

/// So are strings, but for those of a dictionary, and those whose ends are runs.
#[test]
fn ranges_of_long_blocks_are_their_strings() {
    let mut rng = Rng::with_seed(12);
    let words = ["of", "the", "", "carefully", "regular accounts", "naïve – Grüße"];
    let mut any =
        |row: usize| -> String { (0..row % 20).map(|_| char::from(b' ' + rng.u8(..95))).collect() };
    let any: Vec<String> = (0..MAX_ROWS).map(&mut any).collect();
    let mut rng = Rng::with_seed(13);
    let mut sentence = |row: usize| -> String {
        let words: String = (0..rng.usize(..9)).map(|_| words[rng.usize(..words.len())]).collect();
        if row.is_multiple_of(3) { words } else { format!("{words} {row}") }
    };
    let sentences: Vec<String> = (0..MAX_ROWS).map(&mut sentence).collect();
    let few: Vec<String> = (0..MAX_ROWS).map(|row| words[row % words.len()].to_string()).collect();
    let rare = |row: usize| if row % 100 == 7 { any[row].clone() } else { String::new() };
    let rare: Vec<String> = (0..MAX_ROWS).map(rare).collect();
    let mut rng = Rng::with_seed(14);
    for (what, values, encoding, divisible) in [
        ("any", &any, "plain", true),
        ("sentences", &sentences, "fsst", true),
        ("few", &few, "dictionary", false),
        ("rare", &rare, "plain", false),
    ] {
        let array: ArrayRef = Arc::new(StringViewArray::from_iter_values(values));
        let tree = check_long(&mut rng, &array, divisible, what);
        assert!(tree.contains(&format!("values: {encoding}")), "{what}: {tree}");
        // Nulls one by one, and in runs.
        for run in [1, 40] {
            let is_null = |row: usize| row / run % 5 == 1;
            let values = values.iter().enumerate();
            let values = values.map(|(row, value)| (!is_null(row)).then_some(value));
            let array: ArrayRef = Arc::new(StringViewArray::from_iter(values));
            let options = Options { compression: Compression::None, ..Options::default() };
            let bytes = encode(&array, &options).expect(what);
            check_ranges(&mut rng, &Block::open(&bytes).expect(what), &array, what);
        }
    }
}

/// Strings asked for as a dictionary are the same strings, whether they come as one or not.
fn check_dictionary(block: &Block<'_>, natural: &ArrayRef, what: &str) {
    if !matches!(block.physical(), Physical::Utf8 | Physical::Binary) {
        return;
    }
    let values = natural.data_type();
    let asked = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(values.clone()));
    let plain = |array: &ArrayRef| match array.as_any_dictionary_opt() {
        None => array.clone(),
        Some(codes) => arrow_select::take::take(codes.values(), codes.keys(), None).expect(what),
    };
    let decoded = block.decode_as(&asked).expect(what);
    decoded.to_data().validate_full().expect(what);
    assert_eq!(&plain(&decoded), natural, "{what}: as a dictionary");
    for modulus in [1, 3, 40, 100_000] {
        let mask = BooleanBuffer::collect_bool(natural.len(), |row| row % modulus == modulus / 2);
        let selected = block.decode_selected(&mask, &asked).expect(what);
        selected.to_data().validate_full().expect(what);
        let mask = BooleanArray::new(mask, None);
        let expected = arrow_select::filter::filter(natural, &mask).expect(what);
        assert_eq!(&plain(&selected), &expected, "{what}: each {modulus}th as a dictionary");
    }
}

/// Few strings come as a dictionary, many do not.
#[test]
fn few_strings_come_as_a_dictionary() {
    let asked = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8View));
    let decoded = |strings: StringViewArray| {
        let bytes = encode(&strings, &Options::default()).expect("strings");
        let block = Block::open(&bytes).expect("a block");
        check_dictionary(&block, &(Arc::new(strings) as ArrayRef), "strings");
        block.decode_as(&asked).expect("a block").data_type().clone()
    };
    let of = |distinct: usize| (0..20_000).map(move |row| format!("number {}", row * 7 % distinct));
    assert_eq!(decoded(of(5).map(Some).collect()), asked);
    let with_nulls = of(5).enumerate().map(|(row, text)| (row % 9 > 0).then_some(text));
    assert_eq!(decoded(with_nulls.collect()), asked);
    assert_eq!(decoded(of(1).map(Some).collect()), asked, "a constant");
    assert_eq!(decoded(of(20_000).map(Some).collect()), DataType::Utf8View);
}

#[test]
fn nested_types_round_trip() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..120 {
            let data_type = any_type(&mut rng, 0);
            let rows = [0, 1, 2, 50, 1500][rng.usize(..5)];
            let null_share = [0.0, 0.1, 1.0][rng.usize(..3)];
            let mut array = any_array(&mut rng, &data_type, rows, null_share);
            if rows > 2 && rng.bool() {
                array = array.slice(1, rows - 2);
            }
            let options =
                Options { cascade_depth: rng.u8(0..=3), compression: COMPRESSIONS[rng.usize(..3)] };
            let what = format!("seed {seed}: {} rows of {data_type}, {options:?}", array.len());
            check(&mut rng, &array, &options, &what);
        }
    }
}

#[test]
fn lists_of_many_blocks_round_trip() {
    let mut rng = Rng::with_seed(11);
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    for data_type in [DataType::List(item.clone()), DataType::FixedSizeList(item, 7)] {
        let array = any_array(&mut rng, &data_type, MAX_ROWS, 0.2);
        check(&mut rng, &array, &Options::default(), &format!("a full block of {data_type}"));
    }
}

/// The primitive array's values as `data_type`.
fn logical<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, data_type: DataType) -> ArrayRef {
    let data = array.to_data().into_builder().data_type(data_type);
    arrow_array::make_array(data.build().expect("the same layout"))
}

#[test]
fn intervals_decimals_and_nulls_come_back() {
    let mut rng = Rng::with_seed(12);
    for rows in [1, 2000, MAX_ROWS] {
        for shape in SHAPES {
            let ints = column(&mut rng, Physical::Int32, shape, rows, 0.1);
            let longs = column(&mut rng, Physical::Int64, shape, rows, 0.1);
            let ints: &PrimitiveArray<Int32Type> =
                ints.as_any().downcast_ref().expect("32-bit integers");
            let longs: &PrimitiveArray<Int64Type> =
                longs.as_any().downcast_ref().expect("64-bit integers");
            let days = longs.unary::<_, IntervalDayTimeType>(|value| {
                IntervalDayTimeType::make_value((value >> 32) as i32, value as i32)
            });
            let months = longs.unary::<_, IntervalMonthDayNanoType>(|value| {
                let months = (value % 7) as i32;
                IntervalMonthDayNanoType::make_value(months, (value >> 32) as i32, value)
            });
            let arrays: [ArrayRef; 6] = [
                Arc::new(days),
                Arc::new(months),
                logical(ints, DataType::Interval(IntervalUnit::YearMonth)),
                logical(ints, DataType::Decimal32(9, 2)),
                logical(longs, DataType::Decimal64(18, 3)),
                Arc::new(NullArray::new(rows)),
            ];
            for array in &arrays {
                let what = format!("{rows} rows of {}, {shape:?}", array.data_type());
                check(&mut rng, array, &Options::default(), &what);
            }
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_an_error() {
    let mut deep = DataType::Boolean;
    for _ in 0..9 {
        deep = DataType::List(Arc::new(Field::new_list_field(deep, true)));
    }
    for data_type in [deep, DataType::Decimal256(40, 2), DataType::Float16] {
        assert!(matches!(Physical::of(&data_type), Err(Error::UnsupportedType(_))), "{data_type}");
    }
    let item = Arc::new(Field::new_list_field(DataType::Boolean, true));
    let len = MAX_VALUES as i32 / 4;
    let items = BooleanArray::new(BooleanBuffer::new_set(MAX_VALUES / 4 * 5), None);
    let items: ArrayRef = Arc::new(items);
    let list = arrow_array::FixedSizeListArray::new(item, len, items, None);
    assert_eq!(encode(&list, &Options::default()), Err(Error::TooManyValues));
    assert!(encode(&list.slice(0, 4), &Options::default()).is_ok());
}

#[test]
fn nested_types_have_no_order() {
    let mut rng = Rng::with_seed(13);
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let array = any_array(&mut rng, &DataType::List(item), 10, 0.0);
    let bytes = encode(&array, &Options::default()).expect("a supported type");
    let block = Block::open(&bytes).expect("a block");
    let compare = Predicate::Compare(Op::Eq, block.value(0).expect("a row"));
    assert!(matches!(block.filter(&compare), Err(Error::WrongPredicate { .. })));
    assert!(compare.may_match(&zone(&array), 10));
    assert_eq!(bits(Scalar::Int(1)).compare(&Scalar::List(vec![])), None);
}
