//! Speeds and sizes of the encodings on the columns of TPC-H, on one core.
//!
//! `cargo run --release -p weft-codec --example tpch_speed [scale factor] [compression] [rows]`
//! with a scale factor of 10, `lz4`, and blocks of 65,536 rows by default; the compressions are `none`, `lz4`
//! and `zstd`.
//! Per column: bytes per value, the speeds of encoding and decoding in decoded bytes (in Arrow's layout,
//! strings as their bytes and their views) per second, the time to filter and to open a block, and the
//! encoding of the first block. Each speed is the best of five runs over three full blocks from the
//! middle of the table. At the end, what the five large tables take together, extrapolated.

use std::fmt::Display;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array};
use arrow_array::{StringViewArray, cast::AsArray};
use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::*;
use weft_codec::{Block, Compression, Encoder, MAX_ROWS, Op, Options, Predicate, zone};

const RUNS: usize = 5;
const BLOCKS: usize = 3;

/// A column's name, and its blocks.
type Column = (&'static str, Vec<ArrayRef>);

fn ints<R>(rows: &[R], value: impl Fn(&R) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
}

fn short_ints<R>(rows: &[R], value: impl Fn(&R) -> i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(rows.iter().map(value)))
}

fn decimals<R>(rows: &[R], value: impl Fn(&R) -> TPCHDecimal) -> ArrayRef {
    let values = rows.iter().map(|row| i128::from(value(row).0));
    let array = Decimal128Array::from_iter_values(values);
    Arc::new(array.with_precision_and_scale(15, 2).expect("a decimal"))
}

fn dates<R>(rows: &[R], value: impl Fn(&R) -> TPCHDate) -> ArrayRef {
    Arc::new(Date32Array::from_iter_values(rows.iter().map(|row| value(row).to_unix_epoch())))
}

fn texts<'r, R, T: Display>(rows: &'r [R], value: impl Fn(&'r R) -> T) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(rows.iter().map(|row| value(row).to_string())))
}

/// The columns of `rows`, block by block.
macro_rules! columns {
    ($rows:expr, $($name:ident: $kind:ident $value:expr),* $(,)?) => {{
        let rows: Vec<_> = $rows.take(BLOCKS * MAX_ROWS).collect();
        vec![$((
            stringify!($name),
            rows.chunks(MAX_ROWS).map(|rows| $kind(rows, $value)).collect(),
        )),*]
    }};
}

/// The middle hundredth of a table: part and number of parts of its generator.
const MIDDLE: (i32, i32) = (50, 100);

fn lineitem(scale: f64) -> Vec<Column> {
    columns!(
        LineItemGenerator::new(scale, MIDDLE.0, MIDDLE.1).iter(),
        l_orderkey: ints |row| row.l_orderkey,
        l_partkey: ints |row| row.l_partkey,
        l_suppkey: ints |row| row.l_suppkey,
        l_linenumber: short_ints |row| row.l_linenumber,
        l_quantity: decimals |row| TPCHDecimal(row.l_quantity * 100),
        l_extendedprice: decimals |row| row.l_extendedprice,
        l_discount: decimals |row| row.l_discount,
        l_tax: decimals |row| row.l_tax,
        l_returnflag: texts |row| row.l_returnflag,
        l_linestatus: texts |row| row.l_linestatus,
        l_shipdate: dates |row| row.l_shipdate,
        l_commitdate: dates |row| row.l_commitdate,
        l_receiptdate: dates |row| row.l_receiptdate,
        l_shipinstruct: texts |row| row.l_shipinstruct,
        l_shipmode: texts |row| row.l_shipmode,
        l_comment: texts |row| row.l_comment,
    )
}

fn orders(scale: f64) -> Vec<Column> {
    columns!(
        OrderGenerator::new(scale, MIDDLE.0, MIDDLE.1).iter(),
        o_orderkey: ints |row| row.o_orderkey,
        o_custkey: ints |row| row.o_custkey,
        o_orderstatus: texts |row| row.o_orderstatus,
        o_totalprice: decimals |row| row.o_totalprice,
        o_orderdate: dates |row| row.o_orderdate,
        o_orderpriority: texts |row| row.o_orderpriority,
        o_clerk: texts |row| row.o_clerk,
        o_shippriority: short_ints |row| row.o_shippriority,
        o_comment: texts |row| row.o_comment,
    )
}

fn partsupp(scale: f64) -> Vec<Column> {
    columns!(
        PartSuppGenerator::new(scale, MIDDLE.0, MIDDLE.1).iter(),
        ps_partkey: ints |row| row.ps_partkey,
        ps_suppkey: ints |row| row.ps_suppkey,
        ps_availqty: short_ints |row| row.ps_availqty,
        ps_supplycost: decimals |row| row.ps_supplycost,
        ps_comment: texts |row| row.ps_comment,
    )
}

fn part(scale: f64) -> Vec<Column> {
    columns!(
        PartGenerator::new(scale, MIDDLE.0, MIDDLE.1).iter(),
        p_partkey: ints |row| row.p_partkey,
        p_name: texts |row| &row.p_name,
        p_mfgr: texts |row| row.p_mfgr,
        p_brand: texts |row| row.p_brand,
        p_type: texts |row| row.p_type,
        p_size: short_ints |row| row.p_size,
        p_container: texts |row| row.p_container,
        p_retailprice: decimals |row| row.p_retailprice,
        p_comment: texts |row| row.p_comment,
    )
}

