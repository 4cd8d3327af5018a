//! Predicates on encoded blocks give what Arrow's kernels give on decoded arrays, zones pass over
//! nothing that satisfies them, and selected rows are those of the filtered array.

use std::sync::Arc;

use crate::support::{SHAPES, TYPES, column, scalar, seeds};
use arrow_array::{Array, ArrayRef, BooleanArray, Datum, Float32Array, Float64Array};
use arrow_array::{cast::AsArray, types::*};
use arrow_buffer::BooleanBuffer;
use arrow_ord::cmp;
use fastrand::Rng;
use weft_codec::{Block, Compression, Error, Op, Options, Physical, Predicate, Scalar, Zone};
use weft_codec::{encode, zone};

const OPS: [Op; 6] = [Op::Eq, Op::NotEq, Op::Lt, Op::LtEq, Op::Gt, Op::GtEq];

/// The array with 0.0 for -0.0, as DataFusion has it before it compares.
fn one_zero(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        arrow_schema::DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            let array: Float32Array = array.unary(|value| if value == 0.0 { 0.0 } else { value });
            Arc::new(array)
        }
        arrow_schema::DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            let array: Float64Array = array.unary(|value| if value == 0.0 { 0.0 } else { value });
            Arc::new(array)
        }
        _ => array.clone(),
    }
}

/// The rows of `array` that compare so with row `row` of `others`; nulls do not.
fn compared(op: Op, array: &ArrayRef, others: &ArrayRef, row: usize) -> BooleanBuffer {
    let (array, other) = (one_zero(array), one_zero(&others.slice(row, 1)));
    let other = arrow_array::Scalar::new(other);
    let (array, other): (&dyn Datum, &dyn Datum) = (&array, &other);
    let compared = match op {
        Op::Eq => cmp::eq(array, other),
        Op::NotEq => cmp::neq(array, other),
        Op::Lt => cmp::lt(array, other),
        Op::LtEq => cmp::lt_eq(array, other),
        Op::Gt => cmp::gt(array, other),
        Op::GtEq => cmp::gt_eq(array, other),
    };
    satisfied(&compared.expect("arrays of one type"))
}

fn satisfied(mask: &BooleanArray) -> BooleanBuffer {
    match mask.nulls() {
        Some(nulls) => mask.values() & nulls.inner(),
        None => mask.values().clone(),
    }
}

/// Checks the rows that a predicate selects, and what the zone says of it.
fn check(block: &Block, zone: &Zone, predicate: &Predicate, expected: &BooleanBuffer, what: &str) {
    let found = block.filter(predicate).expect(what);
    assert_eq!(&found, expected, "{what}: {predicate:?}");
    let (rows, count) = (block.rows() as u64, expected.count_set_bits() as u64);
    assert!(count == 0 || predicate.may_match(zone, rows), "{what}: {predicate:?} of {zone:?}");
    assert!(
        !predicate.must_match(zone, rows) || count == rows,
        "{what}: {predicate:?} of {zone:?}"
    );
}

#[test]
fn predicates_are_those_of_arrow() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for physical in TYPES {
            for shape in SHAPES {
                for rows in [1, 1023, 3000] {
                    let null_share = [0.0, 0.0, 0.1, 1.0][rng.usize(..4)];
                    let array = column(&mut rng, physical, shape, rows, null_share);
                    let other = SHAPES[rng.usize(..7)];
                    let others = column(&mut rng, physical, other, 5, 0.1);
                    let options =
                        Options { cascade_depth: rng.u8(0..=3), compression: Compression::None };
                    let bytes = encode(&array, &options).expect("a supported type");
                    let block = Block::open(&bytes).expect("a block");
                    let what = format!("seed {seed}: {physical} {shape:?} {rows} rows");
                    check_all(&mut rng, &block, &array, &others, &what);
                }
            }
        }
    }
}

