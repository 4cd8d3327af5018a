//! How fast tables are loaded, opened, scanned and read by row; prints a line for each, with ratios.
//!
//! `cargo run --release -p weft-store --example store_speed -- [DIRECTORY] [ROWS] [WORKERS] [MEMORY in MiB]`

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow_schema::DataType;
use weft_rt::memory::Ledger;
use weft_rt::sync::block_on;
use weft_rt::{Runtime, RuntimeOptions};
use weft_store::*;

const BATCH_ROWS: usize = 8192;

fn schema() -> TableSchema {
    let column = |name: &str, data_type| Column {
        name: name.into(),
        data_type,
        nullable: true,
        default: None,
        max_length: None,
        kind: None,
    };
    let columns = vec![
        column("orderkey", DataType::Int64),
        column("partkey", DataType::Int64),
        column("quantity", DataType::Decimal128(15, 2)),
        column("price", DataType::Decimal128(15, 2)),
        column("discount", DataType::Decimal128(15, 2)),
        column("shipdate", DataType::Date32),
        column("mode", DataType::Utf8View),
        column("comment", DataType::Utf8View),
    ];
    TableSchema { name: "items".into(), columns }
}

fn batch(first: usize, rows: usize, random: &mut fastrand::Rng) -> RecordBatch {
    const MODES: [&str; 4] = ["AIR", "RAIL", "SHIP", "TRUCK"];
    const WORDS: [&str; 8] =
        ["warp", "shuttle", "carefully", "loom", "ironic", "deposits", "thread", "sleep"];
    let mut decimal = |most: i128| -> ArrayRef {
        let values = (0..rows).map(|_| random.i128(0..most));
        let values = Decimal128Array::from_iter_values(values);
        Arc::new(values.with_precision_and_scale(15, 2).expect("precision"))
    };
    let money = [decimal(5_000), decimal(10_000_000), decimal(11)];
    let mut text = || -> String {
        (0..random.usize(2..6)).map(|_| WORDS[random.usize(..8)]).collect::<Vec<_>>().join(" ")
    };
    let comments = StringViewArray::from_iter_values((0..rows).map(|_| text()));
    let orders = Int64Array::from_iter_values((first..first + rows).map(|row| row as i64 / 4));
    let parts = Int64Array::from_iter_values((0..rows).map(|_| random.i64(0..200_000)));
    let dates = Date32Array::from_iter_values((0..rows).map(|_| random.i32(8_000..10_500)));
    let modes = StringViewArray::from_iter_values((0..rows).map(|_| MODES[random.usize(..4)]));
    let [quantity, price, discount] = money;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(orders),
        Arc::new(parts),
        quantity,
        price,
        discount,
        Arc::new(dates),
        Arc::new(modes),
        Arc::new(comments),
    ];
    RecordBatch::try_new(schema().arrow_schema(), columns).expect("as the schema says")
}

