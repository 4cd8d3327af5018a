//! No bytes make a decoder panic, hang, or ask for memory without bound.

use crate::support::{SHAPES, Shape, TYPES, column, seeds};
use arrow_buffer::BooleanBuffer;
use arrow_schema::DataType;
use fastrand::Rng;

use crate::nested::{any_array, any_type};
use weft_codec::{Block, Compression, Error, Op, Options, Physical, Predicate, RANGE_ROWS};
use weft_codec::{Scalar, encode};

/// Decodes whatever can be decoded; only that it returns, and returns sound arrays, matters.
fn read(bytes: &[u8], row: usize) {
    let Ok(block) = Block::open(bytes) else { return };
    if let Ok(array) = block.decode() {
        assert_eq!(array.len(), block.rows());
        array.to_data().validate_full().expect("a decoded array is sound");
    }
    drop(block.value(row % block.rows().max(1)));
    drop(block.describe());
    for predicate in predicates() {
        if let Ok(mask) = block.filter(&predicate) {
            assert_eq!(mask.len(), block.rows());
        }
    }
    let selected = BooleanBuffer::collect_bool(block.rows(), |other| other % 37 == row % 37);
    let Ok(data_type) = block.data_type() else { return };
    let dictionary = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(data_type.clone()));
    if let Ok(array) = block.decode_as(&dictionary) {
        assert_eq!(array.len(), block.rows());
        array.to_data().validate_full().expect("codes are of entries");
    }
    drop(block.is_divisible());
    let start = row % (block.rows() / RANGE_ROWS + 1) * RANGE_ROWS;
    let range = start..block.rows().min(start + 1500);
    if let Ok(array) = block.decode_range(range.clone(), &data_type) {
        assert_eq!(array.len(), range.len());
        array.to_data().validate_full().expect("a range is sound");
    }
    if let Ok(array) = block.decode_selected(&selected, &data_type) {
        assert_eq!(array.len(), selected.count_set_bits());
        array.to_data().validate_full().expect("a selection is sound");
    }
}

/// Predicates on every type.
fn predicates() -> Vec<Predicate> {
    let values = [
        Scalar::Boolean(true),
        Scalar::Int(77),
        Scalar::Float32(1.5),
        Scalar::Float64(1.5),
        Scalar::Bytes(b"7".to_vec()),
    ];
    let mut predicates = vec![Predicate::IsNull, Predicate::StartsWith(b"1".to_vec())];
    for value in values {
        predicates.push(Predicate::Compare(Op::Eq, value.clone()));
        predicates.push(Predicate::Compare(Op::Lt, value.clone()));
        predicates.push(Predicate::In(vec![value.clone(), Scalar::Null, value]));
    }
    predicates
}

fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        // Headers and lengths lie at the beginning: hit them more often than the packed values.
        let end = if rng.bool() { bytes.len().min(64) } else { bytes.len() };
        let at = rng.usize(..end);
        match rng.u8(..5) {
            0 => bytes.truncate(at),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.usize(..5)],
            2 => bytes[at] = rng.u8(..),
            3 => bytes.insert(at, rng.u8(..)),
            _ => bytes[at] ^= 1 << rng.u8(..8),
        }
    }
    // A header that agrees with the length, so that what was cut or inserted reaches the decoders.
    if bytes.len() >= 16 && rng.bool() {
        let body = bytes.len() as u32 - 16;
        bytes[12..16].copy_from_slice(&body.to_le_bytes());
    }
}

#[test]
fn damaged_blocks_never_panic() {
    let compressions =
        [Compression::None, Compression::None, Compression::Lz4, Compression::Zstd(1)];
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for physical in TYPES {
            for shape in SHAPES {
                let rows = rng.usize(1..1500);
                let null_share = [0.0, 0.2][rng.usize(..2)];
                let array = column(&mut rng, physical, shape, rows, null_share);
                let compression = compressions[rng.usize(..4)];
                let options = Options { cascade_depth: 3, compression };
                let bytes = encode(&array, &options).expect("a supported type");
                for _ in 0..400 {
                    let mut damaged = bytes.clone();
                    damage(&mut damaged, &mut rng);
                    read(&damaged, rng.usize(..rows));
                }
            }
        }
    }
}

#[test]
fn damaged_nested_blocks_never_panic() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..60 {
            let data_type = any_type(&mut rng, 0);
            let rows = rng.usize(1..200);
            let null_share = [0.0, 0.2][rng.usize(..2)];
            let array = any_array(&mut rng, &data_type, rows, null_share);
            let options = Options { cascade_depth: 3, compression: Compression::None };
            let bytes = encode(&array, &options).expect("a supported type");
            for _ in 0..60 {
                let mut damaged = bytes.clone();
                damage(&mut damaged, &mut rng);
                read(&damaged, rng.usize(..rows));
                if let Ok(block) = Block::open(&damaged)
                    && let Ok(array) = block.decode_as(&data_type)
                {
                    array.to_data().validate_full().expect("a decoded array is sound");
                }
            }
        }
    }
}

#[test]
fn codes_that_end_within_an_escape_are_an_error() {
    let mut rng = Rng::with_seed(5);
    let array = column(&mut rng, Physical::Utf8, Shape::Narrow, 1000, 0.0);
    let options = Options { cascade_depth: 3, compression: Compression::None };
    let mut bytes = encode(&array, &options).expect("a supported type");
    let tree = Block::open(&bytes).expect("a block").describe().expect("a block");
    assert!(tree.contains("values: fsst"), "{tree}");
    // The codes are the last bytes of the block.
    let last = bytes.len() - 1;
    bytes[last - 1..].copy_from_slice(&[0, 0xff]);
    let block = Block::open(&bytes).expect("a sound header");
    for error in [block.decode().map(drop).err(), block.value(999).map(drop).err()] {
        assert!(matches!(&error, Some(Error::Damaged { encoding: "fsst", .. })), "{error:?}");
    }
}

#[test]
fn random_bytes_never_panic() {
    for seed in seeds() {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..50_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect();
            // A header that is likely to pass, and small tags, so that nodes are reached.
            if bytes.len() > 20 {
                let body = bytes.len() as u32 - 16;
                bytes[..4].copy_from_slice(&[1, rng.u8(..18), 0, 0]);
                bytes[4..8].copy_from_slice(&rng.u32(..300).to_le_bytes());
                bytes[8..12].copy_from_slice(&rng.u32(..2).to_le_bytes());
                bytes[12..16].copy_from_slice(&body.to_le_bytes());
                bytes[16] = rng.u8(..13);
            }
            read(&bytes, rng.usize(..300));
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let mut rng = Rng::with_seed(3);
    for physical in TYPES {
        for shape in SHAPES {
            let array = column(&mut rng, physical, shape, 500, 0.1);
            let options = Options { cascade_depth: 3, compression: Compression::None };
            let bytes = encode(&array, &options).expect("a supported type");
            for len in (0..bytes.len()).step_by(7) {
                assert!(Block::open(&bytes[..len]).is_err(), "{physical} {shape:?} cut to {len}");
            }
        }
    }
}
