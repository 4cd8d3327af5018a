//! Any column comes back, as a whole and row by row, and its predicates agree with its zone.
#![no_main]

use arrow_array::{Array, BooleanArray};
use arrow_buffer::BooleanBuffer;
use libfuzzer_sys::fuzz_target;
use weft_codec::{Block, Op, Options, Predicate, Scalar, encode, zone};

fuzz_target!(|bytes: &[u8]| {
    let Some(array) = weft_fuzz::column(bytes) else { return };
    let block = match encode(&array, &Options::default()) {
        Ok(block) => block,
        Err(error) => return assert!(array.len() > weft_codec::MAX_ROWS, "{error}"),
    };
    let block = Block::open(&block).expect("what was just encoded");
    let decoded = block.decode_as(array.data_type()).expect("what was just encoded");
    assert_eq!(&decoded, &array);
    let mask = BooleanBuffer::collect_bool(array.len(), |row| row % 13 == 5);
    let selected = block.decode_selected(&mask, array.data_type()).expect("what was just encoded");
    let expected = arrow_select::filter::filter(&array, &BooleanArray::new(mask, None));
    assert_eq!(&selected, &expected.expect("a bit per row"));

    let zone = zone(&array);
    let rows = array.len() as u64;
    for row in (0..array.len()).step_by(array.len() / 7 + 1) {
        let value = block.value(row).expect("a row");
        assert_eq!(value == Scalar::Null, array.is_null(row));
        for op in [Op::Eq, Op::NotEq, Op::Lt, Op::LtEq, Op::Gt, Op::GtEq] {
            let predicate = Predicate::Compare(op, value.clone());
            let Ok(mask) = block.filter(&predicate) else { continue };
            let itself = value != Scalar::Null && op.holds(std::cmp::Ordering::Equal);
            assert_eq!(mask.value(row), itself, "{predicate:?}");
            let count = mask.count_set_bits() as u64;
            assert!(count == 0 || predicate.may_match(&zone, rows), "{predicate:?}, {zone:?}");
            assert!(count == rows || !predicate.must_match(&zone, rows), "{predicate:?}, {zone:?}");
        }
    }
    weft_fuzz::exercise(&block);
});