/// Runs a scan to its end on as many threads as there are partitions; returns the rows.
fn scan(table: &Arc<Table>, options: ScanOptions) -> std::result::Result<u64, StoreError> {
    let scans = table.scan_partitions(2, options)?;
    std::thread::scope(|scope| {
        let run = |mut scan: Scan| {
            let mut rows = 0;
            while let Some(batch) = scan.next_blocking() {
                rows += batch?.num_rows() as u64;
            }
            Ok(rows)
        };
        let threads: Vec<_> =
            scans.into_iter().map(|scan| scope.spawn(move || run(scan))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a consumer panicked")).sum()
    })
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().map_or_else(|| std::env::temp_dir().join("weft-speed"), PathBuf::from);
    let rows: usize = args.next().map_or(Ok(2_000_000), |text| text.parse())?;
    let workers: usize = args.next().map_or(Ok(2), |text| text.parse())?;
    let memory_mib: u64 = args.next().map_or(Ok(2048), |text| text.parse())?;
    let runtime = Runtime::new(&RuntimeOptions { workers, ..RuntimeOptions::default() })?;
    let (runtime, directory) = (Arc::new(runtime), Directory::Os(path.clone()));
    let open = |create| {
        let options = StoreOptions { create, ..StoreOptions::default() };
        Store::open(&directory, &options, runtime.clone(), Ledger::new(memory_mib << 20))
    };
    let mut random = fastrand::Rng::with_seed(1);
    let sample: Vec<RecordBatch> =
        (0..16).map(|part| batch(part * BATCH_ROWS, BATCH_ROWS, &mut random)).collect();
    let memory: usize = sample.iter().map(RecordBatch::get_array_memory_size).sum();
    let row_bytes = memory / (16 * BATCH_ROWS);

    let store = open(true)?;
    let started = Instant::now();
    let writer = store.writer(&schema(), WriterOptions::default())?;
    let mut partition = writer.partition(0);
    block_on(async {
        for part in 0..rows.div_ceil(BATCH_ROWS) {
            partition.append(sample[part % 16].clone()).await?;
        }
        partition.finish().await
    })?;
    let groups = block_on(writer.finish())?;
    let written = started.elapsed();
    let create = Change::CreateTable { schema: schema(), or_replace: true };
    let append = Change::Append { table: "items".into(), expected: None, groups };
    let table = store.commit_blocking(vec![create, append])?.table("items").expect("just made");
    let raw = (table.rows() as usize * row_bytes) as f64 / 1e6;
    let seconds = started.elapsed().as_secs_f64();
    let stored = table.bytes_on_disk() as f64 / 1e6;
    println!(
        "load     {seconds:.2} s ({:.2} s to write), {:.0} MB/s of {raw:.0} MB, {stored:.0} MB stored, {} row groups",
        written.as_secs_f64(),
        raw / seconds,
        table.row_groups()
    );
    drop((table, store));

    let started = Instant::now();
    let store = open(false)?;
    println!("open     {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    let table = store.snapshot().table("items").expect("loaded");
    let all = || ScanOptions { projection: (0..8).collect(), ..ScanOptions::default() };
    let narrow = || ScanOptions { projection: vec![3, 4], ..ScanOptions::default() };
    let filtered = || ScanOptions {
        predicates: vec![(5, Predicate::Compare(Op::Lt, Scalar::Int(8_050)))],
        ..narrow()
    };
    let mut base = None;
    for (name, options) in [
        ("cold, all columns", all()),
        ("hot, all columns", all()),
        ("hot, two columns", narrow()),
        ("hot, 2 % of the rows", filtered()),
        ("count", ScanOptions::default()),
    ] {
        let started = Instant::now();
        let found = scan(&table, options)?;
        let seconds = started.elapsed().as_secs_f64();
        let ratio = *base.get_or_insert(seconds) / seconds;
        let speed = table.rows() as f64 / seconds / 1e6;
        println!(
            "scan     {name}: {:.1} ms, {found} rows, {speed:.1} M rows/s, {ratio:.1}×",
            seconds * 1e3
        );
    }
    let started = Instant::now();
    for _ in 0..2_000 {
        block_on(table.get(random.u64(..table.rows()), &[0, 3, 7]))?;
    }
    println!("get      {:.1} µs", started.elapsed().as_secs_f64() * 1e6 / 2e3);
    let started = Instant::now();
    for _ in 0..200 {
        let writer = store.writer(&schema(), WriterOptions::default())?;
        let mut partition = writer.partition(0);
        block_on(partition.append(sample[0].slice(0, 1)))?;
        block_on(partition.finish())?;
        let groups = block_on(writer.finish())?;
        store.commit_blocking(vec![Change::Append {
            table: "items".into(),
            expected: None,
            groups,
        }])?;
    }
    println!("commit   {:.2} ms of one row", started.elapsed().as_secs_f64() * 1e3 / 200.0);
    let peak = store.ledger().peak() >> 20;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident =
        status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    println!("memory   {peak} MiB of {memory_mib} MiB reserved at most; {resident}");
    drop((table, store));
    std::fs::remove_dir_all(&path)?;
    Ok(())
}
