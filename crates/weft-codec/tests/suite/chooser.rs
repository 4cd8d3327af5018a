//! The chooser finds the encoding that each shape of data is made for, and it pays.

use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array};
use arrow_array::{BooleanArray, StringViewArray, cast::AsArray};
use fastrand::Rng;
use weft_codec::{Block, Compression, Encoder, Options, encode};

/// Checks the encoding of the values, and that the block takes at most `bytes` bytes.
fn check(array: ArrayRef, encoding: &str, bytes: usize) {
    let options = Options { compression: Compression::None, ..Options::default() };
    let block = encode(&array, &options).expect("a supported type");
    let tree = Block::open(&block).expect("a block").describe().expect("a block");
    assert!(tree.contains(&format!("values: {encoding},")), "{encoding} expected:\n{tree}");
    assert!(block.len() <= bytes, "{} bytes, {bytes} expected:\n{tree}", block.len());
}

const ROWS: usize = 65_536;

#[test]
fn sensible_encodings_are_chosen() {
    let mut rng = Rng::with_seed(1);
    check(Arc::new(Int64Array::from(vec![42; ROWS])), "constant", 32);
    check(Arc::new(Int64Array::from_iter_values((0..ROWS).map(|i| i as i64 * 3))), "delta", 1200);
    let random = (0..ROWS).map(|_| rng.i32(1_000_000..1_000_100));
    check(Arc::new(Int32Array::from_iter_values(random)), "frame-of-reference", ROWS * 7 / 8 + 400);
    let far: Vec<i64> = (0..10).map(|_| rng.i64(..)).collect();
    let few = (0..ROWS).map(|_| far[rng.usize(..10)]);
    check(Arc::new(Int64Array::from_iter_values(few)), "dictionary", ROWS / 2 + 400);
    let runs = (0..ROWS).map(|i| (i as i64 / 700).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
    check(Arc::new(Int64Array::from_iter_values(runs)), "run-length", 1500);
    let prices = (0..ROWS).map(|_| f64::from(rng.u32(..100_000)) / 100.0);
    check(Arc::new(Float64Array::from_iter_values(prices)), "alp", ROWS * 17 / 8 + 700);
    let decimals = (0..ROWS).map(|_| rng.i128(0..1000));
    check(Arc::new(Decimal128Array::from_iter_values(decimals)), "narrow", ROWS * 10 / 8 + 700);
    let flags = (0..ROWS).map(|i| Some(i / 5000 % 2 == 0));
    check(Arc::new(BooleanArray::from_iter(flags)), "run-length", 200);
}

#[test]
fn sensible_encodings_are_chosen_for_strings() {
    let mut rng = Rng::with_seed(1);
    let modes = ["AIR", "RAIL", "TRUCK", "REG AIR", "SHIP", "FOB", "MAIL"];
    let few = (0..ROWS).map(|_| modes[rng.usize(..7)]);
    check(Arc::new(StringViewArray::from_iter_values(few)), "dictionary", ROWS * 3 / 8 + 400);
    let words = ["carefully ", "quick ", "deposits ", "sleep ", "furiously ", "ironic ", "the "];
    let texts = (0..ROWS).map(|_| (0..5).map(|_| words[rng.usize(..7)]).collect::<String>());
    let texts: Vec<String> = texts.enumerate().map(|(i, text)| format!("{text}{i}")).collect();
    let bytes = texts.iter().map(String::len).sum::<usize>();
    check(Arc::new(StringViewArray::from_iter_values(texts)), "fsst", bytes / 2);
    let random = (0..ROWS).map(|_| (0..16).map(|_| rng.char('!'..='~')).collect::<String>());
    let random: Vec<String> = random.collect();
    let bytes = random.iter().map(String::len).sum::<usize>();
    check(Arc::new(StringViewArray::from_iter_values(random)), "plain", bytes + ROWS);
}

#[test]
fn an_encoder_keeps_symbols_as_long_as_they_fit() {
    let mut rng = Rng::with_seed(2);
    let mut text = |words: &[&str]| {
        let row = |_| (0..6).map(|_| words[rng.usize(..words.len())]).collect::<String>();
        let rows: Vec<String> = (0..4000).map(row).collect();
        StringViewArray::from_iter_values(rows)
    };
    let english = ["carefully ", "quick ", "deposits ", "sleep ", "furiously ", "ironic ", "the "];
    let german = ["vorsichtig ", "schnell ", "Einlagen ", "schlafen ", "heftig ", "und ", "der "];
    let blocks = [text(&english), text(&english), text(&german), text(&english)];
    let options = Options { compression: Compression::None, ..Options::default() };
    let mut encoder = Encoder::new(options);
    for array in &blocks {
        let bytes = encoder.encode(array).expect("a supported type");
        let alone = encode(array, &options).expect("a supported type");
        assert!(bytes.len() <= alone.len() * 11 / 10, "{} of {} bytes", bytes.len(), alone.len());
        let decoded = Block::open(&bytes).and_then(|block| block.decode()).expect("a block");
        assert_eq!(decoded.as_string_view(), array);
    }
}
