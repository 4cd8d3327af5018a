//! Every type in every shape comes back bit for bit, as a whole and row by row.

use crate::support::{SHAPES, TYPES, bits, column, scalar, seeds};
use arrow_array::Array;
use arrow_schema::{DataType, TimeUnit};
use fastrand::Rng;
use weft_codec::{Block, Compression, Error, MAX_ROWS, Options, encode};

fn check(array: &dyn Array, options: &Options, rng: &mut Rng, what: &str) {
    let bytes = encode(array, options).expect(what);
    let block = Block::open(&bytes).expect(what);
    let decoded = block.decode().expect(what);
    decoded.to_data().validate_full().expect(what);
    assert_eq!(decoded.len(), array.len(), "{what}");
    assert_eq!(decoded.nulls().is_some(), array.null_count() > 0, "{what}");
    for row in 0..array.len() {
        assert_eq!(bits(scalar(&decoded, row)), bits(scalar(array, row)), "{what}: row {row}");
    }
    for _ in 0..64.min(array.len()) {
        let row = rng.usize(..array.len());
        let value = block.value(row).expect(what);
        assert_eq!(bits(value), bits(scalar(array, row)), "{what}: point read of row {row}");
    }
    assert!(matches!(block.value(array.len()), Err(Error::NoSuchRow { .. })), "{what}");
    assert!(block.describe().expect(what).contains("values"), "{what}");
}

#[test]
fn every_type_and_shape_round_trips() {
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd(3)];
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for physical in TYPES {
            for shape in SHAPES {
                for rows in [0, 1, 2, 1023, 1024, 1025, 5000] {
                    let null_share = [0.0, 0.0, 0.01, 0.5, 1.0][rng.usize(..5)];
                    let array = column(&mut rng, physical, shape, rows, null_share);
                    let options = Options {
                        cascade_depth: rng.u8(0..=3),
                        compression: compressions[rng.usize(..3)],
                    };
                    let what = format!(
                        "seed {seed}: {physical} {shape:?} {rows} rows, nulls {null_share}, {options:?}"
                    );
                    check(&array, &options, &mut rng, &what);
                }
            }
        }
    }
}

#[test]
fn full_blocks_round_trip() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for physical in TYPES {
            let shape = SHAPES[rng.usize(..SHAPES.len())];
            let array = column(&mut rng, physical, shape, MAX_ROWS, 0.1);
            let what = format!("seed {seed}: {physical} {shape:?}, a full block");
            check(&array, &Options::default(), &mut rng, &what);
        }
    }
}

#[test]
fn slices_round_trip() {
    let mut rng = Rng::with_seed(7);
    for physical in TYPES {
        for shape in SHAPES {
            let array = column(&mut rng, physical, shape, 3000, 0.2).slice(77, 2001);
            check(&array, &Options::default(), &mut rng, &format!("{physical} {shape:?} sliced"));
        }
    }
}

#[test]
fn logical_types_come_back() {
    let mut rng = Rng::with_seed(8);
    let types = [
        (weft_codec::Physical::Int32, DataType::Date32),
        (weft_codec::Physical::Int64, DataType::Timestamp(TimeUnit::Microsecond, None)),
        (weft_codec::Physical::Int128, DataType::Decimal128(15, 2)),
    ];
    for (physical, data_type) in types {
        let array = column(&mut rng, physical, crate::support::Shape::Sorted, 2000, 0.1);
        let array = array.to_data().into_builder().data_type(data_type.clone());
        let array = arrow_array::make_array(array.build().expect("the same layout"));
        let bytes = encode(&array, &Options::default()).expect("a supported type");
        let decoded = Block::open(&bytes).expect("a block").decode_as(&data_type);
        assert_eq!(&decoded.expect("the type that was encoded"), &array);
        let wrong = Block::open(&bytes).expect("a block").decode_as(&DataType::UInt8);
        assert!(matches!(wrong, Err(Error::WrongType { .. })));
    }
}

#[test]
fn too_many_rows_are_refused() {
    let array = arrow_array::BooleanArray::from(vec![true; MAX_ROWS + 1]);
    let refused = encode(&array, &Options::default());
    assert_eq!(refused, Err(Error::TooManyRows { rows: MAX_ROWS + 1 }));
}