/// Checks every kind of predicate with values of the block and with others.
fn check_all(rng: &mut Rng, block: &Block, array: &ArrayRef, others: &ArrayRef, what: &str) {
    let zone = zone(array);
    let valid = BooleanBuffer::collect_bool(array.len(), |row| array.is_valid(row));
    check(block, &zone, &Predicate::IsNotNull, &valid, what);
    check(block, &zone, &Predicate::IsNull, &!&valid, what);
    let mut list = Vec::new();
    let mut among = BooleanBuffer::new_unset(array.len());
    let mut all = vec![(Predicate::IsNotNull, valid)];
    for i in 0..6 {
        let (from, row) = if i % 2 == 0 {
            (array, rng.usize(..array.len()))
        } else {
            (others, rng.usize(..others.len()))
        };
        let value = scalar(from, row);
        for op in OPS {
            let expected = compared(op, array, from, row);
            check(block, &zone, &Predicate::Compare(op, value.clone()), &expected, what);
            all.push((Predicate::Compare(op, value.clone()), expected));
        }
        check(block, &zone, &Predicate::In(list.clone()), &among, what);
        if let Scalar::Bytes(bytes) = &value {
            let prefix = &bytes[..rng.usize(..=bytes.len())];
            let starts = |row| match scalar(array, row) {
                Scalar::Bytes(bytes) => bytes.starts_with(prefix),
                _ => false,
            };
            let expected = BooleanBuffer::collect_bool(array.len(), starts);
            check(block, &zone, &Predicate::StartsWith(prefix.to_vec()), &expected, what);
        }
        among = &among | &compared(Op::Eq, array, from, row);
        list.push(value);
    }
    all.push((Predicate::In(list), among));
    for _ in 0..20 {
        let some: Vec<_> = (0..rng.usize(0..4)).map(|_| &all[rng.usize(..all.len())]).collect();
        let predicates: Vec<&Predicate> = some.iter().map(|(predicate, _)| predicate).collect();
        let every = BooleanBuffer::new_set(array.len());
        let expected = some.iter().fold(every, |rows, (_, of_one)| &rows & of_one);
        let found = block.filter_all(&predicates).expect(what);
        assert_eq!(found, expected, "{what}: {predicates:?}");
    }
}

#[test]
fn integers_of_any_width_are_compared_as_numbers() {
    let array: ArrayRef = Arc::new(arrow_array::Int8Array::from(vec![-128, -1, 0, 1, 127]));
    let bytes = encode(&array, &Options::default()).expect("a supported type");
    let block = Block::open(&bytes).expect("a block");
    let count = |op, value| {
        let mask = block.filter(&Predicate::Compare(op, value)).expect("a number");
        mask.count_set_bits()
    };
    assert_eq!(count(Op::Lt, Scalar::Int(1000)), 5);
    assert_eq!(count(Op::Gt, Scalar::Int(i64::MIN)), 5);
    assert_eq!(count(Op::Eq, Scalar::UInt(255)), 0);
    assert_eq!(count(Op::NotEq, Scalar::Int128(i128::MAX)), 5);
    assert_eq!(count(Op::GtEq, Scalar::UInt(0)), 3);
    assert_eq!(count(Op::Lt, Scalar::Int128(i128::MIN)), 0);
    let wrong = block.filter(&Predicate::StartsWith(vec![1]));
    assert!(matches!(wrong, Err(Error::WrongPredicate { physical: Physical::Int8, .. })));
    let wrong = block.filter(&Predicate::Compare(Op::Eq, Scalar::Boolean(true)));
    assert!(matches!(wrong, Err(Error::WrongPredicate { .. })));
}

#[test]
fn selected_rows_are_those_of_the_filtered_array() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for physical in TYPES {
            for shape in SHAPES {
                let rows = rng.usize(1..6000);
                let null_share = [0.0, 0.1][rng.usize(..2)];
                let array = column(&mut rng, physical, shape, rows, null_share);
                let options = Options { cascade_depth: 3, compression: Compression::None };
                let bytes = encode(&array, &options).expect("a supported type");
                let block = Block::open(&bytes).expect("a block");
                for share in [0.0, 0.001, 0.02, 0.2, 0.7, 1.0] {
                    // Runs of selected rows, too: whole chunks are passed over.
                    let run = [1, 1, 700][rng.usize(..3)];
                    let picked: Vec<bool> = (0..=rows / run).map(|_| rng.f64() < share).collect();
                    let mask = BooleanBuffer::collect_bool(rows, |row| picked[row / run]);
                    let selected = block.decode_selected(&mask, array.data_type());
                    let selected = selected.expect("a block");
                    selected.to_data().validate_full().expect("a sound array");
                    let mask = BooleanArray::new(mask, None);
                    let filtered = arrow_select::filter::filter(&array, &mask).expect("a mask");
                    let what = format!("seed {seed}: {physical} {shape:?}, {share} of {rows} rows");
                    assert_eq!(selected.len(), filtered.len(), "{what}");
                    assert_eq!(selected.nulls().is_some(), filtered.null_count() > 0, "{what}");
                    for row in 0..filtered.len() {
                        let (a, b) = (scalar(&selected, row), scalar(&filtered, row));
                        assert_eq!(
                            crate::support::bits(a),
                            crate::support::bits(b),
                            "{what}, row {row}"
                        );
                    }
                }
                let short =
                    block.decode_selected(&BooleanBuffer::new_set(rows + 1), array.data_type());
                assert!(matches!(short, Err(Error::WrongSelection { .. })));
            }
        }
    }
}