fn customer(scale: f64) -> Vec<Column> {
    columns!(
        CustomerGenerator::new(scale, MIDDLE.0, MIDDLE.1).iter(),
        c_custkey: ints |row| row.c_custkey,
        c_name: texts |row| row.c_name,
        c_address: texts |row| &row.c_address,
        c_nationkey: ints |row| row.c_nationkey,
        c_phone: texts |row| &row.c_phone,
        c_acctbal: decimals |row| row.c_acctbal,
        c_mktsegment: texts |row| row.c_mktsegment,
        c_comment: texts |row| row.c_comment,
    )
}

/// Bytes in Arrow's layout.
fn arrow_bytes(array: &ArrayRef) -> usize {
    match array.as_string_view_opt() {
        Some(strings) => strings.lengths().map(|len| len as usize + 16).sum(),
        None => array.to_data().get_slice_memory_size().unwrap_or_default(),
    }
}

/// Seconds that `work` takes, the best of some runs.
fn seconds(mut work: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

/// What a column took: bytes on disk and in Arrow's layout, seconds to encode and to decode.
#[derive(Default)]
struct Cost {
    stored: f64,
    decoded: f64,
    encode: f64,
    decode: f64,
}

/// The arrays in blocks of `rows` rows.
fn cut(arrays: &[ArrayRef], rows: usize) -> Vec<ArrayRef> {
    let cut = |array: &ArrayRef| -> Vec<ArrayRef> {
        let starts = (0..array.len()).step_by(rows);
        starts.map(|start| array.slice(start, rows.min(array.len() - start))).collect()
    };
    arrays.iter().flat_map(cut).collect()
}

fn measure(name: &str, arrays: &[ArrayRef], options: &Options) -> Cost {
    let encoded = || -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new(*options);
        arrays.iter().map(|array| encoder.encode(array).expect("a supported type")).collect()
    };
    let bytes = encoded();
    let encode = seconds(|| {
        arrays.iter().for_each(|array| drop(black_box(zone(array))));
        drop(black_box(encoded()));
    });
    let open = seconds(|| bytes.iter().for_each(|bytes| drop(black_box(Block::open(bytes)))));
    let decode = seconds(|| {
        for (bytes, array) in bytes.iter().zip(arrays) {
            let block = Block::open(bytes).expect("a block");
            drop(black_box(block.decode_as(array.data_type()).expect("a block")));
        }
    });
    let least = zone(&arrays[0]).min.expect("a value");
    let predicate = Predicate::Compare(Op::Eq, least);
    let filter = seconds(|| {
        for bytes in &bytes {
            drop(black_box(Block::open(bytes).and_then(|block| block.filter(&predicate))));
        }
    });
    let rows: usize = arrays.iter().map(|array| array.len()).sum();
    let decoded: usize = arrays.iter().map(arrow_bytes).sum();
    let stored: usize = bytes.iter().map(Vec::len).sum();
    let tree = Block::open(&bytes[0]).and_then(|block| block.describe()).expect("a block");
    let mut lines = tree.lines();
    let compression = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    let nodes: Vec<_> =
        lines.map(|line| line.trim().split(',').next().unwrap_or_default()).collect();
    println!(
        "{name:16} {:8.3} {:9.0} {:9.2} {:9.1} {:9.2} {:9.2}   {compression}; {}",
        stored as f64 / rows as f64,
        decoded as f64 / encode / 1e6,
        decoded as f64 / decode / 1e9,
        encode / rows as f64 * 1e9,
        filter / rows as f64 * 1e9,
        open / rows as f64 * 1e9,
        nodes.join("; "),
    );
    let share = 1.0 / rows as f64;
    Cost {
        stored: stored as f64 * share,
        decoded: decoded as f64 * share,
        encode: encode * share,
        decode: decode * share,
    }
}

fn main() {
    let scale =
        std::env::args().nth(1).map_or(10.0, |scale| scale.parse().expect("a scale factor"));
    let compression = match std::env::args().nth(2).as_deref() {
        Some("none") => Compression::None,
        Some("zstd") => Compression::Zstd(1),
        _ => Compression::Lz4,
    };
    let options = Options { compression, ..Options::default() };
    let block_rows = std::env::args().nth(3).map_or(MAX_ROWS, |rows| rows.parse().expect("rows"));
    let tables = [
        ("lineitem", 6_000_000.0, lineitem(scale)),
        ("orders", 1_500_000.0, orders(scale)),
        ("partsupp", 800_000.0, partsupp(scale)),
        ("part", 200_000.0, part(scale)),
        ("customer", 150_000.0, customer(scale)),
    ];
    println!(
        "column            B/value  enc MB/s  dec GB/s encode ns filter ns   open ns   compression; nodes"
    );
    let mut total = Cost::default();
    for (table, rows, columns) in tables {
        let rows = rows * scale;
        let mut sum = Cost::default();
        for (name, arrays) in columns {
            let cost = measure(name, &cut(&arrays, block_rows), &options);
            sum.stored += cost.stored;
            sum.decoded += cost.decoded;
            sum.encode += cost.encode;
            sum.decode += cost.decode;
        }
        println!(
            "{table}: {:.1} bytes a row; encoded at {:.0} MB/s, decoded at {:.2} GB/s\n",
            sum.stored,
            sum.decoded / sum.encode / 1e6,
            sum.decoded / sum.decode / 1e9,
        );
        total.stored += sum.stored * rows;
        total.encode += sum.encode * rows;
        total.decode += sum.decode * rows;
    }
    println!(
        "all: {:.2} GB; {:.0} s to encode, {:.1} s to decode on one core",
        total.stored / 1e9,
        total.encode,
        total.decode,
    );
}
