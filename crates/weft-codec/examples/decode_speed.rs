//! Speeds and sizes of the encodings on synthetic full blocks, on one core.
//!
//! `cargo run --release -p weft-codec --example decode_speed`
//! GB/s count decoded bytes in Arrow's layout; each figure is the median of nine runs of 200 blocks.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array};
use arrow_array::{Int16Array, StringViewArray};
use fastrand::Rng;
use weft_codec::{Block, Compression, MAX_ROWS, Options, encode};

const RUNS: usize = 9;
const BLOCKS: usize = 200;
const READS: usize = 20_000;

fn columns(rng: &mut Rng) -> Vec<(&'static str, ArrayRef)> {
    let rows = 0..MAX_ROWS;
    let words = ["carefully ", "quick ", "deposits ", "sleep ", "furiously ", "ironic ", "the "];
    let text = |rng: &mut Rng| (0..4).map(|_| words[rng.usize(..7)]).collect::<String>();
    let texts: Vec<String> = rows.clone().map(|i| format!("{}{i}", text(rng))).collect();
    let modes = ["AIR", "RAIL", "TRUCK", "DELIVER IN PERSON", "SHIP", "FOB", "MAIL"];
    let few: Vec<i64> = (0..50).map(|_| rng.i64(..)).collect();
    vec![
        (
            "i16, 7 bits",
            Arc::new(Int16Array::from_iter_values(rows.clone().map(|_| rng.i16(0..100)))),
        ),
        (
            "i32, 11 bits",
            Arc::new(Int32Array::from_iter_values(rows.clone().map(|_| rng.i32(0..2000)))),
        ),
        (
            "i64, 20 bits",
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|_| rng.i64(0..1_000_000)))),
        ),
        (
            "i64 sorted",
            Arc::new(Int64Array::from_iter_values(
                rows.clone().map(|i| i as i64 * 7 + rng.i64(0..7)),
            )),
        ),
        (
            "i64 dictionary",
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|_| few[rng.usize(..50)]))),
        ),
        (
            "i64 runs",
            Arc::new(Int64Array::from_iter_values(rows.clone().map(|i| few[i / 100 % 50]))),
        ),
        (
            "i128, 24 bits",
            Arc::new(Decimal128Array::from_iter_values(
                rows.clone().map(|_| rng.i128(0..10_000_000)),
            )),
        ),
        (
            "f64 prices",
            Arc::new(Float64Array::from_iter_values(
                rows.clone().map(|_| f64::from(rng.u32(..10_000_000)) / 100.0),
            )),
        ),
        (
            "text dictionary",
            Arc::new(StringViewArray::from_iter_values(
                rows.clone().map(|_| modes[rng.usize(..7)]),
            )),
        ),
        ("text", Arc::new(StringViewArray::from_iter_values(texts))),
    ]
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Seconds that `work` takes, the median of some runs.
fn seconds(mut work: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    median((0..RUNS).map(run).collect())
}

fn main() {
    let mut rng = Rng::with_seed(1);
    let options = Options { compression: Compression::None, ..Options::default() };
    println!(
        "column            encoding                bytes   of plain  decode GB/s  encode GB/s  read ns"
    );
    for (name, array) in columns(&mut rng) {
        let bytes = encode(&array, &options).expect("a supported type");
        let block = Block::open(&bytes).expect("a block");
        let tree = block.describe().expect("a block");
        let encoding = tree.lines().nth(1).and_then(|line| line.trim().split(',').next());
        let decoded = block.decode().expect("a block").get_buffer_memory_size() as f64;
        let decode = seconds(|| {
            for _ in 0..BLOCKS {
                drop(black_box(block.decode().expect("a block")));
            }
        });
        let encoded = seconds(|| drop(black_box(encode(&array, &options))));
        let rows: Vec<usize> = (0..READS).map(|_| rng.usize(..MAX_ROWS)).collect();
        let read = seconds(|| {
            for &row in &rows {
                black_box(block.value(row).expect("a row"));
            }
        });
        println!(
            "{name:17} {:22} {:7} {:9.1} % {:11.1} {:12.2} {:9.0}",
            encoding.unwrap_or_default(),
            bytes.len(),
            bytes.len() as f64 / decoded * 100.0,
            decoded * BLOCKS as f64 / decode / 1e9,
            decoded / encoded / 1e9,
            read / READS as f64 * 1e9,
        );
    }
}