#[test]
fn merged_zones_are_zones_of_all_rows() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for physical in TYPES {
            for shape in SHAPES {
                let (rows, share) = (rng.usize(2..50), [0.0, 0.5, 1.0][rng.usize(..3)]);
                let array = column(&mut rng, physical, shape, rows, share);
                let cut = rng.usize(1..rows);
                let mut merged = zone(&array.slice(0, cut));
                merged.merge(cut as u64, &zone(&array.slice(cut, rows - cut)), (rows - cut) as u64);
                let whole = zone(&array);
                let what = format!("seed {seed}: {physical} {shape:?} {rows} rows cut at {cut}");
                assert_eq!(merged.null_count, whole.null_count, "{what}");
                for (a, b) in [(&merged.min, &whole.min), (&merged.max, &whole.max)] {
                    // Every NaN is only itself, so bounds are compared by their order.
                    let equal = match (a, b) {
                        (Some(a), Some(b)) => a.compare(b).is_some_and(|order| order.is_eq()),
                        (None, None) => true,
                        _ => false,
                    };
                    assert!(equal, "{what}: {merged:?} is not {whole:?}");
                }
                let mut bytes = Vec::new();
                whole.write(&mut bytes);
                bytes.push(77);
                let read = Zone::read(&mut &bytes[..]).expect("a zone");
                assert_eq!(format!("{read:?}"), format!("{whole:?}"), "{what}");
                for len in 0..bytes.len() - 1 {
                    assert!(Zone::read(&mut &bytes[..len]).is_err(), "{what} cut to {len}");
                }
            }
        }
    }
}

#[test]
fn zones_bound_long_strings() {
    let long = |byte: u8, len| vec![byte; len];
    let array = |rows: Vec<Vec<u8>>| arrow_array::BinaryViewArray::from_iter_values(rows);
    let bounded = zone(&array(vec![long(3, 100), long(9, 40), long(0xff, 3)]));
    assert_eq!(bounded.min, Some(Scalar::Bytes(long(3, 32))));
    assert_eq!(bounded.max, Some(Scalar::Bytes(long(0xff, 3))));
    assert!(!bounded.exact);
    let mut rounded = long(9, 31);
    rounded.push(10);
    assert_eq!(zone(&array(vec![long(9, 40)])).max, Some(Scalar::Bytes(rounded)));
    assert_eq!(zone(&array(vec![long(0xff, 40)])).max, None);
    let mut mixed = long(1, 20);
    mixed.extend(long(0xff, 20));
    let mut up = long(1, 19);
    up.push(2);
    assert_eq!(zone(&array(vec![mixed])).max, Some(Scalar::Bytes(up)));
    assert!(zone(&array(vec![long(1, 32)])).exact);
}

#[test]
fn scalars_are_read_as_written_and_garbage_is_an_error() {
    let scalars = [
        Scalar::Null,
        Scalar::Boolean(true),
        Scalar::Int(i64::MIN),
        Scalar::UInt(u64::MAX),
        Scalar::Int128(i128::MIN),
        Scalar::Float32(-0.0),
        Scalar::Float64(f64::INFINITY),
        Scalar::Bytes(vec![]),
        Scalar::Bytes(b"weft".to_vec()),
    ];
    let mut bytes = Vec::new();
    scalars.iter().for_each(|scalar| scalar.write(&mut bytes));
    let mut rest = &bytes[..];
    for scalar in &scalars {
        assert_eq!(&Scalar::read(&mut rest).expect("a scalar"), scalar);
    }
    assert!(rest.is_empty());
    assert!(Scalar::read(&mut rest).is_err());
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..100_000 {
            let garbage: Vec<u8> = (0..rng.usize(..20)).map(|_| rng.u8(..)).collect();
            let mut rest = &garbage[..];
            while Scalar::read(&mut rest).is_ok() {}
            drop(Zone::read(&mut &garbage[..]));
        }
    }
}
